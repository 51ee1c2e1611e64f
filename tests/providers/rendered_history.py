"""Parser of rendered histories: the tool record, and the texts around it.

Written from docs/reference/rendering.md and not from the code that writes: lines lead up to a
text, fences hold it, and nothing between them is parsed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from respool.providers.registry import PROVIDERS
from respool.providers.text_history import CLOSING, NO_TEXT, OPENING, OPENING_WITHOUT_TOOLS
from respool.wire.json import get
from respool.wire.message_identity import strip_breakpoints
from tests.strategies import HISTORY

_OPENINGS = (OPENING, OPENING_WITHOUT_TOOLS)
_NAME = r'(?:"(?:[^"\\]|\\.)*"|[A-Za-z0-9_.:/@-]+)'
_WHICH = rf"(?: \((?:id (?P<id>{_NAME})|call (?P<number>\d+) of this turn)\))?"
_CALL = re.compile(
    rf"The assistant called (?P<name>{_NAME}|a tool without a name){_WHICH}"
    r"(?P<server>, run by the provider,)? (?:with(?: (?P<line>.+))?|(?P<none>without arguments\.))"
)
_RESULT = re.compile(
    rf"(?P<name>{_NAME}|A tool){_WHICH} (?:(?P<failed>failed)(?: with| and said nothing\.)"
    r"|returned(?: (?P<line>.+))?)"
)
_MORE = re.compile(r"It (?:was given|also returned)(?: (?P<line>.+))?")
_FENCE = re.compile(r"`{3,}|~~~ [a-z2-7]{20}")


@dataclass
class Entry:
    """One entry of the record."""

    kind: str  # call, result or thought
    name: str
    id: str
    text: str
    failed: bool = False
    beside: list[str] = field(default_factory=list)


@dataclass
class Told:
    """A text with a record in it, read."""

    entries: list[Entry]
    prose: list[str]


def read_told(text: str) -> Told:
    """The entries of a text, and what stands around them; what has no place raises."""
    told = Told([], [])
    lines = text.split("\n")
    inside, at = False, 0
    prose: list[str] = []
    while at < len(lines):
        line = lines[at]
        at += 1
        if not inside and line not in _OPENINGS:
            prose.append(line)
        elif line in (*_OPENINGS, CLOSING):
            inside = line != CLOSING
            told.prose.append("\n".join(prose).strip("\n"))
            prose = []
        elif line:
            at = _read_entry(told.entries, line, lines, at)
    told.prose.append("\n".join(prose).strip("\n"))
    told.prose = [one for one in told.prose if one]
    return told


def _read_entry(entries: list[Entry], line: str, lines: list[str], at: int) -> int:
    if found := _MORE.fullmatch(line):
        said, at = _below(lines, at) if found["line"] is None else (found["line"], at)
        entries[-1].beside.append(said or "")
        return at
    if line == "The assistant thought":
        said, at = _below(lines, at)
        entries.append(Entry("thought", "", "", said or ""))
        return at
    call, result = _CALL.fullmatch(line), _RESULT.fullmatch(line)
    found = call or result
    assert found is not None, f"not an entry: {line!r}"
    name, id = _plain(found["name"]), _plain(found["id"] or "")
    needs_text = line.endswith((" with", " returned"))
    said, at = _below(lines, at) if needs_text else ("", at)
    if call:
        entries.append(Entry("call", name, id, said or call["line"] or ""))
        return at
    entry = Entry("result", name, id, said or "", bool(found["failed"]))
    if found["line"] not in (None, "nothing."):
        entry.beside.append(found["line"])
    entries.append(entry)
    return at


def _below(lines: list[str], at: int) -> tuple[str | None, int]:
    """The fenced text that begins here, and the line behind it."""
    fence = lines[at]
    assert _FENCE.fullmatch(fence), f"no fence: {fence!r}"
    end = lines.index(fence, at + 1)
    return "\n".join(lines[at + 1 : end]), end + 1


def _plain(name: str) -> str:
    if name in ("A tool", "a tool without a name"):
        return ""
    return json.loads(name) if name.startswith('"') else name


def roles_of(format: str, request: Any) -> list[str]:
    """Speaker of each message: user, model or other."""
    codec = PROVIDERS[format].codec  # type: ignore[index]
    usual = "user" if format == "gemini" else "other"  # of what names no role
    found: list[str] = []
    for message in request[HISTORY[format]]:
        role = message.get("role", usual) if isinstance(message, dict) else "other"
        by_model = role != "other" and codec.is_model_made(message)
        found.append("model" if by_model else role if role == "user" else "other")
    return found


def atoms(format: str, request: Any) -> list[tuple[str, Any]]:
    """A history as one row of blocks with their roles, marks aside, texts that adjoin as one."""
    row: list[tuple[str, Any]] = []
    for message, role in zip(request[HISTORY[format]], roles_of(format, request), strict=True):
        for block in _blocks(message):
            joins = row and row[-1][0] == role and isinstance(row[-1][1], str)
            if isinstance(block, str) and joins and format == "openai-chat":
                row[-1] = (role, f"{row[-1][1]}\n\n{block}")
            else:
                row.append((role, block))
    return row


def _blocks(message: Any) -> list[Any]:
    bare = strip_breakpoints(message)
    held = bare.get("content", bare.get("parts")) if isinstance(bare, dict) else None
    if not isinstance(bare, dict) or "role" not in bare:
        return [bare]
    rest = {k: v for k, v in bare.items() if k not in ("content", "parts", "role", "id", "status")}
    rest.pop("type", None)
    items = held if isinstance(held, list) else [] if held is None else [held]
    return [*([rest] if rest else []), *(_plain_text(one) for one in items)]


def _plain_text(block: Any) -> Any:
    """A text by its words, whatever its spelling."""
    known = {"type", "text", "annotations"}
    if isinstance(block, dict) and isinstance(block.get("text"), str) and block.keys() <= known:
        return block["text"]
    return block


def prose_of(format: str, request: Any) -> list[tuple[str, str]]:
    """Texts of user and model in order, without the record; consecutive texts are joined."""
    codec = PROVIDERS[format].codec  # type: ignore[index]
    row: list[tuple[str, str]] = []
    for at, message in enumerate(request[HISTORY[format]]):
        parts = [part for part in codec.decode(at, message) if part.kind == "text"]
        for speaker in ("user", "model"):
            said = "\n\n".join(part.text for part in parts if part.speaker == speaker)
            for text in read_told(said).prose:
                words = " ".join(text.split())
                if not words or text == NO_TEXT:
                    continue
                if row and row[-1][0] == speaker:
                    row[-1] = (speaker, f"{row[-1][1]} {words}")
                else:
                    row.append((speaker, words))
    return row


def entries_of(format: str, request: Any) -> list[Entry]:
    """All entries of the record, in order; blocks of one message are read as one text."""
    found: list[Entry] = []
    codec = PROVIDERS[format].codec  # type: ignore[index]
    for at, message in enumerate(request[HISTORY[format]]):
        texts = [part.text for part in codec.decode(at, message) if part.kind == "text"]
        found += read_told("\n".join(texts)).entries
    return found


def parts_of(format: str, request: Any) -> list[Any]:
    """The parts of a history, in order."""
    codec = PROVIDERS[format].codec  # type: ignore[index]
    return [p for at, m in enumerate(request[HISTORY[format]]) for p in codec.decode(at, m)]


def assert_alternates(format: str, request: Any) -> None:
    """No two neighbours are both the user's, or both the model's."""
    roles = roles_of(format, request)
    assert all(a != b for a, b in pairwise(roles) if a in ("user", "model")), roles


def assert_grows(format: str, one: Any, other: Any) -> None:
    """The second history begins with the first, block for block; a string may have grown."""
    before, now = atoms(format, one), atoms(format, other)
    assert len(now) >= len(before)
    *settled, last = before
    assert now[: len(settled)] == settled
    grown = now[len(settled)]
    assert grown[0] == last[0]
    if isinstance(last[1], str) and format == "openai-chat":
        assert grown[1].startswith(last[1])
    else:
        assert grown[1] == last[1]


def assert_nothing_lost(format: str, source: Any, out: Any) -> int:
    """All that calls and results said is told, in order, and nobody's words changed."""
    parts = parts_of(format, source)
    names = {(part.id, part.name) for part in parts if part.kind == "call"}
    entries = [one for one in entries_of(format, out) if one.kind != "thought"]
    tools = [part for part in parts if part.kind in ("call", "result")]
    assert len(entries) == len(tools)
    for entry, part in zip(entries, tools, strict=True):
        assert entry.kind == part.kind
        assert entry.failed == part.error
        assert entry.name == part.name or (part.id, entry.name) in names
        if entry.id or part.kind == "call":
            assert entry.id == part.id
        assert part.server or _says(entry.text, part.text), (entry, part)
    assert prose_of(format, source) == prose_of(format, out)
    assert _media(format, source) == _media(format, out)
    return len(tools)


def _says(told: str, text: str) -> bool:
    """Return whether a whole text is rendered; separate streams are rendered as JSON."""
    if told == text or not told.startswith("[{"):
        return told == text
    chunks = json.loads(told)
    streams = [chunk.get(name) for chunk in chunks for name in ("stdout", "stderr")]
    return "\n".join(one for one in streams if one) == text


_DATA = ("data", "image_url", "file_data", "file_id", "url", "fileUri")


def _media(format: str, request: Any) -> list[str]:
    """Data of every image and file, in order, at any depth."""
    history = request[HISTORY[format]]
    blocks = [
        get(history[part.ref.row], part.ref.path)
        for part in parts_of(format, request)
        if part.kind == "media"
    ]
    return [text for block in blocks for text in _data_in(block)]


def _data_in(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for one in value for text in _data_in(one)]
    if not isinstance(value, dict):
        return []
    found = [one for key, one in value.items() if key in _DATA and isinstance(one, str)]
    return [*found, *(text for one in value.values() for text in _data_in(one))]
