"""Every setting with its default and its reason, in one frozen value that knows its sources."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self, cast

from msgspec import Struct

from .presets import PRESETS
from .ranges import (
    CHARACTERS,
    MOST,
    SWITCH,
    characters,
    factor,
    listed,
    nearest,
    one_of,
    refusal,
    refuse_unknown,
    several_of,
    share,
    shown,
    switch,
    whole,
)
from .registered import name_of, offered, offered_names, token_of
from .tools import CONTENTS, Tools

if TYPE_CHECKING:
    from os import PathLike

    from .passes import Pass

CounterName = Literal["auto", "o200k", "estimate"]
COUNTERS: Final[tuple[CounterName, ...]] = ("auto", "o200k", "estimate")
Rendering = Literal["calls", "text", "text-only", "rfc013"]
RENDERINGS: Final[tuple[Rendering, ...]] = ("calls", "text", "text-only", "rfc013")
DEFAULT: Final = "default"  # the origin of a value that nobody set
CODE: Final = "code"  # the origin of a value that the caller gave

_TOKENS = f"a whole number from 1 to {MOST:,}"
_EXCHANGES = f"a whole number from 0 to {MOST:,}"
_SHARE = "a number from 0 to 1"
_PASSES = "a list of names of passes, each at most once, or default (None in code)"
_LEAST_BUDGET = 2_000  # tokens; an agent's head alone is larger, so less is a slip
_BUDGET = f"a whole number from {_LEAST_BUDGET:,} to {MOST:,}, or unlimited (None in code)"
_REASONING = f"a whole number from 0 to {MOST:,}, or same (None in code)"
_FOLD_OVER = f"a whole number from 0 to {MOST:,}, or never (None in code)"
_LEAST = f"a whole number from 0 to {MOST:,}, or usual (None in code)"
_NAMES = "a list of texts, none of them empty"
_FACTOR = "a number from 0 to 100"
_PRICE = "a number from 0 to 100, or listed (None in code)"
_KINDS = f"a list of {listed((*CONTENTS, 'other'))}, each at most once, or usual (None in code)"
_NO_TOOLS = Tools()
_TOOLS = "a Tools in code; [tools.NAME] tables in TOML"


class Setting(Struct, frozen=True):
    """One setting: what it may be, why it exists and has its default, and how it is checked."""

    name: str
    allowed: str
    reason: str
    check: Callable[[object], object]

    @property
    def variable(self) -> str | None:
        """The environment variable that sets it; tools need more than a line of text."""
        return None if self.name == "tools" else f"RESPOOL_{self.name.upper()}"


def pass_names() -> tuple[str, ...]:
    """The passes that exist, in their default order."""
    from .passes import PASSES  # late, for passes know the policy

    return tuple(offer.__name__ for offer in PASSES)


def usual_names() -> tuple[str, ...]:
    """The passes that run when nothing else is said."""
    from .passes import OPT_IN  # late, as above

    return tuple(name for name in pass_names() if name not in OPT_IN)


def _known_passes(value: object) -> tuple[str | Pass, ...] | None:
    """The passes that a list means: names, functions, `default` for all usual ones, `-name`."""
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise ValueError(_allowed_passes())
    given = cast(list[object], value)
    less = {one[1:] for one in given if isinstance(one, str) and one.startswith("-")}
    named = [_pass(one) for one in given if one != DEFAULT and not _is_less(one)]
    names = [_name(one) for one in named]
    usual = usual_names()
    if len(set(names)) < len(names) or less & set(names) or less - set(usual):
        raise ValueError(_allowed_passes())
    rest = [name for name in usual if name not in names and name not in less]
    if DEFAULT in given:
        at = sum(not _is_less(one) for one in given[: given.index(DEFAULT)])
        return (*named[:at], *rest, *named[at:])
    return (*(rest if less else ()), *named)


def _is_less(one: object) -> bool:
    return isinstance(one, str) and one.startswith("-")


def _pass(one: object) -> str | Pass:
    """A pass of respool's by its name; one of the user's as the function it is."""
    if callable(one):
        return cast("Pass", one)
    if not isinstance(one, str):
        raise ValueError(_allowed_passes())
    if one in pass_names():
        return one
    found = offered(one)
    if found is None:
        near = nearest(one, pass_names())
        hint = f"; for {shown(one)} did you mean {near}?" if near else ""
        raise ValueError(f"{_allowed_passes()}{hint}")
    return found


def _name(one: str | Pass) -> str:
    return one if isinstance(one, str) else name_of(one)


def _allowed_passes() -> str:
    names = listed((*pass_names(), *offered_names()))
    return f"a list of {names}, each at most once; also default, -NAME, and functions in code"


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(_NAMES)
    given = tuple(cast(list[object], value))
    if not all(isinstance(one, str) and one.strip() for one in given):
        raise ValueError(_NAMES)
    return cast(tuple[str, ...], given)


def _budget(value: object) -> int | None:
    return None if value is None else whole(value, _LEAST_BUDGET, _BUDGET)


def _whole_or_none(allowed: str) -> Callable[[object], int | None]:
    return lambda value: None if value is None else whole(value, 0, allowed)


def _price(value: object) -> float | None:
    return None if value is None else factor(value, _PRICE)


def _registry(value: object) -> Tools:
    if not isinstance(value, Tools):
        raise ValueError(_TOOLS)
    return value


SETTINGS: Final[tuple[Setting, ...]] = (
    Setting(
        "cap_chars",
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
        "Which passes run, and in which order; your own among them. By default all of respool's "
        "that "
        "are not opt-in, in the order that they were made for.",
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
        "keep_exchanges",
        _EXCHANGES,
        "How many of the latest exchanges that the model has seen are left alone by passes that "
        "cut by age. None by default: what will be needed is forecast, and age tells little of it.",
        lambda value: whole(value, 0, _EXCHANGES),
    ),
    Setting(
        "keep_messages",
        _EXCHANGES,
        "How many of the latest messages no pass touches, new ones counted. None by default: age "
        "tells little of what will be needed. It is how other methods count.",
        lambda value: whole(value, 0, _EXCHANGES),
    ),
    Setting(
        "keep_calls",
        _EXCHANGES,
        "How many of the latest calls, with their results, no pass touches, new ones counted; "
        "calls that were made together are never parted. None by default: age tells little of "
        "what will be needed.",
        lambda value: whole(value, 0, _EXCHANGES),
    ),
    Setting(
        "keep_reasoning_messages",
        _REASONING,
        "How many of the latest messages keep their reasoning, where that is another number than "
        "for everything else. The same by default.",
        _whole_or_none(_REASONING),
    ),
    Setting(
        "reevaluate_tokens",
        _TOKENS,
        "How many tokens of new history must arrive before edits are considered again. Smaller "
        "reacts sooner; larger changes the projection, and so the provider's cache, less often.",
        lambda value: whole(value, 1, _TOKENS),
    ),
    Setting(
        "reevaluate_ratio",
        _SHARE,
        "The same as a share of the projection; the larger of the two counts. It keeps the work "
        "linear: the longer the history, the more must be new before all of it is looked at again.",
        lambda value: share(value, _SHARE),
    ),
    Setting(
        "pin_tools",
        _NAMES,
        "Tools whose calls and results always stay as they are, by name, or by kind: read, write, "
        "run, search, other. None by default: respool cannot know which of your tools are sacred.",
        _texts,
    ),
    Setting(
        "pin_paths",
        _NAMES,
        "Files whose reads and writes always stay as they are, as patterns: * within one folder, "
        "** across folders. None by default; a plan or a specification is worth a pin.",
        _texts,
    ),
    Setting(
        "pin_calls",
        _NAMES,
        "Single calls that always stay as they are, with their results, by the id that the request "
        "carries. None by default; it is for programs that know what must not go.",
        _texts,
    ),
    Setting(
        "errors_verbatim",
        SWITCH,
        "Whether the latest failure of an operation stays word for word until that operation "
        "succeeds. On by default: an agent that forgets why something failed does it again.",
        switch,
    ),
    Setting(
        "trim_on_arrival",
        SWITCH,
        "Whether lines that will hardly be needed may be left out of runs, searches and long files "
        "before the model has seen them, where that breaks no cache. Off by default: what was "
        "never shown cannot be missed, and so is not asked for.",
        switch,
    ),
    Setting(
        "line_number_interval",
        _TOKENS,
        "Of the numbers that a reading tool puts before each line of a file, every so many-th "
        "stays (1: all), and the first and the last. Every fifth by default: the others can be "
        "told from those, and are a sixth of what Claude Code reads.",
        lambda value: whole(value, 1, _TOKENS),
    ),
    Setting(
        "trim_kinds",
        _KINDS,
        "Which kinds of content trim_results cuts to their shape; default stands for the usual. By "
        "default all but code and listings, which are needed again too often when they are cut.",
        lambda value: several_of(value, (*CONTENTS, "other", DEFAULT), _KINDS),
    ),
    Setting(
        "budget",
        _BUDGET,
        "How many tokens a request may have in all. Unlimited by default: respool then cuts what "
        "pays, and more only where a request comes near the window of its model.",
        _budget,
    ),
    Setting(
        "fold_over_chars",
        _FOLD_OVER,
        "Over how many characters of calls and results all old ones fold into a summary, without "
        "any need of room. Never by default: what folds is gone until somebody asks for it.",
        _whole_or_none(_FOLD_OVER),
    ),
    Setting(
        "min_chars",
        _LEAST,
        "How many characters a call or a result must have before a reference, a line or nothing "
        "takes its place. By default each pass has its own limit, under which little is saved.",
        _whole_or_none(_LEAST),
    ),
    Setting(
        "miss_penalty",
        _FACTOR,
        "How much more it counts when the model misses something than what asking again costs. "
        "Larger cuts less. The default keeps the turns that miss something at one in a hundred.",
        lambda value: factor(value, _FACTOR),
    ),
    Setting(
        "eager",
        SWITCH,
        "Whether every offer is taken as soon as it is made, whatever it costs. Off by default: "
        "what stands behind an edit is written to the provider's cache anew, so edits wait until "
        "they pay.",
        switch,
    ),
    Setting(
        "advise",
        SWITCH,
        "Whether an agent that goes in circles is told so, in a line at the end of its newest "
        "result, which then stays there. Off by default: it puts words of respool's into a tool's "
        "mouth, and that is yours to allow.",
        switch,
    ),
    Setting(
        "cache_read_price",
        _PRICE,
        "What a token read from the provider's cache costs, in tokens of plain input. By default "
        "what the provider of the request's model charges.",
        _price,
    ),
    Setting(
        "cache_write_price",
        _PRICE,
        "What a token written to the provider's cache costs, in tokens of plain input. By default "
        "what the provider of the request's model charges, for as long as the marks ask for.",
        _price,
    ),
    Setting(
        "rendering",
        f"one of {listed(RENDERINGS)}",
        "How tool history goes out: as calls, or told in plain messages where a gateway or a model "
        "refuses them: as a record that the client keeps (text; text-only leaves out the tools, "
        "too), or in the words of RFC 013. Calls by default: models know them best.",
        lambda value: one_of(value, RENDERINGS),
    ),
)
NAMES: Final = tuple(setting.name for setting in SETTINGS)
_BY_NAME = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How a history is to be compacted; every default is safe.

    >>> Policy(cap_chars=20_000).origins()["cap_chars"], Policy().origins()["cap_chars"]
    ('code', 'default')
    """

    cap_chars: int | None = 32_000
    tools: Tools = _NO_TOOLS
    # Lists will do; they are kept as tuples.
    passes: Sequence[str | Pass] | None = None
    repair: bool = True
    counter: CounterName = "auto"
    keep_exchanges: int = 0
    keep_messages: int = 0
    keep_calls: int = 0
    keep_reasoning_messages: int | None = None
    reevaluate_tokens: int = 5_000
    reevaluate_ratio: float = 0.2
    pin_tools: Sequence[str] = ()
    pin_paths: Sequence[str] = ()
    pin_calls: Sequence[str] = ()
    errors_verbatim: bool = True
    trim_on_arrival: bool = False
    line_number_interval: int = 5
    trim_kinds: Sequence[str] | None = None
    budget: int | None = None
    fold_over_chars: int | None = None
    min_chars: int | None = None
    miss_penalty: float = 3.0
    eager: bool = False
    advise: bool = False
    cache_read_price: float | None = None
    cache_write_price: float | None = None
    rendering: Rendering = "calls"

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
        return cls().with_values(PRESETS[name], f"preset {name}")

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> Policy:
        """The policy in a `respool.toml`, or in `[tool.respool]` of a `pyproject.toml`."""
        from .settings import from_toml  # late, for it does I/O and the core does not

        return from_toml(path)

    @classmethod
    def from_env(cls, environ: Mapping[str, str], base: Policy | None = None) -> Policy:
        """`base` with what the `RESPOOL_…` variables set; an unknown one is an error."""
        from .settings import from_env

        return from_env(environ, base)

    @classmethod
    def load(
        cls,
        start: str | PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        **overrides: Any,
    ) -> Policy:
        """Defaults, then pyproject.toml and respool.toml found upwards, environment, overrides."""
        from .settings import load

        return load(start, environ, overrides)

    def replace(self, **changes: Any) -> Self:
        """This policy with other values for some settings."""
        refuse_unknown("Policy: ", changes.items(), NAMES)
        return self.with_values(changes, CODE)

    def with_values(self, values: Mapping[str, object], origin: str) -> Self:
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


def settle(source: str, name: str, value: object) -> object:
    """The value of a setting, checked; `where` says in an error which source it came from."""
    setting = _BY_NAME[name]
    try:
        return setting.check(value)
    except ValueError as error:
        raise refusal(source, name, value, str(error) or setting.allowed) from None


def _plain(value: object) -> object:
    """A setting's value as JSON can hold it; a user's function by what tells it apart."""
    if isinstance(value, tuple):
        return [_plain(one) for one in cast(tuple[object, ...], value)]
    if isinstance(value, Tools):
        return [[[key, _plain(told)] for key, told in tool.declared().items()] for tool in value]
    return token_of(value) if callable(value) else value
