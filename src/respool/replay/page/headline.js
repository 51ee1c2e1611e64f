// The chosen policy, and the headline: cost and savings.

const BASE_TOTAL = DATA.totals[BASE];
const TRIED = DATA.totals.filter((total) => total !== BASE_TOTAL);
const HEAD = headPolicy();
const chosen = { policy: HEAD?.policy ?? BASE_TOTAL?.policy, listeners: [] };

// `safe` if it was replayed, else the cheapest policy that does not know the future.
function headPolicy() {
  const real = TRIED.filter((total) => !FORESIGHT.has(total.policy));
  const best = [...real].sort((a, b) => (a.all_in_ratio ?? 9) - (b.all_in_ratio ?? 9))[0];
  return real.find((total) => total.policy === "safe") ?? best ?? TRIED[0];
}

function choose(policy) {
  chosen.policy = policy;
  for (const select of document.querySelectorAll("select.policy")) select.value = policy;
  for (const listener of chosen.listeners) listener();
}

function policyChoice(text) {
  const options = TRIED.map((total) =>
    element(
      "option",
      { value: total.policy, selected: total.policy === chosen.policy },
      total.policy,
    ),
  );
  const select = element(
    "select",
    { class: "policy", onchange: () => choose(select.value) },
    options,
  );
  return TRIED.length ? element("label", {}, text, select) : null;
}

function headline(section) {
  const { count, period } = DATA;
  if (!count.sessions) return emptyHeadline(section);
  const cost = priced(BASE_TOTAL.bill)
    ? dollars(BASE_TOTAL.bill.money)
    : `${tokens(BASE_TOTAL.bill.cost)} tokens of plain input`;
  section.append(
    element("h1", {}, `${plural(count.conversations, "conversation")} cost ${cost}`),
    verdict(),
    facts([
      ["Conversations", number(count.conversations)],
      ["Requests", number(DATA.requests)],
      ["Tokens sent", tokens(sent(BASE_TOTAL.bill))],
      [
        priced(BASE_TOTAL.bill) ? "Money, prompts only" : "In tokens of plain input",
        price(BASE_TOTAL.bill),
      ],
      ["Period", period ? span(period) : "no times recorded", true],
    ]),
  );
  for (const text of [...(DATA.proxied ?? []), ...asides()]) section.append(note(text));
}

function emptyHeadline(section) {
  section.append(
    element("h1", {}, "No sessions were found"),
    element(
      "p",
      { class: "verdict" },
      DATA.count.left
        ? `${plural(DATA.count.left, "file")} could not be replayed; the reasons are listed below.`
        : [
            "There was nothing to replay. Name the files or folders that hold transcripts: ",
            code("respool replay PATH"),
          ],
    ),
  );
}

const span = ([from, to]) =>
  date(from * 1000) === date(to * 1000)
    ? date(from * 1000)
    : `${date(from * 1000)} – ${date(to * 1000)}`;

function verdict() {
  if (!HEAD) {
    return element(
      "p",
      { class: "verdict" },
      "No policy was replayed except ",
      code("none"),
      ", so this page shows the cost only.",
    );
  }
  const bill = BASE_TOTAL.bill;
  // In the headline's unit: dollars, or tokens of plain input.
  const off = 1 - (bill.money ? allInMoney(HEAD) / bill.money : (HEAD.all_in_ratio ?? 1));
  const worth = priced(bill)
    ? dollars(Math.abs(bill.money - allInMoney(HEAD)))
    : `${tokens(Math.abs(off) * bill.cost)} tokens of plain input`;
  const saved =
    Math.abs(off) < 0.0005
      ? "would have cost the same"
      : off > 0
        ? `would have saved ${percent(off)} of it (${worth})`
        : `would have cost ${percent(-off)} more (${worth})`;
  const lost = HEAD.lost_turns
    ? `lost something that ${plural(HEAD.lost_turns, "later turn")} needed (${percent(HEAD.lost)} of all)`
    : "lost nothing that a later turn needed";
  const limit = FORESIGHT.has(HEAD.policy) ? ", knowing the future," : "";
  return element(
    "p",
    { class: "verdict" },
    code(HEAD.policy),
    `${limit} ${saved} and ${lost}.`,
    HEAD.lost_turns ? " The cost of refetching is included." : "",
  );
}

const allInMoney = (total) =>
  total.bill.money * (total.bill_ratio ? total.all_in_ratio / total.bill_ratio : 1);

function asides() {
  const { count } = DATA;
  const found = [];
  const kinds = [
    count.children && `${number(count.children)} of sub-agents`,
    count.parts && `${number(count.parts)} that continue after an agent’s own compaction`,
  ].filter(Boolean);
  if (kinds.length) {
    found.push(
      `Below they are listed as ${plural(count.sessions, "session")}, which include ${kinds.join(", ")}.`,
    );
  }
  if (count.unpriced && count.unpriced < count.sessions) {
    found.push(
      `${plural(count.unpriced, "session has", "sessions have")} a model without a known price: counted in all ratios, not in dollars.`,
    );
  } else if (count.unpriced) {
    found.push(
      "No price is known for these models, so costs are in tokens of plain input: cache reads count less, cache writes may count more.",
    );
  }
  return found;
}
