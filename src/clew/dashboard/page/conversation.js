// One conversation: the context of each request before and after, and each request in a row.

const ROWS = 100; // requests that are listed at first
const OVERLAP = 20; // requests that are asked for again: answers may come out of order
let open = null; // the conversation that is looked at: its name, its requests, how many are listed

const CAUSES = new Map([
  ["cold", "the cache had gone cold"],
  ["changed", "model or tools changed"],
  ["edits", "edits were put in force"],
]);
const cause = (one) => CAUSES.get(one) ?? one.split(", ").map(reasonSaid).join(", ");

async function fetchRequests(chosen) {
  let more = true;
  while (more) {
    const all = chosen.requests;
    const after = chosen.whole ? all.at(-OVERLAP - 1)?.time : all.at(-1)?.time;
    const found = await ask("requests", { conversation: chosen.name, after });
    const ids = new Map([...all, ...found.requests].map((one) => [one.id, one]));
    chosen.requests = [...ids.values()].sort((one, other) => one.time - other.time);
    more = found.more && chosen.requests.length > all.length;
  }
  chosen.whole = true;
}

function told(one, i) {
  const parts = [
    `${tokens(before(one))} → ${tokens(after(one))} tokens${wouldBe(one) ? " (observed: not changed)" : ""}`,
    one.usage && `${tokens(one.usage.cache_read)} read from the provider's cache`,
    one.cost_after != null && `${wouldBe(one) ? "would have cost" : "paid"} ${dollars(one.cost_after)}, ${wouldBe(one) ? "cost" : "without clew"} ${dollars(one.cost_before)}`,
    ...marksOf(one),
  ];
  return [
    element("b", {}, `Request ${i + 1}, ${at(one.time)}`),
    `: ${parts.filter(Boolean).join("; ")}`,
  ];
}

// What is to be known of a request, in words.
function marksOf(one) {
  return [
    failed(one) && (one.status ? `answered ${one.status}` : "no answer came"),
    one.prefix_break && `${wouldBe(one) ? "would have been a " : ""}prefix break: ${cause(one.prefix_break)}`,
    one.fallback && `fell back: ${one.fallback}`,
    one.refetched.length && `fetched again: ${one.refetched.map((x) => `${x.tool} ${x.target}`.trim()).join(", ")}`,
    ...one.loops.map((said) => `circle: ${said}`),
    one.repairs.length && plural(one.repairs.length, "repair"),
    ...Object.entries(one.failures).map(([name, why]) => `pass ${name} failed: ${why}`),
  ].filter(Boolean);
}

function editsCell(one, i) {
  if (!one.made) return "–";
  const name = `at request ${i + 1}`;
  return element(
    "button",
    { type: "button", class: "link", "data-key": `edits ${one.id}`, "aria-label": `Edits ${name}`, onclick: () => openEdits(one, name) },
    plural(one.made, "edit"),
  );
}

function requestRow(one, i) {
  const marks = marksOf(one);
  return [
    `${i + 1}`,
    stamp(one.time),
    `${tokens(before(one))} → ${tokens(after(one))}`,
    one.usage ? tokens(one.usage.cache_read) : "–",
    dollars(one.cost_after),
    number(one.edited),
    editsCell(one, i),
    marks.length ? marks.map((text) => element("span", { class: "mark" }, short(text, 300))) : "–",
  ];
}

function requestTable(chosen) {
  const rows = chosen.requests.map(requestRow).reverse();
  const columns = [
    ["Request", "left"], ["Time"], ["Tokens"], ["From cache"],
    [chosen.requests.some(wouldBe) ? "Paid, or would" : "Paid"], ["In force"], ["New"], ["What happened", "words"],
  ];
  const more = rows.length - chosen.listed;
  return [
    table("Requests, the latest first", columns, rows.slice(0, chosen.listed)),
    more > 0 && element(
      "button",
      { type: "button", "data-key": "more requests", onclick: () => { chosen.listed += 500; drawConversation(); } },
      `Show ${plural(Math.min(more, 500), "earlier request")}`,
    ),
  ];
}

function conversationFacts(requests) {
  const add = (of) => requests.reduce((sum, one) => sum + (of(one) ?? 0), 0);
  const observed = requests.filter(wouldBe).length;
  const saved = add((one) => (one.cost_before ?? 0) - (one.cost_after ?? 0));
  const uncached = add((one) => one.cost_uncached != null && one.cost_uncached - (wouldBe(one) ? one.cost_before : one.cost_after));
  return facts([
    ["Requests", number(requests.length)],
    [observed ? "Tokens, would have saved" : "Tokens saved", tokens(add((one) => one.saved))],
    [observed ? "Would have saved" : "Saved", dollars(saved)],
    ["Provider's cache saved", dollars(uncached)],
    ["Epochs", number(requests.at(-1)?.epochs ?? 0)],
    ["clew took", `${number(add((one) => one.milliseconds) / requests.length, 1)}${SPACE}ms a request`],
  ], true);
}

function closeConversation() {
  const key = open && `conversation ${open.name}`;
  open = null;
  history.replaceState(null, "", location.pathname);
  drawConversation();
  drawList();
  if (key) byKey(byId("list"), key)?.focus();
}

function drawConversation() {
  const holder = byId("detail");
  document.body.classList.toggle("chosen", Boolean(open));
  if (!open) return refill(holder, element("p", { class: "hint" }, "Choose a conversation to see each of its requests."));
  const { requests, name } = open;
  if (!requests.length) return refill(holder, element("p", { class: "hint" }, "No requests of this conversation are recorded."));
  const [drawn, said] = chart((width) => perRequest(requests, width), (i) => told(requests[i], i));
  const observed = requests.some(wouldBe);
  return refill(
    holder,
    element(
      "div",
      { class: "bar" },
      element("h3", {}, requests.at(-1).model || "unknown model", " ", element("code", { class: "id" }, short(name, 12))),
      observed && element("span", { class: "badge" }, "observed: nothing was changed"),
      element("button", { type: "button", class: "quiet", "data-key": "close", "aria-label": "Close this conversation", onclick: closeConversation }, "Close"),
    ),
    conversationFacts(requests),
    legend(["came", "as it came"], ["went", observed ? "as it would have been sent" : "as it was sent"], ["break", "prefix break"], ["wrong", "error or fall-back"]),
    drawn,
    said,
    requestTable(open),
  );
}

async function chooseConversation(name, focus = true) {
  open = { name, requests: [], listed: ROWS, whole: false };
  history.replaceState(null, "", `#conversation=${encodeURIComponent(name)}`);
  const chosen = open;
  try {
    await fetchRequests(chosen);
  } catch (error) {
    if (open === chosen) open = null; // a name that nobody has, or clew is gone
    throw error;
  }
  if (open !== chosen) return;
  drawConversation();
  drawList();
  if (focus) byId("detail").focus({ preventScroll: innerWidth > 832 });
}

async function keepConversation() {
  if (!open) return;
  const chosen = open;
  const was = JSON.stringify(chosen.requests.at(-1)) + chosen.requests.length;
  await fetchRequests(chosen);
  if (open === chosen && was !== JSON.stringify(chosen.requests.at(-1)) + chosen.requests.length)
    drawConversation();
}

byId("detail").addEventListener("keydown", (event) => {
  if (event.key === "Escape" && open) closeConversation();
});
