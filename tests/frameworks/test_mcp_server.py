"""`respool mcp` on whichever mcp the frameworks of this environment ask for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from respool.markers import reference
from respool.store import SQLiteStore

pytest.importorskip("mcp")
pytestmark = pytest.mark.frameworks
ROOT = Path(__file__).parents[2]
UV = Path(sys.prefix).parents[1] / "bin" / "uv"  # of the environment around those of frameworks
TEXT = "one\ntwo\nthree\n"


def test_answers_over_the_wire(tmp_path: Path) -> None:
    path = tmp_path / "respool.db"
    SQLiteStore(path).keep("", "c", {reference(TEXT): TEXT})
    about = {"name": "t", "version": "1"}
    start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}
    asked = [
        {"id": 1, "method": "initialize", "params": start},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list", "params": {}},
        _call(3, {"ref": reference(TEXT), "lines": "2-3"}),
        _call(4, {"ref": "a" * 20}),
    ]
    command = [sys.executable, "-m", "respool", "mcp", "--store", str(path)]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **one}) + "\n" for one in asked)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(lines)
        server.stdin.flush()
        answers = {}
        while len(answers) < 4:
            answer = json.loads(server.stdout.readline())
            answers[answer["id"]] = answer["result"]
        server.stdin.close()
    tools = {one["name"]: one for one in answers[2]["tools"]}
    assert tools["respool_expand"]["annotations"]["readOnlyHint"] is True
    assert tools["respool_expand"]["inputSchema"]["required"] == ["ref"]
    assert answers[3]["content"][0]["text"] == "two\nthree\n"
    assert not answers[3].get("isError")
    assert answers[4]["isError"] is True


def _call(id: int, arguments: dict[str, str]) -> dict[str, object]:
    params = {"name": "respool_expand", "arguments": arguments}
    return {"id": id, "method": "tools/call", "params": params}


@pytest.mark.skipif(Path(sys.prefix).name != "mcp1", reason="does not depend on the environment")
@pytest.mark.skipif(not UV.is_file(), reason=f"uv is not beside this environment: {UV}")
@pytest.mark.parametrize("framework", ["strands-agents", "crewai", "semantic-kernel"])
def test_the_extra_changes_no_version_of_a_framework(framework: str, tmp_path: Path) -> None:
    alone = _resolved(tmp_path, framework)
    beside = _resolved(tmp_path, framework, f"respool[mcp] @ {ROOT.as_uri()}")
    assert beside[framework] == alone[framework]
    assert beside["mcp"] == alone.get("mcp", beside["mcp"])
    pinned = _pinned().get(framework, "0")
    assert _numbers(beside[framework]) >= _numbers(pinned)


def _resolved(folder: Path, *wanted: str) -> dict[str, str]:
    """The versions that uv would install."""
    asked = folder / "asked.in"
    asked.write_text("\n".join(wanted))
    options = ["--quiet", "--no-header", "--no-annotate", "--python", sys.executable]
    done = subprocess.run(
        [UV, "pip", "compile", *options, asked],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "UV_SYSTEM_CERTS": "1"},
    )
    if "client error (Connect)" in done.stderr or "dns error" in done.stderr:
        pytest.skip("no package index is reachable")
    assert done.returncode == 0, done.stderr
    return dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", done.stdout, re.MULTILINE))


def _pinned() -> dict[str, str]:
    """The versions that the environments of frameworks hold."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    named = "\n".join(one for group in groups.values() for one in group if isinstance(one, str))
    return dict(re.findall(r"^([a-z0-9.-]+)(?:\[[^]]*\])?==(\S+)", named, re.MULTILINE))


def _numbers(version: str) -> list[int]:
    return [int(one) for one in re.findall(r"\d+", version)]
