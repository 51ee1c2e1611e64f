// Tables of days, weeks or months, and of agents, projects, models and teams.

let period = "day";
let drawnTables = "";
const PERIODS = { day: "Day", week: "Week", month: "Month" };
const SPANS = { day: "the last 7 days", week: "the last 8 weeks", month: "the last 12 months" };
const monthName = new Intl.DateTimeFormat("en-GB", { month: "long", year: "numeric" });
const dayName = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });

function periodName(start) {
  const date = new Date(`${start}T00:00:00`);
  if (period === "month") return monthName.format(date);
  return period === "week" ? `from ${dayName.format(date)}` : dayName.format(date);
}

function savingRow(name, row, observed) {
  const { real, would, priced } = savings(row);
  return [
    name,
    dollars(priced ? real.money : null),
    priced ? percent(real.money / row.cost_before) : "–",
    tokens(real.tokens),
    number(row.requests),
    ...(observed ? [dollars(priced && row.observed ? would.money : null), number(row.observed)] : []),
  ];
}

function savingTable(caption, head, rows, names) {
  const observed = rows.some((row) => row.observed);
  const columns = [
    [head, "name"], ["Saved"], ["Of the bill"], ["Tokens saved"], ["Requests"],
    ...(observed ? [["Would have saved"], ["Observed"]] : []),
  ];
  return table(caption, columns, rows.map((row, i) => savingRow(names[i], row, observed)));
}

function originTable(found, name) {
  const rows = found[`${name}s`];
  const labels = originLabels(name, rows.map((row) => row.name));
  const names = rows.map((row, i) =>
    element(
      "button",
      { type: "button", class: "link", title: row.name, "data-key": `only ${name} ${i}`, "aria-label": `Only ${labels[i]}`, onclick: () => chooseOrigin(name, row.name) },
      short(labels[i], 40),
    ));
  return savingTable(`By ${name}, ${SPANS[period]}`, name[0].toUpperCase() + name.slice(1), rows, names);
}

function chooseOrigin(name, value) {
  const select = byId(`filter-${name}`);
  chosenFilters[name] = value;
  drawOrigins(Object.fromEntries(ORIGINS.map((one) => [`${one}s`, originValues[one]])));
  select.dispatchEvent(new Event("change"));
  select.focus();
}

function periodButtons() {
  return element(
    "div",
    { class: "switch", role: "group", "aria-label": "Table by" },
    Object.entries(PERIODS).map(([value, text]) =>
      element(
        "button",
        { type: "button", "aria-pressed": String(value === period), "data-key": `by ${value}`, onclick: () => { period = value; updateTables().catch(report); } },
        text,
      )),
  );
}

function drawTables(found) {
  const names = found.periods.map((row) => periodName(row.name));
  refill(
    byId("tables"),
    periodButtons(),
    found.periods.length
      ? element(
          "div",
          { class: "pairs" },
          savingTable(`By ${period}, ${SPANS[period]}`, PERIODS[period], found.periods, names),
          ORIGINS.filter((name) => name !== "team" || found.teams.length).map((name) => originTable(found, name)),
        )
      : element("p", { class: "hint" }, `No request in ${SPANS[period]}${isFiltered() ? " meets the filters" : ""}.`),
  );
}

async function updateTables() {
  const found = await ask("tables", { period, ...filterFields() });
  const now = JSON.stringify(found);
  if (now !== drawnTables) drawTables(found);
  drawnTables = now;
}
