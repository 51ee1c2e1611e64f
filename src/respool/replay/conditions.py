"""What a session's requests were sent under, as far as its record tells."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from ..codecs.formats import CODECS
from ..prices import terms_for
from ..sessions.session import Sent, Session
from ..transcript import Part, Ref
from .caches import NOTHING, Found
from .money import priced
from .reading import HOUR, MINUTES, Measure, read_row
from .recording import Conditions

# System prompt and tools of agents whose record does not tell them, in tokens: the median of what
# recorded usage shows for others of the same agent (110 sessions, 26,900 to 42,400 for eight in
# ten of them; 19 sessions, 9,600 to 11,600).
HEADS = {"claude-code": 31_800, "codex": 9_800}
_WRITTEN = ("cache_write", "cache_write_1h")
_LASTING = ("claude-code",)  # agents that ask for an hour where nothing else is known


def model_of_session(session: Session) -> str | None:
    """The model that most of a session's requests went to."""
    named = Counter(sent.model for sent in session.requests if sent.model)
    return named.most_common(1)[0][0] if named else None


def conditions_of(session: Session, measure: Measure, window: int | None = None) -> Conditions:
    """Terms, head and cache marks of a session."""
    model = model_of_session(session)
    time = next((sent.time for sent in session.requests if sent.time is not None), None)
    terms = priced(terms_for(session.format, model), session.format, model, time)
    if terms.cache == "marks" and session.format != "anthropic":
        terms = replace(terms, cache="prefix")  # through a gateway that sets the marks itself
    listed = window if window is not None else terms.window
    head = head_of(session, measure)
    others = {sent.model for sent in session.requests if sent.model} - {model}
    prices = {one: _dollars(session, one, time) for one in others}
    return Conditions(terms, head, lifetime_of(session), listed, warm_of(session, head), prices)


def _dollars(session: Session, model: str, time: float | None) -> float | None:
    return priced(terms_for(session.format, model), session.format, model, time).dollars


def head_of(session: Session, measure: Measure) -> int:
    """Tokens of system prompt and tools: what the first reported prompt had beside its history.

    Where nothing was reported, what is recorded of them counts.
    """
    first = next((sent for sent in session.requests if sent.usage is not None), None)
    if first is None or first.usage is None:
        told = Part(Ref(0, ()), "text", "system", session.head)
        recorded = measure(CODECS[session.format], told) if session.head else 0
        return recorded or HEADS.get(session.agent, 0)
    return max(0, first.usage.prompt - _visible(session, first, measure))


def warm_of(session: Session, head: int) -> Found:
    """What was in the cache before the first request, as that reported.

    Of the head, what any conversation of this agent may have written. Of the history only what
    another one began with: a fork, or what was said before a rewind.
    """
    first = session.requests[0] if session.requests else None
    if first is None or first.usage is None:
        return NOTHING
    read, history = first.usage.cache_read, first.usage.prompt - head
    if history <= 0 or not _goes_on(session, first):
        return Found(min(head, read))
    return Found(min(head, read), max(0, read - head) / history)


def _goes_on(session: Session, first: Sent) -> bool:
    """Whether the model had answered before the first request, in a request told elsewhere."""
    made = CODECS[session.format].is_model_made
    return any(made(message) for message in session.messages[: first.cut])


def _visible(session: Session, sent: Sent, measure: Measure) -> int:
    codec = CODECS[session.format]
    return sum(read_row(codec, message, measure).tokens for message in session.messages[: sent.cut])


def lifetime_of(session: Session) -> float:
    """The seconds that the client's cache marks ask for, as the reported usage shows."""
    usages = [sent.usage for sent in session.requests if sent.usage is not None]
    if not usages:
        return HOUR if session.agent in _LASTING else MINUTES
    written, lasting = (sum(getattr(usage, name) for usage in usages) for name in _WRITTEN)
    if lasting and 2 * lasting >= written:  # a client may ask for less when its plan is used up
        return HOUR
    return MINUTES if any(usage.cache_read or usage.cache_write for usage in usages) else 0.0
