"""Every setting with its default and its reason, in one frozen value that knows its sources."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self, cast

from msgspec import Struct, UnsetType

from .ranges import (
    CHARACTERS,
    MOST,
    SWITCH,
    characters,
    listed,
    one_of,
    refusal,
    refuse_unknown,
    share,
    switch,
    whole,
)
from .tools import Tools

if TYPE_CHECKING:
    from os import PathLike

CounterName = Literal["auto", "o200k", "estimate"]
COUNTERS: Final[tuple[CounterName, ...]] = ("auto", "o200k", "estimate")
DEFAULT: Final = "default"  # the origin of a value that nobody set
CODE: Final = "code"  # the origin of a value that the caller gave

_TOKENS = f"a whole number from 1 to {MOST:,}"
_SHARE = "a number from 0 to 1"
_PASSES = "a list of names of passes, each at most once, or default (None in code)"
_NO_TOOLS = Tools()
_TOOLS = "a Tools in code; [tools.NAME] tables in TOML"


class Setting(Struct, frozen=True):
    """One setting: what it may be, why it exists and has its default, and how it is checked."""

    name: str
    allowed: str
    why: str
    check: Callable[[object], object]

    @property
    def variable(self) -> str | None:
        """The environment variable that sets it; tools need more than a line of text."""
        return None if self.name == "tools" else f"CLEW_{self.name.upper()}"


def pass_names() -> tuple[str, ...]:
    """The passes that exist, in their default order."""
    from .passes import PASSES  # late, for passes know the policy

    return tuple(offer.__name__ for offer in PASSES)


def _known_passes(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = pass_names()
    allowed = f"a list of {listed(names)}, each at most once, or default (None in code)"
    if not isinstance(value, list | tuple):
        raise ValueError(allowed)
    chosen = tuple(cast(list[object], value))
    if any(name not in names for name in chosen) or len(set(chosen)) < len(chosen):
        raise ValueError(allowed)
    return cast(tuple[str, ...], chosen)


def _registry(value: object) -> Tools:
    if not isinstance(value, Tools):
        raise ValueError(_TOOLS)
    return value


SETTINGS: Final[tuple[Setting, ...]] = (
    Setting(
        "cap",
        CHARACTERS,
        "How many characters a tool's result may keep once the model has seen it. The default lets "
        "nearly every file and log through whole and stops the few that would fill the window.",
        characters,
    ),
    Setting(
        "tools",
        _TOOLS,
        "What you know of your own tools: a cap of their own, and whether running them again is "
        "safe. Nothing is declared by default, and nothing is guessed from a name.",
        _registry,
    ),
    Setting(
        "passes",
        _PASSES,
        "Which passes run, and in which order. By default all of them, in the order that the "
        "passes were made for.",
        _known_passes,
    ),
    Setting(
        "repair",
        SWITCH,
        "Whether a history that the provider would reject is mended. On by default: what the "
        "provider would accept is never touched, so a sound history cannot notice it.",
        switch,
    ),
    Setting(
        "counter",
        f"one of {listed(COUNTERS)}",
        "How tokens are counted: o200k counts exactly, estimate is quick and close, auto takes "
        "o200k for the models that use it and the estimate where the tokenizer is not public.",
        lambda value: one_of(value, COUNTERS),
    ),
    Setting(
        "step",
        _TOKENS,
        "How many tokens of new history must arrive before edits are considered again. Smaller "
        "reacts sooner; larger changes the projection, and so the provider's cache, less often.",
        lambda value: whole(value, 1, _TOKENS),
    ),
    Setting(
        "growth",
        _SHARE,
        "The same as a share of the projection; the larger of the two counts. It keeps the work "
        "linear: the longer the history, the more must be new before all of it is looked at again.",
        lambda value: share(value, _SHARE),
    ),
)
NAMES: Final = tuple(setting.name for setting in SETTINGS)
PRESETS: Final[Mapping[str, Mapping[str, object]]] = {"safe": {}}  # what differs from the defaults

_BY_NAME = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How a history is to be compacted; every default is safe.

    >>> Policy(cap=20_000).origins()["cap"], Policy().origins()["cap"]
    ('code', 'default')
    """

    cap: int | None = 32_000
    tools: Tools = _NO_TOOLS
    passes: tuple[str, ...] | None = None
    repair: bool = True
    counter: CounterName = "auto"
    step: int = 2_000
    growth: float = 0.1

    def __new__(cls, *_args: Any, **given: Any) -> Self:
        """Refuse unknown settings, and note which ones the caller gave."""
        refuse_unknown("Policy: ", given.items(), NAMES)
        policy = object.__new__(cls)
        object.__setattr__(policy, "_origins", dict.fromkeys(_entries(given), CODE))
        return policy

    def __post_init__(self) -> None:
        for name in NAMES:
            object.__setattr__(self, name, settle("Policy: ", name, getattr(self, name)))

    @classmethod
    def preset(cls, name: str) -> Self:
        """A policy by its name; `safe` is the default."""
        if name not in tuple(PRESETS):
            raise refusal("Policy: ", "preset", name, listed(PRESETS))
        return cls().revised(PRESETS[name], f"preset {name}")

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> Policy:
        """The policy in a `clew.toml`, or in `[tool.clew]` of a `pyproject.toml`."""
        from .settings import from_toml  # late, for it does I/O and the core does not

        return from_toml(path)

    @classmethod
    def from_env(cls, environ: Mapping[str, str], base: Policy | None = None) -> Policy:
        """`base` with what the `CLEW_…` variables set; an unknown one is an error."""
        from .settings import from_env

        return from_env(environ, base)

    @classmethod
    def load(
        cls,
        start: str | PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        **overrides: Any,
    ) -> Policy:
        """Defaults, then pyproject.toml and clew.toml found upwards, environment, overrides."""
        from .settings import load

        return load(start, environ, overrides)

    def replace(self, **changes: Any) -> Self:
        """This policy with other values for some settings."""
        refuse_unknown("Policy: ", changes.items(), NAMES)
        return self.revised(changes, CODE)

    def revised(self, values: Mapping[str, object], origin: str) -> Self:
        """This policy with these values, which came from `origin`."""
        settled: dict[str, Any] = {
            name: settle(f"{origin}: ", name, value) for name, value in values.items()
        }
        current: dict[str, Any] = {name: getattr(self, name) for name in NAMES}
        policy = type(self)(**(current | settled))
        changed = dict.fromkeys(_entries(settled, beside=self.tools), origin)
        object.__setattr__(policy, "_origins", {**self.__dict__["_origins"], **changed})
        return policy

    def origins(self) -> Mapping[str, str]:
        """Where each value came from, by setting, and for tools also by `tools.NAME`."""
        noted: dict[str, str] = self.__dict__["_origins"]
        declared = [f"tools.{tool.name}" for tool in self.tools]
        return {key: noted.get(key, DEFAULT) for key in (*NAMES, *declared)}

    def fingerprint(self) -> bytes:
        """The same for policies that project alike, in every process."""
        values = [[name, _plain(getattr(self, name))] for name in NAMES]
        return hashlib.blake2b(json.dumps(values).encode(), digest_size=16).digest()


def _entries(values: Mapping[str, object], beside: Tools = _NO_TOOLS) -> list[str]:
    """The settings among these values, and each tool that `beside` does not declare the same."""
    declared = values.get("tools")
    tools = declared if isinstance(declared, Tools) else _NO_TOOLS
    return [*values, *(f"tools.{tool.name}" for tool in tools if tool not in set(beside))]


def settle(where: str, name: str, value: object) -> object:
    """The value of a setting, checked; `where` says in an error which source it came from."""
    setting = _BY_NAME[name]
    try:
        return setting.check(value)
    except ValueError as error:
        raise refusal(where, name, value, str(error) or setting.allowed) from None


def _plain(value: object) -> object:
    """A setting's value as JSON can hold it."""
    if isinstance(value, Tools):
        return [
            [tool.name, *([] if isinstance(tool.cap, UnsetType) else [tool.cap]), tool.rerun]
            for tool in value
        ]
    return value
