"""Judges we did not write: the providers' own SDK types, and Mistral's request validator.

Each module has `judge(request)` and `judge_history(list)`; both return complaints, [] for none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.judges import anthropic, gemini, mistral, openai_chat, openai_responses

__all__ = ["HISTORY_JUDGES", "JUDGES", "judge"]

JUDGES: dict[str, tuple[Callable[[dict[str, Any]], list[str]], ...]] = {
    "anthropic": (anthropic.judge,),
    "openai-chat": (openai_chat.judge, mistral.judge),
    "openai-responses": (openai_responses.judge,),
    "gemini": (gemini.judge,),
}
HISTORY_JUDGES: dict[str, Callable[[list[Any]], list[str]]] = {
    "anthropic": anthropic.judge_history,
    "openai-chat": openai_chat.judge_history,
    "openai-responses": openai_responses.judge_history,
    "gemini": gemini.judge_history,
}


def judge(format: str, request: dict[str, Any]) -> list[str]:
    """What all judges of a format have against a whole request that is ready to be sent."""
    return [complaint for found in JUDGES[format] for complaint in found(request)]
