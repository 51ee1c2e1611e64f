"""Peers that choose what is kept of a history, each in a process and an environment of its own."""

from __future__ import annotations

import json
import subprocess
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from bench.false_drops import Moment
from respool.replay.policies import ResultLocation

HERE = Path(__file__).resolve().parent
_CHARS_PER_TOKEN = 4


class PeerSpec(NamedTuple):
    """A peer: how it is named in tables, and where it is installed."""

    name: str
    shown: str
    environment: str  # below .venv
    package: str


PEERS = (
    PeerSpec("headroom", "headroom-ai 0.42.0 `compress`", "peers/headroom", "headroom"),
    PeerSpec("langchain", "LangChain 1.4.7 `ClearToolUsesEdit`", "frameworks/httpx2", "langchain"),
    PeerSpec("litellm", "LiteLLM 1.106.2 `compress`", "frameworks/litellm", "litellm"),
)


class PeerUnavailable(Exception):
    """A peer cannot be run; the message says why."""


class Peer:
    """A running peer."""

    def __init__(self, spec: PeerSpec, venv: Path) -> None:
        self.spec = spec
        python = venv / spec.environment / "bin" / "python"
        if not python.exists():
            raise PeerUnavailable(f"not installed in .venv/{spec.environment}")
        self._process = subprocess.Popen(
            [str(python), str(HERE / "peer_worker.py"), spec.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if not self._read():
            self.close()
            raise PeerUnavailable(f"the package {spec.package} cannot be imported")

    def keep(self, moment: Moment, chat: list[dict[str, Any]], share: float) -> list[str]:
        """What the peer keeps of the old results of a moment; raises if it fails."""
        budget = round(share * moment.size)
        results = [_number(one["tool_call_id"]) for one in chat if one["role"] == "tool"]
        sizes = [len(moment.old.get(result, "")) for result in reversed(results)]
        keep = sum(size <= budget for size in accumulate(sizes))
        chars = sum(len(json.dumps(one, ensure_ascii=False)) for one in chat)
        asked = {
            "messages": chat,
            "target": share,
            "keep": keep,
            "tokens": max(1, (chars - moment.size + budget) // _CHARS_PER_TOKEN),
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        said = self._read()
        if "results" not in said:
            raise PeerUnavailable(said.get("error", "it ended"))
        kept = {_number(one): text for one, text in said["results"].items()}
        return [kept.get(result, "") for result in moment.old]

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else {}

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def _number(call_id: str) -> int:
    return int(call_id.removeprefix("call_"))


def chat_of(moment: Moment, results: list[ResultLocation]) -> list[dict[str, Any]]:
    """The history of a moment as chat messages, which every peer reads; calls by result number."""
    recording = moment.recording
    numbers = {(place.row, place.block): n for n, place in enumerate(results)}
    by_call = {
        recording.rows[place.row].blocks[place.block].call_id: n for n, place in enumerate(results)
    }
    chat: list[dict[str, Any]] = []
    for row in range(recording.cuts[moment.request]):
        message = recording.rows[row]
        calls: list[dict[str, Any]] = []
        texts: list[str] = []
        for at, block in enumerate(message.blocks):
            if block.kind == "result":
                if (row, at) in numbers:
                    number = numbers[row, at]
                    text = results[number].part.text
                    chat.append({"role": "tool", "tool_call_id": f"call_{number}", "content": text})
            elif block.kind == "call":
                if block.call_id in by_call:
                    calls.append(_chat_call(by_call[block.call_id], block.name, block.text))
            else:
                texts.append(block.text)
        said = "\n".join(filter(None, texts))
        if calls or (message.is_model_made and said):
            chat.append(
                {"role": "assistant", "content": said, **({"tool_calls": calls} if calls else {})}
            )
        elif said:
            chat.append({"role": "user", "content": said})
    return _paired(chat)


def _chat_call(number: int, name: str, text: str) -> dict[str, Any]:
    arguments = json.dumps({"arguments": text.partition("\n")[2]})
    function = {"name": name or "tool", "arguments": arguments}
    return {"id": f"call_{number}", "type": "function", "function": function}


def _paired(chat: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same with calls that follow each other in one message, and without calls that wait."""
    answered = {one["tool_call_id"] for one in chat if one["role"] == "tool"}
    found: list[dict[str, Any]] = []
    for message in chat:
        calls = [one for one in message.get("tool_calls", ()) if one["id"] in answered]
        plain = {name: value for name, value in message.items() if name != "tool_calls"}
        if message["role"] == "assistant" and not calls and not message["content"]:
            continue
        last = found[-1] if found else {}
        if message["role"] == "assistant" and last.get("role") == "assistant":
            words = "\n".join(filter(None, (last["content"], message["content"])))
            held = [*last.get("tool_calls", ()), *calls]
            found[-1] = {**last, "content": words, **({"tool_calls": held} if held else {})}
        else:
            found.append({**plain, **({"tool_calls": calls} if calls else {})})
    return found
