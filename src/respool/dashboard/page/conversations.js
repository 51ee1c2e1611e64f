// List of conversations, latest first, grouped by the client's session.

let listed = []; // the first page, and the older pages loaded so far
let next = null; // cursor of the next older page
let paged = false;
let drawnList = "";
let listedFor = ""; // the filters of the list
let hasOpened = false;

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
      element("b", { class: "title" }, titleOf(one, 160)),
      originOf(one).length > 0 && element("span", { class: "about" }, originOf(one)),
      element("span", { class: when === "now" ? "about now" : "about" }, `${when} · ${plural(one.requests, "request")}`),
      element("span", { class: "about" }, `${saved} ${tokens(one.saved)} tokens (${percent(share)})${one.cost_before ? `, ${dollars(money)}` : ""}`),
      one.pinned && element("span", { class: "about" }, "pinned: left alone"),
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
  refill(byId("list"), listed.length ? parts : element("p", { class: "hint" }, isFiltered() ? "None meets the filters." : "None yet."), more);
  const buttons = [...byId("list").querySelectorAll("button.pick")];
  if (buttons.length && !buttons.some((one) => one.tabIndex === 0)) buttons[0].tabIndex = 0;
}

async function loadOlder() {
  const found = await ask("conversations", { ...next, ...filterFields() });
  listed = joined(listed, found.conversations);
  next = found.next;
  paged = true;
  drawList();
}

// Opens the latest conversation when the page is opened, unless its address names one.
function openLatest() {
  if (hasOpened || !listed.length) return;
  hasOpened = true;
  if (!linked() && !open) chooseConversation(listed[0].name, { focus: false, link: false }).catch(report);
}

async function updateList() {
  const fields = filterFields();
  const found = await ask("conversations", fields);
  const minute = Math.floor(Date.now() / 60_000);
  const now = `${minute} ${JSON.stringify([fields, found.conversations])}`;
  if (JSON.stringify(fields) !== listedFor) [listed, next, paged] = [[], null, false];
  listedFor = JSON.stringify(fields);
  if (now === drawnList) return;
  drawnList = now;
  const all = paged && found.next; // else there are no older pages, or none was loaded
  listed = mergeFirstPage(found.conversations, all ? listed : [], (one) => one.last);
  if (!all) [next, paged] = [found.next, false];
  drawList();
  openLatest();
}

navigateByArrows(byId("list"), "button.pick");
