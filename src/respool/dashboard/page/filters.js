// Filters of everything on the page: words, agent, project, model, team, time.

const ORIGINS = ["agent", "project", "model", "team"];
const chosenFilters = { search: "", agent: null, project: null, model: null, team: null, day: "" };
const ORIGINS_INTERVAL = 20_000; // milliseconds between two looks for new agents and folders
const originValues = { agent: [], project: [], model: [], team: [] }; // that a filter can choose, in order
let originsAsked = -Infinity;
let drawnOrigins = "";

// The fields that a query takes; a day is one of this browser's calendar.
function filterFields() {
  const { search, agent, project, model, team, day: chosen } = chosenFilters;
  const start = chosen ? new Date(`${chosen}T00:00:00`) : null;
  const end = start && new Date(start.getFullYear(), start.getMonth(), start.getDate() + 1);
  return {
    search: search || null, agent, project, model, team,
    since: start && start.getTime() / 1000,
    until: end && end.getTime() / 1000,
  };
}

const isFiltered = () => Object.values(chosenFilters).some((value) => value != null && value !== "");

const folderName = (path) => path.split(/[\\/]/).filter(Boolean).at(-1) ?? path;
const originText = (name, value) => (name === "project" ? folderName(value) : value) || `unknown ${name}`;

// Two folders of the same name are told apart by the folders around them.
function originLabels(name, values) {
  const shortened = values.map((value) => originText(name, value));
  return values.map((value, i) =>
    shortened.filter((one) => one === shortened[i]).length > 1 && value ? value : shortened[i]);
}

function drawOrigins(found) {
  for (const name of ORIGINS) {
    const select = byId(`filter-${name}`);
    const chosen = chosenFilters[name];
    const values = [...found[`${name}s`]];
    if (chosen != null && !values.includes(chosen)) values.push(chosen);
    originValues[name] = values;
    const labels = originLabels(name, values);
    const options = values.map((value, i) =>
      element("option", { value: i, selected: value === chosen, title: value }, short(labels[i], 60)));
    select.replaceChildren(element("option", { value: "" }, `all ${name}s`), ...options);
    select.hidden = name === "team" && !values.length;
  }
}

async function updateOrigins() {
  if (performance.now() - originsAsked < ORIGINS_INTERVAL) return;
  const found = await ask("origins");
  originsAsked = performance.now();
  const now = JSON.stringify(found);
  if (now !== drawnOrigins) drawOrigins(found);
  drawnOrigins = now;
}

function drawFilterState() {
  byId("clear").hidden = !isFiltered();
  byId("range").disabled = chosenFilters.day !== "";
}

function clearFilters() {
  Object.assign(chosenFilters, { search: "", agent: null, project: null, model: null, team: null, day: "" });
  for (const id of ["search", "day", ...ORIGINS.map((name) => `filter-${name}`)]) byId(id).value = "";
}

// Calls `refresh` after each change; words are waited for until the typing rests.
function watchFilters(refresh) {
  let typing = 0;
  const change = () => {
    drawFilterState();
    refresh();
  };
  byId("search").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      chosenFilters.search = byId("search").value.trim().slice(0, 200);
      change();
    }, 250);
  });
  for (const name of ORIGINS) {
    byId(`filter-${name}`).addEventListener("change", (event) => {
      const { value } = event.target;
      chosenFilters[name] = value === "" ? null : originValues[name][value];
      change();
    });
  }
  byId("day").addEventListener("change", () => {
    chosenFilters.day = byId("day").value;
    change();
  });
  byId("clear").addEventListener("click", () => {
    clearFilters();
    change();
    byId("search").focus();
  });
  byId("filter").addEventListener("submit", (event) => event.preventDefault());
  byId("csv").addEventListener("click", () => {
    const fields = { range: byId("range").value, ...filterFields() };
    const query = new URLSearchParams(Object.entries(fields).filter(([, value]) => value != null));
    location.assign(`${ROOT}respool/api/requests.csv?${query}`);
  });
}
