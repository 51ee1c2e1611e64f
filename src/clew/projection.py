"""The messages of the output: source rows as they are, mended rows, and rows with edits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

import msgspec
from msgspec import Struct, field

from .check.rules import Step
from .codecs.body import Body, Changed, Kept, Piece
from .codecs.codec import Codec
from .codecs.json_tree import JSON
from .codecs.marks import marks_in
from .edits import DropExchange, DropReasoning, PlaceMark, Replace
from .marking import own_mark
from .repair.mending import Ending, Repair
from .state import MendedStep, Setting, State
from .touching import touched
from .transcript import Index, Part


class RowChanges(Struct):
    """All that edits do to one row."""

    replaced: list[Replace] = field(default_factory=list[Replace])
    marked: list[PlaceMark] = field(default_factory=list[PlaceMark])
    removed: list[Part] = field(default_factory=list[Part])
    unbound: bool = False


def project(body: Body, state: State, setting: Setting) -> tuple[list[Piece], list[Repair]]:
    """The output's messages in order, and what the end of the history needed."""
    projection = _Projection(body, state, setting)
    pieces = projection.pieces()
    if not setting.policy.repair:
        return pieces, []
    pieces, limited = projection.with_fewer_marks(pieces, setting)
    return pieces, [*projection.ending.repairs, *limited]


class _Projection:
    """One request's rows on their way out."""

    def __init__(self, body: Body, state: State, setting: Setting) -> None:
        self._body = body
        self._state = state
        self._codec = setting.codec
        self._changes = changes_by_row(state)
        self._place_own_mark(setting)
        self._not_remembered = _rebuilt_each_time(self._changes, state.index.parts)
        self._marked = set(body.marked())
        rebuilt = self._changes.keys() | self._not_remembered
        self._mended, self._varying = mended_rows(body, state, setting, rebuilt)
        self.ending = self._end(setting) if setting.policy.repair else Ending()
        if not self._mended.keys().isdisjoint(self.ending.changes):
            rebuilt |= self.ending.changes.keys()
            self._mended, self._varying = mended_rows(body, state, setting, rebuilt)
            self.ending = self._end(setting)

    def _place_own_mark(self, setting: Setting) -> None:
        """Mark the end of the prefix before the last epoch, where one more mark fits."""
        state = self._state
        if state.cut <= 0 or not setting.rates.room:
            return
        gone = [at for at in state.claimed if not isinstance(state.edits.get(at), Replace)]
        mark = own_mark(self._body, state.index, state.sources, state.cut, gone)
        if mark is not None:
            self._changes.setdefault(mark.ref.row, RowChanges()).marked.append(mark)

    def pieces(self) -> list[Piece]:
        """The messages in order; runs of untouched ones are only named."""
        sources, inserts = self._state.sources, self.ending.inserts
        touched = self._changes.keys() | self._mended.keys() | self.ending.changes.keys()
        stops = sorted(touched | inserts.keys())
        pieces: list[Piece] = []
        seam, row = False, 0
        for stop in (*stops, len(sources)):
            if row < stop:
                self._keep(pieces, row, stop, seam)
                seam = False
            if stop == len(sources):
                break
            piece = self._changed(stop) if stop in touched else self._kept(stop)
            seam = piece is None or seam
            if piece is not None:
                self._append(pieces, piece, seam=seam)
                pieces += [Changed(None, message) for message in inserts.get(stop, ())]
                seam = False
            row = stop + 1
        return pieces

    def with_fewer_marks(
        self, pieces: list[Piece], setting: Setting
    ) -> tuple[list[Piece], list[Repair]]:
        """The pieces with as many cache marks, in such an order, as the provider takes."""
        at_rows = set(self._body.marked()) | self._own_marks()
        if not at_rows:
            return pieces, []
        singles = [one for piece in pieces for one in _apart(piece, at_rows)]
        marked = [
            (number, self._said(piece))
            for number, piece in enumerate(singles)
            if _may_be_marked(piece, at_rows)
        ]
        limited = setting.mender.limit_marks(marked, setting.fields)
        if limited is None:
            return pieces, []
        for number, message in limited.changes.items():
            piece = singles[number]
            source = piece.start if isinstance(piece, Kept) else piece.source
            singles[number] = Changed(source, message)
        return singles, limited.repairs

    def _own_marks(self) -> set[int]:
        """The source messages that edits put a mark on."""
        rows = (row for row, change in self._changes.items() if change.marked)
        return {source for row in rows if (source := self._state.sources[row]) is not None}

    def _kept(self, row: int) -> Piece:
        source = self._state.sources[row]
        assert source is not None  # a row that repair put in is among the mended ones
        return Kept(source, source + 1)

    def _keep(self, pieces: list[Piece], row: int, stop: int, seam: bool) -> None:
        """Add untouched rows, as few runs of neighbouring source messages."""
        if seam:
            self._append(pieces, self._kept(row), seam=True)
            row += 1
        sources = self._state.sources
        while row < stop:
            first = sources[row]
            assert first is not None  # as in _kept
            end = stop
            if self._state.mended:  # repair may have moved or dropped a message between
                end = row + 1
                while end < stop and sources[end] == first + end - row:
                    end += 1
            self._append(pieces, Kept(first, first + end - row), seam=False)
            row = end

    def _message(self, row: int) -> JSON:
        """Any row of the repaired history."""
        if row in self._mended:
            return self._mended[row]
        source = self._state.sources[row]
        return None if source is None else self._body.message(source)

    def _end(self, setting: Setting) -> Ending:
        """What only the end of the history needs."""
        count = len(self._state.sources)
        return (
            setting.mender.end(self._state.seen, count, self._message, setting.fields) or Ending()
        )

    def _changed(self, row: int) -> Piece | None:
        """The row after all that is done to it; None when nothing of it is left."""
        source = self._state.sources[row]
        plain = (
            row not in self.ending.changes
            and row not in self._not_remembered
            and row not in self._varying
            and source not in self._marked
        )
        if plain and (known := self._state.encoded.get(row)) is not None:
            return Changed(source, None, known)
        message = self.ending.changes.get(row, self._message(row))
        change = self._changes.get(row)
        if change is not None:
            message = change_row(self._codec, message, change, self._state.index.parts)
        if message is None:
            return None
        if source is not None and message is self._body.message(source):
            return self._kept(row)
        encoded = self._body.encode(source, message)
        if plain and encoded is not None:
            self._state.encoded[row] = encoded
        return Changed(source, message, encoded)

    def _append(self, pieces: list[Piece], piece: Piece, *, seam: bool) -> None:
        """Add a row; a row that vanished may have left two that must become one."""
        if seam and pieces and self._join(pieces, piece):
            return
        last = pieces[-1] if pieces else None
        if isinstance(piece, Kept) and isinstance(last, Kept) and last.stop == piece.start:
            pieces[-1] = Kept(last.start, piece.stop)
        else:
            pieces.append(piece)

    def _join(self, pieces: list[Piece], piece: Piece) -> bool:
        """Put what must stand there in place of two new neighbours, if they may not stay."""
        before, after = self._said(pieces[-1]), self._said(piece)
        joined = self._codec.join(before, after)
        if joined is None:
            return False
        last = pieces.pop()
        if isinstance(last, Kept) and last.stop - last.start > 1:
            pieces.append(Kept(last.start, last.stop - 1))
            last = Kept(last.stop - 1, last.stop)
        source = last.start if isinstance(last, Kept) else last.source
        for message in joined:
            if message is before:
                pieces.append(last)
            elif message is after:
                pieces.append(piece)
            else:
                merged = not any(one is before for one in joined)
                pieces.append(Changed(source if merged else None, message))
        return True

    def _said(self, piece: Piece) -> JSON:
        """The last message of a piece."""
        if isinstance(piece, Kept):
            return self._body.message(piece.stop - 1)
        if piece.message is None and piece.encoded is not None:
            return msgspec.json.decode(piece.encoded)
        return piece.message


def _may_be_marked(piece: Piece, at_rows: set[int]) -> bool:
    """Whether a piece may carry marks: its own, or those of a block that was moved into it."""
    if isinstance(piece, Kept):
        return piece.start in at_rows
    return piece.source in at_rows or marks_in(piece.message) > 0


def _apart(piece: Piece, single: set[int]) -> list[Piece]:
    """A run of kept messages with these ones on their own."""
    if not isinstance(piece, Kept):
        return [piece]
    found: list[Piece] = []
    start = piece.start
    for at in sorted(one for one in single if piece.start <= one < piece.stop):
        if start < at:
            found.append(Kept(start, at))
        found.append(Kept(at, at + 1))
        start = at + 1
    if start < piece.stop:
        found.append(Kept(start, piece.stop))
    return found


def changes_by_row(state: State) -> dict[int, RowChanges]:
    """The edits in force, sorted by the rows they touch."""
    found: dict[int, RowChanges] = {}
    gone: set[int] = set()
    for edit in state.edits.values():
        match edit:
            case Replace():
                found.setdefault(edit.ref.row, RowChanges()).replaced.append(edit)
            case PlaceMark():
                found.setdefault(edit.ref.row, RowChanges()).marked.append(edit)
            case DropExchange():
                gone.update(touched(edit, state.index))
                _unbind(found, state.index, state.index.exchanges[edit.exchange].unit)
            case DropReasoning():
                gone.update(touched(edit, state.index))
                _unbind(found, state.index, edit.unit)
            case _:
                assert_never(edit)
    for position in sorted(gone):
        part = state.index.parts[position]
        found.setdefault(part.ref.row, RowChanges()).removed.append(part)
    return found


def _rebuilt_each_time(changes: Mapping[int, RowChanges], parts: Sequence[Part]) -> set[int]:
    """Edited rows whose bytes cannot be remembered.

    A mark of ours may be taken off again, words may be spelled in another way next time, and a
    row may be joined to the next one when the one between them vanishes.
    """
    found = {row - 1 for row, change in changes.items() if change.removed}
    for row, change in changes.items():
        if change.marked or any(parts[edit.part].kind == "text" for edit in change.replaced):
            found.add(row)
    return found


def _unbind(found: dict[int, RowChanges], index: Index, number: int) -> None:
    """What the model wrote in a unit that loses its reasoning must not refer to it any more."""
    unit = index.units[number]
    if unit.reasoning:
        for part in index.parts[unit.parts[0] : unit.answers]:
            found.setdefault(part.ref.row, RowChanges()).unbound = True


def mended_rows(
    body: Body, state: State, setting: Setting, rebuilt: Collection[int]
) -> tuple[dict[int, JSON], set[int]]:
    """Rows that repair changed, and those among them that each request may spell in its own way.

    Steps that carry marks, or rows that are rebuilt, are mended anew, from this request's own
    messages: so the bytes of what they leave alone are this request's, whatever was remembered.
    """
    rows: dict[int, JSON] = {}
    varying: set[int] = set()
    marked = body.marked() if state.mended else ()
    for record in state.mended:
        first = bisect_left(marked, record.at)
        carries = first < len(marked) and marked[first] < record.at + record.length
        known = all(row in state.encoded and row not in rebuilt for row in record.changed)
        varies = carries or record.varies
        changed = record.changed if known and not varies else _mend_again(body, record, setting)
        rows.update(changed)
        if varies:
            varying.update(changed)
    return rows, varying


def _mend_again(body: Body, record: MendedStep, setting: Setting) -> dict[int, JSON]:
    messages = [body.message(at) for at in range(record.at, record.at + record.length)]
    step = Step(messages, record.at, record.split)
    mended = setting.mender.step(step, record.seen, setting.fields)
    return {
        record.row + offset: row.message
        for offset, row in enumerate(mended.rows if mended else ())
        if row.source is None or row.message is not messages[row.source - record.at]
    }


def change_row(
    codec: Codec, message: JSON, change: RowChanges, parts: Sequence[Part]
) -> JSON | None:
    """One message with its edits: texts replaced, marks placed, then parts removed.

    Images and files come first: where they stand may shift when a text beside them changes.
    """
    for edit in sorted(change.replaced, key=lambda one: parts[one.part].kind != "media"):
        message = codec.replace(message, parts[edit.part], edit.text)
    for edit in change.marked:
        message = codec.mark(message, parts[edit.part], edit.mark)
    if change.unbound:
        message = codec.unbind(message)
    return codec.remove(message, change.removed) if change.removed else message
