// The conversations, the latest first; those of one session of the client stand together.

let pages = [[]]; // the first page is asked for again and again, the others stay
let next = null; // where the next page begins
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
  const would = one.observed > 0;
  const share = one.tokens_before ? one.saved / one.tokens_before : 0;
  const money = one.cost_before - one.cost_after;
  const troubles = [
    one.errors && plural(one.errors, "error"),
    one.fallbacks && plural(one.fallbacks, "fall-back"),
    one.refetched && `${number(one.refetched)}${SPACE}fetched again`,
    one.loops && plural(one.loops, "circle"),
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
      element("b", {}, one.model || "unknown model"),
      element("span", { class: when === "now" ? "about now" : "about" }, `${when} · ${plural(one.requests, "request")}`),
      element("span", { class: "about" }, `${would ? "would have saved" : "saved"} ${tokens(one.saved)} tokens (${percent(share)})${one.cost_before ? `, ${dollars(money)}` : ""}`),
      troubles.length > 0 && element("span", { class: "about trouble" }, troubles.join(" · ")),
    ),
  );
}

function drawList() {
  const seen = new Set();
  const all = pages.flat().filter((one) => !seen.has(one.id) && seen.add(one.id));
  const parts = groups(all).map((group, i) => {
    const items = group.map((one, j) => conversationButton(one, i + j === 0));
    const list = element("ul", { class: "picks" }, items);
    if (group.length === 1) return list;
    const label = `One session, ${plural(group.length, "conversation")}`;
    list.setAttribute("aria-label", label);
    return element("div", { class: "group" }, element("p", { class: "about" }, label), list);
  });
  const more = next && element("button", { type: "button", "data-key": "older", onclick: () => older().catch(report) }, "Older conversations");
  refill(byId("list"), all.length ? parts : element("p", { class: "hint" }, "None yet."), more);
  const buttons = [...byId("list").querySelectorAll("button.pick")];
  if (buttons.length && !buttons.some((one) => one.tabIndex === 0)) buttons[0].tabIndex = 0;
}

async function older() {
  const found = await ask("conversations", next);
  pages.push(found.conversations);
  next = found.next;
  drawList();
}

async function keepList() {
  const found = await ask("conversations");
  const minute = Math.floor(Date.now() / 60_000);
  const now = `${minute} ${JSON.stringify(found.conversations)}`;
  if (pages.length === 1) next = found.next;
  if (now === drawnList) return;
  drawnList = now;
  pages[0] = found.conversations;
  drawList();
}

walkable(byId("list"), "button.pick");
