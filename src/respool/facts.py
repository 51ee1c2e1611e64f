"""Facts: what a request cannot show, keyed by the hash of the prefix where it held."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final, Literal, cast, get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from .ranges import MOST, listed, refusal, refuse_unknown, whole

_HASH = re.compile(r"[0-9a-f]+", re.ASCII)
_REFERENCE = re.compile(r"[a-z2-7]{20}", re.ASCII)
_SETS = ("skipped", "left_alone", "cold", "changed")
_KINDS = (*_SETS, "windows", "marks", "summaries")
# How a client marks its history: not at all, or for so long; full: with all the marks there may be;
# behind: not at all, but somebody behind it does, for five minutes.
Marks = Literal["none", "5m", "5m full", "1h", "1h full", "behind"]
MARKS: Final[tuple[Marks, ...]] = get_args(Marks)
_ALLOWED = "prefix hashes in lower-case hex"
_LONGEST = 100_000  # characters of one summary
_TOLD = f"the words for a record, at most {_LONGEST:,} characters; none: respool's own stay"
FAR_BACK: Final = 16  # requests that are looked back for one on the same terms
_TOKENS = f"a whole number of tokens from 1 to {MOST:,}"


class Facts(Struct, frozen=True, kw_only=True):
    """What was seen once and holds from then on; a missing fact costs a prefix break at most.

    >>> Facts(cold=frozenset({"0a"})).merge(Facts(windows=(("0b", 128_000),))).to_dict()
    {'skipped': [], 'left_alone': [], 'cold': ['0a'], 'changed': [], 'windows': {'0b': 128000}}
    """

    skipped: frozenset[str] = frozenset()  # no evaluation at these boundaries: it was late
    left_alone: frozenset[str] = frozenset()  # from these prefixes on, no new edits are made
    cold: frozenset[str] = frozenset()  # the cache had gone cold when these prefixes were sent
    changed: frozenset[str] = frozenset()  # the model or the tools changed at these prefixes
    windows: tuple[tuple[str, int], ...] = ()  # from each prefix on, no more tokens than this fit
    marks: tuple[tuple[str, Marks], ...] = ()  # from each prefix on, how the client marks
    summaries: tuple[tuple[str, str], ...] = ()  # by the reference of a record, its words

    def __post_init__(self) -> None:
        for kind in _SETS:
            force_setattr(self, kind, _hashes(kind, getattr(self, kind)))
        force_setattr(self, "windows", _windows(self.windows))
        force_setattr(self, "marks", _marks(self.marks))
        force_setattr(self, "summaries", _summaries(self.summaries))

    def merge(self, other: Facts) -> Facts:
        """All that either knows; of two words for the same, the one that was known here."""
        sets: dict[str, Any] = {kind: getattr(self, kind) | getattr(other, kind) for kind in _SETS}
        return Facts(
            **sets,
            windows=tuple((dict(other.windows) | dict(self.windows)).items()),
            marks=tuple((dict(other.marks) | dict(self.marks)).items()),
            summaries=tuple((dict(other.summaries) | dict(self.summaries)).items()),
        )

    def window_at(self, prefix: str) -> int | None:
        """The tokens that an overflow error said would fit, if one did at just this prefix.

        >>> Facts(windows=(("0b", 128_000),)).window_at("0b")
        128000
        """
        at = bisect_left(self.windows, (prefix, 0))
        found = self.windows[at : at + 1]
        return found[0][1] if found and found[0][0] == prefix else None

    def breakpoint_mode_at(self, prefix: str) -> Marks | None:
        """How the client marks from just this prefix on; None: as it did before."""
        at = bisect_left(self.marks, prefix, key=_first)
        found = self.marks[at : at + 1]
        return found[0][1] if found and found[0][0] == prefix else None

    def differing_prefixes(self, other: Facts) -> frozenset[str]:
        """The prefixes at which the two say different things."""
        found = {prefix for prefix, _ in set(self.windows) ^ set(other.windows)}
        found |= {prefix for prefix, _ in set(self.marks) ^ set(other.marks)}
        for kind in _SETS:
            found |= getattr(self, kind) ^ getattr(other, kind)
        return frozenset(found)

    def fingerprint(self) -> bytes:
        """The same for equal facts, in every process."""
        lines = [f"{kind} {entry}\n" for kind in _SETS for entry in sorted(getattr(self, kind))]
        lines += [f"windows {prefix} {tokens}\n" for prefix, tokens in self.windows]
        lines += [f"marks {prefix} {told}\n" for prefix, told in self.marks]
        lines += [f"summaries {ref} {len(text)} {text}\n" for ref, text in self.summaries]
        data = "".join(lines).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, digest_size=16).digest()

    def to_dict(self) -> dict[str, list[str] | dict[str, int] | dict[str, str]]:
        """These facts as JSON can hold them, in a fixed order; some kinds only if there are any."""
        sets: dict[str, list[str] | dict[str, int] | dict[str, str]] = {
            kind: sorted(getattr(self, kind)) for kind in _SETS
        }
        marks = {"marks": cast(dict[str, str], dict(self.marks))} if self.marks else {}
        told = {"summaries": dict(self.summaries)} if self.summaries else {}
        return {**sets, "windows": dict(self.windows), **marks, **told}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Facts:
        """Facts as `to_dict` wrote them; anything else is refused."""
        kinds: dict[str, Any] = _table(data)
        return cls(**kinds)


def _table(data: object) -> dict[str, object]:
    if not isinstance(data, Mapping):
        raise refusal("", "facts", data, f"an object with {listed(_KINDS)}")
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


def _windows(entries: object) -> tuple[tuple[str, int], ...]:
    """A mapping, or pairs, as pairs in the order of their prefixes; of two, the first counts."""
    pairs = _pairs(entries)
    _hashes("windows", [prefix for prefix, _ in pairs])
    found: dict[str, int] = {}
    for prefix, tokens in cast(list[tuple[str, object]], pairs):
        try:
            found.setdefault(prefix, whole(tokens, 1, _TOKENS))
        except ValueError as error:
            raise refusal("facts: ", f"windows.{prefix}", tokens, str(error)) from None
    return tuple(sorted(found.items()))


def _marks(entries: object) -> tuple[tuple[str, Marks], ...]:
    """A mapping, or pairs, as pairs in the order of their prefixes; of two, the first counts."""
    pairs = _pairs(entries, "marks", f"an object from {_ALLOWED} to {listed(MARKS)}")
    _hashes("marks", [prefix for prefix, _ in pairs])
    found: dict[str, Marks] = {}
    for prefix, told in cast(list[tuple[str, Marks]], pairs):
        if told not in MARKS:
            raise refusal("facts: ", f"marks.{prefix}", told, listed(MARKS))
        found.setdefault(prefix, told)
    return tuple(sorted(found.items()))


def _first(pair: tuple[str, Marks]) -> str:
    return pair[0]


def _summaries(entries: object) -> tuple[tuple[str, str], ...]:
    """A mapping, or pairs, as pairs in the order of their references; of two, the first counts."""
    found: dict[str, str] = {}
    for ref, text in _pairs(entries, "summaries", "an object from references to words"):
        if not isinstance(ref, str) or not _REFERENCE.fullmatch(ref):
            raise refusal("facts: ", "summaries", ref, "references of records")
        if not isinstance(text, str) or len(text) > _LONGEST:
            raise refusal("facts: ", f"summaries.{ref}", text, _TOLD)
        found.setdefault(ref, text)
    return tuple(sorted(found.items()))


def _pairs(
    entries: object, kind: str = "windows",
    allowed: str = f"an object from {_ALLOWED} to whole numbers of tokens",
) -> list[tuple[object, object]]:  # fmt: skip
    if isinstance(entries, Mapping):
        return list(cast(Mapping[object, object], entries).items())
    given = list(cast(list[object], entries)) if isinstance(entries, list | tuple) else [None]
    pairs = [cast(tuple[object, ...], one) for one in given if isinstance(one, list | tuple)]
    if len(pairs) < len(given) or any(len(pair) != 2 for pair in pairs):
        raise refusal("facts: ", kind, cast(object, entries), allowed)
    return [(pair[0], pair[1]) for pair in pairs]
