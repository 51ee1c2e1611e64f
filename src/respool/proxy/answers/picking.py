"""A few members picked out of JSON values as their bytes pass, whatever else the values hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, cast

import msgspec
from msgspec import Struct

from ...wire.json import JSON, Object

LONGEST_MEMBER: Final = 64 * 1024  # bytes of a member that is picked: usage has some hundred

_DEEPEST = 16  # containers on the way to a member: the longest way has three

Path = tuple[str, ...]  # the keys on the way to a member; arrays on the way do not count


class Wanted(Struct, frozen=True):
    """The members to pick, and the containers on the way to them."""

    paths: frozenset[Path]
    ways: frozenset[Path]


# No part of these patterns can give back what it took.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRING_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_FLAT = rb'(?:[^"{}\[\]]++|' + _STRING + rb")*+"  # what holds no bracket and no open string
_PASSED_OVER = re.compile(  # the same, and containers that hold no other
    rb'(?:[^"{}\[\]]++|' + _STRING + rb"|[{\[]" + _FLAT + rb"[}\]])*+", re.DOTALL
)
_PLAIN = re.compile(rb'[^"{}\[\],]*+')


class Values:
    """JSON values one after another, of which a few members are picked and the rest passed over.

    An array is seen through: its elements stand where it stands. So the values of an array are
    values too, and a member of any element has one path.
    """

    def __init__(self, wanted: Wanted, take: Callable[[Mapping[Path, JSON]], None]) -> None:
        self._wanted, self._ways = wanted.paths, wanted.ways
        self._take = take
        self._found: dict[Path, JSON] = {}
        self._reset()

    @property
    def idle(self) -> bool:
        """Whether no value is open."""
        return not self._open and not self._depth and not self._in_string

    def whole(self, data: bytes) -> None:
        """One value that is all there, if it is: that is read faster."""
        value = _decoded(data) if self.idle else None
        if not isinstance(value, dict):
            self.feed(data)
            return
        self._pick(cast(Object, value), ())
        self._give()

    def _pick(self, value: JSON, path: Path, deep: int = 0) -> None:
        if path in self._wanted:
            if isinstance(value, str | dict | list):
                self._found[path] = value
        elif isinstance(value, dict) and path in self._ways:
            for key, inner in cast(Object, value).items():
                inside = (*path, key)
                if inside in self._wanted or inside in self._ways:
                    self._pick(inner, inside, deep + 1)
        elif isinstance(value, list) and path in self._ways and deep < _DEEPEST:
            for inner in cast(list[JSON], value):
                self._pick(inner, path, deep + 1)

    def feed(self, data: bytes) -> None:
        """The next bytes."""
        at = 0
        while at < len(data):
            start = at
            held, self._closed = self._held, False
            if self._in_string:
                at = self._string(data, at)
            elif self._depth:
                at = self._pass_over(data, at)
            else:
                at = self._next(data, at)
            if held is not None:
                held += data[start:at]
                if len(held) > LONGEST_MEMBER:
                    self._held = None
            if self._closed:
                self._close()

    def end(self) -> None:
        """No more comes of what is open: what was picked of it counts."""
        self._give()
        self._reset()

    def _reset(self) -> None:
        self._open: list[str | None] = []  # of each container on the way its key; None: an array
        self._depth = 0  # of the containers that are passed over
        self._in_string = self._escaped = False
        self._is_key = False  # whether the string that is read is a key
        self._awaits_key = False
        self._closed = False  # whether a member or a key just ended
        self._held: bytearray | None = None  # the bytes of what is picked

    def _give(self) -> None:
        if self._found:
            found, self._found = self._found, {}
            self._take(found)

    @property
    def _path(self) -> Path:
        return tuple(key for key in self._open if key is not None)

    def _string(self, data: bytes, at: int) -> int:
        """The rest of a string, or as much of it as is there."""
        if self._escaped:
            self._escaped = False
            at += 1
        found = _STRING_REST.match(data, at)
        at = found.end() if found else at
        if at == len(data):
            return at
        if data[at] == 0x5C:  # a backslash at the very end of what is there
            self._escaped = True
        else:
            self._in_string = False
            self._closed = not self._depth
        return at + 1

    def _pass_over(self, data: bytes, at: int) -> int:
        """On through a container whose members are not picked."""
        depth = self._depth
        while depth:
            found = _PASSED_OVER.match(data, at)
            at = found.end() if found else at
            if at == len(data):
                break
            byte, at = data[at], at + 1
            if byte == 0x22:
                self._in_string = True
                break
            depth += 1 if byte in b"{[" else -1
        self._depth = depth
        self._closed = not depth
        return at

    def _next(self, data: bytes, at: int) -> int:
        """On to the next thing that matters in a container on the way, or between values."""
        found = _PLAIN.match(data, at)
        at = found.end() if found else at
        if at == len(data):
            return at
        byte = data[at]
        if byte == 0x22:
            self._in_string = True
            self._is_key = self._awaits_key
            if self._is_key or self._path in self._wanted:
                self._held = bytearray(b'"')
        elif byte in b"{[":
            self._open_container(byte)
        elif byte in b"}]":
            self._leave()
        else:
            self._awaits_key = bool(self._open) and self._open[-1] is not None
        return at + 1

    def _open_container(self, byte: int) -> None:
        path = self._path
        if path in self._ways and len(self._open) < _DEEPEST:
            self._awaits_key = byte == 0x7B
            self._open.append("" if self._awaits_key else None)
            return
        self._depth = 1
        if path in self._wanted:
            self._held = bytearray((byte,))

    def _leave(self) -> None:
        if self._open:
            self._open.pop()
        self._awaits_key = False
        if all(key is None for key in self._open):
            self._give()

    def _close(self) -> None:
        """A string or a container has ended that was read to its end."""
        held, self._held = self._held, None
        value = _decoded(held) if held is not None else None
        if self._is_key:
            self._is_key = self._awaits_key = False
            self._open[-1] = value if isinstance(value, str) else ""
        elif value is not None:
            self._found[self._path] = value


def _decoded(raw: bytes | bytearray) -> JSON:
    """A value; None for what is none."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
