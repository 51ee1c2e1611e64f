"""Each judge takes good bodies and refuses broken ones, however deep the fault lies."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.judges import HISTORY_JUDGES, JUDGES
from tests.late import late

Body = dict[str, Any]
Path = tuple[str | int, ...]
GONE: Any = object()

ANTHROPIC: Body = {
    "model": "claude-opus-5-5",
    "max_tokens": 100,
    "system": [
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    ],
    "tools": [{"name": "Read", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": "Wind it."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                {"type": "text", "text": "Looking."},
                {
                    "type": "server_tool_use",
                    "id": "s1",
                    "name": "web_search",
                    "input": {"query": "q"},
                },
                {
                    "type": "web_search_tool_result",
                    "tool_use_id": "s1",
                    "content": [
                        {
                            "type": "web_search_result",
                            "url": "u",
                            "title": "t",
                            "encrypted_content": "e",
                        }
                    ],
                },
                {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "is_error": False,
                    "content": [
                        {"type": "text", "text": "red"},
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
                        },
                    ],
                },
                {"type": "text", "text": "and?"},
            ],
        },
        {"role": "system", "content": [{"type": "text", "text": "Hurry."}]},
    ],
}
CHAT: Body = {
    "model": "gpt-4.1",
    "stream": True,
    "tools": [{"type": "function", "function": {"name": "Read", "parameters": {"type": "object"}}}],
    "messages": [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Wind it."},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "Read", "arguments": "{}"}},
                {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "+a"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "red"}]},
        {"role": "tool", "tool_call_id": "c2", "content": "done"},
    ],
}
RESPONSES: Body = {
    "model": "gpt-5.6",
    "store": False,
    "tools": [
        {"type": "function", "name": "Read", "parameters": {"type": "object"}, "strict": False}
    ],
    "input": [
        {"role": "user", "content": "Wind it."},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "Z0FB",
        },
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Looking.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c1", "name": "Read", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [
                {"type": "input_text", "text": "red"},
                {"type": "input_image", "image_url": "data:,"},
            ],
        },
        {
            "type": "local_shell_call",
            "id": "lsh_1",
            "call_id": "c2",
            "status": "completed",
            "action": {"type": "exec", "command": ["ls", "-l"], "env": {"A": "b"}},
        },
        {"type": "local_shell_call_output", "id": "c2", "output": "{}"},
        {"type": "shell_call", "call_id": "c3", "action": {"commands": ["ls"], "timeout_ms": 9}},
        {
            "type": "shell_call_output",
            "call_id": "c3",
            "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
    ],
}
GEMINI: Body = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "tools": [{"functionDeclarations": [{"name": "Read", "description": "Reads."}]}],
    "generationConfig": {"temperature": 1, "thinkingConfig": {"includeThoughts": True}},
    "contents": [
        {
            "role": "user",
            "parts": [
                {"text": "Wind it."},
                {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
            ],
        },
        {
            "role": "model",
            "parts": [
                {"text": "Hm.", "thought": True},
                {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
                {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
                {
                    "functionCall": {"id": "f1", "name": "Read", "args": {"a": 1}},
                    "thoughtSignature": "c2ln",
                },
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "f1",
                        "name": "Read",
                        "response": {"output": "red"},
                        "parts": [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}],
                    }
                }
            ],
        },
    ],
}


def _with(body: Body, path: Path, value: Any) -> Body:
    """The body with another value at the path, or with nothing there."""
    changed: Any = copy.deepcopy(body)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    if value is GONE:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return changed


def _future(body: Body, path: Path) -> Body:
    """The body with a block of a kind unknown so far at the end of the list at the path."""
    changed: Any = copy.deepcopy(body)
    inner = changed
    for step in path:
        inner = inner[step]
    inner.append({"type": "future_sketch", "future_sketch": [1]})
    return changed


M, B, R = "messages", "content", "input"
GOOD: list[tuple[str, Callable[[Body], list[str]], Body]] = [
    ("anthropic whole", JUDGES["anthropic"][0], ANTHROPIC),
    ("anthropic streamed", JUDGES["anthropic"][0], {**ANTHROPIC, "stream": True}),
    ("anthropic without content", JUDGES["anthropic"][0], _with(ANTHROPIC, (M, 2, B, 0, B), GONE)),
    ("anthropic future block", JUDGES["anthropic"][0], _future(ANTHROPIC, (M, 2, B, 0, B))),
    (
        "anthropic search error",
        JUDGES["anthropic"][0],
        _with(
            ANTHROPIC,
            (M, 1, B, 3, B),
            {"type": "web_search_tool_result_error", "error_code": "unavailable"},
        ),
    ),
    ("chat whole", JUDGES["openai-chat"][0], CHAT),
    ("chat not streamed", JUDGES["openai-chat"][0], {**CHAT, "stream": False}),
    ("chat content omitted", JUDGES["openai-chat"][0], _with(CHAT, (M, 2, B), GONE)),
    ("chat future part", JUDGES["openai-chat"][0], _future(CHAT, (M, 1, B))),
    ("chat named tool message", JUDGES["openai-chat"][0], _with(CHAT, (M, 4, "name"), "patch")),
    ("responses whole", JUDGES["openai-responses"][0], RESPONSES),
    ("responses text input", JUDGES["openai-responses"][0], {**RESPONSES, "input": "Wind it."}),
    ("responses ids left out", JUDGES["openai-responses"][0], _with(RESPONSES, (R, 1, "id"), GONE)),
    (
        "responses message cut down",
        JUDGES["openai-responses"][0],
        _with(
            RESPONSES,
            (R, 2),
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "a"}],
            },
        ),
    ),
    (
        "responses as Codex has it",
        JUDGES["openai-responses"][0],
        _with(
            _with(RESPONSES, (R, 1, "content"), None),
            (R, 3),
            {
                "type": "custom_tool_call",
                "status": "completed",
                "call_id": "c1",
                "name": "patch",
                "input": "+a",
            },
        ),
    ),
    ("responses future item", JUDGES["openai-responses"][0], _future(RESPONSES, (R,))),
    ("gemini whole", JUDGES["gemini"][0], GEMINI),
    (
        "gemini without ids",
        JUDGES["gemini"][0],
        _with(GEMINI, ("contents", 1, "parts", 3, "functionCall", "id"), GONE),
    ),
    ("gemini future part", JUDGES["gemini"][0], _future(GEMINI, ("contents", 1, "parts"))),
    ("mistral whole", JUDGES["openai-chat"][1], CHAT),
    ("mistral one question", JUDGES["openai-chat"][1], {M: [{"role": "user", "content": "a"}]}),
    (
        "mistral late note",
        JUDGES["openai-chat"][1],
        {M: [*CHAT[M], {"role": "system", "content": "a"}]},
    ),
    (
        "mistral goes on",
        JUDGES["openai-chat"][1],
        {M: [*CHAT[M], {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]},
    ),
]


@pytest.mark.parametrize(
    ("judge", "body"), [case[1:] for case in GOOD], ids=[case[0] for case in GOOD]
)
def test_good_bodies_are_taken(judge: Callable[[Body], list[str]], body: Body) -> None:
    assert judge(body) == []


BROKEN_ANTHROPIC: list[tuple[str, Path, Any]] = [
    ("message is a string", (M, 1), "text"),
    ("role unknown", (M, 1, "role"), "model"),
    ("no content", (M, 0, B), GONE),
    ("content null", (M, 0, B), None),
    ("second block of third message without its text", (M, 2, B, 1, "text"), GONE),
    ("block of unknown kind", (M, 1, B, 1, "type"), "texts"),
    ("thinking without signature", (M, 1, B, 0, "signature"), GONE),
    ("result without id", (M, 2, B, 0, "tool_use_id"), GONE),
    ("number for a text inside a result", (M, 2, B, 0, B, 0, "text"), 5),
    ("image in a result without data", (M, 2, B, 0, B, 1, "source", "data"), GONE),
    (
        "image in a result of a wrong media type",
        (M, 2, B, 0, B, 1, "source", "media_type"),
        "image/tiff",
    ),
    ("call with a text for input", (M, 1, B, 4, "input"), "{}"),
    ("call with a number for an id", (M, 1, B, 4, "id"), 1),
    ("server tool unknown", (M, 1, B, 2, "name"), "web_surf"),
    ("found page without url", (M, 1, B, 3, B, 0, "url"), GONE),
    ("a word for a flag", (M, 2, B, 0, "is_error"), "false"),
    ("a key nobody knows", (M, 2, B, 0, "tool_name"), "Read"),
    ("mark of a wrong kind", ("system", 0, "cache_control", "type"), "permanent"),
    ("system message with a result", (M, 3, B, 0), {"type": "tool_result", "tool_use_id": "t1"}),
    ("tool without schema", ("tools", 0, "input_schema"), GONE),
]
BROKEN_CHAT: list[tuple[str, Path, Any]] = [
    ("message is null", (M, 1), None),
    ("role unknown", (M, 0, "role"), "narrator"),
    ("user content null", (M, 1, B), None),
    ("text part without text", (M, 1, B, 0, "text"), GONE),
    ("picture is a bare link", (M, 1, B, 1, "image_url"), "data:,"),
    ("picture link is a number", (M, 1, B, 1, "image_url", "url"), 3),
    (
        "second call of third message without its input",
        (M, 2, "tool_calls", 1, "custom", "input"),
        GONE,
    ),
    ("arguments are an object", (M, 2, "tool_calls", 0, "function", "arguments"), {}),
    ("call of unknown kind", (M, 2, "tool_calls", 0, "type"), "functions"),
    ("call without id", (M, 2, "tool_calls", 0, "id"), GONE),
    ("call id is a number", (M, 2, "tool_calls", 1, "id"), 2),
    ("result without id", (M, 3, "tool_call_id"), GONE),
    ("result content null", (M, 4, B), None),
    ("result holds a picture", (M, 3, B, 0), {"type": "image_url", "image_url": {"url": "data:,"}}),
    ("result text is a list", (M, 3, B, 0, "text"), ["red"]),
    ("reasoning is a list", (M, 2, "reasoning_content"), ["Hm."]),
    ("a key nobody knows", (M, 3, "is_error"), True),
]
BROKEN_RESPONSES: list[tuple[str, Path, Any]] = [
    ("item is a number", (R, 0), 7),
    ("item of unknown kind", (R, 3, "type"), "function_calls"),
    ("message without content", (R, 0, B), GONE),
    ("message of a wrong role", (R, 0, "role"), "tool"),
    ("summary is a text", (R, 1, "summary"), "Hm."),
    ("summary part without text", (R, 1, "summary", 0, "text"), GONE),
    ("said text is a number", (R, 2, B, 0, "text"), 5),
    ("call without call_id", (R, 3, "call_id"), GONE),
    ("arguments are an object", (R, 3, "arguments"), {}),
    ("output null", (R, 4, "output"), None),
    ("second part of an output without its kind", (R, 4, "output", 1, "type"), GONE),
    ("part of an output in chat's spelling", (R, 4, "output", 0, "type"), "text"),
    ("third word of a command is a number", (R, 5, "action", "command"), ["ls", "-l", 3]),
    ("environment holds a number", (R, 5, "action", "env"), {"A": 1}),
    ("shell output is a text", (R, 8, "output"), "a"),
    ("exit code is a text", (R, 8, "output", 0, "outcome", "exit_code"), "0"),
    ("outcome unknown", (R, 8, "output", 0, "outcome", "type"), "crash"),
    (
        "local shell answered by call_id",
        (R, 6),
        {"type": "local_shell_call_output", "call_id": "c2", "output": "{}"},
    ),
    ("a key nobody knows", (R, 4, "is_error"), True),
    ("reasoning content is a text", (R, 1, "content"), "Hm."),
]
C, P = "contents", "parts"
BROKEN_GEMINI: list[tuple[str, Path, Any]] = [
    ("content is a text", (C, 0), "Wind it."),
    ("parts are an object", (C, 0, P), {"text": "a"}),
    ("part is a text", (C, 0, P, 0), "Wind it."),
    ("text is a number", (C, 0, P, 0, "text"), 5),
    ("a key nobody knows", (C, 0, P, 1, "inlineData", "mime"), "image/png"),
    ("picture data is no base64", (C, 0, P, 1, "inlineData", "data"), "!!"),
    ("thought is a word", (C, 1, P, 0, "thought"), "true"),
    ("language unknown", (C, 1, P, 1, "executableCode", "language"), "COBOL"),
    ("outcome unknown", (C, 1, P, 2, "codeExecutionResult", "outcome"), "OUTCOME_ODD"),
    ("arguments are a text", (C, 1, P, 3, "functionCall", "args"), "{}"),
    ("signature inside the call", (C, 1, P, 3, "functionCall", "thoughtSignature"), "c2ln"),
    ("signature is a number", (C, 1, P, 3, "thoughtSignature"), 3),
    ("response is a text", (C, 2, P, 0, "functionResponse", "response"), "red"),
    ("response name is a list", (C, 2, P, 0, "functionResponse", "name"), ["Read"]),
    (
        "picture in a response of a wrong type",
        (C, 2, P, 0, "functionResponse", P, 0, "inlineData"),
        "aGk=",
    ),
    ("text in a response's parts", (C, 2, P, 0, "functionResponse", P, 0), {"text": "red"}),
    (
        "block of another provider",
        (C, 1, P, 3),
        {"type": "tool_use", "id": "a", "name": "b", "input": {}},
    ),
    ("instruction holds a number", ("systemInstruction", P, 0, "text"), 1),
]
BROKEN_MISTRAL: list[tuple[str, Path, Any]] = [
    ("no messages", (M,), []),
    ("result lost", (M, 4), {"role": "user", "content": "a"}),
    ("results lost", (M, slice(3, 5)), []),  # type: ignore[list-item]
    ("result doubled", (M, 4, "tool_call_id"), "c1"),
    ("result of another call", (M, 4, "tool_call_id"), "c9"),
    ("result without a call", (M, 2, "tool_calls"), GONE),
    ("one call lost", (M, 2, "tool_calls", 0), GONE),
    ("two calls with one id", (M, 2, "tool_calls", 1, "id"), "c1"),
    ("call id empty", (M, 2, "tool_calls", 0, "id"), ""),
    ("text between the results", (M, slice(4, 4)), [{"role": "user", "content": "a"}]),  # type: ignore[list-item]
    ("note between call and result", (M, slice(3, 3)), [{"role": "system", "content": "a"}]),  # type: ignore[list-item]
    ("note between the results", (M, slice(4, 4)), [{"role": "system", "content": "a"}]),  # type: ignore[list-item]
    ("assistant between the results", (M, slice(4, 4)), [{"role": "assistant", "content": "a"}]),  # type: ignore[list-item]
    ("ends on the assistant", (M, slice(5, 5)), [{"role": "assistant", "content": "a"}]),  # type: ignore[list-item]
    ("call's message lost", (M, 2), GONE),
    ("role unknown", (M, 1, "role"), "narrator"),
    ("tool name with blanks", (M, 2, "tool_calls", 0, "function", "name"), "Read it"),
]
BROKEN = [
    pytest.param(judge, _with(body, path, value), id=f"{name}: {what}")
    for name, judge, body, table in (
        ("anthropic", JUDGES["anthropic"][0], ANTHROPIC, BROKEN_ANTHROPIC),
        ("chat", JUDGES["openai-chat"][0], CHAT, BROKEN_CHAT),
        ("responses", JUDGES["openai-responses"][0], RESPONSES, BROKEN_RESPONSES),
        ("gemini", JUDGES["gemini"][0], GEMINI, BROKEN_GEMINI),
        ("mistral", JUDGES["openai-chat"][1], CHAT, BROKEN_MISTRAL),
    )
    for what, path, value in table
]


@pytest.mark.parametrize(("judge", "body"), BROKEN)
def test_broken_bodies_are_refused(judge: Callable[[Body], list[str]], body: Body) -> None:
    complaints = judge(body)
    assert complaints
    assert all(isinstance(complaint, str) and complaint for complaint in complaints)


# Below these keys a request may hold any JSON, or any key.
FREE = {"input_schema", "parameters", "args", "response", "env"}
TABLES: dict[str, tuple[Callable[[Body], list[str]], Body, str]] = {
    "anthropic": (JUDGES["anthropic"][0], ANTHROPIC, M),
    "openai-chat": (JUDGES["openai-chat"][0], CHAT, M),
    "openai-responses": (JUDGES["openai-responses"][0], RESPONSES, R),
    "gemini": (JUDGES["gemini"][0], GEMINI, C),
}


def _leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every value that is no container, outside what is free."""
    if isinstance(value, dict):
        for key, inner in value.items():
            free = key in FREE or (key == "input" and not isinstance(inner, list | str))
            yield from () if free else _leaves(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _leaves(inner, (*path, at))
    else:
        yield path


@pytest.mark.parametrize("format", TABLES)
def test_no_leaf_is_left_unread(format: str) -> None:
    judge, body, _ = TABLES[format]
    unread = [path for path in _leaves(body) if not judge(_with(body, path, {"wrong": [1]}))]
    assert unread == []


@pytest.mark.parametrize("format", TABLES)
def test_no_object_takes_a_key_it_does_not_know(format: str) -> None:
    judge, body, _ = TABLES[format]
    objects = {path[:-1] for path in _leaves(body) if isinstance(path[-1], str)}
    open_to_all = [path for path in objects if not judge(_with(body, (*path, "surprise"), 1))]
    # What a Gemini body holds beside its four judged fields is not judged.
    assert open_to_all == ([()] if format == "gemini" and () in objects else [])


@pytest.mark.parametrize("format", TABLES)
def test_a_bare_history_is_judged_alike(format: str) -> None:
    _, body, field = TABLES[format]
    judge = HISTORY_JUDGES[format]
    assert judge(body[field]) == []
    for path in _leaves(body[field]):
        assert judge(_with({field: body[field]}, (field, *path), {"wrong": [1]})[field])


LAZY = [
    pytest.param(
        "anthropic.types.beta.message_create_params.MessageCreateParamsNonStreaming",
        ANTHROPIC,
        (M, 2, B, 0, "tool_use_id"),
        id="anthropic",
    ),
    pytest.param(
        "openai.types.chat.completion_create_params.CompletionCreateParamsNonStreaming",
        {**CHAT, "stream": False},
        (M, 2, "tool_calls", 0, "id"),
        id="chat",
    ),
    pytest.param(
        "openai.types.responses.response_create_params.ResponseCreateParamsNonStreaming",
        RESPONSES,
        (R, 1, "summary", 0, "text"),
        id="responses",
    ),
]


@pytest.mark.parametrize(("sdk_type", "body", "path"), LAZY)
def test_the_plain_types_would_not_see_it(sdk_type: str, body: Body, path: Path) -> None:
    """The schemas must be rewritten: pydantic does not look into these lists by itself."""
    module, _, name = sdk_type.rpartition(".")
    TypeAdapter(getattr(late(module), name)).validate_python(_with(body, path, GONE))
