"""Anthropic's rules for the request around its history: each one broken and kept."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from typing import Any

import pytest

from respool.providers.anthropic.codec import AnthropicCodec
from respool.providers.registry import check_request
from tests.providers.anthropic.support import (
    EPHEMERAL,
    FOUND,
    HOUR,
    NEW,
    OLD,
    SEARCH,
    THINKING,
    m,
    res,
    s,
    said,
    text,
    u,
    use,
)

CODEC = AnthropicCodec()
TOOLS = [{"name": "read", "input_schema": {"type": "object"}}]


def errors(messages: list[Any], fields: dict[str, Any] | None = None) -> list[tuple[str, str]]:
    found = check_request(CODEC, messages, fields)
    assert all(len(p.message) > 10 for p in found)
    return [(p.code, p.place) for p in found if p.severity == "error"]


def png(side: int) -> dict[str, Any]:
    head = struct.pack(">IIBBBBB", side, 1, 8, 0, 0, 0, 0)
    chunk = b"IHDR" + head
    data = (
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    )
    source = {"type": "base64", "media_type": "image/png", "data": b64encode(data).decode()}
    return {"type": "image", "source": source}


CALLED = [u(), m(use()), u(res())]
SEARCHED = [u(), m(SEARCH, FOUND), u()]
ADDED = [u(), s({"type": "tool_addition", "tool": {"type": "tool_reference", "name": "grep"}})]
DEFINED = {"type": "tool_addition", "tool": {"type": "custom", "definition": {"name": "grep"}}}
# A name, a history, the fields beside it, and what is wrong.
WHOLE: list[tuple[str, list[Any], dict[str, Any], list[tuple[str, str]]]] = [
    ("A5 no tools", CALLED, {}, [("A5", "messages[1].content[0]")]),
    ("A5 empty tools", CALLED, {"tools": []}, [("A5", "messages[1].content[0]")]),
    ("A5 fine", CALLED, {"tools": TOOLS}, []),
    (
        "A6 a mark on an empty system text",
        [u()],
        {"system": [text(), text("", cache_control=EPHEMERAL)]},
        [("A6", "system[1]")],
    ),
    (
        "A6 no mark on it, or none that is empty",
        [u()],
        {"system": [text("", cache_control=None), text("x", cache_control=EPHEMERAL), 3]},
        [],
    ),
    ("A7 prefill on newer models", [u(), m()], {"model": NEW}, [("A7", "messages[1]")]),
    (
        "A7 empty prefill on newer models",
        [u(), said("assistant", [])],
        {"model": NEW},
        [("A7", "messages[1]")],
    ),
    ("A7 prefill on older models", [u(), m()], {"model": OLD}, []),
    (
        "A7 white space on older models",
        [u(), m(text("x "))],
        {"model": OLD},
        [("A7", "messages[1]")],
    ),
    (
        "A7 white space in a string",
        [u(), said("assistant", "x\n")],
        {"model": OLD},
        [("A7", "messages[1]")],
    ),
    ("A7 unknown models", [u(), m(text("x "))], {"model": "mine"}, []),
    ("A7 pending calls", [u(), m(use())], {"model": NEW, "tools": TOOLS}, []),
    ("A7 pending calls, then words", [u(), m(use()), m()], {"model": NEW, "tools": TOOLS}, []),
    (
        "A7 a paused turn",
        [u(), m(SEARCH)],
        {"model": NEW, "tools": [{"type": "web_search_20250305"}]},
        [],
    ),
    (
        "A7 a paused turn with its result",
        [u(), m(SEARCH, FOUND)],
        {"tools": [{"type": "web_search_1"}]},
        [],
    ),
    ("A8 tool not declared", SEARCHED, {"tools": TOOLS}, [("A8", "messages[1].content[0]")]),
    ("A8 tool declared", SEARCHED, {"tools": [{"type": "web_search_20250305"}]}, []),
    (
        "A10 no thinking before a call",
        CALLED,
        {"tools": TOOLS, "thinking": {"type": "enabled"}, "model": OLD},
        [("A10", "messages[1]")],
    ),
    ("A10 adaptive", CALLED, {"tools": TOOLS, "thinking": {"type": "adaptive"}}, []),
    (
        "A10 thinking in the turn's first message",
        [u(), m(THINKING, text()), m(use()), u(res())],
        {"tools": TOOLS, "thinking": {"type": "enabled"}, "model": OLD},
        [],
    ),
    (
        "A11 thinking at the end while disabled",
        [u(), m(THINKING, text())],
        {"thinking": {"type": "disabled"}, "model": OLD},
        [("A11", "messages[1]")],
    ),
    (
        "A11 thinking earlier while disabled",
        [u(), m(THINKING, text()), u()],
        {"thinking": {"type": "disabled"}},
        [],
    ),
    (
        "A14 manual",
        [u()],
        {"model": NEW, "thinking": {"type": "enabled"}},
        [("A14", "thinking.type")],
    ),
    (
        "A14 disabled",
        [u()],
        {"model": "claude-fable-5-1", "thinking": {"type": "disabled"}},
        [("A14", "thinking.type")],
    ),
    (
        "A14 adaptive",
        [u()],
        {"model": OLD, "thinking": {"type": "adaptive"}},
        [("A14", "thinking.type")],
    ),
    (
        "A14 forced tool",
        [u()],
        {"model": "claude-mythos-5-2", "tool_choice": {"type": "any"}},
        [("A14", "tool_choice.type")],
    ),
    (
        "A14 fine",
        [u()],
        {"model": NEW, "thinking": {"type": "adaptive"}, "tool_choice": {"type": "auto"}},
        [],
    ),
    (
        "A15 no beta",
        [u()],
        {"context_management": {}, "betas": ["x"]},
        [("A15", "context_management")],
    ),
    (
        "A15 binding",
        [u()],
        {"thinking": {"block_binding": {}}, "betas": []},
        [("A15", "block_binding")],
    ),
    ("A15 beta", [u()], {"context_management": {}, "betas": ["context-management-2025-06-27"]}, []),
    (
        "A15 to be cleared, and no beta",
        [u(), s(text(), clear_at="x")],
        {"betas": []},
        [("A15", "messages[1].clear_at")],
    ),
    (
        "A15 to be cleared, betas by their other name",
        [u(), s(text(), clear_at="x")],
        {"anthropic_beta": []},
        [("A15", "messages[1].clear_at")],
    ),
    ("A15 to be cleared, any beta", [u(), s(text(), clear_at="x")], {"betas": ["x"]}, []),
    ("A15 to be cleared, betas in a header", [u(), s(text(), clear_at="x")], {}, []),
    ("A15 not to be cleared", [u(), s(clear_at=None)], {"betas": []}, []),
    (
        "A15 management and no beta",
        [u()],
        {"context_management": {}, "betas": []},
        [("A15", "context_management")],
    ),
    ("A15 betas in a header", [u()], {"context_management": {}}, []),
    ("A17 not declared", ADDED, {"tools": TOOLS}, [("A17", "messages[1].content[0]")]),
    ("A17 declared", ADDED, {"tools": [*TOOLS, {"name": "grep"}]}, []),
    ("A17 defined on the way", [u(), s(DEFINED), m(), *ADDED], {"tools": TOOLS}, []),
    (
        "A17 name is a list",
        [u(), s({"type": "tool_removal", "tool": {"type": "tool_reference", "name": []}})],
        {"tools": TOOLS},
        [("A17", "messages[1].content[0]")],
    ),
    (
        "A20 late",
        [u()],
        {
            "context_management": {
                "edits": [{"type": "clear_tool_uses_1"}, {"type": "clear_thinking_20251015"}]
            }
        },
        [("A20", "context_management.edits[1]")],
    ),
    (
        "A20 first",
        [u()],
        {"context_management": {"edits": [{"type": "clear_thinking_20251015"}, {"type": "x"}]}},
        [],
    ),
    (
        "A21 the head counts",
        [u(text(cache_control=EPHEMERAL))],
        {
            "system": [text(cache_control=EPHEMERAL)] * 2,
            "tools": [{**TOOLS[0], "cache_control": EPHEMERAL}] * 2,
        },
        [("A21", "messages[0].content[0]")],
    ),
    (
        "A21 automatic counts",
        [u(*[text(cache_control=EPHEMERAL)] * 4)],
        {"cache_control": EPHEMERAL},
        [("A21", "messages[0].content[3]")],
    ),
    (
        "A21 an hour behind the head",
        [u(text(cache_control=HOUR))],
        {"system": [text(cache_control=EPHEMERAL)]},
        [("A21", "messages[0].content[0]")],
    ),
    (
        "A21 automatic for an hour, behind five minutes",
        [u(text(cache_control=EPHEMERAL))],
        {"cache_control": HOUR},
        [("A21", "cache_control")],
    ),
    (
        "A21 automatic for an hour, behind the head's five minutes",
        [u()],
        {"system": [text(cache_control=EPHEMERAL)], "cache_control": HOUR},
        [("A21", "cache_control")],
    ),
    ("A21 hours only", [u(text(cache_control=HOUR))], {"cache_control": HOUR}, []),
    (
        "A21 an hour, then automatic",
        [u(text(cache_control=HOUR))],
        {"cache_control": EPHEMERAL},
        [],
    ),
    ("A22 a large image", [u(png(8001))], {}, [("A22", "messages[0].content[0]")]),
    (
        "A22 many images",
        [u(*[png(2001)] * 21)],
        {},
        [("A22", f"messages[0].content[{n}]") for n in range(21)],
    ),
    (
        "A22 many images in results",
        [u(), m(use()), u(res(content=[png(10)] * 601))],
        {"tools": TOOLS},
        [("A22", "messages")],
    ),
    ("A22 images, older model", [u(*[png(9)] * 101)], {"model": OLD}, [("A22", "messages")]),
    ("A22 as many as it takes", [u(*[png(9)] * 100)], {"model": OLD}, []),
    ("A22 images, newer model", [u(*[png(9)] * 600)], {"model": "claude-opus-4-6"}, []),
    (
        "A22 too many for it too",
        [u(*[png(9)] * 601)],
        {"model": "claude-opus-4-6"},
        [("A22", "messages")],
    ),
    ("A22 images, unknown model", [u(*[png(9)] * 600)], {"model": "mine"}, []),
    ("A22 fine", [u(*[png(2000)] * 21)], {}, []),
]


@pytest.mark.parametrize(
    ("name", "messages", "fields", "expected"), WHOLE, ids=[row[0] for row in WHOLE]
)
def test_a_request(
    name: str, messages: list[Any], fields: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert errors(messages, {**fields, "messages": messages}) == expected


def test_a_bare_list_is_not_judged_on_fields_it_lacks() -> None:
    for _, messages, _, _ in WHOLE:
        codes = {code for code, _ in errors(messages)}
        assert codes <= {"A21", "A22"}


def test_too_many_messages() -> None:
    assert errors([u()] * 100_001) == [("A22", "messages")]


def test_system_messages_on_older_models_only_warn() -> None:
    found = check_request(CODEC, [u(), s()], {"model": OLD})
    assert [(p.code, p.severity) for p in found] == [("A16", "warning")]
    assert check_request(CODEC, [u(), s()], {"model": NEW}) == []
