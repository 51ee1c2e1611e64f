// Parts of charts: tooltips, responsive holders, text widths, colours and axes.

const COLOURS = 6;
const OTHERS = "others"; // all groups too small for a colour

const tooltip = (text) => shape("title", {}, text);

// A holder of a drawing, redrawn when its width changes.
function responsive(draw) {
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

// A text cut to a width.
function shortened(text, maxWidth, weight = 400) {
  if (textWidth(text, weight) <= maxWidth) return text;
  let fit = text.length;
  while (fit > 2 && textWidth(`${text.slice(0, fit)}…`, weight) > maxWidth) fit--;
  return `${text.slice(0, fit)}…`;
}

// No compaction is grey, policies that know the future are dashed, the others have a colour each.
function policyStyle(policy) {
  const chosen = DATA.policies.filter((name) => name !== "none" && !FORESIGHT.has(name));
  const at = chosen.indexOf(policy);
  return {
    colour: at < 0 ? "s0" : `s${(at % COLOURS) + 1}`,
    dashed: FORESIGHT.has(policy) || at >= COLOURS,
  };
}

function key(policy) {
  const { colour, dashed } = policyStyle(policy);
  return element("span", {
    class: `key rule ${colour}${dashed ? " dashed" : ""}`,
    "aria-hidden": "true",
  });
}

// The colour of a group in a stack.
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
