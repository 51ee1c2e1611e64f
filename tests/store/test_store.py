"""A store of either kind: kept data is read back by its owners and by nobody else."""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

import respool
from respool.config import from_env
from respool.errors import PolicyError
from respool.facts import Facts
from respool.history.repeat_rates import RepeatCell
from respool.markers import reference
from respool.store import (
    RefetchedResult,
    RejectedRequest,
    RequestLineage,
    RequestRecord,
    Retention,
    SentRequest,
    SQLiteStore,
    SQLStore,
    Store,
    StoreUnavailable,
    originals,
    record_queue,
    record_tables,
    store_path,
)
from respool.store.meta import read_stamp_and_trusted
from respool.store.originals import DamagedData, pack_bytes, unpack_bytes
from tests.store.support import NOW, OTHER, OWNER, another, by_ref, record, text_of

POSIX = pytest.mark.skipif(os.name == "nt", reason="Windows has no permission bits")


def reopened(store: SQLStore) -> SQLStore:
    store.close()
    return another(store)


TEXTS = {
    "short": "one line",
    "long": text_of(1, 2_000),
    "unpackable": "".join(chr(33 + (n * n * 7919) % 20_000) for n in range(3_000)),
    "half of a character": "before \ud83d after" * 50,
    "zero bytes": "a\0b\0" * 100,
    "blank": " ",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_an_original_comes_back_exactly(store: SQLStore, text: str):
    store.keep(OWNER, "c1", by_ref(text))
    again = reopened(store)
    assert again.original(reference(text), OWNER) == text
    again.close()


def test_an_original_is_kept_once_however_often_it_comes(store: SQLStore):
    text = text_of(1, 8_000)
    for owner, conversation in ((OWNER, "c1"), (OWNER, "c2"), (OTHER, "c3"), (OWNER, "c1")):
        store.keep(owner, conversation, by_ref(text))
    assert store.refs(None) == [reference(text)]
    assert store._database.used_bytes(0) < len(text)  # packed, and there once


def test_an_original_under_a_reference_that_is_not_its_own_is_refused(store: SQLStore):
    with pytest.raises(ValueError, match="is not the reference"):
        store.keep(OWNER, "c1", {reference("one"): "two"})
    assert store.refs(None) == []


class TestOwners:
    def test_one_key_never_reads_what_is_anothers(self, store: SQLStore):
        mine, shared = by_ref(text_of(1)), by_ref(text_of(2))
        store.keep(OWNER, "c1", mine | shared)
        store.keep(OTHER, "c2", shared)
        (my_ref,), (shared_ref,) = mine, shared
        assert store.original(my_ref, OTHER) is None
        assert store.original(shared_ref, OTHER) == shared[shared_ref]
        assert store.readable_refs([my_ref, shared_ref], OTHER) == {shared_ref}
        assert dict(store.originals(OTHER)) == shared
        assert my_ref not in store.originals(OTHER)
        with pytest.raises(respool.errors.UnknownReference):
            respool.expand(my_ref, store.originals(OTHER))

    def test_the_owner_of_the_file_reads_all(self, store: SQLStore):
        mine, others = by_ref(text_of(1)), by_ref(text_of(2))
        store.keep(OWNER, "c1", mine)
        store.keep(OTHER, "c2", others)
        assert dict(store.originals(None)) == mine | others
        assert len(store.originals(None)) == 2

    def test_the_same_name_of_a_conversation_is_another_one_for_another_key(self, store: SQLStore):
        store.record(record("r1", owner=OWNER, conversation="same"))
        store.record(record("r2", owner=OTHER, conversation="same"))
        assert store.flush()
        assert [one.id for one in store.requests("same", OWNER)] == ["r1"]
        assert [one.id for one in store.requests("same", None)] == ["r1", "r2"]
        assert store.edits("r2", OWNER) is None
        assert [one.owner for one in store.conversations(OTHER)] == [OTHER]
        (total,) = store.totals(OTHER, since=NOW, until=NOW + 1, step=1)
        assert total.requests == 1

    def test_reproductions_too(self, store: SQLStore):
        store.add_rejected(case(owner=OTHER))
        assert store.rejected_requests(OWNER) == []
        assert len(store.rejected_requests(OTHER)) == len(store.rejected_requests(None)) == 1


@pytest.mark.parametrize("ref", ["", "a", "A" * 20, "a" * 21, "\ud800" * 20, "a%", "' OR 1=1 --"])
def test_what_is_no_reference_leads_nowhere(store: SQLStore, ref: str):
    store.keep(OWNER, "c1", by_ref("text"))
    assert store.original(ref, None) is None
    assert store.readable_refs([ref], None) == frozenset()


def test_expand_reads_lines_and_patterns_out_of_a_store(store: SQLStore):
    text = "one\ntwo\nthree\n"
    store.keep(OWNER, "c1", by_ref(text))
    found = respool.expand(reference(text), store.originals(OWNER), lines=(2, 3), pattern="e$")
    assert found == "three\n"


def test_what_a_compaction_takes_out_can_be_kept_as_it_is(store: SQLStore):
    from respool.cli.demo import DEMO_POLICY, load_example

    out = respool.compact(load_example(), policy=DEMO_POLICY)
    assert out.originals
    store.keep(OWNER, "c1", out.originals)
    assert dict(store.originals(OWNER)) == dict(out.originals)


class TestFacts:
    ALL = Facts(
        skipped=frozenset({"0a"}),
        left_alone=frozenset({"0b"}),
        cold=frozenset({"0c", "0d"}),
        changed=frozenset({"0e"}),
        breakpoints=(("0c", "5m"), ("0d", "1h full")),
        windows=(("0f", 128_000),),
        summaries=(("abcdefghijklmnopqrst", "The loom was mended."),),
    )

    def test_are_what_was_noted(self, store: SQLStore):
        assert store.facts("c1") == Facts()
        store.add_facts("c1", self.ALL)
        again = reopened(store)
        assert again.facts("c1") == self.ALL
        assert again.facts("c2") == Facts()
        again.close()

    def test_the_first_writer_wins(self, store: SQLStore):
        second = another(store)
        store.add_facts("c1", Facts(windows=(("0f", 1_000),)))
        second.add_facts("c1", Facts(windows=(("0f", 2_000), ("1f", 3_000))))
        assert store.facts("c1") == Facts(windows=(("0f", 1_000), ("1f", 3_000)))
        assert second.facts("c1") == store.facts("c1")
        second.add_facts("c1", Facts(breakpoints=(("0f", "5m"),)))
        store.add_facts("c1", Facts(breakpoints=(("0f", "1h"),)))
        assert store.facts("c1").breakpoints == second.facts("c1").breakpoints == (("0f", "5m"),)
        second.close()

    def test_of_two_that_claim_a_history_the_first_one_has_it(self, store: SQLStore):
        second, prefix = another(store), "0a" * 32
        sent = SentRequest(time=NOW, terms="t", sent_as="projection", output=9, epochs=2)
        cold, changed = Facts(cold=frozenset({prefix})), Facts(changed=frozenset({prefix}))
        assert store.claim("c1", prefix, "one", sent, cold)
        assert not second.claim("c1", prefix, "two", SentRequest(), changed)
        assert second.facts("c1") == cold  # nothing of the second
        assert second.prior_requests("c1", [prefix, "0b"]).claims == ((prefix, "one", sent),)
        assert store.claim("c1", prefix, "one", SentRequest(), changed)  # again, with more facts
        assert second.facts("c1") == cold.merge(changed)
        assert second.claim("c1", "0b", "two", sent, Facts())
        assert second.claim("c2", prefix, "two", sent, Facts())
        assert store.prior_requests("c1", ["0c"]).claims == ()
        second.close()

    def test_every_kind_of_fact_is_stored(self):
        """A kind that is added to Facts must be added to the store as well."""
        kinds = set(msgspec.structs.asdict(self.ALL))
        from respool.store import record_tables

        assert kinds == {
            *record_tables._FACT_SETS,
            record_tables._WINDOWS,
            record_tables._BREAKPOINTS,
            record_tables._SUMMARIES,
        }


class TestRecords:
    def test_come_back_as_they_were_without_their_edits(self, store: SQLStore):
        full = record(
            session="s1",
            mode="observed",
            counted=True,
            epochs=3,
            prefix_break="tools changed",
            fallback="late",
            milliseconds=3.5,
            repairs=("A1 messages[2]: put a result in",),
            failures={"a_pass": "IndexError"},
        )
        assert store.record(full)
        assert store.flush()
        (read,) = store.requests("c1", OWNER)
        assert read == msgspec.structs.replace(full, edits=(), edited=1, made=1)
        assert store.edits("r1", OWNER) == full.edits
        assert store.edits("unknown", OWNER) is None

    def test_every_field_is_stored(self, store: SQLStore):
        """One that is added to Record and not to the store would come back as its default."""
        defaults = RequestRecord(id="", time=0, owner="", conversation="", format="")
        full = record(
            session="s",
            mode="bypassed",
            counted=True,
            epochs=1,
            prefix_break="b",
            fallback="f",
            milliseconds=1.0,
            repairs=("r",),
            failures={"p": "w"},
            edited=1,
            made=1,
            terms="t",
            sent_as="original",
            prefix="0a",
            parent="0b",
            again="overflow",
            waiting_offers=3,
            waiting_tokens=4_100,
            error="127.0.0.1:9: connection refused",
            agent="Codex",
            project="/w",
            prompt="go on",
            loops=("round",),
            arm="held-out",
            unit="u",
            repeats=(RepeatCell("read", 1, 2, 3, 4, 5),),
            facts=TestFacts.ALL,
            cost_uncached=2.0,
            refetched=(RefetchedResult("read", "a.py", "stale", "m[5]", "m[1]"),),
            head_cost=0.5,
            expired=7,
            expired_cost=0.25,
            missed=8,
            missed_cost=0.125,
            tools={"Read": 120, "Write": 90},
            called=("Read",),
        )
        fields = msgspec.structs.asdict(full)
        assert not [name for name in fields if fields[name] == getattr(defaults, name)]
        store.record(full)
        store.flush()
        (read,) = store.requests("c1", None)
        written = {name: fields[name] for name in ("edits", "facts", "tools", "called")}
        assert msgspec.structs.replace(read, **written) == full
        bill = store.bill(None, since=0.0, until=4e11)
        assert [(one.name, one.tokens, one.requests) for one in bill.tools] == [("Write", 90, 1)]
        assert (bill.expired, bill.missed, bill.head_money, bill.tools_known) == (7, 8, 0.5, 2)
        assert store.facts("c1") == full.facts

    def test_usage_and_costs_may_be_unknown(self, store: SQLStore):
        store.record(record(usage=None, cost_before=None, cost_after=None))
        store.flush()
        (read,) = store.requests("c1", OWNER)
        assert (read.usage, read.cost_before, read.cost_after) == (None, None, None)

    def test_conversations_come_latest_first_and_paged(self, store: SQLStore):
        for at in range(25):
            name = f"c{at % 5}"
            store.record(record(f"r{at}", conversation=name, time=NOW + at, model=f"m{at}"))
        assert store.flush()
        first = store.conversations(OWNER, limit=2)
        behind = (first[-1].last, first[-1].id)
        rest = store.conversations(OWNER, behind=behind, limit=10)
        assert [one.name for one in (*first, *rest)] == ["c4", "c3", "c2", "c1", "c0"]
        latest = first[0]
        assert (latest.started, latest.last, latest.requests) == (NOW + 4, NOW + 24, 5)
        assert (latest.tokens_before, latest.tokens_after, latest.saved) == (5_000, 2_000, 3_000)
        assert (latest.cost_before, latest.cost_after) == (2.5, 1.25)
        assert (latest.model, latest.format) == ("m24", "anthropic")

    def test_a_conversation_of_which_only_originals_are_known_is_one(self, store: SQLStore):
        store.keep(OWNER, "c1", by_ref("text"))
        (found,) = store.conversations(OWNER)
        assert (found.name, found.requests, found.model) == ("c1", 0, "")

    def test_totals_are_sums_over_stretches_of_time(self, store: SQLStore):
        store.record(record("r1", time=NOW + 1))
        store.record(record("r2", time=NOW + 9, status=529, fallback="late", usage=None))
        store.record(record("r3", time=NOW + 25, prefix_break="cold", again="overflow"))
        store.record(record("r4", time=NOW + 30))
        store.flush()
        first, third = store.totals(None, since=NOW, until=NOW + 30, step=10)
        assert (first.start, first.requests, first.saved) == (NOW, 2, 1_200)
        assert (first.errors, first.fallbacks, first.prefix_breaks) == (1, 1, 0)
        assert (first.input, first.cache_read, first.cache_write, first.output) == (10, 300, 90, 5)
        assert (first.cost_before, first.cost_after) == (1.0, 0.5)
        assert (third.start, third.requests, third.prefix_breaks) == (NOW + 20, 1, 1)
        assert third.fallbacks == 1

    def test_what_was_answered_without_a_cost_is_counted(self, store: SQLStore):
        for id, fields in {
            "paid": {},
            "unlisted": {"cost_after": None},
            "refused": {"status": 400},
            "failed": {"status": 529, "cost_after": None},
            "silent": {"status": 0, "cost_after": None},
        }.items():
            store.record(record(id, time=NOW, **fields))
        store.flush()
        (total,) = store.totals(None, since=NOW, until=NOW + 10, step=10)
        assert (total.requests, total.unpriced) == (5, 1)

    def test_lineage_is_in_order_and_one_owners(self, store: SQLStore):
        for id, owner, at, prefix, parent in (
            ("r2", OWNER, 2, "0b", "0a"),
            ("r1", OWNER, 1, "0a", ""),
            ("r3", OWNER, 3, "", "0b"),
            ("other", OTHER, 1, "0a", ""),
        ):
            store.record(record(id, owner=owner, time=NOW + at, prefix=prefix, parent=parent))
        store.flush()
        found = [
            RequestLineage("r1", "0a", ""),
            RequestLineage("r2", "0b", "0a"),
            RequestLineage("r3", "", "0b"),
        ]
        assert store.lineage("c1", OWNER) == found
        assert store.lineage("c1", OTHER) == [RequestLineage("other", "0a", "")]
        assert store.lineage("c2", None) == []

    def test_what_happened_is_found_without_the_rest(self, store: SQLStore):
        again = (RefetchedResult("read", "a.py", "stale", "m[5]", "m[1]"),)
        told: dict[str, dict[str, Any]] = {
            "plain": {}, "broke": {"prefix_break": "cold"}, "late": {"fallback": "late"},
            "wrong": {"status": 529}, "silent": {"status": 0}, "again": {"refetched": again},
            "round": {"loops": ("twice", "thrice")}, "failed": {"failures": {"a_pass": "why"}},
            "long": {"again": "overflow"},
        }  # fmt: skip
        for at, (id, fields) in enumerate(told.items()):
            store.record(record(id, time=NOW + at, **fields))
        store.record(record("other", time=NOW + 99, owner=OTHER, status=500))
        store.flush()
        found = store.notable(OWNER)
        assert [one.id for one in found] == [*reversed(told)][:-1]
        assert {one.id: one.loops for one in found}["round"] == ("twice", "thrice")
        assert {one.id: one.refetched for one in found}["again"] == again
        assert [one.id for one in store.notable(None, limit=2)] == ["other", "long"]
        assert [one.id for one in store.notable(None, behind=NOW + 3)] == ["late", "broke"]
        assert [one.id for one in store.notable(OWNER, since=NOW + 7)] == ["long", "failed"]

    def test_what_happened_is_counted(self, store: SQLStore):
        again = (RefetchedResult("read", "a.py", "stale", "m[5]", "m[1]"),)
        store.record(record("r1", cost_uncached=2.0, refetched=again, loops=("a", "b")))
        store.record(record("r2", mode="observed", cost_uncached=1.0, status=0))
        store.flush()
        (total,) = store.totals(None, since=NOW, until=NOW + 1, step=1)
        (conversation,) = store.conversations(OWNER)
        for found in (total, conversation):
            assert (found.refetched, found.loops, found.errors, found.observed) == (1, 2, 1, 1)
        assert (total.cost_uncached, total.would_saved, total.would_cost) == (3.0, 240, 0.25)

    def test_requests_come_in_order_and_from_a_time_on(self, store: SQLStore):
        for at in (3, 1, 2):
            store.record(record(f"r{at}", time=NOW + at))
        store.flush()
        assert [one.id for one in store.requests("c1", None)] == ["r1", "r2", "r3"]
        assert [one.id for one in store.requests("c1", None, after=NOW + 1)] == ["r2", "r3"]
        assert [one.id for one in store.requests("c1", None, limit=1)] == ["r1"]

    def test_many_at_once_are_what_they_are_one_by_one(self, store: SQLStore):
        """Of several conversations at once, not in the order of their times, one of them twice."""
        order = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4)
        records = [
            record(
                id=f"r{min(number, 22)}",
                time=NOW + when,
                owner=OTHER if number % 5 else OWNER,
                conversation=f"c{when % 4}",
                session=f"s{when}" if when % 3 else "",
            )
            for number, when in enumerate(order)
        ]
        found: list[Any] = []
        for step in (1, len(records)):
            for at in range(0, len(records), step):
                store._write_records(records[at : at + step])  # pyright: ignore[reportPrivateUsage]
            held = store.conversations(None)
            told = [(one.owner, one.name, one.session, one.started, one.last) for one in held]
            found.append((told, [store.requests(one.name, None) for one in held]))
            store.forget()
        assert found[0] == found[1]
        assert sum(map(len, found[0][1])) >= 23

    def test_one_that_cannot_be_written_is_dropped_and_counted(self, store: SQLStore):
        store.record(record("r1"))
        store.record(record("r2", tokens_before=2**70))
        store.record(record("r3", model="\ud800"))
        store.record(record("r4"))
        assert store.flush()
        assert [one.id for one in store.requests("c1", None)] == ["r1", "r4"]
        assert store.dropped == 2

    def test_are_written_within_a_second_without_being_asked_for(self, store: SQLStore):
        store.salt()
        store.record(record())
        until = time.monotonic() + 5
        while not store.requests("c1", None) and time.monotonic() < until:
            time.sleep(0.05)
        assert store.requests("c1", None)

    def test_closing_writes_what_waits(self, store: SQLStore):
        for at in range(1_200):
            store.record(record(f"r{at}"))
        again = reopened(store)
        assert len(again.requests("c1", None, limit=10_000)) == 1_200
        again.close()


class TestAQueueThatIsFull:
    def test_drops_and_counts_and_never_waits(self):
        stuck = threading.Event()

        def write(_: object) -> None:
            stuck.wait(20)

        queue = record_queue.RecordQueue(write, lambda: 60.0)
        begun = time.monotonic()
        taken = sum(
            queue.record(record(f"r{at}")) for at in range(record_queue.MAX_WAITING + 2_000)
        )
        assert time.monotonic() - begun < 5
        assert record_queue.MAX_WAITING <= taken < record_queue.MAX_WAITING + 2_000
        assert queue.dropped == record_queue.MAX_WAITING + 2_000 - taken
        stuck.set()
        queue.close(5)

    def test_a_store_that_comes_back_gets_what_waited(self):
        written: list[str] = []
        troubles = iter([StoreUnavailable(Path("x"), "busy")])

        def write(batch: list[RequestRecord]) -> None:
            for trouble in troubles:
                raise trouble
            written.extend(one.id for one in batch)

        queue = record_queue.RecordQueue(write, lambda: 60.0)  # type: ignore[arg-type]
        queue.record(record("r1"))
        assert queue.flush(5)
        assert (written, queue.dropped) == (["r1"], 0)
        queue.close(5)

    def test_at_the_end_what_cannot_be_written_is_counted(self):
        def write(_: object) -> None:
            raise StoreUnavailable(Path("x"), "full")

        queue = record_queue.RecordQueue(write, lambda: 60.0)
        queue.record(record("r1"))
        queue.record(record("r2"))
        queue.close(5)
        assert queue.dropped == 2
        assert not queue.record(record("r3"))


class TestTroubleThatLasts:
    """A file of a newer version may be there for weeks, and each request makes a record."""

    def test_is_told_once_until_it_is_over(self, caplog: pytest.LogCaptureFixture):
        newer = [True]

        def write(_: object) -> None:
            if newer[0]:
                raise StoreUnavailable(Path("x"), "newer")

        queue = record_queue.RecordQueue(write, lambda: 60.0)
        for broken in (True, True, True, False, True, True):
            newer[0] = broken
            queue.record(record())
            assert queue.flush(5)
        queue.close(5)
        assert queue.dropped == 5
        assert [one.getMessage()[:42] for one in caplog.records] == [
            "The record of a request cannot be written:"
        ] * 2

    def test_tidying_too(self, caplog: pytest.LogCaptureFixture):
        ways = iter([OSError("no"), OSError("no"), None, OSError("no")])

        def tend() -> float:
            if (trouble := next(ways)) is not None:
                raise trouble
            return 0.0

        queue = record_queue.RecordQueue(lambda _: None, tend)
        for _ in range(4):
            queue._maintain_at = 0.0
            queue._maintain_if_due()
        assert [one.getMessage() for one in caplog.records] == [
            "The store could not be tidied: no"
        ] * 2


def case(**fields: object) -> RejectedRequest:
    given: dict[str, object] = {
        "time": NOW, "owner": OWNER, "conversation": "c1", "format": "anthropic", "status": 400,
        "request": b'{"messages": []}', "sent": b"{}", "policy": "cap_chars = 1", "facts": "{}",
        "error": "messages.1: wrong", "version": "0.1.0",
    }  # fmt: skip
    return RejectedRequest(**{**given, **fields})  # type: ignore[arg-type]


class TestReproductions:
    def test_come_back_as_they_were(self, store: SQLStore):
        store.add_rejected(case(request=b'{"a": "\xc3\xa4"}' * 1_000))
        again = reopened(store)
        assert again.rejected_requests(None) == [case(request=b'{"a": "\xc3\xa4"}' * 1_000)]
        again.close()

    def test_are_bounded_in_size_and_in_number(
        self, store: SQLStore, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(record_tables, "MAX_REJECTED_BYTES", 100)
        store.add_rejected(case(request=b"x" * 101, sent=b"y" * 100, error="e" * 100_000))
        (kept,) = store.rejected_requests(None)
        assert (kept.request, len(kept.sent), len(kept.error)) == (b"", 100, 20_000)
        for at in range(record_tables.MAX_REJECTED_REQUESTS + 5):
            store.add_rejected(case(version=str(at)))
        versions = [one.version for one in store.rejected_requests(None)]
        assert versions == [
            str(at) for at in reversed(range(5, record_tables.MAX_REJECTED_REQUESTS + 5))
        ]

    def test_have_no_place_for_headers(self):
        assert "headers" not in {field.name for field in msgspec.structs.fields(RejectedRequest)}


def test_many_threads_keep_at_once(store: SQLStore):
    texts = [text_of(number) for number in range(200)]

    def work(at: int) -> str | None:
        store.keep(OWNER, f"c{at % 7}", by_ref(texts[at], texts[(at + 1) % 200]))
        return store.original(reference(texts[at]), OWNER)

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(work, range(200))) == texts
    assert len(store.refs(None)) == 200


def test_reads_do_not_wait_for_a_writer(store: SQLStore):
    store.keep(OWNER, "c1", by_ref("kept"))
    database = store._database

    def slow(_: object) -> float:
        begun = time.monotonic()
        assert store.original(reference("kept"), OWNER) == "kept"
        return time.monotonic() - begun

    with ThreadPoolExecutor(1) as threads:
        took = database.write(lambda c: threads.submit(slow, c).result(5))
    assert took < 1


class TestRemembering:
    def test_what_is_kept_already_is_not_looked_up_one_by_one(
        self, store: SQLStore, monkeypatch: pytest.MonkeyPatch
    ):
        texts = by_ref(*(text_of(number, 2) for number in range(2_000)))
        store.keep(OWNER, "c1", texts)
        read, asked = store._database.read, list[object]()
        monkeypatch.setattr(store._database, "read", lambda w: (asked.append(w), read(w))[1])
        store.keep(OWNER, "c1", texts)
        assert asked == [read_stamp_and_trusted]

    @pytest.mark.parametrize("way", ["forgotten", "another file"])
    def test_what_another_process_took_away_is_kept_again(self, store: SQLStore, way: str):
        texts = by_ref(text_of(1))
        store.keep(OWNER, "c1", texts)
        second = another(store)
        if way == "another file" and isinstance(store, SQLiteStore) and os.name != "nt":
            store.path.unlink()
            second.keep(OWNER, "c2", by_ref("of the new file"))
        else:
            second.forget()
        assert not second.readable_refs(texts, None)
        store.keep(OWNER, "c1", texts)
        assert second.readable_refs(texts, OWNER)
        second.close()

    def test_is_bounded(self):
        remembered = originals.ReferenceCache()
        for number in range(200):
            remembered.add((OWNER, f"c{number}"), b"s", {"a"}, NOW)
        assert len(remembered._known) == 64
        assert remembered.has_all((OWNER, "c199"), b"s", {"a"}, NOW - 1)
        assert not remembered.has_all((OWNER, "c0"), b"s", {"a"}, NOW - 1)
        for number in range(6_000):
            remembered.add((OWNER, "c199"), b"s", {f"r{number}"}, NOW)
        assert len(remembered._known[OWNER, "c199"].refs) <= 5_000


def test_a_closed_store_says_so(store: SQLStore):
    store.keep(OWNER, "c1", by_ref("kept"))
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable, match="it was closed"):
        store.keep(OWNER, "c1", by_ref("more"))
    assert not store.record(record())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_opens_a_connection_of_its_own(store: SQLStore):
    store.keep(OWNER, "c1", by_ref("of the parent"))
    child = os.fork()
    if child == 0:
        try:
            store.keep(OWNER, "c1", by_ref("of the child"))
            os._exit(0 if store.original(reference("of the parent"), OWNER) else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.readable_refs(by_ref("of the child"), OWNER)


def test_the_store_is_one(store: SQLStore):
    as_protocol: Store = store
    assert as_protocol.readable_refs([], None) == frozenset()


class TestPlaces:
    @pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="as on Linux")
    @pytest.mark.parametrize(
        ("environ", "expected"),
        [
            ({}, "/home/me/.local/state/respool/respool.db"),
            ({"XDG_STATE_HOME": "/var/state"}, "/var/state/respool/respool.db"),
            ({"XDG_STATE_HOME": "relative"}, "/home/me/.local/state/respool/respool.db"),
            ({"RESPOOL_STORE": "/elsewhere/s.db", "XDG_STATE_HOME": "/x"}, "/elsewhere/s.db"),
            ({"RESPOOL_STORE": "  "}, "/home/me/.local/state/respool/respool.db"),
        ],
    )
    def test_the_usual_ones(self, environ: dict[str, str], expected: str):
        assert store_path(environ, Path("/home/me")) == Path(expected)

    def test_a_relative_path_is_refused(self):
        with pytest.raises(PolicyError, match=r"RESPOOL_STORE='s\.db'"):
            store_path({"RESPOOL_STORE": "s.db"})

    def test_its_variables_are_no_settings_of_a_policy(self):
        named = {
            "RESPOOL_STORE": "/s.db",
            "RESPOOL_STORE_DAYS": "3",
            "RESPOOL_STORE_MEGABYTES": "5",
        }
        assert from_env(named) == respool.Policy()
        assert Retention.from_env(named) == Retention(3, 5)
        with pytest.raises(PolicyError):
            from_env({"RESPOOL_STORED": "x"})

    @pytest.mark.parametrize("value", ["0", "-1", "nan", "many", "1e99"])
    def test_what_retention_cannot_be(self, value: str):
        said = f"RESPOOL_STORE_DAYS='{value}' is not allowed; allowed: a number from 1 to 36,500"
        with pytest.raises(PolicyError, match=said):
            Retention.from_env({"RESPOOL_STORE_DAYS": value})


class TestPacking:
    @pytest.mark.parametrize("data", [b"", b"x", b"x" * 127, b"x" * 5_000, os.urandom(5_000)])
    def test_gives_back_what_went_in_and_is_never_longer(self, data: bytes):
        packing, small = pack_bytes(data)
        assert len(small) <= len(data)
        assert unpack_bytes(packing, small, len(data)) == data

    def test_a_bomb_is_not_unpacked(self):
        packing, bomb = pack_bytes(b"\0" * 50_000_000)
        with pytest.raises(DamagedData):
            unpack_bytes(packing, bomb, 100)
