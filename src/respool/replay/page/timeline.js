// Money over time, before and after.

function periodsOf(days, policy, by, money) {
  const at = DATA.policies.indexOf(policy);
  const base = DATA.policies.indexOf(BASE_TOTAL.policy);
  const worth = (day, index) => (money ? day.money[index] : day.costs[index]) ?? 0;
  const range = days.at(-1).day - days[0].day;
  const unit = range > 730 ? "month" : range > 62 ? "week" : "day";
  const bucket = { day: (d) => d, week: (d) => d - ((d + 3) % 7), month: (d) => monthStart(d, 0) }[
    unit
  ];
  const next = { day: (d) => d + 1, week: (d) => d + 7, month: (d) => monthStart(d, 1) }[unit];
  const found = new Map();
  for (let start = bucket(days[0].day); start <= days.at(-1).day; start = next(start)) {
    const name = { day: date, week: (d) => `week of ${date(d)}`, month }[unit](start * DAY);
    found.set(start, {
      name,
      short: (unit === "month" ? month : shortDate)(start * DAY),
      before: 0,
      after: 0,
      groups: new Map(),
    });
  }
  for (const day of days) {
    const period = found.get(bucket(day.day));
    const value = worth(day, at);
    period.before += worth(day, base);
    period.after += value;
    period.groups.set(day[by], (period.groups.get(day[by]) ?? 0) + value);
  }
  return { unit, periods: [...found.values()] };
}

function monthStart(day, ahead) {
  const at = new Date(day * DAY);
  return Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + ahead, 1) / DAY;
}

// The largest groups, and the rest as one.
function grouped(periods) {
  const sums = new Map();
  for (const period of periods)
    for (const [group, value] of period.groups) sums.set(group, (sums.get(group) ?? 0) + value);
  const ranked = [...sums]
    .filter(([, sum]) => sum > 0)
    .sort((a, b) => b[1] - a[1])
    .map(([group]) => group);
  const kept = ranked.length > COLOURS ? ranked.slice(0, COLOURS - 1) : ranked;
  if (kept.length === ranked.length) return kept;
  for (const period of periods) {
    const rest = ranked
      .slice(kept.length)
      .reduce((sum, group) => sum + (period.groups.get(group) ?? 0), 0);
    period.groups.set(OTHERS, rest);
  }
  return [...kept, OTHERS];
}

// The chart over time with its caption, redrawn for another policy or grouping.
class Timeline {
  money = priced(BASE_TOTAL.bill);
  format = this.money ? dollars : tokens;
  intro = element("p");
  legend = element("ul", { class: "legend" });
  readout = element("output", { "aria-live": "polite" });
  values = element("div");
  by = element(
    "select",
    { onchange: () => this.show() },
    ["agent", "model"].map((value) => element("option", { value }, value)),
  );
  holder = responsive((width) => this.drawn(width));

  periods() {
    return periodsOf(DATA.days, chosen.policy, this.by.value, this.money);
  }

  drawn(width) {
    const { periods } = this.periods();
    const describe = (period) => this.describe(period);
    const chart = stackedBars(periods, grouped(periods), axis(this.format), width, describe);
    addCursor(chart.svg, width, chart.xs, chart.top, chart.bottom, (at) =>
      this.readout.replaceChildren(describe(periods[at])),
    );
    return chart.svg;
  }

  describe({ name, before, after }) {
    const off = before ? change(after / before) : "–";
    const then = `, ${this.format(after)} with ${chosen.policy} (${off})`;
    const sent = `: ${this.format(before)} as sent`;
    return element("span", {}, element("b", {}, name), sent, TRIED.length > 0 && then);
  }

  show() {
    const { unit, periods } = this.periods();
    const groups = grouped(periods);
    this.intro.replaceChildren(...contents([this.introduction(unit)]));
    this.readout.replaceChildren("Point at a bar, or focus the chart and use the arrow keys.");
    this.values.replaceChildren(this.table(periods.filter((one) => one.before || one.after)));
    this.legend.replaceChildren(
      ...groups.map((group, at) =>
        element("li", {}, element("span", { class: `key ${colourOf(group, at)}` }), group),
      ),
    );
    this.holder.redraw();
  }

  introduction(unit) {
    const what = this.money ? "Dollars" : "Tokens of plain input";
    const filled = `Filled: with ${chosen.policy}, refetching included.`;
    const policy = TRIED.length ? ` ${filled} Outline: as sent.` : "";
    return `${what} for prompts, by the ${unit} a session began in (UTC).${policy}`;
  }

  table(periods) {
    const columns = [["Period", "left"], ["As sent"], [chosen.policy], ["Change"]];
    const row = ({ name, before, after }) => [
      name,
      this.format(before),
      this.format(after),
      before ? change(after / before) : "–",
    ];
    return table("Over time", columns, periods.map(row));
  }
}

function time(section) {
  if (!priced(BASE_TOTAL.bill)) section.querySelector("h2").textContent = "Cost over time";
  if (!DATA.days.length) return section.append(note("No session has a recorded time."));
  const line = new Timeline();
  const several = ["agent", "model"].some((by) =>
    DATA.days.some((day) => day[by] !== DATA.days[0][by]),
  );
  const groupField = several && element("label", {}, "Stacked by", line.by);
  const { undated } = DATA.count;
  const left = `${plural(undated, "session has", "sessions have")} no recorded time and ${undated === 1 ? "is" : "are"} not drawn.`;
  section.append(
    line.intro,
    element("div", { class: "controls" }, policyChoice("Policy"), groupField),
    line.legend,
    element("figure", {}, line.holder, line.readout),
    folded("As a table", line.values),
    undated ? note(left) : "",
  );
  chosen.listeners.push(() => line.show());
  line.show();
}

// Dollars on an axis, without cents.
const axis = (format) => (value) =>
  format === dollars && Number.isInteger(value) ? `$${number(value)}` : format(value);
