"""Interface of the native library: signatures, structures, and one index of its own memory.

native/src/lib.rs is the other side. Texts go over as UTF-8 in which lone surrogates are encoded,
arrays as addresses; what comes back is copied before the next call. An index is not to be used by
two threads at once: `Mentions.lock` guards it.
"""

from __future__ import annotations

import ctypes
import re
import sys
from array import array
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, ClassVar, Final

from .accelerator import AcceleratorError, FlatFactors, IndexedState, ScaledFactors, Selection

ABI_VERSION: Final = 2  # of the signatures and meanings below
_ERRORS: Final = {-1: "invalid arguments", -2: "too many lines", -3: "a panic"}
_CLASSIFIED: Final = 0x40000  # code points; there are no letters or digits above
_COMPENSATED: Final = sys.version_info >= (3, 12)  # how `sum` adds floats
_STATE_SIZE: Final = 7
_Sums: Final = ctypes.c_double * 4


class Buffer(ctypes.Structure):
    """Bytes that the library holds until the next call."""

    start: int | None
    bytes: int
    _fields_: ClassVar = [("start", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]

    def copy(self) -> bytes:
        """A copy of these bytes."""
        return ctypes.string_at(self.start, self.bytes) if self.bytes and self.start else b""


class FactorTables(ctypes.Structure):
    """Addresses of the factors of two forecasts."""

    _fields_: ClassVar = [
        (name, ctypes.c_void_p) for name in ("whole", "whole_pairs", "names", "names_pairs")
    ]


class LineNeeds(ctypes.Structure):
    """The address of lines' factors, and what multiplies them (`ScaledFactors`)."""

    _fields_: ClassVar = [
        ("factors", ctypes.c_void_p),
        *((name, ctypes.c_double) for name in ("ratio", "rate", "limit")),
    ]


class SelectionRequest(ctypes.Structure):
    """The arguments of a selection of lines."""

    _fields_: ClassVar = [
        ("text", ctypes.c_char_p),
        ("size", ctypes.c_size_t),
        ("formats", ctypes.c_char_p),
        ("whole", LineNeeds),
        ("names", LineNeeds),
        ("count", ctypes.c_size_t),
        ("gone_before", ctypes.c_char_p),
        ("gone_count", ctypes.c_size_t),
        ("rate", ctypes.c_double),
        ("head_lines", ctypes.c_uint32),
        ("note_lines", ctypes.c_uint32),
        ("layout", ctypes.c_uint8),
        ("lists_names", ctypes.c_bool),
        ("keeps_outline", ctypes.c_bool),
        ("is_run", ctypes.c_bool),
        ("in_prose", ctypes.c_bool),
        ("compensated", ctypes.c_bool),
    ]


class SelectionAnswer(ctypes.Structure):
    """The lines that remain of a text."""

    text: Buffer
    removed: Buffer
    total: int
    risk: float
    are_parts: bool
    _fields_: ClassVar = [
        ("text", Buffer),
        ("removed", Buffer),
        ("total", ctypes.c_size_t),
        ("risk", ctypes.c_double),
        ("are_parts", ctypes.c_bool),
    ]


class RunSearch(ctypes.Structure):
    """A search for the next run of lines that an earlier part has."""

    _fields_: ClassVar = [
        ("lines", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("at", ctypes.c_size_t),
        ("end", ctypes.c_size_t),
        ("verdicts", ctypes.c_void_p),
        ("verdict_count", ctypes.c_size_t),
        ("before", ctypes.c_uint32),
        ("exact", ctypes.c_bool),
        ("is_restricted", ctypes.c_bool),
    ]


_LINE_NUMBERS: Final = 3  # of 32 bits, of a parsed line
_POINTER: Final = ctypes.c_void_p
_SIZE: Final = ctypes.c_size_t
_TEXT: Final = (ctypes.c_char_p, ctypes.c_size_t)
_SIGNATURES: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "respool_abi_version": (ctypes.c_uint32, ()),
    "respool_set_classes": (ctypes.c_int64, (_POINTER, _SIZE, _POINTER, _SIZE)),
    "respool_classes_of": (ctypes.c_int64, (ctypes.c_uint32,)),
    "respool_index_new": (_POINTER, ()),
    "respool_index_free": (None, (_POINTER,)),
    "respool_index_bytes": (ctypes.c_int64, (_POINTER,)),
    "respool_note_result": (ctypes.c_int64, (_POINTER, *_TEXT, ctypes.c_int32, _POINTER)),
    "respool_take_up": (ctypes.c_int64, (_POINTER, *_TEXT, ctypes.c_int32, ctypes.c_bool)),
    "respool_last_mention": (ctypes.c_int64, (_POINTER, *_TEXT, _POINTER)),
    "respool_refresh": (ctypes.c_int64, (_POINTER, _SIZE, _POINTER)),
    "respool_codes": (ctypes.c_int64, (_POINTER, _SIZE, _POINTER)),
    "respool_missing": (ctypes.c_int64, (_POINTER, _SIZE, *_TEXT, *_TEXT, _POINTER)),
    "respool_line_shares": (
        ctypes.c_int64,
        (_POINTER, _SIZE, _POINTER, ctypes.c_char_p, _POINTER, _POINTER, _SIZE),
    ),
    "respool_removed_sums": (
        ctypes.c_int64,
        (_POINTER, _POINTER, _SIZE, *_TEXT, ctypes.c_bool, _POINTER),
    ),
    "respool_lines_new": (_POINTER, ()),
    "respool_lines_free": (None, (_POINTER,)),
    "respool_lines_bytes": (ctypes.c_int64, (_POINTER,)),
    "respool_lines_add": (ctypes.c_int64, (_POINTER, ctypes.c_uint32, *_TEXT)),
    "respool_lines_can_occur_before": (ctypes.c_int64, (_POINTER, ctypes.c_uint32, *_TEXT)),
    "respool_lines_parse": (ctypes.c_int64, (_POINTER, *_TEXT, _POINTER, _SIZE)),
    "respool_lines_next_run": (ctypes.c_int64, (_POINTER, _POINTER, _POINTER)),
    "respool_select_lines": (ctypes.c_int64, (_POINTER, _SIZE, _POINTER, _POINTER)),
    "respool_known_tokens": (
        ctypes.c_int64,
        (*_TEXT, _POINTER, _SIZE, *_TEXT, _POINTER, _SIZE, _POINTER),
    ),
}


def load_library(path: str) -> Any:
    """The library at a path, ready for use; an error if it is none, or of another version."""
    library = ctypes.CDLL(path)
    try:
        found = int(library.respool_abi_version())
    except AttributeError:
        raise AcceleratorError(f"{path} is not respool's library") from None
    if found != ABI_VERSION:
        raise AcceleratorError(f"{path} has interface {found}, not {ABI_VERSION}: build it again")
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    characters = array("I", range(_CLASSIFIED)).tobytes()
    text = characters.decode(f"utf-32-{sys.byteorder[0]}e", "surrogatepass")
    word, digit = _class_ranges(r"\w+", text), _class_ranges(r"\d+", text)
    status = library.respool_set_classes(_address(word), len(word), _address(digit), len(digit))
    _check(status)
    return library


def _class_ranges(pattern: str, text: str) -> array[int]:
    """The first and last code points of the ranges that a pattern matches."""
    return array(
        "I", [at for one in re.finditer(pattern, text) for at in (one.start(), one.end() - 1)]
    )


def _address(values: array[Any]) -> int:
    return values.buffer_info()[0]


def _check(status: int) -> int:
    if status < 0:
        raise AcceleratorError(f"the native library returned {_ERRORS.get(status, status)}")
    return status


def encode_text(text: str) -> bytes:
    """A text as the library reads it."""
    return text.encode("utf-8", "surrogatepass")


def doubles(values: Sequence[float]) -> array[float]:
    """These numbers as an array."""
    return values if isinstance(values, array) else array("d", values)


def _scaled(values: Sequence[float]) -> ScaledFactors:
    """These numbers as factors in an array."""
    if isinstance(values, ScaledFactors):
        return values
    return ScaledFactors(doubles(values), ratio=1.0, rate=1.0, limit=inf)


def _needs(values: ScaledFactors) -> LineNeeds:
    """These factors as the library reads them."""
    factors = doubles(values.factors)
    assert factors is values.factors  # else nothing holds the array
    return LineNeeds(_address(factors), values.ratio, values.rate, values.limit)


class NativeIndex:
    """An index of one conversation's words and lines in the library's memory."""

    def __init__(self, library: Any) -> None:
        self._library, self._handle = library, None
        self._handle = library.respool_index_new()
        if not self._handle:
            raise AcceleratorError("the native library has no memory")
        self._found = Buffer()
        self._state = (ctypes.c_int32 * _STATE_SIZE)()

    def __del__(self) -> None:
        """Free the index."""
        handle, self._handle = self._handle, None
        if handle:
            self._library.respool_index_free(handle)

    @property
    def size_bytes(self) -> int:
        """Bytes in memory."""
        return _check(self._library.respool_index_bytes(self._handle))

    def note_result(self, text: str, unit: int) -> tuple[int, bytes]:
        """Add a result; return its number, and the format codes of its lines."""
        data, found = encode_text(text), self._found
        number = _check(
            self._library.respool_note_result(
                self._handle, data, len(data), unit, ctypes.addressof(found)
            )
        )
        return number, found.copy()

    def take_up(self, text: str, unit: int, *, called: bool) -> int:
        """Record the words of a call or message; return the late uses by now."""
        data = encode_text(text)
        return _check(self._library.respool_take_up(self._handle, data, len(data), unit, called))

    def last_mention(self, name: str) -> int:
        """The last unit in which a call or message named a file; -1 if none."""
        data, unit = encode_text(name), ctypes.c_int32(-1)
        _check(
            self._library.respool_last_mention(
                self._handle, data, len(data), ctypes.addressof(unit)
            )
        )
        return unit.value

    def refresh(self, number: int) -> IndexedState:
        """Encode the lines of a result that changed; return how it stands."""
        state = self._state
        _check(self._library.respool_refresh(self._handle, number, ctypes.addressof(state)))
        return IndexedState(bool(state[0]), *state[1:])

    def codes(self, number: int) -> tuple[array[int], bytes]:
        """The codes of a result's lines, and by line: 1 if a call used it, 2 if a message did."""
        found = self._found
        lines = _check(self._library.respool_codes(self._handle, number, ctypes.addressof(found)))
        data = found.copy()
        return array("H", data[: 2 * lines]), data[2 * lines :]

    def missing(self, number: int, original: str, text: str) -> bytes:
        """By line of a result: if a text lacks it, and how."""
        before, after = encode_text(original), encode_text(text)
        _check(
            self._library.respool_missing(
                self._handle,
                number,
                before,
                len(before),
                after,
                len(after),
                ctypes.addressof(self._found),
            )
        )
        return self._found.copy()

    def line_shares(
        self, number: int, formats: bytes, *, whole: FlatFactors, names: FlatFactors
    ) -> tuple[array[float], array[float]]:
        """The factors of a result's lines: for lines as such, and for names."""
        count = len(formats)
        shares = array("d", bytes(8 * count)), array("d", bytes(8 * count))
        tables = FactorTables(
            *(_address(one) for one in (whole.tables, whole.pairs, names.tables, names.pairs))
        )
        _check(
            self._library.respool_line_shares(
                self._handle,
                number,
                ctypes.addressof(tables),
                formats,
                *map(_address, shares),
                count,
            )
        )
        return shares

    def removed_sums(
        self, whole: Sequence[float], names: Sequence[float], lacks: bytes
    ) -> tuple[float, float, float, float]:
        """The sums of removed lines' factors, as such and for names; the largest of all lines."""
        whole, names, sums = doubles(whole), doubles(names), _Sums()
        _check(
            self._library.respool_removed_sums(
                _address(whole),
                _address(names),
                min(len(whole), len(names)),
                lacks,
                len(lacks),
                _COMPENSATED,
                sums,
            )
        )
        return tuple(sums)

    def select_lines(
        self,
        number: int,
        text: str,
        formats: bytes,
        *,
        whole: Sequence[float],
        names: Sequence[float],
        gone_before: bytes,
        **asked: float,
    ) -> Selection | None:
        """Select the lines of a result to keep; None if all stay."""
        data, both = encode_text(text), (_scaled(whole), _scaled(names))
        request = SelectionRequest(
            text=data,
            size=len(data),
            formats=formats,
            whole=_needs(both[0]),
            names=_needs(both[1]),
            count=min(map(len, both)),
            gone_before=gone_before,
            gone_count=len(gone_before),
            compensated=_COMPENSATED,
            **asked,
        )
        found = SelectionAnswer()
        cut = _check(
            self._library.respool_select_lines(
                self._handle, number, ctypes.addressof(request), ctypes.addressof(found)
            )
        )
        if not cut:
            return None
        return Selection(
            found.text.copy().decode("utf-8", "surrogatepass"),
            array("I", found.removed.copy()),
            found.total,
            found.risk,
            found.are_parts,
        )


class NativeLines:
    """An index of the lines of one conversation in the library's memory."""

    def __init__(self, library: Any) -> None:
        self._library, self._handle = library, None
        self._handle = library.respool_lines_new()
        if not self._handle:
            raise AcceleratorError("the native library has no memory")

    def __del__(self) -> None:
        """Free the index."""
        handle, self._handle = self._handle, None
        if handle:
            self._library.respool_lines_free(handle)

    @property
    def size_bytes(self) -> int:
        """Bytes in memory."""
        return _check(self._library.respool_lines_bytes(self._handle))

    def add(self, position: int, text: str) -> None:
        """Index the lines of a part; parts come in history order."""
        data = encode_text(text)
        _check(self._library.respool_lines_add(self._handle, position, data, len(data)))

    def can_occur_before(self, position: int, text: str) -> bool:
        """Check whether an earlier part has a line of this one."""
        data = encode_text(text)
        return bool(
            _check(
                self._library.respool_lines_can_occur_before(
                    self._handle, position, data, len(data)
                )
            )
        )

    def parse(self, text: str) -> array[int]:
        """The lines of a text, as a search needs them."""
        data, count = encode_text(text), text.count("\n") + 1
        lines = array("I", bytes(4 * _LINE_NUMBERS * count))
        _check(
            self._library.respool_lines_parse(self._handle, data, len(data), _address(lines), count)
        )
        return lines

    def next_run(
        self,
        lines: array[int],
        at: int,
        end: int,
        *,
        before: int,
        exact: bool,
        min_lines: Mapping[int, int],
        is_restricted: bool,
    ) -> tuple[int, int, int, int]:
        """Find the next run of lines that an earlier part has.

        `min_lines` has the shortest run by part, 0 where none is wanted; a part that is not in it
        is no source if the search `is_restricted`. Returns 0 (none), 1 (a run: its first line, its
        end and its part) or 2 (the line where the search stopped for a part that is not known).
        """
        verdicts = array("I", [number for one in min_lines.items() for number in one])
        search = RunSearch(
            lines=_address(lines),
            count=len(lines) // _LINE_NUMBERS,
            at=at,
            end=end,
            verdicts=_address(verdicts),
            verdict_count=len(min_lines),
            before=before,
            exact=exact,
            is_restricted=is_restricted,
        )
        found = (ctypes.c_uint64 * 3)()
        outcome = _check(
            self._library.respool_lines_next_run(
                self._handle, ctypes.addressof(search), ctypes.addressof(found)
            )
        )
        return outcome, found[0], found[1], found[2]


def find_known_tokens(
    library: Any, original: str, known: array[int], text: str
) -> tuple[int, Sequence[str]]:
    """The tokens of a text's lines that the original has, and the other lines.

    `known` are the tokens of the original's lines.
    """
    before, data, total = encode_text(original), encode_text(text), ctypes.c_uint64()
    spans = array("I", bytes(8 * (data.count(b"\n") + 1)))
    count = _check(
        library.respool_known_tokens(
            before,
            len(before),
            _address(known),
            len(known),
            data,
            len(data),
            _address(spans),
            len(spans),
            ctypes.addressof(total),
        )
    )
    ends = zip(spans[0 : 2 * count : 2], spans[1 : 2 * count : 2], strict=True)
    if len(data) == len(text):
        return total.value, [text[start:end] for start, end in ends]
    return total.value, [data[start:end].decode("utf-8", "surrogatepass") for start, end in ends]
