"""The service that `respool install` sets up: guard script, systemd units, launchd agent.

systemd opens the port itself and starts the proxy with the first connection. launchd starts it at
login and again whenever it ends: its own way to open a port needs a call that Python lacks. Without
either, agents start it by their own hooks.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import plistlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, cast

import msgspec

from ..errors import RespoolError
from ..proxy.server_options import Upstreams

Manager = Literal["systemd", "launchd", "none"]
PortState = Literal["free", "respool", "other"]

HOST: Final = "127.0.0.1"
START_SECONDS: Final = 15.0  # in which a proxy must have begun to answer
_ASK_SECONDS: Final = 2.0
_HERE: Final = Path(__file__).parent
# Of the environment at installation, the service keeps what says how to reach providers.
_KEPT_VARIABLES: Final = frozenset(f"{name}_PROXY" for name in ("HTTP", "HTTPS", "ALL", "NO")) | {
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
}


class ServiceError(RespoolError):
    """The service cannot be set up; the message says why."""


class Service(msgspec.Struct, frozen=True):
    """A proxy on one port: its interpreter, its folder, its upstreams, its environment."""

    port: int
    python: str
    folder: Path
    upstreams: Upstreams = Upstreams()
    environment: dict[str, str] = {}

    @property
    def url(self) -> str:
        """Address of the proxy."""
        return f"http://{HOST}:{self.port}"

    @property
    def guard(self) -> Path:
        """Script that starts the proxy."""
        return self.folder / "guard.sh"

    @property
    def upstreams_file(self) -> Path:
        """File with the upstreams, which the proxy and the plain forwarder read."""
        return self.folder / "upstreams.json"


def kept_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that the service needs of the environment at installation."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if value and (name.upper() in _KEPT_VARIABLES or name.startswith("RESPOOL_"))
    }


def serve_words(service: Service) -> list[str]:
    """Words of the command that serves: `serve` and its options."""
    words = ["serve", "--fail-open", "--quiet", "--port", str(service.port)]
    return [*words, "--upstreams", str(service.upstreams_file)]


def service_files(service: Service) -> dict[Path, tuple[str, int]]:
    """Files in the service's own folder, with their modes."""
    filled = {
        "@PORT@": str(service.port),
        "@PYTHON@": shlex.quote(service.python),
        "@FOLDER@": shlex.quote(str(service.folder)),
        "@SERVE@": shlex.join(serve_words(service)),
        "@ENVIRONMENT@": "\n".join(
            f"export {name}={shlex.quote(value)}" for name, value in service.environment.items()
        ),
    }
    script = (_HERE / "guard.sh").read_text(encoding="utf-8")
    for name, text in filled.items():
        script = script.replace(name, text)
    upstreams = json.dumps(msgspec.to_builtins(service.upstreams), indent=2)
    forwarder = (_HERE / "forwarder.py").read_text(encoding="utf-8")
    return {
        service.guard: (script, 0o700),
        service.folder / "forwarder.py": (forwarder, 0o600),
        service.upstreams_file: (f"{upstreams}\n", 0o600),
    }


# --- service managers --------------------------------------------------------------------------


def detect_manager() -> Manager:
    """Service manager of this user's session."""
    if sys.platform == "darwin":
        return "launchd"
    if shutil.which("systemctl") and _run("systemctl", "--user", "show-environment") is None:
        return "systemd"
    return "none"


def manager_files(
    service: Service, manager: Manager, environ: Mapping[str, str]
) -> dict[Path, str]:
    """Files that register the service with a service manager."""
    home = Path(environ.get("HOME") or Path.home())
    if manager == "systemd":
        named = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
        folder = named / "systemd" / "user"
        return {folder / name: text for name, text in systemd_units(service).items()}
    if manager == "launchd":
        file = home / "Library" / "LaunchAgents" / f"{_label(service)}.plist"
        return {file: launchd_agent(service)}
    return {}


def systemd_units(service: Service) -> dict[str, str]:
    """User units: a socket, the service that it starts, and the way back if that fails."""
    name = f"respool-{service.port}"
    command = f"/bin/sh {_systemd_quoted(str(service.guard))}"
    return {
        f"{name}.socket": f"""\
[Unit]
Description=Port of respool's proxy

[Socket]
ListenStream={HOST}:{service.port}
NoDelay=true

[Install]
WantedBy=sockets.target
""",
        f"{name}.service": f"""\
[Unit]
Description=respool's proxy
Requires={name}.socket
OnFailure={name}-direct.service
StartLimitIntervalSec=60
StartLimitBurst=4

[Service]
ExecStart={command} serve
WorkingDirectory=%h
Restart=on-failure
RestartSec=1
TimeoutStopSec=40
""",
        f"{name}-direct.service": f"""\
[Unit]
Description=Agents' settings without respool's proxy, which cannot run

[Service]
Type=oneshot
ExecStart={command} direct
""",
    }


def _systemd_quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def launchd_agent(service: Service) -> str:
    """Property list of a launchd agent that runs from login on, and again if it ends."""
    about = {
        "Label": _label(service),
        "ProgramArguments": ["/bin/sh", str(service.guard), "serve"],
        "RunAtLoad": True,
        "KeepAlive": True,
        "ProcessType": "Interactive",
        "StandardErrorPath": str(service.folder / "serve.log"),
    }
    return plistlib.dumps(about).decode()


def _label(service: Service) -> str:
    return f"respool.{service.port}"


def start_commands(service: Service, manager: Manager, files: Sequence[Path]) -> list[list[str]]:
    """Commands that start a service, now and at every login."""
    match manager:
        case "systemd":
            unit = f"respool-{service.port}.socket"
            return [
                ["systemctl", "--user", "daemon-reload"],
                ["systemctl", "--user", "enable", "--now", unit],
            ]
        case "launchd":
            return [["launchctl", "bootstrap", _domain(), str(file)] for file in files]
        case "none":
            return [["/bin/sh", str(service.guard), "start"]]


def restart_commands(service: Service, manager: Manager) -> list[list[str]]:
    """Commands that start a service anew after its files have changed."""
    match manager:
        case "systemd":
            return [
                ["systemctl", "--user", "daemon-reload"],
                ["systemctl", "--user", "restart", f"respool-{service.port}.service"],
            ]
        case "launchd":
            return [["launchctl", "kickstart", "-k", f"{_domain()}/{_label(service)}"]]
        case "none":
            return start_commands(service, manager, ())


def stop_commands(port: int, manager: Manager) -> list[list[str]]:
    """Commands that stop a service for good, while its files still exist."""
    match manager:
        case "systemd":
            name = f"respool-{port}"
            return [
                ["systemctl", "--user", "disable", "--now", f"{name}.socket"],
                ["systemctl", "--user", "stop", f"{name}.service"],
            ]
        case "launchd":
            return [["launchctl", "bootout", f"{_domain()}/respool.{port}"]]
        case "none":
            return []


def _domain() -> str:
    return f"gui/{os.getuid()}" if hasattr(os, "getuid") else "gui/0"


def run_commands(commands: Sequence[Sequence[str]]) -> None:
    """Run commands of a service manager; the first that fails is an error."""
    for words in commands:
        if problem := _run(*words):
            raise ServiceError(f"{shlex.join(words)} failed: {problem}")


def _run(*words: str) -> str | None:
    """Run a command; its last words if it fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - ours
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.strip() or done.stdout.strip()
    return None if done.returncode == 0 else (said or f"exit status {done.returncode}")


# --- a proxy in the background -----------------------------------------------------------------


def port_state(port: int, host: str = HOST) -> PortState:
    """Find out who answers on a port."""
    connection = http.client.HTTPConnection(host, port, timeout=_ASK_SECONDS)
    try:
        connection.request("GET", "/healthz")
        answer: Any = json.loads(connection.getresponse().read(10_000))
    except ConnectionRefusedError:
        return "free"
    except (OSError, ValueError, http.client.HTTPException):
        return "other" if is_taken(port, host) else "free"
    finally:
        connection.close()
    known = cast(dict[str, Any], answer) if isinstance(answer, dict) else {}
    return "respool" if known == {"status": "ok"} or "circuit_breaker" in known else "other"


def is_taken(port: int, host: str = HOST) -> bool:
    """Report whether a program listens on a port."""
    try:
        socket.create_connection((host, port), timeout=_ASK_SECONDS).close()
    except OSError:
        return False
    return True


def wait_for_proxy(port: int) -> None:
    """Wait until a proxy answers on a port."""
    deadline = time.monotonic() + START_SECONDS
    while port_state(port) != "respool":
        if time.monotonic() > deadline:
            raise ServiceError(f"The proxy was started, but does not answer on port {port}.")
        time.sleep(0.05)


def stop_in_background(port: int, folder: Path) -> None:
    """End a proxy that was started in the background, by the number of its process."""
    file = _pid_file(port, folder)
    try:
        number = int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return
    said = subprocess.run(  # noqa: S603 - ours
        ["ps", "-p", str(number), "-o", "args="],  # noqa: S607 - as the system has it
        capture_output=True,
        text=True,
        check=False,
    )
    if "respool" in said.stdout and "serve" in said.stdout:  # else the number is another's now
        with contextlib.suppress(OSError):
            os.kill(number, signal.SIGTERM)
        deadline = time.monotonic() + _ASK_SECONDS
        while is_taken(port) and time.monotonic() < deadline:
            time.sleep(0.05)
    for one in (file, _log_file(port, folder)):
        one.unlink(missing_ok=True)


def _pid_file(port: int, folder: Path) -> Path:
    return folder / f"serve-{port}.pid"


def _log_file(port: int, folder: Path) -> Path:
    return folder / f"serve-{port}.log"


def start_in_background(command: Sequence[str], port: int, folder: Path) -> None:
    """Start a command that serves on a port, unless a proxy answers there; wait for its answer."""
    state = port_state(port)
    if state == "respool":
        return
    if state == "other":
        raise ServiceError(f"Another program listens on port {port}; --port takes another one.")
    log = _log_file(port, folder)
    folder.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - ours
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={
                name: value for name, value in os.environ.items() if not name.startswith("LISTEN_")
            },
        )
    _pid_file(port, folder).write_text(str(process.pid), encoding="ascii")
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if port_state(port) == "respool":
            return
        if process.poll() is not None and not is_taken(port):
            break
        time.sleep(0.05)
    raise ServiceError(f"The proxy did not start; {_last_line(log)} ({log})")


def _last_line(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if lines:
            return lines[-1]
    return "it said nothing"
