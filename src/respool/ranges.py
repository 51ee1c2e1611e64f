"""What a value may be: each check returns the value, or refuses it with what is allowed."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable
from typing import cast

from .errors import PolicyError

MOST = 1_000_000_000  # far above any real size: a larger number is a slip, not a wish
CHARACTERS = f"a whole number from 0 to {MOST:,}, or unlimited (None in code)"
SWITCH = "true or false (in the environment also on or off)"
TOOL_NAME = "a tool's name as the request carries it"

_SHOWN = 60


def whole(value: object, minimum: int, allowed: str) -> int:
    """A whole number from `least` to `MOST`; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= MOST:
        raise ValueError(allowed)
    return int(value)


def share(value: object, allowed: str) -> float:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(allowed)
    return math.fabs(value)  # -0.0 equals 0.0 but does not read like it


def factor(value: object, allowed: str) -> float:
    """A number from 0 to 100."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        raise ValueError(allowed)
    return math.fabs(value)


def characters(value: object) -> int | None:
    """A number of characters, or None for no limit."""
    return None if value is None else whole(value, 0, CHARACTERS)


def switch(value: object) -> bool:
    """True or false, and nothing that merely counts as one of them."""
    if not isinstance(value, bool):
        raise ValueError(SWITCH)
    return value


def name_on_wire(value: object) -> str:
    """A tool's name, as requests carry it."""
    if not isinstance(value, str):
        raise ValueError(TOOL_NAME)
    return value


def one_of(value: object, names: Collection[str]) -> str:
    """One of a few names."""
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"one of {listed(names)}")
    return value


def several_of(value: object, names: Collection[str], allowed: str) -> tuple[str, ...] | None:
    """Some of a few names, each at most once; None is left to who asks."""
    if value is None:
        return None
    given = tuple(cast(list[object], value)) if isinstance(value, list | tuple) else ("",)
    known = [one for one in given if isinstance(one, str) and one in names]
    if len(set(known)) < len(given):
        raise ValueError(allowed)
    return tuple(known)


def refusal(source: str, key: str, value: object, allowed: str) -> PolicyError:
    """The error for a value that is not allowed: its key, the value, and what is."""
    return PolicyError(f"{source}{key}: {shown(value)} is not allowed; allowed: {allowed}")


def refuse_unknown(source: str, given: Iterable[tuple[str, object]], known: Collection[str]) -> None:
    """Raise for the first key that is not known, with its value and the nearest known key."""
    for key, value in given:
        if key not in known:
            raise unknown(source, f"{shown(key)} (value {shown(value)})", key, known)


def unknown(source: str, description: str, key: str, known: Collection[str]) -> PolicyError:
    """The error for a key that is not known, as it is told, with the nearest known one."""
    near = nearest(key, known)
    hint = f"did you mean {near}? " if near else ""
    return PolicyError(f"{source}unknown key {description}; {hint}allowed: {listed(known)}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one, if one is."""
    folded = {one.casefold(): one for one in known}
    near = difflib.get_close_matches(name.casefold(), folded, n=1)
    return folded[near[0]] if near else None


def listed(names: Collection[str]) -> str:
    """Names, for a sentence."""
    return ", ".join(names) if names else "none"


def shown(value: object) -> str:
    """A value as a person would recognise it, cut to a readable length."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a foreign __repr__, or more digits than Python prints
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
