// The rest of the bill: head, pauses, misses, keep-alive pings, and tools that were never called.

let drawnBill = "";
const SHOWN_TOOLS = 20;

function unusedTools(tools) {
  const columns = [["Tool", "name"], ["Agent", "name"], ["Tokens per request"], ["Requests"], ["Switched off by", "words"]];
  const rows = tools.slice(0, SHOWN_TOOLS).map((tool) => [
    short(tool.name, 60),
    tool.agent || "unknown",
    number(tool.tokens),
    number(tool.requests),
    tool.off ? code(tool.off) : "not known",
  ]);
  const more = tools.length - rows.length;
  return [
    table("Tools that were defined and never called", columns, rows),
    more > 0 && note(`${plural(more, "more tool")} not shown.`),
  ];
}

function drawBill(found) {
  refill(
    byId("rest"),
    found.sentences.length
      ? found.sentences.map((text) => element("p", {}, text.replaceAll(" %", `${SPACE}%`)))
      : element("p", { class: "hint" }, "No request in that time."),
    found.sentences.length && !found.bill.tools_known
      ? note("No tool definition is recorded in that time, so it is not known which ones were never called.")
      : null,
    found.bill.tools.length ? unusedTools(found.bill.tools) : null,
    found.sentences.length
      ? note("Of all requests in the chosen time, whatever the other filters say. respool changes no tool and no cache lifetime by itself; keep-alive pings are an option of respool serve.")
      : null,
  );
}

async function updateBill() {
  const { since, until } = filterFields();
  const found = await ask("bill", { range: range.value, since, until });
  const now = JSON.stringify(found);
  if (now !== drawnBill) drawBill(found);
  drawnBill = now;
}
