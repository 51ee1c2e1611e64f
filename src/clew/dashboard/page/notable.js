// What happened: prefix breaks with their causes, what was fetched again, circles, errors, fall-backs.

const KINDS = [
  ["breaks", "Prefix breaks", (one) => one.prefix_break && [`${wouldBe(one) ? "would have been: " : ""}${cause(one.prefix_break)}`]],
  ["again", "Fetched again", (one) => one.refetched.map(
    (x) => `${`${x.tool} ${x.target}`.trim()} at ${x.place}: had been taken out at ${x.earlier} (${x.reason}); ${tokens(x.tokens)} tokens`)],
  ["loops", "Circles", (one) => one.loops],
  ["errors", "Errors", (one) => failed(one) && [one.status ? `the provider answered ${one.status}` : "no answer came"]],
  ["fallbacks", "Fall-backs", (one) => [
    one.fallback,
    ...Object.entries(one.failures).map(([name, why]) => `pass ${name} failed: ${why}`),
  ].filter(Boolean)],
];
const shown = new Set(KINDS.map(([id]) => id));
let happened = { requests: [], more: false };
let drawnEvents = "";
let eventsListed = 20;

function events() {
  return happened.requests.flatMap((one) =>
    KINDS.flatMap(([id, name, of]) => (of(one) || []).map((said) => ({ id, name, said, one }))),
  );
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

function drawEvents() {
  const all = events();
  const wanted = all.filter((event) => shown.has(event.id));
  refill(byId("filters"), KINDS.map((kind) => filter(kind, all)));
  const row = ({ name, said, one }) => [
    stamp(one.time),
    element("span", { class: "kind" }, name),
    short(said, 600),
    element(
      "button",
      { type: "button", class: "link", "aria-label": `Open the conversation with ${one.model}`, "data-key": `event ${one.id} ${name}`,
        onclick: () => { chooseConversation(one.conversation).catch(report); byId("conversations").scrollIntoView(); } },
      one.model || "unknown model",
    ),
  ];
  const columns = [["Time", "left"], ["What", "left"], ["Why", "words"], ["Conversation", "left"]];
  refill(
    byId("events"),
    causes(wanted),
    wanted.length
      ? [
          table("The latest first", columns, wanted.slice(0, eventsListed).map(row)),
          wanted.length > eventsListed && element(
            "button",
            { type: "button", "data-key": "more events", onclick: () => { eventsListed += 100; drawEvents(); } },
            `Show more of ${number(wanted.length)}${happened.more ? "+" : ""}`,
          ),
        ]
      : element("p", { class: "hint" }, all.length ? "Nothing of what is chosen above." : "Nothing out of the ordinary."),
  );
}

async function keepEvents(range) {
  happened = await ask("notable", { range });
  const now = JSON.stringify(happened);
  if (now !== drawnEvents) drawEvents();
  drawnEvents = now;
}
