// The start: light and dark, the range, and the rounds that keep everything up to date.

const THEME = "clew-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const themeButton = byId("theme");
const range = byId("range");
let drawnOverview = "";

const isDark = () =>
  (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
const nameTheme = () => {
  themeButton.textContent = isDark() ? "Light" : "Dark";
  themeButton.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
};

themeButton.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  localStorage.setItem(THEME, document.documentElement.dataset.theme);
  nameTheme();
});
dark.addEventListener("change", nameTheme);
const earlier = localStorage.getItem(THEME);
if (earlier === "light" || earlier === "dark") document.documentElement.dataset.theme = earlier;
nameTheme();

function report(error) {
  const words = error instanceof TypeError ? "clew does not answer" : error?.message;
  const said = error ? words : "live";
  const place = byId("live");
  place.className = error ? "off" : "on";
  if (place.textContent !== said) place.textContent = said;
}

async function keepOverview() {
  const data = await ask("overview", { range: range.value });
  const shape = JSON.stringify([range.value, data.totals, data.since, data.observe]);
  if (shape !== drawnOverview) overview(data, range.value);
  drawnOverview = shape;
  const mode = byId("mode");
  mode.className = data.observe ? "badge" : "";
  mode.textContent = data.observe ? "observing: nothing is changed" : "";
  await keepEvents(range.value);
  await keepStanding(data);
}

const again = live([keepOverview, keepList, keepConversation], report);
range.addEventListener("change", again);

const named = new URLSearchParams(location.hash.slice(1)).get("conversation");
drawConversation();
if (named) chooseConversation(named, false).catch(report);
