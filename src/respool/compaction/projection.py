"""Projection: source rows as they are, repaired rows, and rows with edits."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

import msgspec
from msgspec.structs import replace

from ..edits import Advise, DropExchange, DropReasoning, PlaceBreakpoint, Replace, touched_parts
from ..markers import append_advice, reference
from ..providers.base import (
    Codec,
    EndRepair,
    Repair,
    Step,
    name_originals,
    shortened_messages,
)
from ..providers.cache_breakpoints import own_breakpoint
from ..transcript import Part, TranscriptIndex
from ..wire.base import NewMessage, Piece, RequestBody, SourceRun, split_run
from ..wire.json import JSON
from ..wire.message_identity import count_breakpoints
from .context import Context
from .state import RepairedStep, RowChanges, SettledRows, State


def row_changes(state: State) -> dict[int, RowChanges]:
    """The edits in force by row, grouped again only when they change."""
    outgoing = state.rendered.shared
    if outgoing.changes is None:
        changes = group_changes(state)
        outgoing.variable_rows = frozenset(_find_variable_rows(changes, state.transcript.parts))
        outgoing.rows_before_removed = frozenset(
            {row - 1 for row, one in changes.items() if one.removed}  # a copy of a set is smaller
        )
        outgoing.changes = changes
    return outgoing.changes


def group_changes(state: State) -> dict[int, RowChanges]:
    """Group the edits in force by the rows they touch."""
    found: defaultdict[int, RowChanges] = defaultdict(RowChanges)
    removed: set[int] = set()
    for edit in state.edits.by_part.values():
        match edit:
            case Replace():
                found[edit.ref.row].replaced += (edit,)
            case PlaceBreakpoint():
                found[edit.ref.row].breakpoints += (edit,)
            case DropExchange():
                removed.update(touched_parts(edit, state.transcript))
                _unbind_unit(
                    found, state.transcript, state.transcript.exchanges[edit.exchange].unit
                )
            case DropReasoning():
                removed.update(touched_parts(edit, state.transcript))
                _unbind_unit(found, state.transcript, edit.unit)
            case Advise():  # kept apart, in `state.edits.advice`
                continue
            case _:
                assert_never(edit)
    for advice in state.edits.advice.values():
        found[advice.ref.row].advised += (advice,)
    for position in sorted(removed):
        part = state.transcript.parts[position]
        found[part.ref.row].removed += (part,)
    return dict(found)


def _find_variable_rows(changes: Mapping[int, RowChanges], parts: Sequence[Part]) -> set[int]:
    """Edited rows whose bytes cannot be remembered.

    Our own breakpoint may move, and the client may encode a text in another way next time.
    """
    return {
        row
        for row, change in changes.items()
        if change.breakpoints or any(parts[edit.part].kind == "text" for edit in change.replaced)
    }


def _unbind_unit(found: defaultdict[int, RowChanges], index: TranscriptIndex, number: int) -> None:
    """Flag the rows of a unit that loses its reasoning, so that references to it are removed."""
    unit = index.units[number]
    if unit.reasoning:
        for part in index.parts[unit.parts[0] : unit.answers_from]:
            found[part.ref.row].unbound = True


def repaired_rows(
    body: RequestBody, state: State, context: Context, rebuilt: Collection[int]
) -> tuple[dict[int, JSON], set[int]]:
    """Rows that repair changed, and those among them whose bytes differ between requests.

    Steps with cache breakpoints or rebuilt rows are repaired again from this request's own
    messages, so that unchanged blocks keep the bytes of this request.
    """
    rows: dict[int, JSON] = {}
    varying: set[int] = set()
    breakpoint_rows = body.breakpoint_rows() if state.repairs.steps else ()
    for record in state.repairs.steps:
        first = bisect_left(breakpoint_rows, record.at)
        has_breakpoints = (
            first < len(breakpoint_rows) and breakpoint_rows[first] < record.at + record.length
        )
        known = all(row in state.rendered.encoded and row not in rebuilt for row in record.changed)
        is_varying = has_breakpoints or record.is_variable
        changed = (
            record.changed if known and not is_varying else _repair_again(body, record, context)
        )
        rows.update(changed)
        if is_varying:
            varying.update(changed)
    return rows, varying


def _repair_again(body: RequestBody, record: RepairedStep, context: Context) -> dict[int, JSON]:
    messages = [body.message(at) for at in range(record.at, record.at + record.length)]
    step = Step(messages, record.at, record.model_count)
    repaired = context.provider.repairer.repair_step(step, record.rule_state, context.fields)
    return {
        record.row + offset: row.message
        for offset, row in enumerate(repaired.rows if repaired else ())
        if row.source is None or row.message is not messages[row.source - record.at]
    }


def apply_row_changes(
    codec: Codec, message: JSON, change: RowChanges, parts: Sequence[Part]
) -> JSON | None:
    """One message with its edits: texts replaced, advice added, breakpoints placed, parts removed.

    Images and files come first: their path may shift when a text beside them changes.
    """
    lines = {one.part: one.text for one in change.advised}
    for edit in sorted(change.replaced, key=lambda one: parts[one.part].kind != "media"):
        line = lines.pop(edit.part, None)
        text = edit.text if line is None else append_advice(edit.text, line)
        message = codec.replace(message, parts[edit.part], text)
    for part, line in lines.items():
        message = codec.replace(message, parts[part], append_advice(parts[part].text, line))
    for edit in change.breakpoints:
        message = codec.place_breakpoint(message, parts[edit.part], edit.control)
    if change.unbound:
        message = codec.unbind(message)
    return codec.remove(message, change.removed) if change.removed else message


_REMOVED_ROW = b""  # the cached bytes of a row that edits removed
_SEAM_ROWS = 2  # untouched rows: the first may be joined to the row before, the second never is
_MIN_SETTLED_ROWS = 32  # fewer rows are not settled where untouched runs are short


def project(body: RequestBody, state: State, context: Context) -> tuple[list[Piece], list[Repair]]:
    """The messages of the output in order, and the repairs of its end."""
    projection = _Projector(body, state, context)
    pieces = projection.pieces()
    if not context.policy.repair:
        return pieces, []
    pieces, limited = projection.limit_breakpoints(pieces, context)
    names = {row: reference(text) for row, text in projection.shortened().items()}
    end_repairs = name_originals(projection.end_repair.repairs, names)
    return pieces, [
        *(one.with_source_place(state.repairs.sources) for one in end_repairs),
        *limited,
    ]


def originals_at_end(body: RequestBody, state: State, context: Context) -> dict[str, str]:
    """The messages of which the repair of the end left something out, by reference."""
    if not context.policy.repair or not len(body):
        return {}
    if not context.codec.is_model_made(body.message(len(body) - 1)):
        return {}  # only a model's last turn is shortened
    found = _Projector(body, state, context).shortened()
    return {reference(text): text for text in found.values()}


class _Projector:
    """Projector of one request."""

    def __init__(self, body: RequestBody, state: State, context: Context) -> None:
        self._body = body
        self._state = state
        self._codec = context.codec
        self._changes = row_changes(state)
        self._variable_rows: Collection[int] = state.rendered.shared.variable_rows
        self._before_removed = state.rendered.shared.rows_before_removed
        self._place_own_breakpoint(context)
        self._cached_rows: dict[int, int] = {}  # rows with cached bytes, by source message
        self._run: list[JSON] = []  # the messages to merge into the last piece, if several
        self._encoded_anew: dict[int, Piece] = {}  # pieces of the rows that are encoded each time
        self._joined: list[Piece] = []  # joined because a row between them was removed
        self._reused_count = 0  # leading pieces reused from the last request
        self._breakpoint_rows = set(body.breakpoint_rows())
        rebuilt = {*self._changes, *self._variable_rows, *self._before_removed}
        self._repaired, self._varying = repaired_rows(body, state, context, rebuilt)
        self.end_repair = self._repair_end(context) if context.policy.repair else EndRepair()
        if not self._repaired.keys().isdisjoint(self.end_repair.changed_rows()):
            rebuilt |= self.end_repair.changed_rows()
            self._repaired, self._varying = repaired_rows(body, state, context, rebuilt)
            self.end_repair = self._repair_end(context)
        self._end_rows = self.end_repair.changed_rows()

    def _place_own_breakpoint(self, context: Context) -> None:
        """Place a cache breakpoint before the last epoch, where one more is allowed."""
        state = self._state
        if state.sent.cut <= 0 or not context.rates.has_spare_breakpoint:
            return
        placed = own_breakpoint(
            self._body,
            state.transcript,
            sources=state.repairs.sources,
            cut=state.sent.cut,
            is_gone=self._is_gone,
        )
        if placed is not None:
            row = placed.ref.row
            change = self._changes.get(row, RowChanges())
            change = replace(change, breakpoints=(*change.breakpoints, placed))
            self._changes = {**self._changes, row: change}
            self._variable_rows = {*self._variable_rows, row}

    def _is_gone(self, part: int) -> bool:
        """Return whether a part is removed and cannot carry a breakpoint."""
        state = self._state
        return part in state.edits.claimed and not isinstance(
            state.edits.by_part.get(part), Replace
        )

    def pieces(self) -> list[Piece]:
        """The messages in order; runs of untouched ones are named by range."""
        sources, inserts = self._state.repairs.sources, self.end_repair.inserts
        touched = self._changes.keys() | self._repaired.keys() | self._end_rows
        stops = sorted(touched | inserts.keys())
        pieces, start = self._settled()
        first_breakpoint = min(self._breakpoint_rows & touched, default=len(sources))
        row, seam, stable = start, False, (start, 0, SourceRun(0, 0))
        for stop in stops[bisect_left(stops, row) :]:
            if row < stop:
                is_stable = stop <= first_breakpoint and (not seam or stop - row >= _SEAM_ROWS)
                self._append_untouched(pieces, row, stop, seam)
                seam = False
                stable = (stop, len(pieces), pieces[-1]) if is_stable else stable
            piece = self._changed_piece(stop) if stop in touched else self._source_run(stop)
            seam = piece is None or seam
            if piece is not None:
                self._append(pieces, piece, seam=seam)
                if stop in self._variable_rows:
                    self._encoded_anew[stop] = piece
                for message in inserts.get(stop, ()):
                    self._append(pieces, NewMessage(None, message), seam=False)
                seam = False
            row = stop + 1
        if start < row <= len(sources) - _SEAM_ROWS:
            self._append_untouched(pieces, row, row + _SEAM_ROWS, seam)
            row, seam = row + _SEAM_ROWS, False
            self._settle(pieces, row)
        elif stable[0] - start >= _MIN_SETTLED_ROWS:
            self._settle([*pieces[: stable[1] - 1], stable[2]], stable[0])
        if row < len(sources):
            self._append_untouched(pieces, row, len(sources), seam)
        self._close_run(pieces)
        return pieces

    def _settled(self) -> tuple[list[Piece], int]:
        """The pieces reused from the last request, and the first row after them."""
        known, boundaries = self._state.rendered.shared.settled, self._state.prefix.boundaries
        if known is None or not self._can_settle(known.end):
            return [], 0
        if len(boundaries) < known.steps or boundaries[known.steps - 1] != known.prefix:
            return [], 0  # they belong to another history with the same beginning
        if known.first_recurring != self._first_recurring(known.end):
            return [], 0  # the repair of the end has changed
        if not self._breakpoint_rows.isdisjoint(
            known.changed_sources
        ) or not self._rebuild_variable_rows(known):
            return [], 0
        pieces = list(known.pieces)
        for row, at in known.variable_pieces.items():
            pieces[at] = self._encoded_anew[row]
        self._reused_count = len(pieces)
        return pieces, known.end

    def _rebuild_variable_rows(self, known: SettledRows) -> bool:
        """Encode the variable rows again; return whether the settled pieces can hold them."""
        if any(row < known.end and row not in known.variable_pieces for row in self._variable_rows):
            return False
        for row in known.variable_pieces:
            piece = self._changed_piece(row) if row in self._changes else None
            if piece is None or isinstance(piece, SourceRun):
                return False
            self._encoded_anew[row] = piece
        return True

    def _first_recurring(self, end: int) -> int:
        """The first row of a recurring repair of the end; `end`: there is none before it.

        While that row is changed, all rows after it that were changed stay changed.
        """
        return min(next(iter(self.end_repair.recurring_changes), end), end)

    def _can_settle(self, end: int) -> bool:
        """Return whether only an edit can change the rows before this one."""
        changing = (self.end_repair.changes, self.end_repair.inserts)
        return not self._state.repairs.steps and not any(
            row < end for rows in changing for row in rows
        )

    def _settle(self, pieces: Sequence[Piece], end: int) -> None:
        """Store the pieces of the rows before this one, with their bytes."""
        state, variable = self._state, self._variable_pieces(pieces, end)
        if variable is None or not self._can_settle(end):
            return
        encoded = [
            one if isinstance(one, SourceRun) else self._encoded_piece(one) for one in pieces
        ]
        untouched = {
            at for one in pieces if isinstance(one, SourceRun) for at in range(one.start, one.stop)
        }
        changed_sources = frozenset(set(range(end)) - untouched)
        if self._breakpoint_rows.isdisjoint(changed_sources) and None not in encoded:
            settled = tuple(one for one in encoded if one is not None)
            state.rendered.shared.settled = SettledRows(
                end=end,
                pieces=settled,
                changed_sources=changed_sources,
                steps=len(state.prefix.boundaries),
                prefix=state.prefix.hash,
                variable_pieces=variable,
                first_recurring=self._first_recurring(end),
            )

    def _variable_pieces(self, pieces: Sequence[Piece], end: int) -> dict[int, int] | None:
        """Positions of the pieces of variable rows before this one; None: a row has no own piece.

        A row that was joined to another one cannot be replaced alone.
        """
        rows = [row for row in self._variable_rows if row < end]
        if not rows:
            return {}
        joined = set(map(id, self._joined))
        places = {id(one): at for at, one in enumerate(pieces) if id(one) not in joined}
        found: dict[int, int] = {}
        for row in rows:
            at = places.get(id(self._encoded_anew.get(row)))
            if at is None:
                return None
            found[row] = at
        return found

    def _encoded_piece(self, piece: NewMessage) -> NewMessage | None:
        """A changed message as bytes; None: the body has no bytes and cannot share messages."""
        encoded = piece.encoded
        if encoded is None:
            encoded = self._body.encode(piece.source, piece.message)
        if encoded is None:
            return piece if self._body.can_share else None
        return NewMessage(piece.source, None, encoded)

    def limit_breakpoints(
        self, pieces: list[Piece], context: Context
    ) -> tuple[list[Piece], list[Repair]]:
        """Limit the cache breakpoints to the number and order that the provider accepts."""
        at_rows = set(self._body.breakpoint_rows()) | self._own_breakpoints()
        if not at_rows:
            return pieces, []
        wanted = self._pieces_with_breakpoints(pieces, at_rows)
        limited = context.provider.repairer.limit_breakpoints(wanted, context.fields)
        if limited is None:
            return pieces, []
        singles = [one for piece in pieces for one in split_run(piece, at_rows)]
        sources = [one.start if isinstance(one, SourceRun) else one.source for one in singles]
        for number, message in limited.changes.items():
            singles[number] = NewMessage(sources[number], message)
        return singles, [one.with_source_place(sources) for one in limited.repairs]

    def _pieces_with_breakpoints(
        self, pieces: list[Piece], at_rows: set[int]
    ) -> list[tuple[int, JSON]]:
        """The messages that may carry breakpoints, by their index once runs are split."""
        wanted, found, number = sorted(at_rows), list[tuple[int, JSON]](), 0
        for at, piece in enumerate(pieces):
            if isinstance(piece, SourceRun):
                first = bisect_left(wanted, piece.start)
                if first < len(wanted) and wanted[first] < piece.stop:
                    run = split_run(piece, at_rows)
                    found += [
                        (number + n, self._last_message(one))
                        for n, one in enumerate(run)
                        if isinstance(one, SourceRun) and one.start in at_rows
                    ]
                    number += len(run) - 1
            elif piece.source in at_rows or (at >= self._reused_count and _has_breakpoints(piece)):
                found.append((number, self._last_message(piece)))
            number += 1
        return found

    def _own_breakpoints(self) -> set[int]:
        """The source messages on which edits place a breakpoint."""
        rows = (row for row in self._variable_rows if self._changes[row].breakpoints)
        return {source for row in rows if (source := self._state.repairs.sources[row]) is not None}

    def _source_run(self, row: int) -> Piece:
        source = self._state.repairs.sources[row]
        assert source is not None  # inserted rows are in `_repaired`
        return SourceRun(source, source + 1)

    def _append_untouched(self, pieces: list[Piece], row: int, stop: int, seam: bool) -> None:
        """Add untouched rows, in as few runs of neighbouring source messages as possible."""
        if seam:
            self._append(pieces, self._source_run(row), seam=True)
            row += 1
        sources = self._state.repairs.sources
        while row < stop:
            first = sources[row]
            assert first is not None  # as in _source_run
            end = stop
            if self._state.repairs.steps:  # repair may have moved or dropped a message between
                end = row + 1
                while end < stop and sources[end] == first + end - row:
                    end += 1
            self._append(pieces, SourceRun(first, first + end - row), seam=False)
            row = end

    def _message(self, row: int) -> JSON:
        """The message of any row of the repaired history."""
        if row in self._repaired:
            return self._repaired[row]
        source = self._state.repairs.sources[row]
        return None if source is None else self._body.message(source)

    def _repair_end(self, context: Context) -> EndRepair:
        """The repair of the end of the history."""
        count = len(self._state.repairs.sources)
        return (
            context.provider.repairer.repair_end(
                self._state.repairs.rule_state, count, self._message, context.fields
            )
            or EndRepair()
        )

    def shortened(self) -> dict[int, str]:
        """The messages of which the repair of the end left something out, by row."""
        changed = self.end_repair.changes
        return shortened_messages({row: self._message(row) for row in changed}, [*changed.values()])

    def _changed_piece(self, row: int) -> Piece | None:
        """The row with its repairs and edits; None if they remove all of it."""
        plain = self._can_remember(row)
        known = self._row_cache(row).get(row) if plain else None
        if known is None:
            return self._rebuild(row, remember=plain)
        source = self._state.repairs.sources[row]
        if source is not None:
            self._cached_rows[source] = row
        return NewMessage(source, None, known) if known != _REMOVED_ROW else None

    def _row_cache(self, row: int) -> dict[int, bytes]:
        """The cache for the bytes of a row."""
        return (
            self._state.rendered.encoded_at_end
            if row in self._end_rows
            else self._state.rendered.encoded
        )

    def _can_remember(self, row: int) -> bool:
        """Return whether a row has the same bytes in every request, until an edit changes them.

        A row that may be joined to another one must be one that can be rebuilt.
        """
        source = self._state.repairs.sources[row]
        return (
            row not in self.end_repair.changes  # they differ when the history ends elsewhere
            and row not in self._variable_rows
            and row not in self._varying
            and source not in self._breakpoint_rows
            and (
                row not in self._before_removed
                or (source is not None and row not in self._repaired)
            )
        )

    def _rebuild(self, row: int, *, remember: bool) -> Piece | None:
        source = self._state.repairs.sources[row]
        message = self.end_repair.message(row) if row in self._end_rows else self._message(row)
        change = self._changes.get(row)
        if change is not None:
            message = apply_row_changes(self._codec, message, change, self._state.transcript.parts)
        if message is None:
            if remember:
                self._row_cache(row)[row] = _REMOVED_ROW
                if source is not None and row not in self._repaired:
                    self._body.forget(source, source + 1)
            return None
        if source is not None and message is self._body.message(source):
            return self._source_run(row)
        encoded = self._body.encode(source, message)
        if remember and encoded is not None:
            self._row_cache(row)[row] = encoded
            if source is not None and row not in self._repaired and row not in self._end_rows:
                self._cached_rows[source] = row  # from here it can be rebuilt
                self._body.forget(source, source + 1)
                message = None
        return NewMessage(source, message, encoded)

    def _append(self, pieces: list[Piece], piece: Piece, *, seam: bool) -> None:
        """Add a row; at a seam, join it to the row before if a removed row separated them."""
        if seam and pieces and self._join(pieces, piece):
            return
        self._close_run(pieces)
        last = pieces[-1] if pieces else None
        if (
            isinstance(piece, SourceRun)
            and isinstance(last, SourceRun)
            and last.stop == piece.start
        ):
            pieces[-1] = SourceRun(last.start, piece.stop)
        else:
            pieces.append(piece)

    def _join(self, pieces: list[Piece], piece: Piece) -> bool:
        """Join two new neighbours if the provider requires it; return whether it does."""
        before = self._run[-1] if self._run else self._last_message(pieces[-1])
        if self._codec.join(before, self._last_message(piece)) is None:
            return False  # their encoding does not matter
        self._joined += (pieces[-1], piece)
        piece = self._with_message(piece)
        if self._run:
            self._run.append(self._last_message(piece))
            return True
        last = self._with_message(pieces.pop())
        before, after = self._last_message(last), self._last_message(piece)
        joined = self._codec.join(before, after) or ()
        if isinstance(last, SourceRun) and last.stop - last.start > 1:
            pieces.append(SourceRun(last.start, last.stop - 1))
            last = SourceRun(last.stop - 1, last.stop)
        source = last.start if isinstance(last, SourceRun) else last.source
        for message in joined:
            if message is before:
                pieces.append(last)
            elif message is after:
                pieces.append(piece)
            else:
                merged = not any(one is before for one in joined)
                pieces.append(NewMessage(source if merged else None, message))
                self._run = [before, after] if merged else []
        return True

    def _close_run(self, pieces: list[Piece]) -> None:
        """Merge a complete run into one message, once for the whole run."""
        last = pieces[-1] if self._run else None
        if isinstance(last, NewMessage) and len(self._run) > 2:
            pieces[-1] = NewMessage(last.source, self._codec.merge(self._run))
        self._run = []

    def _with_message(self, piece: Piece) -> Piece:
        """A piece with its message, whose unchanged blocks keep their bytes."""
        if (
            isinstance(piece, SourceRun)
            or piece.message is not None
            or piece.source not in self._cached_rows
        ):
            return piece
        return self._rebuild(self._cached_rows[piece.source], remember=False) or piece

    def _last_message(self, piece: Piece) -> JSON:
        """The last message of a piece."""
        if isinstance(piece, SourceRun):
            return self._body.message(piece.stop - 1)
        if piece.message is None and piece.encoded is not None:
            return msgspec.json.decode(piece.encoded)
        return piece.message


def _has_breakpoints(piece: Piece) -> bool:
    """Return whether a piece has breakpoints on a block that was moved into it."""
    return isinstance(piece, NewMessage) and count_breakpoints(piece.message) > 0
