"""What the first bytes of a file tell of the JSON in it, even if they are cut short."""

from __future__ import annotations

import re

# A string, which may be cut short at the end, or what gives an object its shape.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]:]', re.DOTALL)

_MANY = 200  # fields that are looked at


def top_fields(head: bytes) -> dict[str, bytes]:
    """The fields of the object that a head begins with, each with the bytes from its value on."""
    found: dict[str, bytes] = {}
    depth, last = 0, b""
    for match in _TOKEN.finditer(head) if head.startswith(b"{") else ():
        token = match.group()
        if token == b":" and depth == 1:
            found[last[1:-1].decode("utf-8", "replace")] = head[match.end() :].lstrip()
        elif token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
        if not depth or len(found) == _MANY:
            break
        last = token
    return found


def first_object(head: bytes) -> bytes:
    """The head from its first object on: its own, or the first in a list."""
    start = head.lstrip()
    return start[1:].lstrip() if start.startswith(b"[") else start


def first_line(head: bytes) -> bytes:
    """The first line of a head that is not blank."""
    return head.lstrip().partition(b"\n")[0]
