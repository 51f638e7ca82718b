// Elements, made and kept up to date. Names of limits, keys and nodes are untrusted text: whatever comes in here ends
// up as text, never as markup.

/** An element with attributes, listeners (`onclick`) and children, which are elements or text. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== undefined && child !== null));
  return made;
}

/** Sets a text where it is another one: what did not change is not read out, selected or drawn anew. */
export function text(element, shown) {
  if (element.textContent !== shown) element.textContent = shown;
}

/** Sets an attribute where it is another one; takes it away for `null`. */
export function attr(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/** Makes the children of `parent` be `wanted`, and moves only those that are elsewhere. */
export function children(parent, wanted) {
  let next = parent.firstChild;
  for (const child of wanted) {
    if (child === next) next = next.nextSibling;
    else parent.insertBefore(child, next);
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}

/** A list of elements by name: made once, kept up to date, forgotten when they are gone. */
export function kept(make, update) {
  const known = new Map();
  return (items) => {
    const seen = new Set(items.map(([key]) => key));
    for (const key of known.keys()) if (!seen.has(key)) known.delete(key);
    return items.map(([key, item]) => {
      if (!known.has(key)) known.set(key, make(key, item));
      const made = known.get(key);
      update(made, item, key);
      return made.root ?? made;
    });
  };
}

/** A number that can be read by people and, exactly, by programs. */
export function figure() {
  return el("data", { value: "" });
}

/** Shows `value` in a [figure] as `shown`. */
export function show(element, value, shown) {
  attr(element, "value", value ?? "");
  text(element, shown);
}

/** Says something to those who listen to the page rather than look at it. */
export function say(words) {
  text(document.getElementById("said"), words);
}
