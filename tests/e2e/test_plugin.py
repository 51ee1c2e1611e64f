"""The plugin for Claude Code: valid, installed from this repository, and of use in a session."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e import agents
from tests.e2e.agents import DRIVEN, Metered
from tests.transcripts.upstream import Answer

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "plugins" / "claude-code"


def world(home: Path) -> dict[str, str]:
    """Claude Code and respool on the PATH, in a home of their own."""
    bin = home.parent / "bin"
    bin.mkdir()
    command = bin / "respool"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m respool "$@"\n')
    command.chmod(0o755)
    home.mkdir()
    return {
        "PATH": f"{bin}:{agents._bin(DRIVEN['claude'])}:{os.environ['PATH']}",
        "HOME": str(home),
        "PYTHONPATH": str(ROOT / "src"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "ANTHROPIC_API_KEY": "none",
    }


def claude(environ: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        ["claude", *words],
        cwd=environ["HOME"],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    if reason := agents.missing("claude"):
        pytest.skip(reason)
    return world(tmp_path / "home")


@pytest.mark.parametrize("path", [ROOT, PLUGIN])
def test_marketplace_and_plugin_are_valid(path: Path, environ: dict[str, str]):
    said = claude(environ, "plugin", "validate", str(path))
    assert "Validation passed" in said
    assert "error" not in said.lower()


def test_it_is_installed_its_server_connects_and_its_commands_run(environ: dict[str, str]):
    claude(environ, "plugin", "marketplace", "add", str(ROOT))
    claude(environ, "plugin", "install", "respool@respool")
    assert "enabled" in claude(environ, "plugin", "list")
    servers = claude(environ, "mcp", "list")
    assert re.search(r"plugin:respool:respool: respool mcp .*Connected", servers), servers
    one = replace(DRIVEN["claude"], ends=Answer("Understood."))
    upstream = Metered({"main": [one.ends] * 4}, one.named)
    server = upstream.serve()
    environ["ANTHROPIC_BASE_URL"] = f"http://127.0.0.1:{server.server_port}"
    try:
        for command, shown in (
            ("/respool:status", "not listening on http://127.0.0.1:7733"),
            ("/respool:brief", "This is what was done in this session so far"),
        ):
            before = len(upstream.received)
            assert "Understood." in claude(environ, "-p", command)
            sent = json.dumps([taken.body for taken in upstream.received[before:]])
            assert shown in sent
            assert "!`" not in sent  # it was run, and its output stands there
    finally:
        server.shutdown()
        server.server_close()


def test_its_version_is_the_packages():
    about = json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text())
    text = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{about["version"]}"' in text
