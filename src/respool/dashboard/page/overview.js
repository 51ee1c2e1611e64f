// Overview: savings by the real bill, savings of the provider's cache, and tokens over time.

const FIGURES = [
  "requests", "observed", "tokens_before", "tokens_after", "saved", "would_saved", "would_cost",
  "cache_read", "cost_before", "cost_after", "cost_uncached", "errors", "fallbacks",
  "prefix_breaks", "refetched", "loops", "unpriced",
];

function sumTotals(totals) {
  const sum = Object.fromEntries(FIGURES.map((name) => [name, 0]));
  for (const total of totals) for (const name of FIGURES) sum[name] += total[name];
  return sum;
}

// Real savings, and savings that requests in observe mode would have had.
function savings(sum) {
  const money = sum.cost_before - sum.cost_after;
  const real = { money: money - sum.would_cost, tokens: sum.saved - sum.would_saved };
  const would = { money: sum.would_cost, tokens: sum.would_saved };
  const paid = sum.cost_after + sum.would_cost;
  return { real, would, paid, priced: sum.cost_before > 0 };
}

// All intervals of the range, empty ones included.
function slots({ totals, since, step }, range) {
  const spans = { hour: 3600, day: 86400, week: 604800, month: 2592000 };
  const count = chosenFilters.day ? 48 : Math.round(spans[range] / step);
  const found = new Map(totals.map((total) => [Math.round((total.start - since) / step), total]));
  return Array.from({ length: count }, (_, i) => ({
    ...sumTotals(found.has(i) ? [found.get(i)] : []),
    start: since + i * step,
  }));
}

// True if all savings are of observed requests.
const isObservedOnly = (sum) => sum.observed > 0 && sum.saved === sum.would_saved;

// The saving in the words of the command line.
const headline = ({ stated }) => stated[0].toUpperCase() + stated.slice(1);

function verdict(sum) {
  const { real, would, paid, priced } = savings(sum);
  const observing = isObservedOnly(sum);
  const of = observing ? would : real;
  const share = percent(of.tokens / sum.tokens_before);
  const money =
    priced &&
    `The bill without respool: ${dollars(observing ? paid : paid + of.money)}. `;
  const out = observing ? "would have been taken out" : "were taken out";
  const text = `${tokens(of.tokens)} of ${tokens(sum.tokens_before)} tokens (${share}) ${out} of ${plural(sum.requests, "request")}.`;
  return [
    element("p", { class: "verdict" }, money, text),
    priced && of.money < 0 && note(
      "Taking something out breaks a cached prefix once, and pays off with every request after it.",
    ),
    !observing && sum.observed > 0 && note(
      `Beside that, ${plural(sum.observed, "request")} only observed would have saved ${dollars(would.money)}, ${tokens(would.tokens)} tokens.`,
    ),
    priced && sum.unpriced > 0 && note(
      `${plural(sum.unpriced, "request")} not in the bill: no price is listed for the model, or no usage was reported.`,
    ),
    priced && note(
      element("b", {}, `The provider's own cache saved ${dollars(Math.max(0, sum.cost_uncached - paid))}`),
      ` on what was sent (${tokens(sum.cache_read)} tokens were read from it), with respool or without it; that is not counted as respool's.`,
    ),
  ];
}

function totalFacts(sum) {
  const { real, would, paid, priced } = savings(sum);
  return facts([
    ["Requests", number(sum.requests)],
    ["Tokens as they came", tokens(sum.tokens_before)],
    ["Tokens sent", tokens(sum.tokens_after + sum.would_saved)],
    priced && ["Paid", dollars(paid)],
    priced && ["Without respool", dollars(paid + real.money)],
    priced && sum.observed > 0 && ["Would have saved", dollars(would.money)],
    ["Prefix breaks", number(sum.prefix_breaks)],
    ["Fetched again", number(sum.refetched)],
    ["Loops", number(sum.loops)],
    ["Errors", number(sum.errors)],
    ["Fall-backs", number(sum.fallbacks)],
  ]);
}

function describeSlot(slot, step) {
  const { paid, real, would } = savings(slot);
  if (!slot.requests) return [element("b", {}, at(slot.start)), ": no requests"];
  const could = slot.would_saved ? `, ${tokens(slot.would_saved)} would have been` : "";
  return [
    element("b", {}, `${at(slot.start)} to ${clock.format((slot.start + step) * 1000)}`),
    `: ${plural(slot.requests, "request")}, ${tokens(slot.tokens_before)} tokens came, ${tokens(slot.saved - slot.would_saved)} were taken out${could}; paid ${dollars(paid)}, saved ${dollars(real.money)}${slot.would_cost ? `, would have saved ${dollars(would.money)}` : ""}`,
  ];
}

function legend(...items) {
  return withTerms(
    "ul",
    { class: "legend" },
    items.map(([kind, text]) =>
      element("li", {}, element("span", { class: `key ${kind}`, "aria-hidden": "true" }), term(text)),
    ),
  );
}

function overview(data, range) {
  const holder = byId("overview");
  const sum = sumTotals(data.totals);
  if (!sum.requests) return refill(holder, emptyOverview(data, range));
  const all = slots(data, range);
  const [figure, readout] = chart(
    (width) => tokenBars(all, data.step, width),
    (i) => describeSlot(all[i], data.step),
  );
  return refill(
    holder,
    element("h1", {}, headline(data)),
    verdict(sum),
    totalFacts(sum),
    element("h2", { class: "minor" }, "Tokens over time"),
    legend(["sent", "left in"], ["out", data.observe ? "would have been taken out" : "taken out"]),
    figure,
    readout,
  );
}

const RANGE_NAMES = { hour: "hour", day: "day", week: "week", month: "30 days" };

function emptyOverview(data, range) {
  if (data.latest == null) return connectHelp(data);
  if (isFiltered())
    return [
      element("h1", {}, "Nothing meets the filters"),
      element("p", { class: "verdict" }, `No request ${chosenFilters.day ? "of that day" : `in the last ${RANGE_NAMES[range]}`} fits what is chosen at the top.`),
    ];
  return [
    element("h1", {}, `Nothing in the last ${RANGE_NAMES[range]}`),
    element("p", { class: "verdict" }, `The latest request came ${ago(data.latest)}. A longer time can be chosen at the top.`),
  ];
}

// Instructions to connect an agent, shown before the first request.
function connectHelp(data) {
  const base = `${location.origin}${ROOT.replace(/\/$/, "")}`;
  const ways = [
    ["Claude Code", `ANTHROPIC_BASE_URL=${base} claude`],
    ["Codex: a model provider in ~/.codex/config.toml", `base_url = "${base}/v1"`],
    ["Gemini CLI", `GOOGLE_GEMINI_BASE_URL=${base} gemini`],
    ["Whatever speaks OpenAI's formats", `OPENAI_BASE_URL=${base}/v1`],
  ];
  return [
    element("h1", {}, "Nothing came through yet"),
    element(
      "p",
      { class: "verdict" },
      `Point an agent here, and it shows within seconds${data.observe ? "; respool only observes, and changes nothing" : ""}.`,
    ),
    element(
      "dl",
      { class: "ways" },
      ways.flatMap(([name, line]) => [element("dt", {}, name), element("dd", {}, code(line))]),
    ),
    note("Without any settings: ", code("respool run -- claude"), " (or codex, opencode, pi, gemini, …) starts the agent with a proxy of its own. What goes through that shows here, too."),
  ];
}
