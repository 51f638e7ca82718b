// What an operator can do to a limit: a form, a sentence that says what will happen, and only then the deed.

import { Problem, ask, hurry, pathOf } from "./allocator.js";
import { children, el, say, text } from "./dom.js";
import * as words from "./words.js";

/** Shows what went wrong as the allocator put it, word by word. */
export function wrong(error) {
  if (!(error instanceof Problem)) {
    // `fetch` throws a TypeError if there is no connection.
    const isAway = error instanceof TypeError || error.name === "TimeoutError";
    const title = isAway ? "The allocator cannot be reached" : "This cannot be sent";
    return el("div", { class: "problem", role: "alert" }, el("strong", {}, title), el("p", {}, error.message));
  }
  const { title, detail, ...more } = error.body ?? {};
  const rest = Object.entries(more).filter(([name]) => name !== "type");
  const list = rest.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, typeof value === "string" ? value : JSON.stringify(value))]);
  return el("div", { class: "problem", role: "alert" },
    el("strong", {}, title ?? `Status ${error.status}`), el("p", {}, detail ?? ""), el("dl", {}, ...list));
}

/** Labels, with their fields and what helps to fill them in. */
export function field(label, input, hint) {
  const id = `field-${input.name}`;
  input.id = id;
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  return el("p", { class: "field" }, el("label", { for: id }, label), input, hint ? el("small", { id: `${id}-hint` }, hint) : null);
}

const input = (name, more = {}) => el("input", { name, spellcheck: "false", autocapitalize: "off", ...more });

/**
 * Opens a dialog: `fields`, then what `sentence` makes of their values, then what `send` does with them and with the decision: that
 * it is meant, and why. `preview` may add to the sentence what it finds out. Where the allocator wants a confirmation, `name` has to
 * be typed first.
 */
export function open({ title, name, fields = [], sentence, preview, verb, send, done, isGrave = false }) {
  const heading = el("h2", { id: "dialog-title", tabindex: -1 }, title);
  const place = el("div");
  const confirm = el("p", { class: "confirm" });
  const more = el("div");
  const typed = input("typed", { autocomplete: "off" });
  const sureOf = el("div", { hidden: true }, field("Confirm", typed, `Type ${name} to confirm this large change.`));
  const why = field("Reason", input("reason", { maxlength: 500 }), "For the audit log. Optional.");
  const isMeant = () => !sureOf.hidden && typed.value === name;
  const [back, go] = [el("button", { type: "button" }, "Back"), el("button", { type: "submit", class: "primary" })];
  const cancel = el("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const asks = el("div", {}, ...fields);
  const sure = el("div", { hidden: true }, confirm, more, sureOf, why);
  const form = el("form", { novalidate: true, autocomplete: "off" }, heading, asks, sure, place, el("div", { class: "buttons" }, cancel, back, go));
  const dialog = el("dialog", { "aria-labelledby": "dialog-title" }, form);
  let isSure = false;
  const values = () => Object.fromEntries(new FormData(form));
  const step = (next) => {
    isSure = next;
    [asks.hidden, sure.hidden, back.hidden] = [isSure, !isSure, !isSure || fields.length === 0];
    text(go, isSure ? verb : "Continue");
  };
  const wantName = () => {
    sureOf.hidden = false;
    typed.focus();
  };
  let isBusy = false;
  const attempt = async (deed) => {
    // Not disabled meanwhile: that would take the focus away from it.
    if (isBusy) return;
    isBusy = true;
    children(place, []);
    try {
      await deed();
    } catch (error) {
      if (error instanceof Problem && error.body?.code === "confirm_needed") wantName();
      children(place, [wrong(error)]);
    } finally {
      isBusy = false;
    }
  };
  back.addEventListener("click", () => {
    children(place, []);
    step(false);
    asks.querySelector("input, textarea, select")?.focus();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(async () => {
      if (!isSure) {
        text(confirm, sentence(values()));
        children(more, preview ? [await preview(values())] : []);
        step(true);
        (sureOf.hidden ? go : typed).focus();
        return;
      }
      if (!sureOf.hidden && !isMeant()) {
        typed.focus();
        throw new Error(`Type ${name} to confirm this.`);
      }
      const said = await send(values(), { confirm: isMeant(), reason: values().reason });
      dialog.close();
      say(said ?? `${title}: done`);
      hurry();
      done?.();
    });
  });
  dialog.addEventListener("close", () => dialog.remove());
  if (fields.length === 0) text(confirm, sentence({}));
  sureOf.hidden = !isGrave;
  step(fields.length === 0);
  document.body.append(dialog);
  dialog.showModal();
  (fields.length ? asks.querySelector("input, textarea, select") : isGrave ? typed : go).focus();
}

export function pause(name) {
  open({
    title: `Pause ${name}`,
    name,
    fields: [field("For how long", input("for", { placeholder: "until resumed" }), "A number with a unit, such as 10m or 90s. Empty: until an operator resumes the limit.")],
    sentence: ({ for: span }) => `Nothing of ${name} is lent ${span.trim() ? `for ${span.trim()}` : "until an operator resumes it"}, and nodes are asked to give back what they hold.`,
    verb: "Pause",
    send: async ({ for: span }, decision) => {
      await ask(pathOf(name, "pause"), { method: "POST", body: span.trim() ? { for: span.trim() } : {}, decision });
      return `${name} is paused`;
    },
  });
}

export function resume(name) {
  open({
    title: `Resume ${name}`,
    name,
    sentence: () => `Permits of ${name} are lent again.`,
    verb: "Resume",
    send: async (_, decision) => {
      await ask(pathOf(name, "resume"), { method: "POST", decision });
      return `${name} is resumed`;
    },
  });
}

/** A name for one top-up, so that sending it twice tops up once. */
function once() {
  return `page-${Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

export function topUp(name, limit) {
  const id = once();
  const isPattern = limit.names !== undefined;
  const fields = [field("Permits", input("permits", { inputmode: "numeric", required: true }), "Added once, beyond what the limit allows.")];
  if (isPattern) fields.push(field("Name", input("name", { value: name.slice(0, -1) }), `One of the names that ${name} stands for.`));
  if (limit.keyed) fields.push(field("Key", input("key"), "The pool of this key only."));
  open({
    title: `Top up ${name}`,
    name,
    fields,
    sentence: ({ permits, key, name: of }) => `${permits} more permits may be spent of ${of ?? name}${key ? `, key ${key},` : ""} than the limit allows.`,
    verb: "Top up",
    send: async ({ permits, key, name: of }, decision) => {
      // What is no number is for the allocator to refuse.
      const number = /^\d+$/.test(permits.trim()) ? Number(permits) : permits;
      const { body } = await ask(pathOf(of ?? name, "top-up"), { method: "POST", body: { permits: number, id, ...(key ? { key } : {}) }, decision });
      return `${name} was topped up with ${words.some(body.topped_up, "permit")}`;
    },
  });
}

export function block(name, node) {
  open({
    title: node ? `Block ${node}` : "Block a node",
    name,
    fields: node ? [] : [field("Node", input("node", { required: true }), "The full name of the node.")],
    sentence: ({ node: said }) => `Node ${node ?? said} is lent nothing more of ${name} until an operator allows it again.`,
    verb: "Block",
    send: async ({ node: said }, decision) => {
      await ask(pathOf(name, "nodes", node ?? said.trim(), "block"), { method: "POST", decision });
      return `${node ?? said} is blocked`;
    },
  });
}

export function unblock(name, node) {
  open({
    title: `Allow ${node} again`,
    name,
    sentence: () => `Node ${node} may lease from ${name} again.`,
    verb: "Allow",
    send: async (_, decision) => {
      await ask(pathOf(name, "nodes", node, "block"), { method: "DELETE", decision });
      return `${node} is allowed again`;
    },
  });
}
