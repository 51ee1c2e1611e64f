"""Compaction of one record: a request, a list of messages, or a row with one of them in a field.

The rest of a record stays as it is. Figures are added in fields of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from ..compaction.memo import Memo
from ..compaction.window import raise_over_budget
from ..engine import build_compaction, edits_in_force, fold_request
from ..errors import PassedThrough, RespoolError
from ..facts import Facts
from ..policy import Policy
from ..wire.base import history_fields
from ..wire.json import JSON

BEFORE, AFTER, ORIGINALS = (
    "respool_tokens_before",
    "respool_tokens_after",
    "respool_originals",
)
_NO_FACTS = Facts()
_RAW_FIELDS = dict[str, msgspec.Raw]
_TEXT_LIMIT = 64  # characters of a text in which a JSON list or object begins


class RejectedRecord(ValueError):
    """The reason why a record is set aside."""


class RecordOptions(Struct, frozen=True, kw_only=True):
    """Place and format of the request in a record, and the policy."""

    policy: Policy
    column: str | None = None  # None: the record is the request
    format: str | None = None
    with_originals: bool = False


class CompactedRecord(Struct, frozen=True):
    """A record with a smaller request, and its figures."""

    data: bytes | dict[str, Any]
    before: int
    after: int
    originals: Mapping[str, str]
    untouched: bool  # its history must not be changed
    edits: Mapping[str, tuple[int, int]]  # by reason: their number and the tokens that they save
    changed: tuple[str, ...] = ()  # columns of a row

    def figures(self, with_originals: bool) -> dict[str, Any]:
        """The fields beside the record."""
        found: dict[str, Any] = {BEFORE: self.before, AFTER: self.after}
        return {**found, ORIGINALS: dict(self.originals)} if with_originals else found


class _Projection(Struct, frozen=True):
    request: bytes
    before: int = 0
    after: int = 0
    originals: Mapping[str, str] = {}
    untouched: bool = False
    edits: Mapping[str, tuple[int, int]] = {}

    def record(
        self, data: bytes | dict[str, Any], changed: tuple[str, ...] = ()
    ) -> CompactedRecord:
        return CompactedRecord(
            data,
            self.before,
            self.after,
            self.originals,
            self.untouched,
            self.edits,
            changed,
        )


def compact_record(
    data: bytes | dict[str, Any] | None, options: RecordOptions, memo: Memo
) -> CompactedRecord:
    """Compact a record; raises RejectedRecord for one that cannot be."""
    try:
        if data is None:
            raise RejectedRecord("it is longer than a record may be")
        if isinstance(data, dict):
            return _compact_row(data, options, memo)
        if options.column is None:
            return _compact_line(data.strip(), options, memo)
        return _compact_field(data, options.column, options, memo)
    except RejectedRecord:
        raise
    except RespoolError as error:
        raise RejectedRecord(str(error)) from error
    except MemoryError as error:
        raise RejectedRecord("it needs more memory than there is") from error
    except RecursionError as error:
        raise RejectedRecord("it is nested too deeply") from error
    except Exception as error:
        said = " ".join(str(error).split())
        raise RejectedRecord(f"{type(error).__name__}: {said}") from error


def _project(request: bytes, options: RecordOptions, memo: Memo) -> _Projection:
    """Project a request; one whose history must not be changed stays as it is."""
    try:
        folded = fold_request(
            request,
            format=options.format,
            policy=options.policy,
            facts=_NO_FACTS,
            memo=memo,
        )
    except PassedThrough:
        return _Projection(request, untouched=True)
    made = build_compaction(folded, request)
    raise_over_budget(folded.state, folded.context, made.report)
    counted, saved = Counter[str](), Counter[str]()
    for edit in edits_in_force(folded.state):
        counted[edit.reason] += 1
        saved[edit.reason] += edit.saved
    return _Projection(
        made.request,
        folded.tokens_before,
        folded.tokens_after,
        made.originals if options.with_originals else {},
        edits={reason: (counted[reason], saved[reason]) for reason in sorted(counted)},
    )


def _compact_line(line: bytes, options: RecordOptions, memo: Memo) -> CompactedRecord:
    """A line that is a request, or a bare list of messages."""
    if not line.startswith(b"["):
        _refuse_figures(line)
        made = _project(line, options, memo)
        return made.record(made.request)
    made = _project(line, options, memo)
    return made.record(b'{"messages":' + made.request + b"}")


_OWN_FIELDS = frozenset((BEFORE, AFTER, ORIGINALS))


def _refuse_figures(line: bytes) -> None:
    """Refuse a line that has respool's own fields already; a text may name them."""
    if b'"respool_' in line and (own := _OWN_FIELDS & _fields(line).keys()):
        raise RejectedRecord(f"it has a field {min(own)} already")


def _fields(line: bytes) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(line, type=_RAW_FIELDS)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RejectedRecord(f"it is no JSON object: {error}") from None


def _compact_field(line: bytes, column: str, options: RecordOptions, memo: Memo) -> CompactedRecord:
    """A line with its request in a field, as JSON or as text."""
    _refuse_figures(line)
    fields = _fields(line)
    if column not in fields:
        raise RejectedRecord(f"it has no field {column!r}")
    raw = bytes(fields[column])
    is_text = raw.startswith(b'"')
    made = _project(_decode_text(raw) if is_text else raw, options, memo)
    sent = msgspec.json.encode(made.request.decode()) if is_text else made.request
    fields[column] = msgspec.Raw(sent)
    return made.record(msgspec.json.encode(fields))


def _decode_text(raw: bytes) -> bytes:
    return msgspec.json.decode(raw, type=str).encode()


def _compact_row(row: dict[str, Any], options: RecordOptions, memo: Memo) -> CompactedRecord:
    """A row of Parquet: its request is in a column, or its columns are the request's fields."""
    if own := _OWN_FIELDS & row.keys():
        raise RejectedRecord(f"it has a column {min(own)} already")
    column = options.column
    if column is None:
        return _compact_columns(row, options, memo)
    if row.get(column) is None:
        raise RejectedRecord(f"it has no value in the column {column!r}")
    made = _project(_request_bytes(row[column]), options, memo)
    return made.record({**row, column: _like(row[column], made.request)}, (column,))


def _compact_columns(row: dict[str, Any], options: RecordOptions, memo: Memo) -> CompactedRecord:
    """A row whose columns are a request's fields; lists and objects may be texts of JSON."""
    if not any(row.get(name) is not None for name in history_fields()):
        raise RejectedRecord(f"it has no value in any of the columns {', '.join(history_fields())}")
    fields = _row_fields(row)
    request = _join_fields(fields)
    made = _project(request, options, memo)
    if made.request is request:
        return made.record(row)
    sent = _fields(made.request)
    if new := sent.keys() - row.keys():
        raise RejectedRecord(f"its projection needs a column {min(new)!r}")
    changed = {
        name: _like(row[name], bytes(raw))
        for name, raw in sent.items()
        if bytes(raw) != fields.get(name)
    }
    return made.record({**row, **changed}, tuple(changed))


def row_bytes(row: dict[str, Any]) -> bytes:
    """A row as a line of JSON; texts of JSON lists and objects are those."""
    return _join_fields(_row_fields(row))


def _row_fields(row: dict[str, Any]) -> dict[str, bytes]:
    return {name: _field(value) for name, value in row.items() if value is not None}


def _join_fields(fields: dict[str, bytes]) -> bytes:
    members = (msgspec.json.encode(name) + b":" + raw for name, raw in fields.items())
    return b"{" + b",".join(members) + b"}"


def _field(value: object) -> bytes:
    if isinstance(value, str) and value[:_TEXT_LIMIT].lstrip().startswith(("[", "{")):
        text = value.encode()
        if b"\n" not in text and _is_json(text):
            return text
    return msgspec.json.encode(without_nulls(value))


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _request_bytes(value: object) -> bytes:
    """The request in a column: a text of JSON, bytes of it, or nested values."""
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else msgspec.json.encode(without_nulls(value))


def _like(before: object, request: bytes) -> object:
    """A projection, encoded as the request was in its column."""
    if isinstance(before, str):
        return request.decode()
    return request if isinstance(before, bytes) else msgspec.json.decode(request)


def without_nulls(value: object) -> JSON:
    """A nested value without the fields that only other rows have."""
    if isinstance(value, dict):
        fields = cast(dict[str, object], value)
        return {name: without_nulls(one) for name, one in fields.items() if one is not None}
    if isinstance(value, list):
        return [without_nulls(one) for one in cast(list[object], value)]
    return cast(JSON, value)
