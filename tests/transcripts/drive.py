"""Drives real agents against a scripted upstream, and writes what they leave as fixtures again.

    python -m tests.transcripts.drive [--agents FOLDER] [NAME …]

It needs Node 20, npm and a package registry, for the agents are installed below FOLDER (in the
temporary folder unless told) in the versions that `agents.py` names. Then each asks an upstream on
loopback, and is told to leave out updates and telemetry. It runs in /tmp/maze with /tmp/maze-home
as its home, and both are made anew. All of them take two minutes. No test runs this: tests read
what it wrote.

A fixture's folder holds what the agent left on disk, and `requests.jsonl`: each request that the
upstream got, in order, with the conversation it belongs to ("main", "main/1" after the agent's
first compaction, "sub" for a sub-agent, "beside" for titles and summaries), the times between which
it was answered, and the usage that was reported. In both, texts longer than LONGEST (160 in Claude
Code's attachments) are cut to their beginning and their length, in the same way, and catalogues of
tools are emptied; of a body the model and the history are kept, and of opencode's database the
tables of sessions, messages and parts, as SQL. The kernel's version and the machine's name are
replaced.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.transcripts.agent import HOME, MAZE, Agent, Run
from tests.transcripts.agents import AGENTS
from tests.transcripts.upstream import Received, Upstream, Usage

HERE = Path(__file__).parent
LONGEST = 1200  # characters of a text that is kept whole: readers hash messages of that size
NOTES = "The door is on the left.\nThe key is red.\n"
HISTORIES = ("messages", "input", "contents")
CATALOGUES = frozenset({"tools", "addedLines", "digests", "sourceEntries"})


def main() -> None:
    """Drives the agents that are named, or all."""
    parser = argparse.ArgumentParser(description="Write the fixtures again.")
    parser.add_argument("names", nargs="*", help=", ".join(AGENTS))
    parser.add_argument("--agents", type=Path, default=Path(tempfile.gettempdir()) / "agents")
    told = parser.parse_args()
    for name in told.names or AGENTS:
        agent = AGENTS[name]
        received, left = drive(agent, told.agents)
        write(HERE / name, received, left)
        print(f"{name}: {len(received)} requests, {', '.join(sorted(left))}")


def drive(agent: Agent, folder: Path) -> tuple[list[Received], dict[str, str]]:
    """Requests that the upstream got and files that the agent left, each under its name."""
    for place in (HOME, MAZE):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
    (MAZE / "notes.txt").write_text(NOTES)
    upstream = Upstream(agent.script, agent.named)
    server = upstream.serve()
    run = Run(installed(agent.package, folder), f"http://127.0.0.1:{server.server_port}")
    agent.set_up(run)
    for at, command in enumerate(agent.turns(run)):
        time.sleep(agent.pause if at else 0)
        turn(command, agent.variables(run))
    server.shutdown()
    return upstream.received, dict(agent.left(run))


def turn(command: list[str], variables: dict[str, str]) -> None:
    """One run of an agent, in a world of its own."""
    world = {"PATH": os.environ["PATH"], "HOME": str(HOME), "TZ": "UTC", **variables}
    done = subprocess.run(
        command,
        cwd=MAZE,
        env=world,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command} ended with {done.returncode}: {done.stdout} {done.stderr}")


def installed(package: str, folder: Path) -> Path:
    """The folder in which this package is, installed there if it was not."""
    place = folder / re.sub(r"[^a-z0-9.-]+", "-", package.lower()).strip("-")
    if place.exists():
        return place
    if "==" in package:
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([place / "bin" / "pip", "install", "-q", package, "mcp"], check=True)
    else:
        options = ["--no-audit", "--no-fund", "--prefix", str(place)]
        subprocess.run(["npm", "install", *options, package], check=True)
    return place


def write(folder: Path, received: list[Received], left: dict[str, str]) -> None:
    """The fixtures of one agent, in place of those that were there."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in left.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_fixture(name, text))
    lines = [json.dumps(_request(one), ensure_ascii=False) for one in received]
    (folder / "requests.jsonl").write_text("\n".join(lines) + "\n")


def _fixture(name: str, text: str) -> str:
    text = anonymous(text)
    if name.endswith(".jsonl"):
        records = [_record(json.loads(line)) for line in text.splitlines()]
        return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records)
    if name.endswith(".json"):
        return json.dumps(shortened(json.loads(text)), ensure_ascii=False, indent=1) + "\n"
    return text


def _record(record: dict[str, Any]) -> Any:
    """A record; what Claude Code attaches to a message holds its catalogues and prompts."""
    return shortened(record, 160 if record.get("type") == "attachment" else LONGEST)


def _request(one: Received) -> dict[str, Any]:
    name = next(name for name in HISTORIES if name in one.body)
    history = json.loads(anonymous(json.dumps(one.body[name], ensure_ascii=False)))
    model = one.body.get("model") or one.path.rpartition("/")[2].partition(":")[0]
    return {
        "conversation": one.conversation,
        "came": round(one.came, 3),
        "answered": round(one.answered, 3),
        "model": model,
        "usage": asdict(_told(one)),
        "body": {name: shortened(history)},
    }


def _told(one: Received) -> Usage:
    """The usage as the wire tells it: only Anthropic's tells what was written to a cache."""
    if "/messages" in one.path:
        return one.usage
    told = one.usage
    return Usage(told.input + told.cache_write, told.cache_read, 0, 0, told.output)


def shortened(value: Any, longest: int = LONGEST) -> Any:
    """The value without long texts and catalogues of tools."""
    if isinstance(value, str) and len(value) > longest:
        return f"{value[:80]}… ({len(value)} characters)"
    if isinstance(value, list):
        return [shortened(item, longest) for item in value]
    if isinstance(value, dict):
        return {
            key: [] if key in CATALOGUES and isinstance(item, list) else shortened(item, longest)
            for key, item in value.items()
        }
    return value


def anonymous(text: str) -> str:
    """The text without what tells which machine it was."""
    text = text.replace(platform.release(), "6.0.0")
    return re.sub(rf"\b{re.escape(platform.node())}\b", "maze-machine", text)


if __name__ == "__main__":
    main()
