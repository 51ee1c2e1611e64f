"""Independent validators: the providers' own SDK types, and Mistral's request validator.

Each module has `judge(request)` and `judge_history(list)`; both return complaints, [] for none.
Modules are loaded at first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.late import late

__all__ = ["HISTORY_JUDGES", "JUDGES", "judge"]


def _judge(module: str) -> Callable[[dict[str, Any]], list[str]]:
    found = late(f"{__name__}.{module}")

    def judge(request: dict[str, Any]) -> list[str]:
        return found.judge(request)

    return judge


def _judge_history(module: str) -> Callable[[list[Any]], list[str]]:
    found = late(f"{__name__}.{module}")

    def judge_history(history: list[Any]) -> list[str]:
        return found.judge_history(history)

    return judge_history


JUDGES: dict[str, tuple[Callable[[dict[str, Any]], list[str]], ...]] = {
    "anthropic": (_judge("anthropic"),),
    "openai-chat": (_judge("openai_chat"), _judge("mistral")),
    "openai-responses": (_judge("openai_responses"),),
    "gemini": (_judge("gemini"),),
}
HISTORY_JUDGES: dict[str, Callable[[list[Any]], list[str]]] = {
    "anthropic": _judge_history("anthropic"),
    "openai-chat": _judge_history("openai_chat"),
    "openai-responses": _judge_history("openai_responses"),
    "gemini": _judge_history("gemini"),
}


def judge(format: str, request: dict[str, Any]) -> list[str]:
    """Complaints of all judges of a format about a whole request."""
    return [complaint for found in JUDGES[format] for complaint in found(request)]
