"""What a request tells that no later one can: how long its cache lives, and how it is marked."""

from __future__ import annotations

from typing import Final

from ...compaction.state import State
from ...compaction.window import is_output_sensitive
from ...engine import FoldedRequest
from ...facts import MAX_LOOKBACK_REQUESTS, BreakpointMode, Facts
from ...limits import window_for_prompt
from ...pricing import BREAKPOINT_USAGES, Usage, terms_for
from ...providers.cache_breakpoints import client_breakpoints
from ...wire.base import FormatName, RequestBody
from .decision import Decision
from .reading import Read

_NO_FACTS: Final = Facts()
_ALWAYS_WARM: Final = 60.0  # seconds: no provider's cache lives shorter
_LEAST_UNMARKED: Final = 1_000  # tokens: of less, an estimate tells nothing
_MOSTLY: Final = 0.5


def lifetime(body: RequestBody, format: FormatName, model: str) -> float:
    """After how many seconds a cached prefix of this request is gone."""
    return client_breakpoints(body, format).ttl_seconds or terms_for(format, model).gone


def is_cold(read: Read, before: float, marks: BreakpointMode | None = None) -> bool:
    """Whether the provider has forgotten by now what it was sent at an earlier time.

    `marks` is how that was marked, if it is known: a client may ask for less since then. What is
    taken for cold and is not is written again for nothing, so in doubt it is there.
    """
    since = read.asked.time - before
    known = 0.0 if marks is None else BREAKPOINT_USAGES[marks].ttl_seconds
    return since > max(_ALWAYS_WARM, known) and since > lifetime(read.body, read.format, read.model)


def comes_back(read: Read, boundaries: list[bytes]) -> bool:
    """Whether the provider still has what it was sent on these terms, before others came."""
    before = read.conversation.last_on(boundaries[-1 - MAX_LOOKBACK_REQUESTS : -1], read.terms())
    return before is not None and not is_cold(read, before.time)


def asks_otherwise(folded: FoldedRequest, before: int) -> bool:
    """Whether thoughts were signed for what another output decided; `before` 0: it is not known.

    Near a window all is decided by how much of it is to be kept free, what was sent before too.
    """
    bound = folded.context.binding.is_bound and before > 0
    return bound and is_output_sensitive(folded.state, folded.context, before)


def first_marks(read: Read) -> Facts:
    """How the client marks, said of its history from the start; nothing where none was decided."""
    if len(read.body) < 2 or not _tells_marks(read):
        return _NO_FACTS
    return Facts(
        marks=((read.boundaries()[0].hex(), client_breakpoints(read.body, read.format).mode),)
    )


def marks_seen(read: Read, state: State) -> Facts:
    """How the client marks, where facts say something else, or nothing of this branch.

    What was decided before was decided by how it marked then, and stays so.
    """
    passed = state.prefix.boundaries
    told = _marks_of(read, state.evaluation.breakpoint_mode)
    if len(passed) < 2 or told == state.evaluation.breakpoint_mode or not _tells_marks(read):
        return _NO_FACTS
    if state.evaluation.breakpoint_mode is None:
        return Facts(marks=((passed[0].hex(), told),))
    here = passed[-1].hex()
    if read.conversation.was_answered(here):
        return _NO_FACTS  # a retry, which gets what it got
    return Facts(marks=((here, told),))


def window_seen(read: Read, tokens: int, *, beside_output: bool, bound: bool) -> Facts:
    """No more than so many tokens fit from here on, or beside the output.

    An answer to the same may be signed for more than that: who goes on from it cannot know.
    """
    here = read.here()
    tokens = window_for_prompt(tokens, read.body.fields) if beside_output else tokens
    doubted = frozenset({here} if bound and read.conversation.was_answered(here) else ())
    return Facts(windows=((here, tokens),), skipped=doubted, changed=doubted)


def _marks_of(read: Read, before: BreakpointMode | None) -> BreakpointMode:
    """How a request is marked, by its client or by who is behind that."""
    told = client_breakpoints(read.body, read.format).mode
    behind = read.conversation.cached_behind or before == "behind"
    return "behind" if told == "none" and behind else told


def has_reasoning(folded: FoldedRequest) -> bool:
    """Whether there is reasoning in the history that no edit has taken out yet."""
    state = folded.state
    return any(
        unit.reasoning and unit.reasoning[0] not in state.edits.claimed
        for unit in state.transcript.units
    )


def own_cache(read: Read, folded: FoldedRequest) -> int:
    """The tokens that a client may have cached itself which marks none of its latest messages."""
    state, marked = folded.state, read.body.breakpoint_rows()
    if state.evaluation.breakpoint_mode != "none" or not marked:
        return folded.context.head
    sources = (state.repairs.sources[part.ref.row] for part in state.transcript.parts)
    sizes = zip(sources, state.tokens.estimates, strict=True)
    return folded.context.head + sum(size for at, size in sizes if (at or 0) <= marked[-1])


def is_cached_behind(decision: Decision, usage: Usage | None) -> bool:
    """Whether an answer tells that most of what the client has not marked is cached."""
    unmarked = decision.after - decision.own
    if decision.marks != "none" or usage is None or unmarked < _LEAST_UNMARKED:
        return False
    return usage.input < _MOSTLY * usage.prompt * unmarked / decision.after


def _tells_marks(read: Read) -> bool:
    """Whether what is decided on a request depends on its cache marks."""
    if read.asked.counting or read.format != "anthropic":
        return False
    return terms_for(read.format, read.model).cache == "marks"
