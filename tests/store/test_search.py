"""Search in originals: what fits, who finds it, and what is left of it after a deletion."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from respool.markers import OmissionMarker, find_marker, reference
from respool.store import (
    RecordedEdit,
    Retention,
    ServerAddress,
    SQLiteStore,
    SQLStore,
    StoreLocation,
    UnsearchablePattern,
    search_index,
)
from respool.store.postgres import PostgresStore
from respool.store.search_index import MAX_PATTERN_CHARS, SearchTerms
from tests.effort import examples
from tests.store.support import (
    NOW,
    OTHER,
    OWNER,
    by_ref,
    bytes_of,
    open_at,
    record,
    stored_bytes,
    text_of,
)

SOURCE = 'def parse_range(text):\n    return foo.bar("a b", src/app/main.py)  # "quoted"\n'
GREEK = "“Straße” ΑΘΗΝΑ İstanbul → naïve │x9│\n"
LONG_WORD = "q" * 70 + "End and\0nothing\n"
COLOURED = "\x1b[1m\x1b[31mFAILED\x1b[0m test_\x1b[7mcol\x1b[27mour \x1b[2Jcleared\n"
TEXTS = (SOURCE, GREEK, LONG_WORD, COLOURED, "one two\nthree")

FITTING = [
    ("parse_range", SOURCE),
    ("PARSE_RA", SOURCE),  # case does not matter, and a word may go on
    ("range", None),  # within a word
    ("foo.bar()", None),
    ("foo.bar(", SOURCE),
    ('foo.bar("a', SOURCE),
    ("src/app/main.py", SOURCE),
    ("app/main", SOURCE),
    (".py)", SOURCE),
    ('"', SOURCE),
    ('"a b"', SOURCE),
    ('"b a"', None),
    ("text def", SOURCE),  # in any order
    ("def nowhere", None),
    ("AND", LONG_WORD),  # a word of the index's own language
    ("NEAR(", None),
    ("*", None),
    ("-one", None),
    ("one", "one two\nthree"),
    ('"two three"', "one two\nthree"),  # over the end of a line
    ("straße", GREEK),
    ("αθηνα", GREEK),
    ("İstanbul", GREEK),
    ("naïv", GREEK),
    ("x9", GREEK),
    ("→", GREEK),
    ("q" * 70, LONG_WORD),
    ("q" * 66, LONG_WORD),
    ("q" * 71, None),
    ("nothing", LONG_WORD),
    ("failed", COLOURED),
    ("test_colour", COLOURED),
    ("cleared", COLOURED),
    ("31m", None),
]


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(tmp_path / "respool.db")
    yield store
    store.close()


def index_file(store: SQLiteStore) -> Path:
    return store.path.with_name("respool.db-search")


def found(store: SQLStore, pattern: str, owner: str | None = None, **options: str) -> set[str]:
    return {hit.ref for hit in store.search(pattern, owner, limit=1_000, **options).hits}


@pytest.mark.parametrize("way", ["index", "scan", "no FTS5"])
def test_finds_the_same_by_the_index_and_without_it(
    file_store: SQLiteStore, way: str, monkeypatch: pytest.MonkeyPatch
):
    file_store.keep(OWNER, "c1", by_ref(*TEXTS))
    if way == "no FTS5":
        monkeypatch.setattr(search_index, "has_fts5", lambda: False)
    for pattern, text in FITTING:
        if way == "scan":
            file_store._index.delete()
        elif way == "index":
            found(file_store, "anything")
            known = file_store._index.candidates(SearchTerms(pattern), None)
            assert known.indexed == by_ref(*TEXTS).keys() or not re.search(r"\w", pattern)
        assert found(file_store, pattern) == (set() if text is None else {reference(text)}), pattern
    note = file_store.search("one", None).note
    assert ("has no FTS5" in note) is (way == "no FTS5")
    assert index_file(file_store).exists() is (way != "no FTS5")


def test_postgres_finds_the_same_by_its_index_and_without_it(postgres_url: str):
    store = PostgresStore(ServerAddress(postgres_url))
    store.keep(OWNER, "c1", by_ref(*TEXTS))
    for way in ("scan", "index"):
        for pattern, text in FITTING:
            if way == "scan":
                store._database.write(lambda c: c.execute("DELETE FROM search_words"))
            elif re.search(r"\w", pattern):
                known = store._index.candidates(SearchTerms(pattern), None)
                assert known.indexed == by_ref(*TEXTS).keys()
                assert text is not None or len(known.fitting) < len(TEXTS)
            assert found(store, pattern) == (set() if text is None else {reference(text)}), pattern
    assert store.search("one", None).note == ""
    store.close()


def test_postgres_reads_a_text_with_too_many_words_for_its_index(postgres_url: str):
    store = PostgresStore(ServerAddress(postgres_url))
    many = by_ref("".join(f"{number:x}word{number} " for number in range(90_000)))
    store.keep(OWNER, "c1", many)
    for _ in range(2):
        assert found(store, "15f8fword89999") == many.keys()
    known = store._index.candidates(SearchTerms("elsewhere"), "")
    assert known.indexed == known.fitting == many.keys()
    store.close()


@pytest.mark.parametrize("pattern", ["", " \n", '" "', "x" * (MAX_PATTERN_CHARS + 1)])
def test_refuses_a_pattern_that_names_nothing(store: SQLStore, pattern: str):
    with pytest.raises(UnsearchablePattern):
        store.search(pattern, None)


words = st.text(alphabet="abAB_1éßΣς\u0307İ中", min_size=1, max_size=3)
originals = st.lists(words, min_size=1, max_size=6).map(" ".join)


@given(mine=st.sets(originals, max_size=4), theirs=st.sets(originals, max_size=4))
@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_each_word_is_found_by_its_owner_by_nobody_else_and_not_after_forget(
    store: SQLStore, mine: set[str], theirs: set[str]
):
    store.forget()
    held = {OWNER: mine, OTHER: theirs, None: mine | theirs}
    store.keep(OWNER, "c1", by_ref(*mine))
    store.keep(OTHER, "c2", by_ref(*theirs))

    def check() -> None:
        for word in {one for text in mine | theirs for one in re.findall(r"\w+", text.lower())}:
            for owner, texts in held.items():
                fitting = {
                    reference(text)
                    for text in texts
                    if any(one.startswith(word) for one in re.findall(r"\w+", text.lower()))
                }
                assert found(store, word, owner) == fitting, (word, owner)

    for _ in range(2):  # by a scan first
        check()
    store.forget(owner=OWNER)
    held = {OWNER: set(), OTHER: theirs, None: theirs}
    for _ in range(2):
        check()


def test_tells_where_a_hit_came_from_and_lists_the_latest_first(location: StoreLocation):
    now = NOW
    store = open_at(location, clock=lambda: now)
    texts = [f"{'x' * 90} needle {number} {'y' * 200}\n" for number in range(3)]
    for number, text in enumerate(texts):
        now = NOW + number
        store.keep(OWNER, f"c{number}", by_ref(f"first\n{text}last"))
    ref = reference(f"first\n{texts[2]}last")
    edit = RecordedEdit("stale", "messages[3]", "", 9, ref, tool="Read", target="src/app.py")
    store.record(record("r1", conversation="c2", edits=(edit,)))
    assert store.flush()
    result = store.search("needle", OWNER, limit=2)
    first, second = result.hits
    assert (first.ref, first.conversation, first.time, first.line) == (ref, "c2", NOW + 2, 2)
    assert (first.tool, first.target) == ("Read", "src/app.py")
    assert (first.reason, first.place) == ("stale", "messages[3]")
    assert first.snippet.startswith("…xxx")
    assert "xxx needle 2 yyy" in first.snippet
    assert first.snippet.endswith("yyy…")
    assert (second.conversation, second.tool, second.reason) == ("c1", "", "")
    assert result.has_more
    assert not store.search("needle", OWNER, limit=3).has_more
    assert found(store, "needle", OWNER, conversation="c0") == {reference(f"first\n{texts[0]}last")}
    assert found(store, "needle", OTHER) == set()
    store.close()


def test_leaves_out_a_shortened_text_if_its_original_fits(store: SQLStore):
    original = "alpha\nbeta\n"
    short = f"alpha\n{OmissionMarker(1, 'lines', reference(original), 2)}\n"
    orphan = short.replace(reference(original), "a" * 20)
    assert find_marker(orphan) is not None
    store.keep(OWNER, "c1", by_ref(original, short))
    assert found(store, "alpha") == {reference(original)}
    assert found(store, "lines") == {reference(short)}
    store.keep(OWNER, "c1", by_ref(orphan))
    assert found(store, "alpha") == {reference(original), reference(orphan)}


SECRET = "zyxwordfish"


@pytest.mark.parametrize("by", [{}, {"owner": OWNER}, {"conversation": "c1"}, {"before": 9e12}])
def test_forget_takes_words_out_of_the_bytes_of_the_index(
    store: SQLStore, by: dict[str, str | float]
):
    store.keep(OWNER, "c1", by_ref(f"{SECRET} {text_of(1)}"))
    store.keep(OTHER, "c2", by_ref(text_of(2)))
    assert found(store, SECRET)
    assert SECRET.encode() in stored_bytes(store)  # or the rest shows nothing
    assert store.forget(**by).erased  # type: ignore[arg-type]
    assert SECRET.encode() not in stored_bytes(store)
    assert found(store, SECRET) == set()
    assert bool(found(store, "src/module_14.py")) is (
        by in ({"owner": OWNER}, {"conversation": "c1"})
    )
    assert SECRET.encode() not in stored_bytes(store)


def test_nothing_is_left_of_what_is_forgotten_while_it_is_indexed(
    file_store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
):
    file_store.keep(OWNER, "c1", by_ref(f"{SECRET} {text_of(1)}"))
    other, insert = SQLiteStore(file_store.path), search_index._insert
    erased: list[bool] = []

    def forget_and_insert(connection: sqlite3.Connection, ref: str, text: str) -> None:
        erased.append(other.forget().erased)
        insert(connection, ref, text)

    monkeypatch.setattr(search_index, "_insert", forget_and_insert)
    assert found(file_store, SECRET)
    assert erased == [os.name != "nt"]
    assert SECRET.encode() not in bytes_of(file_store.path)
    assert found(file_store, SECRET) == set()
    other.close()


def test_nobody_learns_the_conversations_of_others_that_have_the_same_text(store: SQLStore):
    shared = by_ref("the same for both")
    store.keep(OWNER, "mine", shared)
    store.keep(OTHER, "theirs", shared)
    for owner, name in ((OWNER, "mine"), (OTHER, "theirs")):
        assert [hit.conversation for hit in store.search("same", owner).hits] == [name]
        edit = RecordedEdit("stale", name, "", 9, *shared)
        store.record(record(name, owner=owner, conversation="both", edits=(edit,)))
        store.keep(owner, "both", shared)
    assert store.flush()
    for owner, name in ((OWNER, "mine"), (OTHER, "theirs")):
        (hit,) = store.search("same", owner, conversation="both").hits
        assert hit.place == name


def test_retention_takes_words_out_of_the_bytes_of_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(search_index, "_BUCKET_ORIGINALS", 2)
    monkeypatch.setattr(search_index, "_BUCKETS", search_index._BUCKETS.replace("1000", "2"))
    now, days = NOW, Retention(days=5)
    store = SQLiteStore(
        tmp_path / "respool.db", clock=lambda: now, elapsed=lambda: now, retention=days
    )
    store._maintain()
    old = by_ref(*(f"{SECRET}{number} {text_of(number)}" for number in range(4)))
    new = by_ref(*(f"late{number} {text_of(number)}" for number in range(4)))
    store.keep(OWNER, "old", old)
    for _ in range(4):
        now += 86_400
        store._maintain()
    store.keep(OWNER, "new", new)
    assert found(store, "late") == new.keys()
    assert SECRET.encode() in index_file(store).read_bytes()
    for _ in range(3):
        now += 86_400
        while store._maintain() < 1:
            pass
    assert SECRET.encode() not in bytes_of(store.path)
    known = store._index.candidates(SearchTerms("late1"), "")
    assert known.indexed < new.keys()  # a bucket was shared
    assert len(known.indexed) >= 2
    assert found(store, SECRET) == set()
    assert found(store, "late") == new.keys()
    store.close()


@pytest.mark.parametrize("damage", ["garbage", "version", "no table", "postings", "folder"])
def test_a_damaged_index_costs_nothing_but_time(file_store: SQLiteStore, damage: str):
    texts = by_ref(*(text_of(number) for number in range(30)))
    file_store.keep(OWNER, "c1", texts)
    found(file_store, "src")
    file = index_file(file_store)
    with contextlib.closing(sqlite3.connect(file)) as connection:
        if damage == "version":
            connection.execute("PRAGMA user_version = 77")
        elif damage == "no table":
            connection.execute("DROP TABLE words_0")
        elif damage == "postings":
            connection.execute("UPDATE words_0_data SET block = x'ffffffff' WHERE id > 10")
            connection.commit()
    if damage in ("garbage", "folder"):
        file.unlink()
    if damage == "garbage":
        file.write_bytes(b"no database" * 999)
    elif damage == "folder":
        file.mkdir()
    for _ in range(3):
        assert found(file_store, "src", OWNER) == texts.keys()
        assert found(file_store, "src", OTHER) == set()
    assert file_store.quarantined_files() == []
    if damage != "folder":
        assert file_store._index.candidates(SearchTerms("src"), "").indexed == texts.keys()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no permission bits")
def test_the_index_is_its_owners_alone_and_goes_with_a_deleted_store(tmp_path: Path):
    path = tmp_path / "respool.db"
    store = SQLiteStore(path)
    store.keep(OWNER, "c1", by_ref(f"{SECRET} {text_of(1)}"))
    found(store, SECRET)
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}
    path.unlink()
    store.keep(OWNER, "c2", by_ref("of a new file"))
    assert SECRET.encode() not in bytes_of(path)
    store.close()
