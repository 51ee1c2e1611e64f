"""Hypothesis strategies for tool histories in all four wire formats, whole and broken.

    requests(format)    a whole request that the provider would accept
    histories(format)   its bare list of messages
    growing(format)     the requests that one agent sent in one conversation, each longer
    pending(format)     a bare list that ends on calls which nothing has answered yet
    broken(format)      a request with one to three damages
    damaged(format)     the same, with the whole request beside it

Kinds of blocks that no provider has yet (named `future_…`) are part of whole requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis.strategies import SearchStrategy

from tests.strategies import anthropic, breaking, gemini, openai_chat, openai_responses
from tests.strategies.breaking import arbitrary_json, arbitrary_json_messages
from tests.strategies.neutral import FUTURE, Conversation, conversations, cut_behind_calls, moments

__all__ = [
    "FORMATS",
    "FUTURE",
    "HISTORY",
    "arbitrary_json",
    "arbitrary_json_messages",
    "broken",
    "conversations",
    "damaged",
    "growing",
    "histories",
    "pending",
    "render",
    "requests",
]

Request = dict[str, Any]

_RENDER: dict[str, Callable[[Conversation], Request]] = {
    "anthropic": anthropic.render,
    "openai-chat": openai_chat.render,
    "openai-responses": openai_responses.render,
    "gemini": gemini.render,
}
FORMATS = tuple(_RENDER)
HISTORY = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
}


def render(format: str, conversation: Conversation) -> Request:
    """One conversation as a request in one format."""
    return _RENDER[format](conversation)


def requests(format: str) -> SearchStrategy[Request]:
    """Whole requests, which the provider would accept."""
    return conversations().map(_RENDER[format])


def histories(format: str) -> SearchStrategy[list[Any]]:
    """Their messages alone, as a bare list."""
    return _listed(format, requests(format))


def growing(format: str) -> SearchStrategy[list[Request]]:
    """The successive requests of one conversation: each extends the one before, marks aside."""
    return conversations().map(lambda whole: [_RENDER[format](moment) for moment in moments(whole)])


def pending(format: str) -> SearchStrategy[list[Any]]:
    """Bare lists that end on unanswered calls, where the conversation ended on results."""
    return _listed(format, conversations().map(cut_behind_calls).map(_RENDER[format]))


def broken(format: str) -> SearchStrategy[Request]:
    """Requests with one to three damages."""
    return damaged(format).map(lambda pair: pair[1])


def damaged(format: str) -> SearchStrategy[tuple[Request, Request]]:
    """A whole request beside its broken self."""
    return breaking.damaged(requests(format), format)


def _listed(format: str, wholes: SearchStrategy[Request]) -> SearchStrategy[list[Any]]:
    found = wholes.map(lambda request: request[HISTORY[format]])
    return found.map(
        lambda history: (
            history if isinstance(history, list) else [{"role": "user", "content": history}]
        )
    )
