// The edits of one request, each with before and after side by side.

const dialog = byId("edits");
let latest = 0; // number of the last request for an edit; late answers are not shown

function closeButton() {
  return element(
    "button",
    { type: "button", class: "quiet", "aria-label": "Close the edits", onclick: () => dialog.close() },
    "Close",
  );
}

// An edit by the call whose text it changed; without one, by its reason.
function editName(one, project) {
  if (!one.tool) return reasonText(one.reason);
  const inside = project && one.target.startsWith(`${project}/`);
  return `${one.tool} ${inside ? one.target.slice(project.length + 1) : one.target}`.trim();
}

function editButton(one, index, show, project) {
  return element(
    "li",
    {},
    element(
      "button",
      {
        type: "button",
        class: "pick",
        tabindex: index ? -1 : 0,
        "aria-pressed": "false",
        onclick: () => show(one),
        onfocus: () => show(one),
      },
      element("b", { class: "title", title: one.target }, editName(one, project)),
      element("span", { class: "about" }, `${reasonText(one.reason)} · ${tokens(one.saved)} tokens`),
    ),
  );
}

function missingText(one, observed) {
  if (observed) return note("respool only observed this request: it changed nothing, and kept no text.");
  return note(
    one.reason === "advised"
      ? "Advice was added here; nothing was taken out."
      : "The text is not kept, or was forgotten.",
  );
}

function sizes({ before, after }, replaces) {
  const shown = (side) =>
    side && (side.length > [...side.text].length
      ? `the first ${number(side.text.length)} of ${number(side.length)} characters`
      : `${number(side.length)} characters`);
  return `Before: ${shown(before) ?? "not kept"}. After: ${shown(after) ?? (replaces ? "not kept" : "nothing stands there")}.`;
}

// A short text that stands there now comes before the long one that went.
function inPlace({ before, after }) {
  if (!after || after.text.length > 400 || !before || before.text.length < 2_000) return "";
  return element("p", { class: "place" }, "What the model sees there now: ", code(after.text.trim()));
}

async function fillEdit(pane, request, one) {
  const ticket = ++latest;
  const head = [
    element("h3", { title: one.target }, editName(one, request.project)),
    element("p", { class: "place" }, `${reasonText(one.reason)}${one.evidence ? `: ${one.evidence}` : ""} `, element("span", { class: "id" }, "(", code(one.reason), " at ", code(one.place), ")")),
  ];
  try {
    const found = one.has_before || one.has_after
      ? await ask("edit", { request: request.id, at: one.at })
      : { before: null, after: null };
    if (ticket !== latest) return;
    const both = found.before || found.after;
    pane.replaceChildren(
      ...head,
      both ? note(sizes(found, one.replaces)) : missingText(one, isObserved(request)),
      inPlace(found),
      ...(both ? [sideBySide(found.before?.text ?? "", found.after?.text ?? "")] : []),
    );
  } catch (error) {
    if (ticket === latest) pane.replaceChildren(...head, note(error.message));
  }
}

async function openEdits(request, name) {
  const { edits } = await ask("edits", { request: request.id });
  const pane = element("div", { class: "pane", role: "region", "aria-label": "The chosen edit" });
  let chosen = null;
  const show = (one) => {
    if (one === chosen) return;
    chosen = one;
    list.querySelectorAll("button").forEach((button, i) =>
      button.setAttribute("aria-pressed", edits[i] === one),
    );
    fillEdit(pane, request, one);
  };
  const list = element("ul", { class: "picks", "aria-label": "Edits" }, edits.map((one, i) => editButton(one, i, show, request.project)));
  navigateByArrows(list, "button");
  dialog.replaceChildren(
    element(
      "div",
      { class: "bar" },
      element("h2", { id: "edits-title" }, `${plural(edits.length, "edit")} first made ${name}`),
      isObserved(request) && element("span", { class: "badge" }, "observed: not made"),
      closeButton(),
    ),
    element("div", { class: "split" }, list, pane),
  );
  dialog.showModal();
  (list.querySelector("button") ?? dialog.querySelector("button")).focus();
  if (edits.length) show(edits[0]);
}
