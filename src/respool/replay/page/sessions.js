// The sortable, filterable table of sessions.

const FIRST_ROWS = 25;
const COLUMNS = [
  { name: "Session", field: "started", left: true },
  { name: "Cost", field: "cost" },
  { name: "Requests", field: "requests" },
  { name: "Peak", field: "peak" },
  { name: "Saving", field: "saving" },
  { name: "Turns lost", field: "lost" },
];

// Sessions without a price sort after those with one.
const worth = ({ cost, money }) => (priced(BASE_TOTAL.bill) ? (money ?? cost / 1e12) : cost);

const VALUES = {
  started: (session) => session.started ?? 0,
  cost: (session) => worth(baseOf(session).bill),
  requests: (session) => session.requests,
  peak: (session) => baseOf(session).peak,
  saving: (session) => 1 - (ratioOf(session, chosen.policy) ?? 1),
  lost: (session) => scoreOf(session, chosen.policy)?.lost_turns ?? 0,
};

function titleOf(session) {
  const file = session.source.split(/[\\/]/).at(-1) || session.id;
  return session.started == null ? file : moment(session.started * 1000);
}

// The last folder of its path that is not a number: often the project.
function folderOf(session) {
  const folder = session.source
    .split(/[\\/]/)
    .slice(0, -1)
    .findLast((part) => /[^\d.]/.test(part));
  return folder && folder.length > 36 ? `…${folder.slice(-35)}` : folder;
}

function cellsOf(session) {
  const base = baseOf(session);
  const score = scoreOf(session, chosen.policy);
  const ratio = ratioOf(session, chosen.policy);
  const other = score && score !== base;
  return [
    price(base.bill),
    number(session.requests),
    tokens(base.peak),
    other && ratio != null ? percent(1 - ratio) : "–",
    other ? number(score.lost_turns) : "–",
  ];
}

function sessionRow(session, open) {
  const attributes = { type: "button", class: "open", "aria-expanded": "false" };
  const button = element("button", attributes, titleOf(session));
  const about = [
    session.agent,
    session.model,
    folderOf(session),
    session.parent != null && "sub-agent",
    session.segment > 0 && `part ${number(session.segment + 1)}`,
  ];
  const row = element(
    "tr",
    { class: "row" },
    element(
      "th",
      { scope: "row", class: "words" },
      button,
      element("span", { class: "about" }, about.filter(Boolean).join(" · ")),
    ),
    cellsOf(session).map((cell, at) => element("td", { "data-label": COLUMNS[at + 1].name }, cell)),
  );
  row.addEventListener("click", () => getSelection()?.toString() || open(row));
  return Object.assign(row, { session, button });
}

// State of the table: filter, sort order and open sessions.
class SessionTable {
  field = "cost";
  down = true;
  all = false;
  words = "";
  opened = new Set();
  body = element("tbody");
  status = element("p", { class: "note", role: "status" });
  more = element("button", { type: "button", onclick: () => this.set({ all: true }) });
  heads = COLUMNS.map((column) => this.head(column));
  search = element("input", {
    type: "search",
    placeholder: "agent, model, path …",
    oninput: () => this.set({ words: this.search.value.toLowerCase() }),
  });

  set(values) {
    Object.assign(this, values);
    this.show();
  }

  head({ name, field, left }) {
    const sort = () => this.set({ down: this.field === field ? !this.down : true, field });
    const button = element("button", { type: "button", class: "sort", onclick: sort }, name);
    return element("th", { scope: "col", class: left && "left" }, button);
  }

  found() {
    const searchable = ({ agent, model, source, id }) =>
      `${agent} ${model} ${source} ${id}`.toLowerCase();
    const value = VALUES[this.field];
    return DATA.sessions
      .filter((session) => searchable(session).includes(this.words))
      .sort((one, other) => (this.down ? 1 : -1) * (value(other) - value(one)));
  }

  open(row) {
    const opened = row.classList.toggle("open");
    row.button.setAttribute("aria-expanded", String(opened));
    this.opened[opened ? "add" : "delete"](row.session);
    if (!opened) return row.nextElementSibling.remove();
    const cell = element("td", { colspan: COLUMNS.length }, detail(row.session));
    row.after(element("tr", { class: "detail" }, cell));
  }

  show() {
    const found = this.found();
    const shown = this.all ? found : found.slice(0, FIRST_ROWS);
    const rows = shown.map((session) => sessionRow(session, (row) => this.open(row)));
    this.body.replaceChildren(...rows);
    for (const row of rows) if (this.opened.has(row.session)) this.open(row);
    this.heads.forEach((head, at) => {
      head.removeAttribute("aria-sort");
      if (COLUMNS[at].field !== this.field) return;
      head.setAttribute("aria-sort", this.down ? "descending" : "ascending");
    });
    this.more.hidden = shown.length === found.length;
    this.more.textContent = `Show all ${number(found.length)}`;
    const counted = `${plural(found.length, "session")} of ${number(DATA.sessions.length)}`;
    this.status.textContent = this.words ? counted : "";
  }
}

function sessions(section) {
  const view = new SessionTable();
  const peak = "Peak is the longest prompt in tokens, without system prompt and tools.";
  const searchField = DATA.sessions.length > 5 && element("label", {}, "Find", view.search);
  section.append(
    paragraph(
      "Open a session for its requests, cuts and lost turns.",
      TRIED.length > 0 &&
        " Saving and lost turns are those of the policy chosen here; the saving includes refetching.",
    ),
    element("div", { class: "controls" }, policyChoice("Policy"), searchField),
    scrolling(
      "Sessions",
      element(
        "table",
        { class: "cards", id: "session-table" },
        element("caption", {}, peak),
        element("thead", {}, element("tr", {}, view.heads)),
        view.body,
      ),
    ),
    view.status,
    view.more,
    ...truncationNotes().map((text) => note(text)),
  );
  chosen.listeners.push(() => view.show());
  view.show();
}

function truncationNotes() {
  const { count } = DATA;
  const found = [];
  if (count.sessions > DATA.sessions.length)
    found.push(
      `To keep this page small, only the ${number(DATA.sessions.length)} most expensive of ${number(count.sessions)} sessions are listed; every figure above is over all of them.`,
    );
  if (DATA.sessions.length > count.detailed)
    found.push(
      `Requests are drawn for the ${number(count.detailed)} most expensive sessions only; of the others a few lost turns and cuts are listed. The complete data: respool replay --json`,
    );
  return found;
}
