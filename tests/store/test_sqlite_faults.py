"""A store whose file is locked, full, read-only, deleted or damaged, or its writer killed."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest

from respool.facts import Facts
from respool.markers import reference
from respool.store import SQLiteStore, StoreUnavailable
from respool.store.database_file import (
    MIGRATIONS,
    file_identity,
    open_reader,
    quarantine,
    quarantined_files,
)
from tests.store.support import NOW, OWNER, ROOT, SOURCE, by_ref, child, record, text_of

POSIX = pytest.mark.skipif(os.name == "nt", reason="Windows keeps open files from this")
KEPT, NEW = text_of(1), text_of(2)
NOBODY = 65_534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "respool" / "respool.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    """A store that holds one original, and does not wait long."""
    store = SQLiteStore(path, wait=0.3)
    store.keep(OWNER, "c1", by_ref(KEPT))
    yield store
    store.close()


def works(store: SQLiteStore) -> None:
    """Whatever was, the store can be used."""
    text = text_of(random.randrange(10**6, 10**9))
    store.keep(OWNER, "c1", by_ref(text))
    assert store.original(reference(text), OWNER) == text
    store.add_facts("c9", Facts(cold=frozenset({"0a"})))
    assert store.facts("c9").cold == {"0a"}
    store.record(record("works", time=NOW + random.random()))
    assert store.flush()


def told(store: SQLiteStore, *whys: str) -> StoreUnavailable:
    """Keeping is refused for one of these reasons, in a sentence, and nothing is claimed."""
    with pytest.raises(StoreUnavailable) as error:
        store.keep(OWNER, "c1", by_ref(NEW))
    assert error.value.reason in whys, str(error.value)
    assert str(error.value).startswith(f"The store {store.path} cannot be used: ")
    return error.value


class TestLocked:
    def test_is_told_in_time_and_is_over_when_the_lock_is(self, store: SQLiteStore):
        with contextlib.closing(_Locking(store.path, "for writing")) as other:
            begun = time.monotonic()
            told(store, "busy")
            assert 0.25 < time.monotonic() - begun < 2
            with pytest.raises(StoreUnavailable):
                store.add_facts("c1", Facts(cold=frozenset({"0a"})))
            assert store.original(reference(KEPT), OWNER) == KEPT  # reads go on
            assert not store.readable_refs(by_ref(NEW), OWNER)
            other.release()
            works(store)

    def test_only_the_first_to_find_it_locked_waits_long(self, store: SQLiteStore):
        with contextlib.closing(_Locking(store.path, "for writing")):
            told(store, "busy")
            begun = time.monotonic()
            for _ in range(3):
                told(store, "busy")
            assert time.monotonic() - begun < 0.85  # three times the patience would be 0.9

    def test_many_threads_are_told_in_time(self, store: SQLiteStore):
        with contextlib.closing(_Locking(store.path, "for writing")):
            begun = time.monotonic()
            threads = [threading.Thread(target=told, args=(store, "busy")) for _ in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert time.monotonic() - begun < 3

    def test_records_wait_until_the_lock_is_gone(self, store: SQLiteStore):
        with contextlib.closing(_Locking(store.path, "for writing")) as other:
            store.record(record())
            assert not store.flush(0.8)
            other.release()
            assert store.flush(5)
        assert [one.id for one in store.requests("c1", None)] == ["r1"]
        assert store.dropped == 0

    def test_wholly_by_a_process_that_lets_no_one_read(self, path: Path, store: SQLiteStore):
        store.close()
        with contextlib.closing(_Locking(path, "wholly")) as other:
            late = SQLiteStore(path, wait=0.2)
            told(late, "busy")
            with pytest.raises(StoreUnavailable, match="locked"):
                late.original(reference(KEPT), None)
            other.release()
            assert late.original(reference(KEPT), None) == KEPT
            works(late)
            late.close()


class _Locking:
    """Another process that holds the file locked."""

    def __init__(self, path: Path, how: str) -> None:
        self._child = child("lock", str(path), how)
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == "locked\n"

    def release(self) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        print("go", file=self._child.stdin, flush=True)
        assert self._child.stdout.readline() == "unlocked\n"

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()


class TestFull:
    def test_is_told_and_nothing_is_kept_by_halves(self, store: SQLiteStore):
        limit(store, 30)
        many = by_ref(*(text_of(number, 200) for number in range(10, 200)))
        with pytest.raises(StoreUnavailable) as error:
            store.keep(OWNER, "c1", many)
        assert error.value.reason == "full"
        assert "no space left" in str(error.value)
        assert store.readable_refs(many, None) == frozenset()
        assert store.original(reference(KEPT), OWNER) == KEPT
        limit(store, 2**30)
        store.keep(OWNER, "c1", many)
        assert store.readable_refs(many, None) == many.keys()

    def test_what_still_fits_is_kept_though_another_thread_wants_too_much(self, store: SQLiteStore):
        limit(store, 30)
        big = by_ref(*(text_of(number, 200) for number in range(10, 200)))
        outcomes: dict[str, object] = {}

        def attempt(name: str, texts: dict[str, str]) -> None:
            try:
                outcomes[name] = store.keep(OWNER, name, texts)
            except StoreUnavailable as error:
                outcomes[name] = error.reason

        database = store._database
        database._lock.acquire()
        database.wait = 5
        threads = [
            threading.Thread(target=attempt, args=given)
            for given in (("big", big), ("small", by_ref(NEW)))
        ]
        for thread in threads:
            thread.start()
        while len(database._waiting) < 2:
            time.sleep(0.001)
        database._lock.release()
        for thread in threads:
            thread.join()
        assert outcomes == {"big": "full", "small": None}
        assert store.readable_refs(by_ref(NEW), OWNER)

    @pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs limits on files")
    def test_a_file_that_the_system_lets_grow_no_more(self, path: Path):
        done = run_in_process(FILLING, str(path), "400000")
        why, kept, held, later = done.stdout.split()
        assert why in ("full", "failing")
        assert (int(held), int(later)) == (int(kept), int(kept) + 1)

    @pytest.mark.skipif(sys.platform != "linux", reason="needs a small disk of its own")
    def test_a_disk_that_is_full(self, tmp_path: Path):
        mounting = 'mount -t tmpfs -o size=400k none "$0"'
        alone = ["unshare", "-rm", "sh", "-c"]
        if (
            shutil.which("unshare") is None
            or subprocess.run(
                [*alone, mounting, str(tmp_path)], capture_output=True, check=False
            ).returncode
        ):
            pytest.skip("no disk can be mounted here")
        filling = f'{mounting}; exec "$@"'
        done = run_in_process(
            FILLING, str(tmp_path / "respool.db"), "", before=[*alone, filling, str(tmp_path)]
        )
        why, kept, held, _ = done.stdout.split()
        assert why == "full"
        assert int(held) == int(kept)


FILLING = """
import os, resource, signal, sys
from respool.store import SQLiteStore, StoreUnavailable
from tests.store.support import OWNER, by_ref, text_of

store = SQLiteStore(sys.argv[1])
store.keep(OWNER, "c1", by_ref(text_of(1)))
if sys.argv[2]:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
kept, why = 1, "never"
for number in range(2, 3_000):
    try:
        store.keep(OWNER, "c1", by_ref(text_of(number, 300)))
    except StoreUnavailable as error:
        why = error.reason
        break
    kept = number
if sys.argv[2]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
print(why, kept, len(store.refs(None)))
if sys.argv[2]:
    store.keep(OWNER, "c1", by_ref("there is space again"))
print(len(store.refs(None)))
"""


def run_in_process(
    script: str, *arguments: str, before: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )


def limit(store: SQLiteStore, pages: int) -> None:
    """Let the file grow no further."""
    store._database.run_exclusive(
        lambda c: c.execute(f"PRAGMA max_page_count = {pages}").fetchall()
    )


@POSIX
class TestReadOnly:
    @pytest.fixture
    def folder(self) -> Iterator[Path]:
        """A folder of someone to whom permissions apply: the superuser may write anywhere."""
        folder = Path(tempfile.mkdtemp())
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield folder
        folder.chmod(0o700)
        shutil.rmtree(folder)

    @contextlib.contextmanager
    def unprivileged(self) -> Iterator[None]:
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(NOBODY)
        try:
            yield
        finally:
            os.seteuid(0)

    def test_a_folder_in_which_nothing_can_be_made(self, folder: Path):
        with self.unprivileged():
            folder.chmod(0o500)
            told(SQLiteStore(folder / "respool" / "respool.db"), "missing", "read-only")
            told(SQLiteStore(folder / "respool.db"), "missing", "read-only")

    @pytest.mark.parametrize("of_folder", [0o500, 0o700], ids=["folder too", "file alone"])
    def test_a_file_that_can_only_be_read_is_read(self, folder: Path, of_folder: int):
        with self.unprivileged():
            path = folder / "respool.db"
            first = SQLiteStore(path)
            first.keep(OWNER, "c1", by_ref(KEPT))
            first.close()
            path.chmod(0o400)
            folder.chmod(of_folder)
            store = SQLiteStore(path, wait=0.2)
            assert store.original(reference(KEPT), OWNER) == KEPT
            told(store, "read-only", "missing")
            assert store.original(reference(KEPT), OWNER) == KEPT
            folder.chmod(0o700)
            path.chmod(0o600)
            works(store)
            store.close()


@POSIX
class TestDeleted:
    def gone(self, path: Path) -> None:
        shutil.rmtree(path.parent)

    def file_alone(self, path: Path) -> None:
        path.unlink()

    def replaced(self, path: Path) -> None:
        path.rename(path.with_name("moved.db"))
        other = SQLiteStore(path)
        other.keep(OWNER, "c1", by_ref("of another process"))
        other.close()

    @pytest.mark.parametrize("way", ["gone", "file_alone", "replaced"])
    def test_a_new_file_is_begun_and_nothing_is_claimed_that_is_gone(
        self, store: SQLiteStore, way: str
    ):
        getattr(self, way)(store.path)
        assert store.readable_refs(by_ref(KEPT), OWNER) == frozenset()
        assert store.original(reference(KEPT), OWNER) is None
        works(store)
        store.keep(OWNER, "c1", by_ref(KEPT))
        again = SQLiteStore(store.path)  # what is kept now is in the file that is there now
        assert again.original(reference(KEPT), OWNER) == KEPT
        again.close()

    @pytest.mark.parametrize("way", ["gone", "file_alone", "replaced"])
    def test_keeping_again_what_was_kept_before_keeps_it_again(self, store: SQLiteStore, way: str):
        getattr(self, way)(store.path)
        store.keep(OWNER, "c1", by_ref(KEPT))
        again = SQLiteStore(store.path)
        assert again.original(reference(KEPT), OWNER) == KEPT
        again.close()

    def test_just_when_it_is_written_to(self, store: SQLiteStore):
        """The commit went to a file that has no name any more: it is made again."""
        database, deleted = store._database, []

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO meta VALUES ('written', 'x')")
            if not deleted:
                deleted.append(store.path.unlink())

        database.write(work)
        with contextlib.closing(sqlite3.connect(store.path)) as other:
            assert other.execute("SELECT value FROM meta WHERE key = 'written'").fetchall()

    def test_one_process_that_notices_late_takes_nothing_from_one_that_did_not(
        self, store: SQLiteStore
    ):
        """Closing an old file must not take away the log of the new one of the same name."""
        late = SQLiteStore(store.path)
        late.keep(OWNER, "c1", by_ref("old"))
        store.path.unlink()
        store.keep(OWNER, "c1", by_ref(NEW))
        late.close()
        assert store.original(reference(NEW), OWNER) == NEW
        again = SQLiteStore(store.path)
        assert again.original(reference(NEW), OWNER) == NEW
        again.close()

    def test_the_log_alone(self, store: SQLiteStore):
        store.path.with_name("respool.db-wal").unlink()
        works(store)
        again = SQLiteStore(store.path)
        assert again.original(reference(KEPT), OWNER) == KEPT  # it was not lost with its log
        again.close()

    def test_under_several_processes_that_go_on(self, path: Path):
        """Texts reported as kept after the last deletion are in the current file."""
        children = [child("write", str(path), str(n * 10_000), "10000") for n in range(2)]
        said: list[tuple[float, int]] = []

        def listen(stream: IO[str]) -> None:
            said.extend((time.monotonic(), int(line)) for line in stream if line[0].isdigit())

        streams = [one.stdout for one in children if one.stdout is not None]
        assert [stream.readline() for stream in streams] == ["ready\n"] * 2
        threads = [threading.Thread(target=listen, args=(stream,)) for stream in streams]
        for thread in threads:
            thread.start()
        for endings in (("",), ("", "-wal", "-shm"), ("-wal", "-shm", "")):
            time.sleep(0.2)
            for ending in endings:
                path.with_name(path.name + ending).unlink(missing_ok=True)
        over = time.monotonic() + 0.2  # what was on its way then has been heard
        time.sleep(0.8)
        for one, thread in zip(children, threads, strict=True):
            one.kill()
            thread.join()
            one.communicate()
        texts = by_ref(*(text_of(number) for received, number in said if received > over))
        assert texts
        store = SQLiteStore(path)
        assert store.readable_refs(texts, OWNER) == texts.keys()
        store.close()
        assert quarantined_files(path) == []

    def test_what_is_in_the_log_alone(self, store: SQLiteStore):
        """The file is then as it was before: nothing that came since may be claimed."""
        store._database.run_exclusive(
            lambda c: c.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        )
        store.keep(OWNER, "c1", by_ref(NEW))
        os.truncate(store.path.with_name("respool.db-wal"), 0)
        for number in range(10, 13):
            works_or_tells(store, number)
        store.keep(OWNER, "c1", by_ref(KEPT, NEW))
        assert store.original(reference(NEW), OWNER) == NEW
        again = SQLiteStore(store.path)
        assert again.readable_refs(by_ref(KEPT, NEW), OWNER) == by_ref(KEPT, NEW).keys()
        again.close()

    def test_without_leave_to_make_one_that_is_told(self, path: Path, store: SQLiteStore):
        reader = SQLiteStore(path, create=False)
        assert reader.original(reference(KEPT), None) == KEPT
        path.unlink()
        with pytest.raises(StoreUnavailable, match="there is no such file"):
            reader.original(reference(KEPT), None)
        assert not path.exists()
        reader.close()


def overwritten(data: bytes) -> bytes:
    return b"\xa5not a database any more" * (len(data) // 20)


def header_lost(data: bytes) -> bytes:
    return b"\0" * 100 + data[100:]


def first_page_lost(data: bytes) -> bytes:
    return data[:100] + b"\xff" * 3_996 + data[4_096:]


def half(data: bytes) -> bytes:
    return data[: len(data) // 2 // 4_096 * 4_096]


def cut_in_a_page(data: bytes) -> bytes:
    return data[: len(data) // 2 + 77]


def scrambled(data: bytes) -> bytes:
    random.seed(7)
    return data[:4_096] + random.randbytes(len(data) - 4_096)


DAMAGES = [overwritten, header_lost, first_page_lost, half, cut_in_a_page, scrambled]


class TestDamaged:
    def damaged(self, path: Path, damage: Callable[[bytes], bytes]) -> bytes:
        """A file that some store has written, damaged while nobody used it."""
        store = SQLiteStore(path)
        store.keep(OWNER, "c1", by_ref(*(text_of(number, 80) for number in range(300))))
        store.close()
        data = damage(path.read_bytes())
        path.write_bytes(data)
        return data

    @pytest.mark.parametrize("damage", DAMAGES)
    def test_the_file_is_moved_aside_and_a_new_one_begun(
        self, path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
    ):
        data = self.damaged(path, damage)
        texts = by_ref(*(text_of(number, 80) for number in range(300)))
        store = SQLiteStore(path, wait=0.5)
        store.keep(OWNER, "c1", texts)  # finds out, or has them all
        for ref, text in texts.items():
            assert store.original(ref, OWNER) in (text, None)
        for _ in range(2):  # what was found damaged when it was read can be kept again
            store.keep(OWNER, "c1", texts)
            assert {store.original(ref, OWNER) for ref in texts} == set(texts.values())
        works(store)
        store.close()
        (aside,) = [
            file for file in quarantined_files(path) if not file.name.endswith(("-wal", "-shm"))
        ]
        assert aside.name.startswith("respool.db.damaged-20")
        assert len(aside.read_bytes()) >= len(data) - 4_096
        assert f"It is now {aside}" in caplog.text

    def test_a_byte_of_a_text_that_is_another_leads_nowhere_and_heals(self, path: Path):
        store = SQLiteStore(path)
        text = "".join(chr(33 + n * n % 90) for n in range(90))  # stands in the file as it is
        store.keep(OWNER, "c1", by_ref(text))
        store.close()
        path.write_bytes(path.read_bytes().replace(text.encode(), text[::-1].encode()))
        again = SQLiteStore(path)
        assert again.original(reference(text), OWNER) is None
        assert not again.readable_refs(by_ref(text), OWNER)
        again.keep(OWNER, "c1", by_ref(text))
        assert again.original(reference(text), OWNER) == text
        again.close()
        assert quarantined_files(path) == []

    @POSIX
    @pytest.mark.parametrize("way", ["emptied", "overwritten"])
    def test_while_it_is_in_use(self, store: SQLiteStore, way: str):
        store.keep(OWNER, "c1", by_ref(*(text_of(number, 80) for number in range(300))))
        store._database.run_exclusive(
            lambda c: c.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        )
        size = store.path.stat().st_size
        with store.path.open("r+b") as file:
            if way == "emptied":
                file.truncate(0)
            else:
                file.write(b"\xa5" * size)
        for number in range(300, 320):
            works_or_tells(store, number)
        works(store)
        again = SQLiteStore(store.path)
        works(again)
        again.close()

    def test_a_thread_that_hears_of_it_late_does_not_move_the_new_file(self, store: SQLiteStore):
        seen: list[sqlite3.Connection] = []

        def work(connection: sqlite3.Connection) -> int:
            seen.append(connection)
            if len(seen) == 2:  # meanwhile another thread has moved it aside and gone on
                quarantine(store.path, file_identity(store.path), 1)
                store.keep(OWNER, "c1", by_ref(NEW))
            if len(seen) < 3:
                error = sqlite3.DatabaseError("database disk image is malformed")
                error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
                raise error
            return len(seen)

        assert store._database.read(work) == 3
        assert store.original(reference(NEW), OWNER) == NEW
        assert (
            len(
                {
                    file.name.split("-wal")[0].split("-shm")[0]
                    for file in quarantined_files(store.path)
                }
            )
            == 1
        )

    def test_a_reader_that_may_not_move_it_says_so(self, path: Path):
        data = self.damaged(path, overwritten)
        reader = SQLiteStore(path, create=False)
        with pytest.raises(StoreUnavailable, match="damaged"):
            reader.original(reference(KEPT), None)
        reader.close()
        assert path.read_bytes() == data
        assert quarantined_files(path) == []


def seen(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Every file of a folder, with its bytes, its mode and the time of its last change."""
    return {
        file.name: (file.read_bytes(), file.stat().st_mode, file.stat().st_mtime_ns)
        for file in folder.iterdir()
    }


def works_or_tells(store: SQLiteStore, number: int) -> None:
    with contextlib.suppress(StoreUnavailable):
        store.keep(OWNER, "c1", by_ref(text_of(number)))


class TestNotOurs:
    def newer(self, path: Path) -> None:
        store = SQLiteStore(path)
        store.keep(OWNER, "c1", by_ref(KEPT))
        store.close()
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")

    def of_another_program(self, path: Path) -> None:
        path.parent.mkdir()
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE bookmarks (url)")

    def of_another_program_that_says_so(self, path: Path) -> None:
        self.of_another_program(path)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA application_id = 252006675")
            connection.execute("PRAGMA user_version = 77")

    def of_the_former_name(self, path: Path) -> None:
        path.parent.mkdir()
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL)")
            connection.execute(f"PRAGMA application_id = {int.from_bytes(b'CLEW')}")
            connection.execute("PRAGMA user_version = 3")

    def of_the_former_name_and_damaged(self, path: Path) -> None:
        self.of_the_former_name(path)
        path.write_bytes(path.read_bytes()[:100] + b"\xff" * 5_000)

    @pytest.mark.parametrize(
        ("made", "said"),
        [
            ("of_the_former_name", "it was written by clew, respool's former name"),
            ("of_the_former_name_and_damaged", "it was written by clew, respool's former name"),
            ("newer", "a newer version of respool has written it; update respool"),
            ("of_another_program", "it is another program's file, not respool's"),
            ("of_another_program_that_says_so", "it is another program's file, not respool's"),
        ],
    )
    def test_is_refused_and_not_touched(self, path: Path, made: str, said: str):
        getattr(self, made)(path)
        data = path.read_bytes()
        store = SQLiteStore(path)
        for attempt in (lambda: store.keep(OWNER, "c1", by_ref(NEW)), lambda: store.facts("c1")):
            with pytest.raises(StoreUnavailable, match=said):
                attempt()
        store.close()
        assert path.read_bytes() == data
        assert [file.name for file in path.parent.iterdir()] == ["respool.db"]

    def test_one_of_the_former_name_is_refused_with_what_to_do(self, path: Path):
        self.of_the_former_name(path)
        with pytest.raises(StoreUnavailable) as error:
            SQLiteStore(path).salt()
        assert error.value.reason == "former"
        assert str(error.value) == (
            f"The store {path} cannot be used: it was written by clew, respool's former name. "
            "Nothing was released under that name, so respool does not read it: delete or move "
            "the file, or set RESPOOL_STORE to another path."
        )

    def test_one_of_the_former_name_is_known_by_its_log_alone(self, path: Path):
        """A process that is killed early leaves all it wrote in the log."""
        path.parent.mkdir()
        source = path.with_name("source.db")
        with contextlib.closing(sqlite3.connect(source, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL)")
            connection.execute(f"PRAGMA application_id = {int.from_bytes(b'CLEW')}")
            path.write_bytes(source.read_bytes())
            log = path.with_name(f"{path.name}-wal")
            log.write_bytes(source.with_name("source.db-wal").read_bytes())
        before = (path.read_bytes(), log.read_bytes())
        assert b"CLEW" not in before[0]
        store = SQLiteStore(path)
        for attempt in (lambda: store.keep(OWNER, "c1", by_ref(NEW)), lambda: store.facts("c1")):
            with pytest.raises(StoreUnavailable, match="it was written by clew"):
                attempt()
        store.close()
        assert (path.read_bytes(), log.read_bytes()) == before
        assert quarantined_files(path) == []

    @pytest.mark.parametrize(
        ("name", "data"),
        [
            (".profile", b"export A=1\n" * 50),
            ("mail.db", b"From: somebody\n" * 400),
            ("mail.sqlite3", b"\xa5" * 8_192),
            ("zeros.db", bytes(8_192)),
            ("cut.db", b"SQLite format 3\0" + bytes(20)),
            ("x.db", b"x"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_a_file_that_is_no_database_is_not_touched(
        self, tmp_path: Path, name: str, data: bytes
    ):
        path = tmp_path / name
        path.write_bytes(data)
        os.utime(path, (NOW - 40 * 86_400, NOW - 40 * 86_400))
        before = seen(tmp_path)
        store = SQLiteStore(path)
        for attempt in (lambda: store.keep(OWNER, "c1", by_ref(NEW)), lambda: store.facts("c1")):
            with pytest.raises(StoreUnavailable, match="not respool's"):
                attempt()
        with pytest.raises(StoreUnavailable, match="not respool's"):
            quarantine(path, file_identity(path), 1)
        with pytest.raises(StoreUnavailable, match="not respool's"):
            open_reader(path, 1)
        store.close()
        assert seen(tmp_path) == before

    @pytest.mark.parametrize("tables", [0, 1])
    @pytest.mark.parametrize("is_running", [False, True])
    def test_a_database_with_a_log_is_not_opened(
        self, tmp_path: Path, tables: int, is_running: bool
    ):
        """SQLite would create side files, or move the log into the file when it closes it."""
        path = tmp_path / "bookmarks.db"
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as theirs:
            theirs.execute("PRAGMA journal_mode = WAL")
            for number in range(tables):
                theirs.execute(f"CREATE TABLE t{number} (url)")
            if not is_running:
                theirs.close()
            before = seen(tmp_path)
            for create in (True, False):
                store = SQLiteStore(path, create=create)
                with pytest.raises(StoreUnavailable, match="not respool's"):
                    store.facts("c1")
                store.close()
                assert seen(tmp_path) == before

    @POSIX
    def test_a_pipe_is_not_read(self, tmp_path: Path):
        os.mkfifo(tmp_path / "respool.db")
        pipe = os.open(tmp_path / "respool.db", os.O_RDWR)
        os.write(pipe, b"x" * 100)
        with pytest.raises(StoreUnavailable, match="not respool's"):
            SQLiteStore(tmp_path / "respool.db").facts("c1")
        assert os.read(pipe, 200) == b"x" * 100
        os.close(pipe)

    @pytest.mark.parametrize("name", ["respool.db", "agents.db", "agents"])
    def test_one_that_names_respool_is_ours_by_any_name(self, tmp_path: Path, name: str):
        path = tmp_path / name
        store = SQLiteStore(path)
        store.keep(OWNER, "c1", by_ref(KEPT))
        store.close()
        path.write_bytes(first_page_lost(path.read_bytes()))
        store = SQLiteStore(path)
        works(store)
        store.close()
        assert len(quarantined_files(path)) >= 1

    @POSIX
    def test_one_that_was_killed_before_its_log_was_moved_is_ours(self, path: Path):
        """Its first bytes name respool, before anything is in its log."""
        process = child("write", str(path), "1", "1000")
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "1\n"]
        process.kill()
        process.communicate()
        assert path.read_bytes()[68:72] == b"RSPL"
        store = SQLiteStore(path)
        assert store.original(reference(text_of(1)), OWNER) == text_of(1)
        store.close()

    def test_tables_that_a_newer_version_changed_under_us_are_no_damage(self, store: SQLiteStore):
        with contextlib.closing(sqlite3.connect(store.path)) as newer:
            newer.execute("ALTER TABLE originals RENAME TO texts")
            newer.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
        told(store, "newer")
        assert quarantined_files(store.path) == []


@POSIX
class TestKilled:
    def test_a_new_file_never_has_a_header_without_our_id(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """One that was killed at that moment would leave another program's file."""
        seen: list[bytes] = []

        class Watched(sqlite3.Connection):
            def execute(self, *given: Any) -> sqlite3.Cursor:
                done = super().execute(*given)
                seen.append(path.read_bytes()[68:72])
                return done

        monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Watched))
        with contextlib.closing(SQLiteStore(path)) as store:
            works(store)
        assert set(seen) == {b"", b"RSPL"}

    def test_no_original_is_lost_that_was_said_to_be_kept(self, path: Path):
        random.seed(1)
        said: list[int] = []
        for turn in range(6):
            process = child("write", str(path), str(turn * 10_000), "10000")
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            if turn % 2:  # killed while it writes, else perhaps while it opens the file
                said.append(int(process.stdout.readline()))
            threading.Timer(random.uniform(0.02, 0.25), process.kill).start()
            said += [int(line) for line in process.stdout if line.endswith("\n")]
            process.communicate()
            assert process.returncode == -signal.SIGKILL
        assert said
        store = SQLiteStore(path)
        for number in said:
            text = text_of(number)
            assert store.original(reference(text), OWNER) == text
        assert quarantined_files(path) == []
        works(store)
        store.close()


class TestSeveralProcesses:
    @POSIX
    def test_one_that_ends_leaves_the_log_of_another(self, path: Path):
        """A file that is opened and closed beside SQLite would cost this process its locks."""
        store = SQLiteStore(path)
        works(store)
        beside = SQLiteStore(path)
        beside.salt()
        log = path.with_name(f"{path.name}-wal")
        before = log.stat().st_ino
        child("write", str(path), "1000", "3").communicate(timeout=60)
        assert log.stat().st_ino == before
        beside.close()
        store.close()

    def test_write_to_one_file(self, path: Path):
        writers = [child("write", str(path), str(start), "60") for start in (0, 30, 1_000)]
        for writer in writers:
            writer.communicate(timeout=60)
            assert writer.returncode == 0
        store = SQLiteStore(path)
        numbers = {*range(90), *range(1_000, 1_060)}
        texts = by_ref(*(text_of(number) for number in numbers))
        assert dict(store.originals(OWNER)) == texts
        ids = {one.id for one in store.requests("c1", None)}
        assert ids == {f"r{number}" for number in numbers}
        store.close()

    def test_agree_on_facts(self, path: Path):
        notes = [child("note", str(path), tokens) for tokens in ("1000", "2000")]
        said = [note.communicate(timeout=60)[0] for note in notes]
        store = SQLiteStore(path)
        held = " ".join(str(tokens) for _, tokens in store.facts("c1").windows)
        store.close()
        assert len(held.split()) == 20
        assert [line.strip() for line in said] == [held, held]
