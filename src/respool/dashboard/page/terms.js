// What the words on this page mean, shown beside them on hover, on focus and on touch.

const TIPS = new Map(Object.entries({
  Requests: "Questions that an agent sent to a model. An agent sends its whole history again with each of them.",
  "Tokens as they came": "Tokens that the agents' requests had when they reached respool.",
  "Tokens sent": "Tokens that went on to the provider, by respool's own count.",
  "Tokens saved": "Tokens that respool took out before the requests went on.",
  "Tokens, would have saved": "Tokens that respool would have taken out. It only observed these requests.",
  Tokens: "The request as it came, and as it was sent.",
  Paid: "What the requests cost, by the usage that the provider reported and its list prices.",
  "Paid, or would": "What the request cost. If it was only observed: what it would have cost with respool.",
  "Without respool": "What the same requests would have cost if nothing had been taken out.",
  Saved: "What the same requests would have cost without respool, less what was paid.",
  "Of the bill": "The saving as a share of what the requests would have cost without respool.",
  "Would have saved": "What respool would have saved on requests that it only observed. An estimate.",
  Observed: "Requests that were measured and not changed.",
  "Prefix breaks": "Requests whose beginning was no longer in the provider's cache. Reading from the cache is cheap; after a break that part is paid for anew. respool breaks a prefix only if that pays.",
  "prefix break": "Here the beginning of the request was no longer in the provider's cache.",
  "Fetched again": "Results that the agent asked for again after respool had taken them out. These are respool's mistakes.",
  "Held out": "Conversations that were sent as they came, drawn by chance, to compare the others with.",
  Compacted: "Conversations that were not held out.",
  "Group A": "Conversations of a share drawn by chance. They were compacted like all others.",
  "Group B": "All other conversations. Both groups are compacted, so every difference is noise.",
  Difference: "The second group less the first, per conversation.",
  "95 % interval": "Where the difference may be. If 0 is inside, chance alone may explain it.",
  "Per conversation": "Means over conversations: a session with its sub-agents counts as one.",
  Says: "What the interval says. It says nothing if there are too few conversations.",
  Loops: "The agent made the same calls again and again, and learned nothing new.",
  Errors: "Requests that the provider answered with an error, or not at all.",
  "Fall-backs": "Requests that were not sent as respool had planned, but as they came or with earlier edits.",
  "error or fall-back": "The provider answered with an error, or the request was not sent as planned.",
  "Provider's cache saved": "What the provider's own cache saved on these requests. That is not respool's doing.",
  Epochs: "How often respool changed what had been sent before.",
  "respool took": "Time that respool needed for a request, on average.",
  "From cache": "Tokens that the provider read from its cache, at about a tenth of the price.",
  "In force": "Edits of this conversation that hold for this request.",
  New: "Edits that were first made at this request. Open them to see the text before and after.",
  Branch: "Sessions that open with the same words are one conversation; where they part, a branch begins.",
  "What happened": "Everything unusual at this request, with its cause.",
  "left in": "Tokens that stayed in the requests.",
  "taken out": "Tokens that respool took out of the requests.",
  "would have been taken out": "Tokens that respool would have taken out. It only observed.",
  "as it came": "The size of each request when it reached respool.",
  "as it was sent": "The size of each request that went to the provider.",
  "as it would have been sent": "The size of each request with respool. It only observed.",
  "as it was sent, or would have been": "The size of each request with respool; some were only observed.",
  Agent: "The program that sent the requests: by its own user agent or system prompt, or by respool run.",
  Project: "The folder that the agent worked in, as its requests name it.",
  Model: "The model that the requests name.",
  Team: "The team whose token the requests brought.",
  Day: "A day of this machine's calendar.",
  Week: "A week, from Monday on.",
  Month: "A calendar month.",
  Time: "When the request came.",
  Request: "The requests of this conversation, counted from its first.",
  What: "The kind of event.",
  Why: "Its cause.",
  Conversation: "The conversation in which it happened. Follow it to see all its requests.",
  Format: "The provider's format of the requests.",
  Factor: "Tokens that the provider counts for one that respool counts.",
  Tool: "A tool that the requests define and the model never called.",
  "Tokens per request": "Tokens of the tool's definition, which each of these requests has.",
  "Switched off by": "The agent's own setting or option that leaves this tool out of its requests.",
  Setting: "A setting of respool, as in respool.toml.",
  Value: "Its value now.",
  From: "Where the value comes from.",
  Compaction: "Whether requests are made smaller now. After repeated trouble, respool rests for a while and passes requests on.",
  Store: "The file on this machine that keeps what was taken out.",
  compact: "Requests are made smaller on their way to the model.",
  observe: "Requests go on as they come. respool only measures what it would have saved, and keeps no text.",
  pause: "All requests go on as they come until you switch back. This holds for this proxy, until it is restarted.",
  pin: "Leave this conversation alone: its requests go on as they come until it is unpinned.",
  unpin: "Make the requests of this conversation smaller again.",
  csv: "A table of the requests that the filters leave, for a spreadsheet.",
  search: "Words of the first prompt, the agent, the folder, the model or the id.",
}));

const term = (name) =>
  TIPS.has(name) ? element("span", { class: "term", tabindex: 0, "data-tip": name }, name) : name;

const tip = element("div", { id: "tip", role: "tooltip", hidden: true });
let tipped = null; // the element whose tip is shown

function showTip(target) {
  if (target === tipped) return;
  hideTip();
  const text = TIPS.get(target.dataset.tip);
  if (!text) return;
  tipped = target;
  tip.replaceChildren(text);
  tip.hidden = false;
  (target.closest("dialog") ?? document.body).append(tip);
  target.setAttribute("aria-describedby", "tip");
  placeTip(target);
}

// Below the element, or above it where there is no room; never beyond the window's sides.
function placeTip(target) {
  const box = target.getBoundingClientRect();
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  const below = box.bottom + height + 8 <= innerHeight;
  tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - width - 8))}px`;
  tip.style.top = `${below ? box.bottom + 6 : Math.max(8, box.top - height - 6)}px`;
}

function hideTip() {
  if (!tipped) return;
  tipped.removeAttribute("aria-describedby");
  tipped = null;
  tip.hidden = true;
}

const tipOf = (node) => (node instanceof Element ? node.closest("[data-tip]") : null);

document.addEventListener("focusin", (event) => {
  const target = tipOf(event.target);
  if (target) showTip(target);
  else hideTip();
});
document.addEventListener("focusout", hideTip);
document.addEventListener("pointerover", (event) => {
  const target = tipOf(event.target);
  if (target) showTip(target);
  else if (!tip.contains(event.target) && tipped !== tipOf(document.activeElement)) hideTip();
});
// Escape closes the tip first, and only then what it stands in.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !tipped || !tipped.matches(":hover, .term")) return;
  event.stopPropagation();
  event.preventDefault();
  hideTip();
}, true);
addEventListener("scroll", () => tipped && placeTip(tipped), { passive: true, capture: true });
document.body.append(tip);
