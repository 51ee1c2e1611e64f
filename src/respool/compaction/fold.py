"""Fold over request boundaries: read one step, evaluate where a request was sent."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256

from msgspec.structs import replace

from ..edits import FOLDED
from ..facts import Facts
from ..limits import held_media
from ..markers import find_marker
from ..passes.protections import find_fetched_back
from ..pricing import BREAKPOINT_USAGES, rates_for
from ..providers.base import Step, StepRepair, split_steps, track_reads, tracked_reads
from ..tokens import part_tokens
from ..transcript import Part
from ..wire.json import JSON, Object
from ..wire.message_identity import count_breakpoints, with_string_content
from .advice import give_advice, withdraw_if_over
from .evaluation import evaluate, evaluate_arrivals, record_refetches, update_ledger
from .mimicry import find_mimicry
from .state import Context, RepairedStep, State
from .window import is_due, record_fullness

_TEXT_ROLES = ("user", "system", "developer")  # the roles whose messages may be only words


@cache
def initial_prefix(format: str) -> bytes:
    """The hash that the chain of a history in this format starts with."""
    return sha256(format.encode()).digest()


def chain_prefix(prefix: bytes, identities: Iterable[bytes]) -> bytes:
    """The chained hash after one more step."""
    link = sha256(prefix)
    for identity in identities:
        link.update(identity)
    return link.digest()


def is_consistent(state: State, facts: Facts) -> bool:
    """Whether a state that was folded under other facts is the one these facts give."""
    if facts == state.facts:
        return True
    if facts.summaries != state.facts.summaries and _has_folded(state):
        return False
    changed = facts.differing_prefixes(state.facts)
    return changed.isdisjoint(boundary.hex() for boundary in state.boundaries)


def _has_folded(state: State) -> bool:
    """Whether a summary may stand in what was sent: words for it might be others now."""
    return any(edit.reason == FOLDED for edit in state.edits.values())


def fold_step(state: State, step: Step, identities: Iterable[bytes], setting: Context) -> None:
    """Read one more step: mend it, index its parts, and evaluate where a request was sent."""
    state.prefix = chain_prefix(state.prefix, identities)
    state.boundaries.append(state.prefix)
    state.facts = setting.facts
    prefix = state.prefix.hex()
    mended = (
        setting.repairer.repair_step(step, state.seen, setting.fields)
        if setting.policy.repair
        else None
    )
    before = state.size
    if mended is None:
        sources = range(step.at, step.at + len(step.messages))
        first = _read_rows(state, step.messages, sources, setting)
        setting.rules.advance(Step(step.messages, first, step.model_count), state.seen)
    else:
        _read_repaired(state, step, mended, setting)
    state.messages = step.at + len(step.messages)
    state.since += state.size - before
    _inspect_new_parts(state)
    window = setting.facts.window_at(prefix)
    if window is not None:
        state.window = min(window, state.window or window)
    record_fullness(state, setting)
    state.breakpoint_mode = setting.facts.breakpoint_mode_at(prefix) or state.breakpoint_mode
    if prefix in setting.facts.left_alone:
        state.left_alone = True
    sent = len(step.messages) > step.model_count
    state.requests += sent
    if sent:
        state.ends.append(len(state.index.parts))
    # Where it did not fit as it was, nothing was answered that an evaluation could contradict.
    skipped = prefix in setting.facts.skipped and window is None
    if not sent or skipped or state.left_alone:
        return
    setting = _with_breakpoint_rates(state, setting)
    first = state.ledger_exchanges
    update_ledger(state, setting)
    record_refetches(state, setting, first)
    evaluate_arrivals(state, setting)
    given = give_advice(state, setting)
    free = prefix in setting.facts.cold or prefix in setting.facts.changed
    if free or is_due(state, setting):
        evaluate(state, setting, free=free)
    withdraw_if_over(state, setting, given)
    record_fullness(state, setting)


def _with_breakpoint_rates(state: State, setting: Context) -> Context:
    """The setting with the rates of how the client marked here, where a fact tells that."""
    if state.breakpoint_mode is None:
        return setting
    marking = BREAKPOINT_USAGES[state.breakpoint_mode]
    rates = rates_for(setting.policy, setting.codec.name, setting.fields, marking)
    return replace(setting, rates=rates)


def _read_repaired(state: State, step: Step, mended: StepRepair, setting: Context) -> None:
    state.mended.append(_record_repair(state, step, mended, setting))
    state.repairs += mended.repairs
    messages = [row.message for row in mended.rows]
    first = _read_rows(state, messages, [row.source for row in mended.rows], setting)
    for sub in split_steps(setting.codec, messages):  # a mended step may hold more than one run
        setting.rules.advance(Step(sub.messages, first + sub.at, sub.model_count), state.seen)
    state.repair_tokens += _tokens_in(messages, setting) - _tokens_in(step.messages, setting)


def _tokens_in(messages: Sequence[JSON], setting: Context) -> int:
    """Tokens of messages outside the history."""
    parts = (part for message in messages for part in setting.codec.decode(0, message))
    return sum(part_tokens(part, setting.counter) for part in parts)


def _record_repair(state: State, step: Step, mended: StepRepair, setting: Context) -> RepairedStep:
    first = len(state.sources)
    changed = {
        first + offset: row.message
        for offset, row in enumerate(mended.rows)
        if row.source is None or row.message is not step.messages[row.source - step.at]
    }
    varies = any(count_breakpoints(message) or _is_plain_text(message) for message in step.messages)
    if not varies:
        for row, message in changed.items():
            encoded = setting.encode(mended.rows[row - first].source, message)
            if encoded is not None:
                state.encoded[row] = encoded
    looked = track_reads(state.seen)
    setting.repairer.repair_step(step, looked, setting.fields)
    return RepairedStep(
        step.at, len(step.messages), step.model_count, first, changed, varies, tracked_reads(looked)
    )


def _is_plain_text(message: JSON) -> bool:
    """Whether a message may be only words, which are the same as a string and as one block."""
    holder: Object = message
    if not isinstance(message, dict) or holder.get("role") not in _TEXT_ROLES:
        return False
    return isinstance(holder.get("content"), str) or with_string_content(holder) is not holder


def _read_rows(
    state: State, messages: Sequence[JSON], sources: Sequence[int | None], setting: Context
) -> int:
    """Index the parts of these rows as one unit and count them; returns the first row."""
    codec = setting.codec
    first = len(state.sources)
    model: list[Part] = []
    answers: list[Part] = []
    for row, message in enumerate(messages, first):
        read = codec.decode(row, message)
        if codec.is_model_made(message):
            model += read
        else:
            answers += read
    state.sources += sources
    rows = first, len(state.sources)
    locked = codec.has_locked_calls(model)
    kept = locked and codec.is_reasoning_required(messages)
    unit = state.index.add_unit(rows, model, answers, locked, kept)
    _record_media(state, unit.parts[0], messages, first)
    sizes = [part_tokens(part, setting.sizer) for part in (*model, *answers)]
    state.sizes += sizes
    state.tokens += sizes if setting.sizer is setting.counter else [-1] * len(sizes)
    state.size += sum(sizes)
    if state.first_user[0] < 0:
        state.first_user = _find_first_user(state.index.parts, unit.parts[0])
    return first


def _record_media(state: State, start: int, messages: Sequence[JSON], first: int) -> None:
    """Note the images and files among the parts from `start` on."""
    parts = state.index.parts
    for position in range(start, len(parts)):
        part = parts[position]
        if part.kind == "media":
            found = held_media(position, part, messages[part.ref.row - first])
            if found is not None:
                state.held[position] = found


def _find_first_user(parts: Sequence[Part], start: int) -> tuple[int, int]:
    """The parts of the first message that the user wrote."""
    for position in range(start, len(parts)):
        if parts[position].speaker == "user":
            row = parts[position].ref.row
            end = position
            while end < len(parts) and parts[end].ref.row == row:
                end += 1
            return position, end
    return -1, -1


def _inspect_new_parts(state: State) -> None:
    """Note what the model has of respool's own words, and what came back that was taken out."""
    index, unit = state.index, state.index.units[-1]
    state.mimicry += find_mimicry(index.parts[unit.parts[0] : unit.answers_from])
    results = index.results[bisect_left(index.results, unit.parts[0]) :]
    if results:
        state.fetched |= find_fetched_back(index, results, state.originals, state.elsewhere)
        markers = (find_marker(index.parts[position].text) for position in results)
        state.elsewhere |= {marker.ref for marker in markers if marker is not None}
