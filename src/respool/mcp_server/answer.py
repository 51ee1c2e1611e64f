"""What a tool answers: a text that fits an agent's context, and what to do about the rest."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ..errors import RespoolError

MOST: Final = 40_000  # characters, some 10,000 tokens: over that, agents cut or warn by themselves


class Unanswerable(RespoolError):
    """What was asked for cannot be given; the message is a sentence for the model."""


class Answer(Struct, frozen=True):
    """The text that was asked for, and a remark beside it that is no part of it."""

    text: str
    remark: str = ""


def paged(text: str, skip: int, remark: str = "", narrow_hint: str = "") -> Answer:
    """The part of a text that an answer holds, from a character on; a remark tells of the rest."""
    if skip and skip >= len(text):
        raise Unanswerable(f"skip={skip} is not allowed: there are {len(text):,} characters.")
    page = text[skip:] if len(text) - skip <= MOST else _whole_lines(text[skip : skip + MOST])
    end = skip + len(page)
    if end == len(text):
        return Answer(page, remark)
    more = (
        f"These are the characters {skip + 1:,} to {end:,} of {len(text):,}. "
        f"For the next ones call again with skip={end}. {narrow_hint}"
    )
    return Answer(page, f"{remark} {more}".strip())


def _whole_lines(text: str) -> str:
    """As many whole lines as there are, or all of it where the first one does not end."""
    return text[: text.rfind("\n") + 1] or text
