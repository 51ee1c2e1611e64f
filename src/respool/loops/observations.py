"""Calls as the loop detector sees them: arguments, result, failure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from ..history.failures import (
    clip_error_line,
    error_line,
    exit_code,
    has_failure_count,
    is_failed,
    is_user_refusal,
    is_write_refused,
    running_session,
)
from ..history.ledger import text_hash
from ..markers import ADVICE_START
from ..shapes.frame import split_frame
from ..tools.use import Use

REFUSAL_PREFIX: Final = "[respool refused: "

_MAX_WORDS: Final = 400  # of arguments; longer ones are compared by their key only
_MAX_COMPARED_CHARS: Final = 8_000  # characters of a result whose lines are compared one by one
_MIN_INFORMATIVE_CHARS: Final = (
    200  # characters; fewer from a call that may write do not show what it changed
)
_OPENING: Final = 30  # characters; a shorter line that ends in a colon says nothing yet
_TAIL_CHARS: Final = 1_200  # characters at the end of a result in which an advice of ours may stand
_FILE_CONTENTS: Final = ("code", "diff", "hits")  # what stands in files: no run made it up
_WORD = re.compile(r"\w+|[^\w\s]")
# What differs from run to run and tells nothing: durations, times of day, dates, addresses.
_VOLATILE = re.compile(  # each begins with a digit, which is looked for fast
    r"\d(?:(?<![\w.]\d)\d{0,8}(?:\.\d{1,9})? ?(?:[nmµu]?s|m|min|secs?|seconds?|minutes?)\b"
    r"|\d?:\d{2}:\d{2}(?:[.,]\d{1,9})?|(?<!\d\d)\d{3}-\d{2}-\d{2}(?!\d)|(?<=0)x[0-9a-f]{1,16}\b)"
)
_POSITION = re.compile(r"[:(]\d{1,7}(?:[:,]\d{1,7})?\)?")  # in a file; edits move it
_QUOTES = re.compile(r"[`\"'].{12,}$")  # what an error quotes, and all behind it
_TAG = re.compile(r"</?[a-z_]{1,30}>")
_PENDING = re.compile(
    r"\b(?:pending|queued|in[ _]progress|still running|not (?:yet )?ready|waiting)\b",
    re.IGNORECASE,
)


class PendingCall(Struct, frozen=True):
    """A call that has not been answered yet."""

    name: str
    use: Use
    words: tuple[str, ...]  # of its arguments; none: they are too long to be compared

    @property
    def repeat_key(self) -> tuple[str, str]:
        """What repeats of it share."""
        return self.name, self.use.key

    @property
    def variation_key(self) -> tuple[str, ...]:
        """What variations of it share."""
        use = self.use
        return self.name, use.kind, use.operation, use.target or ""

    @property
    def failure_key(self) -> tuple[str, ...]:
        """What its failures are counted by: the target, or else the whole identity."""
        use = self.use
        return use.kind, use.operation, use.key if use.target is None else use.target

    @property
    def is_waiting(self) -> bool:
        """Whether it waits before it looks."""
        return "sleep" in self.words and self.use.kind != "search"


class ObservedCall(Struct, frozen=True):
    """A call and what came of it."""

    call: PendingCall
    text: str  # the result without what differs from run to run; "" if it is long
    hash: int  # of all of it
    failed: bool
    error: str  # the line that tells of a failure, for a person
    failure_key: str  # the same for failures that are the same failure; "" without one
    is_waiting: bool  # it waits for something that is still going on
    has_written: bool  # something may be another thing after it
    is_rejected: bool  # an edit that its tool refused: nothing was done, and again nothing would be
    is_informative: bool  # the result, or the call itself, shows whether anything changed
    is_long: bool  # too long to be compared line by line

    def has_same_result(self, other: ObservedCall) -> bool:
        """Whether the results tell no difference: what they say, and whether it is done or bad."""
        ended = self.failed == other.failed and self.is_waiting == other.is_waiting
        return ended and self.hash == other.hash


def pending_call(name: str, arguments: str, use: Use) -> PendingCall:
    """A call as it is asked for."""
    words = _WORD.findall(arguments) if len(arguments) <= 8 * _MAX_WORDS else []
    return PendingCall(name, use, tuple(words) if len(words) <= _MAX_WORDS else ())


def observe_call(call: PendingCall, result: str, error: bool) -> ObservedCall | None:
    """The call with its result; None where it was stopped: by a person, or by us."""
    text = strip_advice(result)
    if text.startswith(REFUSAL_PREFIX) or is_user_refusal(text):
        return None
    use = call.use
    bad = _is_failed_use(use, text, error)
    why = _failure_reason(text) if bad else ""
    bad = bad and (bool(why) or use.kind not in ("read", "search"))  # a filter that let nothing by
    body = split_frame(text).body
    printed = use.content not in _FILE_CONTENTS
    said = (_VOLATILE.sub("~", body) if printed else body).strip()
    void = bad and use.kind == "write" and not use.barrier and exit_code(text) is None
    return ObservedCall(
        call,
        said if len(said) <= _MAX_COMPARED_CHARS else "",
        text_hash(said),
        bad,
        why,
        _failure_key(why, said, void) if bad else "",
        call.is_waiting or (printed and _is_pending(text, body)),
        use.can_write and not void,
        void,
        bad or not use.can_write or len(said) >= _MIN_INFORMATIVE_CHARS or _is_self_describing(use),
        len(said) > _MAX_COMPARED_CHARS,
    )


def _is_failed_use(use: Use, text: str, error: bool) -> bool:
    """Whether a call failed: a pipe may hide that; a search that finds nothing did not."""
    if use.kind == "search" and exit_code(text) == 1:
        return False
    if is_failed(text, error) or (use.kind == "run" and has_failure_count(text)):
        return True
    return use.outcome_kind == "write" and is_write_refused(text)


def _is_self_describing(use: Use) -> bool:
    """Whether a call itself says what it does: it writes to what it names, and nothing else."""
    return use.kind == "write" and not use.barrier and use.target is not None


def _failure_reason(text: str) -> str:
    """The line that tells of a failure, and the one behind it if it only opens; "" if none does."""
    line = error_line(text)
    if exit_code(line) is not None:
        return ""
    if line.endswith(":") and len(line) < _OPENING:
        rest = text[text.find(line) + len(line) :].split("\n", 3)
        line = f"{line} {next((one.strip() for one in rest if one.strip()), '')}"
    return clip_error_line(_TAG.sub("", line).strip())


def _failure_key(why: str, said: str, void: bool) -> str:
    """What two failures share that are the same one.

    An edit's own words stand in its error, and are another matter each time. A run is where it was
    only if all that it printed is the same: one error less is progress.
    """
    if void:
        return _QUOTES.sub("", why)
    return f"{text_hash(_POSITION.sub('', said)):x}"


def _is_pending(text: str, body: str) -> bool:
    """Whether a result says that something is not done yet."""
    return running_session(text) is not None or _PENDING.search(body[:2_000]) is not None


def strip_advice(text: str) -> str:
    """A result without what the detector had put at its end."""
    at = text.rfind(f"\n{ADVICE_START}", max(0, len(text) - _TAIL_CHARS))
    return text if at < 0 else text[:at].rstrip("\n")


def differing_word(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, str] | None:
    """The one word in which two calls differ; None where they differ in more, or in none.

    >>> differing_word(("tail", "-", "20"), ("tail", "-", "40"))
    ('20', '40')
    """
    if one == other or abs(len(one) - len(other)) > 1 or not one or not other:
        return None
    same = 0
    least = min(len(one), len(other))
    while same < least and one[same] == other[same]:
        same += 1
    here, there = one[same:], other[same:]
    if here[1:] == there[1:]:
        return "".join(here[:1]), "".join(there[:1])
    if here == there[1:] or here[1:] == there:
        longer = max(here, there, key=len)
        return ("", longer[0]) if longer is there else (longer[0], "")
    return None


def line_hashes(said: str, varied: str) -> frozenset[int]:
    """The lines of a result, by their hashes; what it echoes of the word that varied left out."""
    return frozenset(_hashes(said.replace(varied, "~") if len(varied) > 2 else said))


def _hashes(text: str) -> Iterator[int]:
    return (text_hash(line.strip()) for line in text.split("\n") if line.strip())
