// Formatted numbers, and elements whose content is inserted as text only.

const SPACE = "\u00a0";

// Invisible characters that reorder, hide or cut off the text around them.
const INVISIBLE =
  /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2060-\u206f\u{e0000}-\u{e007f}]/gu;

function characterName(character) {
  const code = character.codePointAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}

// Replaces invisible characters in a text by their names.
const legible = (child) => (typeof child === "string" ? child.replace(INVISIBLE, characterName) : child);

const SPOKEN_ATTRIBUTES = new Set(["aria-label", "title"]); // shown or read aloud to the user

const setAttribute = (made, key, value) =>
  made.setAttribute(key, SPOKEN_ATTRIBUTES.has(key) ? legible(value) : value);

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
