// What charts are made of: shapes, scales, colours, and how a person moves along them.

const SVG = "http://www.w3.org/2000/svg";
const COLOURS = 6;
const OTHERS = "others"; // all groups too small for a colour
let names = 0;

function shape(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value != null && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child != null && child !== false));
  return made;
}

const label = (text, x, y, attributes = {}) => shape("text", { x, y, ...attributes }, text);
const told = (text) => shape("title", {}, text);

// A drawing with its text alternative; one that can be moved along takes the focus.
function drawing(width, height, title, description, moving = false) {
  const id = `chart-${++names}`;
  return shape(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: moving ? "group" : "img",
      "aria-roledescription": moving && "chart",
      tabindex: moving ? 0 : null,
      "aria-labelledby": `${id}-title`,
      "aria-describedby": `${id}-text`,
    },
    shape("title", { id: `${id}-title` }, title),
    shape("desc", { id: `${id}-text` }, description),
  );
}

// A place for a drawing, drawn again whenever its width changes.
function place(draw) {
  const holder = element("div", { class: "chart" });
  let width = 0;
  holder.redraw = () => width && holder.replaceChildren(draw(width));
  new ResizeObserver(([entry]) => {
    const wide = Math.floor(entry.contentRect.width);
    if (!wide || wide === width) return;
    width = wide;
    holder.redraw();
  }).observe(holder);
  return holder;
}

const scale = (from, to, start, end) => (value) =>
  start + ((value - from) / (to - from || 1)) * (end - start);

// Round values from 0 (or `from`) up to the largest, at most about so many.
function ticks(from, to, most) {
  const rough = (to - from) / Math.max(1, most) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10]
    .map((factor) => factor * power)
    .find((size) => size >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to * (1 + 1e-9); at++)
    found.push(at * step + 0);
  return found;
}

const ruler = document.createElement("canvas").getContext("2d");

function textWidth(text, weight = 400) {
  ruler.font = `${weight} 12px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

// As much of a text as the room takes.
function shortened(text, room, weight = 400) {
  if (textWidth(text, weight) <= room) return text;
  let fit = text.length;
  while (fit > 2 && textWidth(`${text.slice(0, fit)}…`, weight) > room) fit--;
  return `${text.slice(0, fit)}…`;
}

// Nothing taken out is grey; what knows the future is dashed; the others have a colour each.
function look(policy) {
  const chosen = DATA.policies.filter((name) => name !== "none" && !FORESIGHT.has(name));
  const at = chosen.indexOf(policy);
  return {
    colour: at < 0 ? "s0" : `s${(at % COLOURS) + 1}`,
    dashed: FORESIGHT.has(policy) || at >= COLOURS,
  };
}

function key(policy) {
  const { colour, dashed } = look(policy);
  return element("span", {
    class: `key rule ${colour}${dashed ? " dashed" : ""}`,
    "aria-hidden": "true",
  });
}

// Of a group in a stack.
const colourOf = (group, at) => (group === OTHERS ? "s0" : `s${(at % COLOURS) + 1}`);

// Moves along a drawing by pointer, touch or arrow keys, and tells what is there.
function movable(svg, width, xs, top, bottom, tell) {
  const cursor = shape("line", { class: "cursor", y1: top, y2: bottom, visibility: "hidden" });
  let at = -1;
  const go = (to) => {
    at = Math.min(xs.length - 1, Math.max(0, to));
    cursor.setAttribute("x1", xs[at]);
    cursor.setAttribute("x2", xs[at]);
    cursor.setAttribute("visibility", "visible");
    tell(at);
  };
  const nearest = (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) * width) / box.width;
    let best = 0;
    xs.forEach((one, index) => {
      if (Math.abs(one - x) < Math.abs(xs[best] - x)) best = index;
    });
    go(best);
  };
  const keys = {
    ArrowRight: () => at + 1,
    ArrowLeft: () => at - 1,
    Home: () => 0,
    End: () => xs.length - 1,
  };
  svg.append(cursor);
  if (!xs.length) return;
  svg.addEventListener("pointermove", nearest);
  svg.addEventListener("pointerdown", nearest);
  svg.addEventListener("focus", () => at < 0 && go(0));
  svg.addEventListener("keydown", (event) => {
    const move = keys[event.key];
    if (!move) return;
    event.preventDefault();
    go(move());
  });
}

function rows(svg, values, y, left, right, format) {
  for (const value of values) {
    svg.append(
      shape("line", {
        class: value === 0 ? "axis" : "grid",
        x1: left,
        x2: right,
        y1: y(value),
        y2: y(value),
      }),
      label(format(value), left - 8, y(value) + 4, { class: "tick", "text-anchor": "end" }),
    );
  }
}
