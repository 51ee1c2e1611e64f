"""Teams in the store: what belongs to one is out of reach of another, in result and in work."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from respool.errors import PolicyError
from respool.markers import reference
from respool.policy import Policy
from respool.store import (
    DecisionStore,
    Retention,
    SQLiteStore,
    Store,
    StoreLocation,
    resolve_name,
    search_index,
)
from respool.store.owned import OwnedStore
from respool.store.sql_store import SQLStore
from respool.store.teams import (
    Quota,
    Team,
    TeamDirectory,
    TeamError,
    TeamUsage,
    hash_token,
    new_team,
    new_token,
    period_at,
    team_policy,
)
from tests.store.support import NOW, by_ref, open_at, record, text_of

DAY = 86_400.0
UNOWNED = {"last_error", "quarantined_files", "size"}


def added(store: SQLStore, name: str, **fields: Any) -> Team:
    made = new_team(name, NOW, **fields)
    store.teams.add(made)
    return made


# --- isolation ---------------------------------------------------------------------------------


def test_originals_of_a_team_are_rows_of_its_own(store: SQLStore):
    one, two, text = added(store, "one"), added(store, "two"), text_of(1)
    ref = reference(text)
    for owner in (one.owner, "0" * 32):
        store.keep(owner, f"c of {owner}", by_ref(text))
        assert store.original(ref, owner) == text
        assert store.readable_refs([ref, "a" * 20], owner) == {ref}
        assert dict(store.originals(owner)) == {ref: text}
    assert store.original(ref, two.owner) is None
    assert store.readable_refs([ref], two.owner) == frozenset()
    assert dict(store.originals(two.owner)) == {}
    assert store.names("reference", ref[:6], 9) == [ref]  # two rows, one reference
    assert store.names("reference", ref[:6], 9, two.owner) == []
    assert store.names("reference", ref[:6], 9, one.owner) == [ref]
    assert store.original(ref, None) == text
    assert store.forget(owner="0" * 32).originals == 1
    assert store.original(ref, one.owner) == store.original(ref, None) == text
    assert store.readable_refs([ref, "a" * 20], None) == {ref}
    assert store.forget(owner=one.owner).originals == 1
    assert store.original(ref, None) is None


def test_search_finds_what_the_owner_has(store: SQLStore):
    one, two = added(store, "one"), added(store, "two")
    text = f"secret word\n{text_of(1)}"
    store.keep(one.owner, "c1", by_ref(text))
    store.keep(two.owner, "c2", by_ref(text_of(2)))
    for _ in range(2):  # without an index, then with one
        (mine,) = store.search("secret", one.owner).hits
        assert (mine.ref, mine.conversation) == (reference(text), "c1")
        assert store.search("secret", two.owner).hits == ()
        assert store.search("secret", two.owner, conversation="c1").hits == ()
        assert len(store.search("src", None).hits) == 2


class Recording:
    """A store that notes with which owner its methods are called."""

    def __init__(self, owners: list[object]) -> None:
        self._owners = owners

    def salt(self) -> bytes:
        return b"s" * 32

    def __getattr__(self, name: str) -> Any:
        signature = inspect.signature(getattr(SQLiteStore, name))

        def called(*args: Any, **given: Any) -> Any:
            self._owners.append(signature.bind(self, *args, **given).arguments["owner"])
            return ()

        return called


def test_every_read_of_an_owned_store_is_its_owners_whatever_is_asked_for():
    owners: list[object] = []
    owned = OwnedStore(Recording(owners), "team:mine.0a")  # pyright: ignore[reportArgumentType]
    given = {"since": 0.0, "until": 1.0, "step": 1.0, "pattern": "x", "ref": "r", "refs": ()}
    given |= {"kind": "reference", "beginning": "", "limit": 1, "pinned": True}
    given |= {"conversation": "c", "request": "r"}
    methods = [name for name, one in vars(OwnedStore).items() if name[0] != "_" and callable(one)]
    for name in methods:
        parameters = inspect.signature(getattr(owned, name)).parameters
        if "_owner" not in parameters:
            assert name in UNOWNED
            continue
        needed = {
            key: given[key] for key, one in parameters.items() if one.default is inspect._empty
        }
        for asked in (None, "team:other.0b", "0" * 32):
            getattr(owned, name)(**needed, _owner=asked)
    assert len(owners) > 3 * 15
    assert set(owners) == {"team:mine.0a"}


def test_an_owned_store_lacks_no_read_and_has_nothing_else():
    """A new method of the store is out of an owner's reach until somebody decides on it."""
    every = {
        name
        for source in (DecisionStore, Store, SQLStore)
        for name, one in vars(source).items()
        if name[0] != "_" and callable(one) and "owner" in inspect.signature(one).parameters
    }
    writes = {"keep", "forget", "refs"}
    own = {name for name, one in vars(OwnedStore).items() if name[0] != "_" and callable(one)}
    assert own == (every - writes) | UNOWNED


def test_short_names_mean_the_owners_own(store: SQLStore):
    one, two = added(store, "one"), added(store, "two")
    for owner, name in ((one.owner, "abcdef1"), (two.owner, "abcdef2")):
        store.record(record(f"r of {name}", owner=owner, conversation=name))
    assert store.flush()
    for team, name in ((one, "abcdef1"), (two, "abcdef2")):
        assert resolve_name(OwnedStore(store, team.owner), "conversation", "abcde") == name


# --- the same work -----------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SQLiteStore]:
    """A store in a file."""
    made = SQLiteStore(tmp_path / "respool.db")
    yield made
    made.close()


def steps_of(store: SQLiteStore, task: Any) -> tuple[int, list[str]]:
    """The instructions of SQLite's machine that a task takes, and its statements."""
    count, statements = [0], list[str]()
    readers = [reader for _, reader in store._database._readers]
    writer: Any = store._database._writer
    for connection in (*readers, writer):
        connection.set_progress_handler(lambda: count.__setitem__(0, count[0] + 1), 1)
        connection.set_trace_callback(statements.append)
    task()
    for connection in (*readers, writer):
        connection.set_progress_handler(None, 0)
        connection.set_trace_callback(None)
    return count[0], [one.split("'")[0] for one in statements]


def test_a_foreign_reference_takes_the_same_instructions_as_an_unknown_one(file: SQLiteStore):
    store = file
    one, two = added(store, "one"), added(store, "two")
    texts = [text_of(n) for n in range(50)]
    store.keep(one.owner, "c1", by_ref(*texts))
    store.keep(two.owner, "c2", by_ref(*[text_of(n) for n in range(100, 150)]))
    foreign = [reference(text) for text in texts]
    unknown = [reference(text_of(n)) for n in range(200, 250)]
    for read in (
        lambda ref: store.original(ref, two.owner),
        lambda ref: store.readable_refs([ref], two.owner),
    ):
        costs = [
            {(steps, *said) for steps, said in (steps_of(store, partial(read, r)) for r in refs)}
            for refs in (foreign, unknown)
        ]
        assert costs[0] == costs[1]
        assert len(costs[0]) == 1
        mine, _ = steps_of(store, partial(read, reference(text_of(100))))
        assert mine > next(iter(costs[0]))[0]  # the measure sees a difference


def test_a_text_is_kept_by_the_same_instructions_whether_another_team_has_it_or_not(
    file: SQLiteStore,
):
    store = file
    one, two = added(store, "one"), added(store, "two")
    known, unknown = (text_of(1, 3_000).replace("module", word) for word in ("moduli", "modulo"))
    store.keep(one.owner, "c1", by_ref(known))
    store.keep(two.owner, "c2", by_ref(text_of(3)))
    store.original("a" * 20, None)
    first = steps_of(store, lambda: store.keep(two.owner, "c2", by_ref(unknown)))
    second = steps_of(store, lambda: store.keep(two.owner, "c2", by_ref(known)))
    again = steps_of(store, lambda: store.keep(two.owner, "c3", by_ref(known)))
    assert first == second
    assert again != second


class Noted:
    """A connection that notes the statements it runs, with the number of rows that they find."""

    def __init__(self, connection: Any, seen: list[tuple[str, int]]) -> None:
        self._connection, self._seen = connection, seen

    def execute(self, sql: str, *given: Any) -> Any:
        rows = self._connection.execute(sql, *given)
        self._seen.append((sql, rows.rowcount))
        return rows

    def executemany(self, sql: str, given: Any) -> Any:
        rows = list(given)
        self._seen.append((sql, len(rows)))
        return self._connection.executemany(sql, rows)


def statements_of(store: SQLStore, monkeypatch: pytest.MonkeyPatch, task: Any) -> Any:
    """The statements of a task, on any store."""
    seen, database = list[tuple[str, int]](), store._database
    with monkeypatch.context() as noting:
        for name in ("read", "write"):
            run = getattr(database, name)
            noting.setattr(
                database, name, lambda work, run=run: run(lambda c: work(Noted(c, seen)))
            )
        task()
    return seen


def test_foreign_and_unknown_texts_are_read_and_kept_by_the_same_statements(
    store: SQLStore, monkeypatch: pytest.MonkeyPatch
):
    one, two = added(store, "one"), added(store, "two")
    foreign, unknown = text_of(1), text_of(2)
    store.keep(one.owner, "c1", by_ref(foreign))
    store.keep(two.owner, "c2", by_ref(text_of(3)))
    tasks: tuple[Any, ...] = (
        lambda text: store.original(reference(text), two.owner),
        lambda text: store.readable_refs([reference(text)], two.owner),
        lambda text: store.keep(two.owner, "c2", by_ref(text)),
    )
    second: list[Any] = []
    for task in tasks:
        first, second = [
            statements_of(store, monkeypatch, partial(task, text)) for text in (foreign, unknown)
        ]
        assert first == second
        assert first
    again = statements_of(store, monkeypatch, lambda: store.keep(two.owner, "c3", by_ref(unknown)))
    assert again != second  # the measure sees what is kept already


FOREIGN, NOWHERE = "zanzibar", "qanzibar"  # words of another team, and of nobody


def filled(store: SQLStore) -> tuple[Team, list[str]]:
    """A team that asks, and the texts of another one; both are indexed."""
    one, two = added(store, "one"), added(store, "two")
    texts = [f"{FOREIGN} {text_of(n, 3)}" for n in range(60)]
    store.keep(one.owner, "c1", by_ref(*texts))
    store.keep(two.owner, "c2", by_ref(*[text_of(n, 3) for n in range(100, 130)]))
    for owner in (one.owner, two.owner):
        assert store.search("src", owner).hits
    return two, texts


def test_a_search_runs_the_same_statements_whatever_words_another_team_has(
    store: SQLStore, monkeypatch: pytest.MonkeyPatch
):
    two, _ = filled(store)

    def search(word: str) -> list[tuple[str, int]]:
        """With the texts of the statements but for the word."""
        task = partial(store.search, word, two.owner)
        return [(sql.replace(word, ""), n) for sql, n in statements_of(store, monkeypatch, task)]

    assert search(FOREIGN) == search(NOWHERE)
    assert search("src") != search(NOWHERE)  # the measure sees what is found


def test_a_search_takes_the_same_instructions_whatever_words_another_team_has(
    file: SQLiteStore, monkeypatch: pytest.MonkeyPatch
):
    two, texts = filled(file)
    opened, count = search_index.SearchIndex._open, [0]

    def open_counted(index: search_index.SearchIndex) -> Any:
        connection = opened(index)
        connection.set_progress_handler(lambda: count.__setitem__(0, count[0] + 1), 1)
        return connection

    def search(word: str) -> tuple[int, int]:
        """The instructions in the index, and in the store."""
        count[0] = 0
        steps, _ = steps_of(file, partial(file.search, word, two.owner))
        return count[0], steps

    monkeypatch.setattr(search_index.SearchIndex, "_open", open_counted)
    assert search(FOREIGN) == search(NOWHERE)
    assert min(search(NOWHERE)) > 0
    assert search("src") > search(NOWHERE)
    refs = reference(texts[0]), reference("of nobody")
    for chars in (1, 4, 19, 20):
        foreign, unknown = [
            steps_of(file, partial(file.names, "reference", ref[:chars], 9, two.owner))
            for ref in refs
        ]
        assert foreign == unknown, chars


# --- tokens, teams, usage ----------------------------------------------------------------------


def test_tokens_are_random_and_their_hashes_keyed():
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(token) == 44 and token.startswith("rst_") for token in tokens)  # 160 bits
    token = tokens.pop()
    assert hash_token(token, b"a" * 32) != hash_token(token, b"b" * 32)
    assert hash_token(token, b"l" * 300) != hash_token(token, b"l" * 301)
    assert token not in hash_token(token, b"a" * 32)


def test_tokens_live_until_they_expire_or_are_revoked(store: SQLStore):
    one = added(store, "one")
    made, secret = store.teams.issue("one", NOW)
    _, short = store.teams.issue("one", NOW + 1, NOW + 60)
    found = store.teams.directory(NOW)
    assert found.find(secret, NOW) == (one, made)
    assert found.find(short, NOW + 59) is not None
    assert found.find(short, NOW + 60) is None  # also without another read of the store
    assert found.find(secret.upper(), NOW) is None
    store.teams.note_used(made.id, NOW + 5)
    store.teams.note_used(made.id, NOW + 3)
    assert [token.used for token in store.teams.tokens()] == [NOW + 5, None]
    assert store.teams.revoke(made.id, NOW)
    assert store.teams.directory(NOW).find(secret, NOW) is None
    store.teams.remove("one")
    assert store.teams.tokens() == []


def test_teams_are_added_changed_and_removed(store: SQLStore):
    one = added(store, "one", quota=Quota(dollars=5.0, period="day"), days=3.0)
    assert store.teams.get("one") == one
    with pytest.raises(TeamError, match="already"):
        added(store, "one")
    assert store.teams.change("one", days=None).days is None
    assert store.teams.get("one").quota == one.quota
    store.teams.remove("one")
    with pytest.raises(TeamError, match="There is no team"):
        store.teams.get("one")
    again = added(store, "one")
    assert again.owner != one.owner


@pytest.mark.parametrize("name", ["", "A", "a b", "-a", "a-", "a.b", "a/b", "a" * 41, "é", "a\n"])
def test_names_that_are_refused(name: str):
    with pytest.raises(TeamError, match="no name"):
        new_team(name, NOW)


@pytest.mark.parametrize(
    "fields",
    [{"days": 0.0}, {"days": 1e9}, {"settings": "cap_chars = -1"}, {"settings": "= 1"}],
)
def test_fields_that_are_refused(fields: dict[str, Any]):
    with pytest.raises((TeamError, PolicyError)):
        new_team("one", NOW, **fields)
    with pytest.raises(TeamError):
        Quota(requests=-1)


def test_a_teams_settings_are_over_the_servers():
    base = Policy(cap_chars=7_000, eager=True)
    team = new_team("one", NOW, settings='eager = false\npreset = "lean"')
    made = team_policy(team, base)
    assert (made.eager, made.cap_chars) == (False, 7_000)
    assert made.miss_penalty == Policy.preset("lean").miss_penalty
    assert team_policy(new_team("two", NOW), base) is base


@pytest.mark.parametrize(
    ("period", "at", "start", "end"),
    [
        ("day", (2026, 2, 28, 23, 59), (2026, 2, 28), (2026, 3, 1)),
        ("month", (2026, 12, 31, 23, 59), (2026, 12, 1), (2027, 1, 1)),
        ("month", (2028, 2, 29, 0, 0), (2028, 2, 1), (2028, 3, 1)),
    ],
)
def test_periods(period: Any, at: Any, start: Any, end: Any):
    times = [datetime(*one, tzinfo=UTC).timestamp() for one in (at, start, end)]
    assert period_at(period, times[0]) == tuple(times[1:])


def test_usage_is_counted_by_day_and_outlives_the_records(store: SQLStore):
    one = added(store, "one", quota=Quota(requests=3, period="month"))
    now = datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()
    for at, (day, mode) in enumerate(
        [(0.0, "compacted"), (1.0, "compacted"), (1.0, "observed"), (20.0, "compacted")]
    ):
        for owner in (one.owner, "0" * 32):
            paid = {"mode": mode, "cost_before": 0.5, "cost_after": 0.25}
            store.record(record(f"{at} of {owner}", owner=owner, time=now - day * DAY, **paid))
    assert store.flush()
    store.forget(owner=one.owner)
    found = store.teams.directory(now)
    assert found.usage_of(one) == TeamUsage(3, 1.0)  # observed requests were paid in full
    exceeded = found.exceeded(one, now)
    assert exceeded is not None
    assert (exceeded.used, exceeded.resets) == (3, datetime(2026, 12, 1, tzinfo=UTC).timestamp())
    daily = store.teams.change("one", quota=Quota(dollars=0.25, period="day"))
    exceeded = store.teams.directory(now).exceeded(daily, now)
    assert exceeded is not None
    assert "$0.25 of $0.25 of this day; it resets at 2026-11-16 00:00 UTC" in exceeded.sentence("x")
    tomorrow = now + DAY
    assert store.teams.directory(tomorrow).exceeded(daily, tomorrow) is None
    assert TeamDirectory().usage_of(one) == TeamUsage()


def test_conversations_of_a_team_go_after_its_days(location: StoreLocation):
    now = [NOW]
    store = open_at(
        location,
        retention=Retention(days=30.0),
        clock=lambda: now[0],
        elapsed=lambda: now[0],
    )
    short, usual = added(store, "short", days=2.0), added(store, "usual")
    for owner in (short.owner, usual.owner):
        store.keep(owner, f"c of {owner}", by_ref(text_of(1)))
    for _ in range(40):  # hours pass, and the clock is trusted
        now[0] += 3_600.0 * 2
        while store.sweep():
            pass
    left = {one.owner for one in store.conversations(None)}
    assert left == {usual.owner}
    assert store.original(reference(text_of(1)), usual.owner) is not None
    assert store.original(reference(text_of(1)), short.owner) is None
    store.close()


def test_a_file_without_teams_is_migrated(tmp_path: Path):
    store = SQLiteStore(tmp_path / "respool.db")
    assert store.teams.directory(time.time()).teams == ()
    store.close()
