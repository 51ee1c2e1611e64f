"""The smallest change that makes Anthropic Messages accept a history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from ..check.anthropic import (
    AnthropicRules,
    Run,
    blocks_of,
    ends_in_white_space,
    last_run,
    needs_user_end,
    thinks_when_disabled,
    type_of,
)
from ..check.anthropic_request import (
    MOST_MARKS,
    empty_marked,
    holds_mark_in_vain,
    is_automatic,
    is_long,
    marks_of_head,
    marks_of_message,
)
from ..check.rules import Seen, Step
from ..codecs.anthropic import REASONING
from ..codecs.codec import Fields
from ..codecs.json_tree import JSON, Object, get, put, without
from ..codecs.marks import strip_marks
from ..transcript import Path
from .anthropic_blocks import text_block, user_message, with_blocks, without_thinking
from .anthropic_step import StepMending
from .mending import Ending, Mended, Repair
from .words import BLANK, CONTINUE

_RULES = AnthropicRules()
REPAIRED = frozenset(
    {"A0", "A1", "A2", "A3", "A4", "A6", "A7", "A8", "A9", "A11", "A15", "A16", "A18"}
)


class AnthropicMender:
    """Anthropic's repairs."""

    def repair_step(self, step: Step, state: Seen, fields: Fields | None) -> Mended | None:
        """The mended step, or None when nothing is broken."""
        problems = _RULES.check_step(step, state, fields)
        if not any(p.severity == "error" and p.code in REPAIRED for p in problems):
            return None
        mending = StepMending(step, state)
        return Mended(mending.rows(), mending.repairs)

    def repair_end(
        self, state: Seen, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> Ending | None:
        """A history that ends on words of the assistant gets a user turn, where it needs one."""
        if fields is None or not count:
            return None
        run = last_run(count, message_at)
        if run.stop < count:
            return None
        ending = Ending()
        if thinks_when_disabled(run, count, fields):
            run = _end_without_thinking(ending, run, message_at)
        last = count - 1
        if needs_user_end(run, state, fields):
            message = ending.changes.get(last, message_at(last))
            if not blocks_of(message) or cast(Object, message)["content"] == "":
                ending.changes[last] = put(message, ("content",), [text_block(BLANK)])
            ending.inserts[last] = [user_message(CONTINUE)]
            ending.repairs.append(Repair("A7", f"messages[{last}]", "put a user message behind it"))
        elif ends_in_white_space(run, fields):
            ending.changes[last] = _trimmed(ending.changes.get(last, message_at(last)))
            ending.repairs.append(
                Repair("A7", f"messages[{last}]", "cut the white space at its end")
            )
        return ending if ending.repairs else None

    def limit_breakpoints(
        self, rows_with_breakpoints: Sequence[tuple[int, JSON]], fields: Fields | None
    ) -> Ending | None:
        """Marks only where they may stand, the newest four, none longer than those before."""
        rows = _MarkedRows(dict(rows_with_breakpoints))
        for row, message in rows_with_breakpoints:
            if holds_mark_in_vain(message):
                rows.change(row, strip_marks(message), "A16", "took off the cache mark")
            rows.strip_empty(row)
        head = marks_of_head(fields or {})
        room = MOST_MARKS - len(head) - is_automatic(fields or {})
        if room >= 0:
            rows.keep_newest(room)
        rows.shorten(all(is_long(mark) for _, mark in head))
        return Ending(rows.changes, {}, rows.repairs) if rows.repairs else None


def _end_without_thinking(ending: Ending, run: Run, message_at: Callable[[int], JSON]) -> Run:
    """The last run without its thinking."""
    for at in range(run.start, run.stop):
        message = message_at(at)
        blocks = blocks_of(message)
        if any(type_of(block) in REASONING for block in blocks):
            ending.changes[at] = with_blocks(message, without_thinking(blocks))
    ending.repairs.append(Repair("A11", f"messages[{run.start}]", "dropped the turn's thinking"))
    return last_run(run.stop, lambda at: ending.changes.get(at, message_at(at)))


def _trimmed(message: JSON) -> JSON:
    """The message without white space at its end."""
    content = cast(Object, message)["content"]
    if isinstance(content, str):
        return put(message, ("content",), content.rstrip())
    end = len(cast(list[JSON], content)) - 1
    said = cast(str, get(message, ("content", end, "text")))
    return put(message, ("content", end, "text"), said.rstrip())


class _MarkedRows:
    """The rows that carry cache marks, while marks are taken off them."""

    def __init__(self, messages: dict[int, JSON]) -> None:
        self._messages = messages
        self.changes: dict[int, JSON] = {}
        self.repairs: list[Repair] = []

    def change(self, row: int, message: JSON, code: str, done: str) -> None:
        self._messages[row] = self.changes[row] = message
        self.repairs.append(Repair(code, f"messages[{row}]", done))

    def _breakpoints(self) -> list[tuple[int, Path, Object]]:
        return [
            (row, path, mark)
            for row, message in self._messages.items()
            for path, mark in marks_of_message(message)
        ]

    def strip_empty(self, row: int) -> None:
        """Take the marks off texts inside results that are empty."""
        for path in empty_marked(self._messages[row]):
            bare = without(self._messages[row], (*path, "cache_control"))
            self.change(row, bare, "A6", "took the cache mark off an empty text")

    def keep_newest(self, room: int) -> None:
        """Take the oldest marks off until no more than `room` are left."""
        marks = self._breakpoints()
        for row, path, _ in marks[: max(len(marks) - room, 0)]:
            bare = without(self._messages[row], (*path, "cache_control"))
            self.change(row, bare, "A21", "took off an old cache mark beyond the fourth")

    def shorten(self, long: bool) -> None:
        """Let no mark last longer than one before it; `long`: no short one stood before."""
        for row, path, mark in self._breakpoints():
            if is_long(mark) and not long:
                short = without(self._messages[row], (*path, "cache_control", "ttl"))
                self.change(row, short, "A21", "let the mark last 5m, as the one before it")
            long = long and is_long(mark)
