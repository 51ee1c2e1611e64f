"""`respool install` and `respool uninstall`: agents go through respool for good, with undo."""

from __future__ import annotations

import difflib
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from .console import CommandError, pluralize
from .options import require_server, resolve_store_location

if TYPE_CHECKING:
    from ..agents.install import InstallPlan
    from ..agents.installation import FileChange, Installation
    from ..agents.service import Manager, Service

_MANAGERS: Final = ("auto", "systemd", "launchd", "none")
# Some agents go by any of these for all requests.
_PROXY_VARIABLES: Final = (
    *("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"),
)
_STORE_SUFFIXES: Final = ("", "-wal", "-shm")  # of the files that make up a store

_yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
_dry_run_option = click.option("--dry-run", is_flag=True, help="Show the changes, and make none.")


@click.command()
@click.argument("agent")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=7733,
    show_default=True,
    help="Port of the proxy. Agents with different upstreams need different ones.",
)
@click.option(
    "--service",
    "manager",
    type=click.Choice(_MANAGERS),
    default="auto",
    show_default=True,
    help="What starts the proxy at login; none: the agent does, with its own hook.",
)
@click.option("--no-mcp", is_flag=True, help="Do not register respool's MCP server.")
@_dry_run_option
@_yes_option
def install(
    *,
    agent: str,
    port: int,
    manager: Literal["auto", "systemd", "launchd", "none"],
    no_mcp: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Send an agent's requests through respool for good.

    AGENT is claude, codex, opencode, pi, gemini, qwen, cn, aider or mini. Sets up a proxy that
    starts at login, and changes the agent's own settings. Shows every change and asks first;
    respool uninstall undoes them to the byte. Requests go on to where they went before, also if
    respool cannot run.
    """
    with require_server():
        # late: no other command needs the server
        import uvicorn  # noqa: F401  # pyright: ignore[reportUnusedImport]

        from ..agents.installation import Installation, is_in_force, plan_changes
        from ..agents.service import detect_manager
    if sys.platform == "win32":
        raise CommandError("respool install works on Linux and macOS; here use respool run.")
    made = Installation(os.environ, sys.executable)
    if known := made.record.agents.get(agent):
        if not is_in_force(known):
            raise CommandError(
                f"{known.label} was installed, but its settings have changed since: "
                f"respool uninstall {agent}, then install it again."
            )
        click.echo(f"{known.label} is installed already, on port {known.port}.")
        return
    plan = _plan(made, agent, port, with_server=not no_mcp)
    chosen: Manager = detect_manager() if manager == "auto" else manager
    _refuse_idle(plan, chosen)
    service = made.merged_service(port, plan)
    held = made.record.services.get(str(port))
    chosen = held.manager if held else chosen
    _refuse_port(made, port)
    _refuse_http_proxy()
    files = made.plan_service(service, chosen)
    changes = plan_changes(plan)
    _show_service(made, files)
    _show(changes)
    if dry_run or not _confirmed(f"Install {plan.label}?", yes=yes):
        return
    made.set_up(service, chosen, files)
    made.add_agent(plan, port, changes)
    _report(plan, service, chosen)


def _plan(made: Installation, agent: str, port: int, *, with_server: bool) -> InstallPlan:
    from ..agents.install import InstallContext, plan_install

    service = made.service(port)
    token = os.environ.get("RESPOOL_TOKEN")
    url = f"{service.url}/respool-token/{token}" if token else service.url
    with tempfile.TemporaryDirectory(prefix="respool-install-") as scratch:
        plan = plan_install(agent, InstallContext(os.environ, url, service.guard, Path(scratch)))
    has_server = with_server and find_spec("mcp") is not None
    return plan if has_server else plan.without_server()


def _refuse_idle(plan: InstallPlan, manager: Manager) -> None:
    if manager == "none" and not plan.starter:
        raise CommandError(
            f"{plan.label} cannot start respool by itself, and there is no systemd or launchd here "
            f"that would: use respool run -- {plan.command}."
        )


def _refuse_http_proxy() -> None:
    """Refuse an HTTP proxy that agents would send requests for this machine to."""
    used = next((name for name in _PROXY_VARIABLES if os.environ.get(name)), None)
    excepted = f"{os.environ.get('NO_PROXY', '')},{os.environ.get('no_proxy', '')}"
    if used and not any(host in excepted for host in ("127.0.0.1", "*")):
        raise CommandError(
            f"{used} is set, so agents would send their requests to respool there. Add 127.0.0.1 "
            "to NO_PROXY where that is set, for good; or use respool run."
        )


def _refuse_port(made: Installation, port: int) -> None:
    """Refuse a port that a program listens on which is not of this installation."""
    from ..agents.service import port_state

    if str(port) in made.record.services:
        return
    match port_state(port):
        case "free":
            return
        case "respool":
            raise CommandError(
                f"A respool proxy that was started otherwise listens on port {port}. End it, or "
                "take another port with --port."
            )
        case "other":
            raise CommandError(f"Another program listens on port {port}; --port takes another one.")


def _show_service(made: Installation, changes: Sequence[FileChange]) -> None:
    """Name the files in respool's own folder, and show those of a service manager."""
    own = [one for one in changes if Path(one.file).is_relative_to(made.folder)]
    for change in own:
        lines = pluralize(len(_lines(change.after)), "line")
        click.echo(f"{'new' if change.before is None else 'changed'}: {change.file} ({lines})")
    click.echo()
    _show(one for one in changes if one not in own)


def _show(changes: Iterable[FileChange]) -> None:
    """Print changes as a unified diff."""
    for change in changes:
        before, after = (_lines(data) for data in (change.before, change.after))
        old, new = change.file, change.file if change.after else os.devnull
        lines = difflib.unified_diff(
            before, after, old if change.before is not None else os.devnull, new, lineterm=""
        )
        for line in lines:
            click.echo(line)
        click.echo()


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "replace").splitlines()


def _confirmed(question: str, *, yes: bool) -> bool:
    if yes or click.confirm(question):
        return True
    click.echo("Nothing was changed.")
    return False


def _report(plan: InstallPlan, service: Service, manager: Manager) -> None:
    how = {
        "systemd": "systemd starts it when it is needed",
        "launchd": "launchd starts it at login",
        "none": f"{plan.label} starts it with its sessions",
    }[manager]
    click.echo(
        f"{plan.label} goes through respool on {service.url} from its next session on; {how}. "
        f"Open that address to look on. respool uninstall {plan.command} takes it back."
    )
    for note in plan.notes:
        click.echo(note)


@click.command()
@click.argument("agents", metavar="AGENT…", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All agents that are installed.")
@click.option("--delete-store", is_flag=True, help="Also delete what the proxy has kept.")
@_dry_run_option
@_yes_option
def uninstall(
    *, agents: tuple[str, ...], every: bool, delete_store: bool, dry_run: bool, yes: bool
) -> None:
    """Undo what respool install has changed.

    A file that is as install wrote it gets its former bytes back. In one that was edited since,
    only respool's own values are taken out. The store is kept, unless --delete-store is given.
    """
    from ..agents.installation import Installation

    made = Installation(os.environ, sys.executable)
    chosen = list(made.record.agents) if every else list(agents)
    _refuse_names(made, chosen, every=every, delete_store=delete_store)
    _show_undo(made, chosen)
    labels = ", ".join(made.record.agents[name].label for name in chosen)
    if dry_run or not _confirmed(f"Uninstall {labels or 'respool'}?", yes=yes):
        return
    ports = {made.record.agents[name].port for name in chosen}
    for name in chosen:
        made.remove_agent(name)
    for port in ports:
        _settle_service(made, port)
    if labels:
        click.echo(f"{labels}: settings as before. The next session goes straight to the provider.")
    _settle_store(delete=delete_store)


def _refuse_names(
    made: Installation, chosen: Sequence[str], *, every: bool, delete_store: bool
) -> None:
    installed = ", ".join(made.record.agents) or "none"
    unknown = [name for name in chosen if name not in made.record.agents]
    if unknown:
        raise CommandError(f"{unknown[0]} is not installed; installed: {installed}.")
    if not chosen and not every:
        raise CommandError(f"Name an agent, or --all; installed: {installed}.")
    rest = len(made.record.agents) - len(chosen)
    if delete_store and rest:
        raise CommandError(
            f"--delete-store: {pluralize(rest, 'other agent')} still installed; use respool forget."
        )


def _show_undo(made: Installation, chosen: Iterable[str]) -> None:
    from ..agents.installation import is_edited, plan_undo

    for name in chosen:
        for file in made.record.agents[name].files:
            if is_edited(file) and file.edits:
                click.echo(
                    f"{file.file} was edited since: only respool's own values are taken out."
                )
            if change := plan_undo(file, made.folder):
                _show([change])


def _settle_service(made: Installation, port: int) -> None:
    """Remove a service that no agent uses any more; else set it up for those that are left."""
    if not made.agents_on(port):
        made.remove_service(port)
        return
    manager = made.record.services[str(port)].manager
    service = made.merged_service(port)
    made.set_up(service, manager, made.plan_service(service, manager))


def _settle_store(*, delete: bool) -> None:
    path = resolve_store_location(None)
    if isinstance(path, Path) and not path.exists():
        return
    if not delete or not isinstance(path, Path):  # a server's data may be others' too
        click.echo(f"{path} is kept: respool forget --all empties it.")
        return
    for suffix in _STORE_SUFFIXES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    click.echo(f"{path} is deleted.")
