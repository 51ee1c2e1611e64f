"""Requests as real clients send them, rebuilt with our own text, grown turn by turn."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from respool.wire.base import FormatName
from tests.support.formats import PIXEL

Turn = list[Any]  # the model's messages and what answers them
Path = tuple[Any, ...]

EPHEMERAL = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
BREAKPOINT_FIELDS = ("cache_control", "prompt_cache_breakpoint")
TURNS = 5
LONG = [1, 3, 4]  # the turns whose result is over the cap
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


def printed(turn: int) -> str:
    """Output of a tool in this turn: over the cap in some, short in the others."""
    lines = 1_250 if turn in LONG else 20
    return "\n".join(
        f"{turn}:{n} — gauge {n * 37 % 101} reads {n * 13 % 997} mm" for n in range(lines)
    )


# --- Anthropic Messages --------------------------------------------------------------------------


def use(id: str, name: str, **input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def answer(id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def picture() -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    return {"type": "image", "source": source}


def place_last_breakpoint(message: dict[str, Any], mark: Any = EPHEMERAL) -> None:
    """A cache mark on the last block of a message, as clients move it along."""
    if isinstance(message["content"], str):
        message["content"] = [text(message["content"])]
    message["content"][-1]["cache_control"] = mark


def claude_code_turn(turn: int) -> Turn:
    a, b = f"toolu_{turn:02}A", f"toolu_{turn:02}B"
    thinking: dict[str, Any] = {"type": "thinking", "thinking": "", "signature": f"c2ln{turn}"}
    if turn == 2:
        thinking = {"type": "redacted_thinking", "data": "ZW5j" * 40}
    calls = [use(a, "Bash", command=f"make gauge{turn}"), use(b, "Read", file_path="/w/tide.png")]
    drawn = [text("the picture"), picture()]
    failed = {"is_error": True} if turn == 3 else {}
    asked = [thinking, text(f"Step {turn}."), *calls]
    if turn == 5:
        search = {"type": "server_tool_use", "id": "srvtoolu_5", "name": "web_search", "input": {}}
        found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_5", "content": []}
        asked = [thinking, search, found, *calls]
    return [
        {"role": "assistant", "content": asked},
        {"role": "user", "content": [answer(a, printed(turn), **failed), answer(b, drawn)]},
    ]


def claude_code(history: Turn) -> dict[str, Any]:
    """Two marks on system blocks and one on the last result, which moves every turn."""
    place_last_breakpoint(history[-1] if len(history) > 2 else history[0])
    return {
        "model": "claude-opus-4-8",
        "max_tokens": 32_000,
        "system": [
            text("x-own-header: 2.1.325"),
            text("You help with tide gauges.", cache_control=HOUR),
            text("Folder: /w", cache_control=HOUR),
        ],
        "tools": [
            {"name": "Bash", "description": "Run it", "input_schema": SCHEMA},
            {"name": "Read", "description": "Read it", "input_schema": SCHEMA},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
        ],
        "messages": history,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": json.dumps({"session_id": "11-22", "device_id": "33"})},
        "stream": True,
    }


CLAUDE_CODE_START: Turn = [
    {"role": "user", "content": [text("<reminder>Be brief.</reminder>"), text("Mend the gauge.")]},
    {"role": "system", "content": "Work in steps.", "output_config": {"effort": "high"}},
]


def opencode_anthropic_turn(turn: int) -> Turn:
    id = f"toolu_oc{turn}"
    return [
        {"role": "assistant", "content": [text(f"Step {turn}."), use(id, "bash", command="make")]},
        {"role": "user", "content": [answer(id, [text(printed(turn))])]},
    ]


def opencode_anthropic(history: Turn) -> dict[str, Any]:
    """Marks on two system blocks, on the last call and on the last result."""
    for message in history[-2:]:
        place_last_breakpoint(message)
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 32_000,
        "system": [
            text("You code.", cache_control=EPHEMERAL),
            text("Env.", cache_control=EPHEMERAL),
        ],
        "messages": history,
        "tools": [{"name": "bash", "description": "Run it", "input_schema": SCHEMA}],
        "tool_choice": {"type": "auto"},
        "stream": True,
    }


def copilot_anthropic(history: Turn) -> dict[str, Any]:
    """Four marks: the last tool, the system prompt, and two in the history."""
    for message in (history[0], history[-1]):
        place_last_breakpoint(message)
    tools = [
        {"name": "bash", "description": "Run it", "input_schema": SCHEMA},
        {"name": "view", "description": "Look", "input_schema": SCHEMA, "cache_control": EPHEMERAL},
    ]
    return {
        "model": "claude-sonnet-4.5",
        "max_tokens": 16_000,
        "system": [text("You are an agent.", cache_control=EPHEMERAL)],
        "messages": history,
        "tools": tools,
        "stream": True,
    }


# --- OpenAI Chat Completions ---------------------------------------------------------------------


def call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": id, "type": "function", "function": function}


def chat_turn(turn: int, said: Any, content: Callable[[str], Any], **about: Any) -> Turn:
    a, b = f"call_{turn:02}_a", f"call_{turn:02}_b"
    return [
        {"role": "assistant", "content": said, "tool_calls": [call(a, "bash"), call(b, "read")]},
        {"role": "tool", "tool_call_id": a, "content": content(printed(turn)), **about},
        {"role": "tool", "tool_call_id": b, "content": content("nothing new"), **about},
    ]


def parts(said: str) -> list[Any]:
    return [text(said)]


CHAT_TOOLS = [
    {"type": "function", "function": {"name": name, "description": "Do it", "parameters": SCHEMA}}
    for name in ("bash", "read")
]


def streaming_chat(model: str) -> Callable[[Turn], dict[str, Any]]:
    def request(history: Turn) -> dict[str, Any]:
        return {
            "model": model,
            "messages": history,
            "tools": CHAT_TOOLS,
            "tool_choice": "auto",
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    return request


def openhands(history: Turn) -> dict[str, Any]:
    """No stream; marks on the system prompt and on the two newest messages that are not its own."""
    for message in (history[0], history[-1]):
        place_last_breakpoint(message)
    return {"model": "litellm_proxy/claude-sonnet-4-5", "messages": history, "tools": CHAT_TOOLS}


# --- OpenAI Responses ----------------------------------------------------------------------------


def developer(said: str, role: str = "developer") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": said}]}


def reasoning(turn: int, **about: Any) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "encrypted_content": f"gAAAA{turn}" * 9, **about}


def codex_turn(turn: int) -> Turn:
    a, b, c = (f"call_{turn:02}{letter}" for letter in "abc")
    said = {"type": "output_text", "text": f"Step {turn}."}
    exec_action = {"type": "exec", "command": ["ls"], "env": {}}
    shell = {"type": "local_shell_call", "call_id": c, "status": "completed", "action": exec_action}
    mcp = {"type": "function_call", "name": "query", "namespace": "docs", "arguments": "{}"}
    items = [
        reasoning(turn),
        {"type": "message", "role": "assistant", "content": [said], "phase": "commentary"},
        {"type": "function_call", "name": "exec", "arguments": '{"cmd":"make"}', "call_id": a},
        {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin", "call_id": b},
        {**mcp, "call_id": c} if turn % 2 else shell,
        {"type": "function_call_output", "call_id": a, "output": printed(turn)},
        {"type": "custom_tool_call_output", "call_id": b, "output": "Done."},
        {
            "type": "function_call_output",
            "call_id": c,
            "output": [{"type": "input_text", "text": "k"}],
        },
    ]
    if turn == 5:
        search = {"type": "web_search_call", "status": "completed", "action": {"type": "search"}}
        items = [reasoning(9), search, *items]
    return items


def codex(history: Turn) -> dict[str, Any]:
    """No instructions; developer messages in the input; nothing is stored."""
    return {
        "model": "gpt-5.5",
        "input": history,
        "tools": [
            {"type": "function", "name": "exec", "parameters": SCHEMA, "strict": False},
            {"type": "namespace", "name": "docs", "description": "Docs", "tools": []},
            {"type": "web_search", "external_web_access": False},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199-own",
    }


CODEX_START: Turn = [
    developer("You run in a sandbox."),
    developer("<environment>/w</environment>", "user"),
    developer("Mend the gauge.", "user"),
]


def ids_turn(turn: int, custom: bool) -> Turn:
    """Items with ids of their own, as the response gave them."""
    id = f"call_{turn:02}"
    own = {"id": f"{'ctc' if custom else 'fc'}_{turn:02}", "call_id": id}
    asked = (
        {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin", **own}
        if custom
        else {"type": "function_call", "name": "bash", "arguments": "{}", **own}
    )
    kind = f"{asked['type']}_output"
    said = {"type": "output_text", "text": f"Step {turn}.", "annotations": []}
    message = {"type": "message", "role": "assistant", "content": [said], "status": "completed"}
    return [
        reasoning(turn, id=f"rs_{turn:02}"),
        {**message, "id": f"msg_{turn:02}"},
        asked,
        {"type": kind, "call_id": id, "output": printed(turn)},
    ]


def opencode_responses(history: Turn) -> dict[str, Any]:
    return {
        "model": "gpt-5.1",
        "input": history,
        "tools": [{"type": "function", "name": "bash", "parameters": SCHEMA, "strict": False}],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "ses_own",
        "stream": True,
    }


def copilot_responses(history: Turn) -> dict[str, Any]:
    """A tool of type custom."""
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}
    return {
        "model": "gpt-5.1-codex",
        "instructions": "You are an agent.",
        "input": history,
        "tools": [{"type": "custom", "name": "apply_patch", "format": grammar}],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "stream": True,
    }


# --- Gemini --------------------------------------------------------------------------------------


def gemini_turn(turn: int) -> Turn:
    a, b = f"exec_{turn:02}_0", f"exec_{turn:02}_1"
    seen = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    run: dict[str, Any] = {"id": a, "name": "run_shell_command", "args": {"command": "make"}}
    look: dict[str, Any] = {"id": b, "name": "read_file", "args": {"path": "tide.png"}}
    ran = {"id": a, "name": run["name"], "response": {"output": printed(turn)}}
    looked = {"id": b, "name": look["name"], "response": {"output": "a picture"}, "parts": [seen]}
    return [
        {
            "role": "model",
            "parts": [
                {"text": f"**Step {turn}**", "thought": True},
                {"functionCall": run, "thoughtSignature": "c2ln" * turn},
                {"functionCall": look},
            ],
        },
        {"role": "user", "parts": [{"functionResponse": ran}, {"functionResponse": looked}]},
    ]


def gemini_cli(history: Turn) -> dict[str, Any]:
    """The model's name stands in the address, not in the body."""
    declared = [
        {"name": name, "parametersJsonSchema": SCHEMA}
        for name in ("run_shell_command", "read_file")
    ]
    return {
        "contents": history,
        "systemInstruction": {"role": "user", "parts": [{"text": "You are a CLI agent."}]},
        "tools": [{"functionDeclarations": declared}],
        "generationConfig": {"temperature": 1, "thinkingConfig": {"includeThoughts": True}},
    }


# --- The table -----------------------------------------------------------------------------------


class Client(Struct, frozen=True):
    """Request format of one client, and the growth of its history."""

    format: FormatName
    request: Callable[[Turn], dict[str, Any]]
    start: Turn
    turn: Callable[[int], Turn]
    breakpoints: int = 0
    separators: tuple[str, str] = (",", ":")  # JavaScript's; Python's own are wider


WIDE = (", ", ": ")
ASKED: Turn = [{"role": "user", "content": "Mend the gauge."}]
CHAT_START: Turn = [{"role": "system", "content": "You code."}, *ASKED]
CLIENTS: dict[str, Client] = {
    "claude-code": Client("anthropic", claude_code, CLAUDE_CODE_START, claude_code_turn, 3),
    "opencode-anthropic": Client(
        "anthropic", opencode_anthropic, ASKED, opencode_anthropic_turn, 4
    ),
    "copilot-anthropic": Client("anthropic", copilot_anthropic, ASKED, opencode_anthropic_turn, 4),
    "opencode-chat": Client(
        "openai-chat", streaming_chat("glm-4.6"), CHAT_START, lambda k: chat_turn(k, "", str)
    ),
    "copilot-chat": Client(
        "openai-chat", streaming_chat("gpt-4.1"), CHAT_START, lambda k: chat_turn(k, None, str)
    ),
    "qwen": Client(
        "openai-chat",
        streaming_chat("qwen3-coder"),
        CHAT_START,
        lambda k: chat_turn(k, None, parts),
    ),
    "openhands": Client(
        "openai-chat",
        openhands,
        CHAT_START,
        lambda k: chat_turn(k, parts("On."), parts, name="bash"),
        2,
        WIDE,
    ),
    "codex": Client("openai-responses", codex, CODEX_START, codex_turn),
    "opencode-responses": Client(
        "openai-responses", opencode_responses, CODEX_START, lambda k: ids_turn(k, custom=False)
    ),
    "copilot-responses": Client(
        "openai-responses",
        copilot_responses,
        [{"role": "user", "content": [{"type": "input_text", "text": "Mend the gauge."}]}],
        lambda k: ids_turn(k, custom=True),
    ),
    "gemini-cli": Client(
        "gemini",
        gemini_cli,
        [{"role": "user", "parts": [{"text": "Mend the gauge."}]}],
        gemini_turn,
    ),
}


def grown(client: Client) -> Iterator[dict[str, Any]]:
    """The client's successive requests."""
    history = copy.deepcopy(client.start)
    yield client.request(copy.deepcopy(history))
    for turn in range(1, TURNS + 1):
        history += client.turn(turn)
        yield client.request(copy.deepcopy(history))


def spelled(client: Client, value: Any) -> bytes:
    return json.dumps(value, separators=client.separators, ensure_ascii=False).encode()


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Everything in a JSON value that holds nothing else, with where it stands."""
    held = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    inside = list(held)
    for key, inner in inside:
        yield from leaves(inner, (*path, key))
    if not inside:
        yield path, value


def breakpoints(request: dict[str, Any]) -> dict[Path, Any]:
    """Cache breakpoints with their places."""
    return {
        path: leaf
        for path, leaf in leaves(request)
        if any(name in path for name in BREAKPOINT_FIELDS)
    }


def without_breakpoints(value: Any) -> Any:
    """A JSON value without its cache marks; one text block is the text it holds."""
    if isinstance(value, list):
        items = [without_breakpoints(item) for item in value]
        alone = (
            len(items) == 1 and isinstance(items[0], dict) and items[0].keys() == {"type", "text"}
        )
        return items[0]["text"] if alone else items
    if not isinstance(value, dict):
        return value
    return {
        key: without_breakpoints(inner)
        for key, inner in value.items()
        if key not in BREAKPOINT_FIELDS
    }
