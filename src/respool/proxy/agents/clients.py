"""Agents known by their command: what points each at a proxy, without a file of its user's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ..forwarding.upstreams import Name, Upstream, upstream_at
from .client_settings import (
    CHATGPT,
    CODEX_OLDER,
    Provider,
    after,
    codex_provider,
    gemini_has_key,
    opencode_fetches,
    opencode_providers,
    pi_providers,
)
from .env_files import Find, Named, gemini_file, mini_file, near, nowhere, qwen_files
from .settings_files import object_in, object_of

# What base URLs look like that have the version in them.
_VERSIONS: Final[dict[Name, str]] = {"gemini": "/v1beta"}
_LAUNCHERS: Final = frozenset({"npx", "bunx", "pnpx", "uvx"})
_PI_COMMANDS: Final = frozenset({"install", "remove", "uninstall", "update", "list", "config"})
_ENDINGS: Final = (".exe", ".cmd", ".bat", ".ps1", ".js", ".mjs")


class Variable(Struct, frozen=True):
    """A variable that holds a base URL: for which upstream, and whether with the version."""

    upstream: Name
    versioned: bool


VARIABLES: Final[dict[str, Variable]] = {
    "ANTHROPIC_BASE_URL": Variable("anthropic", versioned=False),
    "ANTHROPIC_API_BASE": Variable("anthropic", versioned=False),
    "OPENAI_BASE_URL": Variable("openai", versioned=True),
    "OPENAI_API_BASE": Variable("openai", versioned=True),
    "GOOGLE_GEMINI_BASE_URL": Variable("gemini", versioned=False),
}
_AIDERS_OWN: Final = "AIDER_OPENAI_API_BASE"  # what it puts into OPENAI_API_BASE
_AIDERS_FLAG: Final = "--openai-api-base"  # and what it would rather put there
_HELD: Final = {**VARIABLES, _AIDERS_OWN: VARIABLES["OPENAI_API_BASE"]}


class Place(Struct, frozen=True):
    """Where a command is started, and where its requests are to go."""

    url: str  # of the proxy
    world: Mapping[str, str]  # the environment
    words: tuple[str, ...]  # behind the command's name
    folder: Path  # for files of respool's own, gone when the command has ended
    here: Path  # the working folder


class Setup(Struct, frozen=True, kw_only=True):
    """What a command is started with so that its requests come to the proxy."""

    client: str | None  # the agent's name; None: it is not known
    environment: dict[str, str] = {}
    words: tuple[str, ...] = ()  # behind the command's name, the user's own among them
    upstreams: dict[Name, Upstream] = {}  # where requests went before
    told: tuple[str, ...] = ()  # what was set
    note: str = ""  # why it cannot be pointed at the proxy, or what else to know


def setup_of(
    command: Sequence[str], url: str, world: Mapping[str, str], folder: Path, here: Path
) -> tuple[tuple[str, ...], Setup]:
    """A command as it is to be started, and what is set for it."""
    at, known = _known(command)
    place = Place(url, world, tuple(command[at + 1 :]), folder, here)
    setup = _common(place) if known is None else _CLIENTS[known](place)
    return (*command[: at + 1], *setup.words), setup


def _known(command: Sequence[str]) -> tuple[int, str | None]:
    """Which word names the agent, and the agent it names."""
    name = _plain(command[0])
    if name not in _LAUNCHERS:
        return 0, _COMMANDS.get(name)
    for at, word in enumerate(command[1:], 1):
        if not word.startswith("-"):
            package = word[0] + word[1:].partition("@")[0].partition("==")[0]
            known = _PACKAGES.get(package)
            return (at, known) if known else (0, None)
    return 0, None


def _plain(word: str) -> str:
    name = PurePath(word.replace("\\", "/")).name
    ending = next((end for end in _ENDINGS if name.lower().endswith(end)), "")
    return name[: len(name) - len(ending)]


def base_url(url: str, upstream: Name, *, versioned: bool) -> str:
    """The base URL of a proxy as a client wants it: with the API's version, or without."""
    return f"{url}{_VERSIONS.get(upstream, '/v1')}" if versioned else url


class Group(Struct, frozen=True):
    """Variables that hold the same, the one that is believed first at the front."""

    names: tuple[str, ...]
    usual: tuple[str, ...]  # what is set where nobody has named one


_ANTHROPIC: Final = Group(("ANTHROPIC_BASE_URL",), ("ANTHROPIC_BASE_URL",))
_OPENAI: Final = Group(("OPENAI_BASE_URL",), ("OPENAI_BASE_URL",))
_GEMINI: Final = Group(("GOOGLE_GEMINI_BASE_URL",), ("GOOGLE_GEMINI_BASE_URL",))
# Of LiteLLM's, the one is set that gives way to whatever else its user has said, in some file.
_LITELLM: Final = (
    Group(("OPENAI_BASE_URL", "OPENAI_API_BASE"), ("OPENAI_API_BASE",)),
    Group(("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"), ("ANTHROPIC_BASE_URL",)),
)
_AIDER: Final = (
    Group(("OPENAI_BASE_URL", _AIDERS_OWN, "OPENAI_API_BASE"), ("OPENAI_API_BASE",)),
    _LITELLM[1],
)
_ALL: Final = (
    *(Group(both, both) for both in (
        ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"), ("OPENAI_BASE_URL", "OPENAI_API_BASE")
    )),
    _GEMINI,
)  # fmt: skip


def _by_variables(
    place: Place, client: str | None, groups: Sequence[Group], note: str = "", find: Find = nowhere
) -> Setup:
    """Variables set to the proxy; what they were set to is where requests go on to.

    No key may go where its user did not send it. So of several only those are set that named the
    same place before, and none that a file of the folder names: the agent may trust that, or not.
    """
    environment: dict[str, str] = {}
    upstreams: dict[Name, Upstream] = {}
    notes = [note] if note else []
    for group in groups:
        set_before = _set_before(place, group, find)
        if isinstance(set_before, Named):
            notes.append(f"what {set_before.file} says of its base URL is left as it is")
            continue
        for name in set_before or group.usual:
            variable = _HELD[name]
            environment[name] = base_url(place.url, variable.upstream, versioned=variable.versioned)
        for name, url in list(set_before.items())[:1]:
            variable = _HELD[name]
            upstreams[variable.upstream] = upstream_at(url, whole=variable.versioned, said=name)
    return Setup(
        client=client,
        environment=environment,
        words=place.words,
        upstreams=upstreams,
        told=tuple(environment),
        note="; ".join(notes),
    )


def _set_before(place: Place, group: Group, find: Find) -> dict[str, str] | Named:
    """The variables of a group that say where requests go, and where; or what keeps respool out."""
    found: dict[str, str] = {}
    for name in group.names:
        value = place.world.get(name, "").strip()
        filed = None if value else find(name)
        if filed is not None:
            if not filed.own:
                return filed
            value = filed.value
        if value:
            found[name] = value
    first = next(iter(found.values()), "")
    return {name: value for name, value in found.items() if value == first}


def _common(place: Place) -> Setup:
    return _by_variables(place, None, _ALL, find=near(place.here))


def _claude_code(place: Place) -> Setup:
    clouds = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
    used = next((name for name in clouds if place.world.get(name, "0") not in ("", "0")), None)
    note = f"{used} is set, and that does not come through respool" if used else ""
    return _by_variables(place, "Claude Code", [_ANTHROPIC], note)


def _gemini_cli(place: Place) -> Setup:
    """With a key only: without one, a base URL would keep it from the login that it has."""
    find = gemini_file(place.world, place.here)
    keys = ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL")
    has_key = any(place.world.get(key) or find(key) for key in keys)
    if not has_key and not gemini_has_key(place.world):
        note = "it comes through respool with an API key, not with a Google login"
        return Setup(client="Gemini CLI", words=place.words, note=note)
    return _by_variables(place, "Gemini CLI", [_GEMINI], find=find)


def _qwen(place: Place) -> Setup:
    return _by_variables(place, "Qwen Code", [_OPENAI], find=qwen_files(place.world, place.here))


def _aider(place: Place) -> Setup:
    """By LiteLLM's variables, and what aider has in place of one: a variable, or an option."""
    said = after(place.words, _AIDERS_FLAG)
    world = {**place.world, _AIDERS_OWN: said} if said else place.world
    setup = _by_variables(replace(place, world=world), "aider", _AIDER)
    url = setup.environment.get(_AIDERS_OWN, "")
    words = _pointed(place.words, _AIDERS_FLAG, url) if said and url else place.words
    return replace(setup, words=words)


def _pointed(words: tuple[str, ...], flag: str, url: str) -> tuple[str, ...]:
    """The words, with another URL behind a flag."""
    joined = f"{flag}="
    return tuple(
        url if before == flag else joined + url if word.startswith(joined) else word
        for before, word in pairwise(("", *words))
    )


def _mini(place: Place) -> Setup:
    return _by_variables(place, "mini-swe-agent", _LITELLM, find=mini_file(place.world))


def _copilot(place: Place) -> Setup:
    """Only with a provider of the user's own: GitHub's service cannot be reached otherwise."""
    name = "COPILOT_PROVIDER_BASE_URL"
    before = place.world.get(name, "").strip()
    kind = place.world.get("COPILOT_PROVIDER_TYPE", "openai").strip() or "openai"
    if not before or kind not in ("openai", "anthropic"):
        what = f"{name} is not set" if not before else f"COPILOT_PROVIDER_TYPE is {kind}"
        note = f"{what}: Copilot comes through respool with an OpenAI or Anthropic provider only"
        return Setup(client="Copilot", words=place.words, note=note)
    upstream: Name = "anthropic" if kind == "anthropic" else "openai"
    versioned = upstream == "openai"
    return Setup(
        client="Copilot",
        environment={name: base_url(place.url, upstream, versioned=versioned)},
        words=place.words,
        upstreams={upstream: upstream_at(before, whole=versioned, said=name)},
        told=(name,),
    )


def _codex(place: Place) -> Setup:
    """By its own option -c: the base URL of the provider that it is told to use."""
    provider = codex_provider(place.world, place.words)
    if not provider.placed:
        note = f"where its requests go, {provider.id} does not say"
        if place.world.get(CODEX_OLDER):
            note += f", and not all versions go by {CODEX_OLDER}"
        return Setup(client="Codex", words=place.words, note=note)
    setting = f"{provider.id}={json.dumps(base_url(place.url, 'openai', versioned=True))}"
    upstreams: dict[Name, Upstream] = {}
    if provider.url:
        upstreams = {"openai": upstream_at(provider.url, whole=True, said=provider.id)}
    note = "with the login of ChatGPT" if provider.url == CHATGPT else ""
    words = _replaced(place.words, provider.id, setting)
    return Setup(
        client="Codex",
        words=("-c", setting, *words),
        upstreams=upstreams,
        told=(f"-c {provider.id}",),
        note=note,
    )


def _replaced(words: tuple[str, ...], key: str, setting: str) -> tuple[str, ...]:
    """The words, with what they say of this key put right: a later -c holds before an earlier."""
    return tuple(setting if word.partition("=")[0].strip() == key else word for word in words)


def _opencode(place: Place) -> Setup:
    """By a variable that is merged over all of its files."""
    known = place.world.get("OPENCODE_CONFIG_CONTENT", "")
    content = object_in(known) if known.strip() else {}
    fetched = opencode_fetches(place.world)
    if content is None or fetched:
        note = f"what it fetches from {fetched} may say where its requests go"
        if content is None:
            note = "OPENCODE_CONFIG_CONTENT is set to what is no JSON object"
        return Setup(client="opencode", words=place.words, note=note)
    taken, upstreams = _taken(opencode_providers(place.world, place.here, place.words, content))
    providers = dict(object_of(content.get("provider")))
    for one in taken:
        before = object_of(providers.get(one.id))
        url = base_url(place.url, one.upstream, versioned=one.versioned)
        providers[one.id] = {
            **before,
            "options": {**object_of(before.get("options")), "baseURL": url},
        }
    return Setup(
        client="opencode",
        environment={"OPENCODE_CONFIG_CONTENT": json.dumps({**content, "provider": providers})},
        words=place.words,
        upstreams=upstreams,
        told=("OPENCODE_CONFIG_CONTENT",),
        note=f"for its providers {', '.join(one.id for one in taken)}",
    )


def _pi(place: Place) -> Setup:
    """By an extension of respool's own, given with pi's option -e."""
    if place.words[:1] and place.words[0] in _PI_COMMANDS:
        return Setup(client="pi", words=place.words)
    taken, upstreams = _taken(pi_providers(place.world, place.words))
    lines = ["export default function (pi) {"]
    for one in taken:
        url = base_url(place.url, one.upstream, versioned=one.versioned)
        lines.append(
            f"  pi.registerProvider({json.dumps(one.id)}, {json.dumps({'baseUrl': url})});"
        )
    extension = place.folder / "respool-run.ts"
    extension.write_text("\n".join([*lines, "}", ""]), encoding="utf-8")
    return Setup(
        client="pi",
        words=("-e", str(extension), *place.words),
        upstreams=upstreams,
        told=("-e",),
        note=f"for its providers {', '.join(one.id for one in taken)}",
    )


def _taken(providers: Sequence[Provider]) -> tuple[list[Provider], dict[Name, Upstream]]:
    """The providers that can be served together: one place for each format, the first wins."""
    taken: list[Provider] = []
    upstreams: dict[Name, Upstream] = {}
    held: dict[Name, str] = {}
    for one in providers:
        if held.setdefault(one.upstream, one.url) == one.url:
            taken.append(one)
            if one.url:
                said = f"The base URL of {one.id}"
                upstreams[one.upstream] = upstream_at(one.url, whole=one.versioned, said=said)
    return taken, upstreams


_CLIENTS: Final[dict[str, Callable[[Place], Setup]]] = {
    "claude": _claude_code,
    "codex": _codex,
    "opencode": _opencode,
    "pi": _pi,
    "gemini": _gemini_cli,
    "qwen": _qwen,
    "copilot": _copilot,
    "aider": _aider,
    "mini": _mini,
}
_COMMANDS: Final = {
    **{name: name for name in _CLIENTS},
    "mini-swe-agent": "mini",
    "mini-e": "mini",
    "mini-extra": "mini",
}
_PACKAGES: Final = {
    "@anthropic-ai/claude-code": "claude",
    "@openai/codex": "codex",
    "opencode-ai": "opencode",
    "@mariozechner/pi-coding-agent": "pi",
    "@google/gemini-cli": "gemini",
    "@qwen-code/qwen-code": "qwen",
    "@github/copilot": "copilot",
    "aider-chat": "aider",
    "aider": "aider",
    "mini-swe-agent": "mini",
}
