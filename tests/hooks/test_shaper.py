"""Results shaped with transcripts as history, one after another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from respool.hooks.hook_command import AgentName
from respool.hooks.responder import HookCall, Responder
from respool.hooks.shaper import SESSION_OF, History, ShapedResult, Shaper
from respool.hooks.timeline import ToolResult
from respool.policy import Policy
from respool.store import SQLiteStore

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts"
LOG = "".join(f"{n:03} the gauge at mile {n * 37 % 211} reads {n * 91} mm\n" for n in range(80))


def result(call: str, text: str = LOG, command: str = "cat gauge.txt") -> ToolResult:
    return ToolResult(call=call, tool="Bash", arguments={"command": command}, text=text)


class Conversation:
    """A conversation of Claude Code whose transcript grows."""

    def __init__(self) -> None:
        self.records: list[Any] = [self._record("user", "Read the gauges.")]
        self.shaper = Shaper()

    @staticmethod
    def _record(role: str, content: Any, **more: Any) -> dict[str, Any]:
        message = {"role": role, "content": content}
        return {"type": role, "sessionId": "s", "message": message, **more}

    def call(self, one: ToolResult) -> None:
        asked = {"type": "tool_use", "id": one.call, "name": one.tool, "input": one.arguments}
        self.records.append(self._record("assistant", [asked]))

    def keep(self, one: ToolResult, text: str) -> None:
        block = {"type": "tool_result", "tool_use_id": one.call, "content": text}
        self.records.append(self._record("user", [{**block, "is_error": False}]))

    def history(self) -> History:
        return History("claude", self.records, "s.jsonl")

    def shape(self, one: ToolResult) -> ShapedResult | None:
        shaped = self.shaper.shape(self.history(), one, Policy())
        if shaped is not None:
            self.shaper.set_sent(self.history(), one.call, shaped.text)
        return shaped

    def run(self, one: ToolResult) -> str:
        """A call whose result the agent sends as the hook says."""
        self.call(one)
        shaped = self.shape(one)
        text = one.text if shaped is None else shaped.text
        self.keep(one, text)
        return text

    def compact(self) -> None:
        about = {"type": "system", "subtype": "compact_boundary", "sessionId": "s"}
        summary = self._record("user", "A summary.", isCompactSummary=True)
        self.records += [about, summary]


def test_the_second_copy_leads_to_the_first_and_to_its_original():
    talk = Conversation()
    assert talk.run(result("t1")) == LOG
    talk.call(result("t2"))
    shaped = talk.shape(result("t2"))
    assert shaped is not None
    assert len(shaped.text) < 200
    assert list(shaped.originals.values()) == [LOG]
    assert all(ref in shaped.text for ref in shaped.originals)


def test_a_warm_shaper_says_what_a_cold_one_says():
    warm = Conversation()
    for at in range(40):  # more records than are read again
        if at == 33:
            warm.compact()
        one = result(f"t{at}", LOG[: 900 + 300 * (at % 3)], f"head -{at % 3} gauge.txt")
        warm.call(one)
        cold = Shaper().shape(warm.history(), one, Policy())
        shaped = warm.shape(one)
        assert (shaped and shaped.text) == (cold and cold.text)
        warm.keep(one, one.text if shaped is None else shaped.text)


def test_nothing_leads_to_what_a_compaction_took_out():
    talk = Conversation()
    talk.run(result("t1"))
    talk.compact()
    assert talk.run(result("t2")) == LOG
    assert talk.run(result("t3")) != LOG


def test_nothing_leads_to_a_result_that_the_agent_cut_itself():
    talk = Conversation()
    talk.call(result("t1"))
    assert talk.shape(result("t1")) is None
    talk.keep(result("t1"), "Output too large. Preview: 000 the gauge")
    assert talk.run(result("t2")) == LOG


def test_calls_made_together_are_shaped_one_by_one():
    talk = Conversation()
    first, second = result("t1"), result("t2")
    talk.call(first)
    talk.call(second)
    assert talk.shape(second) is None  # it ended first
    talk.keep(second, LOG)
    shaped = talk.shape(first)
    assert shaped is not None
    assert len(shaped.text) < 200


def test_a_sub_agent_knows_only_its_own_conversation():
    main, sub = Conversation(), Conversation()
    main.run(result("t1"))
    sub.run(result("t1"))
    sub.records = [{**record, "isSidechain": True, "agentId": "a1"} for record in sub.records]
    shaped = {
        name: Shaper().shape(History("claude", records, source), result("t2"), Policy())
        for name, records, source in (
            ("its own", sub.records, "s/subagents/agent-a1.jsonl"),
            ("the main one", main.records, "s/subagents/agent-a1.jsonl"),
            ("a sub-agent's beside", sub.records, "s.jsonl"),
        )
    }
    assert {name: one is not None for name, one in shaped.items()} == {
        "its own": True,
        "the main one": False,
        "a sub-agent's beside": False,
    }


def test_a_marker_names_the_tool_that_gives_originals_back():
    talk = Conversation()
    talk.run(result("t1"))
    one = result("t2", f"{LOG}And a line that is new.\n", "cat gauge.txt; tail new.txt")
    talk.call(one)
    tool = "mcp__respool__respool_expand"
    shaped = talk.shaper.shape(talk.history(), one, Policy(), tool)
    assert shaped is not None
    assert f"{tool} gets it back; ref" in shaped.text
    assert "And a line that is new." in shaped.text


FIXTURES: dict[AgentName, str] = {
    "claude": "claude-code/00000000-0000-4000-8000-000000000001.jsonl",
    "gemini": "gemini-cli/session-0.jsonl",
    "pi": "pi/session.jsonl",
    "opencode": "opencode/main.json",
}


@pytest.mark.parametrize("agent", FIXTURES)
def test_a_result_ends_the_recorded_conversation_of_each_agent(agent: AgentName):
    path = TRANSCRIPTS / FIXTURES[agent]
    lines = path.read_text("utf-8")
    records = (
        [json.loads(line) for line in lines.splitlines()]
        if path.suffix == ".jsonl"
        else [json.loads(lines)]
    )
    for known in (records, []):
        session = SESSION_OF[agent](known, str(path), result("new"))
        assert session is not None
        assert "the gauge at mile" in json.dumps(session.messages[-1])
        assert (len(session.messages) > 3) == bool(known)
        history = History(agent, known, str(path))
        assert Shaper().shape(history, result("new"), Policy()) is None  # it is the first copy


def event(path: Path, call: str, text: str) -> bytes:
    output = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
    about = {"hook_event_name": "PostToolUse", "session_id": "s", "transcript_path": str(path)}
    asked = {"tool_name": "Bash", "tool_input": {"command": "cat gauge.txt"}}
    return json.dumps({**about, **asked, "tool_response": output, "tool_use_id": call}).encode()


def test_a_responder_keeps_the_original_before_it_answers(tmp_path: Path):
    talk = Conversation()
    talk.run(result("t1"))
    talk.call(result("t2"))
    path, store = tmp_path / "s.jsonl", tmp_path / "respool.db"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in talk.records))
    responder = Responder()

    def answer(**environ: str) -> bytes:
        known = {"RESPOOL_STORE": str(store), **environ}
        return responder.answer(
            HookCall(
                arguments=["claude"],
                folder=str(tmp_path),
                environ=known,
                data=event(path, "t2", LOG),
            )
        )

    assert answer(RESPOOL_PASSES="none") == b""
    output = json.loads(answer())["hookSpecificOutput"]["updatedToolOutput"]
    responder.close()
    assert len(output["stdout"]) < 200
    assert output["stderr"] == ""
    ref = output["stdout"].partition("ref ")[2][:20]
    kept = SQLiteStore(store, create=False)
    assert kept.original(ref, None) == LOG
    kept.close()
