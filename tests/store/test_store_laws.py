"""Store laws: any order of operations agrees with a plain model."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from respool.facts import Facts
from respool.markers import reference
from respool.store import Retention, ServerAddress, SQLStore, StoreLocation
from tests.effort import examples
from tests.store.postgres_server import PostgresServer
from tests.store.support import NOW, OTHER, OWNER, by_ref, open_at

TEXTS = ("one", "two\n" * 90, "three \ud800", "four", "")
DAYS = 10
owners = st.sampled_from([OWNER, OTHER])
names = st.sampled_from(["c1", "c2"])
prefixes = st.sampled_from(["0a", "0b", "0c"])


class Storing(RuleBasedStateMachine):
    """Two handles on one store, as two processes have, and what they should hold."""

    def __init__(self, location: StoreLocation | None = None) -> None:
        super().__init__()
        self.now = NOW
        self.folder = Path(tempfile.mkdtemp())
        self.location = location or self.folder / "respool.db"
        self.stores = [self.opened(), self.opened()]
        self.kept: dict[tuple[str, str], set[str]] = {}
        self.last: dict[tuple[str, str], float] = {}
        self.facts: dict[str, Facts] = {}
        self.noted: dict[str, float] = {}

    def opened(self) -> SQLStore:
        retention = Retention(days=DAYS)
        store = open_at(
            self.location, clock=lambda: self.now, elapsed=lambda: self.now, retention=retention
        )
        store.sweep()
        return store

    @rule(
        at=st.sampled_from([0, 1]), owner=owners, name=names, texts=st.sets(st.sampled_from(TEXTS))
    )
    def keep(self, at: int, owner: str, name: str, texts: set[str]) -> None:
        self.stores[at].keep(owner, name, by_ref(*texts))
        if texts:
            self.kept.setdefault((owner, name), set()).update(texts)
            self.last[owner, name] = self.now

    @rule(
        at=st.sampled_from([0, 1]), name=names, cold=st.sets(prefixes),
        windows=st.dictionaries(prefixes, st.integers(1, 9)),
    )  # fmt: skip
    def note(self, at: int, name: str, cold: set[str], windows: dict[str, int]) -> None:
        new = Facts(cold=frozenset(cold), windows=tuple(windows.items()))
        self.stores[at].add_facts(name, new)
        merged = self.facts.get(name, Facts()).merge(new)
        if merged != self.facts.get(name, Facts()):
            self.noted[name] = self.now
        self.facts[name] = merged

    @rule(at=st.sampled_from([0, 1]))
    def reopen(self, at: int) -> None:
        self.stores[at].close()
        self.stores[at] = self.opened()

    @rule(at=st.sampled_from([0, 1]), name=names)
    def forget(self, at: int, name: str) -> None:
        self.stores[at].forget(conversation=name)
        for key in [key for key in self.kept if key[1] == name]:
            del self.kept[key], self.last[key]
        self.facts.pop(name, None)

    @rule(at=st.sampled_from([0, 1]), owner=owners)
    def forget_owner(self, at: int, owner: str) -> None:
        self.stores[at].forget(owner=owner)
        for key in [key for key in self.kept if key[0] == owner]:
            del self.kept[key], self.last[key]
            self.forget_facts_of(key[1])

    @rule(days=st.sampled_from([0.1, DAYS + 1]), at=st.sampled_from([0, 1]))
    def let_time_pass(self, days: float, at: int) -> None:
        self.now += days * 86_400
        while self.stores[at].sweep():
            pass
        limit = self.now - DAYS * 86_400
        for key in [key for key in self.kept if self.last[key] < limit]:
            del self.kept[key], self.last[key]
            self.forget_facts_of(key[1])
        known = {name for _, name in self.kept}
        for name in [name for name in self.facts if name not in known]:
            if self.noted.get(name, self.now) < limit:
                self.facts.pop(name)

    def forget_facts_of(self, name: str) -> None:
        """Facts go with the last conversation of their name."""
        if all(other != name for _, other in self.kept):
            self.facts.pop(name, None)

    @invariant()
    def each_owner_reads_its_own_and_the_files_owner_all(self) -> None:
        refs = {reference(text): text for text in TEXTS}
        for owner in (OWNER, OTHER, None):
            mine = {
                text
                for (other, _), texts in self.kept.items()
                for text in texts
                if owner in (other, None)
            }
            for store in self.stores:
                assert store.readable_refs(refs, owner) == {reference(text) for text in mine}
                assert {store.original(ref, owner) for ref in refs} - {None} == mine

    @invariant()
    def both_know_the_same_facts(self) -> None:
        for store in self.stores:
            for name in ("c1", "c2"):
                assert store.facts(name) == self.facts.get(name, Facts())

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)


SETTINGS = settings(max_examples=examples(15), stateful_step_count=15, deadline=None)
TestStoring = Storing.TestCase
TestStoring.settings = SETTINGS


@pytest.mark.slow
def test_storing_in_postgres(postgres_server: PostgresServer):
    """As above, each time in a database of its own that has respool's schema."""
    url = postgres_server.new_database()
    first = open_at(ServerAddress(url))
    first.salt()
    first.close()
    template = url.rpartition("/")[2]

    def fresh() -> Storing:
        return Storing(ServerAddress(postgres_server.new_database(f"TEMPLATE {template}")))

    run_state_machine_as_test(fresh, settings=SETTINGS)  # type: ignore[arg-type]
