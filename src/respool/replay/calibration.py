"""How many tokens a model really counts, by the usage that its provider reported.

A prompt grows from one request to the next by the answer to the first, as it is sent again, and by
what followed it. Where both prompts are reported and all of that is in the record, the growth tells
how many tokens of the model's there are for one of the counter's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import cast

from msgspec import Struct

from ..codecs.codec import Codec
from ..codecs.formats import CODECS
from ..codecs.json_tree import JSON, Object, get
from ..models import model_of
from ..sessions.session import Sent, Session
from ..tokens import (
    PERMILLE,
    Counter,
    EstimateCounter,
    ExactCounter,
    Family,
    family_of,
    part_tokens,
)
from ..transcript import Part
from .result import Calibration, Growth

ENOUGH = 5  # growths of a session's own, before its factor is taken in place of its family's
LONG = 300  # tokens: of a shorter growth most is framing
_MOST = 64  # growths of a session that are kept
_SANE = (0.5, 3.0)  # a factor outside is no tokenizer's: the record and the usage do not belong

# Tokens of a thought for each character of its signature, fitted by bench/reconcile.py where the
# thought itself is hidden. A signature is 6 to 8 times as many characters as a thought that is
# shown whole has tokens: one that is longer seals more than is shown.
SEALED = 0.26
_SUMMARISED = 9


class Framing(Struct, frozen=True, gc=False):
    """The tokens that a provider puts around a call, and around a result."""

    call: int = 0
    result: int = 0


# What growth leaves beside text, fitted to recorded sessions by bench/reconcile.py.
FRAMING: dict[Family, Framing] = {
    "claude": Framing(70, 18),
    "claude-to-4.6": Framing(50, 30),
    "openai": Framing(12, 10),
}


class Scale(Struct, frozen=True):
    """A model's tokens for a session's text, and for what is sent beside it."""

    factor: float  # for one of the counter's
    framing: Framing
    tokens_per_thought: int  # for each piece of reasoning, beside what is shown of it
    growth_count: int  # that the factor comes from; 0: it is the family's


class Evidence(Struct, frozen=True):
    """What a session's usage shows."""

    scale: Scale
    growths: tuple[Growth, ...]
    hidden: tuple[float, ...]  # tokens of hidden reasoning in each request's prompt
    thoughts: tuple[int, ...]  # pieces of reasoning in each request's prompt


class Calibrated:
    """A counter's tokens, on the scale of a session's own usage."""

    def __init__(self, counter: Counter, scale: Scale) -> None:
        self._counter = counter
        framing = scale.framing
        self._beside = {
            "call": framing.call, "result": framing.result, "reasoning": scale.tokens_per_thought,
        }  # fmt: skip
        self.name = f"{counter.name}, calibrated by the session's usage"

    def __call__(self, codec: Codec, part: Part) -> int:
        """The part's tokens."""
        return part_tokens(part, self._counter) + self._beside.get(part.kind, 0)


def calibrated(evidence: Evidence, family: Family) -> Calibrated:
    """The measure for a session with usage; o200k is exact for OpenAI's models as it is."""
    scale = evidence.scale
    if family == "openai":
        return Calibrated(ExactCounter(), scale)
    return Calibrated(EstimateCounter(round(1000 * scale.factor)), scale)


def evidence_of(session: Session) -> Evidence | None:
    """What a session's usage shows; None where none was reported."""
    if all(sent.usage is None for sent in session.requests):
        return None
    family = _family(session)
    steps = _steps(session, family)
    framing = FRAMING.get(family, Framing())
    growths = _growths(steps, framing)
    factor = factor_of(growths)
    known = family != "openai" and len(growths) >= ENOUGH and is_sane(factor)
    bare = Scale(
        factor if known else PERMILLE[family] / 1000, framing, 0, len(growths) if known else 0
    )
    hidden = _present(steps, bare)
    thoughts = tuple(accumulate((step.thoughts for step in steps[:-1]), initial=0))
    scale = Scale(bare.factor, framing, _thought(steps, hidden, thoughts), bare.growth_count)
    return Evidence(scale, _kept(growths), hidden, thoughts)


def _family(session: Session) -> Family:
    named = (sent.model for sent in session.requests if sent.model)
    return family_of(session.format, next(named, None))


def is_sane(factor: float) -> bool:
    """Whether a tokenizer can have this factor."""
    return _SANE[0] <= factor <= _SANE[1]


# --- what stands between two requests ----------------------------------------------------------


class _Step(Struct, frozen=True, gc=False):
    """A request, its answer and what followed, up to the next request."""

    sent: Sent
    next_sent: Sent | None
    answer_tokens: int  # counted tokens of the answer
    calls: int
    thoughts: int
    reasoning_tokens: int  # counted tokens of the reasoning in the answer
    signature_chars: int  # characters of signatures
    input_tokens: int  # counted tokens of what followed
    results: int
    has_user_text: bool  # whether the user said something
    is_text_only: bool  # whether text is all there was
    drops_reasoning: bool  # whether the model drops its reasoning when the user speaks

    @property
    def output(self) -> int | None:
        """The reported length of the answer; None where only its start was counted.

        An agent that notes the usage of a stream's first event has a few tokens there. No model
        counts fewer than the counter does.
        """
        usage = self.sent.usage
        least = self.answer_tokens + 4 * self.calls
        return usage.output if usage is not None and usage.output >= max(least, 1) else None

    @property
    def has_hidden_reasoning(self) -> bool:
        """Whether reasoning was sent along that the record does not show."""
        unseen = self.signature_chars > _SUMMARISED * self.reasoning_tokens or not self.reasoning_tokens
        return self.thoughts > 0 and unseen


def _steps(session: Session, family: Family) -> list[_Step]:
    codec = CODECS[session.format]
    counter = ExactCounter() if family == "openai" else EstimateCounter()
    sent = session.requests
    ends = [one.cut for one in sent[1:]] + [len(session.messages)]
    after = [*sent[1:], None]
    return [
        _step(codec, counter, one, then, session.messages[one.cut : end])
        for one, then, end in zip(sent, after, ends, strict=True)
    ]


def _step(
    codec: Codec, counter: Counter, sent: Sent, after: Sent | None, messages: Sequence[JSON]
) -> _Step:
    said: list[Part] = []
    came: list[Part] = []
    for message in messages:
        (said if codec.is_model_made(message) else came).extend(codec.decode(0, message))
    thoughts = [part for part in said if part.kind == "reasoning"]
    return _Step(
        sent=sent,
        next_sent=after,
        answer_tokens=sum(part_tokens(part, counter) for part in said),
        calls=sum(part.kind == "call" for part in said),
        thoughts=len(thoughts),
        reasoning_tokens=sum(part_tokens(part, counter) for part in thoughts),
        signature_chars=sum(sealed_in(message) for message in messages) if thoughts else 0,
        input_tokens=sum(part_tokens(part, counter) for part in came),
        results=sum(part.kind == "result" for part in came),
        has_user_text=any(part.kind == "text" for part in came),
        is_text_only=not any(part.kind in ("media", "opaque") for part in (*said, *came)),
        drops_reasoning=forgets(sent.model),
    )


def sealed_in(message: JSON) -> int:
    """The characters of the signatures on a message's thoughts."""
    content = get(message, ("content",))
    blocks = cast(list[JSON], content) if isinstance(content, list) else []
    found = [cast(Object, block).get("signature") for block in blocks if isinstance(block, dict)]
    return sum(len(signature) for signature in found if isinstance(signature, str))


_KEEPS = {"opus": (4, 5), "sonnet": (4, 6), "haiku": (5, 0), "gpt": (5, 6)}  # since these versions


def forgets(model: str | None) -> bool:
    """Whether a model is not shown its earlier reasoning once the user has spoken again.

    >>> forgets("claude-sonnet-4-5"), forgets("claude-opus-4-5"), forgets("gpt-5.4")
    (True, False, True)
    """
    found = model_of(model)
    if found is None:  # named as one of OpenAI's, not only taken for one
        return family_of("anthropic", model) == "openai"
    return found.version < _KEEPS.get(found.family, (0, 0))


# --- growth ------------------------------------------------------------------------------------


def _growths(steps: Iterable[_Step], framing: Framing) -> list[Growth]:
    return [growth for step in steps if (growth := _growth(step, framing)) is not None]


def _growth(step: _Step, framing: Framing) -> Growth | None:
    """How much longer the next prompt was, where the record shows all that made it so."""
    usage, after = step.sent.usage, step.next_sent
    if usage is None or after is None or after.usage is None or after.model != step.sent.model:
        return None
    if not step.is_text_only or (step.has_user_text and step.drops_reasoning):
        return None
    longer = after.usage.prompt - usage.prompt - framing.result * step.results
    if step.output is not None:
        counted, longer = step.input_tokens, longer - step.output
    elif step.has_hidden_reasoning:
        return None
    else:
        counted, longer = step.answer_tokens + step.input_tokens, longer - framing.call * step.calls
    if counted < LONG or longer <= 0:
        return None
    return Growth(step.sent.model or "", counted, longer)


def factor_of(growths: Sequence[Growth]) -> float:
    """The median ratio, each growth as weighty as it is long."""
    ordered = sorted(growths, key=lambda growth: growth.ratio)
    left = sum(growth.counted for growth in ordered) / 2
    for growth in ordered:
        left -= growth.counted
        if left <= 0:
            return growth.ratio
    return 0.0


def _kept(growths: Sequence[Growth]) -> tuple[Growth, ...]:
    """A session's growths for others to learn from; of many some, evenly."""
    if len(growths) <= _MOST:
        return tuple(growths)
    return tuple(growths[len(growths) * at // _MOST] for at in range(_MOST))


# --- reasoning that is hidden ------------------------------------------------------------------


def _present(steps: Sequence[_Step], scale: Scale) -> tuple[float, ...]:
    """The tokens of hidden reasoning in each request's prompt."""
    present: list[float] = []
    held = 0.0
    for step in steps:
        present.append(held)
        held += _hidden(step, scale)
        if step.drops_reasoning and step.has_user_text:
            held = 0.0
    return tuple(present)


def _hidden(step: _Step, scale: Scale) -> float:
    """The tokens of an answer's reasoning beyond what is shown: never more than were reported."""
    if not step.thoughts:
        return 0.0
    if step.output is not None:
        shown = scale.factor * step.answer_tokens + scale.framing.call * step.calls
        return max(0.0, step.output - shown)
    return max(0.0, SEALED * step.signature_chars - scale.factor * step.reasoning_tokens) if step.has_hidden_reasoning else 0.0


def _thought(steps: Sequence[_Step], hidden: Sequence[float], thoughts: Sequence[int]) -> int:
    """The tokens to count for each thought, so that all prompts together hold what was hidden."""
    told = [at for at, step in enumerate(steps) if step.sent.usage is not None]
    pieces = sum(thoughts[at] for at in told)
    return round(sum(hidden[at] for at in told) / pieces) if pieces else 0


# --- many sessions -----------------------------------------------------------------------------


def calibrations(samples: Iterable[Growth]) -> tuple[Calibration, ...]:
    """Each model's factor from the growths of many sessions, the best known model first.

    A few growths bound nothing, so a model with fewer than a session needs has none.
    """
    by_model: defaultdict[str, list[Growth]] = defaultdict(list)
    for growth in samples:
        by_model[growth.model].append(growth)
    found = [
        _calibration(model, growths)
        for model, growths in by_model.items()
        if len(growths) >= ENOUGH
    ]
    return tuple(sorted(found, key=lambda one: (-one.requests, one.model)))


def _calibration(model: str, growths: Sequence[Growth]) -> Calibration:
    ratios = sorted(growth.ratio for growth in growths)
    last = len(ratios) - 1
    low, high = ratios[round(0.05 * last)], ratios[round(0.95 * last)]
    return Calibration(
        model, round(factor_of(growths), 3), round(low, 3), round(high, 3), len(ratios)
    )
