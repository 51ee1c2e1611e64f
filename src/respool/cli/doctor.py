"""`respool doctor`: check installation, store, settings, proxy and agents, and say what to do."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

import click
from msgspec import Struct

from ..accelerator import VARIABLE, find_accelerator
from ..config import PREFIX
from ..errors import PolicyError, RespoolError, install_command
from ..plugins import installed_version
from ..policy import Policy
from ..regex import lazy_compile
from .console import Table, pluralize, show
from .options import json_option, resolve_store_location, store_option, to_json
from .status import ProxyHealth, ask_health, format_bytes, read_store, url_option

if TYPE_CHECKING:
    from ..agents.launch import LaunchSetup

Level = Literal["ok", "note", "problem"]

EXIT_BROKEN: Final = 1  # exit status when something is broken
_EXTRAS: Final = {
    "serve": ("aiohttp", "brotli", "httptools", "uvicorn", "zstandard"),
    "mcp": ("mcp",),
}
_EXTRA_USES: Final = {"serve": "respool serve and respool run", "mcp": "respool mcp"}
_MIN_FREE_BYTES: Final = 200_000_000  # on the store's disk
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_PROXY_VARIABLES: Final = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_MCP_NAME: Final = "respool"
# In the origin of a setting.
_SETTINGS_FILE: Final = lazy_compile(r"(?:^|, by )(?:respool|pyproject)\.toml: (.+)$")


class Finding(Struct, frozen=True):
    """Result of one check: what was found, and what to do about it."""

    check: str
    level: Level
    found: str
    advice: str = ""


class Surroundings(Struct, frozen=True, kw_only=True):
    """Everything that checks look at."""

    environ: Mapping[str, str]
    working_dir: Path
    store_file: str | None
    url: str  # of the proxy
    ask: Callable[[str], ProxyHealth]


@click.command()
@url_option
@store_option
@json_option
def doctor(url: str, store_file: str | None, as_json: bool) -> None:
    """Check the installation, and say what to do about what is broken.

    Looks at Python, extras and the accelerator, the store, settings files and variables, the
    proxy, the known agents with their own settings, and MCP. Changes nothing. Exit status 1 if
    something is broken.
    """
    token = os.environ.get("RESPOOL_TOKEN") or None
    answers: dict[str, ProxyHealth] = {}

    def ask(address: str) -> ProxyHealth:
        if address not in answers:
            answers[address] = ask_health(address, token)
        return answers[address]

    ask(url)  # refuses what is no address
    around = Surroundings(
        environ=os.environ, working_dir=Path.cwd(), store_file=store_file, url=url, ask=ask
    )
    findings = [finding for check in _CHECKS for finding in _run(check, around)]
    broken = sum(one.level == "problem" for one in findings)
    if as_json:
        checks = [
            {"check": one.check, "level": one.level, "found": one.found, "advice": one.advice}
            for one in findings
        ]
        click.echo(to_json({"ok": not broken, "checks": checks}))
    else:
        rows = [(one.level, one.check, _sentence(one)) for one in findings]
        told = f"{pluralize(broken, 'problem')} found." if broken else "Nothing is broken."
        show(Table("respool doctor", ("State", "Check", "Found"), rows), told)
    if broken:
        click.get_current_context().exit(EXIT_BROKEN)


def _sentence(finding: Finding) -> str:
    found = finding.found
    end = "" if found.endswith((".", "?")) else "."
    return f"{found}{end} {finding.advice}" if finding.advice else found


Check = Callable[[Surroundings], Iterator[Finding]]


def _run(check: Check, around: Surroundings) -> list[Finding]:
    """Run a check; what it cannot look at is a problem of its own."""
    try:
        return list(check(around))
    except (OSError, RespoolError) as error:
        return [Finding(check.__name__.removeprefix("_check_"), "problem", str(error))]


def _check_python(_around: Surroundings) -> Iterator[Finding]:
    """Versions, and the command that agents would start."""
    found = f"respool {installed_version()}, Python {platform.python_version()}, {sys.executable}"
    yield Finding("python", "ok", found)
    if shutil.which("respool") is None:
        yield Finding(
            "python",
            "note",
            "There is no respool on the PATH",
            "Agents that start it (MCP, status line) need its whole path.",
        )


def _check_extras(_around: Surroundings) -> Iterator[Finding]:
    """Packages of the extras."""
    for extra, packages in _EXTRAS.items():
        lacking = [name for name in packages if find_spec(name) is None]
        if lacking:
            yield Finding(
                f"extra {extra}",
                "note",
                f"{_EXTRA_USES[extra]} cannot be used without {', '.join(lacking)}",
                f"{install_command(extra)}.",
            )
        else:
            yield Finding(f"extra {extra}", "ok", "installed")


def _check_accelerator(around: Surroundings) -> Iterator[Finding]:
    """The native library that makes the forecast faster."""
    status = find_accelerator(around.environ.get(VARIABLE, ""))
    if status.library is None:
        advice = "Projections are the same, only slower: respool docs install."
        yield Finding("accelerator", "note", f"Not in use: {status.detail}", advice)
    else:
        yield Finding("accelerator", "ok", f"in use: {status.detail}")


def _check_store(around: Surroundings) -> Iterator[Finding]:
    """The store's file: ours, readable, private, writable, with space left."""
    path = resolve_store_location(around.store_file)
    held = read_store(around.store_file)
    yield Finding("store", "problem" if held.trouble else "ok", held.describe())
    if not isinstance(path, Path):  # a server looks after its own disk
        return
    if held.exists:
        yield from _check_permissions(path)
    folder = next(one for one in path.parents if one.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        yield Finding(
            "store",
            "problem",
            f"The folder {folder} cannot be written to",
            "Make it yours, or set RESPOOL_STORE to a file elsewhere.",
        )
    free = shutil.disk_usage(folder).free
    if free < _MIN_FREE_BYTES:
        yield Finding(
            "store",
            "problem",
            f"{format_bytes(free)} are left on the disk of {folder}",
            "Make room, or respool forget --before 30d.",
        )
    if held.damaged:
        yield Finding(
            "store",
            "note",
            f"Damaged files were moved aside: {', '.join(held.damaged)}",
            "Delete them when you need nothing from them.",
        )


def _check_permissions(path: Path) -> Iterator[Finding]:
    if os.name != "posix":
        return
    mode = path.stat().st_mode
    if stat.S_IMODE(mode) & 0o077:
        yield Finding(
            "store", "problem", f"Others can read {path}", f"chmod 600 {path} makes it private."
        )
    if not os.access(path, os.R_OK | os.W_OK):
        yield Finding(
            "store",
            "problem",
            f"{path} cannot be written to",
            "Make it yours, or set RESPOOL_STORE to another file.",
        )


def _check_settings(around: Surroundings) -> Iterator[Finding]:
    """Settings files found from the working folder upwards."""
    try:
        policy = Policy.load(around.working_dir, {})
    except PolicyError as error:
        yield Finding("settings", "problem", str(error), "Correct that file.")
        return
    origins = policy.origins().values()
    files = {named[1] for origin in origins if (named := _SETTINGS_FILE.search(origin))}
    found = f"valid: {', '.join(sorted(files))}" if files else "none found; defaults apply"
    yield Finding("settings", "ok", found)


def _check_variables(around: Surroundings) -> Iterator[Finding]:
    """RESPOOL_… variables, each by itself, so that all that are wrong are named."""
    from ..store import Retention

    given = {name: text for name, text in around.environ.items() if name.startswith(PREFIX)}
    wrong = False
    for name, text in sorted(given.items()):
        try:
            Policy.from_env({name: text})
            Retention.from_env({name: text})
        except PolicyError as error:
            wrong = True
            is_unknown = "unknown key" in str(
                error
            )  # all that are allowed would be a page of names
            found = str(error).partition(" allowed: ")[0] if is_unknown else str(error)
            yield Finding("variables", "problem", found, f"Correct or unset {name}.")
    if not wrong:
        yield Finding("variables", "ok", ", ".join(sorted(given)) or "no RESPOOL_… variable is set")


def _check_proxy(around: Surroundings) -> Iterator[Finding]:
    """The proxy of `respool serve`, and HTTP proxies in front of it."""
    health = around.ask(around.url)
    if not health.is_listening:
        advice = "respool serve starts one; respool run needs none."
        yield Finding("proxy", "note", health.describe(), advice)
    elif not health.is_respool:
        yield Finding("proxy", "note", health.describe(), "respool serve --port takes another one.")
    elif not health.is_well:
        advice = "Requests pass, without new edits: respool docs troubleshooting."
        yield Finding("proxy", "problem", health.describe(), advice)
    else:
        yield Finding("proxy", "ok", health.describe())
    own = installed_version()
    if health.version and health.version != own:
        found = f"it runs version {health.version}, and {own} is installed"
        yield Finding("proxy", "note", found, "Restart it.")
    used = next((name for name in _PROXY_VARIABLES if around.environ.get(name)), None)
    excepted = f"{around.environ.get('NO_PROXY', '')},{around.environ.get('no_proxy', '')}"
    if used and not any(host in excepted for host in ("127.0.0.1", "localhost", "*")):
        yield Finding(
            "proxy",
            "note",
            f"{used} is set, and agents may send requests for this machine there",
            "Add 127.0.0.1 to NO_PROXY; respool run does so itself.",
        )


def _check_installed(around: Surroundings) -> Iterator[Finding]:
    """Agents that `respool install` has set up, and the services that they go through."""
    from ..agents.installation import install_folder, is_in_force, read_record

    folder = install_folder(around.environ)
    record = read_record(folder)
    for name, agent in record.agents.items():
        again = f"respool uninstall {name}, then respool install {name}."
        if is_in_force(agent):
            yield Finding(name, "ok", f"{agent.label} is installed, on port {agent.port}")
        elif (folder / str(agent.port) / "direct.log").exists():
            found = f"respool could not run, so {agent.label}'s settings were taken back"
            yield Finding(name, "problem", found, again)
        else:
            found = f"{agent.label} was installed, and its settings have changed since"
            yield Finding(name, "problem", found, again)
    for port, service in record.services.items():
        yield _check_service(around.ask(f"http://127.0.0.1:{port}"), service.manager, port)


def _check_service(health: ProxyHealth, manager: str, port: str) -> Finding:
    """Judge a service by what answers on its port."""
    check = f"service {port}"
    by = {"none": "agents' own hooks"}.get(manager, manager)
    if not health.is_listening:
        if manager == "none":
            return Finding(check, "ok", f"not running; started by {by} with the next session")
        advice = {
            "systemd": f"systemctl --user status respool-{port}.socket says why.",
            "launchd": f"launchctl print gui/$UID/respool.{port} says why.",
        }.get(manager, "")
        return Finding(check, "problem", f"{by} should listen on port {port}, and does not", advice)
    if not health.is_respool:
        advice = "End it, or install the agents on another port."
        return Finding(check, "problem", f"another program listens on port {port}", advice)
    if not health.is_well:
        return Finding(check, "problem", health.describe(), "Correct that, and restart it.")
    return Finding(check, "ok", f"runs, started by {by}")


def _check_agents(around: Surroundings) -> Iterator[Finding]:
    """Other known agents on the PATH, and where their settings send them."""
    from ..agents.installation import install_folder, read_record
    from ..agents.launch import AGENT_COMMANDS, plan_launch

    known = read_record(install_folder(around.environ)).agents
    installed = [name for name in AGENT_COMMANDS if shutil.which(name) and name not in known]
    if not installed and not known:
        yield Finding("agents", "note", "No agent that respool knows is on the PATH")
    with tempfile.TemporaryDirectory(prefix="respool-doctor-") as scratch:
        for name in installed:
            try:
                _, setup = plan_launch(
                    [name], around.url, around.environ, Path(scratch), around.working_dir
                )
            except RespoolError as error:
                # Without the URL, which may hold a token or a password.
                found = str(error).partition("; not ")[0].partition(", and ")[0]
                yield Finding(name, "problem", found, "Correct that setting.")
                continue
            yield _check_agent(name, setup, around)


def _check_agent(name: str, setup: LaunchSetup, around: Surroundings) -> Finding:
    """Judge where an agent's requests go."""
    from ..agents.base_urls import claude_code_base_url
    from ..agents.install import INSTALLABLE

    origins = [upstream.origin for upstream in setup.upstreams.values()]
    label = setup.agent or name
    if name == "claude" and (held := claude_code_base_url(around.environ, around.working_dir)):
        origins, label = [held[0]], f"{label}, by {held[1]},"
    local = next((one for one in origins if is_loopback(one)), None)
    if local is None:
        where = f"to {_origin(origins[0])}" if origins else "straight to its provider"
        note = f" ({setup.note})" if setup.note else ""
        advice = f"respool run -- {name} puts respool in front of it." if setup.applied else ""
        if setup.applied and name in INSTALLABLE:
            advice = f"respool run -- {name}, or respool install {name}, puts respool before it."
        if label != setup.agent:  # a file, which wins over the variable that respool run sets
            advice = "respool run cannot change that: take ANTHROPIC_BASE_URL out of the file."
        return Finding(name, "note", f"{label} goes {where}{note}", advice)
    health = around.ask(_origin(local))
    if health.is_respool:
        return Finding(name, "ok", f"{label} goes through respool on {health.url}")
    if not health.is_listening:
        found = f"{label} is pointed at {health.url}, where nobody listens"
        advice = "Start respool serve there, or remove that base URL."
        return Finding(name, "problem", found, advice)
    return Finding(name, "note", f"{label} goes to {health.url}, which is not respool")


def is_loopback(url: str) -> bool:
    """Report whether a URL names a server on this machine."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.hostname in _LOOPBACK and port != 0


def _origin(url: str) -> str:
    """Origin of a URL: its path may hold a token, and its host a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "what is no URL"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else "no URL"


def _check_mcp(around: Surroundings) -> Iterator[Finding]:
    """Registrations of `respool mcp` in the agents' settings."""
    from ..agents.base_urls import mcp_commands

    found = mcp_commands(around.environ, around.working_dir, _MCP_NAME)
    if not found:
        advice = "respool run and respool install register it; by hand: respool docs mcp."
        yield Finding("mcp", "note", "not registered in any settings that respool knows", advice)
    for file, command in found.items():
        if shutil.which(command[0]) is None:
            yield Finding(
                "mcp",
                "problem",
                f"{file} registers {command[0]}, which is not on the PATH",
                "Register it with its whole path.",
            )
        elif find_spec("mcp") is None:
            advice = "Install the extra mcp."
            yield Finding("mcp", "problem", f"{file} registers it, and it cannot run", advice)
        else:
            yield Finding("mcp", "ok", f"registered in {file}")


_CHECKS: Final[tuple[Check, ...]] = (
    _check_python,
    _check_extras,
    _check_accelerator,
    _check_store,
    _check_settings,
    _check_variables,
    _check_proxy,
    _check_installed,
    _check_agents,
    _check_mcp,
)
