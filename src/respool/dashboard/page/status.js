// How it stands: the breaker, the store, what providers count, the settings in force.

let drawnStanding = "";

function storeSaid({ store }) {
  return [
    store.trouble
      ? element("span", { class: "trouble" }, `${store.trouble} Until it can be, no new edits are made: requests go up with the edits in force, or as they came.`)
      : `${store.path}, ${bytes(store.bytes)}`,
    store.dropped > 0 && element("span", { class: "trouble" }, ` ${plural(store.dropped, "record")} could not be written.`),
    store.moved_aside.length > 0 && element("span", { class: "trouble" }, ` Damaged files were moved aside: ${store.moved_aside.join(", ")}.`),
  ];
}

const PHASES = { closed: "working", open: "resting", half_open: "trying again" };

function valueSaid(value) {
  if (value == null) return "none";
  return Array.isArray(value) ? value.join(", ") || "none" : String(value);
}

function settingRows(settings) {
  const changed = (one) => one.origin !== "default";
  const sorted = [...settings].sort((one, other) => changed(other) - changed(one));
  return sorted.map((one) => [code(one.name), valueSaid(one.value), one.origin]);
}

function drawStanding(data, settings) {
  const changed = settings.filter((one) => one.origin !== "default").length;
  const observing = data.observe ? "observing: nothing is changed" : PHASES[data.breaker.phase];
  refill(
    byId("stand"),
    element(
      "dl",
      { class: "stand" },
      element("dt", {}, "Compaction"), element("dd", {}, element("b", {}, observing), data.observe ? "" : ` ${data.breaker.why}`),
      element("dt", {}, "Store"), element("dd", {}, storeSaid(data)),
    ),
    data.calibrations.length > 0 && table(
      "Tokens that providers count for one of respool's",
      [["Model", "left"], ["Format", "left"], ["Factor"], ["Requests"]],
      data.calibrations.map((one) => [modelSaid(one.model), one.format, number(one.factor, 3), number(one.requests)]),
    ),
    element(
      "details",
      { "data-key": "settings" },
      element("summary", {}, `Settings in force (${changed ? `${number(changed)} changed` : "all as they come"})`),
      table("Settings", [["Setting", "left"], ["Value", "words"], ["From", "left"]], settingRows(settings)),
    ),
  );
}

async function keepStanding(data) {
  const { settings } = await ask("settings");
  const { breaker, store, calibrations, observe } = data;
  const now = JSON.stringify([breaker, store, calibrations, observe, settings]);
  if (now !== drawnStanding) drawStanding(data, settings);
  drawnStanding = now;
}
