"""Providers and base URLs from the agents' own settings files, which are only read."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct

from ..proxy.server_options import UpstreamName as Name
from ..regex import lazy_compile
from .settings_files import (
    as_object,
    as_text,
    config_folder,
    get_nested,
    is_http_url,
    is_present,
    list_files,
    merge_settings,
    parse_object,
    read_object,
    read_text,
    read_toml,
)

_CODEX_BASE_URL_KEY: Final = "openai_base_url"  # setting of Codex's built-in provider
_CODEX_SYSTEM_CONFIG: Final = Path("/etc/codex/config.toml")  # system-wide config
_CODEX_MANAGED_CONFIG: Final = Path("/etc/codex/managed_config.toml")  # overrides -c
CODEX_LEGACY_VARIABLE: Final = "OPENAI_BASE_URL"  # read by older versions only
CHATGPT_URL: Final = (
    "https://chatgpt.com/backend-api/codex"  # Codex's upstream with a ChatGPT login
)


class AgentProvider(Struct, frozen=True):
    """Provider as configured in an agent."""

    id: str  # Codex: the setting that holds its base URL
    upstream: Name
    url: str = ""  # base URL; empty: the maker's own
    has_version: bool = True  # the base URL includes the API version
    is_located: bool = True  # the base URL is known


# Claude Code

CLAUDE_VARIABLE: Final = "ANTHROPIC_BASE_URL"
CLAUDE_FLAG: Final = "--settings"  # a file, or JSON
# The first that is set counts.
_CLAUDE_CLOUDS: Final = (
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_VERTEX",
)
_AWS_BEARER: Final = "AWS_BEARER_TOKEN_BEDROCK"
_CLAUDE_OTHER_REGION: Final = "ANTHROPIC_SMALL_FAST_MODEL_AWS_REGION"
_AWS_REGION: Final = lazy_compile(r"[a-z]{2,4}(?:-[a-z]{2,20}){1,3}-[0-9]{1,2}")
_FOUNDRY_RESOURCE: Final = lazy_compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}[A-Za-z0-9]")
_CLAUDE_MANAGED: Final = {
    "darwin": Path("/Library/Application Support/ClaudeCode"),
    "win32": Path("C:/Program Files/ClaudeCode"),
}.get(sys.platform, Path("/etc/claude-code"))


class ClaudeSettings(Struct, frozen=True):
    """Settings of Claude Code from one place; they override the environment."""

    place: str
    settings: dict[str, Any] | None  # None: not a JSON object
    is_managed: bool = False  # no option overrides them
    is_trusted: bool = True  # the user's own; otherwise the agent may ignore them

    def variable(self, name: str) -> str:
        """Value of a variable; empty if it is not set here."""
        value = get_nested(self.settings, "env", name)
        return as_text(value) if isinstance(value, str) or value is None else str(value).lower()


def claude_settings(
    environ: Mapping[str, str], working_dir: Path, arguments: Sequence[str]
) -> list[ClaudeSettings]:
    """Settings that Claude Code reads, in order of precedence."""
    managed = [
        *reversed(list_files(_CLAUDE_MANAGED / "managed-settings.d", ".json")),
        _CLAUDE_MANAGED / "managed-settings.json",
    ]
    found = [ClaudeSettings(str(path), read_object(path), is_managed=True) for path in managed]
    if given := last_flag_value(arguments, CLAUDE_FLAG):
        text = given if given.lstrip().startswith("{") else read_text(working_dir / given)
        found.append(ClaudeSettings(CLAUDE_FLAG, parse_object(text)))
    project = working_dir / ".claude"
    files = {
        "local": (project / "settings.local.json", False),
        "project": (project / "settings.json", False),
        "user": (config_folder(environ, "CLAUDE_CONFIG_DIR", ".claude") / "settings.json", True),
    }
    for source, (path, own) in files.items():
        if source in _claude_sources(arguments):
            found.append(ClaudeSettings(str(path), read_object(path), is_trusted=own))
    return found


def _claude_sources(arguments: Sequence[str]) -> Sequence[str]:
    """Settings files that the command line leaves in use."""
    if "--restricted" in arguments:
        return ()
    flag = "--setting-sources"
    if any(word.partition("=")[0] == flag for word in arguments):
        return [name.strip() for name in last_flag_value(arguments, flag).split(",")]
    return ("local", "project", "user")


class _AwsService(Struct, frozen=True):
    """Service of AWS: its base URL's variable and default, and the variable without signatures."""

    variable: str
    skip: str
    url: str


_BEDROCK: Final = _AwsService(
    "ANTHROPIC_BEDROCK_BASE_URL",
    "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
    "https://bedrock-runtime.{}.amazonaws.com",
)
_MANTLE: Final = _AwsService(
    "ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
    "CLAUDE_CODE_SKIP_MANTLE_AUTH",
    "https://bedrock-mantle.{}.api.aws/anthropic",
)


class ClaudeTarget(Struct, frozen=True):
    """Provider that Claude Code uses: its variable, and its URL where that is not set."""

    variable: str = CLAUDE_VARIABLE
    url: str = ""  # empty: the variable's default
    cleared: tuple[str, ...] = ()  # variables that must be empty beside it
    obstacle: str = ""  # why its requests cannot come through the proxy


def claude_target(environ: Mapping[str, str], settings: Sequence[ClaudeSettings]) -> ClaudeTarget:
    """Find the provider that Claude Code will use."""
    match _claude_cloud(environ, settings):
        case "":
            return ClaudeTarget()
        case "CLAUDE_CODE_USE_VERTEX":  # each request names its location, and that its host
            return ClaudeTarget("ANTHROPIC_VERTEX_BASE_URL")
        case "CLAUDE_CODE_USE_BEDROCK":
            return _claude_on_bedrock(environ, settings)
        case "CLAUDE_CODE_USE_MANTLE":
            return _claude_at_aws(_MANTLE, environ, settings)
        case "CLAUDE_CODE_USE_FOUNDRY":
            return _claude_on_foundry(environ, settings)
        case cloud:
            return ClaudeTarget(obstacle=f"{cloud} is set, and that does not come through respool")


def _claude_cloud(environ: Mapping[str, str], settings: Sequence[ClaudeSettings]) -> str:
    """Variable that makes Claude Code use a cloud; empty: none does."""
    return next((name for name in _CLAUDE_CLOUDS if _is_on(name, environ, settings)), "")


def _is_on(name: str, environ: Mapping[str, str], settings: Sequence[ClaudeSettings]) -> bool:
    return (_claude_value(name, environ, settings) or "0").lower() not in ("0", "false")


def _claude_value(name: str, environ: Mapping[str, str], settings: Sequence[ClaudeSettings]) -> str:
    """Value of a variable as Claude Code sees it: settings override the environment."""
    values = (*(one.variable(name) for one in settings), environ.get(name, "").strip())
    return next((value for value in values if value), "")


def _claude_on_bedrock(
    environ: Mapping[str, str], settings: Sequence[ClaudeSettings]
) -> ClaudeTarget:
    """Bedrock's runtime, in one region for all models."""
    target = _claude_at_aws(_BEDROCK, environ, settings)
    if _is_on("CLAUDE_CODE_USE_MANTLE", environ, settings):
        why = "CLAUDE_CODE_USE_MANTLE is set beside it: not all requests would come through respool"
        return ClaudeTarget(target.variable, obstacle=why)
    other = _claude_value(_CLAUDE_OTHER_REGION, environ, settings)
    if target.url and other and f".{other}." not in target.url:
        why = f"{_CLAUDE_OTHER_REGION} names another region than AWS_REGION: not all would come"
        return ClaudeTarget(target.variable, obstacle=f"{why} through respool")
    return target


def _claude_at_aws(
    service: _AwsService, environ: Mapping[str, str], settings: Sequence[ClaudeSettings]
) -> ClaudeTarget:
    """A service of AWS with a key in a header; a signature would not fit the proxy's address."""
    variable = service.variable
    if not any(_is_on(name, environ, settings) for name in (_AWS_BEARER, service.skip)):
        why = f"AWS signatures do not come through respool; with a key in {_AWS_BEARER} it does"
        return ClaudeTarget(variable, obstacle=why)
    if _claude_value(variable, environ, settings):
        return ClaudeTarget(variable)
    has_region = bool(_claude_value("AWS_REGION", environ, settings))
    name = "AWS_REGION" if has_region else "AWS_DEFAULT_REGION"
    region = _trusted_value(name, environ, settings)
    if not _AWS_REGION.fullmatch(region):
        why = "AWS_REGION is not set to a region: where its requests go is not known"
        return ClaudeTarget(variable, obstacle=why)
    return ClaudeTarget(variable, service.url.format(region))


def _claude_on_foundry(
    environ: Mapping[str, str], settings: Sequence[ClaudeSettings]
) -> ClaudeTarget:
    """Microsoft Foundry, whose resource names the host."""
    variable, name = "ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_FOUNDRY_RESOURCE"
    if _claude_value(variable, environ, settings):
        return ClaudeTarget(variable)
    resource = _trusted_value(name, environ, settings)
    is_managed = any(one.is_managed and one.variable(name) for one in settings)
    if is_managed or not _FOUNDRY_RESOURCE.fullmatch(resource):
        return ClaudeTarget(variable, obstacle=f"{name} is not set, or cannot be overridden")
    url = f"https://{resource}.services.ai.azure.com/anthropic"
    return ClaudeTarget(variable, url, cleared=(name,))


def _trusted_value(
    name: str, environ: Mapping[str, str], settings: Sequence[ClaudeSettings]
) -> str:
    """Value of a variable, if it is the user's own; a project's files may name any host."""
    value = _claude_value(name, environ, settings)
    own = [one for one in settings if one.is_trusted]
    return value if value == _claude_value(name, environ, own) else ""


def can_add_claude_servers(arguments: Sequence[str]) -> bool:
    """Report whether Claude Code takes MCP servers from its command line."""
    return "--strict-mcp-config" not in arguments and not is_present(
        _CLAUDE_MANAGED / "managed-mcp.json"
    )


def claude_code_base_url(environ: Mapping[str, str], working_dir: Path) -> tuple[str, Path] | None:
    """Base URL in Claude Code's settings files, which override the environment, and its file."""
    for one in claude_settings(environ, working_dir, ()):
        if url := one.variable(CLAUDE_VARIABLE):
            return url, Path(one.place)
    return None


# Codex


def codex_provider(environ: Mapping[str, str], arguments: Sequence[str]) -> AgentProvider:
    """Find the provider that Codex will use."""
    home = config_folder(environ, "CODEX_HOME", ".codex")
    settings = merge_settings([read_toml(_CODEX_SYSTEM_CONFIG), read_toml(home / "config.toml")])
    profile = flag_value(arguments, "--profile", "-p")
    older = as_object(get_nested(settings, "profiles", profile or as_text(settings.get("profile"))))
    settings = merge_settings([settings, older])
    if profile:  # a file of its own; a table in older versions
        settings = merge_settings([settings, read_toml(home / f"{profile}.config.toml")])
    options = _config_overrides(arguments)
    name = options.get("model_provider") or as_text(settings.get("model_provider")) or "openai"
    if name == "openai":
        key, known = _CODEX_BASE_URL_KEY, as_text(settings.get(_CODEX_BASE_URL_KEY))
        known = known or (CHATGPT_URL if _has_chatgpt_login(home, environ) else "")
        placed = not _has_hidden_login(home, environ, settings) and not environ.get(
            CODEX_LEGACY_VARIABLE
        )
    else:
        key, placed = f"model_providers.{name}.base_url", False
        known = as_text(get_nested(settings, "model_providers", name, "base_url"))
    url = options.get(key) or known
    return AgentProvider(key, "openai", url, is_located=placed or bool(url))


def has_codex_server(environ: Mapping[str, str], arguments: Sequence[str], name: str) -> bool:
    """Report whether Codex has an MCP server of this name already."""
    home = config_folder(environ, "CODEX_HOME", ".codex")
    settings = merge_settings([read_toml(_CODEX_SYSTEM_CONFIG), read_toml(home / "config.toml")])
    given = any(word.strip().startswith(f"mcp_servers.{name}") for word in arguments)
    return given or name in as_object(settings.get("mcp_servers"))


def codex_managed_setting() -> str:
    """Setting of a managed file that overrides -c and may move requests; empty: none."""
    managed = read_toml(_CODEX_MANAGED_CONFIG)
    names = ("model_provider", "model_providers", _CODEX_BASE_URL_KEY, "profile")
    used = next((name for name in names if name in managed), "")
    return f"{used} in {_CODEX_MANAGED_CONFIG}" if used else ""


def _config_overrides(arguments: Sequence[str]) -> dict[str, str]:
    """String settings given with -c on a command line."""
    found: dict[str, str] = {}
    for flag, word in pairwise(arguments):
        key, equals, value = word.partition("=")
        if flag in ("-c", "--config") and equals:
            found[key.strip()] = value.strip().strip("\"'")
    return found


def _has_chatgpt_login(home: Path, environ: Mapping[str, str]) -> bool:
    """Report whether Codex uses a ChatGPT login instead of a key."""
    if environ.get("CODEX_API_KEY"):
        return False
    login = read_object(home / "auth.json")
    return bool(login.get("tokens")) and not login.get("OPENAI_API_KEY")


def _has_hidden_login(home: Path, environ: Mapping[str, str], settings: Mapping[str, Any]) -> bool:
    """Report whether Codex may keep a login in the system's keyring."""
    kept = as_text(settings.get("cli_auth_credentials_store"))
    in_file = is_present(home / "auth.json") or bool(environ.get("CODEX_API_KEY"))
    return kept in ("keyring", "auto") and not in_file


# opencode

_OPENCODE_BY_PACKAGE: Final[dict[str, Name]] = {
    "@ai-sdk/anthropic": "anthropic",
    "@ai-sdk/openai": "openai-responses",
    "@ai-sdk/openai-compatible": "openai-chat",
    "@ai-sdk/google": "gemini",
}
_OPENCODE_BUILTIN: Final[dict[str, Name]] = {
    "anthropic": "anthropic",
    "openai": "openai-responses",
    "google": "gemini",
}
_OPENCODE_VARIABLES: Final = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL"}
_OPENCODE_MANAGED: Final = {
    "darwin": Path("/Library/Application Support/opencode"),
    "win32": Path("C:/ProgramData/opencode"),
}.get(sys.platform, Path("/etc/opencode"))
_OPENCODE_ENV: Final = lazy_compile(r"\{env:([^}]+)\}")


def opencode_providers(
    environ: Mapping[str, str],
    working_dir: Path,
    arguments: Sequence[str],
    content: Mapping[str, Any],
) -> list[AgentProvider]:
    """Providers of opencode, that of the current model first."""
    texts = [
        _expand_variables(read_text(path), environ)
        for path in _opencode_files(environ, working_dir)
    ]
    settings = merge_settings([*(parse_object(text) or {} for text in texts), content])
    named = as_object(settings.get("provider"))
    every = [*named, *(id for id in _OPENCODE_BUILTIN if id not in named)]
    found = (_opencode_provider(id, named.get(id), environ) for id in every)
    model = flag_value(arguments, "--model", "-m") or as_text(settings.get("model"))
    return _in_use_first({one.id: one for one in found if one is not None}, model.partition("/")[0])


def _expand_variables(text: str, environ: Mapping[str, str]) -> str:
    """Expand `{env:…}` in opencode's settings."""
    return _OPENCODE_ENV.sub(lambda found: environ.get(found[1], ""), text)


def _opencode_files(environ: Mapping[str, str], working_dir: Path) -> Iterator[Path]:
    """Settings files in order of precedence: user, project, `.opencode`."""
    names = ("opencode.json", "opencode.jsonc")
    folder = config_folder(environ, "XDG_CONFIG_HOME", ".config") / "opencode"
    yield from (folder / name for name in ("config.json", *names))
    if known := environ.get("OPENCODE_CONFIG"):
        yield Path(known)
    outward = _opencode_project(environ, working_dir)
    yield from (one / name for one in reversed(outward) for name in names)
    folders = [one / ".opencode" for one in (*outward, config_folder(environ, "", ""))]
    if known := environ.get("OPENCODE_CONFIG_DIR"):
        folders.append(Path(known))
    yield from (one / name for one in dict.fromkeys(folders) for name in names)


def _opencode_project(environ: Mapping[str, str], working_dir: Path) -> list[Path]:
    """Folders from here to the project's root; none if project settings are disabled."""
    if environ.get("OPENCODE_DISABLE_PROJECT_CONFIG", "").lower() in ("1", "true"):
        return []
    above = [working_dir, *working_dir.parents]
    root = next((at for at, one in enumerate(above) if is_present(one / ".git")), len(above) - 1)
    return above[: root + 1]


def opencode_remote_config(environ: Mapping[str, str]) -> str:
    """Remote configuration of opencode, which cannot be read here; empty: none."""
    path = config_folder(environ, "XDG_DATA_HOME", str(Path(".local", "share"))) / "opencode"
    login = parse_object(environ.get("OPENCODE_AUTH_CONTENT", "")) or read_object(
        path / "auth.json"
    )
    return next((url for url, one in login.items() if get_nested(one, "type") == "wellknown"), "")


def opencode_managed_providers() -> list[str]:
    """Providers whose base URL managed settings fix; these override everything else."""
    names = ("opencode.json", "opencode.jsonc")
    settings = merge_settings([read_object(_OPENCODE_MANAGED / name) for name in names])
    named = as_object(settings.get("provider"))
    return [id for id, one in named.items() if get_nested(one, "options", "baseURL")]


def _opencode_provider(id: str, about: Any, environ: Mapping[str, str]) -> AgentProvider | None:
    """Supported provider; None if its base URL is unknown or its API is not supported."""
    package = as_text(get_nested(about, "npm"))
    upstream = _OPENCODE_BY_PACKAGE.get(package) or _OPENCODE_BUILTIN.get(id)
    url = as_text(get_nested(about, "options", "baseURL"))
    url = url or environ.get(_OPENCODE_VARIABLES.get(id, ""), "").strip()
    if upstream is None or (not url and id not in _OPENCODE_BUILTIN):
        return None
    return AgentProvider(id, upstream, url) if not url or is_http_url(url) else None


# pi

_PI_BY_API: Final[dict[str, tuple[Name, bool]]] = {
    "anthropic-messages": ("anthropic", False),
    "openai-responses": ("openai-responses", True),
    "openai-completions": ("openai-chat", True),
    "google-generative-ai": ("gemini", True),
}
_PI_BUILTIN: Final = {
    "anthropic": "anthropic-messages",
    "openai": "openai-responses",
    "google": "google-generative-ai",
}


def pi_providers(environ: Mapping[str, str], arguments: Sequence[str]) -> list[AgentProvider]:
    """Providers of pi, the current one first."""
    folder = config_folder(environ, "PI_CODING_AGENT_DIR", str(Path(".pi") / "agent"))
    known: dict[str, AgentProvider] = {}
    for id, about in as_object(read_object(folder / "models.json").get("providers")).items():
        api = as_text(get_nested(about, "api")) or _PI_BUILTIN.get(id, "")
        url = as_text(get_nested(about, "baseUrl"))
        if api in _PI_BY_API and (url or id in _PI_BUILTIN):
            upstream, versioned = _PI_BY_API[api]
            known[id] = AgentProvider(id, upstream, url, versioned)
    for id, api in _PI_BUILTIN.items():
        upstream, versioned = _PI_BY_API[api]
        known.setdefault(id, AgentProvider(id, upstream, "", versioned))
    used = flag_value(arguments, "--provider") or flag_value(arguments, "--model").partition("/")[0]
    return _in_use_first(
        known, used or as_text(read_object(folder / "settings.json").get("defaultProvider"))
    )


# Qwen Code

QWEN_URL: Final = "https://dashscope.aliyuncs.com/compatible-mode/v1"  # used where none is set
QWEN_SYSTEM_VARIABLE: Final = "QWEN_CODE_SYSTEM_SETTINGS_PATH"  # of settings before all others
_QWEN_SYSTEM: Final = {
    "darwin": Path("/Library/Application Support/QwenCode/settings.json"),
    "win32": Path("C:/ProgramData/qwen-code/settings.json"),
}.get(sys.platform, Path("/etc/qwen-code/settings.json"))
_QWEN_BY_KIND: Final[dict[str, tuple[Name, bool]]] = {
    "openai": ("openai", True),
    "anthropic": ("anthropic", False),
    "gemini": ("gemini", False),
}
_QWEN_OTHER_LOGINS: Final = frozenset({"qwen-oauth", "gemini", "vertex-ai"})


class QwenModel(Struct, frozen=True):
    """Entry of Qwen Code's `modelProviders` with a base URL: its list, its place, its provider."""

    kind: str
    at: int
    provider: AgentProvider


class QwenModels(Struct, frozen=True):
    """`modelProviders` of Qwen Code, the settings that override all others, and who says so."""

    place: Path
    lists: dict[str, Any] = {}
    models: tuple[QwenModel, ...] = ()
    system: dict[str, Any] = {}
    is_trusted: bool = True  # the user's own


def qwen_models(environ: Mapping[str, str], working_dir: Path) -> QwenModels:
    """Models of Qwen Code whose settings hold a base URL, which nothing but settings override."""
    named = environ.get(QWEN_SYSTEM_VARIABLE)
    system = Path(named) if named else _QWEN_SYSTEM
    user = config_folder(environ, "QWEN_HOME", ".qwen") / "settings.json"
    project = working_dir / ".qwen" / "settings.json"
    held = read_object(system)
    for place in dict.fromkeys((system, project, user)):  # the first one replaces the others
        lists = as_object(read_object(place).get("modelProviders"))
        if lists:
            models = tuple(_qwen_models_in(lists))
            return QwenModels(place, lists, models, held, is_trusted=place == user)
    return QwenModels(user, system=held)


def _qwen_models_in(lists: Mapping[str, Any]) -> Iterator[QwenModel]:
    for kind, (upstream, versioned) in _QWEN_BY_KIND.items():
        entries = lists.get(kind)
        for at, entry in enumerate(cast(list[Any], entries) if isinstance(entries, list) else ()):
            url = as_text(get_nested(entry, "baseUrl"))
            if is_http_url(url):
                id = as_text(get_nested(entry, "id")) or f"{kind} {at + 1}"
                yield QwenModel(kind, at, AgentProvider(id, upstream, url, versioned))


def qwen_proxy(environ: Mapping[str, str], arguments: Sequence[str]) -> str:
    """Setting by which Qwen Code sends everything to an HTTP proxy; empty: none.

    It leaves no host out, so such a proxy would be asked for this machine.
    """
    settings = read_object(config_folder(environ, "QWEN_HOME", ".qwen") / "settings.json")
    if flag_value(arguments, "--proxy"):
        return "--proxy"
    if as_text(settings.get("proxy")):
        return "proxy in its settings"
    names = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
    return next((name for name in names if environ.get(name)), "")


def qwen_login(environ: Mapping[str, str], arguments: Sequence[str]) -> str:
    """Login of Qwen Code that has no base URL setting; empty: it uses a key for one that has."""
    settings = read_object(config_folder(environ, "QWEN_HOME", ".qwen") / "settings.json")
    chosen = flag_value(arguments, "--auth-type", "--authType") or as_text(
        get_nested(settings, "security", "auth", "selectedType")
    )
    return chosen if chosen in _QWEN_OTHER_LOGINS else ""


# Gemini CLI


def has_gemini_key(environ: Mapping[str, str]) -> bool:
    """Report whether Gemini CLI uses an API key, which may be in the keyring."""
    settings = read_object(
        config_folder(environ, "GEMINI_CLI_HOME", "") / ".gemini" / "settings.json"
    )
    chosen = as_text(get_nested(settings, "security", "auth", "selectedType"))
    return chosen in ("gemini-api-key", "gateway")


# Servers of the Model Context Protocol


MCP_SERVER: Final = "respool"  # by which respool recognises its tools


def mcp_entry(agent: str, command: Sequence[str]) -> dict[str, Any]:
    """Entry of the MCP server in the settings of an agent, which is named by its command."""
    program, *arguments = command
    match agent:
        case "opencode":
            return {"type": "local", "command": [*command], "enabled": True}
        case "copilot":
            return {"type": "local", "command": program, "args": arguments, "tools": ["*"]}
        case "cn":
            return {"name": MCP_SERVER, "command": program, "args": arguments}
        case _:
            return {"command": program, "args": arguments}


def has_mcp_server(agent: str, environ: Mapping[str, str], working_dir: Path) -> bool:
    """Report whether an agent's settings have a server of that name, which is its user's own."""
    return any(
        MCP_SERVER in as_object(servers)
        for name, _, servers in _mcp_servers(environ, working_dir)
        if name == agent
    )


def mcp_commands(
    environ: Mapping[str, str], working_dir: Path, name: str
) -> dict[Path, tuple[str, ...]]:
    """Commands of an MCP server of this name, by the settings file that registers it."""
    found = (
        (file, _mcp_command(get_nested(servers, name)))
        for _, file, servers in _mcp_servers(environ, working_dir)
    )
    return {file: command for file, command in found if command}


def _mcp_servers(
    environ: Mapping[str, str], working_dir: Path
) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Servers in each agent's settings files, with the agent and the file."""
    home = config_folder(environ, "", "")
    claude = Path(environ.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json"
    gemini = config_folder(environ, "GEMINI_CLI_HOME", "") / ".gemini" / "settings.json"
    codex = config_folder(environ, "CODEX_HOME", ".codex") / "config.toml"
    here = ("projects", str(working_dir), "mcpServers")
    yield "claude", claude, as_object(get_nested(read_object(claude), *here))
    files = [
        ("claude", claude),
        ("claude", working_dir / ".mcp.json"),
        ("gemini", gemini),
        ("gemini", working_dir / ".gemini" / "settings.json"),
        ("qwen", config_folder(environ, "QWEN_HOME", ".qwen") / "settings.json"),
        ("qwen", working_dir / ".qwen" / "settings.json"),
        ("copilot", config_folder(environ, "COPILOT_HOME", ".copilot") / "mcp-config.json"),
    ]
    for agent, file in files:
        yield agent, file, as_object(read_object(file).get("mcpServers"))
    yield "codex", codex, as_object(read_toml(codex).get("mcp_servers"))
    for file in _opencode_files(environ, working_dir):
        yield "opencode", file, as_object(read_object(file).get("mcp"))


def _mcp_command(server: Any) -> tuple[str, ...]:
    """Command of a server: a program and its arguments, or opencode's list of both."""
    program, arguments = (as_object(server).get(key) for key in ("command", "args"))
    words = [program] if isinstance(program, str) else [*_texts(program)]
    return (*words, *_texts(arguments))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        yield from (one for one in cast(list[Any], value) if isinstance(one, str))


# Shared helpers


def _in_use_first(known: Mapping[str, AgentProvider], used: str) -> list[AgentProvider]:
    return sorted(known.values(), key=lambda one: one.id != used)


def last_flag_value(arguments: Sequence[str], flag: str) -> str:
    """Value of the last occurrence of a flag."""
    found = ""
    for word, after in pairwise([*arguments, ""]):
        name, equals, value = word.partition("=")
        if name == flag:
            found = value if equals else after
    return found


def flag_value(arguments: Sequence[str], *flags: str) -> str:
    """Value of the first of these flags."""
    for flag, word in pairwise([*arguments, ""]):
        name, equals, value = flag.partition("=")
        if name in flags:
            return value if equals else word
    return ""
