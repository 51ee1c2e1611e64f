"""`respool mcp` on whichever mcp the frameworks of this environment ask for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from respool.markers import reference
from respool.store import SQLiteStore

pytest.importorskip("mcp")
pytestmark = pytest.mark.frameworks
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
