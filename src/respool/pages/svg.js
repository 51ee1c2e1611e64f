// Parts of charts: shapes, scales, ticks and the cursor.

const SVG = "http://www.w3.org/2000/svg";
let ids = 0; // number of ids given so far

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

// A drawing with its text alternative; one with a cursor takes the focus.
function drawing(width, height, title, description, hasCursor = false) {
  const id = newId("chart");
  return shape(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: hasCursor ? "group" : "img",
      "aria-roledescription": hasCursor && "chart",
      tabindex: hasCursor ? 0 : null,
      "aria-labelledby": `${id}-title`,
      "aria-describedby": `${id}-text`,
      "data-key": hasCursor && title,
    },
    shape("title", { id: `${id}-title` }, title),
    shape("desc", { id: `${id}-text` }, description),
  );
}

const scale = (from, to, start, end) => (value) =>
  start + ((value - from) / (to - from || 1)) * (end - start);

// Round values between `from` and `to`, about `most` of them at most.
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

// Adds a cursor that pointer, touch and arrow keys move; `show` gets its index, at first `first`.
function addCursor(svg, width, xs, top, bottom, show, first = 0) {
  const cursor = shape("line", { class: "cursor", y1: top, y2: bottom, visibility: "hidden" });
  let at = -1;
  const go = (to) => {
    at = Math.min(xs.length - 1, Math.max(0, to));
    cursor.setAttribute("x1", xs[at]);
    cursor.setAttribute("x2", xs[at]);
    cursor.setAttribute("visibility", "visible");
    show(at);
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
