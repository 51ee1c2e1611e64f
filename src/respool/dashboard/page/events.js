// Events: prefix breaks with their causes, refetches, loops, errors and fall-backs.

const KINDS = [
  ["breaks", "Prefix breaks", (one) => one.prefix_break && [`${wouldBreak(one) ? "would have been: " : ""}${cause(one.prefix_break)}`]],
  ["again", "Fetched again", (one) => one.refetched.map(
    (x) => `${`${x.tool} ${x.target}`.trim() || x.place}: the agent asked for it again after respool had taken it out (${reasonText(x.reason)}); ${tokens(x.tokens)} tokens`)],
  ["loops", "Loops", (one) => one.loops],
  ["errors", "Errors", (one) => failed(one) && [one.error || (one.status ? `the provider answered ${one.status}` : "no answer came")]],
  ["fallbacks", "Fall-backs", (one) => [
    fallbackText(one),
    ...Object.entries(one.failures).map(([name, why]) => `pass ${name} failed: ${why}`),
  ].filter(Boolean)],
];
const FIRST_EVENTS = 20; // listed at first
const shown = new Set(KINDS.map(([id]) => id));
// Requests with events: their time range, whether there are older ones, and whether those were loaded.
let notable = { key: "", range: "", requests: [], more: false, paged: false };
let drawnEvents = "";
let eventsListed = FIRST_EVENTS;

function events() {
  return notable.requests.flatMap((one) =>
    KINDS.flatMap(([id, name, of]) => (of(one) || []).map((text) => ({ id, name, text, one }))),
  );
}

// Consecutive equal events of one conversation as one.
function groupRepeats(all) {
  const found = [];
  for (const event of all) {
    const last = found.at(-1);
    const same = last && last.id === event.id && last.text === event.text && last.one.conversation === event.one.conversation;
    if (same) found[found.length - 1] = { ...last, times: last.times + 1, since: event.one.time };
    else found.push({ ...event, times: 1, since: event.one.time });
  }
  return found;
}

function filter([id, name], all) {
  const count = all.filter((event) => event.id === id).length;
  const box = element("input", { type: "checkbox", checked: shown.has(id), "data-key": id });
  box.addEventListener("change", () => {
    if (box.checked) shown.add(id);
    else shown.delete(id);
    drawEvents();
  });
  return element("label", { "data-tip": name }, box, `${name} (${number(count)}${notable.more ? "+" : ""})`);
}

function causes(all) {
  const counts = new Map();
  for (const { id, text } of all) if (id === "breaks") counts.set(text, (counts.get(text) ?? 0) + 1);
  if (!counts.size) return null;
  const sorted = [...counts].sort((one, other) => other[1] - one[1]);
  return note("Prefixes broke because: ", sorted.map(([text, count]) => `${text} (${number(count)})`).join(", "), ".");
}

function eventRow({ name, text, one, times, since }) {
  const whose = one.prompt || `${modelName(one.model)} ${shortId(one.conversation)}`;
  const follow = () => {
    chooseConversation(one.conversation).catch(report);
    byId("conversations").scrollIntoView();
  };
  return [
    stamp(one.time),
    element("span", { class: "kind" }, name),
    `${short(text, 600)}${times > 1 ? ` (${number(times)} times since ${at(since)})` : ""}`,
    element(
      "button",
      { type: "button", class: "link", "aria-label": `Open the conversation ${whose}`, title: whose, "data-key": `event ${one.id} ${name}`, onclick: follow },
      titleOf(one, 50),
    ),
  ];
}

function drawEvents() {
  const all = events();
  const chosen = all.filter((event) => shown.has(event.id));
  const wanted = groupRepeats(chosen);
  const columns = [["Time", "left"], ["What", "left"], ["Why", "words"], ["Conversation", "words"]];
  const further = wanted.length > eventsListed;
  refill(byId("filters"), KINDS.map((kind) => filter(kind, all)));
  refill(
    byId("events"),
    causes(chosen),
    wanted.length
      ? table("The latest first", columns, wanted.slice(0, eventsListed).map(eventRow))
      : element("p", { class: "hint" }, all.length ? "Nothing of what is chosen above." : "Nothing out of the ordinary."),
    (further || notable.more) && element(
      "button",
      { type: "button", "data-key": "more events", onclick: () => moreEvents(further).catch(report) },
      further ? `Show more of ${number(wanted.length)}${notable.more ? "+" : ""}` : "Look further back",
    ),
  );
}

// Lists more of the loaded events; if all are listed, loads older ones.
async function moreEvents(further) {
  if (!further) {
    const { range, requests } = notable;
    const found = await ask("notable", { range, ...filterFields(), behind: requests.at(-1).time });
    if (notable.requests !== requests) return;
    notable = { ...notable, range, requests: joined(notable.requests, found.requests), more: found.more, paged: true };
  }
  eventsListed += 100;
  drawEvents();
}

async function updateEvents(range) {
  const fields = { range, ...filterFields() };
  const found = await ask("notable", fields);
  const now = JSON.stringify([fields, found]);
  if (now === drawnEvents) return;
  drawnEvents = now;
  const key = JSON.stringify(fields);
  if (notable.key !== key) eventsListed = FIRST_EVENTS;
  const further = notable.key === key && notable.paged && found.more;
  const requests = mergeFirstPage(found.requests, further ? notable.requests : [], (one) => one.time);
  notable = { key, range, requests, more: further ? notable.more : found.more, paged: further };
  drawEvents();
}
