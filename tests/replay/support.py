"""Recorded sessions built from histories of our own, for the replay tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from respool.pricing import CacheTerms
from respool.providers.registry import PROVIDERS
from respool.replay.prompt_cache import HOUR, CharacterMeasure
from respool.replay.recording import BillingConditions, Recording
from respool.sessions.session import RecordedRequest, RecordedSession

EXPLICIT = CacheTerms(cache="explicit", read=0.1, write=1.25, write_1h=2.0)
PREFIX = CacheTerms(cache="prefix", read=0.1, write=1.0, lifetime=600)


def cuts_in(format: Any, messages: Sequence[Any]) -> list[int]:
    """Boundaries: before each run of model output, and at the end."""
    made = [PROVIDERS[format].codec.is_model_made(message) for message in messages]
    starts = [at for at in range(1, len(made)) if made[at] and not made[at - 1]]
    return [*starts, len(messages)] if messages and not made[-1] else starts


def session_of(
    format: Any, messages: Sequence[Any], *, model: str | None = None, gap: float = 10.0
) -> RecordedSession:
    """A history as a session whose requests came so many seconds apart."""
    cuts = cuts_in(format, messages)
    sent = tuple(RecordedRequest(cut, gap * at, None, model) for at, cut in enumerate(cuts))
    return RecordedSession(
        id="a-session", agent="some-agent", format=format, messages=list(messages), requests=sent
    )


def recording_of(
    format: Any,
    messages: Sequence[Any],
    terms: CacheTerms | None = None,
    *,
    head: int = 0,
    lifetime: float = HOUR,
    gap: float = 10.0,
) -> Recording:
    """A history made ready for replay, counted as the published baselines count."""
    known = terms or (EXPLICIT if format == "anthropic" else PREFIX)
    session = session_of(format, messages, gap=gap)
    return Recording(session, CharacterMeasure(), BillingConditions(known, head, lifetime))


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(id: str, name: str = "Read", **arguments: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": id, "name": name, "input": arguments}
    return {"role": "assistant", "content": [block]}


def result(id: str, words: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": words}
