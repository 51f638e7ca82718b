// Who this browser is to the allocator: it signs in with a token, which the browser then keeps where no script can read it. What
// the allocator would refuse is not offered.

import { ask, known } from "./allocator.js";
import { field, wrong } from "./actions.js";
import { children, el } from "./dom.js";

const fits = (pattern, name) => (pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : pattern === name);

/** The roles that operate `name`, or administer it; `null` if no identity is asked for. */
function roles(right, name) {
  const all = known.me?.roles;
  return all ? all.filter((role) => role[right].some((pattern) => fits(pattern, name))) : null;
}

/** Whether the limit `name` may be paused and resumed, and nodes blocked from it. */
export const mayOperate = (name) => roles("operate", name)?.length !== 0 || mayChange(name);

/** Whether it may be changed and taken away. */
export const mayChange = (name) => roles("admin", name)?.length !== 0;

/** Whether it may be topped up. */
export const mayTopUp = (name) => mayChange(name) || (roles("operate", name) ?? []).some((role) => role.top_up_max > 0);

/** Why no token is asked for: a browser drops the cookie that keeps it, unless the page came by https or from localhost. */
const INSECURE = "Signing in needs https or localhost (a forwarded port will do). At this address the browser would not keep the token.";

/** Shows in `main` how to sign in, in place of all that may not be looked at. */
export function signIn(main) {
  if (!isSecureContext) {
    children(main, [el("div", { class: "sign" }, el("h1", { tabindex: -1 }, "Sign in"), wrong(new Error(INSECURE)))]);
    return;
  }
  const token = el("input", { type: "password", name: "token", required: true, autocomplete: "current-password" });
  const place = el("div");
  const form = el("form", { class: "sign", novalidate: true, onsubmit: async (event) => {
    event.preventDefault();
    children(place, []);
    try {
      await ask("/v1/sign-in", { method: "POST", body: { token: token.value.trim() } });
      location.reload();
    } catch (error) {
      children(place, [wrong(error)]);
      token.select();
    }
  } }, el("h1", { tabindex: -1 }, "Sign in"), field("Token", token, "The token that lessor token new printed."), place,
  el("div", { class: "buttons" }, el("button", { type: "submit", class: "primary" }, "Sign in")));
  children(main, [form]);
  token.focus();
}

/** Shows in `main` that an identity may look at nothing. */
export function mayNothing(main) {
  children(main, [el("div", { class: "sign" }, el("h1", { tabindex: -1 }, "No rights"),
    el("p", {}, `${known.me.identity} has no right to look at anything here.`))]);
}

/** Takes the token away from this browser. */
export async function signOut() {
  await ask("/v1/sign-out", { method: "POST" });
  location.reload();
}
