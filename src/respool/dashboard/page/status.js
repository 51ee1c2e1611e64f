// Status: breaker, store, calibration, settings in force.

let drawnStatus = "";

function storeStatus({ store }) {
  return [
    store.trouble
      ? element("span", { class: "trouble" }, `${store.trouble} Until it can be, no new edits are made: requests go up with the edits in force, or as they came.`)
      : store.path ? `${store.path}, ${bytes(store.bytes)}` : "in use",
    store.dropped > 0 && element("span", { class: "trouble" }, ` ${plural(store.dropped, "record")} could not be written.`),
    store.moved_aside.length > 0 && element("span", { class: "trouble" }, ` Damaged files were moved aside: ${store.moved_aside.join(", ")}.`),
  ];
}

const PHASES = { closed: "working", open: "resting", half_open: "trying again" };

function settingText(value) {
  if (value == null) return "none";
  return Array.isArray(value) ? value.join(", ") || "none" : String(value);
}

function settingRows(settings) {
  const changed = (one) => one.origin !== "default";
  const sorted = [...settings].sort((one, other) => changed(other) - changed(one));
  return sorted.map((one) => [code(one.name), settingText(one.value), one.origin]);
}

function drawStatus(data, settings) {
  const changed = settings.filter((one) => one.origin !== "default").length;
  const state = MODE_TEXTS[data.mode] ?? PHASES[data.breaker.phase];
  refill(
    byId("stand"),
    element(
      "dl",
      { class: "stand" },
      element("dt", {}, term("Compaction")), element("dd", {}, element("b", {}, state), data.mode === "compact" ? ` ${data.breaker.why}` : ""),
      element("dt", {}, term("Store")), element("dd", {}, storeStatus(data)),
    ),
    data.calibrations.length > 0 && table(
      "Tokens that providers count for one of respool's",
      [["Model", "left"], ["Format", "left"], ["Factor"], ["Requests"]],
      data.calibrations.map((one) => [modelName(one.model), one.format, number(one.factor, 3), number(one.requests)]),
    ),
    element(
      "details",
      { "data-key": "settings" },
      element("summary", {}, `Settings in force (${changed ? `${number(changed)} changed` : "all as they come"})`),
      table("Settings", [["Setting", "left"], ["Value", "words"], ["From", "left"]], settingRows(settings)),
    ),
  );
}

async function updateStatus(data) {
  const { settings } = await ask("settings");
  const { breaker, store, calibrations, mode } = data;
  const now = JSON.stringify([breaker, store, calibrations, mode, settings]);
  if (now !== drawnStatus) drawStatus(data, settings);
  drawnStatus = now;
}
