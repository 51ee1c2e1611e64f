"""Both stores, asked the same after the same writes: the answers are equal."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from respool.facts import Facts
from respool.history.repeat_rates import RepeatCell
from respool.pricing import Usage
from respool.store import (
    ConversationSummary,
    KeepAliveEvent,
    PriorRequests,
    RecordedEdit,
    RecordFilter,
    RefetchedResult,
    RequestRecord,
    SearchResult,
    ServerAddress,
    SQLStore,
)
from respool.store.base import KeepAliveKind
from tests.store.support import NOW, OTHER, OWNER, by_ref, open_at, record

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the server runs on POSIX")
OWNERS = (None, OWNER, OTHER, "nobody")
FILTERS = (
    RecordFilter(),
    RecordFilter(agent="Codex"),
    RecordFilter(agent="", project="/w"),
    RecordFilter(model="gpt-5"),
    RecordFilter(since=NOW + 20, until=NOW + 70.5),
    RecordFilter(words=("cod", "WEB")),
    RecordFilter(words=("ünï", "c3")),
    RecordFilter(words=("100%_",)),
)
KINDS: tuple[KeepAliveKind, ...] = ("ping", "hit")
WHOLE: dict[str, Any] = {"since": 0.0, "until": 4e9}


def drawn_record(chance: random.Random, at: int) -> RequestRecord:
    """A record with any of its fields set."""
    edits = tuple(
        RecordedEdit(f"reason{n}", f"messages[{n}]", "", n, f"{n:020}", tool="Read", target="a.py")
        for n in range(chance.randrange(3))
    )
    cost = chance.choice([None, 0.0, 0.25, 1.5])
    return record(
        f"r{at:03}",
        time=NOW + at + chance.choice([0, 0.5]),
        owner=chance.choice([OWNER, OTHER]),
        conversation=f"c{chance.randrange(6)}",
        session=chance.choice(["", "s1", "s2"]),
        format=chance.choice(["anthropic", "openai-chat", "gemini"]),
        model=chance.choice(["claude-opus-4-8", "gpt-5", "qwen3", ""]),
        agent=chance.choice(["", "Codex", "Claude Code"]),
        project=chance.choice(["", "/w", "/home/Webseite"]),
        prompt=chance.choice(["", "Go ÜNÏ on", "100%_ sure"]),
        mode=chance.choice(["compacted", "observed", "bypassed"]),
        status=chance.choice([0, 200, 200, 429, 529]),
        tokens_before=chance.randrange(9_000),
        saved=chance.randrange(-50, 4_000),
        counted=chance.choice([True, False]),
        usage=chance.choice([None, Usage(input=chance.randrange(900), cache_read=300, output=5)]),
        cost_before=cost,
        cost_after=chance.choice([None, cost]),
        cost_uncached=chance.choice([None, 2.0]),
        epochs=chance.randrange(4),
        prefix_break=chance.choice(["", "", "cold"]),
        fallback=chance.choice(["", "", "late"]),
        again=chance.choice(["", "", "overflow"]),
        refetched=chance.choice([(), (RefetchedResult("read", "a.py", "stale", "m[5]", "m[1]"),)]),
        loops=chance.choice([(), ("twice",)]),
        edits=edits,
        prefix=chance.choice(["", f"{at % 7:02x}"]),
        parent=chance.choice(["", f"{at % 5:02x}"]),
        head_cost=chance.choice([None, 0.5]),
        expired=chance.choice([0, 7]),
        expired_cost=chance.choice([None, 0.25]),
        missed=chance.choice([0, 9]),
        arm=chance.choice(["", "held-out", "compacted"]),
        unit=f"u{chance.randrange(3)}",
        repeats=chance.choice([(), (RepeatCell("read", 1, 2, 3, 4, 5),)]),
        tools=chance.choice([{}, {"Read": 120, f"T{at % 4}": at}]),
        called=chance.choice([(), ("Read",), (f"T{at % 3}",)]),
        facts=chance.choice([Facts(), Facts(windows=((f"{at % 9:02x}", at + 1),))]),
    )


def fill(store: SQLStore, seed: int) -> None:
    """The same writes for the same seed."""
    chance, at = random.Random(seed), 0
    for _ in range(12):
        store._write_records([drawn_record(chance, at + n) for n in range(8)])
        at += 8
        name = f"c{chance.randrange(7)}"
        store.keep(chance.choice([OWNER, OTHER]), name, by_ref(*map(str, range(at % 5, at % 11))))
        store.add_facts(
            name,
            Facts(
                cold=frozenset({f"{at:04x}"}), breakpoints=(("0f", chance.choice(["5m", "1h"])),)
            ),
        )
        kind = chance.choice(KINDS)
        store.add_keep_alive(
            KeepAliveEvent(
                time=NOW + at, owner=OWNER, conversation=name, model="m", kind=kind, money=0.125
            )
        )
    store.set_pinned("c2", True)
    store.set_pinned("c4", True)
    store.set_pinned("c4", False)


def answers(store: SQLStore) -> dict[str, Any]:
    """What every question is answered."""
    found: dict[str, Any] = {}

    def ask(name: str, question: Callable[[], Any]) -> None:
        found[name] = _comparable(question())

    for owner in OWNERS:
        for only in FILTERS:
            key = f"{owner} {only}"
            ask(f"conversations {key}", lambda o=owner, f=only: store.conversations(o, only=f))
            ask(f"records {key}", lambda o=owner, f=only: store.records(o, only=f, limit=9))
            ask(f"notable {key}", lambda o=owner, f=only: store.notable(o, only=f, limit=9))
            ask(
                f"totals {key}",
                lambda o=owner, f=only: store.totals(
                    o, since=NOW, until=NOW + 96.5, step=7.25, only=f
                ),
            )
            ask(
                f"origins {key}",
                lambda o=owner, f=only: store.totals_by_origin(o, **WHOLE, only=f),
            )
        ask(f"bill {owner}", lambda o=owner: store.bill(o, **WHOLE))
        ask(f"bill of a time {owner}", lambda o=owner: store.bill(o, since=NOW + 9, until=NOW + 50))
        ask(f"keep-alive {owner}", lambda o=owner: store.keep_alive_total(o, **WHOLE))
        ask(f"units {owner}", lambda o=owner: store.holdout_units(o))
        ask(f"repeats {owner}", lambda o=owner: store.repeats(o, since=NOW + 5))
        ask(f"refs {owner}", lambda o=owner: store.refs(o))
        ask(f"search {owner}", lambda o=owner: store.search("1", o))
        for at in range(7):
            name = f"c{at}"
            ask(f"requests {owner} {name}", lambda o=owner, n=name: store.requests(n, o))
            ask(f"lineage {owner} {name}", lambda o=owner, n=name: store.lineage(n, o))
            ask(f"edits {owner} {at}", lambda o=owner, n=at: store.edits(f"r{n:03}", o))
    for at in range(7):
        name = f"c{at}"
        ask(f"facts {name}", lambda n=name: store.facts(n))
        ask(f"pinned {name}", lambda n=name: store.is_pinned(n))
        ask(f"prior {name}", lambda n=name: store.prior_requests(n, ["00", "01", "03", "99"]))
    for kind in ("reference", "conversation", "owner"):
        ask(f"names {kind}", lambda k=kind: store.names(k, "", 9))  # type: ignore[arg-type]
    return found


def _comparable(value: Any) -> Any:
    """An answer without the numbers of rows, sums rounded, and the time of a search."""
    if isinstance(value, list):
        return [_comparable(one) for one in value]
    if isinstance(value, ConversationSummary):
        return replace(value, id=0)
    if isinstance(value, PriorRequests):
        return replace(value, last_id=bool(value.last_id))
    if isinstance(value, SearchResult):
        return sorted(hit.ref for hit in value.hits)
    return value


@pytest.mark.parametrize("seed", [1, 2])
def test_both_answer_alike(tmp_path: Path, postgres_url: str, seed: int):
    found: list[dict[str, Any]] = []
    for location in (tmp_path / "respool.db", ServerAddress(postgres_url)):
        with contextlib.closing(open_at(location, clock=lambda: NOW + 50)) as store:
            fill(store, seed)
            before = answers(store)
            done = store.forget(conversation="c3"), store.forget(owner=OTHER, before=NOW + 40)
            found.append({**before, "forgot": done, "after": answers(store)})
    one, other = found
    assert len(one) > 250
    assert sum(bool(answer) for answer in one.values()) > 150
    for name, answer in one.items():
        assert answer == other[name], name
