// Numbers as people read them, and the elements they stand in. Whatever is said gets in as text.

const SPACE = "\u00a0";

// Signs that nobody sees and that turn, hide or break off what stands around them.
const HIDDEN =
  /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2060-\u206f\u{e0000}-\u{e007f}]/gu;

function signName(sign) {
  const code = sign.codePointAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}

// What is put on a page: texts with such signs named in their place.
const legible = (child) => (typeof child === "string" ? child.replace(HIDDEN, signName) : child);

const READ_OUT = new Set(["aria-label", "title"]); // attributes that a person gets to know

const setAttribute = (made, key, value) =>
  made.setAttribute(key, READ_OUT.has(key) ? legible(value) : value);

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) setAttribute(made, key, value);
  }
  made.append(...contents(children));
  return made;
}

const contents = (children) =>
  children.flat(2).filter((child) => child != null && child !== false).map(legible);

const code = (text) => element("code", {}, text);
const paragraph = (...children) => element("p", {}, ...children);
const note = (...children) => element("p", { class: "note" }, ...children);

function number(value, digits = 0) {
  if (value == null || !Number.isFinite(value)) return "–";
  const format = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return value.toLocaleString("en", format).replace("-", "−");
}

function tokens(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [unit, name] of [
    [1e9, "bn"],
    [1e6, "M"],
    [1e3, "k"],
  ]) {
    if (size < unit * 0.9995) continue;
    const scaled = value / unit;
    return `${number(scaled, Math.abs(scaled) < 99.95 ? 1 : 0).replace(/\.0$/, "")}${SPACE}${name}`;
  }
  return number(value);
}

const plural = (count, one, many = `${one}s`) =>
  `${number(count)}${SPACE}${count === 1 ? one : many}`;
