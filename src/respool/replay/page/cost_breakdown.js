// Cost breakdown: bars by kind, tool and age.

function spent(section) {
  section.append(
    paragraph(
      "Without compaction; content counts each time it was sent. Hatched: results that no later action used.",
    ),
  );
  section.append(spentTables(DATA.spent));
  section.append(element("h3", {}, "Loops"), paragraph(describeLoops(DATA.loops)));
  section.append(...restOfBill(DATA.rest));
}

// What pauses, the head and cache misses cost; respool changes it only on request.
function restOfBill(rest) {
  if (!rest.sentences.length) return [];
  const columns = [["Sessions", "left"], ["Number"], ...rest.columns.slice(1).map((name) => [name])];
  const tools = rest.tools.filter((tool) => tool.off);
  return [
    element("h3", {}, "The rest of the bill"),
    ...rest.sentences.map((text) => paragraph(text)),
    ...tools.map((tool) => paragraph(`${tool.name} is switched off `, code(tool.off))),
    table("The rest of the bill", columns, rest.rows),
    note(`${rest.legend}.`),
  ];
}

function describeLoops(loops) {
  if (!loops.count) return "No loop was found.";
  const none = DATA.totals[0].bill.cost;
  const share = none ? ` (${percent(loops.cost / none, 2)} of the bill)` : "";
  const advised = number(loops.advised_after / loops.count, 1);
  const made = number(loops.calls / loops.count, 1);
  return (
    `${plural(loops.count, "loop")} in ${plural(loops.sessions, "session")}: ` +
    `${plural(loops.again, "call")} brought nothing new, ` +
    `${tokens(loops.tokens)} tokens${share}. The detector would have advised ` +
    `after ${advised} of ${made} calls on average.`
  );
}

function spentTables(spending) {
  const kinds = barTable("By kind", "Kind", spending.kinds);
  const tools = barTable("By tool: calls and results", "Tool", spending.tools);
  const ages = barTable("Results by age: requests since they arrived", "Age", spending.ages);
  return element(
    "div",
    { class: "halves" },
    element("div", {}, kinds, ages),
    element("div", {}, tools),
  );
}

function barTable(title, head, shares) {
  if (!shares.length) return null;
  const most = Math.max(1, ...shares.map((share) => share.tokens));
  const cost = shares.reduce((sum, share) => sum + share.cost, 0);
  const unused = shares.some((share) => share.unused);
  const body = shares.map((share) => [
    breakable(share.name),
    tokens(share.tokens),
    cost ? percent(share.cost / cost, 0) : "–",
    ...(unused ? [share.unused ? percent(share.unused / share.tokens, 0) : "–"] : []),
    hatchedBar(share, most),
  ]);
  const bar = element("span", { class: "unseen" }, "As a bar");
  const columns = [
    [head, "left"],
    ["Tokens"],
    ["Cost"],
    ...(unused ? [["Unused"]] : []),
    [bar, "bar"],
  ];
  const box = table(title, columns, body, { class: "bars" });
  box.querySelector("caption").remove();
  return element("div", {}, element("h3", {}, title), box);
}

function hatchedBar(share, most) {
  const id = newId("hatch");
  const used = Math.max(0, share.tokens - share.unused);
  const percentOf = (value) => `${(100 * value) / most}%`;
  return shape(
    "svg",
    {
      role: "img",
      "aria-label": `${share.name}: ${tokens(share.tokens)} tokens, ${tokens(share.unused)} of them unused`,
    },
    tooltip(`${share.name}: ${tokens(share.tokens)} tokens, ${tokens(share.unused)} of them unused`),
    shape(
      "defs",
      {},
      shape(
        "pattern",
        {
          id,
          class: "hatch",
          width: 5,
          height: 5,
          patternUnits: "userSpaceOnUse",
          patternTransform: "rotate(45)",
        },
        shape("path", { d: "M0 0V5" }),
      ),
    ),
    shape("rect", { class: "mark fill s1", width: percentOf(used), height: "100%" }),
    share.unused > 0 &&
      shape("rect", {
        class: "unused edge",
        x: percentOf(used),
        width: percentOf(share.unused),
        height: "100%",
        fill: `url(#${id})`,
      }),
  );
}
