"""Policy settings from respool.toml, pyproject.toml and the environment."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from .errors import (
    PolicyError,
    invalid_value,
    join_names,
    quote_value,
    reject_unknown_keys,
    unknown_key,
)
from .policy import CODE, NAMES, PRESETS, SETTINGS, Policy
from .tools import TOOL_KEYS, Tool, Tools

PREFIX: Final = "RESPOOL_"
PRESET: Final = "preset"  # a key beside the settings: it sets all that the preset sets
NATIVE: Final = "RESPOOL_NATIVE"  # of the process: it changes no projection
STORE: Final = "RESPOOL_STORE"  # these three belong to the store, not to a policy
STORE_DAYS: Final = "RESPOOL_STORE_DAYS"
STORE_MEGABYTES: Final = "RESPOOL_STORE_MEGABYTES"
TOKEN: Final = "RESPOOL_TOKEN"  # of the proxy  # noqa: S105 - its name, not a token

_FILE_NAMES = ("pyproject.toml", "respool.toml")  # the later one wins
_KEYS = (PRESET, *NAMES)
_SETTING_BY_VARIABLE = {setting.variable: setting.name for setting in SETTINGS if setting.variable}
_PRESET_VARIABLE = f"{PREFIX}{PRESET.upper()}"
_OTHER_VARIABLES = (NATIVE, STORE, STORE_DAYS, STORE_MEGABYTES, TOKEN)
_WORDS_FOR_NONE = {  # TOML has no null
    "cap_chars": {"unlimited": None},
    "budget": {"unlimited": None},
    "keep_reasoning_messages": {"same": None},
    "fold_over_chars": {"never": None},
    "min_chars": {"default": None},
    "passes": {"default": None},
    "trim_kinds": {"default": None},
    "cache_read_price": {"listed": None},
    "cache_write_price": {"listed": None},
}
_BOOLEAN_WORDS = {
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
    for name in _FILE_NAMES:
        found = _find_upwards(here, name)
        if found:
            policy = _apply_file(policy, *found)
    policy = from_env(os.environ if environ is None else environ, policy)
    reject_unknown_keys("Policy: ", overrides.items(), NAMES)
    return _apply_values(policy, overrides, CODE)


def from_toml(path: str | os.PathLike[str]) -> Policy:
    """The policy in one file; a pyproject.toml must have a [tool.respool] table."""
    file = Path(path)
    table = _read_table(file)
    if table is None:
        raise PolicyError(f"{file}: there is no [tool.respool] table in this file")
    return _apply_file(Policy(), file, table)


def settings_from_text(text: str, origin: str, base: Policy) -> Policy:
    """`base` with the settings in a text of TOML, which came from `origin`."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"{origin}: this is not TOML: {error}") from None
    return _apply_table(base, table, origin)


def from_env(environ: Mapping[str, str], base: Policy | None = None) -> Policy:
    """`base` with the settings of the RESPOOL_… variables; an unknown one is an error."""
    policy = Policy() if base is None else base
    given = {
        name: text
        for name, text in sorted(environ.items())
        if name.startswith(PREFIX) and name not in _OTHER_VARIABLES
    }
    if "RESPOOL_TOOLS" in given:
        text = given["RESPOOL_TOOLS"]
        raise invalid_value(
            "environment: ", "RESPOOL_TOOLS", text, "[tools.NAME] in TOML, Tools in code"
        )
    known = (_PRESET_VARIABLE, *_SETTING_BY_VARIABLE, *_OTHER_VARIABLES)
    for name in given:
        if name not in known:  # without its value, which may be a token
            raise unknown_key("environment: ", quote_value(name), name, known)
    if _PRESET_VARIABLE in given:
        policy = apply_preset(
            policy, given.pop(_PRESET_VARIABLE), f"environment {_PRESET_VARIABLE}"
        )
    for variable, text in given.items():
        name = _SETTING_BY_VARIABLE[variable]
        policy = policy.with_values({name: _parse_variable(name, text)}, f"environment {variable}")
    return policy


def apply_preset(policy: Policy, name: object, origin: str) -> Policy:
    """The policy with the values of a preset, in place of those of an earlier preset."""
    known = name.strip() if isinstance(name, str) else ""
    if known not in PRESETS:
        raise invalid_value(f"{origin}: ", PRESET, name, join_names(PRESETS))
    default, origins = Policy(), policy.origins()
    earlier = {key: getattr(default, key) for key in NAMES if origins[key].startswith(f"{PRESET} ")}
    return policy.with_values({**earlier, **PRESETS[known]}, f"{PRESET} {known}, by {origin}")


def _parse_variable(name: str, text: str) -> object:
    """Parse the text of a variable; the setting's check rejects what does not parse."""
    word = text.strip()
    if word in _WORDS_FOR_NONE.get(name, {}):
        return _WORDS_FOR_NONE[name][word]
    match name:
        case "passes" | "pin_tools" | "pin_paths" | "pin_calls" | "trim_kinds":
            return () if word == "none" else tuple(part.strip() for part in word.split(","))
        case (
            "repair"
            | "errors_verbatim"
            | "trim_on_arrival"
            | "strip_decoration"
            | "eager"
            | "advise"
        ):
            return _BOOLEAN_WORDS.get(word.lower(), text)
        case "counter" | "rendering":
            return word
        case _:
            return _parse_number(text)


def _parse_number(text: str) -> object:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _find_upwards(here: Path, name: str) -> tuple[Path, dict[str, object]] | None:
    """The nearest file of this name, here or above, that has settings, and its table."""
    for folder in (here, *here.parents):
        file = folder / name
        if file.is_file():
            table = _read_table(file)
            if table is not None:
                return file, table
    return None


def _read_table(file: Path) -> dict[str, object] | None:
    """The settings of a file: all of it, or [tool.respool] of a pyproject.toml, if there is one."""
    data = _read_bytes(file)
    if file.name != "pyproject.toml":
        return _parse_toml(file, data)
    if b"respool" not in data:  # not about respool: it need not be valid
        return None
    table = _parse_toml(file, data)
    for key in ("tool", "respool"):
        if key not in table:
            return None
        table = _require_table(f"{file}: ", key, table[key])
    return table


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise PolicyError(f"{file}: cannot be read: {error.strerror}") from None


def _parse_toml(file: Path, data: bytes) -> dict[str, object]:
    """Parse a file's TOML; an error names the file and the line."""
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise PolicyError(f"{file}: not valid UTF-8 (at line {line})") from None
    except RecursionError:
        raise PolicyError(f"{file}: not valid TOML: nested too deeply") from None
    except ValueError as error:
        raise PolicyError(f"{file}: not valid TOML: {error}") from None


def _apply_file(policy: Policy, file: Path, table: Mapping[str, object]) -> Policy:
    """The policy with the settings of a file's table."""
    return _apply_table(policy, table, f"{file.name}: {file}")


def _apply_table(policy: Policy, table: Mapping[str, object], origin: str) -> Policy:
    reject_unknown_keys(f"{origin}: ", table.items(), _KEYS)
    if PRESET in table:
        policy = apply_preset(policy, table[PRESET], origin)
    values = {
        name: _parse_value(name, value, origin) for name, value in table.items() if name != PRESET
    }
    return _apply_values(policy, values, origin)


def _parse_value(name: str, value: object, origin: str) -> object:
    return _parse_tools(value, origin) if name == "tools" else _decode_word(name, value)


def word_for_none(name: str) -> str:
    """The word for None in TOML and in the environment."""
    return next(iter(_WORDS_FOR_NONE[name]))


def _decode_word(name: str, value: object) -> object:
    """The value of a word for None; any other value as it is."""
    return (
        _WORDS_FOR_NONE[name].get(value, value)
        if isinstance(value, str) and name in _WORDS_FOR_NONE
        else value
    )


def _parse_tools(value: object, origin: str) -> Tools:
    """The tools of a file's [tools.NAME] tables."""
    table = _require_table(f"{origin}: ", "tools", value)
    declared = {name: _parse_tool(name, keys, origin) for name, keys in table.items()}
    try:
        return Tools([Tool(name, **keys) for name, keys in declared.items()])
    except PolicyError as error:
        raise PolicyError(f"{origin}: {error}") from None


def _parse_tool(name: str, keys: object, origin: str) -> dict[str, Any]:
    """The keywords of one tool."""
    table = _require_table(f"{origin}: ", f"tools.{name}", keys)
    reject_unknown_keys(f"{origin}: tools.{name}: ", table.items(), TOOL_KEYS)
    return {key: _decode_word(key, value) for key, value in table.items()}


def _require_table(where: str, key: str, value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise invalid_value(where, key, value, "a table")
    return cast(dict[str, object], value)


def _apply_values(policy: Policy, values: Mapping[str, object], origin: str) -> Policy:
    """The policy with these values; tools are added to those declared before, later ones win."""
    tools = values.get("tools")
    if isinstance(tools, Tools):
        values = {**values, "tools": policy.tools.declare(*tools)}
    return policy.with_values(values, origin)
