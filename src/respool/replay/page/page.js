// Start of the page: theme and sections.

switchThemes(document.getElementById("theme"));

const some = DATA.count.sessions > 0;
const SECTIONS = [
  ["policies", "Policies", policies, some],
  ["spent", "Tokens", spent, some],
  ["time", "Time", time, some],
  ["sessions", "Sessions", sessions, some],
  ["trust", "Accuracy", accuracy, some || DATA.left.length > 0],
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
      `Made by respool ${DATA.version} on ${moment(DATA.made * 1000)} UTC. One file, no network: it holds names and lines from your transcripts, so share it as you would share them.`,
    ),
  );
