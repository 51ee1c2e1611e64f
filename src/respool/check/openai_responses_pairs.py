"""Ids in OpenAI Responses: items' own, and which output answers which call.

Outputs name their calls by call_id, over the whole input.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Literal, cast

from ..codecs.json_tree import JSON, Object, digest
from ..codecs.openai_responses import CALLS, KNOWN, OUTPUTS, answered_id, kind_of, named_id
from .rules import Seen, Step

PREFIXES = {"reasoning": "rs", "function_call": "fc", "message": "msg"}
_NO_OWN_ID = frozenset({"item_reference", "local_shell_call_output"})
# Items that rules of their own look at; of the others only the ids and the order are judged.
_PLAIN = KNOWN - {
    *_NO_OWN_ID,
    "local_shell_call",
    "tool_search_call",
    "tool_search_output",
    "mcp_approval_response",
    "compaction_trigger",
}
LONGEST_ID = 64
_LONGEST_STEM = 56  # what a repeat's number is put behind

Stray = Literal["orphan", "second", "alone"]


def own_id(item: JSON) -> str | None:
    """The id by which the API tells this item from all others."""
    kind = kind_of(item)
    id = item.get("id") if kind in KNOWN and kind not in _NO_OWN_ID else None
    return id if isinstance(id, str) else None


def has_sound_prefix(item: Object, kind: str) -> bool:
    """Whether the item's id is missing, or begins as ids of its type do."""
    id = item.get("id")
    if id is None or kind not in PREFIXES:
        return True
    return isinstance(id, str) and id.startswith(PREFIXES[kind])


def is_plain(step: Step, kinds: Sequence[str], state: Seen) -> bool:
    """Whether it shows at a glance that no rule on ids, pairs or order is broken here.

    Nearly every step is plain, and judged in one pass; of any other nothing is said.
    """
    own: set[str] = set()
    asked: dict[str, str] = {}  # call id -> type of the call, "" once it is answered
    for item, kind in zip(step.messages, kinds, strict=True):
        if kind not in _PLAIN:
            return False
        if item.get("id") is not None and not _is_new(item, kind, own, state):
            return False
        if kind in CALLS:
            if not _asks(item.get("call_id"), kind, asked, state):
                return False
        elif kind in OUTPUTS and not _answers(item.get("call_id"), kind, asked):
            return False
    return not step.model_count or kinds[step.model_count - 1] != "reasoning"


def _is_new(item: Object, kind: str, own: set[str], state: Seen) -> bool:
    """Whether the item's own id is sound and no earlier item's."""
    id = item["id"]
    if not isinstance(id, str) or id in own or f"id {id}" in state.item_rows:
        return False
    own.add(id)
    return has_sound_prefix(item, kind)


def _asks(id: object, kind: str, asked: dict[str, str], state: Seen) -> bool:
    """Whether a call's id is sound and no earlier call's."""
    if not isinstance(id, str) or not 0 < len(id) <= LONGEST_ID or id in asked or id in state.call_counts:
        return False
    asked[id] = kind
    return True


def _answers(id: object, kind: str, asked: dict[str, str]) -> bool:
    """Whether an output is the first one for a call of its type in this step."""
    if not isinstance(id, str) or asked.get(id) != OUTPUTS[kind][0]:
        return False
    asked[id] = ""
    return True


def sound_id(id: object) -> str:
    """The call id that an id stands for: itself, or a short one made from it."""
    if not isinstance(id, str) or not id:
        return "call_unknown"
    return id if len(id) <= LONGEST_ID else f"call_{digest(id)}"


def stem_of(id: str) -> str:
    """What the number of a repeat is put behind, so that the whole stays short enough."""
    return id if len(id) <= _LONGEST_STEM else f"call_{digest(id)}"


def repeat_of(stem: str, times: int) -> str:
    """The id of an item or call whose id has been used so many times."""
    return f"{stem}_{times + 1}"


def is_paired(item: Object, kind: str) -> bool:
    """Whether this call or output belongs to a pair; a tool search of the server's does not."""
    if kind not in ("tool_search_call", "tool_search_output"):
        return kind in CALLS or kind in OUTPUTS
    return isinstance(item.get("call_id"), str) and item.get("execution") != "server"


class Pairing:
    """Which call each output of a step answers, under ids that are sound and not yet taken.

    On a step that is in order every id stands for itself. A local shell's call may be named by its
    own id too, unless it is among those that lose it (`unbound`).
    """

    def __init__(self, step: Step, state: Seen, unbound: Collection[int] = ()) -> None:
        self.ids: dict[int, str] = {}  # by offset: a call's id, or the id of the call answered
        self.asked: dict[int, str] = {}  # by offset of an output: the type of the call
        self.strays: dict[int, Stray] = {}  # by offset of an output: why it answers no call
        self._seen = state
        self._repeats: dict[str, int] = {}
        self._kinds: dict[str, str] = {}  # of this step's calls
        self._waiting: dict[str, deque[str]] = {}
        self._answered: set[str] = set()
        self._unbound = unbound
        self._own: dict[str, deque[str]] = {}  # own id of a local shell's call -> call ids
        self._kept: set[str] = set()  # call ids of those that keep their own id
        self._by_own: set[int] = set()  # offsets where a call is named by its own id, and may be
        self._shown: set[str | None] = set()  # own ids so far in this step
        self.foreign: set[str] = set()  # call ids of items of unknown type: outputs may name them
        self._wanted = {
            _said(named_id(cast(Object, item))) for item in step.model if kind_of(item) in CALLS
        }
        for offset, item in enumerate(step.messages):
            kind = kind_of(item)
            if kind in CALLS and is_paired(cast(Object, item), kind):
                self._add_call(offset, cast(Object, item), kind)
            elif kind in OUTPUTS and is_paired(cast(Object, item), kind):
                self._add_output(offset, cast(Object, item))
            elif kind not in KNOWN and kind:
                self.foreign.update(_foreign_ids(cast(Object, item)))
            self._shown.add(own_id(item))

    def name(self, offset: int, text: JSON) -> JSON:
        """What has to stand where this item, which says `said` there, names its call."""
        return text if offset in self._by_own else self.ids.get(offset, text)

    def _add_call(self, offset: int, item: Object, kind: str) -> None:
        said = named_id(item)
        id = self._free(sound_id(said))
        self.ids[offset] = id
        self._kinds[id] = kind
        self._waiting.setdefault(_said(said), deque()).append(id)
        if kind == "local_shell_call" and (own := own_id(item)):
            self._own.setdefault(own, deque()).append(id)
            if offset not in self._unbound and not self._is_shown(own):
                self._kept.add(id)
                if own == id and item.get("call_id") is None:
                    self._by_own.add(offset)

    def _is_shown(self, own: str) -> bool:
        return own in self._shown or f"id {own}" in self._seen.item_rows

    def _free(self, id: str) -> str:
        """The id itself while it is free, else its next repeat."""
        if id not in self._seen.call_counts and id not in self._kinds:
            return id
        stem = stem_of(id)
        before = max(self._seen.call_counts.get(stem, 0), 1)
        times = before + self._repeats.get(stem, 0)
        while self._is_taken(new := repeat_of(stem, times)):
            times += 1
        self._repeats[stem] = times - before + 1
        return new

    def _is_taken(self, id: str) -> bool:
        return id in self._seen.call_counts or id in self._kinds or id in self._wanted

    def _add_output(self, offset: int, item: Object) -> None:
        said = answered_id(item)
        id = sound_id(said)
        if waiting := self._first(self._waiting.get(said)):
            self._pair(offset, waiting)
        elif id in self._seen.open_calls and id not in self._answered:
            self._pair(offset, id)
        elif called := self._called_by_own(item, said):
            if called in self._kept or called not in self._kinds:
                self._by_own.add(offset)
            self._pair(offset, called)
        elif said in self.foreign or f"foreign {said}" in self._seen.item_rows:
            return
        elif said in self._waiting or (said and id in self._seen.call_counts):
            self.strays[offset] = "second"
        else:
            alone = item.get("call_id") is None and isinstance(item.get("name"), str)
            self.strays[offset] = "alone" if alone else "orphan"

    def _first(self, waiting: deque[str] | None) -> str | None:
        """The first of these calls that is not answered yet."""
        while waiting:
            id = waiting.popleft()
            if id not in self._answered:
                return id
        return None

    def _called_by_own(self, item: Object, text: str) -> str | None:
        """The call id of a local shell's call whose own id this output names."""
        if item.get("type") != "local_shell_call_output":
            return None
        if text in self._own:
            return self._first(self._own[text])
        row = self._seen.item_rows.get(f"id {text}")
        if row is None:
            return None
        here = (id for id, at in self._seen.open_calls.items() if at == row)
        return next((id for id in here if self._is_open_shell(id)), None)

    def _is_open_shell(self, id: str) -> bool:
        return id not in self._answered and f"local_shell_call {id}" in self._seen.item_rows

    def _pair(self, offset: int, id: str) -> None:
        self._answered.add(id)
        self.ids[offset] = id
        asked = self._kinds.get(id)
        self.asked[offset] = asked or next(k for k in CALLS if f"{k} {id}" in self._seen.item_rows)


def _said(id: object) -> str:
    return id if isinstance(id, str) else ""


def _foreign_ids(item: Object) -> set[str]:
    """The call id of an item of unknown type that is no output."""
    id = item.get("call_id")
    is_output = str(item.get("type")).endswith("_output")
    return {id} if isinstance(id, str) and id and not is_output else set()
