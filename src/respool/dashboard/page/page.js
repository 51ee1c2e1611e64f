// Start of the page: theme, time range and polling.

const range = byId("range");
let drawnOverview = "";
let version = null; // of the respool that sent the first answer
let outdated = false; // another version answers now

function report(error) {
  const place = byId("live");
  const text = error?.message ?? (outdated ? "respool was updated: load this page again" : "live");
  place.className = error || outdated ? "off" : "on";
  if (place.textContent !== text) place.textContent = text;
}

async function updateOverview() {
  const data = await ask("overview", { range: range.value });
  version ??= data.version;
  outdated = data.version !== version;
  const state = JSON.stringify([range.value, data.totals, data.since, data.observe, data.latest]);
  if (state !== drawnOverview) overview(data, range.value);
  drawnOverview = state;
  const mode = byId("mode");
  mode.className = data.observe ? "badge" : "";
  mode.textContent = data.observe ? "observing: nothing is changed" : "";
  await updateStatus(data);
}

switchThemes(byId("theme"));
drawConversation();
followLink();
addEventListener("hashchange", followLink);
const updates = [updateOverview, updateList, updateConversation, () => updateEvents(range.value)];
range.addEventListener("change", startPolling(updates, report));
