// Charts: tokens over time, and the context of each request of a conversation.

const MAX_DOTS = 200; // with more requests, dots would touch

// A holder of a drawing, redrawn when its width changes, and the readout of its cursor.
function chart(draw, describe) {
  const readout = element("output", {});
  const holder = element("div", { class: "chart" });
  let width = 0;
  new ResizeObserver(([entry]) => {
    const wide = Math.floor(entry.contentRect.width);
    if (!wide || wide === width) return;
    width = wide;
    const { svg, xs, top, bottom } = draw(width);
    const show = (at) => readout.replaceChildren(...contents([describe(at)]));
    addCursor(svg, width, xs, top, bottom, show, xs.length - 1);
    refill(holder, svg);
    refocus(holder);
  }).observe(holder);
  return [holder, readout];
}

function grid(svg, most, y, left, right) {
  for (const value of ticks(0, most, 4)) {
    const kind = value === 0 ? "axis" : "grid";
    svg.append(
      shape("line", { class: kind, x1: left, x2: right, y1: y(value), y2: y(value) }),
      label(tokens(value), left - 8, y(value) + 4, { class: "tick", "text-anchor": "end" }),
    );
  }
}

// As many labels below the axis as fit.
function axisLabels(svg, xs, names, y) {
  let free = -Infinity;
  xs.forEach((x, i) => {
    const half = names[i].length * 3.4;
    if (x - half < free || x - half < 0 || x + half > svg.viewBox.baseVal.width) return;
    svg.append(label(names[i], x, y, { class: "tick", "text-anchor": "middle" }));
    free = x + half + 24;
  });
}

// Bars: tokens sent, and above them tokens removed.
function tokenBars(slots, step, width) {
  const [left, top, height] = [52, 12, 190];
  const bottom = height - 26;
  const most = Math.max(1, ...slots.map((slot) => slot.tokens_before));
  const y = scale(0, most, bottom, top);
  const each = (width - left) / slots.length;
  const total = slots.reduce((sum, slot) => sum + slot.tokens_before, 0);
  const svg = drawing(width, height, "Tokens over time", `${tokens(total)} tokens in all.`, true);
  grid(svg, most, y, left, width);
  const bar = (kind, x, from, to) =>
    to > from &&
    shape("rect", { class: kind, x, width: Math.max(1, each - 2), y: y(to), height: y(from) - y(to) });
  slots.forEach((slot, i) => {
    const x = left + i * each + 1;
    svg.append(
      ...[
        bar("sent", x, 0, slot.tokens_after),
        bar("out", x, slot.tokens_after, slot.tokens_before),
      ].filter(Boolean),
    );
  });
  const xs = slots.map((_, i) => left + (i + 0.5) * each);
  const names = slots.map((slot) =>
    step < 86400 / 4 ? clock.format(slot.start * 1000) : day.format(slot.start * 1000),
  );
  axisLabels(svg, xs, names, height - 6);
  return { svg, xs, top, bottom };
}

// Two lines: the context of each request as it came, and as it was sent.
function contextLines(requests, width) {
  const [left, top, height] = [52, 18, 240];
  const bottom = height - 26;
  const most = Math.max(1, ...requests.map((one) => before(one)));
  const x = scale(0, Math.max(1, requests.length - 1), left + 6, width - 6);
  const y = scale(0, most, bottom, top);
  const last = requests.at(-1);
  const svg = drawing(
    width,
    height,
    "Context of each request, before and after",
    `${plural(requests.length, "request")}; the last came with ${tokens(before(last))} tokens, ${tokens(after(last))} were ${isObserved(last) ? "left by respool's count" : "sent"}.`,
    true,
  );
  grid(svg, most, y, left, width);
  const places = requests.map((one, i) => [one, x(i)]);
  const each = branchesOf(requests).map(([branch]) => places.filter(([one]) => one.branch === branch));
  const line = (some, of) => some.map(([one, at], i) => `${i ? "L" : "M"}${at} ${y(of(one))}`).join("");
  const area = (some) => `${line(some, before)}${line(some.toReversed(), after).replace("M", "L")}Z`;
  const lines = (kind, of) => each.map((some) => shape("path", { class: `line ${kind}`, d: line(some, of) }));
  svg.append(
    ...each.map((some) => shape("path", { class: "between", d: area(some) })),
    ...requests.map((one, i) => one.prefix_break && breakAt(x(i), top, bottom)).filter(Boolean),
    ...lines("came", before),
    ...lines("went", after),
    ...places.flatMap(([one, at]) => requestDots(one, at, y, requests.length <= MAX_DOTS)),
  );
  const xs = places.map(([, at]) => at);
  axisLabels(svg, xs, requests.map((one) => `${one.nth}`), height - 6);
  return { svg, xs, top, bottom };
}

const breakAt = (x, top, bottom) =>
  shape("line", { class: "break", x1: x, x2: x, y1: top, y2: bottom });

function requestDots(one, x, y, dotted) {
  const wrong = failed(one) || fallbackText(one);
  const dots = dotted ? [shape("circle", { class: "dot", cx: x, cy: y(after(one)), r: 2.5 })] : [];
  if (wrong) dots.push(shape("circle", { class: "wrong", cx: x, cy: y(after(one)), r: 5 }));
  return dots;
}

// The provider's count stands in for a request that respool did not count (a fall-back).
const billed = (one) =>
  one.usage ? one.usage.input + one.usage.cache_read + one.usage.cache_write : 0;
const before = (one) => one.tokens_before || billed(one);
const after = (one) => (one.tokens_before ? one.tokens_after : billed(one));
const failed = (one) => one.status >= 400 || one.status === 0;
const isObserved = (one) => one.mode === "observed";
