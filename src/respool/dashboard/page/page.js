// Start of the page: theme, time range and polling.

const range = byId("range");
let drawnOverview = "";
let drawnMode = "";
let version = null; // of the respool that sent the first answer
let outdated = false; // another version answers now

function report(error) {
  const place = byId("live");
  const text = error?.message ?? (outdated ? "respool was updated: load this page again" : "live");
  place.className = error || outdated ? "off" : "on";
  if (place.textContent !== text) place.textContent = text;
}

async function updateOverview() {
  const fields = { range: range.value, ...filterFields() };
  const data = await ask("overview", fields);
  version ??= data.version;
  outdated = data.version !== version;
  const state = JSON.stringify([fields, data.totals, data.since, data.observe, data.latest]);
  if (state !== drawnOverview) overview(data, range.value);
  drawnOverview = state;
  byId("team").textContent = data.team ? `team ${data.team}` : "";
  byId("modes").hidden = !data.can_switch;
  if (data.mode !== drawnMode) drawMode(data.mode);
  drawnMode = data.mode;
  await updateStatus(data);
}

switchThemes(byId("theme"));
drawConversation();
followLink();
addEventListener("hashchange", followLink);
const updates = [
  updateOverview, updateTables, updateBill, updateList, updateConversation, () => updateEvents(range.value), updateOrigins,
  updateEvidence,
];
const refresh = startPolling(updates, report);
range.addEventListener("change", refresh);
watchFilters(refresh);
