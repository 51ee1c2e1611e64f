// What happened: prefix breaks with their causes, what was fetched again, loops, errors, fall-backs.

const KINDS = [
  ["breaks", "Prefix breaks", (one) => one.prefix_break && [`${wouldBreak(one) ? "would have been: " : ""}${cause(one.prefix_break)}`]],
  ["again", "Fetched again", (one) => one.refetched.map(
    (x) => `${`${x.tool} ${x.target}`.trim()} at ${x.place}: had been taken out at ${x.earlier} (${x.reason}); ${tokens(x.tokens)} tokens`)],
  ["loops", "Loops", (one) => one.loops],
  ["errors", "Errors", (one) => failed(one) && [one.status ? `the provider answered ${one.status}` : "no answer came"]],
  ["fallbacks", "Fall-backs", (one) => [
    fallbackSaid(one),
    ...Object.entries(one.failures).map(([name, why]) => `pass ${name} failed: ${why}`),
  ].filter(Boolean)],
];
const EVENTS = 20; // that are listed at first
const shown = new Set(KINDS.map(([id]) => id));
// Over which range, the requests that are known, whether there are older ones, and were asked for.
let happened = { range: "", requests: [], more: false, paged: false };
let drawnEvents = "";
let eventsListed = EVENTS;

function events() {
  return happened.requests.flatMap((one) =>
    KINDS.flatMap(([id, name, of]) => (of(one) || []).map((said) => ({ id, name, said, one }))),
  );
}

// The same again and again, of one conversation and with nothing between, in one.
function gathered(all) {
  const found = [];
  for (const event of all) {
    const last = found.at(-1);
    const same = last && last.id === event.id && last.said === event.said && last.one.conversation === event.one.conversation;
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
  return element("label", {}, box, `${name} (${number(count)}${happened.more ? "+" : ""})`);
}

function causes(all) {
  const counts = new Map();
  for (const { id, said } of all) if (id === "breaks") counts.set(said, (counts.get(said) ?? 0) + 1);
  if (!counts.size) return null;
  const sorted = [...counts].sort((one, other) => other[1] - one[1]);
  return note("Prefixes broke because: ", sorted.map(([said, count]) => `${said} (${number(count)})`).join(", "), ".");
}

function eventRow({ name, said, one, times, since }) {
  const whose = [modelSaid(one.model), idSaid(one.conversation)];
  const follow = () => {
    chooseConversation(one.conversation).catch(report);
    byId("conversations").scrollIntoView();
  };
  return [
    stamp(one.time),
    element("span", { class: "kind" }, name),
    `${short(said, 600)}${times > 1 ? ` (${number(times)} times since ${at(since)})` : ""}`,
    element(
      "button",
      { type: "button", class: "link", "aria-label": `Open the conversation with ${whose.join(" ")}`, "data-key": `event ${one.id} ${name}`, onclick: follow },
      whose[0], " ", code(whose[1]),
    ),
  ];
}

function drawEvents() {
  const all = events();
  const chosen = all.filter((event) => shown.has(event.id));
  const wanted = gathered(chosen);
  const columns = [["Time", "left"], ["What", "left"], ["Why", "words"], ["Conversation", "left"]];
  const further = wanted.length > eventsListed;
  refill(byId("filters"), KINDS.map((kind) => filter(kind, all)));
  refill(
    byId("events"),
    causes(chosen),
    wanted.length
      ? table("The latest first", columns, wanted.slice(0, eventsListed).map(eventRow))
      : element("p", { class: "hint" }, all.length ? "Nothing of what is chosen above." : "Nothing out of the ordinary."),
    (further || happened.more) && element(
      "button",
      { type: "button", "data-key": "more events", onclick: () => moreEvents(further).catch(report) },
      further ? `Show more of ${number(wanted.length)}${happened.more ? "+" : ""}` : "Look further back",
    ),
  );
}

// More of what is known; where all of that is listed, what happened before.
async function moreEvents(further) {
  if (!further) {
    const { range, requests } = happened;
    const found = await ask("notable", { range, behind: requests.at(-1).time });
    if (happened.range !== range) return;
    happened = { range, requests: joined(happened.requests, found.requests), more: found.more, paged: true };
  }
  eventsListed += 100;
  drawEvents();
}

async function keepEvents(range) {
  const found = await ask("notable", { range });
  const now = JSON.stringify([range, found]);
  if (now === drawnEvents) return;
  drawnEvents = now;
  if (happened.range !== range) eventsListed = EVENTS;
  const further = happened.range === range && happened.paged && found.more;
  const requests = renewed(found.requests, further ? happened.requests : [], (one) => one.time);
  happened = { range, requests, more: further ? happened.more : found.more, paged: further };
  drawEvents();
}
