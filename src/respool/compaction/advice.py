"""Advice on loops at the end of new results; it stays, so no prefix breaks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import overload

from msgspec.structs import replace

from ..edits import ADVISED, Advise
from ..loops import advice
from ..markers import advice_line, append_advice, strip_advice
from ..transcript import Exchange, Part, ReadOnlyTranscript, Unit
from .context import Context
from .state import State
from .window import is_over_window


def give_advice(state: State, context: Context) -> Sequence[int]:
    """Add advice to new results; return their parts. None of them was sent yet."""
    unseen_from = state.unseen_from
    if not context.policy.advise or unseen_from == len(state.transcript.parts):
        return ()
    try:
        said = dict(
            advice(TranscriptWithoutAdvice(state.transcript), state.analysis.ledger, unseen_from)
        )
    except Exception as error:  # noqa: BLE001 (advice must not cost the user a request)
        state.evaluation.failures["advise"] = f"{type(error).__name__}: {error}"
        return ()
    given = [part for part in sorted(said) if part >= unseen_from and _can_take_advice(state, part)]
    for part in given:
        state.take([_advice_edit(state, context, part, advice_line(said[part]))])
    return given


def withdraw_if_over(state: State, context: Context, given: Collection[int]) -> None:
    """Withdraw new advice where it exceeds the window."""
    if given and is_over_window(state, context):
        for part in given:
            state.withdraw_advice(part)


def _advice_edit(state: State, context: Context, part: int, line: str) -> Advise:
    said, count = state.text_of(part), context.counter.count
    call = state.transcript.call_of(part)
    evidence = f"on {call.name}" if call is not None and call.name else "on a call"
    saved = count(said) - count(append_advice(said, line))
    return Advise(part, state.transcript.parts[part].ref, line, ADVISED, evidence, saved)


def _can_take_advice(state: State, position: int) -> bool:
    """Return whether a part is a result that can take advice; a client may echo older advice."""
    part = state.transcript.parts[position]
    if (
        part.kind != "result"
        or part.server
        or part.signed
        or state.transcript.exchange_of[position] < 0
    ):
        return False
    if strip_advice(part.text) is not part.text:
        return False
    return bool(part.text) or not _has_media(state.transcript, position)


def _has_media(history: ReadOnlyTranscript, position: int) -> bool:
    """Return whether a result holds media: one without text may take none."""
    if position + 1 == len(history.parts):
        return False
    ref, after = history.parts[position].ref, history.parts[position + 1]
    return after.ref.row == ref.row and after.kind in ("media", "opaque")


class TranscriptWithoutAdvice:
    """A history without the advice that results carry: what a client echoes changes nothing."""

    def __init__(self, history: ReadOnlyTranscript) -> None:
        self._history = history
        self._parts = _PartsWithoutAdvice(history.parts)

    @property
    def parts(self) -> Sequence[Part]:
        """All parts, in order."""
        return self._parts

    @property
    def exchanges(self) -> Sequence[Exchange]:
        """All calls with their results."""
        return self._history.exchanges

    @property
    def units(self) -> Sequence[Unit]:
        """All runs of model output with what answered them."""
        return self._history.units

    @property
    def exchange_of(self) -> Sequence[int]:
        """For each part the exchange it belongs to, or -1."""
        return self._history.exchange_of

    @property
    def results(self) -> Sequence[int]:
        """The positions of all results."""
        return self._history.results

    def call_of(self, result: int) -> Part | None:
        """The call that a result answers."""
        return self._history.call_of(result)


class _PartsWithoutAdvice(Sequence[Part]):
    """Parts without advice, stripped on access."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    @overload
    def __getitem__(self, at: int) -> Part: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Part]: ...
    def __getitem__(self, at: int | slice) -> Part | Sequence[Part]:
        if isinstance(at, slice):
            return [_without_advice(part) for part in self._parts[at]]
        return _without_advice(self._parts[at])

    def __iter__(self) -> Iterator[Part]:
        return map(_without_advice, self._parts)

    def __len__(self) -> int:
        return len(self._parts)


def _without_advice(part: Part) -> Part:
    if part.kind != "result":
        return part
    text = strip_advice(part.text)
    return part if text is part.text else replace(part, text=text)
