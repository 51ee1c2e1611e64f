// One session: its requests, cuts, lost turns and reported usage.

function detail(session) {
  const holder = element("div", { class: "session" });
  const policy = { name: chosen.policy };
  const below = element("div");
  const drawn = session.scores.some((score) => score.points.length);
  const lines = drawn ? contextFigure(session, policy) : null;
  const update = () => {
    below.replaceChildren(...underPolicy(session, scoreOf(session, policy.name)));
    lines?.redraw();
  };
  const options = session.scores.filter((score) => score !== baseOf(session));
  const select = element(
    "select",
    {
      onchange: () => {
        policy.name = select.value;
        lines?.show(policy.name);
        update();
      },
    },
    options.map((score) =>
      element(
        "option",
        { value: score.policy, selected: score.policy === policy.name },
        score.policy,
      ),
    ),
  );
  holder.append(
    sessionFacts(session),
    lines ??
      note(
        `The requests of this session are not drawn: it is not among the ${number(DATA.count.detailed)} most expensive.`,
      ),
    element("h3", { class: "minor" }, "Under each policy"),
    scoreTable(session),
  );
  if (options.length)
    holder.append(
      element("div", { class: "controls" }, element("label", {}, "What happened under", select)),
      below,
    );
  holder.append(...aboutSession(session));
  if (options.length) update();
  return holder;
}

function sessionFacts(session) {
  const lasted =
    session.started != null && session.ended != null
      ? ` (${duration(session.ended - session.started)})`
      : "";
  return facts(
    [
      ["Agent", session.agent],
      ["Model", session.model ?? "unknown"],
      ["Format", session.format],
      ["Window", session.window ? `${tokens(session.window)} tokens` : "unknown"],
      [
        "Began",
        session.started == null ? "unknown" : moment(session.started * 1000) + " UTC" + lasted,
      ],
      ["Id", code(session.id)],
      ["Called by", session.parent == null ? null : code(session.parent)],
      ["Read from", code(session.source), true],
    ],
    true,
  );
}

const CHART_HINT = "Point at the chart, or focus it and use the arrow keys.";

function contextFigure(session, policy) {
  const shown = new Set([baseOf(session).policy, policy.name]);
  const readout = element("output", { "aria-live": "polite" }, CHART_HINT);
  const describe = (...at) => readout.replaceChildren(...contents(describeRequest(...at)));
  const lossScore = () => shown.has(policy.name) && scoreOf(session, policy.name);
  const holder = responsive((width) => contextLines(session, shown, lossScore(), width, describe));
  const group = { class: "controls toggles", role: "group", "aria-label": "Policies drawn" };
  const toggles = element("div", group);
  const fill = () => toggles.replaceChildren(...policyToggles(session, shown, holder.redraw));
  fill();
  const thinner = session.scores.some(
    ({ points, requests }) => points.length && points.length < requests,
  );
  const caption = [
    "Tokens of the whole prompt. Strokes below the axis: turns that lost something.",
    thinner && " Of long lines, the highest and lowest points of each stretch are drawn.",
  ];
  const title = element("h3", { class: "minor" }, "Context per request, before and after");
  const figure = element(
    "figure",
    {},
    title,
    element("figcaption", {}, caption),
    toggles,
    holder,
    readout,
  );
  const show = (name) => {
    shown.add(name);
    fill();
  };
  return Object.assign(figure, { redraw: holder.redraw, show });
}

function describeRequest(request, scores) {
  const parts = scores.map(({ policy, points }) => {
    const [, size, read, cost] = points.findLast((one) => one[0] <= request) ?? points[0];
    const more = ` (${tokens(read)} from the cache, cost ${tokens(cost)})`;
    return ` · ${policy} ${tokens(size)}${scores.length > 3 ? "" : more}`;
  });
  return [element("b", {}, `Request ${nth(request)}`), ...parts];
}

function policyToggles(session, shown, redraw) {
  return session.scores.map(({ policy }) => {
    const onchange = () => {
      shown[box.checked ? "add" : "delete"](policy);
      redraw();
    };
    const box = element("input", { type: "checkbox", value: policy, onchange });
    box.checked = shown.has(policy);
    return element("label", {}, box, key(policy), policy);
  });
}

function scoreTable(session) {
  const columns = [
    ["Policy", "left"],
    ["Would cost"],
    ["All-in"],
    ["Turns lost"],
    ["Names kept"],
    ["Lines kept"],
    ["Peak"],
    ["Window full at"],
    ["Invalid"],
    ["Prefix breaks"],
    ["ms per request (slowest)"],
  ];
  const part = (kept, all) => (all ? percent(kept / all) : "–");
  return table(
    "This session under each policy; all-in as a ratio to no compaction",
    columns,
    session.scores.map((score) => [
      element("span", {}, key(score.policy), element("span", {}, score.policy)),
      allInPrice(score),
      number(ratioOf(session, score.policy), 3),
      number(score.lost_turns),
      part(score.atoms_kept, score.atoms),
      part(score.lines_kept, score.lines),
      tokens(score.peak),
      score.full_at == null ? "–" : `request ${nth(score.full_at)}`,
      number(score.invalid_count),
      number(score.break_count),
      score.seconds
        ? `${number((score.seconds * 1000) / Math.max(1, score.requests), 1)} (${number(score.worst * 1000)})`
        : "–",
    ]),
  );
}

function underPolicy(session, score) {
  if (!score) return [];
  return [...lossesOf(score), ...cutsOf(score), ...breaksOf(score), ...problems(score)];
}

const spaced = (texts) => texts.flatMap((text, at) => (at ? [" ", code(text)] : [code(text)]));

const FIRST_LOSSES = 8;

function lossesOf(score) {
  const title = element("h3", { class: "minor" }, "Turns that lost something");
  if (!score.lost_turns) return [title, note(`None under ${score.policy}.`)];
  const list = (losses) => element("ul", { class: "losses" }, losses.map(lossItem));
  const rest = score.losses.slice(FIRST_LOSSES);
  const missing = score.lost_turns - score.losses.length;
  return [
    title,
    list(score.losses.slice(0, FIRST_LOSSES)),
    rest.length ? folded(`${plural(rest.length, "more turn")}`, list(rest)) : "",
    missing > 0 ? note(`${plural(missing, "more turn")} not listed.`) : "",
  ];
}

function lossItem({ request, needs, count, sources }) {
  const more = count - needs.length;
  return element(
    "li",
    {},
    element("b", {}, `Request ${nth(request)}`),
    element(
      "div",
      {},
      element("p", {}, "needed ", spaced(needs), more > 0 && ` and ${number(more)} more`),
      sources.length > 0 && element("p", { class: "soft" }, "had stood in ", spaced(sources)),
    ),
  );
}

function cutsOf(score) {
  const title = element("h3", { class: "minor" }, "What was cut, and why");
  if (!score.cut_count)
    return [
      title,
      note(
        FORESIGHT.has(score.policy) ? "A limit has no reasons." : `Nothing under ${score.policy}.`,
      ),
    ];
  const found = [title];
  if (score.cuts.length)
    found.push(
      cutTable(
        `Cut by ${score.policy}; tokens saved in the last request with the edit in force`,
        score.cuts,
      ),
    );
  if (score.cut_count > score.cuts.length)
    found.push(
      note(
        `${number(score.cuts.length)} of ${plural(score.cut_count, "kind")} of cut listed; all save ${tokens(score.cut_tokens)} tokens.`,
      ),
    );
  return found;
}

function breaksOf(score) {
  const title = element("h3", { class: "minor" }, "Prefix breaks");
  if (!score.break_count) return [title, note(`None under ${score.policy}.`)];
  const at = (cause) =>
    cause.requests.map(nth).join(", ") + (cause.times > cause.requests.length ? ", …" : "");
  return [
    title,
    table(
      "Requests that do not extend the previous one",
      [["Cause", "words"], ["Times"], ["Tokens after the break"], ["At request", "words"]],
      score.breaks.map((cause) => [
        cause.cause,
        number(cause.times),
        tokens(cause.tokens),
        at(cause),
      ]),
    ),
  ];
}

function problems(score) {
  const found = [];
  if (score.invalid_count) {
    found.push(
      element("h3", { class: "minor" }, "Requests the provider would refuse"),
      element(
        "ul",
        { class: "plain" },
        score.invalid.map(([request, why]) => element("li", {}, `Request ${nth(request)}: ${why}`)),
      ),
    );
    if (score.invalid_count > score.invalid.length)
      found.push(note(`${number(score.invalid_count - score.invalid.length)} more.`));
  }
  if (score.failures.length)
    found.push(
      element("h3", { class: "minor" }, "Passes that failed"),
      element(
        "ul",
        { class: "plain" },
        score.failures.map((text) => element("li", {}, text)),
      ),
    );
  return found;
}

function aboutSession(session) {
  const found = [element("h3", { class: "minor" }, "Cost breakdown"), spentTables(session.spent)];
  if (session.recorded)
    found.push(element("h3", { class: "minor" }, "Reported and replayed bill"), billTable(session.recorded));
  if (session.loop_count)
    found.push(
      element("h3", { class: "minor" }, `Loops (${number(session.loop_count)})`),
      element(
        "ul",
        { class: "plain" },
        session.loops.map((one) => element("li", {}, `${one.kind}: ${one.message}`)),
      ),
    );
  if (session.notes.length)
    found.push(
      element("h3", { class: "minor" }, "Notes"),
      element(
        "ul",
        { class: "plain" },
        session.notes.map((text) => element("li", {}, text)),
      ),
    );
  return found;
}
