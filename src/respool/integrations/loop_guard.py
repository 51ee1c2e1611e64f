"""Loop detection around the tool calls of a framework: one detector for each conversation."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Any, Final

from msgspec import Struct

from ..loops import LoopDetector, Verdict
from ..lru_map import LruMap
from ..tools import Tools

MAX_CONVERSATIONS: Final = 256  # the detector of the one that was idle longest is forgotten
MAX_PENDING: Final = 1000  # calls without a result yet; older ones were abandoned


class _PendingCall(Struct, frozen=True):
    """A call between a framework's hooks before and after it."""

    name: str
    arguments: Mapping[str, Any] | str
    batch: object
    verdict: Verdict


class LoopGuard:
    """Refuses or advises on calls that repeat without a result; threads may share it.

    >>> guard = LoopGuard()
    >>> for _ in range(2):
    ...     guard.tell("thread", "Read", {"file_path": "a.py"}, "print(1)")
    >>> guard.ask("thread", "Read", {"file_path": "a.py"}).action
    'advise'
    >>> guard.ask("another", "Read", {"file_path": "a.py"}).action
    'allow'
    """

    def __init__(self, tools: Tools | None = None) -> None:
        self._tools = tools
        self._detectors = LruMap[str, LoopDetector](MAX_CONVERSATIONS)
        self._pending: OrderedDict[tuple[str, object], _PendingCall] = OrderedDict()
        self._lock = Lock()

    def begin(
        self,
        conversation: str,
        call: object,
        name: str,
        arguments: Mapping[str, Any] | str,
        *,
        batch: object = None,
    ) -> Verdict:
        """Decide on a call before it is made, and remember it until `end`; `call` is its id."""
        verdict = self.ask(conversation, name, arguments, batch=batch)
        with self._lock:
            self._pending[conversation, call] = _PendingCall(name, arguments, batch, verdict)
            if len(self._pending) > MAX_PENDING:
                self._pending.popitem(last=False)
        return verdict

    def end(self, conversation: str, call: object, result: object, error: bool = False) -> Verdict:
        """Record the result of a call that was not refused; returns the verdict on it."""
        with self._lock:
            found = self._pending.pop((conversation, call), None)
        if found is None:
            return Verdict()
        if found.verdict.action != "refuse":
            name, arguments, batch = found.name, found.arguments, found.batch
            self.tell(conversation, name, arguments, result, error, batch=batch)
        return found.verdict

    def ask(
        self,
        conversation: str,
        name: str,
        arguments: Mapping[str, Any] | str,
        *,
        batch: object = None,
    ) -> Verdict:
        """Decide on a call before it is made."""
        with self._lock:
            return self._detector(conversation).ask(name, arguments, batch=batch)

    def tell(
        self,
        conversation: str,
        name: str,
        arguments: Mapping[str, Any] | str,
        result: object,
        error: bool = False,
        *,
        batch: object = None,
    ) -> None:
        """Record the result of a call that was made, without advice that was appended."""
        with self._lock:
            self._detector(conversation).tell(name, arguments, result, error, batch=batch)

    def heard(self, conversation: str) -> None:
        """Record user input, after which repeated calls have a new reason."""
        with self._lock:
            self._detector(conversation).heard()

    def _detector(self, conversation: str) -> LoopDetector:
        return self._detectors.get_or_make(conversation, lambda: LoopDetector(tools=self._tools))


def with_advice(text: str, verdict: Verdict) -> str:
    """A result with the detector's advice behind it."""
    return f"{text}\n{verdict.message}" if verdict.action == "advise" else text


__all__ = ["LoopGuard", "with_advice"]
