// Charts of policies: cost and lost turns of each, and cost against lost turns.

const WIDEST_RATIO = 1.6; // a longer bar is cut off and labelled with its value

// Layout of the bars for a width.
function barLayout(totals, width) {
  const narrow = width < 520; // then a name stands above its bar
  const longest = Math.max(...totals.map((total) => textWidth(total.policy, 600)));
  const names = narrow ? 0 : Math.min(width * 0.3, 16 + longest);
  const lostWidth = width * (narrow ? 0.3 : 0.22);
  const ratios = totals.map((total) => total.all_in_ratio ?? 1);
  const most = Math.min(WIDEST_RATIO, Math.max(1.08, ...ratios));
  const least = Math.max(0, Math.min(0.92, ...ratios) - 0.06);
  const labelWidth = narrow ? 44 : 48; // for the value after a bar's end
  const mostLost = Math.max(0.01, ...totals.map((total) => total.lost));
  return {
    narrow,
    width,
    names,
    most,
    head: 40,
    row: narrow ? 58 : 36,
    lostAt: width - lostWidth,
    lost: scale(0, mostLost, 0, lostWidth - 48),
    x: scale(least, most, names + labelWidth, width - lostWidth - 64 - labelWidth),
  };
}

const lossAndCost = (total) =>
  `${total.policy}: all-in ${number(total.all_in_ratio, 3)}, ${percent(total.lost)} of turns lost something`;

function policyBars(totals, width) {
  const layout = barLayout(totals, width);
  const { x, lostAt, head } = layout;
  const height = head + totals.length * layout.row + 8;
  const title = "All-in cost and lost turns of each policy";
  const svg = drawing(width, height, title, totals.map(lossAndCost).join(". "));
  svg.append(
    label("all-in, as a ratio", layout.names, 12, { class: "strong" }),
    label("lost turns", lostAt, 12, { class: "strong" }),
    label("cheaper", x(1) - 8, 32, { class: "tick", "text-anchor": "end" }),
    label("dearer", x(1) + 8, 32, { class: "tick" }),
    ...totals.flatMap((total, at) => {
      const top = head + at * layout.row + (layout.narrow ? 22 : 8);
      return [
        policyName(total, top, layout),
        ...costBar(total, top, layout),
        ...lossBar(total, top, layout),
      ];
    }),
    shape("line", { class: "axis", x1: x(1), x2: x(1), y1: 22, y2: height }),
    shape("line", { class: "axis", x1: lostAt, x2: lostAt, y1: head, y2: height }),
  );
  return svg;
}

function policyName(total, top, { narrow, width, names }) {
  const text = shortened(total.policy, narrow ? width : names - 8, 600);
  const kind = total === DATA.totals[BASE] ? "tick" : "strong";
  return label(text, 0, narrow ? top - 6 : top + 14, { class: kind });
}

function barShape(total, kind, x, y, width, title) {
  const { colour, dashed } = policyStyle(total.policy);
  const opacity = dashed ? 0.55 : null;
  const attributes = { class: `${kind} fill ${colour}`, opacity, x, y, width, height: 18 };
  return shape("rect", { ...attributes, "data-policy": total.policy }, tooltip(title));
}

function costBar(total, top, { x, most }) {
  const ratio = total.all_in_ratio ?? 1;
  const end = x(Math.min(ratio, most));
  const title = `${total.policy}: all-in ${number(ratio, 3)}, bill ${number(total.bill_ratio, 3)}`;
  const wide = Math.max(1, Math.abs(end - x(1)));
  const broken = `M${end - 10} ${top - 2}l-4 22m8 -22l-4 22`;
  const anchor = ratio < 1 ? "end" : "start";
  return [
    barShape(total, "mark", Math.min(x(1), end), top, wide, title),
    ratio > most && shape("path", { class: "halo", fill: "none", d: broken }),
    label(number(ratio, 2), ratio < 1 ? end - 6 : end + 6, top + 13, {
      "text-anchor": anchor,
      class: "strong",
    }),
  ].filter(Boolean);
}

function lossBar(total, top, { lost, lostAt }) {
  const wide = total.lost > 0 ? Math.max(1, lost(total.lost)) : 0;
  const title = `${total.policy}: ${plural(total.lost_turns, "turn")} lost something`;
  const value = total.lost_turns ? percent(total.lost) : "none";
  return [
    barShape(total, "lost", lostAt, top, wide, title),
    label(value, lostAt + wide + 6, top + 13, { class: total.lost_turns ? null : "tick" }),
  ];
}

// Losses are on a square-root scale, ratios on a logarithmic one, and points far to the right are
// drawn at the edge: most policies of interest lie close together.
function frontier(totals, width) {
  const height = Math.max(260, Math.min(320, width * 0.7));
  const points = totals.filter((total) => total.all_in_ratio > 0);
  const plane = { left: 48, right: width - 16, top: 24, bottom: height - 40, ...plotRange(points) };
  const along = scale(Math.log(plane.low), Math.log(plane.high), plane.left, plane.right);
  const up = scale(0, Math.sqrt(plane.mostLost), plane.bottom, plane.top);
  const x = (ratio) => along(Math.log(Math.min(ratio, plane.high)));
  const y = (share) => up(Math.sqrt(share));
  const title = "All-in cost against lost turns: down and to the left is better";
  const svg = drawing(width, height, title, points.map(lossAndCost).join(". "));
  planeAxes(svg, plane, x, y, width < 420 ? 4 : 6);
  svg.append(
    label("all-in, as a ratio", plane.right, height - 6, { class: "tick", "text-anchor": "end" }),
    label("turns that lost something", 0, 10, { class: "tick" }),
    frontierLine(points, x, y),
  );
  const taken = points.map((total) => [x(total.all_in_ratio) - 7, y(total.lost) + 4, 14]);
  for (const total of [...points].sort((one, other) => other.lost - one.lost)) {
    svg.append(...dot(total, x(total.all_in_ratio), y(total.lost), plane, taken));
  }
  return svg;
}

function plotRange(points) {
  const ratios = points.map((total) => total.all_in_ratio);
  return {
    low: Math.min(0.9, ...ratios) * 0.95,
    high: Math.min(WIDEST_RATIO, Math.max(1.08, ...ratios)) * 1.04,
    mostLost: Math.max(0.01, ...points.map((total) => total.lost)) * 1.1,
  };
}

function planeAxes(svg, { left, right, top, bottom, low, high, mostLost }, x, y, most) {
  const shares = [0, mostLost < 0.02 && 0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1];
  const shown = shares.filter((share) => share !== false && share <= mostLost);
  rows(svg, shown, y, left, right, percent);
  for (const value of ticks(low, high, most)) {
    const kind = Math.abs(value - 1) < 1e-9 ? "axis" : "grid";
    const text = number(value, 2).replace(/0$/, "");
    svg.append(
      shape("line", { class: kind, x1: x(value), x2: x(value), y1: top, y2: bottom }),
      label(text, x(value), bottom + 16, { class: "tick", "text-anchor": "middle" }),
    );
  }
}

// The line through the policies that no other beats in both, without those that know the future.
function frontierLine(points, x, y) {
  const real = points.filter((t) => !FORESIGHT.has(t.policy));
  const best = real
    .filter(
      (a) =>
        !real.some(
          (b) =>
            b !== a &&
            b.all_in_ratio <= a.all_in_ratio &&
            b.lost <= a.lost &&
            (b.all_in_ratio < a.all_in_ratio || b.lost < a.lost),
        ),
    )
    .sort((a, b) => a.all_in_ratio - b.all_in_ratio);
  return shape("path", {
    class: "frontier",
    d: best.map((t, at) => `${at ? "L" : "M"}${x(t.all_in_ratio)} ${y(t.lost)}`).join(""),
  });
}

// A point and its name; a leader line connects a distant name.
function dot(total, x, y, plane, taken) {
  const { colour, dashed } = policyStyle(total.policy);
  const out = total.all_in_ratio > plane.high;
  const text = shortened(total.policy, 120) + (out ? ` · ${number(total.all_in_ratio, 2)} →` : "");
  const wide = textWidth(text);
  const [at, base] = freePlace(x, y, wide, plane, taken);
  taken.push([at, base, wide]);
  const middle = Math.min(Math.max(x, at), at + wide);
  const hollow = { class: `mark stroke ${colour}`, fill: "var(--paper)", "stroke-width": 2 };
  const kind = dashed ? hollow : { class: `mark fill halo ${colour}` };
  return [
    y - base > 22 && shape("path", { class: "axis", d: `M${x} ${y - 7}L${middle} ${base + 3}` }),
    shape(
      "circle",
      { ...kind, cx: x, cy: y, r: 6, "data-policy": total.policy },
      tooltip(lossAndCost(total)),
    ),
    label(text, at, base),
  ].filter(Boolean);
}

// The nearest free position for a label at a point.
function freePlace(x, y, wide, { left, right, top, bottom }, taken) {
  const onAxis = y > bottom - 10; // next to the point, the axis would cross the text
  const beside = onAxis
    ? []
    : [
        [x + 10, y + 4],
        [x - 10 - wide, y + 4],
      ];
  const around = [
    [x - wide / 2, 2],
    [x - 2, 2],
    [x + 2 - wide, 2],
    [x + 10, 8],
    [x - 10 - wide, 8],
  ];
  const above = [1, 2, 3, 4, 5, 6, 7, 8].flatMap((row) =>
    around.map(([at, down]) => [at, y + down - row * 14]),
  );
  const inside = ([at, base]) => at >= left && at + wide <= right + 14 && base > top - 8;
  const hides = ([at, base]) =>
    taken.some(
      ([from, level, size]) =>
        at < from + size + 2 && from < at + wide + 2 && Math.abs(base - level) < 13,
    );
  const free = [...beside, ...above].find((spot) => inside(spot) && !hides(spot));
  return free ?? [Math.max(left, right - wide), y + 4];
}
