"""What the dashboard is told of the proxy that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from msgspec import Struct

from ..policy import NAMES, Policy
from ..registered import name_of


class Breaker(Struct, frozen=True):
    """Whether requests are compacted at all, and why not."""

    phase: str
    why: str


class Calibrated(Struct, frozen=True):
    """How many tokens a provider counts for one of respool's."""

    format: str
    model: str
    factor: float
    requests: int


class Setting(Struct, frozen=True):
    """One setting in force."""

    name: str
    value: Any
    origin: str


def _closed() -> Breaker:
    return Breaker("closed", "Requests are compacted.")


def _nothing() -> tuple[Calibrated, ...]:
    return ()


class Around(Struct, frozen=True, kw_only=True):
    """The proxy, as the dashboard sees it; in each process its own."""

    version: str = ""  # of respool
    policy: Policy = Policy()
    observe: bool = False
    breaker: Callable[[], Breaker] = _closed
    calibrations: Callable[[], tuple[Calibrated, ...]] = _nothing


def settings_of(policy: Policy) -> list[Setting]:
    """Every setting with its value and where that came from."""
    origins = policy.origins()
    values = [Setting(name, _value(getattr(policy, name)), origins[name]) for name in NAMES]
    declared = [
        Setting(f"tools.{tool.name}", _value(tool), origins[f"tools.{tool.name}"])
        for tool in policy.tools
    ]
    return [*(one for one in values if one.name != "tools"), *declared]


def _value(value: object) -> Any:
    """A value as JSON has it; a user's own pass goes by its name."""
    if isinstance(value, tuple):
        return [_value(item) for item in cast("tuple[object, ...]", value)]
    if value is None or isinstance(value, str | int | float):
        return value
    return name_of(value) if callable(value) else repr(value)
