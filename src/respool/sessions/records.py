"""A file's records, one at a time: bounded in memory, whatever the file holds."""

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

from ..codecs.json_tree import JSON

HEAD = 65_536  # bytes of a file by which its reader is chosen
LONGEST_LINE = 256 * 1024 * 1024  # a record longer than this is left out
LARGEST_DOCUMENT = 512 * 1024 * 1024  # a JSON file that is one value must fit into memory
LARGEST_CONVERSATION = 1024 * 1024 * 1024  # and so must the records of one conversation
LARGEST_UNPACKED = 64 * 1024 * 1024 * 1024  # a packed file that holds more is no transcript

_CHUNK = 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_GZIP = 31  # what tells zlib of a gzip header


class Unreadable(ValueError):
    """Why a file, or the rest of it, cannot be read: a sentence without its subject."""


def opened(path: Path) -> IO[bytes]:
    """The file, if it is one: a pipe or a device could block for ever."""
    stream = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - the caller closes
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise Unreadable("it is no regular file")
    return stream


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class Contents:
    """One file while it is read: its head, its records, and what of it could not be read."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self._is_jsonl = path.name.removesuffix(".gz").endswith(".jsonl")
        size = os.fstat(stream.fileno()).st_size  # what is written from now on is not read
        chunks = _unpacked(stream) if path.suffix == ".gz" else _chunks(stream, size)
        self._chunks = self._readable_chunks(chunks)
        self._held_bytes = 0  # bytes of records since the reader told a session
        self._invalid_lines = 0
        self._first_invalid = 0  # the line that is no JSON first
        self._too_long = 0
        self._error = ""  # why the file ended before its end
        self._head_chunks: list[bytes] = []
        self.head = self._read_head().removeprefix(_BOM)

    def _read_head(self) -> bytes:
        """The head; what was read beyond it is kept for the records."""
        read = 0
        for chunk in self._chunks:
            self._head_chunks.append(chunk)
            read += len(chunk)
            if read >= HEAD:
                break
        return b"".join(self._head_chunks)[:HEAD]

    def _readable_chunks(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """What can be read; why it ended is told at the end."""
        try:
            yield from chunks
        except (OSError, Unreadable) as why:
            self._error = sentence(why)

    def release(self) -> None:
        """The reader told a session: what it held for it is free again."""
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
            if bounded and self._held_bytes > LARGEST_CONVERSATION:
                raise Unreadable(
                    f"one conversation in it has more than {LARGEST_CONVERSATION:,} bytes"
                )
            yield record

    def _document(self, chunks: Iterator[bytes]) -> JSON:
        pieces: list[bytes] = []
        size = 0
        for chunk in chunks:
            pieces.append(chunk)
            size += len(chunk)
            if size > LARGEST_DOCUMENT:
                raise Unreadable(f"it is one JSON value of more than {LARGEST_DOCUMENT:,} bytes")
        value = decoded(b"".join(pieces))
        if value is None:
            raise Unreadable(self._error or "it is not valid JSON")
        return value

    def _lines(self, chunks: Iterator[bytes]) -> Iterator[tuple[JSON, int]]:
        """Each line that is JSON, with its size; others are counted.

        The last may be half written: that is how a transcript looks while its agent works.
        """
        for number, (line, ended) in enumerate(self._split_lines(chunks), 1):
            if not line.strip():
                continue
            record = decoded(line.strip(b"\0"))  # which a power cut leaves before what follows it
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
            if length > LONGEST_LINE:
                pieces.clear()
        yield self._line(pieces, length, b""), False

    def _line(self, pieces: list[bytes], length: int, end: bytes) -> bytes:
        if length + len(end) <= LONGEST_LINE:
            return b"".join([*pieces, end])
        self._too_long += 1
        return b""

    def problems(self) -> Iterator[str]:
        """What could not be read, a sentence each."""
        if self._invalid_lines == 1:
            yield f"line {self._first_invalid:,} is no JSON; the rest was read"
        elif self._invalid_lines:
            lines = f"{self._invalid_lines:,} lines are no JSON, the first is line {self._first_invalid:,}"
            yield f"{lines}; the rest was read"
        if self._too_long:
            lines = "1 line is" if self._too_long == 1 else f"{self._too_long:,} lines are"
            yield f"{lines} longer than {LONGEST_LINE:,} bytes and left out"
        if self._error:
            yield self._error


def _chunks(stream: IO[bytes], size: int) -> Iterator[bytes]:
    while size > 0 and (chunk := stream.read(min(_CHUNK, size))):
        size -= len(chunk)
        yield chunk


def _unpacked(stream: IO[bytes]) -> Iterator[bytes]:
    """What a gzip file holds, up to where it is broken."""
    unpacking = zlib.decompressobj(_GZIP)
    size, packed = 0, b""
    while packed or (packed := stream.read(_CHUNK)):
        if unpacking.eof:  # files may be joined, and may be padded
            packed = packed.lstrip(b"\0")
            unpacking = zlib.decompressobj(_GZIP) if packed else unpacking
            continue
        try:
            chunk = unpacking.decompress(packed, _CHUNK)
        except zlib.error as why:
            raise Unreadable(f"its gzip data is broken ({why})") from why
        packed = unpacking.unused_data if unpacking.eof else unpacking.unconsumed_tail
        size += len(chunk)
        if size > LARGEST_UNPACKED:
            raise Unreadable(f"it unpacks to more than {LARGEST_UNPACKED:,} bytes")
        yield chunk
    while not unpacking.eof and (chunk := unpacking.decompress(b"", _CHUNK)):
        yield chunk
    if not unpacking.eof:
        raise Unreadable("its gzip data ends before its end")


def decoded(line: bytes) -> JSON:
    """The JSON value, or None for what is none."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _with_half_characters(line)


def _with_half_characters(line: bytes) -> JSON:
    """The value of JSON with lone surrogates in it, or None.

    An agent in JavaScript that cuts a text inside an emoji writes such, and reads it again.
    """
    if _HALF.search(line) is None:
        return None
    try:
        return json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def sentence(why: Exception) -> str:
    """What went wrong, for a person."""
    if isinstance(why, OSError) and why.strerror:
        return why.strerror[:1].lower() + why.strerror[1:]
    return str(why) or type(why).__name__


def value_in(path: Path) -> JSON:
    """The one JSON value that a file is."""
    with opened(path) as stream:
        body = stream.read(LARGEST_DOCUMENT + 1)
    value = decoded(body) if len(body) <= LARGEST_DOCUMENT else None
    if value is None:
        raise Unreadable(f"{path.name} is no JSON value that can be read")
    return value


def values_in(paths: Iterable[Path], problems: list[str]) -> Iterator[JSON]:
    """The values of many small files that are one conversation together."""
    held = 0
    for path in paths:
        try:
            held += path.stat().st_size
            if held > LARGEST_CONVERSATION:
                raise Unreadable(f"its files have more than {LARGEST_CONVERSATION:,} bytes")
            yield value_in(path)
        except OSError as why:
            problems.append(f"{path.name}: {sentence(why)}")
        except Unreadable as why:
            problems.append(str(why))
            if held > LARGEST_CONVERSATION:
                return
