"""The messages of the output: source rows as they are, mended rows, and rows with edits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import replace

from .codecs.body import Body, Changed, Kept, Piece, apart
from .codecs.json_tree import JSON
from .codecs.marks import marks_in
from .edits import Replace
from .folding.state import RowChanges, Setting, Settled, State
from .planning.marking import own_mark
from .repair.mending import Ending, Repair
from .rows import change_row, changes_of, mended_rows

_NOTHING = b""  # what is remembered of a row of which nothing is left
_APART = 2  # untouched rows: one may be joined to what is before, the next one never is
_WORTH = 32  # rows that are settled at once where every other one is touched


def project(body: Body, state: State, setting: Setting) -> tuple[list[Piece], list[Repair]]:
    """The output's messages in order, and what the end of the history needed."""
    projection = _Projection(body, state, setting)
    pieces = projection.pieces()
    if not setting.policy.repair:
        return pieces, []
    pieces, limited = projection.limit_breakpoints(pieces, setting)
    ended = [one.with_source_place(state.sources) for one in projection.ending.repairs]
    return pieces, [*ended, *limited]


class _Projection:
    """One request's rows on their way out."""

    def __init__(self, body: Body, state: State, setting: Setting) -> None:
        self._body = body
        self._state = state
        self._codec = setting.codec
        self._changes = changes_of(state)
        self._spelled_anew: Collection[int] = state.rendered.variable_rows
        self._before_gone = state.rendered.rows_before_removed
        self._place_own_breakpoint(setting)
        self._known: dict[int, int] = {}  # rows whose bytes were remembered, by source message
        self._run: list[JSON] = []  # the messages that the last piece is to be made of, if several
        self._anew: dict[int, Piece] = {}  # what rows went out as that are spelled each time
        self._joined: list[Piece] = []  # what was put together because a row between vanished
        self._same = 0  # how many pieces are those of the last time, the ones spelled anew aside
        self._marked = set(body.breakpoint_rows())
        rebuilt = {*self._changes, *self._spelled_anew, *self._before_gone}
        self._repaired, self._varying = mended_rows(body, state, setting, rebuilt)
        self.ending = self._end(setting) if setting.policy.repair else Ending()
        if not self._repaired.keys().isdisjoint(self.ending.changed_rows()):
            rebuilt |= self.ending.changed_rows()
            self._repaired, self._varying = mended_rows(body, state, setting, rebuilt)
            self.ending = self._end(setting)
        self._ended = self.ending.changed_rows()

    def _place_own_breakpoint(self, setting: Setting) -> None:
        """Mark the end of the prefix before the last epoch, where one more mark fits."""
        state = self._state
        if state.cut <= 0 or not setting.rates.has_spare_breakpoint:
            return
        mark = own_mark(self._body, state.index, state.sources, state.cut, self._is_gone)
        if mark is not None:
            row = mark.ref.row
            change = self._changes.get(row, RowChanges())
            marked = replace(change, marked=(*change.marked, mark))
            self._changes = {**self._changes, row: marked}
            self._spelled_anew = {*self._spelled_anew, row}

    def _is_gone(self, part: int) -> bool:
        """Whether nothing of a part is left to bear a mark."""
        state = self._state
        return part in state.claimed and not isinstance(state.edits.get(part), Replace)

    def pieces(self) -> list[Piece]:
        """The messages in order; runs of untouched ones are only named."""
        sources, inserts = self._state.sources, self.ending.inserts
        touched = self._changes.keys() | self._repaired.keys() | self._ended
        stops = sorted(touched | inserts.keys())
        pieces, start = self._settled()
        first_marked = min(self._marked & touched, default=len(sources))
        row, seam, calm = start, False, (start, 0, Kept(0, 0))
        for stop in stops[bisect_left(stops, row) :]:
            if row < stop:
                is_calm = stop <= first_marked and (not seam or stop - row >= _APART)
                self._keep(pieces, row, stop, seam)
                seam = False
                calm = (stop, len(pieces), pieces[-1]) if is_calm else calm
            piece = self._changed(stop) if stop in touched else self._kept(stop)
            seam = piece is None or seam
            if piece is not None:
                self._append(pieces, piece, seam=seam)
                if stop in self._spelled_anew:
                    self._anew[stop] = piece
                for message in inserts.get(stop, ()):
                    self._append(pieces, Changed(None, message), seam=False)
                seam = False
            row = stop + 1
        if start < row <= len(sources) - _APART:
            self._keep(pieces, row, row + _APART, seam)
            row, seam = row + _APART, False
            self._settle(pieces, row)
        elif calm[0] - start >= _WORTH:
            self._settle([*pieces[: calm[1] - 1], calm[2]], calm[0])
        if row < len(sources):
            self._keep(pieces, row, len(sources), seam)
        self._close_run(pieces)
        return pieces

    def _settled(self) -> tuple[list[Piece], int]:
        """The pieces that are known to be the same as the last time, and the first row after."""
        known, boundaries = self._state.rendered.settled, self._state.boundaries
        if known is None or not self._can_settle(known.end):
            return [], 0
        if len(boundaries) < known.steps or boundaries[known.steps - 1] != known.prefix:
            return [], 0  # of another history that begins in the same way
        if known.lasting != self._first_lasting(known.end):
            return [], 0  # what the end needed there, it needs no more
        if not self._marked.isdisjoint(known.changed_sources) or not self._rebuild_variable_rows(known):
            return [], 0
        pieces = list(known.pieces)
        for row, at in known.variable_pieces.items():
            pieces[at] = self._anew[row]
        self._same = len(pieces)
        return pieces, known.end

    def _rebuild_variable_rows(self, known: Settled) -> bool:
        """Build the rows that are spelled each time, if they are those that were the last time."""
        if any(row < known.end and row not in known.variable_pieces for row in self._spelled_anew):
            return False
        for row in known.variable_pieces:
            piece = self._changed(row) if row in self._changes else None
            if piece is None or isinstance(piece, Kept):
                return False
            self._anew[row] = piece
        return True

    def _first_lasting(self, end: int) -> int:
        """The first row that the end changes as long as it needs that; `end`: none before it is.

        As long as that row is changed, so are all behind it that were.
        """
        return min(next(iter(self.ending.recurring_changes), end), end)

    def _can_settle(self, end: int) -> bool:
        """Whether the rows before this one will be the same in the next request, edits aside."""
        changing = (self.ending.changes, self.ending.inserts)
        return not self._state.mended and not any(row < end for rows in changing for row in rows)

    def _settle(self, pieces: Sequence[Piece], end: int) -> None:
        """Remember the pieces of the rows before this one, all of their bytes included."""
        state, anew = self._state, self._variable_pieces(pieces, end)
        if anew is None or not self._can_settle(end):
            return
        encoded = [one if isinstance(one, Kept) else self._encoded_piece(one) for one in pieces]
        whole = {at for one in pieces if isinstance(one, Kept) for at in range(one.start, one.stop)}
        loose = frozenset(range(end)) - whole
        if self._marked.isdisjoint(loose) and None not in encoded:
            settled = tuple(one for one in encoded if one is not None)
            state.rendered.settled = Settled(
                end, settled, loose, len(state.boundaries), state.prefix, anew,
                self._first_lasting(end),
            )  # fmt: skip

    def _variable_pieces(self, pieces: Sequence[Piece], end: int) -> dict[int, int] | None:
        """Which pieces the rows before this one are that are spelled each time; None: not one each.

        A row that hangs together with another one cannot be put in its place alone.
        """
        rows = [row for row in self._spelled_anew if row < end]
        if not rows:
            return {}
        joined = set(map(id, self._joined))
        places = {id(one): at for at, one in enumerate(pieces) if id(one) not in joined}
        found: dict[int, int] = {}
        for row in rows:
            at = places.get(id(self._anew.get(row)))
            if at is None:
                return None
            found[row] = at
        return found

    def _encoded_piece(self, piece: Changed) -> Changed | None:
        """A changed message as its bytes alone; None: the request has none, and shares nothing."""
        encoded = piece.encoded
        if encoded is None:
            encoded = self._body.encode(piece.source, piece.message)
        if encoded is None:
            return piece if self._body.can_share else None
        return Changed(piece.source, None, encoded)

    def limit_breakpoints(
        self, pieces: list[Piece], setting: Setting
    ) -> tuple[list[Piece], list[Repair]]:
        """The pieces with as many cache marks, in such an order, as the provider takes."""
        at_rows = set(self._body.breakpoint_rows()) | self._own_breakpoints()
        if not at_rows:
            return pieces, []
        marked = self._pieces_with_breakpoints(pieces, at_rows)
        limited = setting.repairer.limit_breakpoints(marked, setting.fields)
        if limited is None:
            return pieces, []
        singles = [one for piece in pieces for one in apart(piece, at_rows)]
        sources = [one.start if isinstance(one, Kept) else one.source for one in singles]
        for number, message in limited.changes.items():
            singles[number] = Changed(sources[number], message)
        return singles, [one.with_source_place(sources) for one in limited.repairs]

    def _pieces_with_breakpoints(self, pieces: list[Piece], at_rows: set[int]) -> list[tuple[int, JSON]]:
        """The messages that may carry marks, by their numbers when those stand apart."""
        wanted, found, number = sorted(at_rows), list[tuple[int, JSON]](), 0
        for at, piece in enumerate(pieces):
            if isinstance(piece, Kept):
                first = bisect_left(wanted, piece.start)
                if first < len(wanted) and wanted[first] < piece.stop:
                    run = apart(piece, at_rows)
                    found += [
                        (number + n, self._last_message(one))
                        for n, one in enumerate(run)
                        if isinstance(one, Kept) and one.start in at_rows
                    ]
                    number += len(run) - 1
            elif piece.source in at_rows or (at >= self._same and _has_marks(piece)):
                found.append((number, self._last_message(piece)))
            number += 1
        return found

    def _own_breakpoints(self) -> set[int]:
        """The source messages that edits put a mark on."""
        rows = (row for row in self._spelled_anew if self._changes[row].marked)
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
        if row in self._repaired:
            return self._repaired[row]
        source = self._state.sources[row]
        return None if source is None else self._body.message(source)

    def _end(self, setting: Setting) -> Ending:
        """What only the end of the history needs."""
        count = len(self._state.sources)
        return (
            setting.repairer.repair_end(self._state.seen, count, self._message, setting.fields) or Ending()
        )

    def _changed(self, row: int) -> Piece | None:
        """The row after all that is done to it; None when nothing of it is left."""
        plain = self._can_remember(row)
        known = self._row_cache(row).get(row) if plain else None
        if known is None:
            return self._rebuilt(row, remember=plain)
        source = self._state.sources[row]
        if source is not None:
            self._known[source] = row
        return Changed(source, None, known) if known != _NOTHING else None

    def _row_cache(self, row: int) -> dict[int, bytes]:
        """Where the bytes of a row are remembered, by row."""
        return self._state.ended if row in self._ended else self._state.encoded

    def _can_remember(self, row: int) -> bool:
        """Whether a row has the same bytes in every request, until an edit changes them.

        One that may be joined to another must be one that can be built again for that.
        """
        source = self._state.sources[row]
        return (
            row not in self.ending.changes  # which say another thing at the next end
            and row not in self._spelled_anew
            and row not in self._varying
            and source not in self._marked
            and (row not in self._before_gone or (source is not None and row not in self._repaired))
        )

    def _rebuilt(self, row: int, *, remember: bool) -> Piece | None:
        source = self._state.sources[row]
        message = self.ending.message(row) if row in self._ended else self._message(row)
        change = self._changes.get(row)
        if change is not None:
            message = change_row(self._codec, message, change, self._state.index.parts)
        if message is None:
            if remember:
                self._row_cache(row)[row] = _NOTHING
            return None
        if source is not None and message is self._body.message(source):
            return self._kept(row)
        encoded = self._body.encode(source, message)
        if remember and encoded is not None:
            self._row_cache(row)[row] = encoded
        return Changed(source, message, encoded)

    def _append(self, pieces: list[Piece], piece: Piece, *, seam: bool) -> None:
        """Add a row; a row that vanished may have left two that must become one."""
        if seam and pieces and self._join(pieces, piece):
            return
        self._close_run(pieces)
        last = pieces[-1] if pieces else None
        if isinstance(piece, Kept) and isinstance(last, Kept) and last.stop == piece.start:
            pieces[-1] = Kept(last.start, piece.stop)
        else:
            pieces.append(piece)

    def _join(self, pieces: list[Piece], piece: Piece) -> bool:
        """Put what must stand there in place of two new neighbours, if they may not stay."""
        before = self._run[-1] if self._run else self._last_message(pieces[-1])
        if self._codec.join(before, self._last_message(piece)) is None:
            return False  # by what they are: so it is however they are spelled
        self._joined += (pieces[-1], piece)
        piece = self._built(piece)
        if self._run:
            self._run.append(self._last_message(piece))
            return True
        last = self._built(pieces.pop())
        before, after = self._last_message(last), self._last_message(piece)
        joined = self._codec.join(before, after) or ()
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
                self._run = [before, after] if merged else []
        return True

    def _close_run(self, pieces: list[Piece]) -> None:
        """Make one message of a run that nothing more is joined to: once, however long it is."""
        last = pieces[-1] if self._run else None
        if isinstance(last, Changed) and len(self._run) > 2:
            pieces[-1] = Changed(last.source, self._codec.merge(self._run))
        self._run = []

    def _built(self, piece: Piece) -> Piece:
        """A piece with its message: only in that, blocks that did not change have their bytes."""
        if isinstance(piece, Kept) or piece.message is not None or piece.source not in self._known:
            return piece
        return self._rebuilt(self._known[piece.source], remember=False) or piece

    def _last_message(self, piece: Piece) -> JSON:
        """The last message of a piece."""
        if isinstance(piece, Kept):
            return self._body.message(piece.stop - 1)
        if piece.message is None and piece.encoded is not None:
            return msgspec.json.decode(piece.encoded)
        return piece.message


def _has_marks(piece: Piece) -> bool:
    """Whether a piece has marks of a block that was moved into it."""
    return isinstance(piece, Changed) and marks_in(piece.message) > 0
