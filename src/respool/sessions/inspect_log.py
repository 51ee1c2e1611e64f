"""Inspect's eval logs, as JSON or packed (`.eval`): each sample is a session of chat messages."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from re import DOTALL
from re import compile as pattern
from typing import cast

from ..codecs.json_tree import JSON, Object, compact_text, get
from .history import (
    History,
    chat_call,
    chat_result,
    count,
    objects,
    reported,
    seconds,
    text_at,
)
from .records import LARGEST_DOCUMENT, decoded
from .session import NO_REQUEST, Sent, Session, Skipped, Usage

AGENT = "inspect"

_LOG = pattern(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"status"\s*:')
_SAMPLE = pattern(rb'\s*\{\s*"id"\s*:.{1,300}?"epoch"\s*:\s*\d', DOTALL)
_ATTACHED = "attachment://"
_HEADERS = ("header.json", "_journal/start.json")  # the second while it still runs
_BROKEN = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError)


def recognises(head: bytes, name: str) -> bool:
    """Whether a file is an eval log, packed or as JSON, or one sample of it."""
    if name.endswith(".eval"):
        return head.startswith(b"PK")
    if _LOG.match(head):
        return b'"eval"' in head
    return bool(_SAMPLE.match(head)) and b'"target"' in head


def stored(path: Path) -> Iterator[JSON | Skipped] | None:
    """A log for each sample of a packed one, so that one is held at a time."""
    return _packed(path) if path.suffix == ".eval" else None


def _packed(path: Path) -> Iterator[JSON | Skipped]:
    with zipfile.ZipFile(path) as log:
        names = log.namelist()
        header = next((_member(log, name) for name in _HEADERS if name in names), None)
        about = get(header, ("eval",))
        for name in names:
            if not (name.startswith("samples/") and name.endswith(".json")):
                continue
            try:
                sample = _member(log, name)
            except _BROKEN as why:
                yield Skipped(str(path), f"{name}: {why}")
                continue
            if sample is None:
                yield Skipped(str(path), f"{name} is no JSON value that can be read")
            else:
                yield {"eval": about, "samples": [sample]}


def _member(log: zipfile.ZipFile, name: str) -> JSON:
    """A member's value; None for one that is no JSON, or larger than can be held."""
    with log.open(name) as member:
        body = member.read(LARGEST_DOCUMENT + 1)
    return decoded(body) if len(body) <= LARGEST_DOCUMENT else None


def read(records: Iterable[JSON], source: str) -> Iterator[Session | Skipped]:
    """A session for each sample of the logs."""
    found = False
    for record in records:
        run = text_at(record, "eval", "run_id") or text_at(record, "eval", "task")
        model = text_at(record, "eval", "model") or None
        samples = get(record, ("samples",))
        for sample in objects(samples if samples is not None else [record]):
            session = _sample(sample, run, model, source)
            found = found or session is not None
            if session is not None:
                yield session
    if not found:
        yield Skipped(source, NO_REQUEST)


def _sample(sample: Object, run: str, model: str | None, source: str) -> Session | None:
    history = History("openai-chat")
    generated = _generated(sample, model)
    aside = sample.get("attachments")
    for message in objects(sample.get("messages")):
        whole = _attached(message, aside) if aside else message
        _read_message(history, whole, generated, model)
    for event in objects(sample.get("events")):
        if event.get("event") == "compaction":
            history.count_skipped("compaction", "that the messages do not show")
    name = "-".join(str(part) for key in ("id", "epoch") if (part := sample.get(key)) is not None)
    return history.build(f"{run}/{name}" if run else name, AGENT, source)


def _generated(sample: Object, model: str | None) -> dict[str, Sent]:
    """What the model events tell of each message, by its id."""
    told: dict[str, Sent] = {}
    for event in objects(sample.get("events")):
        if event.get("event") != "model":
            continue
        for choice in objects(get(event, ("output", "choices"))):
            if id := text_at(choice, "message", "id"):
                time = seconds(event.get("completed") or event.get("timestamp"))
                name = text_at(event, "output", "model") or model
                told[id] = Sent(0, time, _usage(get(event, ("output", "usage"))), name)
    return told


def _usage(usage: JSON) -> Usage | None:
    """Inspect's count of the input leaves out the cache, but for a few providers; totals tell."""
    given, output = count(usage, "input_tokens"), count(usage, "output_tokens")
    read = count(usage, "input_tokens_cache_read")
    written = count(usage, "input_tokens_cache_write")
    if read + written and count(usage, "total_tokens") == given + output:
        given = max(0, given - read - written)
    return reported(Usage(given, read, written, 0, output))


def _attached(value: JSON, attachments: JSON) -> JSON:
    """The value with long texts back in place, which the log keeps aside."""
    if isinstance(value, str) and value.startswith(_ATTACHED):
        return get(attachments, (value.removeprefix(_ATTACHED),)) or value
    if isinstance(value, dict):
        holder = cast(Object, value)
        return {key: _attached(item, attachments) for key, item in holder.items()}
    if isinstance(value, list):
        return [_attached(item, attachments) for item in cast(list[JSON], value)]
    return value


def _read_message(
    history: History, message: Object, requests: dict[str, Sent], model: str | None
) -> None:
    role = message.get("role")
    content = message.get("content")
    if role in ("system", "user"):
        if said := _content(history, content):
            history.add_input({"role": role, "content": said})
    elif role == "tool":
        error = text_at(message, "error", "message")
        said: JSON = f"Error: {error}" if error else _content(history, content)
        call = text_at(message, "tool_call_id")
        history.add_result(call, chat_result(call, said))
    elif role == "assistant":
        calls = [
            chat_call(text_at(call, "id"), text_at(call, "function"), call.get("arguments"))
            for call in objects(message.get("tool_calls"))
        ]
        sent = requests.get(text_at(message, "id"))
        named = Sent(0, model=text_at(message, "model") or model)
        history.add_answer([(None, _fields(history, content)), *calls], sent or named)
    else:
        history.count_unknown(role)


def _content(history: History, content: JSON) -> JSON:
    """Content of Inspect's kinds as chat parts."""
    if not isinstance(content, list):
        return compact_text("" if content is None else content)
    parts: list[JSON] = []
    for part in objects(cast(JSON, content)):
        if part.get("type") == "text":
            parts.append({"type": "text", "text": text_at(part, "text")})
        elif part.get("type") == "image":
            parts.append({"type": "image_url", "image_url": {"url": text_at(part, "image")}})
        elif part.get("type") != "reasoning":
            history.count_skipped("part", f"of kind {str(part.get('type'))[:40]!r}")
    return parts


def _fields(history: History, content: JSON) -> Object:
    """What an answer says and thinks."""
    fields: Object = {"content": _content(history, content) or None}
    thoughts = [text_at(part, "reasoning") for part in objects(content)]
    thought = "\n".join(text for text in thoughts if text)
    return {**fields, "reasoning_content": thought} if thought else fields
