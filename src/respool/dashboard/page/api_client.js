// Asking respool, every two seconds while somebody looks; what has not changed is not sent again.

const ROOT = location.pathname.replace(/\/?$/, "/");
const EVERY = 2000;
const REST = 9; // times as long as a round took: a large store is not kept busy by who looks at it
const PATIENCE = 20_000; // milliseconds; after that nobody answers
const known = new Map(); // by question: the tag and the answer

async function ask(question, fields = {}) {
  const query = new URLSearchParams(Object.entries(fields).filter(([, value]) => value != null));
  const url = `${ROOT}respool/api/${question}?${query}`;
  const earlier = known.get(url);
  const { answer, data } = await answered(url, earlier ? { "If-None-Match": earlier.tag } : {});
  if (answer.status === 304) return earlier.data;
  if (!answer.ok) throw new Error(whyNot(answer, data));
  if (known.size > 50) known.delete(known.keys().next().value);
  known.set(url, { tag: answer.headers.get("etag"), data });
  return data;
}

async function answered(url, headers) {
  const signal = AbortSignal.timeout(PATIENCE);
  try {
    const answer = await fetch(url, { headers, credentials: "omit", signal });
    return { answer, data: answer.status === 304 ? null : await answer.json() };
  } catch (error) {
    const other = error instanceof SyntaxError;
    throw new Error(other ? "what answers here is not respool" : "respool does not answer");
  }
}

function whyNot(answer, data) {
  const why = data?.error?.message ?? data?.error;
  return typeof why === "string" ? why : `respool answered ${answer.status}`;
}

// Runs all that keeps the page up to date, one round after another; what fails holds up no other.
function live(parts, tell) {
  let waiting = 0;
  let going = false;
  let due = false; // somebody asked for a round while one went on
  const all = async () => {
    const errors = [];
    for (const part of parts) await part().catch((error) => errors.push(error));
    return errors[0] ?? null;
  };
  const round = async () => {
    clearTimeout(waiting);
    due = going;
    if (going) return;
    going = true;
    const began = performance.now();
    tell(await all());
    going = false;
    const rest = due ? 0 : Math.max(EVERY, REST * (performance.now() - began));
    if (!document.hidden) waiting = setTimeout(round, rest);
  };
  document.addEventListener("visibilitychange", () => !document.hidden && round());
  round();
  return round;
}
