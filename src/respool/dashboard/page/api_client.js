// Polling of the API every two seconds while the page is visible; unchanged answers are not resent.

const ROOT = location.pathname.replace(/\/?$/, "/");
const POLL_INTERVAL = 2000;
const REST_FACTOR = 9; // pause, as a multiple of the last round: polling does not keep a large store busy
const ANSWER_TIMEOUT = 20_000; // milliseconds
const cache = new Map(); // by URL: the ETag and the data

async function ask(question, fields = {}) {
  const query = new URLSearchParams(Object.entries(fields).filter(([, value]) => value != null));
  const url = `${ROOT}respool/api/${question}?${query}`;
  const earlier = cache.get(url);
  const headers = earlier ? { "If-None-Match": earlier.tag } : {};
  const { answer, data } = await fetchJson(url, { headers });
  if (answer.status === 304) return earlier.data;
  if (!answer.ok) throw new Error(errorText(answer, data));
  if (cache.size > 50) cache.delete(cache.keys().next().value);
  cache.set(url, { tag: answer.headers.get("etag"), data });
  return data;
}

async function fetchJson(url, given) {
  const signal = AbortSignal.timeout(ANSWER_TIMEOUT);
  try {
    const answer = await fetch(url, { ...given, credentials: "omit", signal });
    return { answer, data: answer.status === 304 ? null : await answer.json() };
  } catch (error) {
    const other = error instanceof SyntaxError;
    throw new Error(other ? "what answers here is not respool" : "respool does not answer");
  }
}

function errorText(answer, data) {
  const why = data?.error?.message ?? data?.error;
  return typeof why === "string" ? why : `respool answered ${answer.status}`;
}

// Runs all updates in rounds; a failed update does not stop the others.
function startPolling(updates, report) {
  let timer = 0;
  let running = false;
  let due = false; // a round was requested while one ran
  const updateAll = async () => {
    const errors = [];
    for (const update of updates) await update().catch((error) => errors.push(error));
    return errors[0] ?? null;
  };
  const round = async () => {
    clearTimeout(timer);
    due = running;
    if (running) return;
    running = true;
    const began = performance.now();
    report(await updateAll());
    running = false;
    const rest = due ? 0 : Math.max(POLL_INTERVAL, REST_FACTOR * (performance.now() - began));
    if (!document.hidden) timer = setTimeout(round, rest);
  };
  document.addEventListener("visibilitychange", () => !document.hidden && round());
  round();
  return round;
}
