"""Limits: how much one request may hold, what is over, and what stands in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, cast

from msgspec import Struct

from .check.anthropic_request import (
    LARGER_WINDOW_SINCE,
    LARGEST_SIDE,
    LARGEST_SIDE_OF_MANY,
    MANY_IMAGES,
    MOST_BYTES,
    MOST_IMAGES,
    MOST_IMAGES_OF_OLDER,
)
from .codecs.attachments import attachment_of
from .codecs.json_tree import JSON
from .errors import BudgetError
from .marker import Short, reference
from .models import model_of
from .policy import Policy
from .prices import terms_for
from .transcript import History, Kind, Part, Speaker

Measure = Literal["tokens", "bytes", "images", "pixels"]
Fields = Mapping[str, Any]

# The window that is listed is a last resort: counts are estimates for most models, and what is
# over by one token is refused. A client that compacts by itself does so well before this.
HIGH: Final = 0.95
BYTES_A_TOKEN: Final = 5  # of words in a body, about: JSON escapes some of them
# Every cut breaks the provider's cache, so it frees enough to last: three tenths of a window of
# 200,000 tokens are some tens of turns. Aiming lower forgets more and is not needed sooner.
LOW: Final = 0.7
# A client that asks for more output than this share of the window asks for whatever is left.
MOST_RESERVED: Final = 0.5


class Limits(Struct, frozen=True, kw_only=True):
    """How much one request may hold; None: as much as it likes, or nobody knows."""

    tokens: int | None = None  # the high water: over it, exchanges go until the low one is reached
    low: int | None = None
    source: Literal["budget", "window", ""] = ""  # where that comes from: the policy, the model
    bytes: int | None = None  # of the whole body
    images: int | None = None
    side: int | None = None  # pixels of an image's longer side
    many: int | None = None  # a request with more images than this
    side_of_many: int | None = None  # may have none with a longer side than this

    def max_side(self, images: int) -> int | None:
        """How many pixels a side of an image may have in a request with so many of them."""
        return self.side_of_many if self.many is not None and images > self.many else self.side


class Over(Struct, frozen=True):
    """One limit that is exceeded."""

    kind: Measure
    allowed: int
    reached: int
    target: int  # where to go back to

    @property
    def excess(self) -> int:
        """How much must go to reach the aim."""
        return self.reached - self.target

    def error(self, in_the_way: Iterable[tuple[str, int]] = ()) -> BudgetError:
        """The error to raise when nothing more can go."""
        return BudgetError(self.kind, self.allowed, self.reached, in_the_way)


class Pressure(Struct, frozen=True):
    """All limits that are exceeded; false when none is."""

    exceeded: tuple[Over, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.exceeded)

    def of(self, measure: Measure) -> Over | None:
        """How one limit is exceeded; None: it is not."""
        return next((one for one in self.exceeded if one.kind == measure), None)


# --- what is allowed ---------------------------------------------------------------------------


def limits_for(
    policy: Policy, format: str, fields: Fields | None, window: int | None = None
) -> Limits:
    """The limits of a request; `window` is what an overflow error of its conversation named.

    >>> request = {"model": "claude-haiku-4-5", "max_tokens": 20_000}
    >>> limits_for(Policy(), "anthropic", request).tokens
    171000
    """
    # The budget may exceed a window that is only listed: a beta header can have widened it.
    listed = _window(format, fields) if policy.budget is None else None
    fits = min((one for one in (listed, window) if one is not None), default=None)
    high = None if fits is None else int(HIGH * (fits - reserved(fields, fits)))
    source = "" if high is None else "window"
    if policy.budget is not None and (high is None or policy.budget <= high):
        high, source = policy.budget, "budget"
    low = None if high is None else int(LOW * high)
    return Limits(tokens=high, low=low, source=source, **_sizes(format, fields))


def reserved(fields: Fields | None, window: int) -> int:
    """The tokens of the window that a request keeps free for its output, thinking included."""
    return min(output_of(fields), int(MOST_RESERVED * window))


def output_of(fields: Fields | None) -> int:
    """How many tokens of output a request asks for at most; 0: it does not say."""
    return max(_outputs(fields or {}), default=0)


def window_around(prompt: int, fields: Fields | None) -> int:
    """The window in which a request has room for so long a prompt beside the output it asks for.

    >>> limits_for(Policy(), "anthropic", {"max_tokens": 500}, 1_000).tokens
    475
    >>> asking = {"max_tokens": 500}
    >>> limits_for(Policy(), "anthropic", asking, window_around(1_000, asking)).tokens
    950
    """
    return prompt + min(output_of(fields), prompt)


_OUTPUT = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
_NESTED = ("generationConfig", "generation_config", "config")  # of Gemini, and of its SDK


def _outputs(fields: Fields) -> list[int]:
    """All that a request says of how long its output may be."""
    nested = (fields.get(name) for name in _NESTED)
    holders = [fields, *(cast(Fields, one) for one in nested if isinstance(one, Mapping))]
    values = (holder.get(name) for holder in holders for name in _OUTPUT)
    return [one for one in values if isinstance(one, int) and not isinstance(one, bool) and one > 0]


def _window(format: str, fields: Fields | None) -> int | None:
    """The listed window of the request's model; None where no model is named.

    Gemini's address names the model, not its body; but its models all have the same window.
    """
    model = (fields or {}).get("model")
    named = isinstance(model, str) and model
    return terms_for(format, model).window if named or format == "gemini" else None


def _sizes(format: str, fields: Fields | None) -> dict[str, int]:
    """Limits beside tokens: Anthropic's are known (A22), no other provider's are."""
    if format != "anthropic":
        return {}
    model = model_of((fields or {}).get("model"))
    newer = model is None or model.maker != "anthropic" or model.version >= LARGER_WINDOW_SINCE
    return {
        "bytes": MOST_BYTES,
        "images": MOST_IMAGES if newer else MOST_IMAGES_OF_OLDER,
        "side": LARGEST_SIDE,
        "many": MANY_IMAGES,
        "side_of_many": LARGEST_SIDE_OF_MANY,
    }


# --- what is over ------------------------------------------------------------------------------


def pressure(
    limits: Limits, *, tokens: int = 0, bytes: int = 0, images: int = 0, side: int = 0
) -> Pressure:
    """Which limits a request of this size exceeds; `side` is the longest of all its images.

    >>> pressure(Limits(tokens=1_000, low=700), tokens=1_200).over[0].excess
    500
    """
    low = limits.tokens if limits.low is None else limits.low
    longest = limits.max_side(images)
    found = (
        _over("tokens", limits.tokens, tokens, low),
        _over("bytes", limits.bytes, bytes, _lower(limits.bytes)),
        _over("images", limits.images, images, _lower(limits.images)),
        _over("pixels", longest, side, longest),
    )
    return Pressure(tuple(one for one in found if one is not None))


def _over(measure: Measure, allowed: int | None, reached: int, aim: int | None) -> Over | None:
    if allowed is None or aim is None or reached <= allowed:
        return None
    return Over(measure, allowed, reached, aim)


def _lower(limit: int | None) -> int | None:
    return None if limit is None else int(LOW * limit)


# --- what stands in the way --------------------------------------------------------------------

HEAD: Final = "system prompt and tools"
UNSEEN: Final = "what the model has not seen yet"
FIRST: Final = "first user message"
SYSTEM: Final = "system messages"
SERVER: Final = "what the provider ran itself"
_REST: Final[Mapping[Kind, str]] = {
    "text": "what was said",
    "reasoning": "reasoning",
    "call": "calls",
    "result": "results, or what is left of them",
    "media": "images and documents",
    "opaque": "blocks of an unknown kind",
}


def why_it_stays(
    history: History,
    position: int,
    unseen_from: int,
    first_user: tuple[int, int],
    pin_label: Callable[[int], str | None],
) -> str | None:
    """Why no pass may touch a part at an epoch, in a few words; None: it may."""
    part = history.parts[position]
    if part.speaker == "system":
        return SYSTEM
    if first_user[0] <= position < first_user[1]:
        return FIRST
    if position >= unseen_from:
        return UNSEEN
    return SERVER if part.server else pin_label(position)


def in_the_way(
    parts: Sequence[Part], sizes: Sequence[int], why: Callable[[int], str | None], head: int = 0
) -> tuple[tuple[str, int], ...]:
    """What a projection is made of, by why it stays, the largest first; together all its tokens.

    `sizes` are the parts' tokens in the projection: 0 for what is gone. What nothing protects is
    told by its kind: it stays because nothing more can be done to it.
    """
    found = {HEAD: head}
    for position, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        if size > 0:
            what = why(position) or _REST[part.kind]
            found[what] = found.get(what, 0) + size
    told = ((what, size) for what, size in found.items() if size > 0)
    return tuple(sorted(told, key=lambda one: (-one[1], one[0])))


# --- images and files that make room -----------------------------------------------------------


class Held(Struct, frozen=True):
    """An image or a file that stands in the projection."""

    part: int
    speaker: Speaker
    unit: Literal["image", "file"]
    bytes: int  # about, in the body
    side: int  # pixels of its longer side; 0: not known
    ref: str  # the reference of its original: its block as JSON, without marks
    is_fixed: bool = False  # no text may stand in its place

    def marker(self, fetch: str | None = None) -> str:
        """The text that stands where it stood."""
        why = f"{self.side} px on its longer side" if self.side else ""
        return str(Short(1, self.unit, self.ref, reason=why, fetch_tool=fetch))

    def shortest_marker(self) -> str:
        """The least that leads back to it."""
        return str(Short(1, self.unit, self.ref))


def held(position: int, part: Part, message: JSON) -> Held | None:
    """The image or file that a part of this message is; None: it is something else."""
    found = attachment_of(message, part)
    if found is None:
        return None
    size, ref = len(found.original), reference(found.original)
    return Held(position, part.speaker, found.unit, size, found.max_side, ref, found.is_fixed)


def to_leave_out(
    present: Sequence[Held], limits: Limits, bytes: int, can_go: Callable[[int], bool]
) -> tuple[int, ...]:
    """The parts to put markers in place of, so that number, size and bytes are in their limits.

    `bytes` are those of the whole body; `may_go` says of a part that a marker may take its place.
    Those in results go before those that the user sent, the oldest first. If all that may go is
    not enough, it goes nevertheless, and `pressure` tells what is left.
    """
    free = [one for one in present if not one.is_fixed and can_go(one.part)]
    queue = sorted(free, key=lambda one: (one.speaker != "tool", one.part))
    gone = _by_number(present, queue, limits)
    gone |= _by_side(present, queue, limits, gone)
    gone |= _by_bytes(queue, limits, bytes, gone)
    return tuple(sorted(one.part for one in gone))


def _by_number(standing: Sequence[Held], queue: Sequence[Held], limits: Limits) -> set[Held]:
    """Images that go because there are too many."""
    over = pressure(limits, images=len(_pictures(standing))).of("images")
    return set(_pictures(queue)[: over.excess]) if over else set()


def _by_side(
    standing: Sequence[Held], queue: Sequence[Held], limits: Limits, gone: set[Held]
) -> set[Held]:
    """Images that go because they are too large for a request with so many of them.

    One that must stay is allowed when there are few: then others go, until there are.
    """
    left = [one for one in _pictures(standing) if one not in gone]
    large = _larger(left, limits.max_side(len(left)))
    must_stay = large.difference(queue)
    if not must_stay or limits.many is None or _larger(must_stay, limits.side):
        return large.intersection(queue)
    first = _larger(large, limits.side)
    others = [one for one in _pictures(queue) if one not in gone and one not in first]
    return first | set(others[: max(0, len(left) - len(first) - limits.many)])


def _larger(images: Iterable[Held], side: int | None) -> set[Held]:
    return {one for one in images if side is not None and one.side > side}


def _by_bytes(queue: Sequence[Held], limits: Limits, bytes: int, gone: set[Held]) -> set[Held]:
    """Images and files that go because the body is too long."""
    over = pressure(limits, bytes=bytes - sum(one.bytes for one in gone)).of("bytes")
    found: set[Held] = set()
    excess = over.excess if over else 0
    for one in queue:
        if excess > 0 and one not in gone:
            found.add(one)
            excess -= one.bytes
    return found


def _pictures(among: Sequence[Held]) -> list[Held]:
    return [one for one in among if one.unit == "image"]
