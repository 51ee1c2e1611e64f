// How far the replay can be trusted: the real bill beside it, calibration, what was left unread.

function trust(section) {
  const { recorded, close, calibrations, left, count } = DATA;
  if (count.sessions) section.append(paragraph(`Tokens were counted ${DATA.counter}.`));
  if (recorded) {
    section.append(
      element("h3", {}, "The replayed bill beside the real one"),
      paragraph(
        `The provider’s own report is on record for ${plural(recorded.requests, "request")}. Without any compaction, the replay of them comes to `,
        element("b", {}, beside(replayedShare(recorded))),
        " was charged.",
      ),
      billTable(recorded),
    );
    if (close.length > 1)
      section.append(
        element("h4", {}, "Session by session"),
        element(
          "figure",
          {},
          element(
            "figcaption",
            {},
            "Replayed over reported cost, a dot a session. Right of the middle: the replay says more than was charged.",
          ),
          place((width) => closeness(close, width)),
        ),
      );
  } else if (count.sessions)
    section.append(
      note(
        "No session has a report of the provider’s, so there is nothing to hold the replayed bill against.",
      ),
    );
  if (calibrations.length) {
    section.append(
      element("h3", {}, "Tokens of a model’s own for one that was counted"),
      table(
        "Measured on recorded requests; nine in ten lie within the range",
        [["Model", "words"], ["Factor"], ["Range"], ["Requests"]],
        calibrations.map((one) => [
          one.model,
          number(one.factor, 3),
          `${number(one.low, 2)} – ${number(one.high, 2)}`,
          number(one.requests),
        ]),
      ),
    );
  }
  if (left.length) section.append(element("h3", {}, "Left unread"), ...leftOut(left, count.left));
}

// In money where all of it has a price, as people read bills.
function replayedShare({ replayed, reported }) {
  const field = priced(replayed) && priced(reported) ? "money" : "cost";
  return replayed[field] / reported[field];
}

function beside(ratio) {
  const off = Math.abs(ratio - 1);
  if (!Number.isFinite(off) || off < 0.0005) return "what";
  return `${percent(off)} ${ratio > 1 ? "more than" : "less than"}`;
}

const CHARGED = [
  ["Read from the cache", "read"],
  ["Written to it", "write"],
  ["Written to it for an hour", "write_1h"],
  ["Neither", "plain"],
];

function billTable(recorded) {
  const { reported, replayed } = recorded;
  const line = (name, from, to, format) => [
    name,
    format(from),
    format(to),
    from ? change(to / from) : "–",
  ];
  const parts = CHARGED.filter(([, field]) => reported[field] || replayed[field]);
  const lines = [
    ...parts.map(([name, field]) => line(name, reported[field], replayed[field], tokens)),
    line("All tokens sent", sent(reported), sent(replayed), tokens),
    line("In tokens of plain input", reported.cost, replayed.cost, tokens),
  ];
  if (priced(reported) && priced(replayed)) {
    lines.push(line("Money", reported.money, replayed.money, dollars));
  }
  const columns = [["Tokens", "left"], ["Reported"], ["Replayed"], ["Off by"]];
  return element(
    "div",
    {},
    table("Prompts as reported and as replayed", columns, lines),
    note(besidePrompts(recorded)),
    explanation(recorded),
  );
}

function besidePrompts({ output, output_money, hidden, head, warm }) {
  const money = output_money == null ? "" : ` (${dollars(output_money)})`;
  const others = warm ? `, of which another conversation had cached ${tokens(warm)}` : "";
  return `Beside the prompts, the model wrote ${tokens(output)} tokens${money}. ${tokens(hidden)} prompt tokens are in no record (hidden reasoning, attachments). System prompt and tools, as the first request shows: about ${tokens(head)} tokens${others}.`;
}

// What the real prompts were made of, and what makes the replayed bill differ from the real one.
function explanation({ made_of, explained, reported }) {
  const shares = (parts, whole) =>
    Object.entries(parts)
      .filter(([, amount]) => Math.abs(amount) >= 0.5)
      .sort(([, one], [, other]) => Math.abs(other) - Math.abs(one))
      .map(([name, amount]) => [name, tokens(amount), whole ? percent(amount / whole) : "–"]);
  const made = shares(made_of, sent(reported));
  const why = shares(explained, reported.cost);
  if (!made.length && !why.length) return null;
  const whyColumns = [["Cause", "words"], ["Tokens of plain input"], ["Of the bill"]];
  const madeColumns = [["Part", "words"], ["Tokens"], ["Of all"]];
  return folded(
    "What makes the difference",
    why.length > 0 && table("Reported less replayed cost, by cause", whyColumns, why),
    made.length > 0 && table("What the reported prompts were made of", madeColumns, made),
  );
}

const FEW_REASONS = 8;

function leftOut(left, count) {
  const by = new Map();
  for (const one of left) by.set(one.why, [...(by.get(one.why) ?? []), one]);
  const lists =
    by.size <= FEW_REASONS
      ? [...by].map(([why, files]) =>
          folded(
            `${why} (${plural(files.length, "file")})`,
            element(
              "ul",
              { class: "plain" },
              files.map((one) => element("li", {}, code(one.source))),
            ),
          ),
        )
      : [
          folded(
            plural(count, "file"),
            table(
              "Files that were not replayed",
              [
                ["File", "words"],
                ["Why", "words"],
              ],
              left.map((one) => [breakable(one.source), one.why]),
            ),
          ),
        ];
  return count > left.length
    ? [...lists, note(`${number(count - left.length)} more are not named here.`)]
    : lists;
}
