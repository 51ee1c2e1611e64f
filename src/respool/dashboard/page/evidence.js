// Groups of a holdout side by side, and what was fetched again after a cut.

let drawnEvidence = "";
const GROUPS = { "held-out": "Held out", compacted: "Compacted", a: "Group A", b: "Group B" };

function measured(one, value) {
  if (one.measure === "cost") return dollars(value);
  return value < 0 ? `−${number(-value, 2)}` : number(value, 2);
}

function comparisonTable(found) {
  const caption = found.is_aa ? "A/A: both groups compacted" : "Held out and compacted";
  const columns = [
    ["Per conversation", "name"], [GROUPS[found.control]], [GROUPS[found.other]], ["Difference"], ["95 % interval"], ["Says", "name"],
  ];
  const rows = found.measures.map((one) => [
    one.name,
    measured(one, one.control),
    measured(one, one.other),
    measured(one, one.difference),
    `${measured(one, one.low)} to ${measured(one, one.high)}`,
    one.says,
  ]);
  return element("div", {}, table(caption, columns, rows), found.notes.map((text) => note(text)));
}

function drawEvidence({ holdout, excess_refetch: excess }) {
  byId("evidence").hidden = !holdout.length && !excess.cut;
  refill(byId("compared"), holdout.map(comparisonTable), excess.cut > 0 && note(excess.says));
}

async function updateEvidence() {
  const found = await ask("evidence", {});
  const now = JSON.stringify(found);
  if (now !== drawnEvidence) drawEvidence(found);
  drawnEvidence = now;
}
