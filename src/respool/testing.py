"""The laws of a pass, to be run on one's own: `assert_laws(my_pass)` in any test.

Sample histories in the four wire formats are built in; requests of your own come on top. A law
that is broken is a `Violation`: its name, the format, the request, and a sentence.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from types import FrameType
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import Struct

from .api import check, expand
from .compaction.memo import Memo
from .edits import DropExchange, DropReasoning, Replace
from .engine import Compaction, build_compaction, fold_request
from .errors import RespoolError
from .facts import Facts
from .markers import ClipMarker, OmissionMarker, find_marker, parse_gap, reference
from .passes import PASSES, Pass
from .plugins import pass_name
from .policy import Policy
from .providers.base import Codec, split_steps
from .providers.registry import PROVIDERS
from .tokens import counter_for, part_tokens
from .transcript import Part
from .wire.body import read_body
from .wire.detect import detect_format

Law = Literal[
    "faithful",
    "valid",
    "small",
    "stable",
    "reproducible",
    "reversible",
    "honest",
    "idempotent",
    "harmless",
    "linear",
]
Request = dict[str, Any]

_MARKERLESS: Final = ("tidied", "whitespace")  # reasons of edits that take out no words
_BREAKPOINTS: Final = ("cache_control", "prompt_cache_breakpoint")
_TURNS: Final = 36  # of a sample
_MAX_PREFIXES: Final = 16  # of a request that are compared with one another
_LONGER: Final = 4  # times the history of the linear law
_MAX_GROWTH: Final = 2.5 * _LONGER  # of the lines that a pass runs through on it
_FEW_LINES: Final = 2_000  # below, growth says nothing
_MAX_QUOTED_CHARS: Final = 200
# Every boundary is evaluated, and all that is offered is taken.
_EAGER: Final = Policy(
    keep_exchanges=3,
    cap_chars=2_000,
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    eager=True,
    strip_decoration=True,
)


class Violation(Struct, frozen=True):
    """A law that a pass breaks on one request."""

    law: Law
    format: str
    request: int  # the samples of the four formats are 0 to 3, your own requests follow
    sentence: str

    def __str__(self) -> str:
        return f"{self.law} ({self.format}, request {self.request}): {self.sentence}"


def assert_laws(
    offer_pass: Pass, requests: Sequence[object] | None = None, *, policy: Policy | None = None
) -> None:
    """Raise AssertionError with a line for each law that a pass breaks."""
    found = check_pass(offer_pass, requests, policy=policy)
    if found:
        lines = "\n".join(f"  {one}" for one in found)
        raise AssertionError(f"{pass_name(offer_pass)} breaks {len(found)} laws:\n{lines}")


def check_pass(
    offer_pass: Pass, requests: Sequence[object] | None = None, *, policy: Policy | None = None
) -> list[Violation]:
    """List the laws that a pass breaks, on the samples and on your own requests.

    A request is bytes, text or a dict. The `policy` is one under which
    the pass has work to do; its `passes` are replaced by this pass. By default, every boundary is
    evaluated, three exchanges are recent, and all that is offered is taken.
    """
    chosen = _EAGER if policy is None else policy
    found: list[Violation] = []
    for number, request in enumerate((*sample_requests(), *(requests or ()))):
        trial = _Trial(offer_pass, chosen, request, number)
        found += trial.violations()
    return found


def sample_requests(turns: int = _TURNS) -> tuple[Request, ...]:
    """A history of so many turns in each wire format; always the same.

    It has parallel calls, errors, reasoning, images, reads, writes, searches and user messages.
    """
    steps = [_sample_step(number) for number in range(turns)]
    return tuple(_WRITERS[format](steps) for format in _WRITERS)


# --- the laws ----------------------------------------------------------------------------------


class _BrokenLaw(Exception):
    """A law does not hold; the message is its sentence."""


class _Trial:
    """One pass on one request, in all the ways that the laws speak of."""

    def __init__(self, offer_pass: Pass, policy: Policy, request: object, number: int) -> None:
        self.offer_pass, self.number = offer_pass, number
        self.is_own = offer_pass not in PASSES
        named: Any = offer_pass if self.is_own else pass_name(offer_pass)
        self.policy = policy.replace(passes=(named,))
        self.source: Any = (
            msgspec.json.decode(request) if isinstance(request, str | bytes) else request
        )
        self.format = detect_format(read_body(self.source), None)
        self.codec: Codec = PROVIDERS[self.format].codec

    @cached_property
    def out(self) -> Compaction[Any]:
        """The compaction of the request."""
        return self._compact(self.source)

    def violations(self) -> list[Violation]:
        """All laws that are broken, in the order of the design."""
        laws: tuple[tuple[Law, Callable[[], None]], ...] = (
            ("faithful", self._is_faithful),
            ("valid", self._is_valid),
            ("small", self._is_small),
            ("stable", self._is_stable),
            ("reproducible", self._is_reproducible),
            ("reversible", self._is_reversible),
            ("honest", self._is_honest),
            ("idempotent", self._is_idempotent),
            ("harmless", self._is_harmless),
            ("linear", self._is_linear),
        )
        found: dict[Violation, None] = {}  # in order, each once
        for law, holds in laws:
            try:
                holds()
            except _BrokenLaw as why:
                found[Violation(law, self.format, self.number, str(why))] = None
            except Exception as error:  # noqa: BLE001 - whatever a pass brings about is reported
                found[Violation("harmless", self.format, self.number, _quoted(error))] = None
        return list(found)

    # A user's pass is run without the checks that skip an unsound one, so that each law speaks
    # for itself; the harmless law runs it as `compact` does.
    def _compact(
        self, request: Any, memo: Memo | None = None, *, checked: bool = False
    ) -> Compaction[Any]:
        is_checked = checked or not self.is_own
        passes = None if is_checked else (self.offer_pass,)
        folded = fold_request(
            request,
            format=self.format,
            policy=self.policy if is_checked else self.policy.replace(passes=()),
            facts=Facts(),
            memo=memo,
            passes=passes,
        )
        return build_compaction(folded, request)

    def _history(self, request: Any) -> list[Any]:
        is_bare = isinstance(request, list)
        return cast(list[Any], request if is_bare else request[self.codec.history_field])

    def _with_history(self, history: list[Any]) -> Any:
        if isinstance(self.source, list):
            return history
        return {**self.source, self.codec.history_field: history}

    def _parts(self, request: Any) -> list[Part]:
        history = self._history(request)
        return [part for row, one in enumerate(history) for part in self.codec.decode(row, one)]

    def _replacements(self, out: Compaction[Any]) -> list[Replace]:
        return [edit for edit in out.report.edits if isinstance(edit, Replace)]

    def _is_faithful(self) -> None:
        kept = copy.deepcopy(self.source)
        try:
            out = self._compact(self.source)
        finally:
            changed, self.source = self.source != kept, copy.deepcopy(kept)
        _hold(not changed, "The pass changed the caller's request.")
        if out.report.repairs:
            return
        sources = {_encoded(message) for message in self._history(kept)}
        new = [one for one in self._history(out.request) if _encoded(one) not in sources]
        most = self._count_touchable(out)
        _hold(len(new) <= most, f"{len(new)} messages differ, but the edits touch only {most}.")

    def _count_touchable(self, out: Compaction[Any]) -> int:
        """The number of messages that the edits can have changed."""
        rows: set[int] = set()
        steps = [
            range(one.at, one.at + len(one.messages))
            for one in split_steps(self.codec, self._history(self.source))
        ]
        for edit in out.report.edits:
            rows.add(edit.ref.row)
            if isinstance(edit, DropExchange | DropReasoning):
                rows.update(row for step in steps if edit.ref.row in step for row in step)
        return len(rows)

    def _is_valid(self) -> None:
        before = {one.code for one in check(self.source, format=self.format)}
        after = check(self.out.request, format=self.format)
        for problem in after:
            if problem.severity == "error" and problem.code not in before:
                what = f"{problem.code} at {problem.place}: {problem.message}"
                raise _BrokenLaw(f"The provider would reject the projection: {what}")

    def _is_small(self) -> None:
        out = self.out
        count = self._counter().count
        for edit in self._replacements(out):
            if not edit.stands_for:
                was, now = count(out.originals[edit.original]), count(edit.text)
                _hold(now < was, f"The edit at {edit.ref} has {now:,} tokens in place of {was:,}.")
        saved = out.report.tokens_saved
        _hold(saved >= 0, f"The projection has {-saved:,} tokens more than the request.")

    def _is_stable(self) -> None:
        outs = [self._compact(request) for request in self._growing()]
        for one, later in pairwise(outs):
            is_epoch = one.report.epochs != later.report.epochs
            if is_epoch or one.report.repairs or later.report.repairs:
                continue
            before, after = self._history(one.request), self._history(later.request)
            for row, (said, again) in enumerate(zip(before, after, strict=False)):
                if _encoded(said) != _encoded(again):
                    raise _BrokenLaw(f"Message {row} changes in a later request without an epoch.")
            _hold(len(after) >= len(before), "A later projection is shorter without an epoch.")

    def _growing(self) -> list[Any]:
        """The requests that led to this one, each of which extends the one before."""
        history = self._history(self.source)
        ends = [one.at for one in split_steps(self.codec, history) if one.at] + [len(history)]
        return [self._with_history(history[:end]) for end in ends[-_MAX_PREFIXES:]]

    def _is_reproducible(self) -> None:
        memo = Memo()
        for request in (*self._growing()[::4], self.source):
            cold = _encoded(self._compact(request).request)
            twice = _encoded(self._compact(request).request)
            _hold(twice == cold, "The same request has two projections.")
            warm = _encoded(self._compact(request, memo).request)
            _hold(warm == cold, "With a memo of earlier requests the projection is another.")

    def _is_reversible(self) -> None:
        out = self.out
        known = [part.text for part in self._parts(self.source)]
        said = set(known)
        for edit in self._replacements(out):
            original = expand(edit.original, out)
            is_exact = edit.stands_for or out.report.repairs or original in said
            _hold(
                bool(is_exact), f"The original of the edit at {edit.ref} is not what stood there."
            )
            leads_back = edit.reason in _MARKERLESS or edit.original in edit.text
            _hold(leads_back, f"The text at {edit.ref} does not name its original.")
        for part in self._parts(out.request):
            marker = find_marker(part.text)
            if marker is not None and part.text not in said:
                _hold(
                    marker.ref in out.originals
                    and reference(out.originals[marker.ref]) == marker.ref,
                    f"The marker at {part.ref} names no original: {marker.ref}.",
                )

    def _is_honest(self) -> None:
        out = self.out
        for edit in self._replacements(out):
            marker, original = find_marker(edit.text), out.originals[edit.original]
            if marker is not None and not edit.stands_for:
                _check_marker(marker, original, edit)
        if not out.report.repairs:
            self._check_figures(out)

    def _check_figures(self, out: Compaction[Any]) -> None:
        counter, report = self._counter(), out.report
        fields: dict[str, Any] = {} if isinstance(self.source, list) else self.source
        head = sum(part_tokens(one, counter) for one in self.codec.decode_head(fields))
        after = head + sum(part_tokens(one, counter) for one in self._parts(out.request))
        said = f"The report says {report.tokens_after:,} tokens, the projection has {after:,}."
        _hold(report.tokens_after == after, said)
        if len(self._replacements(out)) == len(report.edits):
            claimed = sum(edit.saved for edit in self._replacements(out))
            said = f"The edits claim {claimed:,} tokens, and save {report.tokens_saved:,}."
            _hold(claimed == report.tokens_saved, said)

    def _counter(self) -> Any:
        model = None if isinstance(self.source, list) else self.source.get("model")
        return counter_for(self.format, model)

    def _is_idempotent(self) -> None:
        once = self.out
        shaped = {edit.text for edit in self._replacements(once)}
        twice = self._compact(once.request)
        for edit in self._replacements(twice):
            is_own = not edit.stands_for and twice.originals[edit.original] in shaped
            _hold(not is_own, f"The pass cuts its own output again at {edit.ref}.")

    def _is_harmless(self) -> None:
        out = self._compact(self.source, checked=True)
        for why in out.report.failures.values():
            raise _BrokenLaw(f"The pass was skipped: {why[:_MAX_QUOTED_CHARS]}")

    def _is_linear(self) -> None:
        """Lines of code are counted, not seconds: the figure is the same on every machine."""
        if self.number >= len(_WRITERS):
            return  # a request of the user's has one length
        short = self._count_lines(1)
        if short < _FEW_LINES:
            return  # a pass that begins its work only in long histories is not judged
        long = self._count_lines(_LONGER)
        said = f"{_LONGER} times the history takes {long / short:.1f} times the steps."
        _hold(long <= _MAX_GROWTH * short, said)

    def _count_lines(self, times: int) -> int:
        """The lines of Python that the pass and all that it calls run through on a sample."""
        request = sample_requests(_TURNS * times)[self.number]
        counted = _LineCounter(self.offer_pass)
        # As by default, a history is evaluated again when it has grown by a tenth.
        policy = self.policy.replace(passes=(), reevaluate_tokens=500, reevaluate_ratio=0.1)
        fold_request(
            request,
            format=self.format,
            policy=policy,
            facts=Facts(),
            memo=None,
            passes=(cast(Pass, counted),),
        )
        return counted.lines


class _LineCounter:
    """A pass that counts the lines which another pass runs through."""

    def __init__(self, offer_pass: Pass) -> None:
        self._pass = offer_pass
        self.__dict__.update(vars(offer_pass))  # its phases
        self.lines = 0

    def __call__(self, view: Any, policy: Policy) -> Iterator[Any]:
        """The offers of the pass."""
        before = sys.gettrace()
        sys.settrace(self._count)
        try:
            return iter(list(self._pass(view, policy)))
        finally:
            sys.settrace(before)

    def _count(self, _frame: FrameType, event: str, _argument: object) -> Any:
        self.lines += event == "line"
        return self._count


def _check_marker(marker: ClipMarker | OmissionMarker, original: str, edit: Replace) -> None:
    """Compare the counts of a marker with the original, in the units that can be counted."""
    _hold(marker.ref == reference(original), f"The marker at {edit.ref} names another original.")
    total = marker.omitted if marker.total is None else marker.total
    real = {
        "lines": original.count("\n") + (not original.endswith("\n")),
        "chars": len(original),
    }.get(marker.unit)
    said = f"The marker at {edit.ref} speaks of {total:,} {marker.unit}; there are {real}."
    _hold(real is None or total == real, said)
    is_possible = 0 < marker.omitted <= total
    _hold(is_possible, f"The marker at {edit.ref} says that {marker.omitted:,} of {total:,} went.")
    gaps = [one for line in edit.text.split("\n") if (one := parse_gap(line)) is not None]
    gone = sum(count for count, unit in gaps if unit == marker.unit)
    said = f"The gaps at {edit.ref} add up to {gone:,} {marker.unit}, not to {marker.omitted:,}."
    _hold(gone in (0, marker.omitted), said)


def _hold(holds: bool, sentence: str) -> None:
    if not holds:
        raise _BrokenLaw(sentence)


def _quoted(error: Exception) -> str:
    name = type(error).__name__
    what = str(error) if isinstance(error, RespoolError) else f"{name}: {error}"
    return f"A compaction with the pass failed: {what[:_MAX_QUOTED_CHARS]}"


def _encoded(value: Any) -> bytes:
    """A message as bytes, without cache breakpoints."""
    return msgspec.json.encode(_without_breakpoints(value))


def _without_breakpoints(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_breakpoints(one) for one in cast(list[Any], value)]
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {name: _without_breakpoints(one) for name, one in items if name not in _BREAKPOINTS}
    return value


# --- the samples -------------------------------------------------------------------------------


class _SampleCall(Struct, frozen=True):
    id: str
    tool: str
    arguments: dict[str, Any]
    result: str
    error: bool = False
    image: bool = False


class _SampleStep(Struct, frozen=True):
    said: str
    reasoning: str
    calls: tuple[_SampleCall, ...]
    user: str = ""  # follows the results


_PIXEL: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
_TASK: Final = "Find out why the loom stops after a broken thread, and repair it."
_TOOLS: Final = ("Read", "Edit", "Bash", "Grep", "Screenshot")


def _sample_step(number: int) -> _SampleStep:
    """A turn of a coding session: nine kinds, one after another."""
    module = f"/w/src/loom_{number // 9}.py"
    read = ("Read", {"file_path": module}, _source(number // 9, 70))
    listing = "\n".join(f"src/loom_{one}.py" for one in range(60 + number))
    failed = f"{_log(number, 40)}\nFAILED tests/test_loom.py::test_{number} - AssertionError"
    lock = "\n".join(f'name = "package-{one}"\nversion = "1.{number}"' for one in range(50))
    change = {"file_path": module, "old_string": f"x_{number}", "new_string": f"y_{number}"}
    kinds: tuple[tuple[tuple[str, dict[str, Any], str], ...], ...] = (
        (read, ("Read", {"file_path": f"{module}i"}, _source(number, 30))),
        (("Bash", {"command": "ls src"}, listing),),
        (("Bash", {"command": f"pytest tests/test_{number}.py"}, failed),),
        (("Edit", change, f"The file {module} has been updated."),),
        (("Grep", {"pattern": f"thread_{number}"}, "No matches found"), read),
        (("Bash", {"command": f"pytest tests/test_{number}.py"}, _log(number, 60)),),
        (("Read", {"file_path": "/w/uv.lock"}, lock),),
        (("Screenshot", {}, f"The loom's page, {number} threads."),),
        (read, ("Grep", {"pattern": "def weave"}, f"{module}:7:def weave_{number}(cloth):")),
    )
    kind = number % len(kinds)
    calls = tuple(
        _SampleCall(
            id=f"call_{number}_{at}",
            tool=tool,
            arguments=arguments,
            result=result,
            error=result is failed,
            image=tool == "Screenshot",
        )
        for at, (tool, arguments, result) in enumerate(kinds[kind])
    )
    user = f"Go on with loom {number}." if kind == len(kinds) - 1 else ""
    thought = f"Thread {number} may break where the shuttle turns, so I look there first. " * 3
    return _SampleStep(f"Now step {number}.", thought, calls, user)


def _source(seed: int, lines: int) -> str:
    return "\n".join(
        f"{at:6}\tdef weave_{seed}_{at}(cloth, thread_{at * 7 % 31}): cloth.turn({at * seed})"
        for at in range(1, lines + 1)
    )


def _log(seed: int, lines: int) -> str:
    return "\n".join(
        f"2026-01-01 10:{at % 60:02}:00 loom[{seed}] thread {at * 13 % 97} at src/loom_{at}.py:{at}"
        for at in range(lines)
    )


def _schema() -> dict[str, Any]:
    return {"type": "object", "properties": {}}


def _anthropic(steps: Sequence[_SampleStep]) -> Request:
    history: list[Any] = [{"role": "user", "content": _TASK}]
    for step in steps:
        calls = [
            {"type": "tool_use", "id": one.id, "name": one.tool, "input": one.arguments}
            for one in step.calls
        ]
        thought = {"type": "thinking", "thinking": step.reasoning, "signature": "c2lnbmVk" * 8}
        text = {"type": "text", "text": step.said}
        history.append({"role": "assistant", "content": [thought, text, *calls]})
        answers: list[Any] = [_anthropic_result(one) for one in step.calls]
        if step.user:
            answers.append({"type": "text", "text": step.user})
        history.append({"role": "user", "content": answers})
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 4_000,
        "thinking": {"type": "enabled", "budget_tokens": 1_024},
        "tools": [{"name": name, "input_schema": _schema()} for name in _TOOLS],
        "messages": history,
    }


def _anthropic_result(call: _SampleCall) -> dict[str, Any]:
    content: Any = call.result
    if call.image:
        source = {"type": "base64", "media_type": "image/png", "data": _PIXEL}
        content = [{"type": "text", "text": call.result}, {"type": "image", "source": source}]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": content}
    return {**result, "is_error": True} if call.error else result


def _openai_chat(steps: Sequence[_SampleStep]) -> Request:
    history: list[Any] = [{"role": "user", "content": _TASK}]
    for step in steps:
        calls = [
            {"id": one.id, "type": "function", "function": _function(one)} for one in step.calls
        ]
        said = {"role": "assistant", "content": step.said, "reasoning_content": step.reasoning}
        history.append({**said, "tool_calls": calls})
        history += (
            {"role": "tool", "tool_call_id": one.id, "content": one.result} for one in step.calls
        )
        url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PIXEL}"}}
        if any(one.image for one in step.calls):
            shown = [{"type": "text", "text": "This is what I see."}, url]
            history.append({"role": "user", "content": shown})
        if step.user:
            history.append({"role": "user", "content": step.user})
    functions = [{"name": name, "parameters": _schema()} for name in _TOOLS]
    tools = [{"type": "function", "function": function} for function in functions]
    return {"model": "gpt-4.1", "tools": tools, "messages": history}


def _function(call: _SampleCall) -> dict[str, str]:
    return {"name": call.tool, "arguments": msgspec.json.encode(call.arguments).decode()}


def _openai_responses(steps: Sequence[_SampleStep]) -> Request:
    history: list[Any] = [{"role": "user", "content": _TASK}]
    for number, step in enumerate(steps):
        summary = [{"type": "summary_text", "text": step.reasoning}]
        history.append({"type": "reasoning", "id": f"rs_{number}", "summary": summary})
        history += (
            {"type": "function_call", "call_id": one.id, **_function(one)} for one in step.calls
        )
        history += (_responses_result(one) for one in step.calls)
        if step.user:
            history.append({"role": "user", "content": step.user})
    about = {"type": "function", "parameters": _schema(), "strict": False}
    tools = [{**about, "name": name} for name in _TOOLS]
    return {"model": "gpt-5.1", "tools": tools, "input": history}


def _responses_result(call: _SampleCall) -> dict[str, Any]:
    output: Any = call.result
    if call.image:
        url = f"data:image/png;base64,{_PIXEL}"
        image = {"type": "input_image", "image_url": url, "detail": "auto"}
        output = [{"type": "input_text", "text": call.result}, image]
    return {"type": "function_call_output", "call_id": call.id, "output": output}


def _gemini(steps: Sequence[_SampleStep]) -> Request:
    history: list[Any] = [{"role": "user", "parts": [{"text": _TASK}]}]
    for step in steps:
        calls = [
            {"functionCall": {"id": one.id, "name": one.tool, "args": one.arguments}}
            for one in step.calls
        ]
        thought = {"text": step.reasoning, "thought": True}
        history.append({"role": "model", "parts": [thought, {"text": step.said}, *calls]})
        answers: list[Any] = [_gemini_result(one) for one in step.calls]
        history.append({"role": "user", "parts": answers})
        if step.user:
            answers.append({"text": step.user})
    declared = [{"name": name, "parameters": _schema()} for name in _TOOLS]
    return {"tools": [{"functionDeclarations": declared}], "contents": history}


def _gemini_result(call: _SampleCall) -> dict[str, Any]:
    response = {"error": call.result} if call.error else {"output": call.result}
    answer: dict[str, Any] = {"id": call.id, "name": call.tool, "response": response}
    if call.image:
        answer["parts"] = [{"inlineData": {"mimeType": "image/png", "data": _PIXEL}}]
    return {"functionResponse": answer}


_WRITERS: Final[dict[str, Callable[[Sequence[_SampleStep]], Request]]] = {
    "anthropic": _anthropic,
    "openai-chat": _openai_chat,
    "openai-responses": _openai_responses,
    "gemini": _gemini,
}

__all__ = ["Law", "Violation", "assert_laws", "check_pass", "sample_requests"]
