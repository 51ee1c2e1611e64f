// Asking clew, every two seconds while somebody looks; what has not changed is not sent again.

const ROOT = location.pathname.replace(/\/?$/, "/");
const EVERY = 2000;
const REST = 9; // times as long as a round took: a large store is not kept busy by who looks at it
const known = new Map(); // by question: the tag and the answer

async function ask(question, fields = {}) {
  const query = new URLSearchParams(Object.entries(fields).filter(([, value]) => value != null));
  const url = `${ROOT}clew/api/${question}?${query}`;
  const earlier = known.get(url);
  const headers = earlier ? { "If-None-Match": earlier.tag } : {};
  const answer = await fetch(url, { headers, credentials: "omit" });
  if (answer.status === 304) return earlier.data;
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.error ?? `clew answered ${answer.status}`);
  if (known.size > 50) known.delete(known.keys().next().value);
  known.set(url, { tag: answer.headers.get("etag"), data });
  return data;
}

// Runs all that keeps the page up to date, one round after another.
function live(rounds, tell) {
  let waiting = 0;
  let going = false;
  const round = async () => {
    clearTimeout(waiting);
    if (going) return;
    going = true;
    const began = performance.now();
    try {
      for (const one of rounds) await one();
      tell(null);
    } catch (error) {
      tell(error);
    }
    going = false;
    const rest = Math.max(EVERY, REST * (performance.now() - began));
    if (!document.hidden) waiting = setTimeout(round, rest);
  };
  document.addEventListener("visibilitychange", () => !document.hidden && round());
  round();
  return round;
}
