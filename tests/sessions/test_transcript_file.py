"""Transcript files: records one at a time, bounded memory, reported read errors."""

from __future__ import annotations

import gzip
import json
import os
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.sessions import transcript_file
from respool.sessions.readers import READERS, Reader, read_file, transcripts_below
from respool.sessions.session import RecordedRequest, RecordedSession, Skipped

STAMP = "2026-01-01T00:00:00Z"


def user(number: int, text: str = "go") -> dict[str, Any]:
    message = {"role": "user", "content": text}
    return {
        "type": "user",
        "uuid": f"u{number}",
        "parentUuid": None,
        "sessionId": "s",
        "isSidechain": False,
        "timestamp": STAMP,
        "message": message,
    }


def answer(number: int) -> dict[str, Any]:
    content = [{"type": "text", "text": "done"}]
    message = {"id": f"m{number}", "role": "assistant", "model": "claude-x", "content": content}
    return {**user(number), "type": "assistant", "uuid": f"a{number}", "message": message}


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


WHOLE = lines(user(0), answer(0))


def read(path: Path) -> tuple[list[RecordedSession], list[str]]:
    """The sessions of a file, and what was said of the rest."""
    found = list(read_file(path, READERS))
    assert all(skipped.source == str(path) for skipped in found if isinstance(skipped, Skipped))
    told = [session for session in found if isinstance(session, RecordedSession)]
    return told, [skipped.reason for skipped in found if isinstance(skipped, Skipped)]


def written(folder: Path, content: bytes, name: str = "a.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


class TestWhatIsWholeIsRead:
    """A fault inside a file costs what is faulty, and one sentence."""

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (WHOLE + b"\xff\xfe\n" + lines(user(1)), "line 3 is no JSON"),
            (
                WHOLE + b'{"a": \n[1,,2]\n' + lines(user(1)),
                "2 lines are no JSON, the first is line 3",
            ),
            (
                WHOLE + b"[" * 100_000 + b"\n" + lines(user(1)),
                "line 3 is no JSON",
            ),
            (b"\0" * 50 + b"\n" + WHOLE + lines(user(1)), "line 1 is no JSON"),
        ],
        ids=["no UTF-8", "half a record", "nested deeply", "zeros"],
    )
    def test_a_line_that_is_no_json(self, tmp_path: Path, content: bytes, why: str):
        (session,), (said,) = read(written(tmp_path, content))
        assert len(session.messages) == 3
        assert said == f"{why}; the rest was read"

    def test_a_line_beyond_the_longest(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(transcript_file, "MAX_LINE_BYTES", 2_000)
        content = WHOLE + lines(user(1, "x" * 3_000)) + lines(user(2))
        (session,), (said,) = read(written(tmp_path, content))
        assert said == "1 line is longer than 2,000 bytes and left out"
        assert len(session.messages) == 3

    def test_a_line_much_longer_than_what_is_read_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(transcript_file, "MAX_LINE_BYTES", 100_000)
        monkeypatch.setattr(transcript_file, "_CHUNK", 1_000)
        content = lines(user(0, "x" * 90_000), answer(0), user(1, "y" * 500_000), user(2))
        (session,), (said,) = read(written(tmp_path, content))
        assert "1 line is longer" in said
        assert session.messages[0]["content"][0]["text"] == "x" * 90_000

    def test_a_gzip_file_that_ends_early(self, tmp_path: Path):
        noise = [user(n, os.urandom(3_000).hex()) for n in range(1, 300)]
        packed = gzip.compress(WHOLE + lines(*noise), mtime=0)
        path = written(tmp_path, packed[: len(packed) // 2], "a.jsonl.gz")
        (session,), (said,) = read(path)
        assert said == "its gzip data ends before its end"
        assert len(session.messages) == 3

    def test_gzip_files_that_were_joined_and_padded(self, tmp_path: Path):
        parts = [gzip.compress(lines(one), mtime=0) for one in (user(0), answer(0), user(1))]
        path = written(tmp_path, b"".join(parts) + b"\0" * 512, "a.jsonl.gz")
        (session,), said = read(path)
        assert len(session.messages) == 3
        assert said == []

    def test_a_mark_of_byte_order_is_no_part_of_the_first_record(self, tmp_path: Path):
        (session,), said = read(written(tmp_path, b"\xef\xbb\xbf" + WHOLE))
        assert len(session.messages) == 2
        assert said == []


class TestNothingIsHeldThatDoesNotFit:
    """Limits are told, not met by running out of memory."""

    def test_a_conversation_beyond_the_largest(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(transcript_file, "MAX_CONVERSATION_BYTES", 5_000)
        many = [made for n in range(20) for made in (user(n, "x" * 300), answer(n))]
        assert read(written(tmp_path, lines(*many))) == (
            [],
            ["one conversation in it has more than 5,000 bytes"],
        )

    def test_conversations_that_fit_are_read_however_many_there_are(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(transcript_file, "MAX_CONVERSATION_BYTES", 5_000)
        end = {"type": "system", "subtype": "compact_boundary", "sessionId": "s"}
        many = [made for n in range(20) for made in (user(n, "x" * 300), answer(n), end)]
        told, said = read(written(tmp_path, lines(*many)))
        assert len(told) == 20
        assert said == []

    def test_a_request_log_may_be_longer_than_one_conversation(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(transcript_file, "MAX_CONVERSATION_BYTES", 2_000)
        turns = [{"role": "system", "content": "x" * 100}]
        bodies: list[Any] = []
        for number in range(30):
            turns.append({"role": "user" if number % 2 else "assistant", "content": "hm"})
            bodies.append({"model": "m", "messages": list(turns)})
        (session,), said = read(written(tmp_path, lines(*bodies)))
        assert len(session.requests) == 30
        assert said == []

    @pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
    def test_a_document_beyond_the_largest(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ):
        monkeypatch.setattr(transcript_file, "MAX_DOCUMENT_BYTES", 1_000)
        content = json.dumps([{"role": "user", "content": "x" * 2_000}]).encode()
        packed = gzip.compress(content, mtime=0) if name.endswith("gz") else content
        _, (said,) = read(written(tmp_path, packed, name))
        assert said == "it is one JSON value of more than 1,000 bytes"

    def test_a_file_that_unpacks_without_end(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(transcript_file, "MAX_UNPACKED_BYTES", 1_000_000)
        monkeypatch.setattr(transcript_file, "MAX_LINE_BYTES", 100_000)
        monkeypatch.setattr(transcript_file, "_CHUNK", 10_000)
        path = written(tmp_path, gzip.compress(WHOLE + b" " * 5_000_000, mtime=0), "a.jsonl.gz")
        (session,), said = read(path)
        assert len(session.messages) == 2
        assert said[-1] == "it unpacks to more than 1,000,000 bytes"


class TestWhatIsNoFile:
    """Each gives one sentence, and none blocks or raises."""

    def test_a_pipe_does_not_block(self, tmp_path: Path):
        pipe = tmp_path / "x.jsonl"
        os.mkfifo(pipe)
        told: list[Any] = []
        thread = threading.Thread(target=lambda: told.extend(read_file(pipe, READERS)), daemon=True)
        thread.start()
        thread.join(10)
        assert told == [Skipped(str(pipe), "it is no regular file")]

    def test_links_to_nowhere_and_to_themselves(self, tmp_path: Path):
        nowhere, itself = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
        nowhere.symlink_to(tmp_path / "gone")
        itself.symlink_to(itself)
        assert list(transcripts_below(tmp_path)) == [nowhere, itself]
        assert read(nowhere) == ([], ["no such file or directory"])
        assert "symbolic links" in read(itself)[1][0]

    def test_a_folder_that_links_to_itself_is_walked_once(self, tmp_path: Path):
        (tmp_path / "again").symlink_to(tmp_path)
        path = written(tmp_path, WHOLE)
        assert list(transcripts_below(tmp_path)) == [path]

    def test_an_empty_folder(self, tmp_path: Path):
        assert list(transcripts_below(tmp_path)) == [tmp_path]
        assert read(tmp_path) == ([], ["there is no transcript below this folder"])

    @pytest.mark.skipif(os.geteuid() == 0, reason="nothing is denied to root")
    def test_what_may_not_be_read(self, tmp_path: Path):
        path = written(tmp_path, WHOLE)
        path.chmod(0)
        assert read(path) == ([], ["permission denied"])
        folder = tmp_path / "closed"
        folder.mkdir(mode=0)
        assert list(transcripts_below(tmp_path)) == [path, folder]
        assert read(folder) == ([], ["permission denied"])

    @pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.traj", "a.eval", "opencode.db"])
    @pytest.mark.parametrize(
        "content",
        [
            bytes(range(256)) * 300,
            b"\0" * 100_000,
            b"\x89PNG\r\n\x1a\n" + b"\0" * 100,
            b'{"some": "tool", "version": 3, "steps": [{"do": "this"}]}\n' * 20,
            b"PK\x03\x04 but no archive",
            b"SQLite format 3\0 but no database" + b"\0" * 5_000,
        ],
        ids=["bytes", "zeros", "picture", "unknown tool", "no archive", "no database"],
    )
    def test_other_content_is_one_sentence(self, tmp_path: Path, name: str, content: bytes):
        told, (_,) = read(written(tmp_path, content, name))
        assert told == []


class TestWhileItChanges:
    """A transcript is read while its agent works."""

    def test_what_is_written_meanwhile_is_not_read(self, tmp_path: Path):
        path = written(tmp_path, b'{"n": 0}\n' * 200_000)
        taken = 0

        def count(given: Any, source: str) -> Iterator[RecordedSession | Skipped]:
            nonlocal taken
            with path.open("ab") as more:
                for _ in given:
                    taken += 1
                    if taken < 400_000:
                        more.write(b'{"n": 1}\n')
                        more.flush()
            yield RecordedSession(
                id=source,
                agent="x",
                format="anthropic",
                messages=[],
                requests=(RecordedRequest(0),),
            )

        assert len(list(read_file(path, [Reader("x", lambda head, name: True, count)]))) == 1
        assert taken == 200_000

    def test_a_file_may_go_while_it_is_read(self, tmp_path: Path):
        path = written(tmp_path, lines(*[user(n, "x" * 3_000) for n in range(2_000)], answer(0)))
        stream = read_file(path, [Reader("x", lambda head, name: True, _first_and_rest)])
        assert isinstance(next(stream), RecordedSession)
        path.unlink()
        (rest,) = stream
        assert isinstance(rest, RecordedSession)
        assert rest.id == "2000"

    def test_a_file_may_be_cut_while_it_is_read(self, tmp_path: Path):
        path = written(tmp_path, lines(*[user(n, "x" * 3_000) for n in range(2_000)]))
        stream = read_file(path, [Reader("x", lambda head, name: True, _first_and_rest)])
        next(stream)
        path.write_bytes(b"")
        (rest,) = stream
        assert isinstance(rest, RecordedSession)
        assert int(rest.id) < 2_000


def _first_and_rest(given: Any, source: str) -> Iterator[RecordedSession | Skipped]:
    next(given)
    yield RecordedSession(
        id="first", agent="x", format="anthropic", messages=[], requests=(RecordedRequest(0),)
    )
    yield RecordedSession(
        id=str(sum(1 for _ in given)),
        agent="x",
        format="anthropic",
        messages=[],
        requests=(RecordedRequest(0),),
    )


@given(
    st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line), max_size=20),
    st.integers(1, 30),
    st.integers(1, 60),
    st.booleans(),
)
def test_lines_are_those_of_the_content_however_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory,
    content: list[bytes],
    chunk: int,
    longest: int,
    packed: bool,
):
    """Splitting by chunks is splitting the whole, but for lines beyond the longest."""
    whole = b"\n".join([b"[0]", *content, b"[1]"])
    path = tmp_path_factory.mktemp("lines") / ("a.jsonl.gz" if packed else "a.jsonl")
    path.write_bytes(gzip.compress(whole, mtime=0) if packed else whole)
    kept = [line for line in whole.split(b"\n") if len(line) <= longest]
    decoded = [transcript_file.decode_json(line) for line in kept if line.strip()]
    expected = [value for value in decoded if value is not None]
    with pytest.MonkeyPatch.context() as patch, transcript_file.open_regular(path) as stream:
        patch.setattr(transcript_file, "_CHUNK", chunk)
        patch.setattr(transcript_file, "HEAD_BYTES", 8)
        patch.setattr(transcript_file, "MAX_LINE_BYTES", longest)
        contents = transcript_file.TranscriptFile(path, stream)
        assert contents.head == whole[:8]
        assert list(contents.records(bounded=True)) == expected
        too_long = len(whole.split(b"\n")) - len(kept)
        assert sum("longer than" in why for why in contents.problems()) == bool(too_long)


@given(st.binary(max_size=300), st.binary(max_size=50))
def test_broken_gzip_never_raises(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, noise: bytes
):
    path = tmp_path_factory.mktemp("gzip") / "a.jsonl.gz"
    path.write_bytes(zlib.compress(content, wbits=31)[: len(content)] + noise)
    assert all(isinstance(found, RecordedSession | Skipped) for found in read_file(path, READERS))


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (rb'{"a": "cut \ud83d"}', {"a": "cut \ud83d"}),  # as JavaScript writes half an emoji
        (rb'{"\uDE00": 1}', {"\ude00": 1}),
        (rb'{"a": "whole \ud83d\ude00"}', {"a": "whole \U0001f600"}),
        (rb'{"a": "cut \ud83d", "b": NaN}', None),
        (rb'{"a": "cut \ud83d"', None),
        (b'{"a": NaN}', None),
    ],
)
def test_half_a_character_is_no_reason_to_leave_a_record_out(line: bytes, value: Any) -> None:
    assert transcript_file.decode_json(line) == value


def test_a_record_behind_the_zeros_of_a_power_cut_is_read(tmp_path: Path):
    path = written(tmp_path, WHOLE + b"\0" * 4096 + lines(user(1), answer(1)))
    [session], problems = read(path)
    assert (len(session.requests), problems) == (2, [])
