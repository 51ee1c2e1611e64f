// Formatting of numbers, dates and names, and the elements that hold them.

const DATA = JSON.parse(document.getElementById("data").textContent);
const BASE = Math.max(
  0,
  DATA.totals.findIndex((total) => total.policy === "none"),
);
const FORESIGHT = new Set(["floor", "oracle"]); // they know the future: limits, not choices
const DAY = 86_400_000;

// Allow line breaks in a long name after these characters.
function breakable(text) {
  const parts = text.split(/(?<=[_/.:-]+)(?=[^_/.:-])/);
  return element(
    "span",
    {},
    parts.flatMap((part, at) => (at ? [element("wbr"), part] : [part])),
  );
}

function dollars(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  const sign = value < 0 ? "−" : "";
  const size = Math.abs(value);
  if (size > 0 && size < 0.01) return `${sign}<$0.01`;
  return `${sign}$${number(size, size < 9999.5 ? 2 : 0)}`;
}

function percent(share, digits = 1) {
  if (share == null || !Number.isFinite(share)) return "–";
  if (share > 0 && share * 100 < 0.05 && digits <= 1) return `<0.1${SPACE}%`;
  return `${number(share * 100, digits)
    .replace(/\.0$/, "")
    .replace("-", "−")}${SPACE}%`;
}

function change(ratio) {
  if (ratio == null || !Number.isFinite(ratio)) return "–";
  const off = ratio - 1;
  if (Math.abs(off) < 0.0005) return `±0${SPACE}%`;
  return `${off < 0 ? "−" : "+"}${percent(Math.abs(off), Math.abs(off) < 0.9995 ? 1 : 0)}`;
}

const calendar = (options) => {
  const format = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...options });
  return (milliseconds) => format.format(milliseconds);
};
const date = calendar({ day: "numeric", month: "short", year: "numeric" });
const shortDate = calendar({ day: "numeric", month: "short" });
const month = calendar({ month: "short", year: "numeric" });
const moment = calendar({
  day: "numeric",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
});

function duration(seconds) {
  if (seconds < 90) return plural(Math.round(seconds), "second");
  if (seconds < 5400) return plural(Math.round(seconds / 60), "minute");
  if (seconds < 48 * 3600) return plural(Math.round(seconds / 3600), "hour");
  return plural(Math.round(seconds / 86400), "day");
}

// Requests count from 0 in the data and from 1 on the page.
const nth = (request) => number(request + 1);

const sent = (bill) => bill.read + bill.write + bill.write_1h + bill.plain;
const priced = (bill) => bill.money != null;
const price = (bill) => (priced(bill) ? dollars(bill.money) : tokens(bill.cost));

// All-in is known in tokens; in dollars it is scaled by the same ratio to the bill.
function allInPrice(score) {
  if (!priced(score.bill)) return tokens(score.all_in);
  return dollars(score.bill.money * (score.bill.cost ? score.all_in / score.bill.cost : 1));
}

const scoreOf = (session, policy) => session.scores.find((score) => score.policy === policy);
const baseOf = (session) => scoreOf(session, "none") ?? session.scores[0];

function ratioOf(session, policy) {
  const base = baseOf(session);
  const score = scoreOf(session, policy);
  return base && score && base.bill.cost > 0 ? score.all_in / base.bill.cost : null;
}

function meaning(policy) {
  const counted = /^(mask|clear)-(\d+)(k?)$/.exec(policy);
  if (counted?.[1] === "mask") return `all but the last ${counted[2]} results masked`;
  if (counted)
    return `old results cleared above ${counted[2]}${counted[3] ? SPACE + "k" : ""} tokens`;
  return {
    none: "no compaction: the requests as sent",
    safe: "respool's default",
    lean: "respool, with more cuts",
    floor: "the limit: knows what was used later",
    oracle: "knows what was used later",
  }[policy];
}

const REASONS = { over_cap: "longer than its cap" };
const reason = (name) => [
  element("code", {}, breakable(name)),
  REASONS[name] ? ` ${REASONS[name]}` : null,
];

// A box that scrolls sideways if its content is too wide, and then takes the keyboard focus.
function scrolling(name, content) {
  const box = element("div", { class: "box", role: "group", "aria-label": name }, content);
  const updateFocus = () => {
    if (box.scrollWidth > box.clientWidth) box.setAttribute("tabindex", "0");
    else box.removeAttribute("tabindex");
  };
  new ResizeObserver(updateFocus).observe(box);
  return box;
}

// One table: columns are [header, cell class], rows are arrays of cells or nodes.
function table(caption, columns, rows, attributes = {}) {
  const cells = (row) =>
    row.map((cell, at) => {
      const kind = columns[at][1] ?? "";
      const head = at === 0;
      return element(head ? "th" : "td", { scope: head && "row", class: kind || null }, cell);
    });
  return scrolling(
    caption,
    element(
      "table",
      {
        ...attributes,
        class: [attributes.class, columns.length < 5 && "few"].filter(Boolean).join(" "),
      },
      element("caption", {}, caption),
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          columns.map(([head, kind], at) =>
            element("th", { scope: "col", class: kind || (at === 0 ? "left" : null) }, head),
          ),
        ),
      ),
      element(
        "tbody",
        {},
        rows.map((row) => element("tr", {}, cells(row))),
      ),
    ),
  );
}

function facts(pairs, small = false) {
  return element(
    "dl",
    { class: small ? "facts small" : "facts" },
    pairs
      .filter(([, value]) => value != null)
      .map(([name, value, long]) =>
        element(
          "div",
          { class: long && "long" },
          element("dt", {}, name),
          element("dd", {}, value),
        ),
      ),
  );
}

function folded(title, ...children) {
  return element("details", {}, element("summary", {}, title), ...children);
}
