"""Whole OpenAI Responses requests, as Codex, Copilot, opencode and the agents SDK send them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.strategies.neutral import (
    FUTURE,
    PDF,
    PIXEL,
    TOOLS,
    Ask,
    Call,
    Conversation,
    Result,
    Server,
    Step,
    pick,
)
from tests.strategies.openai_chat import arguments

Item = dict[str, Any]
PICTURE = f"data:image/png;base64,{PIXEL}"


def render(conversation: Conversation) -> dict[str, Any]:
    """The request that a client would send at the end of this conversation."""
    request: dict[str, Any] = {
        "model": "gpt-5.6",
        "input": _Writer(conversation).items,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "5f2c",
    }
    if conversation.alone and not conversation.form % 2 and _is_plain(conversation):
        request["input"] = conversation.turns[0].ask.texts[0]
    if conversation.system and conversation.ids:
        request["instructions"] = "\n".join(conversation.system)
    if conversation.tools:
        request["tools"] = _tools()
    if conversation.thinking != "off":
        request["reasoning"] = {"effort": "medium", "summary": "auto"}
    if conversation.form % 2:
        request |= {"stream": True, "parallel_tool_calls": True, "tool_choice": "auto"}
    return request


def _is_plain(conversation: Conversation) -> bool:
    return (
        len(conversation.turns) == 1
        and not conversation.turns[0].steps
        and not conversation.compacted
    )


def _tools() -> list[Item]:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    functions: list[Item] = [
        {"type": "function", "name": name, "parameters": schema, "strict": False} for name in TOOLS
    ]
    patch = {"type": "custom", "name": "patch", "format": {"type": "text"}}
    notes = {"type": "mcp", "server_label": "notes", "server_url": "https://notes.example/mcp"}
    screen = {
        "type": "computer_use_preview",
        "display_height": 600,
        "display_width": 800,
        "environment": "linux",
    }
    plain = ("local_shell", "shell", "apply_patch", "web_search", "tool_search")
    return [*functions, patch, notes, screen, *({"type": name} for name in plain)]


class _Writer:
    """Writes the items one after the other; ids count up, so that a prefix stays a prefix."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._count = 0
        self.items: list[Item] = []
        if not conversation.ids:
            for text in conversation.system:
                self._say("developer", [_input_text(text)])
        if conversation.compacted:
            self.items.append(self._compaction(conversation.compacted))
        for at, turn in enumerate(conversation.turns):
            self._ask(turn.ask)
            last_turn = at == len(conversation.turns) - 1
            for number, step in enumerate(turn.steps):
                self._note(step.note)
                last = last_turn and number == len(turn.steps) - 1
                self._step(step, answered=not (conversation.pending and last))
        self._note(conversation.note)

    def _say(self, role: str, content: str | list[Item], bare: bool = False) -> None:
        message: Item = {"role": role, "content": content}
        self.items.append(message if bare else {"type": "message", **message})

    def _note(self, note: str | None) -> None:
        if note is not None:
            self._say(pick(len(note), "developer", "system"), [_input_text(note)])

    def _numbered(self) -> int:
        self._count += 1
        return self._count

    def _own_id(self, prefix: str) -> Item:
        """An item's own id, where this client sends them back."""
        number = self._numbered()
        return {"id": f"{prefix}_{number:04d}"} if self._conversation.ids else {}

    def _compaction(self, text: str) -> Item:
        return {
            "type": "compaction",
            **self._own_id("cmp"),
            "encrypted_content": f"Y21w{len(text)}",
        }

    def _ask(self, ask: Ask) -> None:
        if len(ask.texts) == 1 and not (ask.image or ask.document or ask.future) and ask.form % 2:
            self._say("user", ask.texts[0], bare=ask.form % 4 == 1)
            return
        parts = [_input_text(text) for text in ask.texts]
        if ask.image:
            parts.append(_input_image(ask.form))
        if ask.document:
            parts.append(_input_file())
        if ask.future:
            parts.append({"type": f"{FUTURE}gesture", "strokes": [[0, 1]]})
        self._say("user", parts)

    def _step(self, step: Step, answered: bool) -> None:
        if step.compaction:
            self.items.append(self._compaction(step.compaction))
        if step.future:
            self.items.append({"type": f"{FUTURE}plan", "goal": "wind the spool", "done": False})
        if step.reasoning:
            self.items.append(self._reasoning(step.reasoning, step.form))
        if step.server:
            self.items.append(self._served(step.server))
        if step.text or not (step.calls or step.server):
            self._message(step)
        pairs = [self._pair(call) for call in step.calls]
        if not answered:
            self.items += [call for call, _ in pairs]
        elif step.form % 4 == 3:  # each output right behind its call
            self.items += [item for pair in pairs for item in pair]
        else:
            outputs = [output for _, output in pairs]
            self.items += [call for call, _ in pairs]
            self.items += outputs[::-1] if step.form % 4 == 2 else outputs

    def _reasoning(self, text: str, form: int) -> Item:
        item: Item = {
            "type": "reasoning",
            **self._own_id("rs"),
            "summary": pick(form, [{"type": "summary_text", "text": text}], []),
            "encrypted_content": f"Z0FBQUFB{len(text):04d}" * 3,
        }
        told = {**item, "content": [{"type": "reasoning_text", "text": text}]}
        return pick(form // 2, item, told, {**item, "content": None})

    def _message(self, step: Step) -> None:
        """The model's message, whole as it was returned, or cut down as Codex keeps it."""
        text = {"type": "output_text", "text": step.text or "Done."}
        phase = (
            {"phase": "commentary" if step.calls else "final_answer"}
            if self._conversation.signed
            else {}
        )
        if self._conversation.ids:
            whole = (
                {**text, "annotations": [], "logprobs": []}
                if step.form % 3
                else {**text, "annotations": []}
            )
            own = {
                **self._own_id("msg"),
                "type": "message",
                "role": "assistant",
                "status": "completed",
            }
            self.items.append({**own, "content": [whole], **phase})
        elif step.form % 3 == 2:
            self.items.append({"role": "assistant", "content": text["text"], **phase})
        else:
            self.items.append({"type": "message", "role": "assistant", "content": [text], **phase})

    def _served(self, server: Server) -> Item:
        return _SERVED[server.form % len(_SERVED)](server, self._numbered(), self._own_id)

    def _pair(self, call: Call) -> tuple[Item, Item]:
        id = f"call_{self._numbered():04d}"
        make = _PAIRS.get(call.form, _function)
        made, output = make(call, id, self._own_id)
        return made, output


OwnId = Callable[[str], Item]


def _function(call: Call, id: str, own: OwnId) -> tuple[Item, Item]:
    made = {
        "type": "function_call",
        **own("fc"),
        "call_id": id,
        "name": call.name,
        "arguments": arguments(call),
        **pick(call.form, {}, {"status": "completed"}),
    }
    return made, {"type": "function_call_output", "call_id": id, "output": _output(call.result)}


def _custom(call: Call, id: str, own: OwnId) -> tuple[Item, Item]:
    made = {
        "type": "custom_tool_call",
        **own("ctc"),
        "call_id": id,
        "name": "patch",
        "input": "*** Begin\n+a\n*** End",
        **pick(call.form, {}, {"status": "completed"}),
    }
    return made, {"type": "custom_tool_call_output", "call_id": id, "output": _output(call.result)}


def _local_shell(call: Call, id: str, own: OwnId) -> tuple[Item, Item]:
    action: Item = {
        "type": "exec",
        "command": ["bash", "-lc", "make test"],
        "env": {},
        "timeout_ms": 9000,
    }
    made = {
        "type": "local_shell_call",
        **own("lsh"),
        "call_id": id,
        "status": "completed",
        "action": action,
    }
    text = json.dumps(
        {"output": call.result.text, "metadata": {"exit_code": int(call.result.error)}}
    )
    if call.form % 2:  # as Codex answers it
        return made, {"type": "function_call_output", "call_id": id, "output": text}
    return made, {
        "type": "local_shell_call_output",
        "id": id,
        "output": text,
        "status": "completed",
    }


def _shell(call: Call, id: str, own: OwnId) -> tuple[Item, Item]:
    action = {"commands": ["make test", "git diff"], "timeout_ms": 9000, "max_output_length": 4096}
    made = {
        "type": "shell_call",
        **own("sh"),
        "call_id": id,
        "action": action,
        "status": "completed",
    }
    outcome = (
        {"type": "timeout"}
        if call.result.image
        else {"type": "exit", "exit_code": int(call.result.error)}
    )
    chunk = {
        "stdout": call.result.text,
        "stderr": pick(call.result.form, "", "warning: slack"),
        "outcome": outcome,
    }
    return made, {
        "type": "shell_call_output",
        "call_id": id,
        "output": [chunk],
        "max_output_length": 4096,
    }


def _apply_patch(call: Call, id: str, own: OwnId) -> tuple[Item, Item]:
    update = {"type": "update_file", "path": "src/loom.py", "diff": "@@\n-a = 1\n+a = 2\n"}
    operation = pick(call.result.form, update, {"type": "delete_file", "path": "src/old.py"})
    made = {
        "type": "apply_patch_call",
        **own("apc"),
        "call_id": id,
        "status": "completed",
        "operation": operation,
    }
    status = "failed" if call.result.error else "completed"
    output: Item = {"type": "apply_patch_call_output", "call_id": id, "status": status}
    return made, {**output, "output": call.result.text} if call.result.texts else output


def _computer(call: Call, id: str, own: OwnId) -> tuple[Item, Item]:
    action = pick(
        call.result.form,
        {"type": "screenshot"},
        {"type": "click", "button": "left", "x": 3, "y": 4},
    )
    made = {
        "type": "computer_call",
        "id": f"cu_{id}",
        "call_id": id,
        "action": action,
        "pending_safety_checks": [],
        "status": "completed",
    }
    shot = {"type": "computer_screenshot", "image_url": PICTURE}
    return made, {
        "type": "computer_call_output",
        "call_id": id,
        "output": shot,
        "acknowledged_safety_checks": [],
    }


def _tool_search(call: Call, id: str, own: OwnId) -> tuple[Item, Item]:
    made = {
        "type": "tool_search_call",
        **own("tsc"),
        "call_id": id,
        "execution": "client",
        "arguments": {"q": "wind"},
    }
    found = {"type": "function", "name": "wind", "parameters": {"type": "object"}, "strict": False}
    tools = [found] if call.result.texts else []
    return made, {
        "type": "tool_search_output",
        "call_id": id,
        "execution": "client",
        "tools": tools,
    }


_PAIRS: dict[int, Callable[[Call, str, OwnId], tuple[Item, Item]]] = {
    4: _local_shell,
    5: _local_shell,
    6: _custom,
    7: _custom,
    8: _shell,
    9: _apply_patch,
    10: _computer,
    11: _tool_search,
}


def _web_search(server: Server, number: int, own: OwnId) -> Item:
    action = pick(
        server.form // 4,
        {"type": "search", "query": server.query},
        {"type": "open_page", "url": "https://threads.example/red"},
    )
    return {"type": "web_search_call", **own("ws"), "status": "completed", "action": action}


def _mcp(server: Server, number: int, own: OwnId) -> Item:
    output = {"output": "\n".join(server.found)} if server.found else {"output": None}
    call = {
        "name": "search_notes",
        "server_label": "notes",
        "arguments": json.dumps({"q": server.query}),
    }
    return {"type": "mcp_call", "id": f"mcp_{number:04d}", **call, **output}


def _code(server: Server, number: int, own: OwnId) -> Item:
    outputs = [{"type": "logs", "logs": text} for text in server.found]
    ids = {"id": f"ci_{number:04d}", "container_id": "cntr_1"}
    return {
        "type": "code_interpreter_call",
        **ids,
        "code": "print(1)",
        "outputs": outputs or None,
        "status": "completed",
    }


_SERVED = (_web_search, _mcp, _code)


def _output(result: Result) -> str | list[Item]:
    if not (result.image or result.document) and (len(result.texts) < 2 or result.form % 2):
        return result.text
    parts = [_input_text(text) for text in result.texts]
    if result.image:
        parts.append(_input_image(result.form))
    if result.document:
        parts.append(_input_file())
    if result.form % 6 == 4:
        parts.append({"type": f"{FUTURE}scent", "strength": 3})
    return parts


def _input_text(text: str) -> Item:
    return {"type": "input_text", "text": text}


def _input_image(form: int) -> Item:
    image = {"type": "input_image", "image_url": PICTURE}
    return pick(form, {**image, "detail": "auto"}, image)


def _input_file() -> Item:
    return {
        "type": "input_file",
        "filename": "thread.pdf",
        "file_data": f"data:application/pdf;base64,{PDF}",
    }
