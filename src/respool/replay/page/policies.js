// Policies compared: charts, figures and cuts.

function policies(section) {
  const totals = DATA.totals;
  if (!TRIED.length) {
    section.querySelector("h2").textContent = "Sessions without compaction";
    return section.append(policyTable(totals), glossary());
  }
  section.append(
    paragraph(
      "Every request was made again as the policy would have sent it, and charged as the provider’s cache would have charged it. Below 1.0 is cheaper than what was sent. A turn has lost something when its next action used a name or a line that was no longer there.",
    ),
    element(
      "div",
      { class: "pair" },
      element(
        "figure",
        {},
        element("h3", {}, "Cost and lost turns of each policy"),
        responsive((width) => policyBars(totals, width)),
      ),
      element(
        "figure",
        {},
        element("h3", {}, "Cost against loss"),
        element(
          "figcaption",
          {},
          "Down and to the left is better; the dashed line joins the policies that no other beats. Small losses are drawn larger.",
        ),
        responsive((width) => frontier(totals, width)),
      ),
    ),
    element("h3", {}, "In numbers"),
    policyTable(totals),
    glossary(),
  );
  const cuts = element("div");
  const update = () =>
    cuts.replaceChildren(...cutsOfAll(DATA.totals.find((t) => t.policy === chosen.policy)));
  chosen.listeners.push(update);
  section.append(
    element("h3", {}, "Cuts by reason"),
    element("div", { class: "controls" }, policyChoice("Policy")),
    cuts,
  );
  update();
}

// Cells: kind, group of ages, cut, of these read again, whole, of these read again.
function refetchExcess(cells) {
  return cells
    .filter(([, , , , whole]) => whole)
    .reduce((sum, [, , cut, cutAgain, whole, wholeAgain]) => sum + cutAgain - (cut * wholeAgain) / whole, 0);
}

function policyTable(totals) {
  const per100 = (count) => (DATA.requests ? (100 * count) / DATA.requests : 0);
  const broken = (total) => Object.values(total.breaks).reduce((sum, one) => sum + one, 0);
  const measures = [
    [
      "Would cost",
      "all-in",
      (total) =>
        priced(total.bill)
          ? dollars(allInMoney(total))
          : tokens(BASE_TOTAL.bill.cost * total.all_in_ratio),
    ],
    [
      "All-in",
      "the bill and the cost of refetching, as a ratio",
      (total) => element("b", {}, number(total.all_in_ratio, 3)),
    ],
    ["Bill", "prompts alone, as a ratio", (total) => number(total.bill_ratio, 3)],
    ["Captured", "of what the floor saves", (total) => percent(total.captured, 0)],
    [
      "Turns that lost something",
      "and their share of all",
      (total) => (total.lost_turns ? `${number(total.lost_turns)} (${percent(total.lost)})` : "0"),
    ],
    [
      "Names kept",
      "names, paths and numbers that next actions used",
      (total) => percent(total.atoms_recall),
    ],
    ["Lines kept", "lines that next actions used", (total) => percent(total.lines_recall)],
    ["Peak", "longest prompt without its head, as a ratio", (total) => number(total.peak_ratio, 2)],
    ["Sessions that cost more", "by over 1 %", (total) => number(total.worse)],
    ["Sessions that filled the window", "", (total) => number(total.full)],
    [
      "Lasts",
      "requests until the window is full, as a ratio",
      (total) => (total.lasts == null ? "–" : number(total.lasts, 2)),
    ],
    ["Invalid requests", "that the provider would reject", (total) => number(total.invalid)],
    ["Prefix breaks", "the cache after them is lost", (total) => number(broken(total))],
    [
      "Read again after a cut",
      "per 100 requests, and the tokens of it",
      (total) =>
        total.again
          ? `${number(per100(total.again.after_cut), 2)} (${tokens(total.again.tokens)})`
          : "–",
    ],
    [
      "Read again with an intact copy",
      "per 100 requests",
      (total) => (total.again ? number(per100(total.again.standing), 2) : "–"),
    ],
    [
      "Excess refetch",
      "after a cut, less as often as whole results of the same kind and age; per 100 requests",
      (total) => (total.again ? number(per100(refetchExcess(total.again.cells)), 2) : "–"),
    ],
    [
      "Milliseconds per request",
      "and the slowest",
      (total) => (total.ms ? `${number(total.ms, 1)} (${number(total.worst_ms)})` : "–"),
    ],
  ];
  const columns = [
    ["Measure", "left"],
    ...totals.map((total) => [policyHead(total.policy), total === HEAD ? "chosen" : ""]),
  ];
  const body = measures.map(([name, about, value]) => [
    element("span", {}, name, element("span", { class: "about" }, about)),
    ...totals.map(value),
  ]);
  const unit = "ratios are to no compaction, in tokens of plain input";
  return table(`Every policy over all sessions; ${unit}`, columns, body, { class: "policies" });
}

function policyHead(policy) {
  return element(
    "span",
    {},
    key(policy),
    element("b", {}, breakable(policy)),
    element("span", { class: "about" }, meaning(policy) ?? ""),
  );
}

function glossary() {
  const words = [
    ["Bill", "The provider’s charge for the prompts: cache reads, cache writes and the rest."],
    [
      "All-in",
      "The bill, plus the cost of refetching: for each lost turn one more request per lost source, and its result in all later requests.",
    ],
    [
      "Floor",
      "The limit. It knows the future and keeps of each result only the lines that a later action used.",
    ],
    ["Captured", "The share of the floor’s savings that the policy achieves."],
    [
      "Names and lines kept",
      "Of the names, paths, numbers and lines that next actions used and the history held, the share still there.",
    ],
    ["Peak", "The longest prompt of a session, without system prompt and tools."],
    [
      "Prefix break",
      "A request that does not extend the previous one, so that the cache after the break is lost.",
    ],
    [
      "Read again",
      "A read or a run whose result the history already held, with no write in between. The recorded agents saw the whole history, so some of these happen without any cut.",
    ],
    [
      "Plain input",
      "A token that is neither read from a cache nor written to it. Costs are counted in these.",
    ],
  ];
  return folded(
    "Glossary",
    element(
      "dl",
      { class: "glossary" },
      words.flatMap(([word, text]) => [element("dt", {}, word), element("dd", {}, text)]),
    ),
  );
}

function cutsOfAll(total) {
  const found = [];
  if (total.cuts.length) {
    found.push(cutTable(`Cut by ${total.policy}, over all sessions`, total.cuts));
    if (total.cut_count > total.cuts.length)
      found.push(
        note(`The ${number(total.cuts.length)} largest of ${number(total.cut_count)} kinds.`),
      );
  } else
    found.push(
      note(FORESIGHT.has(total.policy) ? "A limit has no reasons." : "Nothing was cut."),
    );
  const causes = Object.entries(total.breaks).sort((a, b) => b[1] - a[1]);
  if (causes.length) {
    found.push(
      element("h4", {}, "Prefix breaks by cause"),
      table(
        `Prefix breaks under ${total.policy}`,
        [["Cause", "words"], ["Times"]],
        causes.map(([cause, times]) => [cause, number(times)]),
      ),
    );
  }
  return found;
}

function cutTable(caption, cuts) {
  return table(
    caption,
    [["Reason", "words"], ["Tool", "words"], ["Parts"], ["Tokens saved"]],
    cuts.map((cut) => [
      element("span", {}, reason(cut.reason)),
      breakable(cut.tool),
      number(cut.parts),
      tokens(cut.tokens),
    ]),
  );
}
