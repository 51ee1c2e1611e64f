"""Where agents send their requests by their users' own settings. Files are read, never written."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct

from ..forwarding.upstreams import Name

CHATGPT: Final = "https://chatgpt.com/backend-api/codex"  # where Codex goes with ChatGPT's login


class Provider(Struct, frozen=True):
    """A provider as an agent knows it."""

    id: str  # for Codex, the setting that holds its base URL
    upstream: Name
    url: str = ""  # where it is; empty: where the API's maker has it
    versioned: bool = True  # its base URL has the API's version in it


# Codex


def codex_provider(world: Mapping[str, str], words: Sequence[str]) -> Provider:
    """The provider that Codex will use."""
    home = _folder(world, "CODEX_HOME", ".codex")
    settings = _toml(home / "config.toml")
    options = _options(words)
    name = options.get("model_provider") or _text(settings.get("model_provider")) or "openai"
    if name == "openai":
        key, known = "openai_base_url", _text(settings.get("openai_base_url"))
        known = known or (CHATGPT if _has_chatgpt_login(home, world) else "")
    else:
        key = f"model_providers.{name}.base_url"
        known = _text(_inside(settings, "model_providers", name, "base_url"))
    return Provider(key, "openai", options.get(key) or known)


def _options(words: Sequence[str]) -> dict[str, str]:
    """What is set with -c on a command line, as far as it is text."""
    found: dict[str, str] = {}
    for flag, word in pairwise(words):
        key, equals, value = word.partition("=")
        if flag in ("-c", "--config") and equals:
            found[key.strip()] = value.strip().strip("\"'")
    return found


def _has_chatgpt_login(home: Path, world: Mapping[str, str]) -> bool:
    """Whether Codex is logged in with ChatGPT, and not with a key."""
    if world.get("CODEX_API_KEY"):
        return False
    login = _json(home / "auth.json")
    return bool(login.get("tokens")) and not login.get("OPENAI_API_KEY")


# opencode

_OPENCODE_BY_PACKAGE: Final[dict[str, Name]] = {
    "@ai-sdk/anthropic": "anthropic",
    "@ai-sdk/openai": "openai-responses",
    "@ai-sdk/openai-compatible": "openai-chat",
    "@ai-sdk/google": "gemini",
}
_OPENCODE_OWN: Final[dict[str, Name]] = {
    "anthropic": "anthropic",
    "openai": "openai-responses",
    "google": "gemini",
}


def opencode_providers(
    world: Mapping[str, str], here: Path, words: Sequence[str], content: Mapping[str, Any]
) -> list[Provider]:
    """The providers that opencode knows, the one of the model in use first."""
    settings = [*map(_json, _opencode_files(world, here)), content]
    known: dict[str, Provider] = {}
    model = _after(words, "--model", "-m")
    for one in settings:
        model = model or _text(one.get("model"))
        for id, about in object_of(one.get("provider")).items():
            found = _opencode_provider(id, about)
            if found is not None and (found.url or id not in known):
                known[id] = found
    for id, upstream in _OPENCODE_OWN.items():
        known.setdefault(id, Provider(id, upstream))
    return _first(known, model.partition("/")[0])


def _opencode_files(world: Mapping[str, str], here: Path) -> Iterator[Path]:
    folder = _folder(world, "XDG_CONFIG_HOME", ".config") / "opencode"
    yield from (folder / "opencode.json", folder / "opencode.jsonc")
    if named := world.get("OPENCODE_CONFIG"):
        yield Path(named)
    yield from (here / "opencode.json", here / "opencode.jsonc")


def _opencode_provider(id: str, about: Any) -> Provider | None:
    package = _text(_inside(about, "npm"))
    upstream = _OPENCODE_BY_PACKAGE.get(package) or _OPENCODE_OWN.get(id)
    url = _text(_inside(about, "options", "baseURL"))
    if upstream is None or (not url and id not in _OPENCODE_OWN):
        return None
    return Provider(id, upstream, url)


# pi

_PI_BY_API: Final[dict[str, tuple[Name, bool]]] = {
    "anthropic-messages": ("anthropic", False),
    "openai-responses": ("openai-responses", True),
    "openai-completions": ("openai-chat", True),
    "google-generative-ai": ("gemini", True),
}
_PI_OWN: Final = {
    "anthropic": "anthropic-messages",
    "openai": "openai-responses",
    "google": "google-generative-ai",
}


def pi_providers(world: Mapping[str, str], words: Sequence[str]) -> list[Provider]:
    """The providers that pi knows, the one in use first."""
    folder = _folder(world, "PI_CODING_AGENT_DIR", str(Path(".pi") / "agent"))
    known: dict[str, Provider] = {}
    for id, about in object_of(_json(folder / "models.json").get("providers")).items():
        api = _text(_inside(about, "api")) or _PI_OWN.get(id, "")
        url = _text(_inside(about, "baseUrl"))
        if api in _PI_BY_API and (url or id in _PI_OWN):
            upstream, versioned = _PI_BY_API[api]
            known[id] = Provider(id, upstream, url, versioned)
    for id, api in _PI_OWN.items():
        upstream, versioned = _PI_BY_API[api]
        known.setdefault(id, Provider(id, upstream, "", versioned))
    used = _after(words, "--provider") or _after(words, "--model").partition("/")[0]
    return _first(known, used or _text(_json(folder / "settings.json").get("defaultProvider")))


# What they share


def _first(known: Mapping[str, Provider], used: str) -> list[Provider]:
    return sorted(known.values(), key=lambda one: one.id != used)


def _after(words: Sequence[str], *flags: str) -> str:
    """The word behind one of these flags."""
    for flag, word in pairwise([*words, ""]):
        name, equals, value = flag.partition("=")
        if name in flags:
            return value if equals else word
    return ""


def _folder(world: Mapping[str, str], variable: str, below: str) -> Path:
    named = world.get(variable)
    return Path(named) if named else Path(world.get("HOME") or Path.home()) / below


def _json(path: Path) -> dict[str, Any]:
    """A file's object; nothing where it is not there, or not plain JSON."""
    try:
        return object_in(path.read_text(encoding="utf-8")) or {}
    except (OSError, ValueError):
        return {}


def object_in(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is; None: it is none."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, Any], found) if isinstance(found, dict) else None


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _inside(value: Any, *keys: str) -> Any:
    for key in keys:
        value = object_of(value).get(key)
    return value


def object_of(value: Any) -> dict[str, Any]:
    """A value where it is an object; else an empty one."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""
