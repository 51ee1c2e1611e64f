"""Calibration of token counts by reported usage, and reconciliation of the reported bill.

A prompt grows from one request to the next by the answer and by what followed it. If the usage of
both is reported and all of that text is recorded, the growth gives the model's tokens per counted
token. The reported bill is compared with the replayed one, by cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import cast

from msgspec import Struct

from ..model_names import parse_model_name
from ..pricing import MIN_SAMPLE_TOKENS, MIN_SAMPLES, Growth, Usage, factor_of, is_plausible_factor
from ..providers.base import Codec
from ..providers.registry import PROVIDERS
from ..sessions.session import RecordedRequest, RecordedSession
from ..tokens import (
    EstimateCounter,
    ExactCounter,
    TokenCounter,
    TokenizerFamily,
    part_tokens,
    tokenizer_family,
)
from ..transcript import Part
from ..wire.json import JSON, Object, get
from .prompt_cache import HOUR, BilledTokens
from .recording import BillingConditions, Recording
from .result import PolicyScore, ReplayBill, ReportedUsage, RequestPoint

_MAX_SAMPLES = 64  # growths kept per session

# Reasoning tokens per character of a signature, fitted by bench/reconciliation.py on hidden
# reasoning. For reasoning shown in full, a signature has 6 to 8 characters per token: a longer one
# seals more than is shown.
TOKENS_PER_SIGNATURE_CHAR = 0.26
_SUMMARY_RATIO = 9
_MIN_OUTPUT_RATIO = 0.7  # of a whole answer's reported tokens to its counted ones

_KEEPS_REASONING_SINCE = {
    "opus": (4, 5),
    "sonnet": (4, 6),
    "haiku": (5, 0),
    "gpt": (5, 6),
}  # since these versions


class Framing(Struct, frozen=True, gc=False):
    """Tokens that a provider adds around a call, and around a result."""

    call: int = 0
    result: int = 0


# Growth not explained by text, fitted to recorded sessions by bench/reconciliation.py.
FRAMING: dict[TokenizerFamily, Framing] = {
    "claude": Framing(70, 18),
    "claude-to-4.6": Framing(50, 30),
    "openai": Framing(12, 10),
}


class TokenScale(Struct, frozen=True):
    """Scale of a model's tokens for a session's text, framing and reasoning."""

    factor: float  # model tokens per counted token
    framing: Framing
    tokens_per_thought: int  # hidden tokens per piece of reasoning
    growth_count: int  # behind the factor; 0: it is the family's


class UsageEvidence(Struct, frozen=True):
    """Token scale and samples inferred from a session's usage."""

    scale: TokenScale
    growths: tuple[Growth, ...]
    hidden: tuple[float, ...]  # tokens of hidden reasoning in each request's prompt
    thoughts: tuple[int, ...]  # pieces of reasoning in each request's prompt


class CalibratedMeasure:
    """A counter's tokens, on the scale of a session's own usage."""

    def __init__(self, counter: TokenCounter, scale: TokenScale) -> None:
        self._counter = counter
        framing = scale.framing
        self._beside = {
            "call": framing.call,
            "result": framing.result,
            "reasoning": scale.tokens_per_thought,
        }
        self.name = f"{counter.name}, calibrated by the session's usage"

    def __call__(self, codec: Codec, part: Part) -> int:
        """The part's tokens."""
        return part_tokens(part, self._counter) + self._beside.get(part.kind, 0)


def calibrated_measure(evidence: UsageEvidence, family: TokenizerFamily) -> CalibratedMeasure:
    """Return the measure for a session with usage; o200k is exact for OpenAI's models."""
    scale = evidence.scale
    if family == "openai":
        return CalibratedMeasure(ExactCounter(), scale)
    return CalibratedMeasure(EstimateCounter(family, round(1000 * scale.factor)), scale)


def infer_evidence(session: RecordedSession) -> UsageEvidence | None:
    """Infer the token scale from a session's usage; None if none was reported."""
    if all(sent.usage is None for sent in session.requests):
        return None
    family = _session_family(session)
    steps = _request_steps(session, family)
    framing = FRAMING.get(family, Framing())
    growths = _growths(steps, framing)
    factor = factor_of(growths)
    known = family != "openai" and len(growths) >= MIN_SAMPLES and is_plausible_factor(factor)
    bare = TokenScale(factor if known else 1.0, framing, 0, len(growths) if known else 0)
    hidden = _hidden_tokens_by_request(steps, bare)
    thoughts = tuple(accumulate((step.thoughts for step in steps[:-1]), initial=0))
    scale = TokenScale(
        bare.factor, framing, _tokens_per_thought(steps, hidden, thoughts), bare.growth_count
    )
    return UsageEvidence(scale, _sampled_growths(growths), hidden, thoughts)


def _session_family(session: RecordedSession) -> TokenizerFamily:
    named = (sent.model for sent in session.requests if sent.model)
    return tokenizer_family(session.format, next(named, None))


# --- between two requests ----------------------------------------------------------------------


class _RequestStep(Struct, frozen=True, gc=False):
    """A request, its answer and the messages up to the next request."""

    sent: RecordedRequest
    next_sent: RecordedRequest | None
    answer_tokens: int  # counted tokens of the answer
    calls: int
    thoughts: int
    reasoning_tokens: int  # counted tokens of the reasoning in the answer
    signature_chars: int  # characters of signatures
    input_tokens: int  # counted tokens after the answer
    results: int
    has_user_text: bool  # the user wrote a message
    is_text_only: bool  # whether text is all there was
    drops_reasoning: bool  # whether the model drops its reasoning when the user speaks

    @property
    def output(self) -> int | None:
        """The reported length of the answer; None where only its start was counted.

        An agent that notes the usage of a stream's first event has a few tokens there. No model
        counts far fewer than the counter does.
        """
        usage = self.sent.usage
        least = _MIN_OUTPUT_RATIO * self.answer_tokens + 4 * self.calls
        return usage.output if usage is not None and usage.output >= max(least, 1) else None

    @property
    def has_hidden_reasoning(self) -> bool:
        """Check for reasoning that was sent but is not recorded."""
        unseen = (
            self.signature_chars > _SUMMARY_RATIO * self.reasoning_tokens
            or not self.reasoning_tokens
        )
        return self.thoughts > 0 and unseen


def _request_steps(session: RecordedSession, family: TokenizerFamily) -> list[_RequestStep]:
    codec = PROVIDERS[session.format].codec
    counter = ExactCounter() if family == "openai" else EstimateCounter(family)
    sent = session.requests
    ends = [one.cut for one in sent[1:]] + [len(session.messages)]
    after = [*sent[1:], None]
    return [
        _request_step(
            codec, counter, sent=one, after=then, messages=session.messages[one.cut : end]
        )
        for one, then, end in zip(sent, after, ends, strict=True)
    ]


def _request_step(
    codec: Codec,
    counter: TokenCounter,
    *,
    sent: RecordedRequest,
    after: RecordedRequest | None,
    messages: Sequence[JSON],
) -> _RequestStep:
    said: list[Part] = []
    came: list[Part] = []
    for message in messages:
        (said if codec.is_model_made(message) else came).extend(codec.decode(0, message))
    thoughts = [part for part in said if part.kind == "reasoning"]
    return _RequestStep(
        sent=sent,
        next_sent=after,
        answer_tokens=sum(part_tokens(part, counter) for part in said),
        calls=sum(part.kind == "call" for part in said),
        thoughts=len(thoughts),
        reasoning_tokens=sum(part_tokens(part, counter) for part in thoughts),
        signature_chars=sum(signature_chars(message) for message in messages) if thoughts else 0,
        input_tokens=sum(part_tokens(part, counter) for part in came),
        results=sum(part.kind == "result" for part in came),
        has_user_text=any(part.kind == "text" for part in came),
        is_text_only=not any(part.kind in ("media", "opaque") for part in (*said, *came)),
        drops_reasoning=drops_reasoning(sent.model),
    )


def signature_chars(message: JSON) -> int:
    """The characters of the signatures on a message's thoughts."""
    content = get(message, ("content",))
    blocks = cast(list[JSON], content) if isinstance(content, list) else []
    found = [cast(Object, block).get("signature") for block in blocks if isinstance(block, dict)]
    return sum(len(signature) for signature in found if isinstance(signature, str))


def drops_reasoning(model: str | None) -> bool:
    """Check if a model does not see its earlier reasoning after a new user message.

    >>> drops_reasoning("claude-sonnet-4-5"), drops_reasoning("claude-opus-4-5")
    (True, False)
    """
    found = parse_model_name(model)
    if found is None:  # named as one of OpenAI's, not only taken for one
        return tokenizer_family("anthropic", model) == "openai"
    return found.version < _KEEPS_REASONING_SINCE.get(found.family, (0, 0))


# --- growth ------------------------------------------------------------------------------------


def _growths(steps: Iterable[_RequestStep], framing: Framing) -> list[Growth]:
    return [growth for step in steps if (growth := _growth(step, framing)) is not None]


def _growth(step: _RequestStep, framing: Framing) -> Growth | None:
    """Return the growth of the next prompt, if the record explains all of it."""
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
    if counted < MIN_SAMPLE_TOKENS or longer <= 0:
        return None
    return Growth(step.sent.model or "", counted, longer)


def _sampled_growths(growths: Sequence[Growth]) -> tuple[Growth, ...]:
    """A session's growths for others to learn from; of many some, evenly."""
    if len(growths) <= _MAX_SAMPLES:
        return tuple(growths)
    return tuple(growths[len(growths) * at // _MAX_SAMPLES] for at in range(_MAX_SAMPLES))


# --- reasoning that is hidden ------------------------------------------------------------------


def _hidden_tokens_by_request(
    steps: Sequence[_RequestStep], scale: TokenScale
) -> tuple[float, ...]:
    """The tokens of hidden reasoning in each request's prompt."""
    present: list[float] = []
    held = 0.0
    for step in steps:
        present.append(held)
        held += _hidden_tokens(step, scale)
        if step.drops_reasoning and step.has_user_text:
            held = 0.0
    return tuple(present)


def _hidden_tokens(step: _RequestStep, scale: TokenScale) -> float:
    """Return the hidden tokens of an answer's reasoning, at most the reported ones."""
    if not step.thoughts:
        return 0.0
    if step.output is not None:
        shown = scale.factor * step.answer_tokens + scale.framing.call * step.calls
        return max(0.0, step.output - shown)
    return (
        max(
            0.0,
            TOKENS_PER_SIGNATURE_CHAR * step.signature_chars - scale.factor * step.reasoning_tokens,
        )
        if step.has_hidden_reasoning
        else 0.0
    )


def _tokens_per_thought(
    steps: Sequence[_RequestStep], hidden: Sequence[float], thoughts: Sequence[int]
) -> int:
    """Return the tokens per thought that make all prompts hold the hidden reasoning."""
    reported = [at for at, step in enumerate(steps) if step.sent.usage is not None]
    pieces = sum(thoughts[at] for at in reported)
    return round(sum(hidden[at] for at in reported) / pieces) if pieces else 0


# Components of the reported prompts.
HEAD_PART = "system prompt and tools"
SHOWN_PART = "what the record shows"
HIDDEN_PART = "hidden reasoning"
UNRECORDED_PART = "reminders, and what else the record leaves out"
CLEARED_PART = "shown, but not sent"  # results cleared by the client, and overcounted text

# Why a request was charged more or less than its replay.
LENGTH_CAUSE = "longer or shorter prompts, read from the cache"
NEW_TEXT_CAUSE = "more or less new text"
WARM_HEAD_CAUSE = "a head that was found though its own entry had expired"
FULL_MISS_CAUSE = "unforeseen misses: nothing was found"
HISTORY_MISS_CAUSE = "unforeseen misses: at most the head was found"
PARTIAL_MISS_CAUSE = "unforeseen misses: only a part was found"
UNEXPECTED_HIT_CAUSE = "unforeseen hits"
PRICE_CAUSE = "another price of writing"

# Tokens, and share of a prompt, by which a cache read must differ from the replay's.
_MIN_DIFF_TOKENS, _MIN_DIFF_RATIO = 4_000, 0.1


class _ReportedRequest(Struct, frozen=True, gc=False):
    """One request as reported and as replayed, and its unrecorded tokens."""

    usage: Usage
    model: str | None
    point: RequestPoint
    hidden: float  # tokens of reasoning
    counted: float  # of them, those that the replay has


def reconcile(
    recording: Recording, baseline: PolicyScore, evidence: UsageEvidence | None = None
) -> ReportedUsage | None:
    """The requests of a session that have a report; None where none has."""
    requests = list(_reported_requests(recording, baseline, evidence))
    if not requests:
        return None
    conditions = recording.conditions
    terms = conditions.terms
    output = sum(one.usage.output for one in requests)
    written = [one.usage.output * terms.output for one in requests]
    made_of = _prompt_parts(requests, conditions.head)
    return ReportedUsage(
        requests=len(requests),
        reported=_reported_bill(requests, conditions),
        replayed=_replayed_bill(requests, conditions),
        output=output,
        head=conditions.head,
        warm=conditions.warm.head,
        hidden=round(made_of[HIDDEN_PART] + made_of[UNRECORDED_PART]),
        output_money=_dollars(requests, written, conditions),
        made_of=made_of,
        explained=_cost_difference(requests, conditions),
    )


def _reported_requests(
    recording: Recording, baseline: PolicyScore, evidence: UsageEvidence | None
) -> Iterator[_ReportedRequest]:
    for number, (sent, point) in enumerate(
        zip(recording.session.requests, baseline.points, strict=True)
    ):
        if sent.usage is None or not sent.usage.prompt:
            continue
        hidden = counted = 0.0
        if evidence is not None:
            hidden = evidence.hidden[number]
            counted = evidence.scale.tokens_per_thought * evidence.thoughts[number]
        yield _ReportedRequest(
            usage=sent.usage, model=sent.model, point=point, hidden=hidden, counted=counted
        )


# --- the two bills -----------------------------------------------------------------------------


def _billed_usage(usage: Usage) -> BilledTokens:
    lasting = min(usage.cache_write_1h, usage.cache_write)
    return BilledTokens(usage.cache_read, usage.cache_write - lasting, lasting, usage.input)


def _reported_bill(
    requests: Sequence[_ReportedRequest], conditions: BillingConditions
) -> ReplayBill:
    bills = [_billed_usage(one.usage) for one in requests]
    costs = [bill.cost(conditions.terms) for bill in bills]
    return ReplayBill(
        read=sum(bill.read for bill in bills),
        write=sum(bill.write for bill in bills),
        write_1h=sum(bill.write_1h for bill in bills),
        plain=sum(bill.plain for bill in bills),
        cost=sum(costs),
        money=_dollars(requests, costs, conditions),
    )


def _replayed_bill(
    requests: Sequence[_ReportedRequest], conditions: BillingConditions
) -> ReplayBill:
    """Return the replay's bill of the same requests; new text is a write if there is a cache."""
    read = sum(one.point.read for one in requests)
    new = sum(one.point.tokens for one in requests) - read
    terms = conditions.terms
    if terms.cache == "none" or (terms.cache == "explicit" and not conditions.lifetime):
        billed = BilledTokens(read, plain=new)
    elif terms.cache == "explicit" and conditions.lifetime == HOUR:
        billed = BilledTokens(read, write_1h=new)
    else:
        billed = BilledTokens(read, write=new)
    costs = [one.point.cost for one in requests]
    money = _dollars(requests, costs, conditions)
    return ReplayBill(
        read=billed.read,
        write=billed.write,
        write_1h=billed.write_1h,
        plain=billed.plain,
        cost=sum(costs),
        money=money,
    )


def _dollars(
    requests: Sequence[_ReportedRequest], costs: Sequence[float], conditions: BillingConditions
) -> float | None:
    """Return the requests' cost in dollars, each at its model's price."""
    asked = zip(costs, requests, strict=True)
    money = [conditions.dollars(cost, one.model) for cost, one in asked]
    known = [dollars for dollars in money if dollars is not None]
    return sum(known) if known else None


# --- causes of the difference ------------------------------------------------------------------


def _prompt_parts(requests: Sequence[_ReportedRequest], head: int) -> dict[str, float]:
    """Split the reported prompts' tokens by component; they sum to the reported total."""
    found: dict[str, float] = dict.fromkeys(
        (HEAD_PART, SHOWN_PART, HIDDEN_PART, UNRECORDED_PART, CLEARED_PART), 0.0
    )
    for one in requests:
        shown = one.point.tokens - head - one.counted
        rest = one.usage.prompt - head - shown - one.hidden
        found[HEAD_PART] += head
        found[SHOWN_PART] += shown
        found[HIDDEN_PART] += one.hidden
        found[UNRECORDED_PART if rest > 0 else CLEARED_PART] += rest
    return found


def _cost_difference(
    requests: Sequence[_ReportedRequest], conditions: BillingConditions
) -> dict[str, float]:
    """Reported less replayed cost, by cause, in tokens of plain input; they sum to all of it."""
    read, write = conditions.terms.read, conditions.write
    found: defaultdict[str, float] = defaultdict(float)
    for one in requests:
        usage, point = one.usage, one.point
        new, foreseen = usage.prompt - usage.cache_read, point.tokens - point.read
        found[LENGTH_CAUSE] += read * (usage.prompt - point.tokens)
        found[_cause(one, new - foreseen, conditions.head)] += (write - read) * (new - foreseen)
        charged = (
            _billed_usage(usage).cost(conditions.terms) - read * usage.cache_read - write * new
        )
        found[PRICE_CAUSE] += charged - (point.cost - read * point.read - write * foreseen)
    return dict(found)


def _cause(request: _ReportedRequest, more: float, head: int) -> str:
    """Return the cause of a difference in cached tokens."""
    usage, point = request.usage, request.point
    if abs(more) < max(_MIN_DIFF_TOKENS, _MIN_DIFF_RATIO * usage.prompt):
        return NEW_TEXT_CAUSE
    if more < 0:
        return (
            WARM_HEAD_CAUSE
            if not point.read and usage.cache_read <= head + _MIN_DIFF_TOKENS
            else UNEXPECTED_HIT_CAUSE
        )
    if not usage.cache_read:
        return FULL_MISS_CAUSE
    return HISTORY_MISS_CAUSE if usage.cache_read <= head + _MIN_DIFF_TOKENS else PARTIAL_MISS_CAUSE
