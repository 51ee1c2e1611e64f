"""The policies that a replay can try, by name."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import PolicyError
from ..policy import PRESETS
from ..policy import Policy as Settings
from ..ranges import listed, nearest
from .bounds import Foreseen
from .projected import Projected
from .senders import AsSent, Cleared, Masked, Policy

NONE, ORACLE, FLOOR = "none", "oracle", "floor"
USUAL = (NONE, "safe", "mask-10", "clear-100k", FLOOR)  # what is tried when nothing is asked for
NAMES = (
    f"none, a preset of respool's ({listed(PRESETS)}), mask-N (all results but the last N are "
    "placeholders), clear-Nk or clear-Nk-K (above N thousand tokens all but the last K results are "
    "cleared; K is 3), oracle, floor, or a TOML file of settings"
)

_TOLD = {
    NONE: "as it was sent",
    "safe": "respool itself",
    "lean": "respool, which also cuts what just came",
    "tight": "the same, under a budget",
    "codetether": "as the agent codetether does it",
    "clark": "as the agent clark does it",
    "rfc013": "as RFC 013 does it",
    "pi-dcp": "as the extension pi-dcp does it",
    ORACLE: "keeps what is used later",
    FLOOR: "the limit, which knows what is used later",
}
_MASK = re.compile(r"mask-(\d{1,6})")
_CLEAR = re.compile(r"clear-(\d{1,6})k(?:-(\d{1,6}))?")
_KEPT = 3


def policy_named(name: str) -> Policy:
    """The policy behind a name."""
    if name == NONE:
        return AsSent
    if name in (ORACLE, FLOOR):
        return lambda recording: Foreseen(recording, on_arrival=name == FLOOR)
    if found := _MASK.fullmatch(name):
        window = int(found[1])
        return lambda recording: Masked(recording, window)
    if found := _CLEAR.fullmatch(name):
        trigger, kept = int(found[1]) * 1000, int(found[2] or _KEPT)
        return lambda recording: Cleared(recording, trigger, kept)
    settings = _settings(name)
    return lambda recording: Projected(recording, settings)


def told(name: str) -> str:
    """What a policy does, in a few words.

    >>> told("mask-10"), told("clear-100k")
    ('keeps the last 10 tool results', 'above 100k tokens keeps the last 3')
    """
    if found := _MASK.fullmatch(name):
        return f"keeps the last {int(found[1])} tool results"
    if found := _CLEAR.fullmatch(name):
        return f"above {int(found[1])}k tokens keeps the last {int(found[2] or _KEPT)}"
    return _TOLD.get(name, "respool with these settings")


def _settings(name: str) -> Settings:
    if name in PRESETS:
        return Settings.preset(name)
    if name.endswith(".toml"):
        return Settings.from_toml(Path(name))
    near = nearest(name, (*PRESETS, *USUAL, ORACLE))
    hint = f" Did you mean {near}?" if near else ""
    raise PolicyError(f"There is no policy {name!r}.{hint} A policy is {NAMES}.")
