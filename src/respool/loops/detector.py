"""The loop detector for a host's own loop: asked before a call, told what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from ..ranges import refusal
from ..tools import Tools
from .circle import Kind, Level, Limits, Round
from .seen import Asked, answered, asked
from .watch import Watch
from .words import warning_for

Action = Literal["allow", "advise", "refuse"]

_TOOLS = "a respool.Tools, or None"
_UNWRITABLE = (TypeError, ValueError, RecursionError, OverflowError, UnicodeError)


class Verdict(Struct, frozen=True):
    """What the detector says of a call before it is made.

    `advise`: make the call, and put the message to the end of its result. `refuse`: do not make it,
    and give the model the message in place of a result.
    """

    action: Action = "allow"
    message: str = ""
    kind: Kind | None = None  # of the circle that the call is a part of, also while nothing is said
    level: Level | None = None  # how bad it is
    operation: str = ""
    target: str | None = None
    count: int = 0  # how often it would have been with this call; of errors, how often it was


ALLOWED: Final = Verdict()


class LoopDetector:
    """Watches the calls of one conversation.

    >>> detector = LoopDetector()
    >>> for _ in range(2):
    ...     detector.tell("Read", {"file_path": "a.py"}, "print(1)")
    >>> verdict = detector.ask("Read", {"file_path": "a.py"})
    >>> verdict.action, verdict.message[:49]
    ('advise', '[respool noticed: Read (a.py) was called twice wi')
    """

    def __init__(
        self,
        *,
        tools: Tools | None = None,
        advise: int = 3,
        insist: int = 5,
        stop: int = 8,
        leeway: int = 2,
        patience: int = 4,
    ) -> None:
        _refuse_other(tools)
        self.limits: Final = Limits(advise, insist, stop, leeway, patience)
        self._tools = tools or Tools()
        self._watch = Watch(self.limits)
        self._calls = 0
        self._batch = 0  # of the last call
        self._host_batch: object = None  # what the host calls that batch

    def ask(
        self, name: str, arguments: Mapping[str, Any] | str, *, batch: object = None
    ) -> Verdict:
        """Whether to make a call; asking changes nothing, however often it is done.

        `batch` is the same for calls that the model asked for at once, be they made one by one: a
        number, or the id of its answer. Without one, each call has seen what came of the last.
        """
        found = self._watch.predict(self._pending_call(name, arguments), self._batch_of(batch))
        return ALLOWED if found is None else _verdict(found)

    def tell(
        self, name: str, arguments: Mapping[str, Any] | str, result: object, error: bool = False,
        *, batch: object = None,
    ) -> None:  # fmt: skip
        """Take in what came of a call that was made; one that was refused is not told."""
        seen = answered(self._pending_call(name, arguments), _text(result), bool(error))
        if seen is not None:
            self._calls += 1
            self._batch, self._host_batch = self._batch_of(batch), batch
            self._watch.note(seen, self._calls, self._batch, ahead=True)

    def heard(self) -> None:
        """The user said something: whatever is called now has another reason."""
        self._watch.reset()

    def _batch_of(self, host_batch: object) -> int:
        """The number of a batch: the last call's, or one more."""
        return self._batch + (host_batch is None or host_batch != self._host_batch)

    def _pending_call(self, name: str, arguments: Mapping[str, Any] | str) -> Asked:
        text = _text(arguments)
        return asked(str(name), text, self._tools.use_of(str(name), text))


def _refuse_other(tools: object) -> None:
    if tools is not None and not isinstance(tools, Tools):
        raise refusal("LoopDetector: ", "tools", tools, _TOOLS)


def _verdict(found: Round) -> Verdict:
    refused = found.level == "stop" and found.is_exact and not found.is_waiting
    action: Action = "refuse" if refused else "advise" if found.should_speak else "allow"
    message = "" if action == "allow" else warning_for(found, refused=refused)
    return Verdict(
        action, message, found.kind, found.level, found.operation, found.target, found.count
    )


def _text(value: object) -> str:
    """Arguments or a result as text: as they are, or as JSON, or as Python shows them."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    try:
        return msgspec.json.encode(value, order="sorted").decode()
    except _UNWRITABLE:
        pass
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except Exception:  # noqa: BLE001 - what a host's object does when it is shown is its own
        return ascii(type(value))
