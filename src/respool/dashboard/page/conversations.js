// List of conversations, latest first, grouped by the client's session.

let listed = []; // the first page, and the older pages loaded so far
let next = null; // cursor of the next older page
let paged = false;
let drawnList = "";

function groups(conversations) {
  const found = new Map();
  for (const one of conversations) {
    const key = one.session ? `session ${one.session}` : `alone ${one.id}`;
    found.set(key, [...(found.get(key) ?? []), one]);
  }
  return [...found.values()];
}

function conversationButton(one, first) {
  const saved = !one.observed ? "saved" : one.observed < one.requests ? "saved, or would have," : "would have saved";
  const share = one.tokens_before ? one.saved / one.tokens_before : 0;
  const money = one.cost_before - one.cost_after;
  const troubles = [
    one.errors && plural(one.errors, "error"),
    one.fallbacks && plural(one.fallbacks, "fall-back"),
    one.refetched && `${number(one.refetched)}${SPACE}fetched again`,
    one.loops && plural(one.loops, "loop"),
  ].filter(Boolean);
  const when = ago(one.last);
  return element(
    "li",
    {},
    element(
      "button",
      {
        type: "button",
        class: "pick",
        tabindex: open ? (open.name === one.name ? 0 : -1) : first ? 0 : -1,
        "aria-pressed": String(open?.name === one.name),
        "data-key": `conversation ${one.name}`,
        onclick: () => chooseConversation(one.name).catch(report),
      },
      element("b", {}, modelName(one.model), " ", element("code", { class: "id" }, shortId(one.name))),
      element("span", { class: when === "now" ? "about now" : "about" }, `${when} · ${plural(one.requests, "request")}`),
      element("span", { class: "about" }, `${saved} ${tokens(one.saved)} tokens (${percent(share)})${one.cost_before ? `, ${dollars(money)}` : ""}`),
      troubles.length > 0 && element("span", { class: "about trouble" }, troubles.join(" · ")),
    ),
  );
}

function drawList() {
  const parts = groups(listed).map((group, i) => {
    const items = group.map((one, j) => conversationButton(one, i + j === 0));
    const list = element("ul", { class: "picks" }, items);
    if (group.length === 1) return list;
    const label = `One session, ${plural(group.length, "conversation")}`;
    list.setAttribute("aria-label", label);
    return element("div", { class: "group" }, element("p", { class: "about" }, label), list);
  });
  const more = next && element("button", { type: "button", "data-key": "older", onclick: () => loadOlder().catch(report) }, "Older conversations");
  refill(byId("list"), listed.length ? parts : element("p", { class: "hint" }, "None yet."), more);
  const buttons = [...byId("list").querySelectorAll("button.pick")];
  if (buttons.length && !buttons.some((one) => one.tabIndex === 0)) buttons[0].tabIndex = 0;
}

async function loadOlder() {
  const found = await ask("conversations", next);
  listed = joined(listed, found.conversations);
  next = found.next;
  paged = true;
  drawList();
}

async function updateList() {
  const found = await ask("conversations");
  const minute = Math.floor(Date.now() / 60_000);
  const now = `${minute} ${JSON.stringify(found.conversations)}`;
  if (now === drawnList) return;
  drawnList = now;
  const all = paged && found.next; // else there are no older pages, or none was loaded
  listed = mergeFirstPage(found.conversations, all ? listed : [], (one) => one.last);
  if (!all) [next, paged] = [found.next, false];
  drawList();
}

navigateByArrows(byId("list"), "button.pick");
