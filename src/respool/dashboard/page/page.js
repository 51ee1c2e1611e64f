// The start: light and dark, the range, and the rounds that keep everything up to date.

const range = byId("range");
let drawnOverview = "";
let version = null; // of the respool that gave this page its first answer
let outdated = false; // another one answers by now

function report(error) {
  const place = byId("live");
  const said = error?.message ?? (outdated ? "respool was updated: load this page again" : "live");
  place.className = error || outdated ? "off" : "on";
  if (place.textContent !== said) place.textContent = said;
}

async function keepOverview() {
  const data = await ask("overview", { range: range.value });
  version ??= data.version;
  outdated = data.version !== version;
  const shape = JSON.stringify([range.value, data.totals, data.since, data.observe, data.latest]);
  if (shape !== drawnOverview) overview(data, range.value);
  drawnOverview = shape;
  const mode = byId("mode");
  mode.className = data.observe ? "badge" : "";
  mode.textContent = data.observe ? "observing: nothing is changed" : "";
  await keepStanding(data);
}

switchThemes(byId("theme"));
drawConversation();
followLink();
addEventListener("hashchange", followLink);
const parts = [keepOverview, keepList, keepConversation, () => keepEvents(range.value)];
range.addEventListener("change", live(parts, report));
