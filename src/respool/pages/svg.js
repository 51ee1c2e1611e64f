// What charts are made of: shapes, scales, and how a person moves along them.

const SVG = "http://www.w3.org/2000/svg";
let ids = 0; // given so far

// The id of an element that others point to.
const newId = (kind) => `${kind}-${++ids}`;

function shape(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value != null && value !== false) setAttribute(made, key, value);
  }
  made.append(...contents(children));
  return made;
}

const label = (text, x, y, attributes = {}) => shape("text", { x, y, ...attributes }, text);

// A drawing with its text alternative; one that can be moved along takes the focus.
function drawing(width, height, title, description, moving = false) {
  const id = newId("chart");
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
      "data-key": moving && title,
    },
    shape("title", { id: `${id}-title` }, title),
    shape("desc", { id: `${id}-text` }, description),
  );
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

// Moves along a drawing by pointer, touch or arrow keys, and tells what is there; begins at `first`.
function movable(svg, width, xs, top, bottom, tell, first = 0) {
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
  svg.addEventListener("focus", () => at < 0 && go(first));
  svg.addEventListener("keydown", (event) => {
    const move = keys[event.key];
    if (!move) return;
    event.preventDefault();
    go(move());
  });
}
