// One conversation or one of its branches: the context chart and the table of requests.

const FIRST_ROWS = 25; // requests listed at first
const OVERLAP = 20; // requests fetched again: records may arrive out of order
// The open conversation: name, requests, number of rows listed, branch (0: all), and pin.
let open = null;

const CAUSES = new Map([
  ["cold", "the cache had gone cold"],
  ["changed", "model or tools changed"],
  ["edits", "edits were put in force"],
]);
// Observed edits break no prefix; a cold cache or a changed model does in any mode.
const wouldBreak = (one) => isObserved(one) && one.prefix_break !== "cold" && one.prefix_break !== "changed";
const cause = (one) => CAUSES.get(one) ?? one.split(", ").map(reasonText).join(", ");

async function fetchRequests(chosen) {
  let more = true;
  while (more) {
    const all = chosen.requests;
    const after = chosen.whole ? all.at(-OVERLAP - 1)?.time : all.at(-1)?.time;
    const found = await ask("requests", { conversation: chosen.name, after });
    const ids = new Map([...all, ...found.requests].map((one) => [one.id, one]));
    const sorted = [...ids.values()].sort((one, other) => one.time - other.time);
    chosen.requests = sorted.map((one, i) => ({ ...one, nth: i + 1 }));
    more = found.more && chosen.requests.length > all.length;
  }
  chosen.whole = true;
}

function describeRequest(one) {
  const parts = [
    `${tokens(before(one))} → ${tokens(after(one))} tokens${isObserved(one) ? ` (${one.arm === "held-out" ? "held out" : "observed"}: not changed)` : ""}`,
    one.usage && `${tokens(one.usage.cache_read)} read from the provider's cache`,
    one.cost_after != null && `${isObserved(one) ? "would have cost" : "paid"} ${dollars(one.cost_after)}, ${isObserved(one) ? "cost" : "without respool"} ${dollars(one.cost_before)}`,
    ...eventsOf(one),
  ];
  return [
    element("b", {}, `Request ${one.nth}, ${at(one.time)}`),
    `: ${parts.filter(Boolean).join("; ")}`,
  ];
}

// Notable events of a request, as texts.
function eventsOf(one) {
  return [
    failed(one) && (one.status ? `answered ${one.status}` : "no answer came"),
    one.prefix_break && `${wouldBreak(one) ? "would have been a " : ""}prefix break: ${cause(one.prefix_break)}`,
    fallbackText(one) && `fell back: ${fallbackText(one)}`,
    one.refetched.length && `fetched again: ${one.refetched.map((x) => `${x.tool} ${x.target}`.trim()).join(", ")}`,
    ...one.loops.map((text) => `loop: ${text}`),
    one.repairs.length && plural(one.repairs.length, "repair"),
    ...Object.entries(one.failures).map(([name, why]) => `pass ${name} failed: ${why}`),
  ].filter(Boolean);
}

function editsCell(one) {
  if (!one.made) return "–";
  const name = `at request ${one.nth}`;
  return element(
    "button",
    { type: "button", class: "link", "data-key": `edits ${one.id}`, "aria-label": `${plural(one.made, "edit")} ${name}`, onclick: () => openEdits(one, name).catch(report) },
    plural(one.made, "edit"),
  );
}

function requestRow(one, branched) {
  const notes = eventsOf(one);
  return [
    `${one.nth}`,
    ...(branched ? [`${one.branch}`] : []),
    stamp(one.time),
    `${tokens(before(one))} → ${tokens(after(one))}`,
    one.usage ? tokens(one.usage.cache_read) : "–",
    dollars(one.cost_after),
    number(one.edited),
    editsCell(one),
    notes.length ? notes.map((text) => element("span", { class: "event" }, short(text, 300))) : "–",
  ];
}

function requestTable(chosen, requests) {
  const branched = requests.some((one) => one.branch !== requests[0].branch);
  const columns = [
    ["Request", "left"], ...(branched ? [["Branch"]] : []), ["Time"], ["Tokens"], ["From cache"],
    [requests.some(isObserved) ? "Paid, or would" : "Paid"], ["In force"], ["New"], ["What happened", "words"],
  ];
  const rows = requests.slice(-chosen.listed).map((one) => requestRow(one, branched)).reverse();
  const more = requests.length - rows.length;
  return [
    table("Requests, the latest first", columns, rows),
    more > 0 && element(
      "button",
      { type: "button", "data-key": "more requests", onclick: () => { chosen.listed += 500; drawConversation(); } },
      `Show ${plural(Math.min(more, 500), "earlier request")}`,
    ),
  ];
}

const sumOf = (requests, of) => requests.reduce((sum, one) => sum + (of(one) ?? 0), 0);

// Savings of some requests, in tokens and, if a price is known, in dollars.
function savedFacts(requests, names) {
  const priced = requests.some((one) => one.cost_after != null);
  const money = sumOf(requests, (one) => one.cost_before - one.cost_after);
  return [
    [names[0], tokens(sumOf(requests, (one) => one.saved))],
    [names[1], dollars(priced ? money : null)],
  ];
}

function conversationFacts(requests) {
  const [would, real] = [requests.filter(isObserved), requests.filter((one) => !isObserved(one))];
  const priced = requests.filter((one) => one.cost_uncached != null);
  const paid = (one) => (isObserved(one) ? one.cost_before : one.cost_after);
  const uncached = sumOf(priced, (one) => one.cost_uncached - paid(one));
  const changed = real.some((one) => one.saved);
  return facts([
    ["Requests", number(requests.length)],
    ...(changed || !would.length ? savedFacts(real, ["Tokens saved", "Saved"]) : []),
    ...(would.length ? savedFacts(would, ["Tokens, would have saved", "Would have saved"]) : []),
    ["Provider's cache saved", dollars(priced.length ? uncached : null)],
    ["Epochs", number(requests.reduce((most, one) => Math.max(most, one.epochs), 0))],
    ["respool took", `${number(sumOf(requests, (one) => one.milliseconds) / requests.length, 1)}${SPACE}ms a request`],
  ], true);
}

// The branches, each with its number of requests.
function branchesOf(requests) {
  const counts = new Map();
  for (const { branch } of requests) counts.set(branch, (counts.get(branch) ?? 0) + 1);
  return [...counts].sort(([one], [other]) => one - other);
}

function branchPicker(chosen) {
  const found = branchesOf(chosen.requests);
  if (found.length < 2) return null;
  const option = (value, text) => element("option", { value, selected: value === chosen.branch }, text);
  const select = element(
    "select",
    { "data-key": "branch", onchange: () => { chosen.branch = Number(select.value); drawConversation(); } },
    option(0, `all ${number(found.length)}`),
    found.map(([branch, count]) => option(branch, `${number(branch)}: ${plural(count, "request")}`)),
  );
  return [
    element("p", { class: "controls" }, element("label", {}, "Branch", select)),
    note("Sessions that open with the same words are one conversation. Where they part, or an earlier place was gone back to, a branch begins."),
  ];
}

function closeConversation() {
  const key = open && `conversation ${open.name}`;
  history.pushState(null, "", location.pathname);
  leaveConversation();
  if (key) byKey(byId("list"), key)?.focus();
}

function leaveConversation() {
  open = null;
  drawConversation();
  drawList();
}

function drawConversation() {
  const holder = byId("detail");
  document.body.classList.toggle("chosen", Boolean(open));
  if (!open) return refill(holder, element("p", { class: "hint" }, "Choose a conversation to see each of its requests."));
  const { name, branch } = open;
  const requests = open.requests.filter((one) => !branch || one.branch === branch);
  if (!requests.length) return refill(holder, element("p", { class: "hint" }, "No requests of this conversation are recorded."));
  const [figure, readout] = chart((width) => contextLines(requests, width), (i) => describeRequest(requests[i]));
  const observed = requests.filter(isObserved).length;
  const whole = observed === requests.length;
  return refill(
    holder,
    element(
      "div",
      { class: "bar" },
      element("h3", {}, requests.at(-1).prompt || modelName(requests.at(-1).model, 300)),
      observed > 0 && element("span", { class: "badge" }, whole ? "observed: nothing was changed" : `${plural(observed, "request")} only observed`),
      open.pinned && element("span", { class: "badge" }, "pinned: left alone"),
      pinButton(open),
      element("button", { type: "button", class: "quiet", "data-key": "close", "aria-label": "Close this conversation", onclick: closeConversation }, "Close"),
    ),
    element("p", { class: "about origin" }, [...originOf(requests.at(-1), 300), " · ", element("code", { class: "id", title: "For respool forget --conversation" }, name)]),
    branchPicker(open),
    conversationFacts(requests),
    legend(["came", "as it came"], ["went", whole ? "as it would have been sent" : observed ? "as it was sent, or would have been" : "as it was sent"], ["break", "prefix break"], ["wrong", "error or fall-back"]),
    figure,
    readout,
    requestTable(open, requests),
  );
}

async function chooseConversation(name, { focus = true, link = true } = {}) {
  const pinned = listed.some((one) => one.name === name && one.pinned);
  const isOpen = open?.name === name && open.whole;
  hasOpened = true;
  if (!isOpen) open = { name, requests: [], listed: FIRST_ROWS, whole: false, branch: 0, pinned };
  if (link && linked() !== name) history.pushState(null, "", `#conversation=${encodeURIComponent(name)}`);
  const chosen = open;
  try {
    if (!isOpen) await fetchRequests(chosen);
  } catch (error) {
    if (open === chosen) open = null; // an unknown name, or respool does not answer
    throw error;
  }
  if (open !== chosen) return;
  drawConversation();
  drawList();
  if (focus) byId("detail").focus({ preventScroll: innerWidth > 832 });
}

const linked = () => new URLSearchParams(location.hash.slice(1)).get("conversation");

// Opens the conversation named in the address, and closes it when the name is gone (back, forward).
function followLink() {
  const name = linked();
  if (name && name !== open?.name) chooseConversation(name, { focus: false }).catch(report);
  else if (!location.hash && open) leaveConversation();
}

async function updateConversation() {
  if (!open) return;
  const chosen = open;
  const state = () => JSON.stringify([chosen.requests.at(-1), chosen.requests.length, chosen.pinned]);
  const was = state();
  await fetchRequests(chosen);
  const shown = listed.find((one) => one.name === chosen.name);
  if (shown) chosen.pinned = shown.pinned;
  if (open === chosen && was !== state()) drawConversation();
}

byId("detail").addEventListener("keydown", (event) => {
  if (event.key === "Escape" && open) closeConversation();
});
