"""Error types, and checks of values."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import cast


class RespoolError(Exception):
    """Base of all errors that respool raises on purpose."""


class UnreadableRequest(RespoolError, ValueError):
    """The request cannot be parsed: malformed, or not a chat request."""


class PassedThrough(RespoolError):
    """The request is valid, but its history must not be changed; the message says why."""


class PlainText(PassedThrough):
    """The request's input is a single text without history."""


class UnknownFormat(RespoolError, ValueError):
    """The named wire format is unknown."""


class PolicyError(RespoolError, ValueError):
    """A setting is unknown or not allowed; the message has the key, the value and what is."""


class PlanMismatch(RespoolError, ValueError):
    """The plan was made for another request."""


class UnknownReference(RespoolError, KeyError):
    """No original is stored under this reference."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class BudgetError(RespoolError, ValueError):
    """The smallest projection is still over a limit; lists what must stay."""

    def __init__(
        self, limit: str, allowed: int, reached: int, in_the_way: Iterable[tuple[str, int]] = ()
    ) -> None:
        self.limit = limit  # "tokens", "bytes", "images" or "pixels"
        self.allowed = allowed
        self.reached = reached
        self.in_the_way = tuple(in_the_way)  # what must stay, with its size
        super().__init__(limit, allowed, reached, self.in_the_way)

    def __str__(self) -> str:
        unit = "pixels on a side of an image" if self.limit == "pixels" else self.limit
        sentence = (
            f"The request has {self.reached:,} {unit} with all taken out that may go; "
            f"{self.allowed:,} are allowed."
        )
        named = ", ".join(f"{what} ({size:,})" for what, size in self.in_the_way)
        return f"{sentence} In the way: {named}." if named else sentence


def install_command(extra: str) -> str:
    """The command that installs an extra; respool is on no package index yet."""
    return f"pip install '.[{extra}]' in a clone of respool's repository"


def describe_missing_package(what: str, error: ImportError, extra: str) -> str:
    """A sentence for an optional package that is not installed."""
    name = error.name or str(error)
    return f"{what} needs {name}, which is not installed: {install_command(extra)}."


MAX_VALUE = 1_000_000_000  # far above any real size: a larger number is a mistake
CHARACTERS_ALLOWED = f"a whole number from 0 to {MAX_VALUE:,}, or unlimited (None in code)"
BOOLEAN_ALLOWED = "true or false (in the environment also on or off)"
TOOL_NAME_ALLOWED = "a tool's name as the request carries it"

_MAX_QUOTED_CHARS = 60


def whole_number(value: object, minimum: int, allowed: str) -> int:
    """A whole number from `minimum` to `MAX_VALUE`, not a bool."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= MAX_VALUE:
        raise ValueError(allowed)
    return int(value)


def ratio(value: object, allowed: str) -> float:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(allowed)
    return math.fabs(value)  # -0.0 equals 0.0 but is printed otherwise


def factor(value: object, allowed: str) -> float:
    """A number from 0 to 100."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        raise ValueError(allowed)
    return math.fabs(value)


def character_limit(value: object) -> int | None:
    """A number of characters, or None for no limit."""
    return None if value is None else whole_number(value, 0, CHARACTERS_ALLOWED)


def boolean(value: object) -> bool:
    """True or false, not a value that is merely truthy or falsy."""
    if not isinstance(value, bool):
        raise ValueError(BOOLEAN_ALLOWED)
    return value


def tool_name(value: object) -> str:
    """A tool's name, as in requests."""
    if not isinstance(value, str):
        raise ValueError(TOOL_NAME_ALLOWED)
    return value


def one_of(value: object, names: Collection[str]) -> str:
    """One of these names."""
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"one of {join_names(names)}")
    return value


def subset_of(value: object, names: Collection[str], allowed: str) -> tuple[str, ...] | None:
    """Some of these names, each at most once; None is passed on."""
    if value is None:
        return None
    given = tuple(cast(list[object], value)) if isinstance(value, list | tuple) else ("",)
    known = [one for one in given if isinstance(one, str) and one in names]
    if len(set(known)) < len(given):
        raise ValueError(allowed)
    return tuple(known)


def invalid_value(source: str, key: str, value: object, allowed: str) -> PolicyError:
    """The error for a value that is not allowed."""
    return PolicyError(f"{source}{key}: {quote_value(value)} is not allowed; allowed: {allowed}")


def reject_unknown_keys(
    source: str, given: Iterable[tuple[str, object]], known: Collection[str]
) -> None:
    """Raise for the first unknown key, with its value and the closest known key."""
    for key, value in given:
        if key not in known:
            raise unknown_key(
                source, f"{quote_value(key)} (value {quote_value(value)})", key, known
            )


def unknown_key(source: str, description: str, key: str, known: Collection[str]) -> PolicyError:
    """The error for an unknown key, with the closest known one."""
    near = closest_match(key, known)
    hint = f"did you mean {near}? " if near else ""
    return PolicyError(f"{source}unknown key {description}; {hint}allowed: {join_names(known)}")


def closest_match(name: str, known: Iterable[str]) -> str | None:
    """The most similar known name, if one is similar."""
    import difflib  # lazily: only a message about a mistake needs it

    folded = {one.casefold(): one for one in known}
    near = difflib.get_close_matches(name.casefold(), folded, n=1)
    return folded[near[0]] if near else None


def join_names(names: Collection[str]) -> str:
    """Names separated by commas, for a message."""
    return ", ".join(names) if names else "none"


def quote_value(value: object) -> str:
    """The repr of a value, cut to a readable length."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a foreign __repr__, or more digits than Python prints
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _MAX_QUOTED_CHARS else f"{text[: _MAX_QUOTED_CHARS - 1]}…"
