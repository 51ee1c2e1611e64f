"""Byte layout of a request: offsets of its messages, lazily decoded fields, and LRU caches."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from threading import Lock
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
import xxhash
from msgspec import Struct

from ..errors import PassedThrough, PlainText, UnreadableRequest
from ..regex import lazy_compile
from .base import (
    PLAIN_TEXT_MESSAGE,
    Fields,
    Piece,
    SourceRun,
    history_fields,
    known_formats,
    no_history_error,
)
from .json import decode_json, describe_json_error

Offsets: TypeAlias = "array[int]"
Spans: TypeAlias = "tuple[Offsets, Offsets]"  # start and end offsets of each message

_WHITESPACE = b" \t\r\n"
_BETWEEN = lazy_compile(rb"[\s,]*")
_OPENING = lazy_compile(rb"\s*:\s*\[")


def candidate_spans(body: bytes, field: str | None, raws: list[msgspec.Raw]) -> Iterator[Spans]:
    """Candidate offsets of the messages, for every array in the body that holds the same."""
    key = f'"{field}"'.encode()
    at = body.find(key) if field is not None else body.index(b"[")
    while at >= 0:
        opening = _OPENING.match(body, at + len(key)) if field is not None else None
        start = opening.end() if opening else at + 1
        found = spans_from(body, start, raws) if opening or field is None else None
        if found is not None:
            yield found
        at = body.find(key, at + 1) if field is not None else -1


def spans_from(body: bytes, at: int, raws: list[msgspec.Raw]) -> Spans | None:
    """The spans of these messages, if they and the end of the array follow here."""
    gap = _BETWEEN.match(body, at)
    start = gap.end() if gap else at
    if not body.startswith(bytes(raws[0]), start):
        return None
    if len(raws) == 1:
        end = start + len(raws[0])
        return (_offsets([start]), _offsets([end])) if _is_closed(body, end) else None
    return _even_spans(body, start, raws) or _compared_spans(body, start, raws)


def _even_spans(body: bytes, start: int, raws: list[msgspec.Raw]) -> Spans | None:
    """The spans if all separators are as long as the first, as serialisers write them."""
    first_gap = _BETWEEN.match(body, start + len(raws[0]))
    width = first_gap.end() - first_gap.start() if first_gap and len(raws) > 1 else 0
    starts = list(accumulate((len(raw) + width for raw in raws), initial=start))
    starts.pop()
    ends = [at + len(raw) for at, raw in zip(starts, raws, strict=True)]
    last = bytes(raws[-1])
    if not body.startswith(last, starts[-1]) or not _is_closed(body, ends[-1]):
        return None
    gap = body[ends[0] : ends[0] + width]
    if any(
        body[e:s] != gap or body[s] in _WHITESPACE for e, s in zip(ends, starts[1:], strict=False)
    ):
        return None
    return _offsets(starts), _offsets(ends)


def _offsets(values: Sequence[int] = ()) -> Offsets:
    return array("q", values)


def _compared_spans(body: bytes, start: int, raws: list[msgspec.Raw]) -> Spans | None:
    """The spans with separators of any length, each message compared."""
    starts: list[int] = []
    ends: list[int] = []
    for raw in raws:
        gap = _BETWEEN.match(body, start)
        at = gap.end() if gap else start
        if not body.startswith(bytes(raw), at):
            return None
        start = at + len(raw)
        starts.append(at)
        ends.append(start)
    return (_offsets(starts), _offsets(ends)) if _is_closed(body, start) else None


def _is_closed(body: bytes, at: int) -> bool:
    gap = _BETWEEN.match(body, at)
    return gap is not None and body[gap.end() : gap.end() + 1] == b"]"


_T = TypeVar("_T")


_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_EMPTIED_HISTORY = lazy_compile(rb"\[\s*0\s*\]\Z")  # the history with its messages left out
_MAX_COMPLETED = 16  # combinations of extra fields that are kept


class LazyFields(dict[str, Any]):
    """The request's fields beside the history, each decoded when it is read."""

    def __init__(self, raws: dict[str, msgspec.Raw], history: str) -> None:
        super().__init__({key: raw for key, raw in raws.items() if key != history})
        self._raws = raws
        self._history = history
        self._heads: dict[tuple[str, ...], bytes] = {}
        self._extended: dict[tuple[tuple[str, str | int], ...], LazyFields] = {}
        self.derived: dict[Hashable, Any] = {}  # cached values computed from the fields alone

    def with_extra(self, more: Mapping[str, str | int]) -> LazyFields:
        """The same fields with extra ones, such as the model that a URL names."""
        key = tuple(more.items())
        found = self._extended.get(key)
        if found is None:
            if len(self._extended) >= _MAX_COMPLETED:
                self._extended.clear()
            raws = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in more.items()}
            found = self._extended[key] = LazyFields({**self._raws, **raws}, self._history)
        return found

    def raw(self, key: str) -> msgspec.Raw:
        """The field's own bytes."""
        return self._raws[key]

    def head(self, names: Sequence[str]) -> bytes:
        """The joined bytes of these fields, computed once."""
        key = tuple(names)
        if key not in self._heads:
            self._heads[key] = b"|".join(bytes(self._raws[name]) for name in key if name in self)
        return self._heads[key]

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, msgspec.Raw):
            value = decode_json(value, f"field {key!r}")
            self[key] = value
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """The field, decoded, or the default."""
        return self[key] if key in self else default  # noqa: SIM401 (dict.get decodes nothing)


def cached_on_fields(fields: Fields, key: str, compute: Callable[[], _T]) -> _T:
    """A value computed from a request's fields alone, cached on fields that last."""
    if not isinstance(fields, LazyFields):
        return compute()
    known = fields.derived
    if key not in known:
        known[key] = compute()
    return known[key]


def _raw_fields(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _FIELDS.decode(body)
    except (msgspec.DecodeError, ValueError) as error:
        raise UnreadableRequest(
            f"The JSON is malformed: {describe_json_error(error, body)}."
        ) from error


class SplicedBody(Struct, frozen=True):
    """A body as it was sent, and the first pieces it was spliced from.

    Only pieces that determine their bytes are kept.
    """

    out: bytes
    pieces: list[Piece]
    stops: list[int]  # the offset where each piece ends

    def truncate(self, shared: int) -> SplicedBody:
        """The part made of the first source messages, or of bytes of its own."""
        count = len(self.pieces) if shared > 1 else 0  # otherwise separators may differ
        while count and not _is_within(self.pieces[count - 1], shared):
            count -= 1
        return SplicedBody(self.out, self.pieces[:count], self.stops[:count])


def _is_within(piece: Piece, shared: int) -> bool:
    last = piece.stop - 1 if isinstance(piece, SourceRun) else piece.source
    return last is not None and last < shared


class Layout(Struct):
    """The bytes of a request, and where its messages start and end in them."""

    body: bytes
    history_field: str | None  # None: the body is a bare list
    starts: Offsets
    ends: Offsets
    fields: LazyFields | None
    breakpoint_rows: list[int]  # the messages that may carry cache breakpoints
    shared_count: int = 0  # leading messages shared with the layout it extends
    prefix_keys: list[bytes] = []  # hashes of prefixes of its history, as far as computed
    spliced: SplicedBody | None = None  # the body as it was sent


class RequestFrame(Struct, frozen=True):
    """The bytes around the history of a request, and its fields."""

    before: bytes
    after: bytes
    history_field: str
    fields: LazyFields


def frame_of(layout: Layout) -> RequestFrame | None:
    """The frame of a layout; None if there is no message or no field."""
    if not layout.starts or layout.history_field is None or layout.fields is None:
        return None
    before, after = layout.body[: layout.starts[0]], layout.body[layout.ends[-1] :]
    return RequestFrame(before, after, layout.history_field, layout.fields)


def layout_in_frame(frame: RequestFrame, body: bytes) -> Layout | None:
    """The layout of a request that differs from a known one in nothing but its messages.

    Return None if it differs in more.
    """
    start, stop = len(frame.before), len(body) - len(frame.after)
    if start >= stop or not body.startswith(frame.before) or not body.endswith(frame.after):
        return None
    spans = _spans_of(body, start, body[start:stop])
    if spans is None:
        return None
    starts, ends = spans
    return Layout(
        body=body,
        history_field=frame.history_field,
        starts=starts,
        ends=ends,
        fields=frame.fields,
        breakpoint_rows=_breakpoint_rows(
            body, frame.history_field, starts=starts, ends=ends, first=0
        ),
    )


def parse_layout(body: bytes) -> Layout:
    """The layout of a request."""
    field, raws = _split_history(body)
    starts, ends, fields = _locate_messages(body, field, raws)
    return Layout(
        body=body,
        history_field=field,
        starts=starts,
        ends=ends,
        fields=fields,
        breakpoint_rows=_breakpoint_rows(body, field, starts=starts, ends=ends, first=0),
    )


def extend_layout(known: Layout, body: bytes) -> Layout | None:
    """The layout of a request that differs from a known one only in its last messages.

    Return None if it differs in more, or if the new part is ambiguous.
    """
    closing = memoryview(known.body)[known.ends[-1] :] if known.ends else memoryview(b"")
    shared = _count_shared_messages(known, body)
    if not shared or not body.endswith(closing):
        return None
    start, stop = known.ends[shared - 1], len(body) - len(closing)
    spans = _new_spans(body, start, stop)
    if spans is None:
        return None
    starts, ends = known.starts[:shared] + spans[0], known.ends[:shared] + spans[1]
    rows = [at for at in known.breakpoint_rows if at < shared]
    rows += _breakpoint_rows(body, known.history_field, starts=starts, ends=ends, first=shared)
    keys = known.prefix_keys[: shared + 1]
    joined = None if known.spliced is None else known.spliced.truncate(shared)
    return Layout(
        body=body,
        history_field=known.history_field,
        starts=starts,
        ends=ends,
        fields=known.fields,
        breakpoint_rows=rows,
        shared_count=shared,
        prefix_keys=keys,
        spliced=joined,
    )


def _count_shared_messages(known: Layout, body: bytes) -> int:
    """The number of leading messages that both have, at the same offsets."""
    view, starts, ends = memoryview(known.body), known.starts, known.ends
    if not ends or not body.startswith(view[: starts[0]]):
        return 0
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high + 1) // 2
        start = ends[low - 1] if low else starts[0]
        if body.startswith(view[start : ends[middle - 1]], start):
            low = middle
        else:
            high = middle - 1
    return low


def _new_spans(body: bytes, start: int, stop: int) -> Spans | None:
    """The spans of the messages between the last known one and the end of the history."""
    if start > stop:
        return None
    text = body[start:stop].lstrip(_WHITESPACE)
    if not text:
        return _offsets(), _offsets()
    return _spans_of(body, start, text[1:]) if text.startswith(b",") else None


def _spans_of(body: bytes, start: int, text: bytes) -> Spans | None:
    """The spans of the messages with this text from an offset on; None if it is not valid JSON."""
    try:
        raws = _ARRAY.decode(b"[" + text + b"]")
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return spans_from(body, start, raws) if raws else None


def _breakpoint_rows(
    body: bytes, field: str | None, *, starts: Sequence[int], ends: Sequence[int], first: int
) -> list[int]:
    """The messages from this one on that may carry cache breakpoints."""
    if first >= len(starts):
        return []
    found = set[int]()
    for needle in _breakpoint_keys(field or "messages"):
        at = body.find(needle, starts[first], ends[-1])
        while at >= 0:
            holder = bisect_right(starts, at) - 1
            if at < ends[holder]:
                found.add(holder)
            at = body.find(needle, at + len(needle), ends[-1])
    return sorted(found)


@lru_cache(16)
def _breakpoint_keys(history_field: str) -> list[bytes]:
    """The JSON keys that set a cache breakpoint in such a history."""
    found = [one for one in known_formats().values() if one.history_field == history_field]
    names = dict.fromkeys(name for one in found for name in one.breakpoint_fields)
    return [f'"{name}"'.encode() for name in names]


def _locate_messages(
    body: bytes, field: str | None, raws: list[msgspec.Raw]
) -> tuple[Offsets, Offsets, LazyFields | None]:
    """Locate each message in the history, not in another array with the same content."""
    if not raws:
        fields = None if field is None else LazyFields(_raw_fields(body), field)
        return _offsets(), _offsets(), fields
    for starts, ends in candidate_spans(body, field, raws):
        if field is None:
            return starts, ends, None
        # The history is most of the body: leave it out.
        fields = LazyFields(_raw_fields(body[: starts[0]] + b"0" + body[ends[-1] :]), field)
        if _EMPTIED_HISTORY.match(fields.raw(field)):
            return starts, ends, fields
    raise PassedThrough(f"The field {field!r} is not spelled out in the body.")


def _split_history(body: bytes) -> tuple[str | None, list[msgspec.Raw]]:
    """The name of the history's field (None for a bare list) and its messages."""
    try:
        if body.lstrip(_WHITESPACE)[:1] == b"[":
            return None, _ARRAY.decode(body)
        envelope = _envelope_decoder(history_fields()).decode(body)
    except RecursionError as error:
        raise UnreadableRequest("The JSON is nested too deeply.") from error
    except msgspec.ValidationError as error:
        raise UnreadableRequest(f"This is no chat request: {error}.") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise UnreadableRequest(
            f"The JSON is malformed: {describe_json_error(error, body)}."
        ) from error
    for name in history_fields():
        history = getattr(envelope, name)
        if isinstance(history, list):
            return name, cast(list[msgspec.Raw], history)
        if isinstance(history, str):
            raise PlainText(PLAIN_TEXT_MESSAGE)
    raise no_history_error()


@lru_cache(4)
def _envelope_decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """A decoder of the history, as one slice a message, from whichever of these fields holds it."""
    text_fields = {one.history_field for one in known_formats().values() if one.allows_text_history}
    messages = list[msgspec.Raw] | msgspec.UnsetType
    kinds = {name: messages | str | None if name in text_fields else messages for name in names}
    fields = [(name, kind, msgspec.UNSET) for name, kind in kinds.items()]
    return msgspec.json.Decoder(msgspec.defstruct("Envelope", fields, gc=False))


# --- the cache ---------------------------------------------------------------------------------


_FRAME_KEY_BYTES: Final = 32  # leading bytes that are the key of a frame
_MAX_FRAMES_PER_KEY: Final = 4  # frames with the same key
_MIN_BYTES: Final = 8_192  # a shorter body is parsed whole
_SAMPLE_BYTES: Final = 512  # bytes of each sample
_MAX_LAYOUTS_PER_KEY: Final = 4  # layouts with the same samples
_FRAME_SHARE: Final = 8  # frames may take this fraction of the bytes, in addition


class FrameCache:
    """LRU cache of the frames of recent requests; thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._by_start: OrderedDict[bytes, tuple[RequestFrame, ...]] = OrderedDict()
        self._lock = Lock()

    def parse_layout(self, body: bytes) -> Layout:
        """The layout of a body; equal fields are the same object as in an earlier request."""
        start = body[:_FRAME_KEY_BYTES]
        for frame in self._by_start.get(start, ()):
            layout = layout_in_frame(frame, body)
            if layout is not None:
                return layout
        layout = parse_layout(body)
        frame = frame_of(layout)
        if frame is not None:
            self._insert(start, frame)
        return layout

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._by_start.clear()
            self._bytes = 0

    def _insert(self, start: bytes, frame: RequestFrame) -> None:
        with self._lock:
            before = self._by_start.pop(start, ())
            now = (frame, *before[: _MAX_FRAMES_PER_KEY - 1])
            self._by_start[start] = now
            self._bytes += _frame_bytes(now) - _frame_bytes(before)
            while self._bytes > self._max_bytes and self._by_start:
                self._bytes -= _frame_bytes(self._by_start.popitem(last=False)[1])


def _frame_bytes(frames: tuple[RequestFrame, ...]) -> int:
    """Approximate size: decoded fields are not counted."""
    return sum(len(one.before) + len(one.after) for one in frames)


class LayoutCache:
    """LRU cache of the layouts of recent requests; thread-safe."""

    def __init__(self, max_bytes: int = 64_000_000) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._by_sample: OrderedDict[bytes, tuple[Layout, ...]] = OrderedDict()
        self._frames = FrameCache(max_bytes // _FRAME_SHARE)
        self._lock = Lock()

    @property
    def size_bytes(self) -> int:
        """Approximate bytes of the bodies, and of what was sent for them."""
        return self._bytes

    def parse_layout(self, body: bytes) -> Layout:
        """The layout of a body; a prefix shared with a recent one is not parsed again."""
        if len(body) < _MIN_BYTES:
            return self._frames.parse_layout(body)
        sample = _sample_hash(body)
        found = [(extend_layout(known, body), known) for known in self._by_sample.get(sample, ())]
        known = [(one, of) for one, of in found if one is not None]
        layout, instead_of = max(known, key=_shared_count, default=(None, None))
        if layout is None:
            layout = self._frames.parse_layout(body)
        self._insert(sample, layout, instead_of)
        return layout

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._by_sample.clear()
            self._bytes = 0
        self._frames.clear()

    def _insert(self, sample: bytes, layout: Layout, instead_of: Layout | None) -> None:
        with self._lock:
            before = self._by_sample.pop(sample, ())
            others = [one for one in before if one is not instead_of][-(_MAX_LAYOUTS_PER_KEY - 1) :]
            now = (*others, layout)
            self._by_sample[sample] = now
            self._bytes += _layout_bytes(now) - _layout_bytes(before)
            while self._bytes > self._max_bytes and len(self._by_sample) > 1:
                self._bytes -= _layout_bytes(self._by_sample.popitem(last=False)[1])


def _sample_hash(body: bytes) -> bytes:
    """A hash of samples at offsets that a longer history leaves unchanged.

    Their distances grow, so the hash of a growing body seldom changes.
    """
    link, at = xxhash.xxh3_128(body[:_SAMPLE_BYTES]), _MIN_BYTES - _SAMPLE_BYTES
    while at + _SAMPLE_BYTES <= len(body):
        link.update(body[at : at + _SAMPLE_BYTES])
        at *= 4
    return link.digest()


def _shared_count(one: tuple[Layout, Layout]) -> int:
    return one[0].shared_count


def _layout_bytes(layouts: tuple[Layout, ...]) -> int:
    """Approximate size, with the body as it was sent: it is hardly ever longer."""
    return sum(2 * len(one.body) for one in layouts)
