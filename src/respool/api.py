"""The public functions: compact, plan, apply, check, repair, expand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar, cast

from msgspec import Struct

from .compaction.memo import Memo
from .compaction.offers import OfferRecord
from .compaction.window import raise_over_budget
from .edits import FOLDED, Edit, Replace
from .engine import (
    Compaction,
    build_compaction,
    complete_fields,
    edits_in_force,
    fold_request,
)
from .errors import (
    PassedThrough,
    PlainText,
    PlanMismatch,
    PolicyError,
    UnknownReference,
    UnreadableRequest,
    quote_value,
)
from .facts import Facts
from .line_search import Unsearchable, searcher
from .markers import find_marker
from .policy import PRESETS, Policy, Rendering
from .providers.base import Problem, Repair
from .providers.registry import PROVIDERS, check_request
from .report import Report
from .wire.base import FormatName
from .wire.body import read_body
from .wire.detect import detect_format, refuse_server_held

_Request = TypeVar("_Request")
_MEMO = Memo()
_NO_FACTS = Facts()
_MAX_ROUNDS = 4  # times that a hook may be asked about one request
_MAX_SUMMARY_CHARS = 100_000  # characters of what it says

Summarize = Callable[[str], str | None]


class Plan(Struct, frozen=True, kw_only=True):
    """Decision on a request: edits and repairs, not applied yet."""

    format: FormatName | None = None
    prefix: str | None = None  # the hash of the history it was made for
    edits: tuple[Edit, ...] = ()
    repairs: tuple[Repair, ...] = ()
    repair: bool = True  # whether problems are repaired
    tokens_saved: int = 0
    untouched: str | None = None  # why nothing will be done
    trace: tuple[OfferRecord, ...] | None = None  # every offer made, where that was asked for
    cut: int = -1  # the part before which the last epoch began, where a cache breakpoint may stand
    rendering: Rendering = "calls"  # how the history goes out


def compact(
    request: _Request,
    *,
    format: str | None = None,
    policy: Policy | None = None,
    facts: Facts | None = None,
    memo: Memo | None = _MEMO,
    model: str | None = None,
    summarize: Summarize | None = None,
) -> Compaction[_Request]:
    """The request made smaller, in its own format and type; as it came when it cannot be read.

    A request is bytes, text, a dict or a bare list of messages. Its `format` is detected, unless
    you name it: anthropic, openai-chat, openai-responses, gemini. Without a `policy` it is the
    preset safe; `facts` are what the request cannot show. A `memo` of earlier requests makes this
    one faster and changes nothing; None keeps none. `model` is for requests that do not name it
    themselves: Gemini's stands in the URL. `summarize` is given the record of calls that fold and
    may return words for their summary; what it said is in the compaction's `facts`, which the next
    request is to be given.
    Raises BudgetError when the policy's budget cannot be met; the error names what is in the way.

    >>> history = [{"role": "user", "content": "hello"}]
    >>> compact(history).request is history
    True
    """
    try:
        fold = partial(
            fold_request,
            request,
            format=format,
            policy=_check_policy(policy),
            memo=_check_memo(memo),
            model=model,
        )
        facts = _check_facts(facts)
        folded = fold(facts=facts)
        done = build_compaction(folded, request)
        if summarize is not None:
            for _ in range(_MAX_ROUNDS):  # the length of a summary may change what folds
                new = _new_summaries(done, facts, summarize)
                if not new.summaries:
                    break
                facts = facts.merge(new)
                folded = fold(facts=facts)
                done = build_compaction(folded, request)
        raise_over_budget(folded.state, folded.context, done.report)
    except (PassedThrough, UnreadableRequest) as why:
        return Compaction(request, Report(untouched=str(why)), {})
    return done


def _new_summaries(done: Compaction[Any], facts: Facts, summarize: Summarize) -> Facts:
    """The hook's words for each record that has none; empty where it fails."""
    known = dict(facts.summaries)
    found: dict[str, str] = {}
    for edit in done.report.edits:
        if not isinstance(edit, Replace) or edit.reason != FOLDED or not edit.stands_for:
            continue
        if edit.original not in known:
            found[edit.original] = _call_hook(summarize, done.originals[edit.original])
    return Facts(summaries=tuple(found.items()))


def _call_hook(summarize: Summarize, record: str) -> str:
    """The words of a hook; empty where it fails."""
    try:
        words: object = summarize(record)
    except Exception:  # noqa: BLE001 - law 9: a user's function must not stop a request
        return ""
    return words[:_MAX_SUMMARY_CHARS] if isinstance(words, str) else ""


def plan(
    request: object,
    *,
    format: str | None = None,
    policy: Policy | None = None,
    facts: Facts | None = None,
    memo: Memo | None = _MEMO,
    model: str | None = None,
    trace: bool = False,
) -> Plan:
    """Decide what to change in a request, and change nothing.

    With `trace`, also every offer that was made, taken or not, and what was protected.
    """
    try:
        folded = fold_request(
            request,
            format=format,
            policy=_check_policy(policy),
            facts=_check_facts(facts),
            memo=_check_memo(memo),
            trace=trace,
            model=model,
        )
    except (PassedThrough, UnreadableRequest) as why:
        return Plan(untouched=str(why))
    done = build_compaction(folded, request)
    return Plan(
        format=folded.context.codec.name,
        prefix=folded.state.prefix.hex(),
        edits=edits_in_force(folded.state),
        repairs=done.report.repairs,
        repair=folded.context.policy.repair,
        tokens_saved=done.report.tokens_saved,
        trace=done.report.trace,
        cut=folded.state.sent.cut,
        rendering=folded.context.policy.rendering,
    )


def apply(
    request: _Request,
    plan: Plan,
    *,
    format: str | None = None,
    policy: Policy | None = None,
    model: str | None = None,
) -> Compaction[_Request]:
    """The request with a plan's edits; raises PlanMismatch for another history."""
    if plan.untouched is not None:
        return Compaction(request, Report(untouched=plan.untouched), {})
    planned = Policy(repair=plan.repair, rendering=plan.rendering)
    how = planned if policy is None else _check_policy(policy).replace(advise=False)
    name = format or plan.format
    folded = fold_request(
        request, format=name, policy=how, facts=Facts(), memo=None, passes=(), model=model
    )
    if folded.state.prefix.hex() != plan.prefix:
        raise PlanMismatch("This plan was made for another history; make a new one for this one.")
    folded.state.take(plan.edits)
    folded.state.sent.cut = plan.cut
    return build_compaction(folded, request)


def check(request: object, *, format: str | None = None, model: str | None = None) -> list[Problem]:
    """List the problems for which the provider would reject the request."""
    try:
        body = read_body(request)
    except PlainText:
        return []
    provider = PROVIDERS[detect_format(body, format, allow_server_held=True)]
    if body.fields is not None and not provider.checks_server_held:
        refuse_server_held(provider.name, body.fields)
    messages = [body.message(at) for at in range(len(body))]
    size = len(request) if isinstance(request, str | bytes) else 0
    return [
        *check_request(provider.codec, messages, complete_fields(body.fields, model)),
        *provider.check_size(size),
    ]


def repair(
    request: _Request, *, format: str | None = None, model: str | None = None
) -> Compaction[_Request]:
    """The smallest change that makes the request valid; nothing else is touched."""
    folded = fold_request(
        request, format=format, policy=Policy(), facts=Facts(), memo=None, passes=(), model=model
    )
    return build_compaction(folded, request)


def expand(
    ref: str,
    source: Compaction[Any] | Mapping[str, str],
    *,
    lines: tuple[int, int] | None = None,
    pattern: str | None = None,
) -> str:
    """The original behind a marker: whole, some lines of it (from 1 on), or those that match.

    `ref` is the reference, or the whole marker. Lines end at line feeds, as markers count them. A
    pattern is a regular expression without
    references back and looks around: every pattern is searched for in linear time.

    >>> expand("a", {"a": "one\\ntwo\\nthree\\n"}, lines=(2, 9), pattern="^t")
    'two\\nthree\\n'
    """
    text = _find_original(ref, source)
    if lines is None and pattern is None:
        return text
    chosen = text.split("\n")
    ends = [f"{line}\n" for line in chosen[:-1]] + ([chosen[-1]] if chosen[-1] else [])
    if lines is not None:
        first, last = _line_range(lines, len(ends))
        ends = ends[first - 1 : last]
    if pattern is not None:
        fits = _compile_pattern(pattern)
        ends = [line for line in ends if fits(line.removesuffix("\n"))]
    return "".join(ends)


def _find_original(ref: object, source: object) -> str:
    originals: object = source.originals if isinstance(source, Compaction) else source
    if not isinstance(originals, Mapping):
        raise ValueError(f"source={quote_value(originals)}: allowed is a Compaction, or a mapping.")
    kept = cast(Mapping[object, str], originals)
    marker = find_marker(ref) if isinstance(ref, str) and ref not in kept else None
    name = ref if marker is None else marker.ref
    if not isinstance(name, str) or name not in kept:
        raise UnknownReference(f"No original is kept under {quote_value(name)}.")
    return kept[name]


def _check_policy(given: object) -> Policy:
    if given is not None and not isinstance(given, Policy):
        hint = f" (Policy.preset({given!r}))" if given in tuple(PRESETS) else ""
        raise PolicyError(
            f"policy={quote_value(given)} is not allowed; allowed: a respool.Policy{hint}, or None"
        )
    return given or Policy()


def _check_facts(given: object) -> Facts:
    if given is not None and not isinstance(given, Facts):
        raise PolicyError(
            f"facts={quote_value(given)} is not allowed; allowed: a respool.Facts, or None"
        )
    return given or _NO_FACTS


def _check_memo(given: object) -> Memo | None:
    if given is not None and not isinstance(given, Memo):
        raise PolicyError(
            f"memo={quote_value(given)} is not allowed; allowed: a respool.Memo, or None"
        )
    return given


def _line_range(lines: object, count: int) -> tuple[int, int]:
    """The first and the last line; a range may end behind the text, but not begin there."""
    match lines:
        case (int(first), int(last)) if 1 <= first <= last and bool not in map(type, (first, last)):
            if first > max(count, 1):
                raise ValueError(f"lines={lines!r}: this original has {count:,} lines.")
            return first, last
        case _:
            raise ValueError(f"lines={lines!r}: allowed is (first, last) with 1 <= first <= last.")


def _compile_pattern(pattern: object) -> Callable[[str], bool]:
    if not isinstance(pattern, str):
        raise ValueError(f"pattern={quote_value(pattern)}: allowed is a regular expression.")
    try:
        return searcher(pattern)
    except Unsearchable as error:
        raise ValueError(f"pattern={quote_value(pattern)} is not allowed: {error}.") from None
