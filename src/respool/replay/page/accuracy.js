// Accuracy of the replay: the reported bill, calibration and skipped files.

function accuracy(section) {
  const { recorded, close, calibrations, left, count } = DATA;
  if (count.sessions) section.append(paragraph(`Tokens were counted ${DATA.counter}.`));
  if (recorded) {
    section.append(
      element("h3", {}, "The replayed and the reported bill"),
      paragraph(
        `The provider reported usage for ${plural(recorded.requests, "request")}. Without compaction, their replayed cost is `,
        element("b", {}, comparison(replayedShare(recorded))),
        " the reported cost.",
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
            "Replayed cost divided by reported cost, one dot per session. Right of the middle the replay is higher.",
          ),
          responsive((width) => accuracyDots(close, width)),
        ),
      );
  } else if (count.sessions)
    section.append(
      note(
        "No session has reported usage, so the replayed bill cannot be compared.",
      ),
    );
  if (calibrations.length) {
    section.append(
      element("h3", {}, "A model’s tokens per counted token"),
      table(
        "Measured on recorded requests; 90 % lie within the range",
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
  if (left.length) section.append(element("h3", {}, "Skipped files"), ...skippedFiles(left, count.left));
}

// In money if all of it has a price, else in tokens of plain input.
function replayedShare({ replayed, reported }) {
  const field = priced(replayed) && priced(reported) ? "money" : "cost";
  return replayed[field] / reported[field];
}

function comparison(ratio) {
  const off = Math.abs(ratio - 1);
  if (!Number.isFinite(off) || off < 0.0005) return "equal to";
  return `${percent(off)} ${ratio > 1 ? "more than" : "less than"}`;
}

const CHARGED = [
  ["Read from the cache", "read"],
  ["Written to the cache", "write"],
  ["Written to the cache for an hour", "write_1h"],
  ["Not cached", "plain"],
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
  const columns = [["Tokens", "left"], ["Reported"], ["Replayed"], ["Difference"]];
  return element(
    "div",
    {},
    table("Prompts as reported and as replayed", columns, lines),
    note(outputAndHead(recorded)),
    explanation(recorded),
  );
}

function outputAndHead({ output, output_money, hidden, head, warm }) {
  const money = output_money == null ? "" : ` (${dollars(output_money)})`;
  const others = warm ? `, of which another conversation had cached ${tokens(warm)}` : "";
  return `The model wrote ${tokens(output)} output tokens${money}. ${tokens(hidden)} prompt tokens are not recorded (hidden reasoning, attachments). System prompt and tools, inferred from the first request: about ${tokens(head)} tokens${others}.`;
}

// Components of the reported prompts, and causes of the difference between the bills.
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
    "Causes of the difference",
    why.length > 0 && table("Reported less replayed cost, by cause", whyColumns, why),
    made.length > 0 && table("Components of the reported prompts", madeColumns, made),
  );
}

const FEW_REASONS = 8;

function skippedFiles(left, count) {
  const by = new Map();
  for (const one of left) by.set(one.reason, [...(by.get(one.reason) ?? []), one]);
  const lists =
    by.size <= FEW_REASONS
      ? [...by].map(([reason, files]) =>
          folded(
            `${reason} (${plural(files.length, "file")})`,
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
                ["Reason", "words"],
              ],
              left.map((one) => [breakable(one.source), one.reason]),
            ),
          ),
        ];
  return count > left.length
    ? [...lists, note(`${number(count - left.length)} more are not listed.`)]
    : lists;
}
