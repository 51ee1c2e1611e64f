"""Launch of each known agent: variables, options and files that point it at a proxy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ..proxy.server_options import Upstream, Upstreams, upstream_at
from ..proxy.server_options import UpstreamName as Name
from .base_urls import (
    CHATGPT_URL,
    CLAUDE_FLAG,
    CLAUDE_VARIABLE,
    CODEX_LEGACY_VARIABLE,
    AgentProvider,
    ClaudeSettings,
    can_add_claude_servers,
    claude_settings,
    claude_target,
    codex_managed_setting,
    codex_provider,
    flag_value,
    has_codex_server,
    has_gemini_key,
    opencode_managed_providers,
    opencode_providers,
    opencode_remote_config,
    pi_providers,
)
from .settings_files import (
    FileVariable,
    Lookup,
    as_object,
    dotenv_lookup,
    gemini_lookup,
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
_ALL_VARIABLES: Final = {
    **BASE_URL_VARIABLES,
    _AIDER_VARIABLE: BASE_URL_VARIABLES["OPENAI_API_BASE"],
    # Claude Code's, for clouds
    "ANTHROPIC_BEDROCK_BASE_URL": BaseUrlVariable("bedrock", has_version=False),
    "ANTHROPIC_BEDROCK_MANTLE_BASE_URL": BaseUrlVariable("anthropic", has_version=False),
    "ANTHROPIC_VERTEX_BASE_URL": BaseUrlVariable("vertex", has_version=True),
    "ANTHROPIC_FOUNDRY_BASE_URL": BaseUrlVariable("anthropic", has_version=False),
}
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
    if mcp_command and setup.applied and known in _MCP_OPTIONS:
        setup = _register_server(setup, _MCP_OPTIONS[known](place))
    return (*command[: at + 1], *setup.arguments), setup


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
            notes.append(f"what {set_before.file} says of its base URL is left as it is")
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
    return _set_up_variables(
        context,
        "Qwen Code",
        [_OPENAI_GROUP],
        lookup=qwen_lookup(context.environ, context.working_dir),
    )


def _set_up_aider(context: LaunchContext) -> LaunchSetup:
    """Set up aider by LiteLLM's variables and aider's own variable or option."""
    said = flag_value(context.arguments, _AIDER_FLAG)
    world = {**context.environ, _AIDER_VARIABLE: said} if said else context.environ
    setup = _set_up_variables(replace(context, environ=world), "aider", _AIDER_GROUPS)
    url = setup.environment.get(_AIDER_VARIABLE, "")
    words = (
        _replace_flag_value(context.arguments, _AIDER_FLAG, url)
        if said and url
        else context.arguments
    )
    return replace(setup, arguments=words)


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


def _claude_mcp_options(context: LaunchContext) -> tuple[str, ...]:
    """Options that register the MCP server with Claude Code for one run."""
    if not can_add_claude_servers(context.arguments):
        return ()
    command, *arguments = context.mcp_command
    server = {"command": command, "args": arguments}
    file = context.scratch_dir / "respool-mcp.json"
    file.write_text(json.dumps({"mcpServers": {_MCP_NAME: server}}), encoding="utf-8")
    return (f"--mcp-config={file}",)  # one word: in two it would take the words that follow


def _codex_mcp_options(context: LaunchContext) -> tuple[str, ...]:
    """Options that register the MCP server with Codex for one run."""
    if has_codex_server(context.environ, context.arguments, _MCP_NAME):
        return ()
    command, *arguments = context.mcp_command
    key = f"mcp_servers.{_MCP_NAME}"
    return (
        *("-c", f"{key}.command={json.dumps(command)}"),
        *("-c", f"{key}.args={json.dumps(arguments)}"),
    )


def _register_server(setup: LaunchSetup, options: tuple[str, ...]) -> LaunchSetup:
    """Put the options that register the MCP server before a command's arguments."""
    if not options:
        return setup
    note = "; ".join(filter(None, (setup.note, "with respool's MCP server")))
    return replace(setup, arguments=(*options, *setup.arguments), note=note)


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
    taken, upstreams = _servable_providers([one for one in every if one.id not in fixed])
    providers = dict(as_object(content.get("provider")))
    for one in taken:
        before = as_object(providers.get(one.id))
        url = proxy_base_url(context.proxy_url, one.upstream, has_version=one.has_version)
        providers[one.id] = {
            **before,
            "options": {**as_object(before.get("options")), "baseURL": url},
        }
    return LaunchSetup(
        agent="opencode",
        environment={"OPENCODE_CONFIG_CONTENT": json.dumps({**content, "provider": providers})},
        arguments=context.arguments,
        upstreams=upstreams,
        applied=("OPENCODE_CONFIG_CONTENT",),
        note=f"for its providers {', '.join(one.id for one in taken)}",
    )


def _set_up_continue(context: LaunchContext) -> LaunchSetup:
    """Leave Continue as it is: its models' base URLs are in its own configuration only."""
    note = "its requests go where apiBase in its configuration says, not through respool run"
    return LaunchSetup(agent="Continue", arguments=context.arguments, note=note)


def _set_up_pi(context: LaunchContext) -> LaunchSetup:
    """Set up pi by an extension given with its option -e."""
    if context.arguments[:1] and context.arguments[0] in _PI_COMMANDS:
        return LaunchSetup(agent="pi", arguments=context.arguments)
    taken, upstreams = _servable_providers(pi_providers(context.environ, context.arguments))
    lines = ["export default function (pi) {"]
    for one in taken:
        url = proxy_base_url(context.proxy_url, one.upstream, has_version=one.has_version)
        lines.append(
            f"  pi.registerProvider({json.dumps(one.id)}, {json.dumps({'baseUrl': url})});"
        )
    extension = context.scratch_dir / "respool-run.ts"
    extension.write_text("\n".join([*lines, "}", ""]), encoding="utf-8")
    return LaunchSetup(
        agent="pi",
        arguments=("-e", str(extension), *context.arguments),
        upstreams=upstreams,
        applied=("-e",),
        note=f"for its providers {', '.join(one.id for one in taken)}",
    )


def _servable_providers(
    providers: Sequence[AgentProvider],
) -> tuple[list[AgentProvider], dict[Name, Upstream]]:
    """Providers that one proxy can serve: one upstream per format, the first wins."""
    taken: list[AgentProvider] = []
    upstreams: dict[Name, Upstream] = {}
    held: dict[Name, str] = {}
    for one in providers:
        if held.setdefault(one.upstream, one.url) == one.url:
            taken.append(one)
            if one.url:
                said = f"The base URL of {one.id}"
                upstreams[one.upstream] = upstream_at(
                    one.url, replaces_version=one.has_version, label=said
                )
    return taken, upstreams


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
_MCP_NAME: Final = "respool"
_MCP_OPTIONS: Final[dict[str, Callable[[LaunchContext], tuple[str, ...]]]] = {
    "claude": _claude_mcp_options,
    "codex": _codex_mcp_options,
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
