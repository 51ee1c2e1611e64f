"""Facts that a request cannot show, keyed by the hash of the prefix where they held."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final, Literal, cast, get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from .errors import MAX_VALUE, invalid_value, join_names, reject_unknown_keys, whole_number
from .regex import lazy_compile

_HASH_PATTERN = lazy_compile(r"[0-9a-f]+", re.ASCII)
_REFERENCE_PATTERN = lazy_compile(r"[a-z2-7]{20}", re.ASCII)
_SET_KINDS = ("skipped", "left_alone", "cold", "changed")
_KINDS = (*_SET_KINDS, "windows", "breakpoints", "summaries")
# Cache breakpoints of a client: none, or with a lifetime; full: as many as allowed; behind: none,
# but a program behind it sets some, for five minutes.
BreakpointMode = Literal["none", "5m", "5m full", "1h", "1h full", "behind"]
BREAKPOINT_MODES: Final[tuple[BreakpointMode, ...]] = get_args(BreakpointMode)
_HASHES_ALLOWED = "prefix hashes in lower-case hex"
_MAX_SUMMARY_CHARS = 100_000  # characters of one summary
_SUMMARY_ALLOWED = (
    f"the words for a record, at most {_MAX_SUMMARY_CHARS:,} characters; none: respool's own stay"
)
MAX_LOOKBACK_REQUESTS: Final = 16  # requests searched backwards for one on the same terms
_TOKENS_ALLOWED = f"a whole number of tokens from 1 to {MAX_VALUE:,}"


class Facts(Struct, frozen=True, kw_only=True):
    """Facts that a request cannot show; a missing one costs at most a prefix break.

    >>> Facts(cold=frozenset({"0a"})).merge(Facts(windows=(("0b", 128_000),))).to_dict()
    {'skipped': [], 'left_alone': [], 'cold': ['0a'], 'changed': [], 'windows': {'0b': 128000}}
    """

    skipped: frozenset[str] = frozenset()  # no evaluation at these boundaries: it was late
    left_alone: frozenset[str] = frozenset()  # from these prefixes on, no new edits are made
    cold: frozenset[str] = frozenset()  # the cache had gone cold when these prefixes were sent
    changed: frozenset[str] = frozenset()  # the model or the tools changed at these prefixes
    windows: tuple[tuple[str, int], ...] = ()  # from each prefix on, no more tokens than this fit
    breakpoints: tuple[
        tuple[str, BreakpointMode], ...
    ] = ()  # the client's cache breakpoints from each prefix on
    summaries: tuple[tuple[str, str], ...] = ()  # by the reference of a record, its words

    def __post_init__(self) -> None:
        for kind in _SET_KINDS:
            force_setattr(self, kind, _check_hashes(kind, getattr(self, kind)))
        force_setattr(self, "windows", _check_windows(self.windows))
        force_setattr(self, "breakpoints", _check_breakpoint_modes(self.breakpoints))
        force_setattr(self, "summaries", _check_summaries(self.summaries))

    def merge(self, other: Facts) -> Facts:
        """The facts of both; on a conflict, those of this one."""
        sets: dict[str, Any] = {
            kind: getattr(self, kind) | getattr(other, kind) for kind in _SET_KINDS
        }
        return Facts(
            **sets,
            windows=tuple((dict(other.windows) | dict(self.windows)).items()),
            breakpoints=tuple((dict(other.breakpoints) | dict(self.breakpoints)).items()),
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

    def breakpoint_mode_at(self, prefix: str) -> BreakpointMode | None:
        """The client's cache breakpoints from this prefix on; None: unchanged."""
        at = bisect_left(self.breakpoints, prefix, key=_prefix_of_pair)
        found = self.breakpoints[at : at + 1]
        return found[0][1] if found and found[0][0] == prefix else None

    def differing_prefixes(self, other: Facts) -> frozenset[str]:
        """The prefixes at which the two say different things."""
        found = {prefix for prefix, _ in set(self.windows) ^ set(other.windows)}
        found |= {prefix for prefix, _ in set(self.breakpoints) ^ set(other.breakpoints)}
        for kind in _SET_KINDS:
            found |= getattr(self, kind) ^ getattr(other, kind)
        return frozenset(found)

    def fingerprint(self) -> bytes:
        """The same for equal facts, in every process."""
        lines = [
            f"{kind} {entry}\n" for kind in _SET_KINDS for entry in sorted(getattr(self, kind))
        ]
        lines += [f"windows {prefix} {tokens}\n" for prefix, tokens in self.windows]
        lines += [f"breakpoints {prefix} {mode}\n" for prefix, mode in self.breakpoints]
        lines += [f"summaries {ref} {len(text)} {text}\n" for ref, text in self.summaries]
        data = "".join(lines).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, digest_size=16).digest()

    def to_dict(self) -> dict[str, list[str] | dict[str, int] | dict[str, str]]:
        """These facts as JSON can hold them, in a fixed order; some kinds only if there are any."""
        sets: dict[str, list[str] | dict[str, int] | dict[str, str]] = {
            kind: sorted(getattr(self, kind)) for kind in _SET_KINDS
        }
        modes = cast(dict[str, str], dict(self.breakpoints))
        breakpoints = {"breakpoints": modes} if modes else {}
        summaries = {"summaries": dict(self.summaries)} if self.summaries else {}
        return {**sets, "windows": dict(self.windows), **breakpoints, **summaries}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Facts:
        """Facts as `to_dict` wrote them; anything else is refused."""
        kinds: dict[str, Any] = _check_table(data)
        return cls(**kinds)


def _check_table(data: object) -> dict[str, object]:
    if not isinstance(data, Mapping):
        raise invalid_value("", "facts", data, f"an object with {join_names(_KINDS)}")
    table = {str(key): value for key, value in cast(Mapping[object, object], data).items()}
    reject_unknown_keys("facts: ", table.items(), _KINDS)
    return table


def _check_hashes(kind: str, entries: object) -> frozenset[str]:
    if not isinstance(entries, list | tuple | set | frozenset):
        raise invalid_value("facts: ", kind, entries, f"a list of {_HASHES_ALLOWED}")
    found = list(cast(list[object], entries))
    for entry in found:
        if not isinstance(entry, str) or not _HASH_PATTERN.fullmatch(entry):
            raise invalid_value("facts: ", kind, entry, _HASHES_ALLOWED)
    return frozenset(cast(list[str], found))


def _check_windows(entries: object) -> tuple[tuple[str, int], ...]:
    """A mapping, or pairs, as pairs in the order of their prefixes; of two, the first counts."""
    pairs = _to_pairs(entries)
    _check_hashes("windows", [prefix for prefix, _ in pairs])
    found: dict[str, int] = {}
    for prefix, tokens in cast(list[tuple[str, object]], pairs):
        try:
            found.setdefault(prefix, whole_number(tokens, 1, _TOKENS_ALLOWED))
        except ValueError as error:
            raise invalid_value("facts: ", f"windows.{prefix}", tokens, str(error)) from None
    return tuple(sorted(found.items()))


def _check_breakpoint_modes(entries: object) -> tuple[tuple[str, BreakpointMode], ...]:
    """A mapping, or pairs, as pairs in the order of their prefixes; of two, the first counts."""
    pairs = _to_pairs(
        entries,
        "breakpoints",
        f"an object from {_HASHES_ALLOWED} to {join_names(BREAKPOINT_MODES)}",
    )
    _check_hashes("breakpoints", [prefix for prefix, _ in pairs])
    found: dict[str, BreakpointMode] = {}
    for prefix, mode in cast(list[tuple[str, BreakpointMode]], pairs):
        if mode not in BREAKPOINT_MODES:
            raise invalid_value(
                "facts: ", f"breakpoints.{prefix}", mode, join_names(BREAKPOINT_MODES)
            )
        found.setdefault(prefix, mode)
    return tuple(sorted(found.items()))


def _prefix_of_pair(pair: tuple[str, BreakpointMode]) -> str:
    return pair[0]


def _check_summaries(entries: object) -> tuple[tuple[str, str], ...]:
    """A mapping, or pairs, as pairs in the order of their references; of two, the first counts."""
    found: dict[str, str] = {}
    for ref, text in _to_pairs(entries, "summaries", "an object from references to words"):
        if not isinstance(ref, str) or not _REFERENCE_PATTERN.fullmatch(ref):
            raise invalid_value("facts: ", "summaries", ref, "references of records")
        if not isinstance(text, str) or len(text) > _MAX_SUMMARY_CHARS:
            raise invalid_value("facts: ", f"summaries.{ref}", text, _SUMMARY_ALLOWED)
        found.setdefault(ref, text)
    return tuple(sorted(found.items()))


def _to_pairs(
    entries: object,
    kind: str = "windows",
    allowed: str = f"an object from {_HASHES_ALLOWED} to whole numbers of tokens",
) -> list[tuple[object, object]]:
    if isinstance(entries, Mapping):
        return list(cast(Mapping[object, object], entries).items())
    given = list(cast(list[object], entries)) if isinstance(entries, list | tuple) else [None]
    pairs = [cast(tuple[object, ...], one) for one in given if isinstance(one, list | tuple)]
    if len(pairs) < len(given) or any(len(pair) != 2 for pair in pairs):
        raise invalid_value("facts: ", kind, cast(object, entries), allowed)
    return [(pair[0], pair[1]) for pair in pairs]
