"""Transcript files: head, records one at a time, and read errors, in bounded memory."""

from __future__ import annotations

import json
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO

import msgspec

from ..regex import lazy_compile
from ..wire.json import JSON

# A string, possibly truncated at the end, or a structural character.
_JSON_TOKEN = lazy_compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]:]', re.DOTALL)

_MAX_FIELDS = 200  # fields inspected

HEAD_BYTES = 65_536  # inspected to choose a reader
MAX_LINE_BYTES = 256 * 1024 * 1024  # a longer record is skipped
MAX_DOCUMENT_BYTES = 512 * 1024 * 1024  # of a JSON file that is one value
MAX_CONVERSATION_BYTES = 1024 * 1024 * 1024  # of the records of one conversation
MAX_UNPACKED_BYTES = 64 * 1024 * 1024 * 1024  # a gzip file that holds more is no transcript
_CHUNK = 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_SURROGATE = lazy_compile(rb"\\u[dD][89a-fA-F]")
_GZIP_WBITS = 31  # zlib's code for a gzip header


def top_fields(head: bytes) -> dict[str, bytes]:
    """The fields of the object that a head begins with, each with the bytes from its value on."""
    found: dict[str, bytes] = {}
    depth, last = 0, b""
    for match in _JSON_TOKEN.finditer(head) if head.startswith(b"{") else ():
        token = match.group()
        if token == b":" and depth == 1:
            found[last[1:-1].decode("utf-8", "replace")] = head[match.end() :].lstrip()
        elif token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
        if not depth or len(found) == _MAX_FIELDS:
            break
        last = token
    return found


def first_object(head: bytes) -> bytes:
    """The head from its first object on: its own, or the first in a list."""
    start = head.lstrip()
    return start[1:].lstrip() if start.startswith(b"[") else start


def first_line(head: bytes) -> bytes:
    """The first line of a head that is not blank."""
    return head.lstrip().partition(b"\n")[0]


class UnreadableFile(ValueError):
    """The reason why a file, or the rest of it, cannot be read: a sentence without its subject."""


def open_regular(path: Path) -> IO[bytes]:
    """The file, if it is one: a pipe or a device could block for ever."""
    stream = open(path, "rb", opener=_open_nonblocking)  # noqa: SIM115 - the caller closes
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise UnreadableFile("it is no regular file")
    return stream


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class TranscriptFile:
    """One open file: its head, its records, and the problems in it."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self._is_jsonl = path.name.removesuffix(".gz").endswith(".jsonl")
        size = os.fstat(stream.fileno()).st_size  # bytes appended later are not read
        chunks = _gunzip(stream) if path.suffix == ".gz" else _chunks(stream, size)
        self._chunks = self._readable_chunks(chunks)
        self._held_bytes = 0  # bytes of records since the reader yielded a session
        self._invalid_lines = 0
        self._first_invalid = 0  # the line that is no JSON first
        self._too_long = 0
        self._error = ""  # why the file ended before its end
        self._head_chunks: list[bytes] = []
        self.head = self._read_head().removeprefix(_BOM)

    def _read_head(self) -> bytes:
        """Read the head; bytes beyond it are kept for the records."""
        read = 0
        for chunk in self._chunks:
            self._head_chunks.append(chunk)
            read += len(chunk)
            if read >= HEAD_BYTES:
                break
        return b"".join(self._head_chunks)[:HEAD_BYTES]

    def _readable_chunks(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield chunks up to an error, which is kept as a problem."""
        try:
            yield from chunks
        except (OSError, UnreadableFile) as why:
            self._error = describe_error(why)

    def release(self) -> None:
        """Reset the size limit after the reader has yielded a session."""
        self._held_bytes = 0

    def records(self, bounded: bool) -> Iterator[JSON]:
        """A record for each line, or the one value that the file is."""
        early, self._head_chunks = self._head_chunks, []
        if early:
            early[0] = early[0].removeprefix(_BOM)
        chunks = chain(early, self._chunks)
        if not self._is_jsonl:
            yield self._document(chunks)
            return
        for record, size in self._lines(chunks):
            self._held_bytes += size
            if bounded and self._held_bytes > MAX_CONVERSATION_BYTES:
                raise UnreadableFile(
                    f"one conversation in it has more than {MAX_CONVERSATION_BYTES:,} bytes"
                )
            yield record

    def _document(self, chunks: Iterator[bytes]) -> JSON:
        pieces: list[bytes] = []
        size = 0
        for chunk in chunks:
            pieces.append(chunk)
            size += len(chunk)
            if size > MAX_DOCUMENT_BYTES:
                raise UnreadableFile(
                    f"it is one JSON value of more than {MAX_DOCUMENT_BYTES:,} bytes"
                )
        value = decode_json(b"".join(pieces))
        if value is None:
            raise UnreadableFile(self._error or "it is not valid JSON")
        return value

    def _lines(self, chunks: Iterator[bytes]) -> Iterator[tuple[JSON, int]]:
        """Yield each JSON line with its size; other lines are counted.

        The last line may be incomplete while the agent is running.
        """
        for number, (line, ended) in enumerate(self._split_lines(chunks), 1):
            if not line.strip():
                continue
            record = decode_json(line.strip(b"\0"))  # a power cut leaves NULs before the next line
            if record is not None:
                yield record, len(line)
            elif ended:
                self._invalid_lines += 1
                self._first_invalid = self._first_invalid or number

    def _split_lines(self, chunks: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
        """The lines, and whether each has an end; one beyond the longest is forgotten."""
        pieces: list[bytes] = []
        length = 0
        for chunk in chunks:
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                yield self._line(pieces, length, end), True
                pieces, length = [], 0
            length += len(rest)
            pieces.append(rest)
            if length > MAX_LINE_BYTES:
                pieces.clear()
        yield self._line(pieces, length, b""), False

    def _line(self, pieces: list[bytes], length: int, end: bytes) -> bytes:
        if length + len(end) <= MAX_LINE_BYTES:
            return b"".join([*pieces, end])
        self._too_long += 1
        return b""

    def problems(self) -> Iterator[str]:
        """Return the problems, a sentence each."""
        if self._invalid_lines == 1:
            yield f"line {self._first_invalid:,} is no JSON; the rest was read"
        elif self._invalid_lines:
            count, first = self._invalid_lines, self._first_invalid
            yield f"{count:,} lines are no JSON, the first is line {first:,}; the rest was read"
        if self._too_long:
            lines = "1 line is" if self._too_long == 1 else f"{self._too_long:,} lines are"
            yield f"{lines} longer than {MAX_LINE_BYTES:,} bytes and left out"
        if self._error:
            yield self._error


def _chunks(stream: IO[bytes], size: int) -> Iterator[bytes]:
    while size > 0 and (chunk := stream.read(min(_CHUNK, size))):
        size -= len(chunk)
        yield chunk


def _gunzip(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of a gzip file up to a damaged byte."""
    unpacking = zlib.decompressobj(_GZIP_WBITS)
    size, packed = 0, b""
    while packed or (packed := stream.read(_CHUNK)):
        if unpacking.eof:  # files may be joined, and may be padded
            packed = packed.lstrip(b"\0")
            unpacking = zlib.decompressobj(_GZIP_WBITS) if packed else unpacking
            continue
        try:
            chunk = unpacking.decompress(packed, _CHUNK)
        except zlib.error as why:
            raise UnreadableFile(f"its gzip data is broken ({why})") from why
        packed = unpacking.unused_data if unpacking.eof else unpacking.unconsumed_tail
        size += len(chunk)
        if size > MAX_UNPACKED_BYTES:
            raise UnreadableFile(f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")
        yield chunk
    while not unpacking.eof and (chunk := unpacking.decompress(b"", _CHUNK)):
        yield chunk
    if not unpacking.eof:
        raise UnreadableFile("its gzip data ends before its end")


def decode_json(line: bytes) -> JSON:
    """Decode JSON; None if it is invalid."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _decode_surrogates(line)


def _decode_surrogates(line: bytes) -> JSON:
    """The value of JSON with lone surrogates in it, or None.

    An agent in JavaScript that cuts a text inside an emoji writes such, and reads it again.
    """
    if _SURROGATE.search(line) is None:
        return None
    try:
        return json.loads(line, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return None


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def describe_error(why: Exception) -> str:
    """Describe an error for a person."""
    if isinstance(why, OSError) and why.strerror:
        return why.strerror[:1].lower() + why.strerror[1:]
    return str(why) or type(why).__name__


def read_value(path: Path) -> JSON:
    """The one JSON value that a file is."""
    with open_regular(path) as stream:
        body = stream.read(MAX_DOCUMENT_BYTES + 1)
    value = decode_json(body) if len(body) <= MAX_DOCUMENT_BYTES else None
    if value is None:
        raise UnreadableFile(f"{path.name} is no JSON value that can be read")
    return value


def read_values(paths: Iterable[Path], problems: list[str]) -> Iterator[JSON]:
    """The values of many small files that are one conversation together."""
    held = 0
    for path in paths:
        try:
            held += path.stat().st_size
            if held > MAX_CONVERSATION_BYTES:
                raise UnreadableFile(f"its files have more than {MAX_CONVERSATION_BYTES:,} bytes")
            yield read_value(path)
        except OSError as why:
            problems.append(f"{path.name}: {describe_error(why)}")
        except UnreadableFile as why:
            problems.append(str(why))
            if held > MAX_CONVERSATION_BYTES:
                return
