"""Text styles for calls and results, fenced so that no output can imitate the frame.

Whatever a tool printed stands between fences that it cannot close: they are longer than any run of
backticks in it, or carry its hash. So a result cannot pass itself off as the frame around it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from ..markers import reference

StyleName = Literal["text", "text-only", "rfc013"]

OPENING = (
    "Record of tool use, kept by the client; "
    "calls are made through the tool interface, never written as text."
)
OPENING_WITHOUT_TOOLS = "Record of tool use, kept by the client; no tool can be called now."
CLOSING = "End of the record."
NO_TEXT = "(no words here)"  # a model turn that must exist and had no text
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.:/@-]+", re.ASCII)
_RUNS = re.compile(r"`{3,}")
_MAX_FENCE = 16  # backticks; a text that would need more is closed by its hash
_MAX_INLINE_CHARS = 2_000  # maximum characters of inline arguments


class RenderedCall(Struct, frozen=True, gc=False):
    """A call to be rendered."""

    name: str
    id: str
    number: int  # its place among the calls of its turn, from 1 on
    is_only_call: bool  # whether it is the only call of its turn
    arguments: str
    extra_json: tuple[str, ...] = ()  # other inputs, as JSON
    server: bool = False  # run by the provider itself


class RenderedResult(Struct, frozen=True, gc=False):
    """A result to be rendered."""

    name: str
    id: str
    number: int
    is_only_call: bool
    text: str
    error: bool = False
    extra_json: tuple[str, ...] = ()  # other content than text and media, as JSON
    media: tuple[str, ...] = ()  # "image" or "file", for each attachment that follows


class TextStyle(Struct, frozen=True):
    """A style of rendering calls and results."""

    calls_by_model: bool  # whether calls stand in the model's own turn
    keep_definitions: bool  # whether tool definitions go along
    opening: str  # before the first entry of a message
    closing: str  # before what the user says behind entries
    call: Callable[[RenderedCall], str]
    result: Callable[[RenderedResult], str]
    thought: Callable[[str], str]


def fence_text(text: str) -> str:
    """A text between fences that its content cannot close.

    >>> print(fence_text("a\\n```\\nb"))
    ````
    a
    ```
    b
    ````
    """
    longest = max(map(len, _RUNS.findall(text)), default=2)
    fence = "`" * (longest + 1) if longest < _MAX_FENCE else f"~~~ {reference(text)}"
    return f"{fence}\n{text}\n{fence}"


def _quote_name(name: str) -> str:
    """A tool's name or an id, quoted for use in a sentence."""
    if not name:
        return "a tool without a name"
    if _PLAIN_NAME.fullmatch(name):
        return name
    return json.dumps(name, ensure_ascii=not name.isprintable())  # other line breaks, too


def _can_be_inline(text: str) -> bool:
    """Return whether a text can be inline: short and without line breaks."""
    return len(text) <= _MAX_INLINE_CHARS and text.isprintable() and text.strip() == text


def _label(one: RenderedCall | RenderedResult) -> str:
    """The label that distinguishes a call."""
    if one.id:
        return f" (id {_quote_name(one.id)})"
    return "" if one.is_only_call else f" (call {one.number} of this turn)"


# --- in plain sentences ----------------------------------------------------------------------


def _render_call(call: RenderedCall) -> str:
    by = ", run by the provider," if call.server else ""
    opening = f"The assistant called {_quote_name(call.name)}{_label(call)}{by}"
    with_what = (
        _inline_or_fenced(call.arguments, "with") if call.arguments else "without arguments."
    )
    return "\n".join(
        [f"{opening} {with_what}", *(_inline_or_fenced(x, "It was given") for x in call.extra_json)]
    )


def _inline_or_fenced(text: str, how: str) -> str:
    """A text inline, or fenced below."""
    return f"{how} {text}" if _can_be_inline(text) else f"{how}\n{fence_text(text)}"


def _render_result(result: RenderedResult) -> str:
    tool = _quote_name(result.name) if result.name else "A tool"
    who = tool if result.is_only_call and result.name else f"{tool}{_label(result)}"
    lines: list[str] = []
    if result.text:
        how = "failed with" if result.error else "returned"
        lines.append(f"{who} {how}\n{fence_text(result.text)}")
    elif result.error:
        lines.append(f"{who} failed and said nothing.")
    elif not result.extra_json and not result.media:
        lines.append(f"{who} returned nothing.")
    for one in result.extra_json:
        lines.append(_inline_or_fenced(one, "It also returned" if lines else f"{who} returned"))
    if result.media:
        subject = "It also" if lines else who
        lines.append(f"{subject} returned {_count_media(result.media)}, shown next.")
    return "\n".join(lines)


def _count_media(media: Sequence[str]) -> str:
    """The number of images and files, as words of a sentence."""
    counts = Counter(media)
    counted = [f"{count} {unit}{'' if count == 1 else 's'}" for unit, count in counts.items()]
    return " and ".join(counted)


def _render_thought(text: str) -> str:
    return f"The assistant thought\n{fence_text(text)}"


# --- as RFC 013 has it -----------------------------------------------------------------------


def _rfc_id(one: RenderedCall | RenderedResult) -> str:
    return one.id or f"{one.name or 'tool'}_{one.number}"


def _render_rfc_call(call: RenderedCall) -> str:
    line = f"[Tool Call: {call.name}({call.arguments}) -> call_id: {_rfc_id(call)}]"
    return "\n".join([line, *call.extra_json])


def _render_rfc_result(result: RenderedResult) -> str:
    """A result; failures and non-text content are added to RFC 013."""
    failed = " (failed)" if result.error else ""
    said = result.text or "(empty)"
    lines = [f"[Tool Result for {_rfc_id(result)}{failed}]: {said}", *result.extra_json]
    if result.media:
        lines.append(f"({_count_media(result.media)} next)")
    return "\n".join(lines)


def _render_rfc_thought(text: str) -> str:
    return f"[Reasoning: {text}]"


STYLES: Mapping[StyleName, TextStyle] = {
    "text": TextStyle(
        calls_by_model=False,
        keep_definitions=True,
        opening=OPENING,
        closing=CLOSING,
        call=_render_call,
        result=_render_result,
        thought=_render_thought,
    ),
    "text-only": TextStyle(
        calls_by_model=False,
        keep_definitions=False,
        opening=OPENING_WITHOUT_TOOLS,
        closing=CLOSING,
        call=_render_call,
        result=_render_result,
        thought=_render_thought,
    ),
    "rfc013": TextStyle(
        calls_by_model=True,
        keep_definitions=True,
        opening="",
        closing="",
        call=_render_rfc_call,
        result=_render_rfc_result,
        thought=_render_rfc_thought,
    ),
}
