"""A history read for its circles alone: messages in, an index and a ledger of them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..check.rules import steps_of
from ..codecs.codec import Codec
from ..codecs.json_tree import JSON
from ..ledger.ledger import Ledger
from ..tools import Tools
from ..transcript import Index, Part


def read_history(
    codec: Codec, messages: Sequence[JSON], tools: Tools, definitions: Mapping[str, Any]
) -> tuple[Index, Ledger]:
    """Messages as they were sent; nothing in them is mended."""
    index, ledger = Index(), Ledger()
    for step in steps_of(codec, messages):
        model: list[Part] = []
        answers: list[Part] = []
        for row, message in enumerate(step.messages, step.at):
            made = codec.is_model_made(message)
            (model if made else answers).extend(codec.decode(row, message))
        index.add_unit((step.at, step.at + len(step.messages)), model, answers, False)
    ledger.extend(0, index.exchanges, index.parts, tools, definitions)
    return index, ledger
