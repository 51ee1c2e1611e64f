"""Policy: every setting with its default and its reason, and the presets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self, cast

from msgspec import Struct

from .errors import (
    BOOLEAN_ALLOWED,
    CHARACTERS_ALLOWED,
    MAX_VALUE,
    boolean,
    character_limit,
    closest_match,
    factor,
    invalid_value,
    join_names,
    one_of,
    quote_value,
    ratio,
    reject_unknown_keys,
    subset_of,
    whole_number,
)
from .plugins import load_plugin, pass_name, pass_token, plugin_names
from .tools import CONTENTS, Tools

if TYPE_CHECKING:
    from os import PathLike

    from .passes import Pass

# Settings of methods that evaluate every request and edit regardless of prefix breaks.
_EVERY_REQUEST_SETTINGS: Final[Mapping[str, object]] = {
    "eager": True,
    "reevaluate_tokens": 1,
    "reevaluate_ratio": 0.0,
    "keep_exchanges": 0,
}
# Settings that change what a model sees of a new result, and cut recent ones.
_LEAN_SETTINGS: Final[Mapping[str, object]] = {
    "trim_on_arrival": True,
    "strip_decoration": True,
    "line_number_interval": 5,
    "keep_exchanges": 0,
    "miss_penalty": 3.0,
}
# Differences from the defaults. The first three are points on the frontier in docs/how/presets.md;
# the others reproduce the methods of other projects, which that page lists.
PRESETS: Final[Mapping[str, Mapping[str, object]]] = {
    "safe": {},
    "lean": _LEAN_SETTINGS,
    "tight": {**_LEAN_SETTINGS, "budget": 120_000},
    "codetether": {
        "passes": (
            "old_reasoning",
            "identical_results",
            "cap_results",
            "repeated_calls",
            "squeeze_prose",
        ),
        "cap_chars": 4_096,
        "keep_messages": 8,
        "keep_reasoning_messages": 4,
        **_EVERY_REQUEST_SETTINGS,
    },
    "clark": {
        "passes": ("cap_results",),
        "cap_chars": 32_000,
        "keep_calls": 1,
        **_EVERY_REQUEST_SETTINGS,
    },
    "rfc013": {
        "passes": ("fold_exchanges",),
        "keep_calls": 6,
        "fold_over_chars": 10_000,
        **_EVERY_REQUEST_SETTINGS,
    },
    "pi-dcp": {
        "passes": ("identical_results", "superseded_writes", "resolved_errors"),
        "keep_messages": 10,
        "min_chars": 0,
        **_EVERY_REQUEST_SETTINGS,
    },
}


CounterName = Literal["auto", "o200k", "estimate"]
COUNTERS: Final[tuple[CounterName, ...]] = ("auto", "o200k", "estimate")
Rendering = Literal["calls", "text", "text-only", "rfc013"]
RENDERINGS: Final[tuple[Rendering, ...]] = ("calls", "text", "text-only", "rfc013")
DEFAULT: Final = "default"  # the origin of a value that was not set
CODE: Final = "code"  # the origin of a value that the caller passed

_TOKENS_ALLOWED = f"a whole number from 1 to {MAX_VALUE:,}"
_COUNT_ALLOWED = f"a whole number from 0 to {MAX_VALUE:,}"
_RATIO_ALLOWED = "a number from 0 to 1"
_PASSES_ALLOWED = "a list of names of passes, each at most once, or default (None in code)"
_MIN_BUDGET_TOKENS = 2_000  # an agent's system prompt alone is larger: less is a mistake
_BUDGET_ALLOWED = (
    f"a whole number from {_MIN_BUDGET_TOKENS:,} to {MAX_VALUE:,}, or unlimited (None in code)"
)
_REASONING_ALLOWED = f"a whole number from 0 to {MAX_VALUE:,}, or same (None in code)"
_FOLD_OVER_ALLOWED = f"a whole number from 0 to {MAX_VALUE:,}, or never (None in code)"
_MIN_CHARS_ALLOWED = f"a whole number from 0 to {MAX_VALUE:,}, or default (None in code)"
_NAMES_ALLOWED = "a list of texts, none of them empty"
_FACTOR_ALLOWED = "a number from 0 to 100"
_PRICE_ALLOWED = "a number from 0 to 100, or listed (None in code)"
_KINDS_ALLOWED = (
    f"a list of {join_names((*CONTENTS, 'other'))}, each at most once, or default (None in code)"
)
_NO_TOOLS = Tools()
_TOOLS_ALLOWED = "a Tools in code; [tools.NAME] tables in TOML"


class SettingSpec(Struct, frozen=True):
    """A setting: its allowed values, its description and its check."""

    name: str
    allowed: str
    description: str  # unit, effect, and the reason for the default
    check: Callable[[object], object]
    advanced: bool = False  # exists for the presets that reproduce other projects' methods

    @property
    def variable(self) -> str | None:
        """The environment variable that sets it; None for tools, which need a table."""
        return None if self.name == "tools" else f"RESPOOL_{self.name.upper()}"


def pass_names() -> tuple[str, ...]:
    """The names of all passes, in their default order."""
    from .passes import PASSES  # late: passes import the policy

    return tuple(offer.__name__ for offer in PASSES)


def default_pass_names() -> tuple[str, ...]:
    """The names of the passes that run by default."""
    from .passes import OPT_IN  # late, as above

    return tuple(name for name in pass_names() if name not in OPT_IN)


def _resolve_passes(value: object) -> tuple[str | Pass, ...] | None:
    """Resolve a list of passes: names, functions, `default` for the default ones, `-NAME`."""
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise ValueError(_describe_passes())
    given = cast(list[object], value)
    excluded = {one[1:] for one in given if isinstance(one, str) and one.startswith("-")}
    named = [_resolve_pass(one) for one in given if one != DEFAULT and not _is_exclusion(one)]
    names = [_name_of_pass(one) for one in named]
    default = default_pass_names()
    if len(set(names)) < len(names) or excluded & set(names) or excluded - set(default):
        raise ValueError(_describe_passes())
    rest = [name for name in default if name not in names and name not in excluded]
    if DEFAULT in given:
        at = sum(not _is_exclusion(one) for one in given[: given.index(DEFAULT)])
        return (*named[:at], *rest, *named[at:])
    return (*(rest if excluded else ()), *named)


def _is_exclusion(one: object) -> bool:
    return isinstance(one, str) and one.startswith("-")


def _resolve_pass(one: object) -> str | Pass:
    """Resolve one pass: a name of respool's own, or the function of a user's."""
    if callable(one):
        return cast("Pass", one)
    if not isinstance(one, str):
        raise ValueError(_describe_passes())
    if one in pass_names():
        return one
    found = load_plugin(one)
    if found is None:
        near = closest_match(one, pass_names())
        hint = f"; for {quote_value(one)} did you mean {near}?" if near else ""
        raise ValueError(f"{_describe_passes()}{hint}")
    return found


def _name_of_pass(one: str | Pass) -> str:
    return one if isinstance(one, str) else pass_name(one)


def _describe_passes() -> str:
    names = join_names((*pass_names(), *plugin_names()))
    return f"a list of {names}, each at most once; also default, -NAME, and functions in code"


def _check_texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(_NAMES_ALLOWED)
    given = tuple(cast(list[object], value))
    if not all(isinstance(one, str) and one.strip() for one in given):
        raise ValueError(_NAMES_ALLOWED)
    return cast(tuple[str, ...], given)


def _check_budget(value: object) -> int | None:
    return None if value is None else whole_number(value, _MIN_BUDGET_TOKENS, _BUDGET_ALLOWED)


def _optional_whole_number(allowed: str) -> Callable[[object], int | None]:
    return lambda value: None if value is None else whole_number(value, 0, allowed)


def _check_price(value: object) -> float | None:
    return None if value is None else factor(value, _PRICE_ALLOWED)


def _check_tools(value: object) -> Tools:
    if not isinstance(value, Tools):
        raise ValueError(_TOOLS_ALLOWED)
    return value


SETTINGS: Final[tuple[SettingSpec, ...]] = (
    SettingSpec(
        "cap_chars",
        CHARACTERS_ALLOWED,
        "Maximum characters of a tool result once the model has seen it. Few files and logs are "
        "longer than the default.",
        character_limit,
    ),
    SettingSpec(
        "tools",
        _TOOLS_ALLOWED,
        "Declarations of your own tools. Without one, nothing is guessed from a name.",
        _check_tools,
    ),
    SettingSpec(
        "passes",
        _PASSES_ALLOWED,
        "The passes that run, in order, your own included. By default all that are not opt-in.",
        _resolve_passes,
    ),
    SettingSpec(
        "repair",
        BOOLEAN_ALLOWED,
        "Repair histories that the provider would reject. What the provider accepts is never "
        "touched.",
        boolean,
    ),
    SettingSpec(
        "counter",
        f"one of {join_names(COUNTERS)}",
        "Token counter: o200k is exact, estimate is close, auto takes o200k for models that use "
        "it and the estimate for others.",
        lambda value: one_of(value, COUNTERS),
    ),
    SettingSpec(
        "keep_exchanges",
        _COUNT_ALLOWED,
        "Latest seen exchanges that stay whole, unless a limit is exceeded. Agents work with the "
        "latest results; keeping six of them costs little.",
        lambda value: whole_number(value, 0, _COUNT_ALLOWED),
    ),
    SettingSpec(
        "keep_messages",
        _COUNT_ALLOWED,
        "Latest messages that no pass touches, new ones included.",
        lambda value: whole_number(value, 0, _COUNT_ALLOWED),
        advanced=True,
    ),
    SettingSpec(
        "keep_calls",
        _COUNT_ALLOWED,
        "Latest calls, with their results, that no pass touches, new ones included. Calls made "
        "together stay together.",
        lambda value: whole_number(value, 0, _COUNT_ALLOWED),
        advanced=True,
    ),
    SettingSpec(
        "keep_reasoning_messages",
        _REASONING_ALLOWED,
        "Latest messages that keep their reasoning. By default the other keep settings decide.",
        _optional_whole_number(_REASONING_ALLOWED),
        advanced=True,
    ),
    SettingSpec(
        "reevaluate_tokens",
        _TOKENS_ALLOWED,
        "New tokens that must arrive before edits are considered again. A larger number changes "
        "the projection less often.",
        lambda value: whole_number(value, 1, _TOKENS_ALLOWED),
    ),
    SettingSpec(
        "reevaluate_ratio",
        _RATIO_ALLOWED,
        "The same as a ratio of the projection. The larger of the two counts.",
        lambda value: ratio(value, _RATIO_ALLOWED),
    ),
    SettingSpec(
        "pin_tools",
        _NAMES_ALLOWED,
        "Tools whose calls and results are never edited, by name or by kind: read, write, run, "
        "search, other.",
        _check_texts,
    ),
    SettingSpec(
        "pin_paths",
        _NAMES_ALLOWED,
        "Files whose reads and writes are never edited, as patterns: * within one folder, ** "
        "across folders.",
        _check_texts,
    ),
    SettingSpec(
        "pin_calls",
        _NAMES_ALLOWED,
        "Single calls that are never edited, by the id in the request.",
        _check_texts,
    ),
    SettingSpec(
        "errors_verbatim",
        BOOLEAN_ALLOWED,
        "Keep the latest failure of an operation word for word until that operation succeeds. An "
        "agent that forgets why something failed does it again.",
        boolean,
    ),
    SettingSpec(
        "trim_on_arrival",
        BOOLEAN_ALLOWED,
        "Leave out lines that will hardly be needed from new runs, searches and long files. This "
        "breaks no cache. Off by default: a model may not ask for what it never saw.",
        boolean,
    ),
    SettingSpec(
        "strip_decoration",
        BOOLEAN_ALLOWED,
        "Leave out of new results what tools add to their lines: padding before line numbers, "
        "notes of a shell tool, the path that search hits repeat; and trailing blanks, repeated "
        "lines (counted) and blank lines. Off by default: a new result arrives as it is but for "
        "colour codes, redrawn lines and text that stands further up.",
        boolean,
    ),
    SettingSpec(
        "line_number_interval",
        _TOKENS_ALLOWED,
        "Interval of the line numbers that stay where a reading tool puts one before each line; 1 "
        "keeps all, as by default. With 5 every fifth stays, from which the others follow.",
        lambda value: whole_number(value, 1, _TOKENS_ALLOWED),
    ),
    SettingSpec(
        "trim_kinds",
        _KINDS_ALLOWED,
        "Kinds of content that trim_results cuts to their shape. By default all but code and "
        "listings, which are needed again too often.",
        lambda value: subset_of(value, (*CONTENTS, "other", DEFAULT), _KINDS_ALLOWED),
    ),
    SettingSpec(
        "budget",
        _BUDGET_ALLOWED,
        "Maximum tokens of a whole request. Without one, respool cuts what pays, and cuts more "
        "only near the model's context window.",
        _check_budget,
    ),
    SettingSpec(
        "fold_over_chars",
        _FOLD_OVER_ALLOWED,
        "Fold all old exchanges when calls and results exceed this many characters, even without a"
        " budget.",
        _optional_whole_number(_FOLD_OVER_ALLOWED),
        advanced=True,
    ),
    SettingSpec(
        "min_chars",
        _MIN_CHARS_ALLOWED,
        "Minimum characters of a call or result before a pass replaces or drops it. By default "
        "each pass has its own limit.",
        _optional_whole_number(_MIN_CHARS_ALLOWED),
        advanced=True,
    ),
    SettingSpec(
        "miss_penalty",
        _FACTOR_ALLOWED,
        "How much more a miss counts than asking again costs. A larger number cuts less.",
        lambda value: factor(value, _FACTOR_ALLOWED),
    ),
    SettingSpec(
        "eager",
        BOOLEAN_ALLOWED,
        "Take every offer as soon as it is made, whatever the cache costs.",
        boolean,
        advanced=True,
    ),
    SettingSpec(
        "advise",
        BOOLEAN_ALLOWED,
        "Advise an agent in a loop, in one line at the end of its newest result. Off by default: "
        "it puts respool's words into a tool's result.",
        boolean,
    ),
    SettingSpec(
        "cache_read_price",
        _PRICE_ALLOWED,
        "Price of a token read from the provider's cache, in tokens of plain input. By default "
        "the model's listed price.",
        _check_price,
    ),
    SettingSpec(
        "cache_write_price",
        _PRICE_ALLOWED,
        "Price of a token written to the provider's cache, in tokens of plain input. By default "
        "the listed price for the lifetime that the cache breakpoints ask for.",
        _check_price,
    ),
    SettingSpec(
        "rendering",
        f"one of {join_names(RENDERINGS)}",
        "Form of the tool history: as calls, as text in plain messages for gateways and models "
        "that refuse calls (text-only also removes the tool definitions), or in the form of RFC "
        "013.",
        lambda value: one_of(value, RENDERINGS),
    ),
)
NAMES: Final = tuple(setting.name for setting in SETTINGS)
ADVANCED: Final = frozenset(setting.name for setting in SETTINGS if setting.advanced)
_BY_NAME = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Settings of a compaction; every default is safe.

    >>> Policy(cap_chars=20_000).origins()["cap_chars"], Policy().origins()["cap_chars"]
    ('code', 'default')
    """

    cap_chars: int | None = 32_000
    tools: Tools = _NO_TOOLS
    # Lists are accepted and stored as tuples.
    passes: Sequence[str | Pass] | None = None
    repair: bool = True
    counter: CounterName = "auto"
    keep_exchanges: int = 6
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
    strip_decoration: bool = False
    line_number_interval: int = 1
    trim_kinds: Sequence[str] | None = None
    budget: int | None = None
    fold_over_chars: int | None = None
    min_chars: int | None = None
    miss_penalty: float = 2.5
    eager: bool = False
    advise: bool = False
    cache_read_price: float | None = None
    cache_write_price: float | None = None
    rendering: Rendering = "calls"

    def __new__(cls, *_args: Any, **given: Any) -> Self:
        """Reject unknown settings and record which ones the caller passed."""
        reject_unknown_keys("Policy: ", given.items(), NAMES)
        policy = object.__new__(cls)
        object.__setattr__(policy, "_origins", dict.fromkeys(_origin_keys(given), CODE))
        return policy

    def __post_init__(self) -> None:
        for name in NAMES:
            object.__setattr__(self, name, check_setting("Policy: ", name, getattr(self, name)))

    @classmethod
    def preset(cls, name: str) -> Self:
        """The policy of a preset; `safe` is the default."""
        if name not in tuple(PRESETS):
            raise invalid_value("Policy: ", "preset", name, join_names(PRESETS))
        return cls().with_values(PRESETS[name], f"preset {name}")

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> Policy:
        """The policy in a `respool.toml`, or in `[tool.respool]` of a `pyproject.toml`."""
        from .config import from_toml  # late: it does I/O, the core does not

        return from_toml(path)

    @classmethod
    def from_env(cls, environ: Mapping[str, str], base: Policy | None = None) -> Policy:
        """`base` with what the `RESPOOL_…` variables set; an unknown one is an error."""
        from .config import from_env

        return from_env(environ, base)

    @classmethod
    def load(
        cls,
        start: str | PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        **overrides: Any,
    ) -> Policy:
        """Defaults, then pyproject.toml and respool.toml found upwards, environment, overrides."""
        from .config import load

        return load(start, environ, overrides)

    def replace(self, **changes: Any) -> Self:
        """This policy with other values for some settings."""
        reject_unknown_keys("Policy: ", changes.items(), NAMES)
        return self.with_values(changes, CODE)

    def with_values(self, values: Mapping[str, object], origin: str) -> Self:
        """This policy with these values, which came from `origin`."""
        settled: dict[str, Any] = {
            name: check_setting(f"{origin}: ", name, value) for name, value in values.items()
        }
        current: dict[str, Any] = {name: getattr(self, name) for name in NAMES}
        policy = type(self)(**(current | settled))
        changed = dict.fromkeys(_origin_keys(settled, beside=self.tools), origin)
        object.__setattr__(policy, "_origins", {**self.__dict__["_origins"], **changed})
        return policy

    def origins(self) -> Mapping[str, str]:
        """The origin of each value, by setting, and for tools also by `tools.NAME`."""
        known: dict[str, str] = self.__dict__["_origins"]
        declared = [f"tools.{tool.name}" for tool in self.tools]
        return {key: known.get(key, DEFAULT) for key in (*NAMES, *declared)}

    def fingerprint(self) -> bytes:
        """A hash that is equal, in every process, for policies with equal projections."""
        values = [[name, _to_plain_data(getattr(self, name))] for name in NAMES]
        return hashlib.blake2b(json.dumps(values).encode(), digest_size=16).digest()


def _origin_keys(values: Mapping[str, object], beside: Tools = _NO_TOOLS) -> list[str]:
    """The settings among these values, and each tool that `beside` declares otherwise or not."""
    declared = values.get("tools")
    tools = declared if isinstance(declared, Tools) else _NO_TOOLS
    return [*values, *(f"tools.{tool.name}" for tool in tools if tool not in set(beside))]


def check_setting(source: str, name: str, value: object) -> object:
    """Check the value of a setting; an error begins with `source`."""
    setting = _BY_NAME[name]
    try:
        return setting.check(value)
    except ValueError as error:
        raise invalid_value(source, name, value, str(error) or setting.allowed) from None


def _to_plain_data(value: object) -> object:
    """A setting's value as JSON data; a user's function by its token."""
    if isinstance(value, tuple):
        return [_to_plain_data(one) for one in cast(tuple[object, ...], value)]
    if isinstance(value, Tools):
        return [
            [[key, _to_plain_data(one)] for key, one in tool.declared().items()] for tool in value
        ]
    return pass_token(value) if callable(value) else value
