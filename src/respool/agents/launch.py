"""Launch of each known agent: variables, options and files that point it at a proxy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any, Final, cast
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from ..proxy.router import UPSTREAM_PREFIX
from ..proxy.server_options import Upstream, Upstreams, upstream_at
from ..proxy.server_options import UpstreamName as Name
from .base_urls import (
    CHATGPT_URL,
    CLAUDE_FLAG,
    CLAUDE_VARIABLE,
    CODEX_LEGACY_VARIABLE,
    MCP_SERVER,
    QWEN_SYSTEM_VARIABLE,
    QWEN_URL,
    AgentProvider,
    ClaudeSettings,
    QwenModels,
    can_add_claude_servers,
    claude_settings,
    claude_target,
    codex_managed_setting,
    codex_provider,
    flag_value,
    has_codex_server,
    has_gemini_key,
    has_mcp_server,
    last_flag_value,
    mcp_entry,
    opencode_managed_providers,
    opencode_providers,
    opencode_remote_config,
    pi_providers,
    qwen_login,
    qwen_models,
    qwen_proxy,
)
from .pi_extension import pi_expand_tool
from .settings_files import (
    FileVariable,
    Lookup,
    aider_config_url,
    aider_lookup,
    as_object,
    dotenv_lookup,
    gemini_lookup,
    get_nested,
    is_http_url,
    merge_settings,
    mini_lookup,
    no_lookup,
    parse_object,
    qwen_lookup,
)

# Base URLs that include the API version.
_VERSION_PATHS: Final[dict[Name, str]] = {"gemini": "/v1beta"}
_LAUNCHERS: Final = frozenset({"npx", "bunx", "pnpx", "uvx"})
_PI_COMMANDS: Final = frozenset({"install", "remove", "uninstall", "update", "list", "config"})
_EXECUTABLE_SUFFIXES: Final = (".exe", ".cmd", ".bat", ".ps1", ".js", ".mjs")


class BaseUrlVariable(Struct, frozen=True):
    """Variable that holds a base URL: its upstream, and whether it includes the version."""

    upstream: Name
    has_version: bool


BASE_URL_VARIABLES: Final[dict[str, BaseUrlVariable]] = {
    "ANTHROPIC_BASE_URL": BaseUrlVariable("anthropic", has_version=False),
    "ANTHROPIC_API_BASE": BaseUrlVariable("anthropic", has_version=False),
    "OPENAI_BASE_URL": BaseUrlVariable("openai", has_version=True),
    "OPENAI_API_BASE": BaseUrlVariable("openai", has_version=True),
    "GOOGLE_GEMINI_BASE_URL": BaseUrlVariable("gemini", has_version=False),
}
_AIDER_VARIABLE: Final = "AIDER_OPENAI_API_BASE"  # copied into OPENAI_API_BASE
_AIDER_FLAG: Final = "--openai-api-base"  # preferred over it
_QWEN_VARIABLE: Final = "OPENAI_BASE_URL"
_QWEN_FLAGS: Final = ("--openai-base-url", "--openaiBaseUrl")  # preferred over it
_ALL_VARIABLES: Final = {
    **BASE_URL_VARIABLES,
    _AIDER_VARIABLE: BASE_URL_VARIABLES["OPENAI_API_BASE"],
    # Claude Code's, for clouds
    "ANTHROPIC_BEDROCK_BASE_URL": BaseUrlVariable("bedrock", has_version=False),
    "ANTHROPIC_BEDROCK_MANTLE_BASE_URL": BaseUrlVariable("anthropic", has_version=False),
    "ANTHROPIC_VERTEX_BASE_URL": BaseUrlVariable("vertex", has_version=True),
    "ANTHROPIC_FOUNDRY_BASE_URL": BaseUrlVariable("anthropic", has_version=False),
}
_CONTINUE_FLAG: Final = "--config"  # a file, or a name on Continue's hub
# Claude Code leaves features out when its base URL is not Anthropic's own.
_CLAUDE_FIRST_PARTY: Final = {
    "_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL": "1",  # cache scopes, diagnosis, request classes
    "ENABLE_TOOL_SEARCH": "true",  # for versions that do not go by the other
}


class LaunchContext(Struct, frozen=True):
    """Context of a launch: command, environment, folders, proxy."""

    proxy_url: str  # the proxy's
    environ: Mapping[str, str]  # the environment
    arguments: tuple[str, ...]  # after the command's name
    scratch_dir: Path  # temporary files, removed when the command ends
    working_dir: Path  # working folder
    mcp_command: tuple[str, ...] = ()  # starts the MCP server; empty: it is not registered


class LaunchSetup(Struct, frozen=True, kw_only=True):
    """Environment and arguments that route a command's requests through the proxy."""

    agent: str | None  # the agent's name; None: unknown
    environment: dict[str, str] = {}
    arguments: tuple[str, ...] = ()  # after the command's name, including the user's
    upstreams: dict[Name, Upstream] = {}  # upstreams configured before
    named: dict[str, Upstream | Name] = {}  # those with a path of their own, by the name in it
    applied: tuple[str, ...] = ()  # settings applied
    first_party: dict[str, str] = {}  # also set if requests go on to the agent's own maker
    note: str = ""  # why the proxy cannot be used, or another hint


def plan_launch(
    command: Sequence[str],
    proxy_url: str,
    environ: Mapping[str, str],
    scratch_dir: Path,
    working_dir: Path,
    *,
    mcp_command: tuple[str, ...] = (),
) -> tuple[tuple[str, ...], LaunchSetup]:
    """Plan the launch of a command: its arguments and its setup."""
    at, known = _identify_agent(command)
    place = LaunchContext(
        proxy_url, environ, tuple(command[at + 1 :]), scratch_dir, working_dir, mcp_command
    )
    setup = _set_up_unknown(place) if known is None else _AGENTS[known](place)
    if mcp_command and setup.applied and known in _MCP_SERVERS:
        setup = _register_server(known, place, setup)
    return (*command[: at + 1], *setup.arguments), setup


def _register_server(agent: str, context: LaunchContext, setup: LaunchSetup) -> LaunchSetup:
    """Register the MCP server, unless the agent has one of that name or takes none."""
    if has_mcp_server(agent, context.environ, context.working_dir):
        return setup
    registered = _MCP_SERVERS[agent](context, setup)
    return setup if registered is None else _with_server(registered)


def launch_environment(setup: LaunchSetup, upstreams: Upstreams) -> dict[str, str]:
    """Variables of a launch whose requests go on to these upstreams."""
    is_first_party = upstreams.anthropic.origin == Upstreams().anthropic.origin
    return {**setup.environment, **(setup.first_party if is_first_party else {})}


def _identify_agent(command: Sequence[str]) -> tuple[int, str | None]:
    """Find the agent in a command: its position and its name."""
    name = _command_name(command[0])
    if name not in _LAUNCHERS:
        return 0, _COMMANDS.get(name)
    for at, word in enumerate(command[1:], 1):
        if not word.startswith("-"):
            package = word[0] + word[1:].partition("@")[0].partition("==")[0]
            known = _PACKAGES.get(package)
            return (at, known) if known else (0, None)
    return 0, None


def _command_name(word: str) -> str:
    name = PurePath(word.replace("\\", "/")).name
    ending = next((end for end in _EXECUTABLE_SUFFIXES if name.lower().endswith(end)), "")
    return name[: len(name) - len(ending)]


def proxy_base_url(url: str, upstream: Name, *, has_version: bool) -> str:
    """Base URL of a proxy, with or without the API version."""
    return f"{url}{_VERSION_PATHS.get(upstream, '/v1')}" if has_version else url


class VariableGroup(Struct, frozen=True):
    """Variables with the same meaning, in order of precedence."""

    names: tuple[str, ...]
    default: tuple[str, ...]  # set where none is defined


_OPENAI_GROUP: Final = VariableGroup(("OPENAI_BASE_URL",), ("OPENAI_BASE_URL",))
_GEMINI_GROUP: Final = VariableGroup(("GOOGLE_GEMINI_BASE_URL",), ("GOOGLE_GEMINI_BASE_URL",))
# Of LiteLLM's variables, the one with the lowest precedence is set, so that files win.
_LITELLM_GROUPS: Final = (
    VariableGroup(("OPENAI_BASE_URL", "OPENAI_API_BASE"), ("OPENAI_API_BASE",)),
    VariableGroup(("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"), ("ANTHROPIC_BASE_URL",)),
)
_AIDER_GROUPS: Final = (
    VariableGroup(("OPENAI_BASE_URL", _AIDER_VARIABLE, "OPENAI_API_BASE"), ("OPENAI_API_BASE",)),
    _LITELLM_GROUPS[1],
)
_COMMON_GROUPS: Final = (
    *(VariableGroup(both, both) for both in (
        ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"), ("OPENAI_BASE_URL", "OPENAI_API_BASE")
    )),
    _GEMINI_GROUP,
)  # fmt: skip


def _set_up_variables(
    context: LaunchContext,
    agent: str | None,
    groups: Sequence[VariableGroup],
    note: str = "",
    lookup: Lookup = no_lookup,
) -> LaunchSetup:
    """Set variables to the proxy; their former values become the upstreams.

    No key may reach a host its user did not choose. So several variables are set only if they
    named the same host before, and none that a file in the folder defines.
    """
    environment: dict[str, str] = {}
    upstreams: dict[Name, Upstream] = {}
    notes = [note] if note else []
    for group in groups:
        set_before = _current_values(context, group, lookup)
        if isinstance(set_before, FileVariable):
            notes.append(_left_note(set_before.file))
            continue
        for name in set_before or group.default:
            variable = _ALL_VARIABLES[name]
            environment[name] = proxy_base_url(
                context.proxy_url, variable.upstream, has_version=variable.has_version
            )
        for name, url in list(set_before.items())[:1]:
            variable = _ALL_VARIABLES[name]
            upstreams[variable.upstream] = upstream_at(
                url, replaces_version=variable.has_version, label=name
            )
    return LaunchSetup(
        agent=agent,
        environment=environment,
        arguments=context.arguments,
        upstreams=upstreams,
        applied=tuple(environment),
        note="; ".join(notes),
    )


def _left_note(file: Path) -> str:
    return f"what {file} says of its base URL is left as it is"


def _current_values(
    context: LaunchContext, group: VariableGroup, lookup: Lookup
) -> dict[str, str] | FileVariable:
    """Current values of a group's variables; or the reason why they cannot be replaced."""
    found: dict[str, str] = {}
    for name in group.names:
        value = context.environ.get(name, "").strip()
        filed = None if value else lookup(name)
        if filed is not None:
            if not filed.is_trusted:
                return filed
            value = filed.value
        if value:
            found[name] = value
    first = next(iter(found.values()), "")
    return {name: value for name, value in found.items() if value == first}


def _set_up_unknown(context: LaunchContext) -> LaunchSetup:
    return _set_up_variables(
        context, None, _COMMON_GROUPS, lookup=dotenv_lookup(context.working_dir)
    )


def _set_up_claude_code(context: LaunchContext) -> LaunchSetup:
    """Set up Claude Code by a variable; by its own option where its settings hold another URL."""
    settings = claude_settings(context.environ, context.working_dir, context.arguments)
    target = claude_target(context.environ, settings)
    name, group = target.variable, VariableGroup((target.variable,), (target.variable,))
    found = next((one for one in settings if one.variable(name)), None)
    note = target.obstacle or _claude_obstacle(context, settings, found, name)
    if note:
        return LaunchSetup(agent="Claude Code", arguments=context.arguments, note=note)
    before = target.url if found is None else found.variable(name)
    world = {**context.environ, name: before} if before else context.environ
    setup = _set_up_variables(replace(context, environ=world), "Claude Code", [group])
    cleared = dict.fromkeys(target.cleared, "")
    setup = replace(setup, environment={**setup.environment, **cleared})
    if any(one.variable(each) for one in settings for each in (name, *cleared)):
        given = next((one.settings or {} for one in settings if one.place == CLAUDE_FLAG), None)
        moved = merge_settings([given or {}, {"env": setup.environment}])
        file = context.scratch_dir / "respool-run.json"  # a token is not for the process list
        file.write_text(json.dumps(moved), encoding="utf-8")
        words = (
            (CLAUDE_FLAG, str(file), *context.arguments)
            if given is None
            else _replace_flag_value(context.arguments, CLAUDE_FLAG, str(file))
        )
        setup = replace(setup, arguments=words, applied=(CLAUDE_FLAG,))
    if name != CLAUDE_VARIABLE:
        return setup
    mine = {key: value for key, value in _CLAUDE_FIRST_PARTY.items() if key not in context.environ}
    return replace(setup, first_party=mine)


def _claude_obstacle(
    context: LaunchContext,
    settings: Sequence[ClaudeSettings],
    found: ClaudeSettings | None,
    name: str,
) -> str:
    """Why Claude Code cannot be pointed at the proxy; empty: it can."""
    if found is None:
        return ""
    url = found.variable(name)
    says = f"{found.place} sets {name}"
    if found.is_managed:
        return f"{says}, which cannot be overridden: its requests do not come through respool"
    if not is_http_url(url):
        return f"{says} to what is no URL"
    if not found.is_trusted and context.environ.get(name, "").strip() != url:
        return (
            f"{says}, which is left as it is: its requests do not come through respool, "
            f"unless {name} is set to the same"
        )
    if any(one.settings is None for one in settings):
        return f"what {CLAUDE_FLAG} names is no JSON object"
    return ""


def _set_up_gemini_cli(context: LaunchContext) -> LaunchSetup:
    """Set up Gemini CLI with a key only: a base URL would disable its login."""
    find = gemini_lookup(context.environ, context.working_dir)
    keys = ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL")
    has_key = any(context.environ.get(key) or find(key) for key in keys)
    if not has_key and not has_gemini_key(context.environ):
        note = "it comes through respool with an API key, not with a Google login"
        return LaunchSetup(agent="Gemini CLI", arguments=context.arguments, note=note)
    return _set_up_variables(context, "Gemini CLI", [_GEMINI_GROUP], lookup=find)


def _set_up_qwen(context: LaunchContext) -> LaunchSetup:
    """Set up Qwen Code by its variable, and by settings for models with their own base URLs."""
    found = qwen_models(context.environ, context.working_dir)
    models = found.models if found.is_trusted else ()
    login = qwen_login(context.environ, context.arguments)
    if login and login not in [one.kind for one in models]:
        note = f"with {login} its requests do not come through respool"
        return LaunchSetup(agent="Qwen Code", arguments=context.arguments, note=note)
    if proxy := qwen_proxy(context.environ, context.arguments):
        note = f"by {proxy} it sends all requests to an HTTP proxy, none to this machine"
        return LaunchSetup(agent="Qwen Code", arguments=context.arguments, note=note)
    said = flag_value(context.arguments, *_QWEN_FLAGS)
    world = {**context.environ, _QWEN_VARIABLE: said} if said else context.environ
    lookup = qwen_lookup(context.environ, context.working_dir)
    before = _current_values(replace(context, environ=world), _OPENAI_GROUP, lookup)
    notes: list[str] = []
    providers: dict[str, AgentProvider] = {}
    if isinstance(before, FileVariable):
        notes.append(_left_note(before.file))
    else:
        url = before.get(_QWEN_VARIABLE, QWEN_URL)
        providers[_QWEN_VARIABLE] = AgentProvider(_QWEN_VARIABLE, "openai", url)
    if url := context.environ.get(CLAUDE_VARIABLE, "").strip():
        providers[CLAUDE_VARIABLE] = AgentProvider(CLAUDE_VARIABLE, "anthropic", url, False)
    if found.models and not models:
        notes.append(f"modelProviders in {found.place} are left as they are")
    routes = _route_providers(context, [*providers.values(), *(one.provider for one in models)])
    environment = dict(zip(providers, routes.urls, strict=False))
    words = context.arguments
    for flag in _QWEN_FLAGS if said else ():
        words = _replace_flag_value(words, flag, environment[_QWEN_VARIABLE])
    if models:
        urls = routes.urls[len(providers) :]
        environment[QWEN_SYSTEM_VARIABLE] = str(_write_qwen_settings(context, found, urls))
    return LaunchSetup(
        agent="Qwen Code",
        environment=environment,
        arguments=words,
        upstreams=routes.upstreams,
        named=routes.named,
        applied=tuple(environment),
        note="; ".join(notes),
    )


def _write_qwen_settings(context: LaunchContext, found: QwenModels, urls: Sequence[str]) -> Path:
    """Write settings that override all others: the system's, and the models with other URLs."""
    lists = {
        kind: [*cast(list[Any], entries)] if isinstance(entries, list) else entries
        for kind, entries in found.lists.items()
    }
    for one, url in zip(found.models, urls, strict=True):
        lists[one.kind][one.at] = {**lists[one.kind][one.at], "baseUrl": url}
    file = context.scratch_dir / "respool-qwen.json"
    file.write_text(json.dumps({**found.system, "modelProviders": lists}), encoding="utf-8")
    return file


def _set_up_aider(context: LaunchContext) -> LaunchSetup:
    """Set up aider by LiteLLM's variables; by its own options where its files set them."""
    said = flag_value(context.arguments, _AIDER_FLAG)
    filed = _aider_files(context)
    world = {name: value for name, value in context.environ.items() if name not in filed}
    if said:
        world[_AIDER_VARIABLE] = said
        filed.pop(_AIDER_VARIABLE, None)
    setup = _set_up_variables(
        replace(context, environ=world), "aider", _AIDER_GROUPS, lookup=filed.get
    )
    words, applied = context.arguments, dict.fromkeys(setup.applied)
    for name in [name for name in filed if name in setup.environment]:
        url = setup.environment[name]
        option = (_AIDER_FLAG, url) if name == _AIDER_VARIABLE else ("--set-env", f"{name}={url}")
        words = (*option, *words)
        applied = {option[0] if one == name else one: None for one in applied}
    if said and _AIDER_VARIABLE in setup.environment:
        words = _replace_flag_value(words, _AIDER_FLAG, setup.environment[_AIDER_VARIABLE])
    return replace(setup, arguments=words, applied=tuple(applied))


def _aider_files(context: LaunchContext) -> dict[str, FileVariable]:
    """Variables that aider's files set; they override the environment."""
    given = last_flag_value(context.arguments, "--env-file")
    lookup = aider_lookup(context.environ, context.working_dir, given)
    names = [name for group in _AIDER_GROUPS for name in group.names]
    filed = {name: found for name in names if (found := lookup(name)) is not None}
    for name, found in filed.items():
        if context.environ.get(name, "").strip() == found.value:  # the user's own choice as well
            filed[name] = replace(found, is_trusted=is_http_url(found.value))
    if _AIDER_VARIABLE not in filed and not context.environ.get(_AIDER_VARIABLE):
        configured = aider_config_url(context.environ, context.working_dir)
        if configured is not None:
            filed[_AIDER_VARIABLE] = configured
    return filed


def _replace_flag_value(arguments: tuple[str, ...], flag: str, url: str) -> tuple[str, ...]:
    """Replace the URL after a flag."""
    joined = f"{flag}="
    return tuple(
        url if before == flag else joined + url if word.startswith(joined) else word
        for before, word in pairwise(("", *arguments))
    )


def _set_up_mini(context: LaunchContext) -> LaunchSetup:
    return _set_up_variables(
        context, "mini-swe-agent", _LITELLM_GROUPS, lookup=mini_lookup(context.environ)
    )


def _set_up_copilot(context: LaunchContext) -> LaunchSetup:
    """Set up Copilot with a user's own provider only: GitHub's service has no base URL setting."""
    name = "COPILOT_PROVIDER_BASE_URL"
    before = context.environ.get(name, "").strip()
    kind = context.environ.get("COPILOT_PROVIDER_TYPE", "openai").strip() or "openai"
    if not before or kind not in ("openai", "anthropic"):
        what = f"{name} is not set" if not before else f"COPILOT_PROVIDER_TYPE is {kind}"
        note = f"{what}: Copilot comes through respool with an OpenAI or Anthropic provider only"
        return LaunchSetup(agent="Copilot", arguments=context.arguments, note=note)
    upstream: Name = "anthropic" if kind == "anthropic" else "openai"
    versioned = upstream == "openai"
    return LaunchSetup(
        agent="Copilot",
        environment={name: proxy_base_url(context.proxy_url, upstream, has_version=versioned)},
        arguments=context.arguments,
        upstreams={upstream: upstream_at(before, replaces_version=versioned, label=name)},
        applied=(name,),
    )


def _set_up_codex(context: LaunchContext) -> LaunchSetup:
    """Set up Codex by its option -c: the base URL of the provider in use."""
    if fixed := codex_managed_setting():
        note = f"{fixed} cannot be overridden: its requests may not come through respool"
        return LaunchSetup(agent="Codex", arguments=context.arguments, note=note)
    provider = codex_provider(context.environ, context.arguments)
    if not provider.is_located:
        note = f"where its requests go, {provider.id} does not say"
        if context.environ.get(CODEX_LEGACY_VARIABLE):
            note += f", and not all versions go by {CODEX_LEGACY_VARIABLE}"
        return LaunchSetup(agent="Codex", arguments=context.arguments, note=note)
    setting = (
        f"{provider.id}={json.dumps(proxy_base_url(context.proxy_url, 'openai', has_version=True))}"
    )
    upstreams: dict[Name, Upstream] = {}
    if provider.url:
        upstreams = {"openai": upstream_at(provider.url, replaces_version=True, label=provider.id)}
    note = "with the login of ChatGPT" if provider.url == CHATGPT_URL else ""
    words = _replace_setting(context.arguments, provider.id, setting)
    return LaunchSetup(
        agent="Codex",
        arguments=("-c", setting, *words),
        upstreams=upstreams,
        applied=(f"-c {provider.id}",),
        note=note,
    )


def _replace_setting(arguments: tuple[str, ...], key: str, setting: str) -> tuple[str, ...]:
    """Replace a setting in the arguments; a later -c overrides an earlier one."""
    return tuple(setting if word.partition("=")[0].strip() == key else word for word in arguments)


def _add_claude_server(context: LaunchContext, setup: LaunchSetup) -> LaunchSetup | None:
    """Register the MCP server with Claude Code for one run."""
    if not can_add_claude_servers(context.arguments):
        return None
    # one word: in two it would take the words that follow
    option = f"--mcp-config={_write_server(context, 'claude')}"
    return replace(setup, arguments=(option, *setup.arguments))


def _add_codex_server(context: LaunchContext, setup: LaunchSetup) -> LaunchSetup | None:
    """Register the MCP server with Codex for one run."""
    if has_codex_server(context.environ, context.arguments, MCP_SERVER):
        return None
    entry = mcp_entry("codex", context.mcp_command)
    settings = (f"mcp_servers.{MCP_SERVER}.{key}={json.dumps(entry[key])}" for key in entry)
    options = (word for setting in settings for word in ("-c", setting))
    return replace(setup, arguments=(*options, *setup.arguments))


def _add_opencode_server(context: LaunchContext, setup: LaunchSetup) -> LaunchSetup | None:
    """Register the MCP server with opencode in the variable that it merges over its files."""
    content = as_object(parse_object(setup.environment["OPENCODE_CONFIG_CONTENT"]))
    if MCP_SERVER in as_object(content.get("mcp")):
        return None
    entry = {"mcp": {MCP_SERVER: mcp_entry("opencode", context.mcp_command)}}
    told = json.dumps(merge_settings([content, entry]))
    return replace(setup, environment={**setup.environment, "OPENCODE_CONFIG_CONTENT": told})


def _add_qwen_server(context: LaunchContext, setup: LaunchSetup) -> LaunchSetup | None:
    """Register the MCP server with Qwen Code, whose option can be given once."""
    if any(word.partition("=")[0] in ("--mcp-config", "--mcpConfig") for word in setup.arguments):
        return None
    options = ("--mcp-config", str(_write_server(context, "qwen")))
    return replace(setup, arguments=(*options, *setup.arguments))


def _add_copilot_server(context: LaunchContext, setup: LaunchSetup) -> LaunchSetup | None:
    """Register the MCP server with Copilot, in addition to those of its settings."""
    options = ("--additional-mcp-config", f"@{_write_server(context, 'copilot')}")
    return replace(setup, arguments=(*options, *setup.arguments))


def _write_server(context: LaunchContext, agent: str) -> Path:
    """Write a file with the MCP server alone."""
    servers = {"mcpServers": {MCP_SERVER: mcp_entry(agent, context.mcp_command)}}
    file = context.scratch_dir / "respool-mcp.json"
    file.write_text(json.dumps(servers), encoding="utf-8")
    return file


def _with_server(setup: LaunchSetup) -> LaunchSetup:
    return _with_note(setup, "with respool's MCP server")


def _with_note(setup: LaunchSetup, note: str) -> LaunchSetup:
    return replace(setup, note="; ".join(filter(None, (setup.note, note))))


def _set_up_opencode(context: LaunchContext) -> LaunchSetup:
    """Set up opencode by a variable that it merges over its files."""
    known = context.environ.get("OPENCODE_CONFIG_CONTENT", "")
    content = parse_object(known) if known.strip() else {}
    fetched = opencode_remote_config(context.environ)
    if content is None or fetched:
        note = f"what it fetches from {fetched} may say where its requests go"
        if content is None:
            note = "OPENCODE_CONFIG_CONTENT is set to what is no JSON object"
        return LaunchSetup(agent="opencode", arguments=context.arguments, note=note)
    fixed = opencode_managed_providers()
    every = opencode_providers(context.environ, context.working_dir, context.arguments, content)
    taken = [one for one in every if one.id not in fixed]
    routes = _route_providers(context, taken)
    providers = dict(as_object(content.get("provider")))
    for one, url in zip(taken, routes.urls, strict=True):
        before = as_object(providers.get(one.id))
        providers[one.id] = {
            **before,
            "options": {**as_object(before.get("options")), "baseURL": url},
        }
    return LaunchSetup(
        agent="opencode",
        environment={"OPENCODE_CONFIG_CONTENT": json.dumps({**content, "provider": providers})},
        arguments=context.arguments,
        upstreams=routes.upstreams,
        named=routes.named,
        applied=("OPENCODE_CONFIG_CONTENT",),
        note=f"for its providers {', '.join(one.id for one in taken)}",
    )


def _set_up_continue(context: LaunchContext) -> LaunchSetup:
    """Set up Continue by a copy of its configuration, given with its option --config."""
    given = last_flag_value(context.arguments, _CONTINUE_FLAG)
    setup = _continue_copy(context, given)
    if isinstance(setup, LaunchSetup):
        return setup
    return LaunchSetup(agent="Continue", arguments=context.arguments, note=setup)


def _continue_copy(context: LaunchContext, given: str) -> LaunchSetup | str:
    """Setup with a copy of the configuration; or the reason why there is none."""
    try:
        from . import continue_config  # lazily: it needs a YAML parser
    except ImportError:
        return "its configuration cannot be read without PyYAML"
    path = continue_config.continue_path(context.environ, context.working_dir, given)
    config = continue_config.read_continue_config(path) if path else None
    if config is None:
        place = path or given
        return f"{place} names no models that can be read: its requests do not come through respool"
    moved = [one for one in config.models if one.provider is not None]
    if not moved:
        return f"no model in {config.path} has an apiBase that can be changed without other effects"
    routes = _route_providers(context, [one.provider for one in moved if one.provider])
    urls = dict(zip([one.at for one in moved], routes.urls, strict=True))
    has_server = any(get_nested(one, "name") == MCP_SERVER for one in config.servers)
    server = mcp_entry("cn", context.mcp_command) if context.mcp_command else None
    text = continue_config.moved_continue_config(
        config, urls, context.working_dir, None if has_server else server
    )
    if text is None:
        return f"{config.path} cannot be copied with other base URLs"
    file = context.scratch_dir / "config.yaml"
    file.write_text(text, encoding="utf-8")
    words = (
        _replace_flag_value(context.arguments, _CONTINUE_FLAG, str(file))
        if given
        else (_CONTINUE_FLAG, str(file), *context.arguments)
    )
    setup = LaunchSetup(
        agent="Continue",
        arguments=words,
        upstreams=routes.upstreams,
        named=routes.named,
        applied=(_CONTINUE_FLAG,),
        note=f"for its models {', '.join(one.name for one in moved)}",
    )
    return setup if server is None or has_server else _with_server(setup)


def _set_up_pi(context: LaunchContext) -> LaunchSetup:
    """Set up pi by an extension given with its option -e."""
    if context.arguments[:1] and context.arguments[0] in _PI_COMMANDS:
        return LaunchSetup(agent="pi", arguments=context.arguments)
    taken = pi_providers(context.environ, context.arguments)
    routes = _route_providers(context, taken)
    lines = ["export default function (pi) {"]
    for one, url in zip(taken, routes.urls, strict=True):
        lines.append(
            f"  pi.registerProvider({json.dumps(one.id)}, {json.dumps({'baseUrl': url})});"
        )
    if context.mcp_command:
        lines.append(pi_expand_tool(context.mcp_command))
    extension = context.scratch_dir / "respool-run.ts"
    extension.write_text("\n".join([*lines, "}", ""]), encoding="utf-8")
    setup = LaunchSetup(
        agent="pi",
        arguments=("-e", str(extension), *context.arguments),
        upstreams=routes.upstreams,
        named=routes.named,
        applied=("-e",),
        note=f"for its providers {', '.join(one.id for one in taken)}",
    )
    return _with_note(setup, "with respool's tool") if context.mcp_command else setup


class _Routes(Struct, frozen=True):
    """Base URLs of an agent's providers at the proxy, in their order, and their upstreams."""

    urls: list[str]
    upstreams: dict[Name, Upstream]
    named: dict[str, Upstream | Name]


def _route_providers(context: LaunchContext, providers: Sequence[AgentProvider]) -> _Routes:
    """Routes of providers: the first of a format is the format's upstream.

    A provider of the user's own, and every further one, has a path that names its host: agents
    recognise some providers by a part of the base URL.
    """
    routes, held = _Routes([], {}, {}), dict[Name, str]()
    names: dict[tuple[Name, str], str] = {}
    for one in providers:
        base, upstream = context.proxy_url, _upstream_of(one)
        is_first = held.setdefault(one.upstream, one.url) == one.url
        if is_first and one.url:
            routes.upstreams[one.upstream] = upstream
        if not is_first or one.url:
            name = names.setdefault((one.upstream, one.url), _free_name(upstream, routes.named))
            routes.named[name] = one.upstream if is_first else upstream
            base = f"{context.proxy_url}{UPSTREAM_PREFIX}{name}"
        routes.urls.append(proxy_base_url(base, one.upstream, has_version=one.has_version))
    return routes


def _upstream_of(provider: AgentProvider) -> Upstream:
    """Upstream at a provider's base URL; without one, its maker's."""
    if not provider.url and (own := Upstreams().of_name(provider.upstream)) is not None:
        return own
    label = f"The base URL of {provider.id}"
    return upstream_at(provider.url, replaces_version=provider.has_version, label=label)


def _free_name(upstream: Upstream, taken: Mapping[str, Upstream | Name]) -> str:
    """Name of an upstream in a path: its host, and a number if that is taken."""
    host = urlsplit(upstream.origin).hostname or ""
    plain = re.sub(r"[^a-z0-9.-]+", "-", host).strip(".-") or "upstream"
    return plain if plain not in taken else f"{plain}-{len(taken) + 1}"


_AGENTS: Final[dict[str, Callable[[LaunchContext], LaunchSetup]]] = {
    "claude": _set_up_claude_code,
    "codex": _set_up_codex,
    "opencode": _set_up_opencode,
    "pi": _set_up_pi,
    "gemini": _set_up_gemini_cli,
    "qwen": _set_up_qwen,
    "copilot": _set_up_copilot,
    "aider": _set_up_aider,
    "mini": _set_up_mini,
    "cn": _set_up_continue,
}
_MCP_SERVERS: Final[dict[str, Callable[[LaunchContext, LaunchSetup], LaunchSetup | None]]] = {
    "claude": _add_claude_server,
    "codex": _add_codex_server,
    "opencode": _add_opencode_server,
    "qwen": _add_qwen_server,
    "copilot": _add_copilot_server,
}
AGENT_COMMANDS: Final = tuple(_AGENTS)  # by which agents are started
_COMMANDS: Final = {
    **{name: name for name in _AGENTS},
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
    "@continuedev/cli": "cn",
    "aider-chat": "aider",
    "aider": "aider",
    "mini-swe-agent": "mini",
}
