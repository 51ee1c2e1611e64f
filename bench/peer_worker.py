"""One peer in its own interpreter: requests come and go as lines of JSON.

    python bench/peer_worker.py headroom|langchain|litellm

It needs nothing of respool's. A request is {"messages": […], "target": SHARE, "keep": N, "tokens":
N}: chat messages, the share of old results to keep, the results that fit it, and the tokens of the
whole at that size. Each peer uses what it understands. A response is {"results": {call id: text}},
or {"error": "…"}.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

Messages = list[dict[str, Any]]
MODEL = "claude-sonnet-4-5-20250929"


def headroom() -> Callable[[dict[str, Any]], Messages]:
    """headroom-ai's `compress` with its target ratio."""
    from headroom import compress  # type: ignore[import-not-found]

    def run(asked: dict[str, Any]) -> Messages:
        found = compress(asked["messages"], model=MODEL, target_ratio=asked["target"])
        return found.messages

    return run


def langchain() -> Callable[[dict[str, Any]], Messages]:
    """LangChain's `ClearToolUsesEdit`, which keeps so many of the latest results."""
    from langchain.agents.middleware import ClearToolUsesEdit  # type: ignore[import-not-found]
    from langchain_core.messages import (  # type: ignore[import-not-found]
        ToolMessage,
        convert_to_messages,
    )

    def run(asked: dict[str, Any]) -> Messages:
        messages = convert_to_messages(asked["messages"])
        edit = ClearToolUsesEdit(trigger=0, keep=asked["keep"])
        edit.apply(messages, count_tokens=lambda _messages: 1)
        return [
            {"role": "tool", "tool_call_id": one.tool_call_id, "content": one.content}
            for one in messages
            if isinstance(one, ToolMessage)
        ]

    return run


def litellm() -> Callable[[dict[str, Any]], Messages]:
    """LiteLLM's `compress` with its target, without embeddings."""
    from litellm import compress  # type: ignore[import-not-found]

    def run(asked: dict[str, Any]) -> Messages:
        found = compress(
            asked["messages"],
            model=MODEL,
            compression_trigger=1,
            compression_target=asked["tokens"],
        )
        return found["messages"]

    return run


PEERS = {"headroom": headroom, "langchain": langchain, "litellm": litellm}


def texts_of(messages: Messages) -> dict[str, str]:
    """The text of each result by its call."""
    found: dict[str, str] = {}
    for message in messages:
        if message.get("role") == "tool":
            content = message.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            words = [one.get("text") or "" for one in parts if isinstance(one, dict)]
            found[message["tool_call_id"]] = "\n".join(words)
    return found


def main() -> None:
    """Answer each line; nothing that a peer prints is mixed with that."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it would ask the network
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        run = PEERS[sys.argv[1]]()
        print(json.dumps({"ready": True}), file=answers, flush=True)
        for line in sys.stdin:
            try:
                said: dict[str, Any] = {"results": texts_of(run(json.loads(line)))}
            except Exception as error:  # noqa: BLE001 - told to the one who asked
                said = {"error": f"{type(error).__name__}: {error}"[:300]}
            print(json.dumps(said), file=answers, flush=True)


if __name__ == "__main__":
    main()
