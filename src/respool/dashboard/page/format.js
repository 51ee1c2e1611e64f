// Formatting of numbers, times and names, and the elements that hold them.
// Content of a transcript is inserted as text only; the content security policy enforces it.

const byId = (id) => document.getElementById(id);

let pendingFocus = null; // key of the focused element that is not redrawn yet

// Replaces content; keeps the focus and the open details.
function refill(holder, ...children) {
  const held = holder.contains(document.activeElement) && document.activeElement.dataset.key;
  const open = new Set(
    [...holder.querySelectorAll("details[data-key][open]")].map((one) => one.dataset.key),
  );
  holder.replaceChildren(...contents(children));
  for (const one of holder.querySelectorAll("details[data-key]"))
    one.open ||= open.has(one.dataset.key);
  if (held) pendingFocus = held;
  refocus(holder);
}

function refocus(holder) {
  const found = pendingFocus && document.activeElement === document.body && byKey(holder, pendingFocus);
  if (!found) return;
  pendingFocus = null;
  found.focus({ preventScroll: true });
}

const byKey = (holder, key) =>
  [...holder.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key);

function dollars(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  const sign = value < 0 ? "−" : "";
  const size = Math.abs(value);
  if (size < 1e-9) return "$0.00"; // a rounding error
  if (size < 0.0001) return `${sign}<$0.0001`;
  return `${sign}$${number(size, size >= 9999.5 ? 0 : size >= 1 ? 2 : 4)}`;
}

function percent(share) {
  if (share == null || !Number.isFinite(share)) return "–";
  return `${number(share * 100, Math.abs(share) < 0.1 ? 1 : 0)}${SPACE}%`;
}

function bytes(value) {
  if (value < 1e6) return `${number(value / 1e3)}${SPACE}KB`;
  return `${number(value / 1e6, 1)}${SPACE}MB`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const fullTime = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

// The time of day; with the date if it is not today.
function at(seconds) {
  const then = new Date(seconds * 1000);
  const today = new Date().toDateString() === then.toDateString();
  return today ? clock.format(then) : `${day.format(then)}, ${clock.format(then)}`;
}

const stamp = (seconds) =>
  element(
    "time",
    { datetime: new Date(seconds * 1000).toISOString(), title: fullTime.format(seconds * 1000) },
    at(seconds),
  );

function ago(seconds) {
  const since = Date.now() / 1000 - seconds;
  if (since < 60) return "now";
  if (since < 3600) return `${plural(Math.round(since / 60), "minute")} ago`;
  if (since < 36 * 3600) return `${plural(Math.round(since / 3600), "hour")} ago`;
  return at(seconds);
}

const short = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

const modelName = (model, most = 60) => short(model || "unknown model", most);

// The first prompt names a conversation; without one, its model and id do.
const titleOf = (one, most) =>
  one.prompt ? [short(one.prompt, most)] : [modelName(one.model), " ", element("code", { class: "id" }, shortId(one.name ?? one.conversation))];

// Agent, folder and model, as far as they are known.
function originOf(one, most = 60) {
  const folder = one.project && element("span", { title: one.project }, folderName(one.project));
  const parts = [one.agent, folder, one.prompt && modelName(one.model, most)].filter(Boolean);
  return parts.flatMap((part, i) => (i ? [" · ", part] : [part]));
}

// The id in lists; the open conversation shows the full name that `respool forget` takes.
const shortId = (name) => name.slice(0, 6);

// Merges two lists by id; the first list takes precedence.
function joined(first, second) {
  const ids = new Set(first.map((one) => one.id));
  return [...first, ...second.filter((one) => !ids.has(one.id))];
}

// Replaces the first page of a list sorted latest first; known items within its range that it lacks
// were deleted.
function mergeFirstPage(page, known, when) {
  const end = page.length ? when(page.at(-1)) : -Infinity;
  return joined(page, known.filter((one) => when(one) <= end));
}

function facts(pairs, small = false) {
  return withTerms(
    "dl",
    { class: small ? "facts small" : "facts" },
    pairs
      .filter(Boolean)
      .map(([name, value, about]) =>
        element(
          "div",
          {},
          element("dt", {}, term(name)),
          element("dd", {}, value),
          about && element("dd", { class: "about" }, about),
        ),
      ),
  );
}

// One table: columns are [header, cell class], rows are arrays of cells.
function table(caption, columns, rows) {
  const cell = (content, at) =>
    element(
      at ? "td" : "th",
      { scope: at ? null : "row", class: columns[at][1], "data-label": columns[at][0] },
      content,
    );
  const head = ([name, kind]) => element("th", { scope: "col", class: kind }, term(name));
  return element(
    "div",
    { class: "box", role: "region", "aria-label": caption, tabindex: 0, "data-key": caption },
    element(
      "table",
      {},
      element("caption", {}, caption),
      element("thead", {}, withTerms("tr", {}, columns.map(head))),
      element(
        "tbody",
        {},
        rows.map((row) => element("tr", {}, row.map(cell))),
      ),
    ),
  );
}

// Arrow keys move between the buttons of a list; the tab key leaves it.
function navigateByArrows(list, selector) {
  const steps = { ArrowDown: 1, ArrowUp: -1, ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
  list.addEventListener("keydown", (event) => {
    const step = steps[event.key];
    const all = [...list.querySelectorAll(selector)];
    const from = all.indexOf(event.target.closest(selector));
    if (step == null || from < 0) return;
    event.preventDefault();
    const to = all[Math.min(all.length - 1, Math.max(0, from + step))];
    for (const one of all) one.tabIndex = one === to ? 0 : -1;
    to.focus();
  });
}

// A row of terms: the tab key stops at its first, arrow keys lead to the others.
function withTerms(name, attributes, ...children) {
  const made = element(name, attributes, ...children);
  made.querySelectorAll(".term").forEach((one, i) => (one.tabIndex = i ? -1 : 0));
  navigateByArrows(made, ".term");
  return made;
}

// Texts of reason codes; an unknown code is shown as it is.
const REASONS = new Map(Object.entries({
  over_cap: "longer than its cap",
  tidied: "what no reader misses",
  identical: "the same as another result",
  contained: "stands in another result",
  repeated_call: "the same call again",
  superseded: "overtaken by a later write",
  overwritten: "written again or removed since",
  stale: "overtaken by a later read",
  resolved: "an error since resolved",
  old_reasoning: "old reasoning",
  bound_reasoning: "reasoning bound to what went",
  whitespace: "whitespace",
  trimmed: "trimmed",
  stubbed: "an old result in one line",
  folded: "old calls told in a summary",
  shown_before: "lines shown before",
  unlikely_needed: "lines unlikely to be needed",
  over_limit: "over a limit",
  advised: "advice given",
}));
const reasonText = (code) => REASONS.get(code) ?? code;

// Texts of fallback codes; an unknown code is shown as it is.
const FALLBACKS = new Map([
  ["refused", "the provider refused the projection; the original was sent"],
  ["left alone", "left alone since the provider refused a projection"],
  ["bypassed", "bypassed: the client asked for that"],
  ["signed", "signed by AWS credentials: it cannot be changed"],
  ["paused", "sent as it came: respool was paused"],
  ["pinned", "sent as it came: the conversation is pinned"],
  ["overflow", "too long for the provider; sent again under its limit"],
]);
const fallbackText = ({ fallback, again }) => FALLBACKS.get(fallback || again) ?? (fallback || again);
