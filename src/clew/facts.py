"""Facts: what a request cannot show, keyed by the hash of the prefix where it held."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import cast

from msgspec import Struct
from msgspec.structs import force_setattr

from .ranges import refusal, refuse_unknown

_HASH = re.compile(r"[0-9a-f]+", re.ASCII)
_KINDS = ("skipped", "left_alone")
_ALLOWED = "prefix hashes in lower-case hex"


class Facts(Struct, frozen=True, kw_only=True):
    """What was seen once and holds from then on; a missing fact costs a prefix break at most.

    >>> Facts(skipped=frozenset({"0a"})).merge(Facts(left_alone=frozenset({"0b"}))).to_dict()
    {'skipped': ['0a'], 'left_alone': ['0b']}
    """

    skipped: frozenset[str] = frozenset()  # no evaluation at these boundaries: it was late
    left_alone: frozenset[str] = frozenset()  # from these prefixes on, no new edits are made

    def __post_init__(self) -> None:
        for kind in _KINDS:
            force_setattr(self, kind, _hashes(kind, getattr(self, kind)))

    def merge(self, other: Facts) -> Facts:
        """All that either knows. Facts are written once and never withdrawn, so this is a union."""
        return Facts(
            skipped=self.skipped | other.skipped, left_alone=self.left_alone | other.left_alone
        )

    def fingerprint(self) -> bytes:
        """The same for equal facts, in every process."""
        lines = [f"{kind} {entry}\n" for kind in _KINDS for entry in sorted(getattr(self, kind))]
        return hashlib.blake2b("".join(lines).encode(), digest_size=16).digest()

    def to_dict(self) -> dict[str, list[str]]:
        """These facts as JSON can hold them, in a fixed order."""
        return {kind: sorted(getattr(self, kind)) for kind in _KINDS}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Facts:
        """Facts as `to_dict` wrote them; anything else is refused."""
        kinds = _table(data)
        return cls(**{kind: _hashes(kind, entries) for kind, entries in kinds.items()})


def _table(data: object) -> dict[str, object]:
    if not isinstance(data, Mapping):
        raise refusal("", "facts", data, f"an object with {' and '.join(_KINDS)}")
    table = {str(key): value for key, value in cast(Mapping[object, object], data).items()}
    refuse_unknown("facts: ", table.items(), _KINDS)
    return table


def _hashes(kind: str, entries: object) -> frozenset[str]:
    if not isinstance(entries, list | tuple | set | frozenset):
        raise refusal("facts: ", kind, entries, f"a list of {_ALLOWED}")
    found = list(cast(list[object], entries))
    for entry in found:
        if not isinstance(entry, str) or not _HASH.fullmatch(entry):
            raise refusal("facts: ", kind, entry, _ALLOWED)
    return frozenset(cast(list[str], found))
