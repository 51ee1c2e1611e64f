// Numbers as people read them, and the elements they stand in. Whatever is said gets in as text.

const SPACE = "\u00a0";

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.flat(2).filter((child) => child != null && child !== false));
  return made;
}

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
