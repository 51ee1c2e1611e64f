"""Plans of an installation: the changes to each agent's own settings, as data.

An agent is installed when its own settings send its requests to respool's service. opencode and pi
get a file of their own that asks at the start of a session whether the proxy answers. The others
get a base URL, which holds whether or not anything answers there: something must start the proxy
for them. That is the service manager, or a hook or MCP server of the agent's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from ..errors import RespoolError
from ..proxy.router import UPSTREAM_PREFIX
from ..proxy.server_options import Upstream, Upstreams, upstream_at, upstreams_of
from ..proxy.server_options import UpstreamName as Name
from .base_urls import (
    CLAUDE_VARIABLE,
    MCP_SERVER,
    QWEN_SYSTEM_VARIABLE,
    codex_provider,
    has_codex_server,
    has_mcp_server,
    mcp_entry,
)
from .launch import AGENT_COMMANDS, LaunchSetup, launch_environment, plan_launch
from .settings_edits import Format, get_value
from .settings_files import (
    as_object,
    as_text,
    config_folder,
    get_nested,
    is_present,
    mini_folder,
    read_object,
    read_text,
)

Starter = Literal["hook", "mcp", "plugin", ""]  # what starts the proxy where no service does
# Upstreams that an agent's requests may go to, by the name of its command.
_USES: Final[dict[str, tuple[str, ...]]] = {
    "claude": ("anthropic",),
    "codex": ("openai", "openai_responses"),
    "opencode": ("anthropic", "openai", "openai_chat", "openai_responses", "gemini"),
    "pi": ("anthropic", "openai", "openai_chat", "openai_responses", "gemini"),
    "gemini": ("gemini",),
    "qwen": (),  # it names its upstream in the path
    "cn": ("anthropic", "openai", "openai_chat"),
    "aider": ("anthropic", "openai", "openai_chat"),
    "mini": ("anthropic", "openai", "openai_chat"),
}


class CannotInstall(RespoolError, ValueError):
    """The agent cannot be installed; the message says why, and what to do in its place."""


class SettingsEdit(Struct, frozen=True, kw_only=True):
    """A value to set in a settings file, or an item to append to a list there."""

    file: Path
    format: Format
    keys: tuple[str, ...]
    value: Any
    is_item: bool = False
    direct: str = ""  # for a base URL of the proxy's: the one that it stands for


class WholeFile(Struct, frozen=True):
    """A file to write as a whole: respool's own, or settings that were edited elsewhere."""

    file: Path
    text: str
    direct: dict[str, str] = {}  # base URLs of the proxy's, and those that they stand for


class InstallContext(Struct, frozen=True):
    """Surroundings of an installation."""

    environ: Mapping[str, str]
    proxy_url: str  # with the token, if there is one
    guard: Path  # script that starts the proxy
    scratch_dir: Path  # an empty folder, which holds no project's settings

    @property
    def home(self) -> Path:
        """The user's folder."""
        return config_folder(self.environ, "", "")

    @property
    def mcp_command(self) -> tuple[str, ...]:
        """Command of the MCP server, which starts the proxy as well."""
        return ("/bin/sh", str(self.guard), "mcp", "--expand-only")


class InstallPlan(Struct, frozen=True, kw_only=True):
    """Changes that point one agent at the proxy, and where its requests went before."""

    command: str
    label: str
    upstreams: Upstreams
    uses: tuple[str, ...]  # names of the upstreams that its requests go to
    edits: tuple[SettingsEdit, ...] = ()
    files: tuple[WholeFile, ...] = ()
    starter: Starter = ""
    notes: tuple[str, ...] = ()

    def without_server(self) -> InstallPlan:
        """The same plan, without the MCP server."""
        kept = tuple(edit for edit in self.edits if edit.keys[-1] != MCP_SERVER)
        return replace(self, edits=kept, starter="" if self.starter == "mcp" else self.starter)


def plan_install(command: str, context: InstallContext) -> InstallPlan:
    """Plan the installation for the agent with this command; nothing is written."""
    if command not in _AGENTS:
        raise CannotInstall(
            f"There is no agent {command!r}; known are {', '.join(AGENT_COMMANDS)}."
        )
    _, setup = plan_launch(
        [command],
        context.proxy_url,
        context.environ,
        context.scratch_dir,
        context.scratch_dir,
        mcp_command=context.mcp_command if command in ("pi", "cn") else (),
    )
    label = setup.agent or command
    if command in _USES and not setup.applied:
        raise CannotInstall(f"{label} cannot be installed: {setup.note}.")
    plan = _AGENTS[command](context, setup)
    port = context.proxy_url.partition("://")[2].partition("/")[0]
    used = [getattr(plan.upstreams, name) for name in plan.uses]
    if any(one.origin.endswith(port) for one in (*used, *plan.upstreams.named.values())):
        raise CannotInstall(
            f"{label} is pointed at {context.proxy_url} already, and respool has no record of "
            "that. Take that base URL out of its settings first."
        )
    return plan


def merge_upstreams(plans: Mapping[str, tuple[Upstreams, tuple[str, ...]]]) -> Upstreams:
    """Upstreams of one proxy for several agents; it has one for each format."""
    found: dict[str, tuple[str, Upstream]] = {}
    named: dict[str, Upstream] = {}
    for label, (upstreams, uses) in plans.items():
        fixed = {name: getattr(upstreams, name) for name in uses}
        for name, one in {**fixed, **upstreams.named}.items():
            other, before = found.setdefault(name, (label, one))
            if before != one:
                raise CannotInstall(
                    f"{label} sends its requests to {one.origin}{one.prefix}, and {other}, which "
                    f"is installed on the same port, to {before.origin}{before.prefix}. Give it a "
                    "proxy of its own: --port takes another one."
                )
        named.update(upstreams.named)
    every = {name: one for name, (_, one) in found.items() if name not in named}
    return Upstreams(**every, named=named)


def _plan(
    command: str, setup: LaunchSetup, *, uses: tuple[str, ...] | None = None, **changes: Any
) -> InstallPlan:
    upstreams = upstreams_of((), setup.upstreams, setup.named)
    if setup.named:  # what its settings say is in the paths; the rest goes to the makers
        said = {name.replace("-", "_") for name in setup.upstreams}
        uses = tuple(name for name in _USES[command] if name not in said)
        upstreams = Upstreams(named=upstreams.named)
    return InstallPlan(
        command=command,
        label=setup.agent or command,
        upstreams=upstreams,
        uses=_USES[command] if uses is None else uses,
        **changes,
    )


def _direct_url(context: InstallContext, setup: LaunchSetup, url: str, name: Name) -> str:
    """Base URL that a base URL of the proxy stands for."""
    upstreams = upstreams_of((), setup.upstreams, setup.named)
    version = url.removeprefix(context.proxy_url)
    one = upstreams.of_name(name)
    if version.startswith(UPSTREAM_PREFIX):
        named, _, rest = version.removeprefix(UPSTREAM_PREFIX).partition("/")
        one, version = upstreams.named[named], f"/{rest}" if rest else ""
    assert one is not None, "a base URL was replaced, so its upstream is known"
    return f"{one.origin}{one.prefix}{'' if one.is_custom else version}"


# --- agents with a base URL in their settings --------------------------------------------------


def _plan_claude(context: InstallContext, setup: LaunchSetup) -> InstallPlan:
    """Plan for Claude Code: variables in its settings, a hook and an MCP server."""
    if CLAUDE_VARIABLE not in setup.environment:
        raise CannotInstall("Claude Code uses a cloud here: use respool run.")
    folder = config_folder(context.environ, "CLAUDE_CONFIG_DIR", ".claude")
    settings = folder / "settings.json"
    home = Path(context.environ.get("CLAUDE_CONFIG_DIR") or context.home)
    upstreams = upstreams_of((), setup.upstreams)
    variables = {CLAUDE_VARIABLE: context.proxy_url, **launch_environment(setup, upstreams)}
    before = _direct_url(context, setup, context.proxy_url, "anthropic")
    edits = [
        SettingsEdit(
            file=settings,
            format="json",
            keys=("env", name),
            value=value,
            direct=before if value == context.proxy_url else "",
        )
        for name, value in variables.items()
    ]
    command = f"/bin/sh {json.dumps(str(context.guard))} hook"
    hook = {"hooks": [{"type": "command", "command": command, "timeout": 30}]}
    edits.append(
        SettingsEdit(
            file=settings, format="json", keys=("hooks", "SessionStart"), value=hook, is_item=True
        )
    )
    plugins = as_object(read_object(settings).get("enabledPlugins"))
    if not any(name.startswith("respool@") and used for name, used in plugins.items()):
        edits += _mcp_edits(context, "claude", home / ".claude.json")  # else the plugin brings it
    return _plan("claude", setup, edits=tuple(edits), starter="hook")


def _mcp_edits(context: InstallContext, agent: str, file: Path) -> list[SettingsEdit]:
    """Edit that registers the MCP server, unless the user has one of that name."""
    if has_mcp_server(agent, context.environ, context.scratch_dir):
        return []
    server = mcp_entry(agent, context.mcp_command)
    return [SettingsEdit(file=file, format="json", keys=("mcpServers", MCP_SERVER), value=server)]


def _plan_codex(context: InstallContext, setup: LaunchSetup) -> InstallPlan:
    """Plan for Codex: the base URL of its provider, and an MCP server that it waits for."""
    file = config_folder(context.environ, "CODEX_HOME", ".codex") / "config.toml"
    provider = codex_provider(context.environ, ())
    url = f"{context.proxy_url}/v1"
    keys = tuple(provider.id.split("."))
    if len(keys) > 1:  # a provider's name may have dots
        keys = (keys[0], ".".join(keys[1:-1]), keys[-1])
    edits = [
        SettingsEdit(
            file=file,
            format="toml",
            keys=keys,
            value=url,
            direct=_direct_url(context, setup, url, "openai"),
        )
    ]
    if not has_codex_server(context.environ, (), MCP_SERVER):
        server = mcp_entry("codex", context.mcp_command)
        edits.append(
            SettingsEdit(file=file, format="toml", keys=("mcp_servers", MCP_SERVER), value=server)
        )
    return _plan("codex", setup, edits=tuple(edits), starter="mcp")


def _variable_edits(
    context: InstallContext, setup: LaunchSetup, file: Path, format: Format = "env"
) -> list[SettingsEdit]:
    """Edits that set an agent's variables in a file; its environment would override that."""
    for name in setup.environment:
        if context.environ.get(name, "").strip():
            raise CannotInstall(
                f"{setup.agent} cannot be installed: {name} is set in the environment, which "
                f"overrides its settings. Unset it, or use respool run."
            )
    return [
        SettingsEdit(
            file=file,
            format=format,
            keys=(name,) if format == "env" else ("env", name),
            value=url,
            direct=_direct_url(context, setup, url, _upstream_of(name)),
        )
        for name, url in setup.environment.items()
    ]


def _upstream_of(variable: str) -> Name:
    if variable.startswith("ANTHROPIC"):
        return "anthropic"
    return "gemini" if variable.startswith("GOOGLE") else "openai"


def _plan_gemini(context: InstallContext, setup: LaunchSetup) -> InstallPlan:
    """Plan for Gemini CLI: a variable in the `.env` that it reads, a hook and an MCP server."""
    home = config_folder(context.environ, "GEMINI_CLI_HOME", "")
    file = home / ".gemini" / ".env"
    if not is_present(file) and is_present(home / ".env"):
        file = home / ".env"  # a new file would hide it
    settings = home / ".gemini" / "settings.json"
    edits = _variable_edits(context, setup, file)
    edits += [_session_hook(context, settings), *_mcp_edits(context, "gemini", settings)]
    note = f"A project's own .env is read in place of {file}: its sessions go straight to Google."
    return _plan("gemini", setup, edits=tuple(edits), starter="hook", notes=(note,))


def _session_hook(context: InstallContext, file: Path) -> SettingsEdit:
    """Hook at the start of a session; it says nothing, as its output would be shown."""
    command = f"/bin/sh {json.dumps(str(context.guard))} start"
    hook = {"name": "respool", "type": "command", "command": command, "timeout": 30_000}
    return SettingsEdit(
        file=file,
        format="json",
        keys=("hooks", "SessionStart"),
        value={"hooks": [hook]},
        is_item=True,
    )


def _plan_qwen(context: InstallContext, setup: LaunchSetup) -> InstallPlan:
    """Plan for Qwen Code: a variable in its settings or its `.env`, a hook and an MCP server."""
    if QWEN_SYSTEM_VARIABLE in setup.environment:
        raise CannotInstall(
            "Qwen Code has models with base URLs of their own (modelProviders in its settings), "
            "which are not changed for good: use respool run -- qwen."
        )
    folder = config_folder(context.environ, "QWEN_HOME", ".qwen")
    settings = folder / "settings.json"
    texts = {file: read_text(file) for file in (folder / ".env", context.home / ".env")}
    held = [file for file, text in texts.items() if "OPENAI_BASE_URL" in text]
    edits = (
        _variable_edits(context, setup, held[0])
        if held
        else _variable_edits(context, setup, settings, "json")
    )
    edits += [_session_hook(context, settings), *_mcp_edits(context, "qwen", settings)]
    return _plan("qwen", setup, edits=tuple(edits), starter="hook")


def _plan_mini(context: InstallContext, setup: LaunchSetup) -> InstallPlan:
    """Plan for mini-swe-agent: variables in its own `.env`."""
    file = mini_folder(context.environ) / ".env"
    return _plan("mini", setup, edits=tuple(_variable_edits(context, setup, file)))


def _plan_aider(context: InstallContext, setup: LaunchSetup) -> InstallPlan:
    """Plan for aider: its option for OpenAI's base URL; it has none for Anthropic's."""
    for name in ("OPENAI_BASE_URL", "AIDER_OPENAI_API_BASE", "OPENAI_API_BASE"):
        if context.environ.get(name, "").strip():
            raise CannotInstall(
                f"aider cannot be installed: {name} is set in the environment. Unset it, or use "
                "respool run."
            )
    file, key = context.home / ".aider.conf.yml", "openai-api-base"
    before = str(get_value(read_text(file), "yaml", (key,)) or "")
    upstreams = {"openai": upstream_at(before, replaces_version=True, label=key)} if before else {}
    setup, url = replace(setup, upstreams=upstreams), f"{context.proxy_url}/v1"
    edit = SettingsEdit(
        file=file,
        format="yaml",
        keys=(key,),
        value=url,
        direct=_direct_url(context, setup, url, "openai"),
    )
    note = "Models of Anthropic's go there straight; respool run -- aider takes them along."
    return _plan("aider", setup, uses=("openai", "openai_chat"), edits=(edit,), notes=(note,))


# --- agents that ask for the proxy -------------------------------------------------------------


def _plan_opencode(context: InstallContext, setup: LaunchSetup) -> InstallPlan:
    """Plan for opencode: a plugin that sets base URLs if the proxy answers."""
    content = json.loads(setup.environment["OPENCODE_CONFIG_CONTENT"])
    urls = {id: one["options"]["baseURL"] for id, one in content["provider"].items()}
    folder = config_folder(context.environ, "XDG_CONFIG_HOME", ".config") / "opencode" / "plugin"
    server = mcp_entry("opencode", context.mcp_command)
    text = _PLUGIN.format(
        ask=_ask(context), urls=json.dumps(urls, indent=2), server=json.dumps(server, indent=2)
    )
    return _plan(
        "opencode", setup, files=(WholeFile(folder / "respool.js", text),), starter="plugin"
    )


def _plan_pi(context: InstallContext, setup: LaunchSetup) -> InstallPlan:
    """Plan for pi: an extension that sets base URLs if the proxy answers."""
    written = (context.scratch_dir / "respool-run.ts").read_text(encoding="utf-8")
    body = written.partition("{\n")[2]
    folder = config_folder(context.environ, "PI_CODING_AGENT_DIR", str(Path(".pi") / "agent"))
    text = _EXTENSION.format(ask=_ask(context), body=body)
    file = WholeFile(folder / "extensions" / "respool.ts", text)
    return _plan("pi", setup, files=(file,), starter="plugin")


def _ask(context: InstallContext) -> str:
    origin = "/".join(context.proxy_url.split("/")[:3])
    return _ASK.format(origin=json.dumps(origin), guard=json.dumps(str(context.guard)))


_ASK: Final = """\
// Written by `respool install`. If respool's proxy cannot be started, nothing is changed.
import {{ spawnSync }} from "node:child_process";

async function answers() {{
  try {{
    const answer = await fetch({origin} + "/healthz", {{ signal: AbortSignal.timeout(2000) }});
    return answer.ok;
  }} catch {{
    return false;
  }}
}}

async function isRunning() {{
  if (await answers()) return true;
  spawnSync("/bin/sh", [{guard}, "start"], {{ timeout: 20000, stdio: "ignore" }});
  return answers();
}}
"""
_PLUGIN: Final = """\
{ask}
const urls = {urls};
const server = {server};

export const Respool = async () => ({{
  config: async (config) => {{
    if (!(await isRunning())) return;
    config.provider ??= {{}};
    for (const [id, baseURL] of Object.entries(urls)) {{
      config.provider[id] ??= {{}};
      config.provider[id].options = {{ ...config.provider[id].options, baseURL }};
    }}
    config.mcp = {{ respool: server, ...config.mcp }};
  }},
}});
"""
_EXTENSION: Final = """\
{ask}
export default async function (pi) {{
  if (!(await isRunning())) return;
{body}"""


def _plan_continue(context: InstallContext, setup: LaunchSetup) -> InstallPlan:
    """Plan for Continue: its configuration, as `respool run` copies it."""
    from . import continue_config  # lazily: it needs a YAML parser

    path = continue_config.continue_path(context.environ, context.scratch_dir, "")
    config = continue_config.read_continue_config(path) if path else None
    copied = continue_config.read_continue_config(context.scratch_dir / "config.yaml")
    assert config is not None, "it was copied"
    assert copied is not None, "it was copied"
    urls = {
        one.at: as_text(get_nested(copied.settings["models"][one.at], "apiBase"))
        for one in config.models
        if one.provider is not None
    }
    servers = [one for one in copied.servers if one not in config.servers]
    text = continue_config.moved_continue_config(
        config, urls, config.path.parent, servers[0] if servers else None
    )
    if text is None:
        raise CannotInstall(f"{path} cannot be changed without other effects: use respool run.")
    direct = {
        url: _direct_url(context, setup, url, config.models[at].provider.upstream)  # pyright: ignore[reportOptionalMemberAccess]  # chosen by it
        for at, url in urls.items()
    }
    return _plan("cn", setup, files=(WholeFile(config.path, text, direct),), starter="mcp")


# --- agents that cannot be installed -----------------------------------------------------------


def _refuse_copilot(_context: InstallContext, _setup: LaunchSetup) -> InstallPlan:
    raise CannotInstall(
        "Copilot has no setting for its base URL, only variables: respool run -- copilot sets them."
    )


_AGENTS: Final[dict[str, Callable[[InstallContext, LaunchSetup], InstallPlan]]] = {
    "claude": _plan_claude,
    "codex": _plan_codex,
    "opencode": _plan_opencode,
    "pi": _plan_pi,
    "gemini": _plan_gemini,
    "qwen": _plan_qwen,
    "copilot": _refuse_copilot,
    "aider": _plan_aider,
    "mini": _plan_mini,
    "cn": _plan_continue,
}
INSTALLABLE: Final = tuple(_USES)
