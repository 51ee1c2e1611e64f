"""OpenHands' events since its version 1 (the software agent SDK) as chat messages.

A call is an event of its own; those of one answer name the same response. The texts that the SDK
writes around an observation are written here again from what the event holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast

from ..codecs.json_tree import JSON, Object, get
from .history import (
    History,
    Piece,
    chat_call,
    chat_result,
    count,
    objects,
    reported,
    seconds,
    text_at,
)
from .records import Unreadable, value_in, values_in
from .session import Sent, Session, Skipped, Usage

_BOOKKEEPING = frozenset(
    """
    ConversationStateUpdateEvent CondensationRequest PauseEvent InterruptEvent TokenEvent
    LLMCompletionLogEvent StreamingDeltaEvent ConversationErrorEvent HookExecutionEvent
    """.split()  # noqa: SIM905 - reads better
)
_FAILED = "[An error occurred during execution.]\n"


def conversation(first: Path) -> Iterator[JSON | Skipped]:
    """All events of the conversation whose first event this file is."""
    problems: list[str] = []
    events = list(values_in(sorted(first.parent.glob("event-*.json")), problems))
    home = first.parent.parent
    yield {"instance_id": home.name, "history": events, "stats": _stats(home / "base_state.json")}
    if problems:
        more = f", and {len(problems) - 1:,} more" if len(problems) > 1 else ""
        yield Skipped(str(first), f"{problems[0]}{more}")


def _stats(state: Path) -> JSON:
    """What the conversation's state says of its tokens; it may be missing."""
    try:
        return get(value_in(state), ("stats",))
    except (OSError, Unreadable):
        return None


def usages(stats: JSON) -> dict[str, Sent]:
    """The usage and model of each response, by its id."""
    metrics = get(stats, ("usage_to_metrics",))
    told: dict[str, Sent] = {}
    for metric in cast(Object, metrics).values() if isinstance(metrics, dict) else ():
        for usage in objects(get(metric, ("token_usages",))):
            read, written = count(usage, "cache_read_tokens"), count(usage, "cache_write_tokens")
            given = max(0, count(usage, "prompt_tokens") - read - written)
            billed = Usage(given, read, written, 0, count(usage, "completion_tokens"))
            model = text_at(usage, "model") or None
            told[text_at(usage, "response_id")] = Sent(0, None, reported(billed), model)
    return told


class Run:
    """One history of a conversation, and the answers whose requests it holds."""

    def __init__(self, repeated: Iterable[str], requests: dict[str, Sent]) -> None:
        self.answer_keys: set[str] = set()
        self._history = History("openai-chat")
        self._repeated = frozenset(repeated)
        self._requests = requests
        self._calls: list[Object] = []  # of the answer that is being read

    def add(self, event: Object) -> None:
        """Follow one event."""
        kind = text_at(event, "kind")
        if kind == "ActionEvent":
            if self._calls and _response(self._calls[0]) != _response(event):
                self._flush_answer()
            self._calls.append(event)
            return
        self._flush_answer()
        if kind == "SystemPromptEvent":
            parts = [event.get("system_prompt"), event.get("dynamic_context")]
            self._add_input("system", _parts(self._history, parts))
        elif kind == "MessageEvent":
            self._add_message(event)
        elif kind == "CondensationSummaryEvent":
            self._add_input("user", [{"type": "text", "text": text_at(event, "summary")}])
        elif text_at(event, "tool_call_id"):
            self._add_result(event)
        elif kind not in _BOOKKEEPING:
            self._history.count_unknown(kind)

    def session(self, id: str, agent: str, source: str, segment: int) -> Session | None:
        """The session that the events so far are."""
        self._flush_answer()
        return self._history.build(id, agent, source, segment)

    def _add_input(self, role: str, content: Sequence[JSON]) -> None:
        if content:
            self._history.add_input({"role": role, "content": list(content)})

    def _add_message(self, event: Object) -> None:
        message = event.get("llm_message")
        content = _parts(self._history, get(message, ("content",)))
        content += _parts(self._history, event.get("extended_content"))
        if event.get("source") != "agent":
            self._add_input("user", content)
            return
        fields = _fields(content, text_at(message, "reasoning_content"))
        self._history.add_answer([(None, fields)], self._request(event))

    def _flush_answer(self) -> None:
        """The answer that the calls so far are."""
        calls, self._calls = self._calls, []
        if not calls:
            return
        first = calls[0]
        content = _parts(self._history, first.get("thought"))
        fields = _fields(content, text_at(first, "reasoning_content"))
        self._history.add_answer([(None, fields), *map(_call, calls)], self._request(first))

    def _request(self, event: Object) -> Sent | None:
        key = _response(event)
        self.answer_keys.add(key)
        if key in self._repeated:
            return None
        billed = self._requests.get(text_at(event, "llm_response_id"))
        time = seconds(event.get("timestamp"))
        return Sent(0, time, billed.usage if billed else None, billed.model if billed else None)

    def _add_result(self, event: Object) -> None:
        call = text_at(event, "tool_call_id")
        rejected = text_at(event, "rejection_reason")
        told = text_at(event, "error") or (f"Action rejected: {rejected}" if rejected else "")
        if told:
            content: list[JSON] = [{"type": "text", "text": told}]
        else:
            content = _observed(self._history, event.get("observation"))
            content += _parts(self._history, event.get("extended_content"))
        self._history.add_result(call, chat_result(call, content))


def _response(event: Object) -> str:
    return text_at(event, "llm_response_id") or f"event {event.get('id')}"


def _call(event: Object) -> Piece:
    """A call as its answer made it; older versions keep it as it stood on the wire."""
    made = event.get("tool_call")
    name = text_at(made, "name") or text_at(made, "function", "name")
    given = get(made, ("arguments",)) or get(made, ("function", "arguments"))
    return chat_call(text_at(event, "tool_call_id"), name or text_at(event, "tool_name"), given)


def _fields(content: list[JSON], thought: str) -> Object:
    fields: Object = {"content": content or None}
    return {**fields, "reasoning_content": thought} if thought else fields


def _parts(history: History, content: JSON) -> list[JSON]:
    """Content of the SDK's kinds as chat parts; empty text is not sent."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    parts: list[JSON] = []
    for part in objects(content):
        if part.get("type") == "image":
            urls = part.get("image_urls")
            images = cast(list[JSON], urls) if isinstance(urls, list) else []
            parts += [{"type": "image_url", "image_url": {"url": url}} for url in images]
        elif part.get("type", "text") != "text":
            history.count_skipped("part", f"of kind {str(part.get('type'))[:40]!r}")
        elif text := text_at(part, "text"):
            parts.append({"type": "text", "text": text})
    return parts


def _observed(history: History, observation: JSON) -> list[JSON]:
    """An observation as the SDK tells it to the model."""
    content = get(observation, ("content",))
    parts = _parts(history, content if content else get(observation, ("output",)))
    about = get(observation, ("metadata",))
    if isinstance(about, dict):
        text = "".join(text_at(part, "text") for part in parts)
        parts = [{"type": "text", "text": ran(text, cast(JSON, about))}]
    failed = get(observation, ("is_error",)) is True
    return [{"type": "text", "text": _FAILED}, *parts] if failed else parts


def ran(text: str, about: JSON) -> str:
    """What a command printed, with what OpenHands adds to it."""
    text = text_at(about, "prefix") + text + text_at(about, "suffix")
    if folder := text_at(about, "working_dir"):
        text += f"\n[Current working directory: {folder}]"
    if python := text_at(about, "py_interpreter_path"):
        text += f"\n[Python interpreter: {python}]"
    code = get(about, ("exit_code",))
    known = isinstance(code, int) and code != -1
    return f"{text}\n[Command finished with exit code {code}]" if known else text
