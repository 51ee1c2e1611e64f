// The start: fills the sections, and switches between light and dark.

const THEME = "clew-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const button = document.getElementById("theme");

function remembered() {
  try {
    return localStorage.getItem(THEME);
  } catch {
    return null; // a page opened from disk may have no storage
  }
}

function remember(theme) {
  try {
    localStorage.setItem(THEME, theme);
  } catch {
    // then it is chosen anew next time
  }
}

const isDark = () =>
  (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
const name = () => {
  button.textContent = isDark() ? "Light" : "Dark";
  button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
};

button.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  remember(document.documentElement.dataset.theme);
  name();
});
dark.addEventListener("change", name);
const earlier = remembered();
if (earlier === "light" || earlier === "dark") document.documentElement.dataset.theme = earlier;
name();

const some = DATA.count.sessions > 0;
const SECTIONS = [
  ["policies", "Policies", policies, some],
  ["spent", "Tokens", spent, some],
  ["time", "Time", time, some],
  ["sessions", "Sessions", sessions, some],
  ["trust", "Trust", trust, some || DATA.left.length > 0],
];
headline(document.getElementById("headline"));
for (const [id, text, fill, wanted] of SECTIONS) {
  if (!wanted) continue;
  const section = document.getElementById(id);
  section.hidden = false;
  fill(section);
  document.getElementById("contents").append(element("a", { href: `#${id}` }, text));
}
document
  .getElementById("footer")
  .append(
    paragraph(
      `Made by clew ${DATA.version} on ${moment(DATA.made * 1000)} UTC. One file, no network: it holds names and lines from your transcripts, so share it as you would share them.`,
    ),
  );
