"""Whole Anthropic Messages requests, with what Claude Code, opencode and Copilot send."""

from __future__ import annotations

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

Block = dict[str, Any]
Message = dict[str, Any]


def render(conversation: Conversation) -> dict[str, Any]:
    """The request that a client would send at the end of this conversation."""
    request: dict[str, Any] = {
        "model": "claude-sonnet-4-5" if conversation.thinking == "manual" else "claude-opus-5-5",
        "max_tokens": 8192,
        "messages": _Writer(conversation).messages,
    }
    _add_system(request, conversation)
    _add_tools(request, conversation)
    if conversation.thinking != "off":
        manual = {"type": "enabled", "budget_tokens": 2048}
        request["thinking"] = manual if conversation.thinking == "manual" else {"type": "adaptive"}
    if conversation.form % 2:
        request |= {"stream": True, "metadata": {"user_id": '{"session_id": "5f2c"}'}}
    if conversation.form % 3 == 1:
        edit = {"type": "clear_thinking_20251015", "keep": "all"}
        request["context_management"] = {"edits": [edit]}
    _place_breakpoints(request, conversation)
    return request


def _add_system(request: dict[str, Any], conversation: Conversation) -> None:
    texts = conversation.system
    if len(texts) == 1 and conversation.form % 2:
        request["system"] = texts[0]
    elif texts:
        request["system"] = [_text(text) for text in texts]


def _add_tools(request: dict[str, Any], conversation: Conversation) -> None:
    if not conversation.tools:
        return
    schema = {"type": "object", "properties": {}}
    request["tools"] = [
        *({"name": name, "description": f"Runs {name}.", "input_schema": schema} for name in TOOLS),
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
        {"type": "mcp_toolset", "mcp_server_name": "notes"},
    ]
    request["mcp_servers"] = [{"type": "url", "name": "notes", "url": "https://notes.example/mcp"}]


class _Writer:
    """Writes the messages one after the other; ids count up, so that a prefix stays a prefix."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._count = 0
        self.messages: list[Message] = []
        if conversation.compacted:
            self._say("assistant", [_compaction(conversation.compacted, conversation.form)])
        for at, turn in enumerate(conversation.turns):
            self._ask(turn.ask)
            last_turn = at == len(conversation.turns) - 1
            for number, step in enumerate(turn.steps):
                self._note(step.note)
                last = last_turn and number == len(turn.steps) - 1
                self._step(step, answered=not (conversation.pending and last))
        self._note(conversation.note)

    def _say(self, role: str, content: str | list[Block]) -> None:
        self.messages.append({"role": role, "content": content})

    def _id(self, stem: str) -> str:
        self._count += 1
        return f"{stem}_{self._count:04d}"

    def _note(self, note: str | None) -> None:
        """A system message right after the user's turn; only the newer models take one."""
        if note is None or self._conversation.thinking == "manual":
            return
        message = {"role": "system", "content": pick(len(note), note, [_text(note)])}
        self.messages.append(
            pick(len(note) // 2, message, {**message, "output_config": {"effort": "low"}})
        )

    def _ask(self, ask: Ask) -> None:
        plain = len(ask.texts) == 1 and not (ask.image or ask.document or ask.future)
        if plain and ask.form % 2 == 0:
            self._say("user", ask.texts[0])
            return
        blocks = [_text(text) for text in ask.texts]
        if ask.image:
            blocks.insert(0, _image(ask.form))
        if ask.document:
            blocks.append(_document(ask.form))
        if ask.future:
            blocks.append({"type": f"{FUTURE}gesture", "strokes": [[0, 1], [2, 3]]})
        if self.messages and self.messages[-1]["role"] == "user" and ask.form % 3 == 1:
            self.messages[-1]["content"] += blocks  # typed while the tools ran: behind the results
        else:
            self._say("user", blocks)

    def _step(self, step: Step, answered: bool) -> None:
        blocks = self._opening(step)
        if step.server:
            use, found = self._served(step.server)
            blocks.append(use)
            if step.form % 4 == 3 and not step.reasoning:  # the turn paused between the two
                self._say("assistant", blocks)
                blocks = []
            blocks.append(found)
        calls = [(call, self._id("toolu")) for call in step.calls]
        blocks += [_tool_use(call, id) for call, id in calls]
        if len(blocks) == 1 and blocks[0]["type"] == "text" and step.form % 2 == 0:
            self._say("assistant", blocks[0]["text"])
        else:
            self._say("assistant", blocks)
        if calls and answered:
            answers = [_tool_result(call.result, id) for call, id in calls]
            self._say("user", pick(step.form, answers, answers, answers[::-1]))

    def _opening(self, step: Step) -> list[Block]:
        """Blocks before a step's calls."""
        blocks: list[Block] = []
        if step.compaction:
            blocks.append(_compaction(step.compaction, step.form))
        if step.reasoning:
            blocks.append(_thinking(step.reasoning, step.form))
        if step.text:
            blocks.append(_text(step.text))
        if step.reasoning and step.text and step.calls and step.form % 3 == 2:
            blocks.append(_thinking("", 0))  # interleaved, with its text withheld
        if step.future:
            blocks.append({"type": f"{FUTURE}sketch", "data": {"lines": [1, 2]}, "id": "sk_1"})
        if blocks and blocks[-1]["type"] == "compaction" and not (step.server or step.calls):
            blocks.append(_text("Going on."))
        return blocks

    def _served(self, server: Server) -> tuple[Block, Block]:
        if server.form % 2:
            return _mcp(server, self._id("mcptoolu"))
        return _web_search(server, self._id("srvtoolu"))


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _thinking(text: str, form: int) -> Block:
    if form % 5 == 4:
        return {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk" * 4}
    return {"type": "thinking", "thinking": text, "signature": f"c2ln{len(text):04d}" * 3}


def _compaction(text: str, form: int) -> Block:
    block = {"type": "compaction", "content": text}
    return pick(form, block, {**block, "encrypted_content": "b3BhcXVl", "signature": "c2ln"})


def _image(form: int) -> Block:
    inline = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    return {
        "type": "image",
        "source": pick(form, inline, {"type": "url", "url": "https://pics.example/1.png"}),
    }


def _document(form: int) -> Block:
    pdf = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    plain = {"type": "text", "media_type": "text/plain", "data": "The thread is red.\n" * 8}
    return pick(
        form,
        {"type": "document", "source": pdf},
        {"type": "document", "source": plain, "title": "Thread", "citations": {"enabled": True}},
    )


def _tool_use(call: Call, id: str) -> Block:
    block = {"type": "tool_use", "id": id, "name": call.name, "input": call.args}
    return pick(call.form, block, block, {**block, "caller": {"type": "direct"}})


def _tool_result(result: Result, id: str) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": id}
    if result.form % 4 == 1:
        block = {"tool_use_id": id, "type": "tool_result"}  # as Claude Code orders its keys
    if result.image or result.document:
        block["content"] = _media(result)
    elif result.texts:
        parts = [_text(text) for text in result.texts]
        block["content"] = parts if len(parts) > 1 or result.form % 2 else result.text
    elif result.form % 3:
        block["content"] = pick(result.form, [], "")
    if result.error:
        block["is_error"] = True
    elif result.form % 5 == 1:
        block["is_error"] = False
    return block


def _media(result: Result) -> list[Block]:
    parts = [_text(text) for text in result.texts]
    if result.image:
        parts.insert(0 if result.form % 2 else len(parts), _image(result.form))
    if result.document:
        parts.append(pick(result.form, _document(0), _document(1), _search_result()))
    if result.form % 6 == 5:
        parts.append({"type": f"{FUTURE}scent", "strength": 3})
    return parts


def _search_result() -> Block:
    return {
        "type": "search_result",
        "source": "https://threads.example/red",
        "title": "Red thread",
        "content": [_text("Ariadne held the other end.")],
        "citations": {"enabled": True},
    }


def _web_search(server: Server, id: str) -> tuple[Block, Block]:
    use = {
        "type": "server_tool_use",
        "id": id,
        "name": "web_search",
        "input": {"query": server.query},
    }
    found: Any = [
        {
            "type": "web_search_result",
            "url": f"https://threads.example/{n}",
            "title": "Thread",
            "encrypted_content": "ZW5j" * 8,
            "page_age": pick(n, None, "2 days ago"),
        }
        for n, _ in enumerate(server.found)
    ]
    if not found and server.form % 3:
        found = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    return use, {"type": "web_search_tool_result", "tool_use_id": id, "content": found}


def _mcp(server: Server, id: str) -> tuple[Block, Block]:
    use = {
        "type": "mcp_tool_use",
        "id": id,
        "name": "search_notes",
        "server_name": "notes",
        "input": {"q": server.query},
    }
    content = [_text(text) for text in server.found]
    return use, {
        "type": "mcp_tool_result",
        "tool_use_id": id,
        "is_error": False,
        "content": content,
    }


def _place_breakpoints(request: dict[str, Any], conversation: Conversation) -> None:
    """Places cache marks by one client's habit; what lives longer stands in front."""
    early, late = pick(
        conversation.form,
        ({"type": "ephemeral"}, {"type": "ephemeral"}),
        ({"type": "ephemeral", "ttl": "1h"}, {"type": "ephemeral", "ttl": "5m"}),
        ({"type": "ephemeral", "ttl": "1h"}, {"type": "ephemeral", "ttl": "1h"}),
    )
    system = request.get("system")
    heads: list[Block] = system[:2] if isinstance(system, list) else []
    messages: list[Message] = request["messages"]
    newest = _markable(messages, ("user",))
    uses = [block for block in _markable(messages, ("assistant",)) if block["type"] == "tool_use"]
    if (
        conversation.breakpoint_style == 1
    ):  # Claude Code: the system blocks, and the newest block of all
        head_blocks, tail = heads, newest[-1:]
    elif conversation.breakpoint_style == 2:  # opencode: on calls and on results
        head_blocks, tail = heads[:1], [*uses[-1:], *newest[-2:]]
    elif conversation.breakpoint_style == 3:  # Copilot: all four
        head_blocks, tail = [*request.get("tools", [])[:1], *heads[-1:]], [*uses[-1:], *newest[-1:]]
    elif conversation.breakpoint_style == 4:  # the provider's own choice
        request["cache_control"] = late
        return
    else:
        return
    for block in head_blocks:
        block["cache_control"] = early
    for block in tail:
        block["cache_control"] = late


_MARKABLE = ("text", "image", "document", "tool_use", "tool_result")


def _markable(messages: list[Message], roles: tuple[str, ...]) -> list[Block]:
    """The last block of each message that can carry a mark."""
    last = [
        message["content"][-1]
        for message in messages
        if message["role"] in roles and isinstance(message["content"], list)
    ]
    return [block for block in last if block["type"] in _MARKABLE]
