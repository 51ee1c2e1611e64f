"""`respool expand`, `respool search` and `respool forget`: output, messages and refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from respool.cli import main
from respool.markers import reference
from respool.store import RecordedEdit, SQLiteStore
from tests.store.support import OTHER, OWNER, by_ref, bytes_of, record

TEXT = "".join(f"line {number} of a log{'!' * (number == 7)}\n" for number in range(1, 21))
REF = reference(TEXT)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with an original, where the commands look for it."""
    path = tmp_path / "respool.db"
    monkeypatch.setenv("RESPOOL_STORE", str(path))
    store = SQLiteStore(path)
    store.keep(OWNER, "c1", by_ref(TEXT))
    store.keep(OTHER, "c2", by_ref("of another key"))
    store.record(record(time=time.time()))
    store.close()
    return path


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


class TestExpand:
    @pytest.mark.parametrize(
        ("options", "lines"),
        [
            ((), range(1, 21)),
            (("--lines", "3:5"), range(3, 6)),
            (("--lines", "19:"), range(19, 21)),
            (("--lines", "4"), range(4, 5)),
            (("--lines", "18:99"), range(18, 21)),
            (("--pattern", "!$"), range(7, 8)),
            (("--lines", "8:", "--pattern", "!"), range(0)),
        ],
    )
    def test_writes_what_was_asked_for_and_nothing_beside_it(
        self, path: Path, options: tuple[str, ...], lines: range
    ):
        result = run("expand", REF, *options)
        whole = TEXT.splitlines(keepends=True)
        assert result.exit_code == 0
        assert result.output == "".join(whole[number - 1] for number in lines)

    @pytest.mark.parametrize("lines", ["3:4", "3-4"])
    def test_takes_a_whole_marker_and_either_spelling_of_lines(self, path: Path, lines: str):
        marker = f"[respool: 12 of 20 lines left out; ref {REF}]"
        assert (
            run("expand", marker, "--lines", lines).output == "line 3 of a log\nline 4 of a log\n"
        )

    def test_the_owner_of_the_file_reads_what_any_key_has_left(self, path: Path):
        assert run("expand", reference("of another key")).output == "of another key"

    def test_exactly_though_half_a_character_is_in_it(self, path: Path):
        store = SQLiteStore(path)
        store.keep(OWNER, "c1", by_ref("half \ud83d\r\n"))
        store.close()
        result = run("expand", reference("half \ud83d\r\n"))
        assert result.stdout_bytes == "half \ud83d\r\n".encode("utf-8", "surrogatepass")

    def test_cannot_steer_a_terminal(self, path: Path, monkeypatch: pytest.MonkeyPatch):
        store = SQLiteStore(path)
        store.keep(OWNER, "c1", by_ref("\x1b[2Jgone"))
        store.close()
        monkeypatch.setattr("respool.cli.expand.is_terminal", lambda: True)
        assert run("expand", reference("\x1b[2Jgone")).output == "\\x1b[2Jgone\n"

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("a" * 20,), "No original is kept under aaaaaaaaaaaaaaaaaaaa in "),
            ((REF[:3],), "is no reference; one has twenty characters"),
            ((REF, "--lines", "5:3"), "--lines: '5:3' is not allowed; lines count from 1"),
            ((REF, "--lines", "0:3"), "--lines: '0:3' is not allowed; lines count from 1"),
            ((REF, "--lines", "30:"), "respool: --lines: this original has 20 lines"),
            ((REF, "--lines", "x"), "--lines: 'x' is not allowed; write 3:7"),
            ((REF, "--pattern", "("), "it is no regular expression"),
        ],
    )
    def test_refuses_in_a_sentence(self, path: Path, arguments: tuple[str, ...], said: str):
        result = run("expand", *arguments)
        assert result.exit_code == 2
        assert said in result.stderr
        assert result.stdout == ""

    def test_a_unique_beginning_is_enough(self, path: Path):
        assert run("expand", REF[:4]).output == TEXT
        assert run("expand", REF[:19]).output == TEXT

    def test_several_that_begin_so_are_listed(self, path: Path):
        """Texts are tried until two references begin with the same four characters."""
        known, text = dict[str, str](), "text"
        while (begin := reference(text)[:4]) not in known:
            known[begin] = text
            text = f"text {len(known)}"
        store = SQLiteStore(path)
        store.keep(OWNER, "c1", by_ref(text, known[begin]))
        store.close()
        both = sorted([reference(text), reference(known[begin])])
        result = run("expand", begin)
        assert result.exit_code == 2
        assert f"'{begin}' stands for several references: {', '.join(both)}." in result.stderr
        assert run("expand", both[0]).exit_code == 0

    def test_a_file_of_originals_will_do(self, tmp_path: Path):
        file = tmp_path / "originals.json"
        file.write_text(json.dumps({REF: "one\ntwo \ud83d\n"}))
        whole = run("expand", REF, "--originals", str(file))
        assert whole.stdout_bytes == "one\ntwo \ud83d\n".encode("utf-8", "surrogatepass")
        assert run("expand", REF, "--originals", str(file), "--lines", "1").output == "one\n"
        assert run("expand", REF[:5], "--originals", str(file), "--lines", "1").output == "one\n"

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            (b"{}", f"No original is kept under {REF} in it"),
            (b"[]", "This is no file that respool compact --originals wrote"),
            (b"\xff\x00", "This is no file that respool compact --originals wrote"),
            (b"", "This is empty"),
            (None, "No such file or directory"),
        ],
    )
    def test_another_file_is_refused_in_a_sentence(
        self, tmp_path: Path, data: bytes | None, said: str
    ):
        file = tmp_path / "originals.json"
        if data is not None:
            file.write_bytes(data)
        result = run("expand", REF, "--originals", str(file))
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"{file}: {said}" in result.stderr

    def test_a_store_can_be_named(self, path: Path, tmp_path: Path):
        other = SQLiteStore(tmp_path / "other.db")
        other.keep(OWNER, "c1", by_ref("elsewhere"))
        other.close()
        ref = reference("elsewhere")
        assert run("expand", ref).exit_code == 2
        assert run("expand", ref, "--store", str(tmp_path / "other.db")).output == "elsewhere"


@pytest.mark.parametrize("command", [("expand", REF), ("forget", "--all", "--yes")])
class TestAStoreThatIsNotThere:
    def test_is_not_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
    ):
        monkeypatch.setenv("RESPOOL_STORE", str(tmp_path / "none.db"))
        result = run(*command)
        assert result.exit_code == 2
        assert f"There is no store at {tmp_path / 'none.db'}" in result.stderr
        assert list(tmp_path.iterdir()) == []

    def test_or_is_damaged_is_told_and_left_alone(self, path: Path, command: tuple[str, ...]):
        path.write_bytes(b"\xa5" * 10_000)
        result = run(*command)
        assert result.exit_code == 2
        assert "it is damaged" in result.stderr
        assert [file.name for file in path.parent.iterdir()] == ["respool.db"]


class TestSearch:
    def test_lists_references_sources_and_lines(self, path: Path):
        result = run("search", "log! 7")
        assert result.exit_code == 0
        head, line = result.stdout.splitlines()
        assert head.startswith(f"{REF}  20")
        assert head.endswith("Z  conversation c1")
        assert line == "  line 7: line 7 of a log!"

    def test_says_so_when_there_is_more(self, path: Path):
        result = run("search", "of", "--limit", "1")
        assert result.stdout.count("conversation") == 1
        assert "There are more than 1; --limit lists more of them." in result.stderr
        assert len(json.loads(run("search", "of", "--json").stdout)) == 2

    def test_as_json(self, path: Path):
        found = json.loads(run("search", "another", "--json", "--conversation", "c2").stdout)
        (hit,) = found
        assert hit.pop("time").endswith("Z")
        assert hit == {
            "ref": reference("of another key"),
            "conversation": "c2",
            "tool": "",
            "target": "",
            "reason": "",
            "place": "",
            "line": 1,
            "snippet": "of another key",
        }

    @pytest.mark.parametrize("options", [("--json",), ()])
    def test_ends_with_status_1_if_there_is_nothing(self, path: Path, options: tuple[str, ...]):
        result = run("search", "key", "--conversation", "c1", *options)
        assert result.exit_code == 1
        assert result.stdout == ("[]\n" if options else "")

    def test_cannot_steer_a_terminal(self, path: Path):
        store = SQLiteStore(path)
        hostile = "\x1b[2J\x1b]0;\x07needle\r\x9b \ud83d\n"
        store.keep(OWNER, "c\x1b1", by_ref(hostile))
        edit = RecordedEdit(
            "stale", "m\n[1]", "", 1, reference(hostile), tool="\x07", target="a\nb"
        )
        store.record(record("r9", conversation="c\x1b1", edits=(edit,)))
        store.close()
        head, source, line = run("search", "needle").stdout.splitlines()
        assert head.endswith("conversation c\\x1b1")
        assert source == "  \\x07 a b: stale at m [1]"
        assert line == "  line 1: \\x1b]0;\\x07needle\\r\\x9b \\ud83d"

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ((" ",), "The pattern has nothing to search for"),
            (("x", "--limit", "0"), "--limit"),
            (("x", "--store", "/nowhere/respool.db"), "There is no store at /nowhere/respool.db"),
        ],
    )
    def test_refuses_in_a_sentence(self, path: Path, arguments: tuple[str, ...], said: str):
        result = run("search", *arguments)
        assert result.exit_code == 2
        assert said in result.stderr
        assert result.stdout == ""


class TestForget:
    def test_all(self, path: Path):
        assert b"of another key" in bytes_of(path)
        result = run("forget", "--all", "--yes")
        assert result.exit_code == 0
        said = "Deleted: 2 conversations, 2 originals, 1 record of requests.\n"
        assert result.output == said
        assert b"of another key" not in bytes_of(path)
        assert run("expand", REF).exit_code == 2

    @pytest.mark.parametrize(
        ("options", "left"),
        [
            (("--conversation", "c1"), {"c2"}),
            (("--owner", OTHER), {"c1"}),
            (("--owner", OTHER, "--conversation", "c1"), {"c1", "c2"}),
            (("--before", "1h"), {"c1", "c2"}),
            (("--before", "2100-01-01"), set[str]()),
        ],
    )
    def test_some(self, path: Path, options: tuple[str, ...], left: set[str]):
        assert run("forget", "--yes", *options).exit_code == 0
        store = SQLiteStore(path)
        assert {one.name for one in store.conversations(None)} == left
        store.close()

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--yes",), "Say what to forget: --all, or"),
            (("--yes", "--all", "--owner", OWNER), "other options name; not both."),
            (("--yes", "--before", "soon"), "--before: 'soon' is neither a date"),
            (("--all",), "This cannot be undone, and nobody can be asked here: give --yes."),
        ],
    )
    def test_refuses_in_a_sentence_and_deletes_nothing(
        self, path: Path, options: tuple[str, ...], said: str
    ):
        result = run("forget", *options)
        assert result.exit_code == 2
        assert said in result.stderr
        assert run("expand", REF).output == TEXT

    def test_names_damaged_files_that_it_cannot_look_into(self, path: Path):
        aside = path.with_name("respool.db.damaged-20260101-000000")
        aside.write_bytes(b"x")
        assert str(aside) in run("forget", "--conversation", "c1", "--yes").stderr
        assert run("forget", "--all", "--yes").stderr == ""
        assert not aside.exists()

    @pytest.mark.skipif(os.name == "nt", reason="needs a terminal of its own")
    def test_asks_whoever_can_be_asked(self, path: Path):
        import pty

        for answer, left in ((b"n\n", TEXT), (b"y\n", "")):
            ours, theirs = pty.openpty()
            command = [sys.executable, "-m", "respool", "forget", "--all"]
            process = subprocess.Popen(
                command,
                stdin=theirs,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
            os.write(ours, answer)
            said, _ = process.communicate(timeout=30)
            assert b"It cannot be undone" in said
            assert run("expand", REF).stdout == left
            os.close(ours)
            os.close(theirs)
