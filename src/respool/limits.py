"""Limits of one request: tokens, bytes, images; overflow, and media to remove."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, cast

from msgspec import Struct, structs

from .errors import BudgetError
from .markers import OmissionMarker, reference
from .policy import Policy
from .pricing import terms_for
from .providers.attachments import attachment_of
from .providers.registry import PROVIDERS
from .transcript import Part, PartKind, ReadOnlyTranscript, Speaker
from .wire.base import wire_format
from .wire.json import JSON

LimitKind = Literal["tokens", "bytes", "images", "pixels"]
RequestFields = Mapping[str, Any]

# The listed window is a last resort: counts are estimates for most models, and a request that is
# over by one token is rejected. A client that compacts by itself does so well before this.
HIGH_WATER_RATIO: Final = 0.95
BYTES_PER_TOKEN: Final = 5  # of text in a body, approximately: JSON escapes some characters
# Every cut breaks the provider's cache, so it frees enough to last: three tenths of a window of
# 200,000 tokens are some tens of turns. A lower target removes more and gains nothing.
LOW_WATER_RATIO: Final = 0.7
# A client that asks for more output than this share of the window asks for all that is left.
MAX_OUTPUT_RATIO: Final = 0.5


class RequestLimits(Struct, frozen=True, kw_only=True):
    """Limits of one request; None: no limit, or an unknown one."""

    tokens: int | None = None  # the high water: above it, exchanges are removed down to `low`
    low: int | None = None
    source: Literal["budget", "window", ""] = ""  # of the limit: the policy, or the model
    bytes: int | None = None  # of the whole body
    images: int | None = None
    side: int | None = None  # pixels of an image's longer side
    many: int | None = None  # with more images than this, `side_of_many` applies
    side_of_many: int | None = None  # pixels of the longer side in a request with many images

    def max_side(self, images: int) -> int | None:
        """The longest side, in pixels, of an image in a request with this number of images."""
        return self.side_of_many if self.many is not None and images > self.many else self.side


class ExceededLimit(Struct, frozen=True):
    """One limit that is exceeded."""

    kind: LimitKind
    allowed: int
    reached: int
    target: int  # the size to reduce to

    @property
    def excess(self) -> int:
        """The amount to remove to reach the target."""
        return self.reached - self.target

    def error(self, blockers: Iterable[tuple[str, int]] = ()) -> BudgetError:
        """The error to raise when nothing more can be removed."""
        return BudgetError(self.kind, self.allowed, self.reached, blockers)


class Overflow(Struct, frozen=True):
    """All limits that are exceeded; false when none is."""

    exceeded: tuple[ExceededLimit, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.exceeded)

    def of(self, measure: LimitKind) -> ExceededLimit | None:
        """The excess of one limit; None: it is not exceeded."""
        return next((one for one in self.exceeded if one.kind == measure), None)


# --- allowed sizes -----------------------------------------------------------------------------


def limits_for(
    policy: Policy, format: str, fields: RequestFields | None, window: int | None = None
) -> RequestLimits:
    """The limits of a request; `window` was named by an overflow error of its conversation.

    >>> request = {"model": "claude-haiku-4-5", "max_tokens": 20_000}
    >>> limits_for(Policy(), "anthropic", request).tokens
    171000
    """
    # The budget may exceed a window that is only listed: a beta header can have widened it.
    listed = _listed_window(format, fields) if policy.budget is None else None
    max_window = min((one for one in (listed, window) if one is not None), default=None)
    high = (
        None
        if max_window is None
        else int(HIGH_WATER_RATIO * (max_window - reserved_tokens(fields, max_window)))
    )
    source = "" if high is None else "window"
    if policy.budget is not None and (high is None or policy.budget <= high):
        high, source = policy.budget, "budget"
    low = None if high is None else int(LOW_WATER_RATIO * high)
    media = structs.asdict(PROVIDERS[format].media_limits(fields))
    return RequestLimits(tokens=high, low=low, source=source, **media)


def reserved_tokens(fields: RequestFields | None, window: int) -> int:
    """The tokens of the window that a request keeps free for its output, thinking included."""
    return min(max_output_tokens(fields), int(MAX_OUTPUT_RATIO * window))


def max_output_tokens(fields: RequestFields | None) -> int:
    """The maximum output tokens that a request sets; 0: it sets none."""
    return max(_output_limits(fields or {}), default=0)


def window_for_prompt(prompt: int, fields: RequestFields | None) -> int:
    """The window that holds a prompt of this length and the output the request asks for.

    >>> limits_for(Policy(), "anthropic", {"max_tokens": 500}, 1_000).tokens
    475
    >>> asking = {"max_tokens": 500}
    >>> limits_for(Policy(), "anthropic", asking, window_for_prompt(1_000, asking)).tokens
    950
    """
    return prompt + min(max_output_tokens(fields), prompt)


_OUTPUT_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
_NESTED_FIELDS = ("generationConfig", "generation_config", "config")  # of Gemini, and of its SDK


def _output_limits(fields: RequestFields) -> list[int]:
    """All limits that a request sets for its output."""
    nested = (fields.get(name) for name in _NESTED_FIELDS)
    holders = [fields, *(cast(RequestFields, one) for one in nested if isinstance(one, Mapping))]
    values = (holder.get(name) for holder in holders for name in _OUTPUT_FIELDS)
    return [one for one in values if isinstance(one, int) and not isinstance(one, bool) and one > 0]


def _listed_window(format: str, fields: RequestFields | None) -> int | None:
    """The listed window of the request's model; None where no model is named.

    Gemini's address names the model, not its body; but its models all have the same window.
    """
    model = (fields or {}).get("model")
    named = isinstance(model, str) and model
    return (
        terms_for(format, model).window if named or wire_format(format).has_model_in_url else None
    )


# --- overflow ----------------------------------------------------------------------------------


def measure_overflow(
    limits: RequestLimits, *, tokens: int = 0, bytes: int = 0, images: int = 0, side: int = 0
) -> Overflow:
    """The limits that a request of this size exceeds; `side` is the longest side of all images.

    >>> measure_overflow(RequestLimits(tokens=1_000, low=700), tokens=1_200).exceeded[0].excess
    500
    """
    low = limits.tokens if limits.low is None else limits.low
    longest = limits.max_side(images)
    found = (
        _exceeded("tokens", limits.tokens, tokens, low),
        _exceeded("bytes", limits.bytes, bytes, _low_water(limits.bytes)),
        _exceeded("images", limits.images, images, _low_water(limits.images)),
        _exceeded("pixels", longest, side, longest),
    )
    return Overflow(tuple(one for one in found if one is not None))


def _exceeded(
    measure: LimitKind, allowed: int | None, reached: int, target: int | None
) -> ExceededLimit | None:
    if allowed is None or target is None or reached <= allowed:
        return None
    return ExceededLimit(measure, allowed, reached, target)


def _low_water(limit: int | None) -> int | None:
    return None if limit is None else int(LOW_WATER_RATIO * limit)


# --- blockers ----------------------------------------------------------------------------------

HEAD_LABEL: Final = "system prompt and tools"
UNSEEN_LABEL: Final = "what the model has not seen yet"
FIRST_USER_LABEL: Final = "first user message"
SYSTEM_LABEL: Final = "system messages"
SERVER_LABEL: Final = "what the provider ran itself"
_LABEL_BY_KIND: Final[Mapping[PartKind, str]] = {
    "text": "what was said",
    "reasoning": "reasoning",
    "call": "calls",
    "result": "results, or what is left of them",
    "media": "images and documents",
    "opaque": "blocks of an unknown kind",
}


def protection_label(
    history: ReadOnlyTranscript,
    position: int,
    unseen_from: int,
    first_user: tuple[int, int],
    pin_label: Callable[[int], str | None],
) -> str | None:
    """The label of the reason that no pass may edit a part at an epoch; None: a pass may."""
    part = history.parts[position]
    if part.speaker == "system":
        return SYSTEM_LABEL
    if first_user[0] <= position < first_user[1]:
        return FIRST_USER_LABEL
    if position >= unseen_from:
        return UNSEEN_LABEL
    return SERVER_LABEL if part.server else pin_label(position)


def tokens_by_blocker(
    parts: Sequence[Part], sizes: Sequence[int], why: Callable[[int], str | None], head: int = 0
) -> tuple[tuple[str, int], ...]:
    """Tokens of a projection by the reason they stay, the largest first.

    `sizes` are the parts' tokens in the projection: 0 for removed parts. Unprotected parts are
    listed by kind: nothing more can be removed from them.
    """
    found = {HEAD_LABEL: head}
    for position, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        if size > 0:
            label = why(position) or _LABEL_BY_KIND[part.kind]
            found[label] = found.get(label, 0) + size
    sizes_by_label = ((label, size) for label, size in found.items() if size > 0)
    return tuple(sorted(sizes_by_label, key=lambda one: (-one[1], one[0])))


# --- images and files to remove -----------------------------------------------------------------


class HeldMedia(Struct, frozen=True):
    """An image or a file in the projection."""

    part: int
    speaker: Speaker
    unit: Literal["image", "file"]
    bytes: int  # in the body, approximately
    side: int  # pixels of its longer side; 0: not known
    ref: str  # the reference of its original: its block as JSON, without cache breakpoints
    is_fixed: bool = False  # no text may replace it

    def marker(self, fetch: str | None = None) -> str:
        """The text that replaces it."""
        why = f"{self.side} px on its longer side" if self.side else ""
        return str(OmissionMarker(1, self.unit, self.ref, reason=why, fetch_tool=fetch))

    def shortest_marker(self) -> str:
        """The shortest text that names its reference."""
        return str(OmissionMarker(1, self.unit, self.ref))


def held_media(position: int, part: Part, message: JSON) -> HeldMedia | None:
    """The image or file in a part of this message; None: the part is of another kind."""
    found = attachment_of(message, part)
    if found is None:
        return None
    size, ref = len(found.original), reference(found.original)
    return HeldMedia(position, part.speaker, found.unit, size, found.max_side, ref, found.is_fixed)


def media_to_remove(
    present: Sequence[HeldMedia], limits: RequestLimits, bytes: int, can_go: Callable[[int], bool]
) -> tuple[int, ...]:
    """Select the parts to replace by markers until number, size and bytes are within limits.

    `bytes` are those of the whole body; `can_go` is true for a part that a marker may replace.
    Media in results are removed before media of the user, the oldest first. If all of them are
    not enough, they are removed nevertheless, and `measure_overflow` reports the rest.
    """
    free = [one for one in present if not one.is_fixed and can_go(one.part)]
    queue = sorted(free, key=lambda one: (one.speaker != "tool", one.part))
    gone = _excess_by_count(present, queue, limits)
    gone |= _excess_by_side(present, queue, limits, gone)
    gone |= _excess_by_bytes(queue, limits, bytes, gone)
    return tuple(sorted(one.part for one in gone))


def _excess_by_count(
    present: Sequence[HeldMedia], queue: Sequence[HeldMedia], limits: RequestLimits
) -> set[HeldMedia]:
    """Images above the allowed number."""
    over = measure_overflow(limits, images=len(_images_among(present))).of("images")
    return set(_images_among(queue)[: over.excess]) if over else set()


def _excess_by_side(
    present: Sequence[HeldMedia],
    queue: Sequence[HeldMedia],
    limits: RequestLimits,
    gone: set[HeldMedia],
) -> set[HeldMedia]:
    """Images that are too large for a request with this number of images.

    A large image that must stay is allowed among few images: then others are removed instead.
    """
    left = [one for one in _images_among(present) if one not in gone]
    large = _oversized(left, limits.max_side(len(left)))
    must_stay = large.difference(queue)
    if not must_stay or limits.many is None or _oversized(must_stay, limits.side):
        return large.intersection(queue)
    first = _oversized(large, limits.side)
    others = [one for one in _images_among(queue) if one not in gone and one not in first]
    return first | set(others[: max(0, len(left) - len(first) - limits.many)])


def _oversized(images: Iterable[HeldMedia], side: int | None) -> set[HeldMedia]:
    return {one for one in images if side is not None and one.side > side}


def _excess_by_bytes(
    queue: Sequence[HeldMedia], limits: RequestLimits, bytes: int, gone: set[HeldMedia]
) -> set[HeldMedia]:
    """Images and files to remove because the body is too long."""
    over = measure_overflow(limits, bytes=bytes - sum(one.bytes for one in gone)).of("bytes")
    found: set[HeldMedia] = set()
    excess = over.excess if over else 0
    for one in queue:
        if excess > 0 and one not in gone:
            found.add(one)
            excess -= one.bytes
    return found


def _images_among(media: Sequence[HeldMedia]) -> list[HeldMedia]:
    return [one for one in media if one.unit == "image"]
