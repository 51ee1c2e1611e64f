"""Trajectories: a whole conversation in a provider's format, as benchmarks and own logs keep it.

A list of messages; an object that has one as `messages`, `history`, `traj` or `trajectory`
(mini-swe-agent, SWE-agent, tau-bench); a list of such objects, or one a line. A request was sent
before each run of messages that the model made. What an agent noted on a chat message for itself
was not sent and is left out; usage and time are taken from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import cast

from ..codecs.codec import FormatName
from ..codecs.detect import detect
from ..codecs.json_tree import JSON, Object, get
from ..codecs.reading import read_body
from ..errors import PassedThrough, UnreadableRequest
from .heads import first_object, top_fields
from .history import objects, seconds, text_at
from .session import NO_REQUEST, Sent, Session, Skipped
from .usages import told_usage

AGENT = "trajectory"

_HISTORIES = ("messages", "history", "traj", "trajectory")
_NAMES = (".traj", ".traj.gz", ".traj.json", ".traj.json.gz")
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
# What a chat message has on the wire, of OpenAI or of gateways.
_WIRE = frozenset(
    """
    annotations audio cache_control content function_call name provider_specific_fields reasoning
    reasoning_content reasoning_details refusal role thinking_blocks tool_call_id tool_calls
    """.split()  # noqa: SIM905 - reads better
)
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "reasoning"})


def recognises(head: bytes, name: str) -> bool:
    """Whether a file is a conversation, has one in a field, or lists such objects."""
    start = first_object(head)
    if not start.startswith(b"{"):
        return False
    fields = top_fields(start)
    if any(fields.get(field, b"").startswith(b"[") for field in _HISTORIES):
        return True
    listed = head.lstrip().startswith(b"[") and not name.removesuffix(".gz").endswith(".jsonl")
    return name.endswith(_NAMES) or (listed and "role" in fields)


def read(records: Iterable[JSON], source: str) -> Iterator[Session | Skipped]:
    """A session for each conversation."""
    stem = PurePath(source).name.partition(".")[0]
    found, others = False, 0
    for number, (about, messages) in enumerate(_conversations(records)):
        if messages is None:
            others += 1
            continue
        found = True
        id = _id(about) or (f"{stem}:{number}" if number else stem)
        yield conversation(messages, about, id, source)
    if not found:
        yield Skipped(source, NO_REQUEST)
    elif others:
        yield Skipped(source, f"no conversation is in {others:,} of its records; the rest was read")


def _conversations(records: Iterable[JSON]) -> Iterator[tuple[JSON, list[JSON] | None]]:
    """Each record, or each object of a list, with the conversation in it."""
    for record in records:
        holders = cast(list[JSON], record) if isinstance(record, list) else [record]
        if _is_history(holders):
            yield None, holders
            continue
        for holder in holders:
            lists = [get(holder, (field,)) for field in _HISTORIES]
            told = [cast(list[JSON], one) for one in lists if isinstance(one, list)]
            yield holder, next((history for history in told if _is_history(history)), None)


def _is_history(items: Sequence[JSON]) -> bool:
    """Whether these are messages or items, and not steps or conversations."""
    first: JSON = items[0] if items else None
    if not isinstance(first, dict):
        return False
    holder = cast(Object, first)
    if any(isinstance(holder.get(field), list) for field in _HISTORIES):
        return False
    return isinstance(holder.get("role", holder.get("type")), str)


def _id(about: JSON) -> str:
    """What the conversation is called, as benchmarks and logs name it."""
    for name in ("id", "instance_id", "session_id", "conversation_id"):
        if text_at(about, name):
            return text_at(about, name)
    task, trial = get(about, ("task_id",)), get(about, ("trial",))
    if task is None:
        return ""
    return f"task-{task}" if trial is None else f"task-{task}-trial-{trial}"


def conversation(
    recorded: Sequence[JSON],
    about: JSON,
    id: str,
    source: str,
    format: FormatName | None = None,
    agent: str = AGENT,
) -> Session | Skipped:
    """One conversation with its requests; `format` where it is known."""
    try:
        told = format or _format(recorded)
    except (PassedThrough, UnreadableRequest) as why:
        return Skipped(source, f"conversation {id}: {why}")
    kept = [item for item in objects(list(recorded)) if _was_sent(told, item)]
    messages = [_on_the_wire(item) for item in kept] if told == "openai-chat" else kept
    requests = tuple(_requests(told, messages, kept, about))
    if not requests:
        return Skipped(source, f"conversation {id}: {NO_REQUEST}")
    left = len(recorded) - len(kept)
    notes = (f"{left:,} records that are no messages left out",) if left else ()
    return Session(id, agent, told, messages, requests, source, notes=notes)


def _format(messages: Sequence[JSON]) -> FormatName:
    """The format; words alone are the same in Chat Completions as anywhere."""
    try:
        return detect(read_body(list(messages)), None)
    except PassedThrough:
        if all(text_at(message, "role") in _ROLES for message in messages):
            return "openai-chat"
        raise


def _was_sent(format: FormatName, item: Object) -> bool:
    """An agent may end its record with a message of its own kind."""
    if format in ("openai-chat", "anthropic"):
        return text_at(item, "role") in _ROLES
    return isinstance(item.get("role", item.get("type")), str)


def _on_the_wire(message: Object) -> Object:
    sent = {key: value for key, value in message.items() if key in _WIRE}
    ids = message.get("tool_call_ids")  # SWE-agent's, of which it sends the first
    if isinstance(ids, list) and ids and "tool_call_id" not in sent:
        sent["tool_call_id"] = cast(list[JSON], ids)[0]
    return sent


def _requests(
    format: FormatName, messages: Sequence[Object], recorded: Sequence[Object], about: JSON
) -> Iterator[Sent]:
    model = text_at(about, "model") or text_at(about, "info", "config", "model", "model_name")
    for at in range(1, len(messages)):
        if _model_made(format, messages[at]) and not _model_made(format, messages[at - 1]):
            yield _sent(at, recorded[at], model or None)


def _sent(cut: int, answer: Object, model: str | None) -> Sent:
    """What mini-swe-agent, or another, noted on the answer."""
    extra = answer.get("extra")
    response = get(extra, ("response",))
    times = (get(extra, ("timestamp",)), get(response, ("created",)), answer.get("timestamp"))
    time = next((told for told in map(seconds, times) if told is not None), None)
    usage = told_usage(get(response, ("usage",)) or answer.get("usage"))
    return Sent(cut, time, usage, text_at(response, "model") or model)


def _model_made(format: FormatName, message: Object) -> bool:
    if format == "gemini":
        return message.get("role") == "model"
    if format == "openai-responses" and message.get("type", "message") != "message":
        return text_at(message, "type") in _CALLS
    return message.get("role") == "assistant"
