// What charts are made of: shapes, scales, colours, and how a person moves along them.

const COLOURS = 6;
const OTHERS = "others"; // all groups too small for a colour

const told = (text) => shape("title", {}, text);

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
