"""Reading a policy from where people write it: respool.toml, pyproject.toml, the environment."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from .errors import PolicyError
from .policy import CODE, NAMES, SETTINGS, Policy
from .presets import PRESETS
from .ranges import listed, refusal, refuse_unknown, shown, unknown
from .tools import TOOL_KEYS, Tool, Tools

PREFIX: Final = "RESPOOL_"
PRESET: Final = "preset"  # a key beside the settings: it stands for what the preset sets
STORE: Final = "RESPOOL_STORE"  # these three are the store's, and no policy's
STORE_DAYS: Final = "RESPOOL_STORE_DAYS"
STORE_MEGABYTES: Final = "RESPOOL_STORE_MEGABYTES"
TOKEN: Final = "RESPOOL_TOKEN"  # the proxy's  # noqa: S105 - its name, not a token

_FILES = ("pyproject.toml", "respool.toml")  # the later one wins
_KEYS = (PRESET, *NAMES)
_VARIABLES = {setting.variable: setting.name for setting in SETTINGS if setting.variable}
_PRESET_VARIABLE = f"{PREFIX}{PRESET.upper()}"
_ELSEWHERE = (STORE, STORE_DAYS, STORE_MEGABYTES, TOKEN)
_WORDS = {  # what TOML has no value for
    "cap_chars": {"unlimited": None},
    "budget": {"unlimited": None},
    "keep_reasoning_messages": {"same": None},
    "fold_over_chars": {"never": None},
    "min_chars": {"usual": None},
    "passes": {"default": None},
    "trim_kinds": {"usual": None},
    "cache_read_price": {"listed": None},
    "cache_write_price": {"listed": None},
}
_SWITCHES = {
    **dict.fromkeys(("on", "true", "yes", "1"), True),
    **dict.fromkeys(("off", "false", "no", "0"), False),
}


def load(
    start: str | os.PathLike[str] | None,
    environ: Mapping[str, str] | None,
    overrides: Mapping[str, Any],
) -> Policy:
    """Defaults < pyproject.toml found upwards < respool.toml found upwards < environment < code."""
    here = Path.cwd() if start is None else Path(start).absolute()
    policy = Policy()
    for name in _FILES:
        found = _nearest(here, name)
        if found:
            policy = _over(policy, *found)
    policy = from_env(os.environ if environ is None else environ, policy)
    refuse_unknown("Policy: ", overrides.items(), NAMES)
    return _declared_over(policy, overrides, CODE)


def from_toml(path: str | os.PathLike[str]) -> Policy:
    """The policy in one file; a pyproject.toml must have a [tool.respool] table."""
    file = Path(path)
    table = _table(file)
    if table is None:
        raise PolicyError(f"{file}: there is no [tool.respool] table in this file")
    return _over(Policy(), file, table)


def from_env(environ: Mapping[str, str], base: Policy | None = None) -> Policy:
    """`base` with what the RESPOOL_… variables set; every one of them must be a setting."""
    policy = Policy() if base is None else base
    given = {
        name: text
        for name, text in sorted(environ.items())
        if name.startswith(PREFIX) and name not in _ELSEWHERE
    }
    if "RESPOOL_TOOLS" in given:
        text = given["RESPOOL_TOOLS"]
        raise refusal("environment: ", "RESPOOL_TOOLS", text, "[tools.NAME] in TOML, Tools in code")
    known = (_PRESET_VARIABLE, *_VARIABLES, *_ELSEWHERE)
    for name in given:
        if name not in known:  # told without its value, which may be a token
            raise unknown("environment: ", shown(name), name, known)
    if _PRESET_VARIABLE in given:
        policy = with_preset(policy, given.pop(_PRESET_VARIABLE), f"environment {_PRESET_VARIABLE}")
    for variable, text in given.items():
        name = _VARIABLES[variable]
        policy = policy.with_values({name: _from_text(name, text)}, f"environment {variable}")
    return policy


def with_preset(policy: Policy, name: object, origin: str) -> Policy:
    """The policy with what a preset sets, in place of what an earlier one did; `origin` asks."""
    known = name.strip() if isinstance(name, str) else ""
    if known not in PRESETS:
        raise refusal(f"{origin}: ", PRESET, name, listed(PRESETS))
    usual, came = Policy(), policy.origins()
    earlier = {key: getattr(usual, key) for key in NAMES if came[key].startswith(f"{PRESET} ")}
    return policy.with_values({**earlier, **PRESETS[known]}, f"{PRESET} {known}, by {origin}")


def _from_text(name: str, text: str) -> object:
    """What a variable says; text that says nothing is left for the setting's check to refuse."""
    word = text.strip()
    if word in _WORDS.get(name, {}):
        return _WORDS[name][word]
    match name:
        case "passes" | "pin_tools" | "pin_paths" | "pin_calls" | "trim_kinds":
            return () if word == "none" else tuple(part.strip() for part in word.split(","))
        case "repair" | "errors_verbatim" | "trim_on_arrival" | "eager" | "advise":
            return _SWITCHES.get(word.lower(), text)
        case "counter" | "rendering":
            return word
        case _:
            return _number(text)


def _number(text: str) -> object:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _nearest(here: Path, name: str) -> tuple[Path, dict[str, object]] | None:
    """The nearest file of this name, here or above, that speaks of respool, and what it says."""
    for folder in (here, *here.parents):
        file = folder / name
        if file.is_file():
            table = _table(file)
            if table is not None:
                return file, table
    return None


def _table(file: Path) -> dict[str, object] | None:
    """The settings in a file: all of it, or [tool.respool] in a pyproject.toml (None: no such)."""
    data = _read(file)
    if file.name != "pyproject.toml":
        return _parsed(file, data)
    if b"respool" not in data:  # another's, which may be broken for all that it is to us
        return None
    table = _parsed(file, data)
    for key in ("tool", "respool"):
        if key not in table:
            return None
        table = _as_table(f"{file}: ", key, table[key])
    return table


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise PolicyError(f"{file}: cannot be read: {error.strerror}") from None


def _parsed(file: Path, data: bytes) -> dict[str, object]:
    """A file's TOML; whatever is wrong with it becomes a sentence that names file and line."""
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise PolicyError(f"{file}: not valid UTF-8 (at line {line})") from None
    except RecursionError:
        raise PolicyError(f"{file}: not valid TOML: nested too deeply") from None
    except ValueError as error:
        raise PolicyError(f"{file}: not valid TOML: {error}") from None


def _over(policy: Policy, file: Path, table: Mapping[str, object]) -> Policy:
    """The policy with what a file's table says."""
    origin = f"{file.name}: {file}"
    refuse_unknown(f"{origin}: ", table.items(), _KEYS)
    if PRESET in table:
        policy = with_preset(policy, table[PRESET], origin)
    said = {name: value for name, value in table.items() if name != PRESET}
    values = {name: _from_table(name, value, origin) for name, value in said.items()}
    return _declared_over(policy, values, origin)


def _from_table(name: str, value: object, origin: str) -> object:
    return _tools(value, origin) if name == "tools" else _said(name, value)


def word_for_none(name: str) -> str:
    """The word that stands for None where people write this setting."""
    return next(iter(_WORDS[name]))


def _said(name: str, value: object) -> object:
    """The value behind a word that stands for what TOML cannot say."""
    return _WORDS[name].get(value, value) if isinstance(value, str) and name in _WORDS else value


def _tools(value: object, origin: str) -> Tools:
    """All the [tools.NAME] tables of a file."""
    table = _as_table(f"{origin}: ", "tools", value)
    declared = {name: _declared(name, keys, origin) for name, keys in table.items()}
    try:
        return Tools([Tool(name, **keys) for name, keys in declared.items()])
    except PolicyError as error:
        raise PolicyError(f"{origin}: {error}") from None


def _declared(name: str, keys: object, origin: str) -> dict[str, Any]:
    """One of these tables, ready to become a tool."""
    table = _as_table(f"{origin}: ", f"tools.{name}", keys)
    refuse_unknown(f"{origin}: tools.{name}: ", table.items(), TOOL_KEYS)
    return {key: _said(key, value) for key, value in table.items()}


def _as_table(where: str, key: str, value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise refusal(where, key, value, "a table")
    return cast(dict[str, object], value)


def _declared_over(policy: Policy, values: Mapping[str, object], origin: str) -> Policy:
    """The policy with these values; tools join those declared already, the later one winning."""
    tools = values.get("tools")
    if isinstance(tools, Tools):
        values = {**values, "tools": policy.tools.declare(*tools)}
    return policy.with_values(values, origin)
