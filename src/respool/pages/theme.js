// Light and dark theme: the system's preference, or the choice on the page.

const THEME = "respool-theme";

// A browser may refuse storage; then the choice is not remembered.
function rememberedTheme() {
  try {
    return localStorage.getItem(THEME);
  } catch {
    return null;
  }
}

function rememberTheme(theme) {
  try {
    localStorage.setItem(THEME, theme);
  } catch {
    return;
  }
}

// Makes a button switch between the themes.
function switchThemes(button) {
  const root = document.documentElement;
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (preferred.matches ? "dark" : "light")) === "dark";
  const nameButton = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  };
  const earlier = rememberedTheme();
  if (earlier === "light" || earlier === "dark") root.dataset.theme = earlier;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    rememberTheme(root.dataset.theme);
    nameButton();
  });
  preferred.addEventListener("change", nameButton);
  nameButton();
}
