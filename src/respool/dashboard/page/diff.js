// Line diff of two texts, side by side.

const CONTEXT = 3; // unchanged lines shown around a change
const LONG_RUN = 40; // longer runs of changed lines are folded

// Pairs of numbers of equal lines, ascending on both sides.
function matches(left, right) {
  const pairs = [];
  const close = (a, b, c, d) => {
    while (a < b && c < d && left[a] === right[c]) pairs.push([a++, c++]);
    const tail = [];
    while (a < b && c < d && left[b - 1] === right[d - 1]) tail.push([--b, --d]);
    for (const [one, other] of anchors(left, right, a, b, c, d)) {
      if (one < a || other < c) continue;
      greedy(left, right, a, one, c, other, pairs);
      pairs.push([one, other]);
      [a, c] = [one + 1, other + 1];
    }
    greedy(left, right, a, b, c, d, pairs);
    pairs.push(...tail.reverse());
  };
  close(0, left.length, 0, right.length);
  return pairs;
}

// The longest chain of lines that are unique on both sides and in the same order.
function anchors(left, right, a, b, c, d) {
  const count = (lines, from, to) => {
    const found = new Map();
    for (let i = from; i < to; i++) found.set(lines[i], found.has(lines[i]) ? -1 : i);
    return found;
  };
  const there = count(right, c, d);
  const alone = [];
  for (const [line, i] of count(left, a, b)) {
    const j = there.get(line);
    if (i >= 0 && j >= 0 && line.trim()) alone.push([i, j]);
  }
  alone.sort((one, other) => one[0] - other[0]);
  const ends = []; // the last pair of the best chain of each length
  const previous = new Map();
  for (const pair of alone) {
    let low = 0;
    let high = ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle][1] < pair[1]) low = middle + 1;
      else high = middle;
    }
    previous.set(pair, ends[low - 1]);
    ends[low] = pair;
  }
  const chain = [];
  for (let at = ends.at(-1); at; at = previous.get(at)) chain.push(at);
  return chain.reverse();
}

// Between anchors: the next equal line, if it is near.
function greedy(left, right, a, b, c, d, pairs) {
  for (; c < d; c++) {
    if (!right[c].trim()) continue;
    const found = left.slice(a, Math.min(b, a + 200)).indexOf(right[c]);
    if (found < 0) continue;
    pairs.push([a + found, c]);
    a += found + 1;
  }
}

// Rows of [kind, line on the left, line on the right].
function rowsOf(before, after) {
  const [left, right] = [before.split("\n"), after.split("\n")];
  const rows = [];
  let [a, c] = [0, 0];
  for (const [one, other] of [...matches(left, right), [left.length, right.length]]) {
    while (a < one) rows.push(["gone", left[a++], ""]);
    while (c < other) rows.push(["came", "", right[c++]]);
    if (one < left.length) rows.push(["same", left[a++], right[c++]]);
  }
  return rows;
}

// Runs of rows of one kind.
function runs(rows) {
  const found = [];
  for (const row of rows) {
    if (found.at(-1)?.kind === row[0]) found.at(-1).rows.push(row);
    else found.push({ kind: row[0], rows: [row] });
  }
  return found;
}

function renderRow([kind, left, right]) {
  const prefix = { gone: "taken out: ", came: "put in: ", same: "" }[kind];
  const cell = (text, side) =>
    element("div", { class: `cell ${side}` }, side !== "none" && text ? text : "\u200b");
  return element(
    "div",
    { class: `line ${kind}` },
    prefix && element("span", { class: "unseen" }, prefix),
    cell(left, kind === "came" ? "none" : "left"),
    cell(right, kind === "gone" ? "none" : "right"),
  );
}

// A button that replaces itself with the folded rows.
function fold(rows, words) {
  const button = element("button", { type: "button", class: "fold" }, words);
  button.addEventListener("click", () => {
    const some = rows.slice(0, 1000).map(renderRow);
    const rest = rows.slice(1000);
    button.replaceWith(
      ...some,
      ...(rest.length ? [fold(rest, `Show ${plural(rest.length, "more line")}`)] : []),
    );
  });
  return button;
}

function folded(rows, head, tail, words) {
  if (rows.length <= head + tail + 2) return rows.map(renderRow);
  const middle = rows.slice(head, rows.length - tail);
  return [
    ...rows.slice(0, head).map(renderRow),
    fold(middle, words(middle.length)),
    ...(tail ? rows.slice(-tail).map(renderRow) : []),
  ];
}

function sideBySide(before, after) {
  const all = runs(rowsOf(before, after));
  const drawn = all.flatMap(({ kind, rows }, at) => {
    if (kind === "same") {
      const head = at === 0 ? 0 : CONTEXT;
      const tail = at === all.length - 1 ? 0 : CONTEXT;
      return folded(rows, head, tail, (count) => `Show ${plural(count, "line")} that stayed`);
    }
    const words = kind === "gone" ? "taken out" : "put in";
    const half = LONG_RUN / 2;
    return rows.length <= LONG_RUN
      ? rows.map(renderRow)
      : folded(rows, half, half, (count) => `Show ${plural(count, "more line")} ${words}`);
  });
  return element(
    "div",
    { class: "diff", role: "region", "aria-label": "Before and after", tabindex: 0 },
    element(
      "div",
      { class: "line heads" },
      element("div", { class: "cell left" }, "Before"),
      element("div", { class: "cell right" }, "After"),
    ),
    drawn,
  );
}
