"""Markers: what stands where text was taken out, and the reference that leads back to it.

    [clew: clipped Bash result of 48,213 chars to 32,000; 590 of 1,024 lines left out here;
    call toolu_01; ref 5kq7…]                                                    (on one line)

docs/markers.md has the grammar. A text is taken for shaped only if a whole line of it parses.
"""

from __future__ import annotations

import base64
import hashlib
import re

from msgspec import Struct

MOST = 256  # characters in a marker
_OPEN = "[clew: "
_NAME = 48  # characters of a tool's name or a call's id that are worth showing
_UNFIT = re.compile(r"[^A-Za-z0-9_.:/@-]")

_CLIPPED = re.compile(
    r"\[clew: clipped (?P<tool>[A-Za-z0-9_.:/@-]{1,48}) result of (?P<size>[\d,]{1,15}) chars"
    r" to (?P<cap>[\d,]{1,15}); (?P<gone>[\d,]{1,15}) of (?P<all>[\d,]{1,15})"
    r" (?P<unit>lines|chars) left out here"
    r"(?:, (?P<errors>[\d,]{1,15}) error lines of them kept below)?"
    r"; call (?P<call>[A-Za-z0-9_.:/@-]{1,48})"
    r"(?P<rerun>; safe to run again)?"
    r"; ref (?P<ref>[a-z2-7]{20})\]"
)


class Marker(Struct, frozen=True, gc=False):
    """What a marker says, in its own fields."""

    tool: str
    size: int
    cap: int
    gone: int
    all: int
    unit: str
    errors: int
    call: str
    rerun: bool
    ref: str

    def __str__(self) -> str:
        errors = f", {self.errors:,} error lines of them kept below" if self.errors else ""
        rerun = "; safe to run again" if self.rerun else ""
        return (
            f"{_OPEN}clipped {_shown(self.tool)} result of {self.size:,} chars to {self.cap:,}; "
            f"{self.gone:,} of {self.all:,} {self.unit} left out here{errors}; "
            f"call {_shown(self.call)}{rerun}; ref {self.ref}]"
        )


def reference(text: str) -> str:
    """The reference of an original: a hash of what it says.

    >>> reference("hello")
    'bbidnwiqv5awc2eneyyx'
    """
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(digest)[:20].decode().lower()


def parse_marker(line: str) -> Marker | None:
    """The marker that this line is, or None."""
    found = _CLIPPED.fullmatch(line)
    if found is None:
        return None
    return Marker(
        found["tool"],
        _number(found["size"]),
        _number(found["cap"]),
        _number(found["gone"]),
        _number(found["all"]),
        found["unit"],
        _number(found["errors"] or "0"),
        found["call"],
        found["rerun"] is not None,
        found["ref"],
    )


def find_marker(text: str) -> Marker | None:
    """The first whole marker that stands on a line of its own in this text."""
    at = text.find(_OPEN)
    while at >= 0:
        end = text.find("\n", at)
        line = text[at : end if end >= 0 else len(text)]
        if (at == 0 or text[at - 1] == "\n") and len(line) <= MOST:
            marker = parse_marker(line)
            if marker is not None:
                return marker
        at = text.find(_OPEN, at + 1)
    return None


def _number(digits: str) -> int:
    return int(digits.replace(",", "") or "0")


def _shown(name: str) -> str:
    """A name as it may stand in a marker: no spaces or brackets, and not too long."""
    fit = _UNFIT.sub("_", name) or "unknown"
    return fit if len(fit) <= _NAME else f"{fit[: _NAME - 2]}.."
