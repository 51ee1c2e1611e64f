// Charts over time, over a session’s requests, and over sessions.

// Filled: each group with the policy; outlined: all groups as sent.
function stackedBars(periods, groups, format, width, describe) {
  const height = width < 520 ? 240 : 280;
  const [left, right, top, bottom] = [60, width - 4, 12, height - 28];
  const most = Math.max(1e-9, ...periods.map((one) => Math.max(one.before, one.after))) * 1.05;
  const y = scale(0, most, bottom, top);
  const slot = (right - left) / periods.length;
  const bar = Math.max(1, Math.min(48, slot * (slot > 8 ? 0.72 : 0.9)));
  const xs = periods.map((_, at) => left + slot * (at + 0.5));
  const highest = format(Math.max(...periods.map((one) => one.before)));
  const reached = `${plural(periods.length, "period")} from ${periods[0].name} to ${periods.at(-1).name}`;
  const text = `${reached}. The maximum was ${highest} without compaction.`;
  const svg = drawing(width, height, "Money over time, before and after", text, true);
  rows(svg, ticks(0, most, 4), y, left, right, format);
  svg.append(
    ...periods.map((one, at) => stack(one, groups, xs[at] - bar / 2, bar, y, describe)),
    ...periodNames(periods, xs, slot, bar, height - 8, right),
  );
  return { svg, xs, top, bottom };
}

function stack(period, groups, x, width, y, describe) {
  const bars = shape("g", { class: "mark" }, tooltip(describe(period).textContent));
  let base = 0;
  groups.forEach((group, at) => {
    const value = period.groups.get(group) ?? 0;
    if (value <= 0) return;
    const [from, to] = [y(base), y(base + value)];
    const size = { x, width, y: to, height: Math.max(0.5, from - to) };
    bars.append(shape("rect", { class: `fill ${colourOf(group, at)}`, ...size }));
    base += value;
  });
  const outline = `M${x} ${y(0)}V${y(period.before)}H${x + width}V${y(0)}`;
  if (period.before > 0) bars.append(shape("path", { class: "ghost", d: outline }));
  return bars;
}

// As many period names as fit.
function periodNames(periods, xs, slot, bar, y, right) {
  const every = Math.ceil(78 / slot);
  return periods.flatMap((period, at) => {
    if (at % every) return [];
    const atEnd = xs[at] + 34 > right;
    const anchor = atEnd ? "end" : at === 0 && every > 1 ? "start" : "middle";
    const x = xs[at] + { end: bar / 2, start: -bar / 2, middle: 0 }[anchor];
    return [label(period.short, x, y, { class: "tick", "text-anchor": anchor })];
  });
}

// One line per policy, and below the axis the turns that the selected one lost.
function contextLines(session, shown, lossScore, width, describe) {
  const height = width < 520 ? 240 : 300;
  const plane = { left: 52, right: width - 8, top: 14, bottom: height - 36 };
  const scores = session.scores.filter((score) => shown.has(score.policy) && score.points.length);
  const all = session.scores.flatMap((score) => score.points);
  const peak = Math.max(1, ...all.map(([, size]) => size));
  const window = session.window && session.window < peak * 1.7 ? session.window : null;
  const most = Math.max(peak, window ?? 0) * 1.06;
  const last = Math.max(1, ...all.map(([request]) => request));
  const x = scale(0, last, plane.left, plane.right);
  const y = scale(0, most, plane.bottom, plane.top);
  const text = scores.map(describeContext).join(". ");
  const svg = drawing(width, height, "Context per request", text, true);
  rows(svg, ticks(0, most, 4), y, plane.left, plane.right, tokens);
  requestAxis(svg, last, x, plane, height);
  if (window) svg.append(...windowLine(window, y, plane));
  svg.append(...scores.map((score) => contextLine(score, x, y)));
  if (lossScore) svg.append(...lossTicks(lossScore, x, plane.bottom));
  const requests = [
    ...new Set(scores.flatMap((score) => score.points.map(([request]) => request))),
  ];
  requests.sort((one, other) => one - other);
  addCursor(svg, width, requests.map(x), plane.top, plane.bottom, (at) => describe(requests[at], scores));
  return svg;
}

function describeContext({ policy, points }) {
  const longest = Math.max(...points.map(([, size]) => size));
  return `${policy}: longest prompt ${tokens(longest)} tokens, last ${tokens(points.at(-1)[1])}`;
}

function requestAxis(svg, last, x, { right, bottom }, height) {
  const shown = ticks(1, last + 1, Math.max(3, right / 90)).filter(Number.isInteger);
  const middle = { class: "tick", "text-anchor": "middle" };
  svg.append(
    ...shown.map((value) => label(number(value), x(value - 1), bottom + 18, middle)),
    label("request", right, height - 4, { class: "tick", "text-anchor": "end" }),
  );
}

function windowLine(window, y, { left, right }) {
  const at = y(window);
  return [
    shape("line", { class: "limit", x1: left, x2: right, y1: at, y2: at }),
    label(`window ${tokens(window)}`, left + 4, at - 5, { class: "tick" }),
  ];
}

function contextLine({ policy, points }, x, y) {
  const { colour, dashed } = policyStyle(policy);
  const at = points.map(([request, size]) => `${x(request).toFixed(1)} ${y(size).toFixed(1)}`);
  const kind = `line stroke ${colour}${dashed ? " dashed" : ""}`;
  return shape("path", { class: kind, d: `M${at.join("L")}`, "data-policy": policy });
}

function lossTicks({ policy, losses }, x, bottom) {
  const kind = `lost-turn stroke ${policyStyle(policy).colour}`;
  return losses.map(({ request }) =>
    shape(
      "path",
      { class: kind, "stroke-width": 2, d: `M${x(request)} ${bottom + 1}v6` },
      tooltip(`Request ${nth(request)} lost something`),
    ),
  );
}

// One dot per session: the replayed bill divided by the reported one.
function accuracyDots(ratios, width) {
  const height = 96;
  const off = Math.min(0.5, Math.max(0.05, ...ratios.map((ratio) => Math.abs(ratio - 1)))) * 1.05;
  const [left, right, base] = [14, width - 14, height - 26];
  const x = scale(1 - off, 1 + off, left, right);
  const middle = ratios[Math.floor(ratios.length / 2)];
  const svg = drawing(
    width,
    height,
    "Replayed bill divided by reported bill, one dot per session",
    `Half of ${plural(ratios.length, "session")} lie below ${number(middle, 3)}.`,
  );
  svg.append(shape("line", { class: "axis", x1: left, x2: right, y1: base + 6, y2: base + 6 }));
  for (const value of ticks(1 - off, 1 + off, width < 520 ? 4 : 8)) {
    svg.append(
      shape("line", {
        class: Math.abs(value - 1) < 1e-9 ? "axis" : "grid",
        x1: x(value),
        x2: x(value),
        y1: 4,
        y2: base + 6,
      }),
      label(change(value), x(value), height - 4, { class: "tick", "text-anchor": "middle" }),
    );
  }
  const piles = new Map();
  for (const ratio of ratios) {
    const slot = Math.round(x(Math.min(1 + off, Math.max(1 - off, ratio))) / 6);
    piles.set(slot, [...(piles.get(slot) ?? []), ratio]);
  }
  const highest = Math.max(...[...piles.values()].map((pile) => pile.length));
  const step = Math.min(5, (base - 6) / highest);
  for (const [slot, pile] of piles) {
    svg.append(
      ...pile.map((ratio, at) =>
        shape(
          "circle",
          { class: "mark fill s1", opacity: 0.75, cx: slot * 6, cy: base - at * step, r: 2.75 },
          tooltip(`replayed ${change(ratio)}`),
        ),
      ),
    );
  }
  return svg;
}
