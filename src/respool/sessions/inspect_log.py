"""Inspect eval logs, packed or JSON: one session per sample."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from re import DOTALL
from re import compile as pattern
from typing import cast

from ..pricing import Usage
from ..wire.json import JSON, Object, compact_json, get
from .session import (
    NO_REQUEST,
    RecordedRequest,
    RecordedSession,
    SessionBuilder,
    Skipped,
    chat_call,
    chat_result,
    objects_in,
    parse_timestamp,
    text_at,
    token_count,
    usage_or_none,
)
from .transcript_file import MAX_DOCUMENT_BYTES, decode_json

AGENT = "inspect"

_LOG_HEAD = pattern(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"status"\s*:')
_SAMPLE_HEAD = pattern(rb'\s*\{\s*"id"\s*:.{1,300}?"epoch"\s*:\s*\d', DOTALL)
_ATTACHMENT = "attachment://"
_HEADERS = ("header.json", "_journal/start.json")  # the second while it still runs
_READ_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,
    EOFError,
    OSError,
)


def recognizes(head: bytes, name: str) -> bool:
    """Check if a file is an eval log, zipped or as JSON, or one sample of it."""
    if name.endswith(".eval"):
        return head.startswith(b"PK")
    if _LOG_HEAD.match(head):
        return b'"eval"' in head
    return bool(_SAMPLE_HEAD.match(head)) and b'"target"' in head


def stored_records(path: Path) -> Iterator[JSON | Skipped] | None:
    """A log for each sample of a packed one, so that one is held at a time."""
    return _packed_samples(path) if path.suffix == ".eval" else None


def _packed_samples(path: Path) -> Iterator[JSON | Skipped]:
    with zipfile.ZipFile(path) as log:
        names = log.namelist()
        header = next((_read_member(log, name) for name in _HEADERS if name in names), None)
        about = get(header, ("eval",))
        for name in names:
            if not (name.startswith("samples/") and name.endswith(".json")):
                continue
            try:
                sample = _read_member(log, name)
            except _READ_ERRORS as why:
                yield Skipped(str(path), f"{name}: {why}")
                continue
            if sample is None:
                yield Skipped(str(path), f"{name} is no JSON value that can be read")
            else:
                yield {"eval": about, "samples": [sample]}


def _read_member(log: zipfile.ZipFile, name: str) -> JSON:
    """A member's value; None for one that is no JSON, or larger than can be held."""
    with log.open(name) as member:
        body = member.read(MAX_DOCUMENT_BYTES + 1)
    return decode_json(body) if len(body) <= MAX_DOCUMENT_BYTES else None


def read(records: Iterable[JSON], source: str) -> Iterator[RecordedSession | Skipped]:
    """A session for each sample of the logs."""
    found = False
    for record in records:
        run = text_at(record, "eval", "run_id") or text_at(record, "eval", "task")
        model = text_at(record, "eval", "model") or None
        samples = get(record, ("samples",))
        for sample in objects_in(samples if samples is not None else [record]):
            session = _sample_session(sample, run, model, source)
            found = found or session is not None
            if session is not None:
                yield session
    if not found:
        yield Skipped(source, NO_REQUEST)


def _sample_session(
    sample: Object, run: str, model: str | None, source: str
) -> RecordedSession | None:
    history = SessionBuilder("openai-chat")
    generated = _requests_by_message(sample, model)
    aside = sample.get("attachments")
    for message in objects_in(sample.get("messages")):
        whole = _with_attachments(message, aside) if aside else message
        _read_message(history, whole, generated, model)
    for event in objects_in(sample.get("events")):
        if event.get("event") == "compaction":
            history.count_skipped("compaction", "that the messages do not show")
    name = "-".join(str(part) for key in ("id", "epoch") if (part := sample.get(key)) is not None)
    return history.build(f"{run}/{name}" if run else name, AGENT, source)


def _requests_by_message(sample: Object, model: str | None) -> dict[str, RecordedRequest]:
    """Return the request of each answer, by message id, from the model events."""
    requests: dict[str, RecordedRequest] = {}
    for event in objects_in(sample.get("events")):
        if event.get("event") != "model":
            continue
        for choice in objects_in(get(event, ("output", "choices"))):
            if id := text_at(choice, "message", "id"):
                time = parse_timestamp(event.get("completed") or event.get("timestamp"))
                name = text_at(event, "output", "model") or model
                requests[id] = RecordedRequest(
                    0, time, _parse_usage(get(event, ("output", "usage"))), name
                )
    return requests


def _parse_usage(usage: JSON) -> Usage | None:
    """Parse usage; the input excludes the cache except for a few providers, as totals show."""
    given, output = token_count(usage, "input_tokens"), token_count(usage, "output_tokens")
    read = token_count(usage, "input_tokens_cache_read")
    written = token_count(usage, "input_tokens_cache_write")
    if read + written and token_count(usage, "total_tokens") == given + output:
        given = max(0, given - read - written)
    return usage_or_none(
        Usage(input=given, cache_read=read, cache_write=written, cache_write_1h=0, output=output)
    )


def _with_attachments(value: JSON, attachments: JSON) -> JSON:
    """The value with long texts back in place, which the log keeps aside."""
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return get(attachments, (value.removeprefix(_ATTACHMENT),)) or value
    if isinstance(value, dict):
        holder = cast(Object, value)
        return {key: _with_attachments(item, attachments) for key, item in holder.items()}
    if isinstance(value, list):
        return [_with_attachments(item, attachments) for item in cast(list[JSON], value)]
    return value


def _read_message(
    history: SessionBuilder,
    message: Object,
    requests: dict[str, RecordedRequest],
    model: str | None,
) -> None:
    role = message.get("role")
    content = message.get("content")
    if role in ("system", "user"):
        if said := _chat_parts(history, content):
            history.add_input({"role": role, "content": said})
    elif role == "tool":
        error = text_at(message, "error", "message")
        said: JSON = f"Error: {error}" if error else _chat_parts(history, content)
        call = text_at(message, "tool_call_id")
        history.add_result(call, chat_result(call, said))
    elif role == "assistant":
        calls = [
            chat_call(text_at(call, "id"), text_at(call, "function"), call.get("arguments"))
            for call in objects_in(message.get("tool_calls"))
        ]
        sent = requests.get(text_at(message, "id"))
        named = RecordedRequest(0, model=text_at(message, "model") or model)
        history.add_answer([(None, _answer_fields(history, content)), *calls], sent or named)
    else:
        history.count_unknown(role)


def _chat_parts(history: SessionBuilder, content: JSON) -> JSON:
    """Content of Inspect's kinds as chat parts."""
    if not isinstance(content, list):
        return compact_json("" if content is None else content)
    parts: list[JSON] = []
    for part in objects_in(cast(JSON, content)):
        if part.get("type") == "text":
            parts.append({"type": "text", "text": text_at(part, "text")})
        elif part.get("type") == "image":
            parts.append({"type": "image_url", "image_url": {"url": text_at(part, "image")}})
        elif part.get("type") != "reasoning":
            history.count_skipped("part", f"of kind {str(part.get('type'))[:40]!r}")
    return parts


def _answer_fields(history: SessionBuilder, content: JSON) -> Object:
    """Return the content and the reasoning of an answer."""
    fields: Object = {"content": _chat_parts(history, content) or None}
    thoughts = [text_at(part, "reasoning") for part in objects_in(content)]
    thought = "\n".join(text for text in thoughts if text)
    return {**fields, "reasoning_content": thought} if thought else fields
