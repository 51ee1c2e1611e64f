"""What edits and repair make of single rows of a history."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

from .check.rules import Step
from .codecs.body import Body
from .codecs.codec import Codec
from .codecs.json_tree import JSON
from .edits import Advise, DropExchange, DropReasoning, PlaceMark, Replace
from .folding.state import MendedStep, RowChanges, Setting, State
from .marker import advised
from .touching import touched
from .transcript import Index, Part


def changes_of(state: State) -> dict[int, RowChanges]:
    """The edits in force by row, sorted out anew only when there are others."""
    outgoing = state.rendered
    if outgoing.changes is None:
        changes = changes_by_row(state)
        outgoing.variable_rows = frozenset(_spelled_each_time(changes, state.index.parts))
        outgoing.rows_before_removed = frozenset(row - 1 for row, one in changes.items() if one.removed)
        outgoing.changes = changes
    return outgoing.changes


def changes_by_row(state: State) -> dict[int, RowChanges]:
    """The edits in force, sorted by the rows they touch."""
    found: defaultdict[int, RowChanges] = defaultdict(RowChanges)
    gone: set[int] = set()
    for edit in state.edits.values():
        match edit:
            case Replace():
                found[edit.ref.row].replaced += (edit,)
            case PlaceMark():
                found[edit.ref.row].marked += (edit,)
            case DropExchange():
                gone.update(touched(edit, state.index))
                _unbind(found, state.index, state.index.exchanges[edit.exchange].unit)
            case DropReasoning():
                gone.update(touched(edit, state.index))
                _unbind(found, state.index, edit.unit)
            case Advise():  # stands beside these
                continue
            case _:
                assert_never(edit)
    for advice in state.advice.values():
        found[advice.ref.row].advised += (advice,)
    for position in sorted(gone):
        part = state.index.parts[position]
        found[part.ref.row].removed += (part,)
    return dict(found)


def _spelled_each_time(changes: Mapping[int, RowChanges], parts: Sequence[Part]) -> set[int]:
    """Edited rows whose bytes cannot be remembered.

    A mark of ours may be taken off again, and words may be spelled in another way next time.
    """
    return {
        row
        for row, change in changes.items()
        if change.marked or any(parts[edit.part].kind == "text" for edit in change.replaced)
    }


def _unbind(found: defaultdict[int, RowChanges], index: Index, number: int) -> None:
    """What the model wrote in a unit that loses its reasoning must not refer to it any more."""
    unit = index.units[number]
    if unit.reasoning:
        for part in index.parts[unit.parts[0] : unit.answers_from]:
            found[part.ref.row].unbound = True


def mended_rows(
    body: Body, state: State, setting: Setting, rebuilt: Collection[int]
) -> tuple[dict[int, JSON], set[int]]:
    """Rows that repair changed, and those among them that each request may spell in its own way.

    Steps that carry marks, or rows that are rebuilt, are mended anew, from this request's own
    messages: so the bytes of what they leave alone are this request's, whatever was remembered.
    """
    rows: dict[int, JSON] = {}
    varying: set[int] = set()
    marked = body.breakpoint_rows() if state.mended else ()
    for record in state.mended:
        first = bisect_left(marked, record.at)
        carries = first < len(marked) and marked[first] < record.at + record.length
        known = all(row in state.encoded and row not in rebuilt for row in record.changed)
        varies = carries or record.is_variable
        changed = record.changed if known and not varies else _mend_again(body, record, setting)
        rows.update(changed)
        if varies:
            varying.update(changed)
    return rows, varying


def _mend_again(body: Body, record: MendedStep, setting: Setting) -> dict[int, JSON]:
    messages = [body.message(at) for at in range(record.at, record.at + record.length)]
    step = Step(messages, record.at, record.split)
    mended = setting.repairer.repair_step(step, record.seen, setting.fields)
    return {
        record.row + offset: row.message
        for offset, row in enumerate(mended.rows if mended else ())
        if row.source is None or row.message is not messages[row.source - record.at]
    }


def change_row(
    codec: Codec, message: JSON, change: RowChanges, parts: Sequence[Part]
) -> JSON | None:
    """One message with its edits: texts replaced, advice added, marks placed, parts removed.

    Images and files come first: where they stand may shift when a text beside them changes.
    """
    lines = {one.part: one.text for one in change.advised}
    for edit in sorted(change.replaced, key=lambda one: parts[one.part].kind != "media"):
        line = lines.pop(edit.part, None)
        text = edit.text if line is None else advised(edit.text, line)
        message = codec.replace(message, parts[edit.part], text)
    for part, line in lines.items():
        message = codec.replace(message, parts[part], advised(parts[part].text, line))
    for edit in change.marked:
        message = codec.place_breakpoint(message, parts[edit.part], edit.mark)
    if change.unbound:
        message = codec.unbind(message)
    return codec.remove(message, change.removed) if change.removed else message
