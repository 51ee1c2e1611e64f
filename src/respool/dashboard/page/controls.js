// The mode of the proxy, and pinned conversations: all that this page can change.

const MODES = [["compact", "Compact"], ["observe", "Observe"], ["pause", "Pause"]];
const MODE_TEXTS = { observe: "observing: nothing is changed", pause: "paused: requests pass as they come" };

// Sends a change; as JSON, which no page of another site can send.
async function send(change, fields) {
  const headers = { "Content-Type": "application/json" };
  const given = { method: "POST", headers, body: JSON.stringify(fields) };
  const { answer, data } = await fetchJson(`${ROOT}respool/api/${change}`, given);
  if (!answer.ok) throw new Error(errorText(answer, data));
}

function drawMode(mode) {
  const badge = byId("mode");
  badge.className = mode === "compact" ? "" : "badge";
  badge.textContent = MODE_TEXTS[mode] ?? "";
  refill(
    byId("modes"),
    MODES.map(([value, text]) =>
      element(
        "button",
        { type: "button", "aria-pressed": String(value === mode), "data-key": `mode ${value}`, "data-tip": value, onclick: () => switchMode(value).catch(report) },
        text,
      )),
  );
}

async function switchMode(mode) {
  await send("mode", { mode });
  drawMode(mode);
  drawnMode = mode;
  refresh();
}

function pinButton({ name, pinned }) {
  const action = pinned ? "unpin" : "pin";
  return element(
    "button",
    { type: "button", class: "quiet", "data-key": "pin", "data-tip": action, "aria-pressed": String(pinned), onclick: () => pin(name, !pinned).catch(report) },
    pinned ? "Unpin" : "Pin",
  );
}

async function pin(conversation, pinned) {
  await send("pin", { conversation, pinned });
  for (const one of listed) if (one.name === conversation) one.pinned = pinned;
  if (open?.name === conversation) open.pinned = pinned;
  drawConversation();
  drawList();
}
