"""Agents that `respool install` has set up: they come through, and go on without respool.

Each session is of a real agent against a scripted upstream, in a home of its own. Where the agent
cannot start the proxy itself, a real systemd does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from respool.store import SQLiteStore
from tests.e2e import agents
from tests.e2e.agents import DRIVEN, Driven, Metered
from tests.support import user_manager
from tests.support.ports import free_port
from tests.transcripts.agent import SAID, write_settings
from tests.transcripts.upstream import Answer

pytestmark = pytest.mark.e2e

SOURCE = Path(__file__).parents[2] / "src"
WITHIN = 100.0
ENVIRONMENT = Path(sys.prefix)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _opencode(home: Path, url: str) -> None:
    """Write its settings with what it would add to them itself."""
    DRIVEN["opencode"].set_up(home, url)
    file = home / ".config" / "opencode" / "opencode.json"
    schema = {"$schema": "https://opencode.ai/config.json"}
    write_settings(file, {**schema, **json.loads(file.read_text())})


def _gemini(home: Path, url: str) -> None:
    DRIVEN["gemini"].set_up(home, url)
    _write(home / ".gemini" / ".env", f"# mine\nGOOGLE_GEMINI_BASE_URL={url}\n")


def _aider(home: Path, url: str) -> None:
    DRIVEN["aider"].set_up(home, url)
    (home / "typed.txt").write_text("/ask Which?\n")
    _write(home / ".aider.conf.yml", f"# mine\nopenai-api-base: {url}/v1\n")


def _without(name: str, *variables: str) -> Callable[[str], dict[str, str]]:
    """Variables of an agent but those that its settings hold here, which they would override."""
    made = DRIVEN[name].variables
    return lambda url: {key: one for key, one in made(url).items() if key not in variables}


# Each agent with the address of its upstream in its own settings, as its users have it.
INSTALLED: dict[str, Driven] = {
    "claude": replace(
        DRIVEN["claude"],
        variables=_without("claude", "ANTHROPIC_BASE_URL"),
        set_up=lambda home, url: write_settings(
            home / ".claude" / "settings.json", {"env": {"ANTHROPIC_BASE_URL": url}}
        ),
    ),
    "codex": DRIVEN["codex"],
    "opencode": replace(DRIVEN["opencode"], set_up=_opencode),
    "pi": DRIVEN["pi"],
    "gemini": replace(
        DRIVEN["gemini"], variables=_without("gemini", "GOOGLE_GEMINI_BASE_URL"), set_up=_gemini
    ),
    "qwen": replace(
        DRIVEN["qwen"],
        variables=_without("qwen", "OPENAI_BASE_URL"),
        set_up=lambda home, url: write_settings(
            home / ".qwen" / "settings.json", {"env": {"OPENAI_BASE_URL": f"{url}/v1"}}
        ),
    ),
    "continue": DRIVEN["continue"],
    "mini": replace(
        DRIVEN["mini"],
        variables=_without("mini", "OPENAI_BASE_URL"),
        set_up=lambda home, url: _write(
            home / ".config" / "mini-swe-agent" / ".env", f"OPENAI_BASE_URL={url}/v1\n"
        ),
    ),
    "aider": replace(
        DRIVEN["aider"], variables=_without("aider", "OPENAI_API_BASE"), set_up=_aider
    ),
}
NEED_SYSTEMD = ("aider", "mini")
EDIT_THEIR_SETTINGS = ("qwen",)  # in every session
HAVE_SERVER = ("opencode", "gemini")  # as a tool in their first requests


@dataclass
class Place:
    """A home with an agent in it, an upstream, and a Python environment that can be deleted."""

    name: str
    folder: Path
    upstream: Metered
    url: str
    port: int
    world: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def respool(self, *words: str) -> str:
        done = subprocess.run(
            [self.folder / "env" / "bin" / "python", "-P", "-m", "respool", *words],
            cwd=self.home,
            env=self.world,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def install(self) -> str:
        how = "systemd" if self.name in NEED_SYSTEMD else "none"
        return self.respool(
            "install",
            INSTALLED[self.name].command,
            "--port",
            str(self.port),
            "--service",
            how,
            "--yes",
        )

    def stop(self) -> None:
        """End the proxy, as a crash or the end of a login does."""
        if self.name in NEED_SYSTEMD:
            unit = f"respool-{self.port}.service"
            subprocess.run(["systemctl", "--user", "stop", unit], env=self.world, check=True)
            return
        file = self.home / ".local" / "state" / "respool" / f"serve-{self.port}.pid"
        os.kill(int(file.read_text()), signal.SIGKILL)

    def session(self) -> int:
        """One session of the agent; how many requests the upstream got."""
        one, before = INSTALLED[self.name], len(self.upstream.received)
        done = subprocess.run(
            [one.command, *one.words],
            cwd=self.folder / "work",
            env=self.world,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Gauge 7 is the highest." in done.stdout
        return len(self.upstream.received) - before

    def recorded(self, expected: int) -> int:
        """How many requests the proxy has recorded; it writes them a little later."""
        until = time.monotonic() + 5
        while (found := self._recorded()) != expected and time.monotonic() < until:
            time.sleep(0.1)
        return found

    def _recorded(self) -> int:
        path = self.home / ".local" / "state" / "respool" / "respool.db"
        if not path.exists():
            return 0
        store = SQLiteStore(path, create=False)
        try:
            known = store.conversations(None)
            return sum(len(store.requests(one.name, None)) for one in known)
        finally:
            store.close()

    def contents(self) -> dict[str, bytes]:
        """Every file of the agent's settings that respool may change."""
        folders = (
            ".claude",
            ".codex/config.toml",
            ".config",
            ".gemini",
            ".qwen",
            ".pi",
            ".aider",
            ".continue/config.yaml",
        )
        found = [file for file in self.home.rglob("*") if file.is_file()]
        names = {str(file.relative_to(self.home)): file for file in found}
        copies = (".orig", ".backup")  # that agents make of their settings
        names = {
            name: file for name, file in names.items() if not any(one in name for one in copies)
        }
        return {name: file.read_bytes() for name, file in names.items() if name.startswith(folders)}


def environment(folder: Path) -> None:
    """A Python environment with all that this one has, whose deletion harms nobody."""
    (folder / "bin").mkdir(parents=True)
    shutil.copy(ENVIRONMENT / "pyvenv.cfg", folder)
    packages = Path(sysconfig.get_path("purelib"))
    own = folder / packages.relative_to(ENVIRONMENT)
    own.mkdir(parents=True)
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    (own / "all.pth").write_text("\n".join([str(SOURCE), str(packages), *given, ""]))
    (folder / "bin" / "python").symlink_to(Path(sys.executable).resolve())


def answers(one: Driven) -> list[Answer]:
    if not one.shell:
        return [Answer("It is read."), one.ends]
    call = (one.shell, {one.argument: "cat gauge_01.txt", **SAID[one.shell]})
    return [Answer("Now gauge 1.", (call,)), one.ends]


@contextlib.contextmanager
def placed(name: str, folder: Path) -> Iterator[Place]:
    if reason := agents.missing(name):
        pytest.skip(reason)
    one = INSTALLED[name]
    for below in ("home", "work"):
        (folder / below).mkdir()
    (folder / "work" / "gauge_01.txt").write_text("the gauge reads 7\n")
    environment(folder / "env")
    upstream = Metered({"main": answers(one) * 3}, one.named)
    server = upstream.serve()
    url = f"http://127.0.0.1:{server.server_port}"
    place = Place(name, folder, upstream, url, free_port())
    bin = agents._bin(one)
    place.world = {
        "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(place.home),
        "TZ": "UTC",
        **one.variables(url),
    }
    one.set_up(place.home, url)
    with contextlib.ExitStack() as stack:
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        if name in NEED_SYSTEMD:
            if reason := user_manager.missing():
                pytest.skip(reason)
            started = user_manager.user_manager(folder, place.home)
            place.world |= stack.enter_context(started)
        stack.callback(shut_down, place)
        yield place


def shut_down(place: Place) -> None:
    """End whatever still listens on the port."""
    asked = subprocess.run(
        ["ss", "-Hltnp", f"sport = :{place.port}"], capture_output=True, text=True, check=False
    )
    for part in asked.stdout.split("pid=")[1:]:
        with contextlib.suppress(OSError):
            os.kill(int(part.split(",")[0]), signal.SIGKILL)


every = pytest.mark.parametrize("name", INSTALLED)


@every
def test_an_installed_agent_comes_through_and_is_uninstalled_to_the_byte(name: str, tmp_path: Path):
    with placed(name, tmp_path) as place:
        before = place.contents()
        said = place.install()
        assert "respool uninstall" in said
        sent = place.session()
        assert sent >= 2
        assert place.recorded(sent) == sent
        tools = str([taken.body.get("tools") for taken in place.upstream.received])
        assert "respool_expand" in tools or name not in HAVE_SERVER
        place.respool("uninstall", INSTALLED[name].command, "--yes")
        after = place.contents()
        if name not in EDIT_THEIR_SETTINGS:
            assert {file: after.get(file) for file in before} == before
        assert str(place.port) not in str(after)
        assert not [file for file in after if "respool" in file]
        assert place.session() == sent
        assert place.recorded(sent) == sent


@every
def test_an_agent_starts_what_is_not_running(name: str, tmp_path: Path):
    with placed(name, tmp_path) as place:
        place.install()
        place.stop()
        sent = place.session()
        assert sent >= 2
        assert place.recorded(sent) == sent


@every
def test_with_broken_settings_requests_are_forwarded(name: str, tmp_path: Path):
    with placed(name, tmp_path) as place:
        place.install()
        place.stop()
        (place.home / "respool.toml").write_text("preset = nonsense")
        (tmp_path / "work" / "respool.toml").write_text("preset = nonsense")
        assert place.session() >= 2
        assert place.recorded(0) == 0


@every
def test_without_respools_environment_an_agent_goes_on(name: str, tmp_path: Path):
    with placed(name, tmp_path) as place:
        before = place.contents()
        place.install()
        place.stop()
        shutil.rmtree(tmp_path / "env")
        assert place.session() >= 2
        assert place.recorded(0) == 0
        shut_down(place)
        after = place.contents()
        for file in [file for file in before if place.url.encode() in before[file]]:
            assert after[file] == before[file] or name in EDIT_THEIR_SETTINGS
            assert place.url.encode() in after[file]
        assert place.session() >= 2
