"""Parent requests are found by history, with other requests beside or between them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from msgspec.structs import replace

from respool.facts import Facts
from respool.pricing import Usage
from respool.proxy.decide import Decider
from respool.proxy.middleware import Decision
from respool.store import SQLiteStore, StoreUnavailable
from tests.providers.signing_provider import (
    BOUND,
    OTHER_BOUND,
    OTHER_UNBOUND,
    TOOLS,
    UNBOUND,
    Signer,
)
from tests.proxy.compaction import parsed
from tests.proxy.driver import EAGER_POLICY, PLANNED
from tests.store.support import OWNER, record

START = 1_800_000_000.0
HOUR = 3_660.0  # and a little: no mark asks for more
LONG = "".join(f"line {n} of a long output\n" for n in range(200))
FIRST = {"role": "user", "content": "hi"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    made = SQLiteStore(tmp_path / "respool.db")
    yield made
    made.close()


class Server:
    """One server, without its port."""

    def __init__(self, store: SQLiteStore, *, shared: bool = False) -> None:
        self.store = store
        self.decider = Decider(EAGER_POLICY, store, shared_store=shared)

    def ask(self, talk: Talk, time: float, *, as_it_came: bool = False) -> Decision:
        """Send what a client asks; the provider finds nothing wrong with it, and takes it."""
        asked = parsed(talk.body(), "anthropic", None, OWNER, time)
        decider = self.decider
        made = decider.decide_original(asked, "bypassed") if as_it_came else decider.decide(asked)
        sent = talk.body() if made.body is None else made.body
        assert talk.provider.problems(sent) == []
        decider.note_accepted(asked, made)
        talk.hear(sent)
        return made

    def record(self, made: Decision, time: float, **more: Any) -> None:
        """Have a request written down, as it is some time after its answer."""
        told = record(
            f"{made.identity.model} {time}",
            time=time,
            conversation=made.identity.conversation,
            prefix=made.identity.prefix,
            terms=made.identity.terms,
            edited=len(made.edits),
            edits=(),
            epochs=made.epochs,
            facts=self.decider.pending_facts(made),
            **{"sent_as": "original" if made.kind == "original" else "projection", **more},
        )
        self.store.record(told)
        assert self.store.flush()


class Talk:
    """A conversation as its client holds it, with a provider that signs what it thinks."""

    def __init__(self, provider: Signer, model: str = UNBOUND) -> None:
        self.provider = provider
        self.model = model
        self.messages: list[dict[str, Any]] = [FIRST]
        self.mark: dict[str, Any] | None = None  # that the client sets on its newest message
        self.result = LONG  # of what the model calls

    def body(self) -> bytes:
        told = {"model": self.model, "max_tokens": 99, "tools": TOOLS}
        newest = self.messages[-1]
        if self.mark is not None and isinstance(newest["content"], list):
            marked = [
                *newest["content"][:-1],
                {**newest["content"][-1], "cache_control": self.mark},
            ]
            newest = {**newest, "content": marked}
        return json.dumps({**told, "messages": [*self.messages[:-1], newest]}).encode()

    def hear(self, sent: bytes) -> None:
        """The model's answer to what it was sent, and the result of what it calls."""
        answer = self.provider.answer(sent)
        result = {"type": "tool_result", "tool_use_id": answer[-1]["id"], "content": self.result}
        said = {"role": "assistant", "content": answer}
        self.messages = [*self.messages, said, {"role": "user", "content": [result]}]


class TestSideBySide:
    def test_another_model_beside_it_changes_nothing(self, store: SQLiteStore):
        """Two agents, one prompt: each goes on from its own last request."""
        one, provider = Server(store), Signer()
        talks = [Talk(provider, BOUND), Talk(provider, OTHER_BOUND)]
        made = [one.ask(talk, START + 5 * n) for n in range(6) for talk in talks]
        assert len({each.identity.conversation for each in made}) == 1  # by their first words
        assert {each.moment for each in made[2:]} == {""}
        assert not made[-1].facts.changed
        assert [each.identity.parent_request.terms.split()[0] for each in made[2:4]] == [
            BOUND,
            OTHER_BOUND,
        ]

    def test_one_that_goes_on_keeps_none_of_another_warm(self, store: SQLiteStore):
        one, provider = Server(store), Signer()
        first, second = Talk(provider), Talk(provider)
        one.ask(first, START)
        one.ask(first, START + 10)
        one.ask(second, START + HOUR)
        assert one.ask(second, START + HOUR + 10).moment == ""
        assert one.ask(first, START + HOUR + 20).moment == "cold"
        assert one.ask(second, START + HOUR + 30).moment == ""

    def test_what_one_sends_as_it_came_is_nothing_to_the_other(self, store: SQLiteStore):
        one, provider = Server(store), Signer()
        first, second = Talk(provider, BOUND), Talk(provider, BOUND)
        for n in range(3):
            one.ask(first, START + n)
            one.ask(second, START + n)
        one.ask(second, START + 4, as_it_came=True)
        made = one.ask(first, START + 5)
        assert (made.kind, made.moment, made.identity.parent_request.sent_as) == (
            "projection",
            "",
            "projection",
        )

    def test_the_same_holds_after_a_restart(self, store: SQLiteStore):
        one, provider = Server(store), Signer()
        first, second = Talk(provider, BOUND), Talk(provider, OTHER_BOUND)
        for n in range(3):
            for talk in (first, second):
                one.record(one.ask(talk, START + 10 * n), START + 10 * n)
        again = Server(store)
        for talk in (first, second):
            made = again.ask(talk, START + 40)
            assert (made.kind, made.moment) == ("projection", "")


class TestTwoServers:
    """With one store: a conversation goes to one, to the other, and back."""

    @pytest.mark.parametrize("how", ["cold", "as it came", "left alone"])
    @pytest.mark.parametrize("back", ["at once", "as it came before"])
    def test_what_the_other_has_learnt_holds(self, store: SQLiteStore, how: str, back: str):
        one, other = Server(store), Server(store)
        talk, now = Talk(Signer(), BOUND), START
        for _ in range(4):
            now += 5
            one.record(one.ask(talk, now), now)
        now += HOUR if how == "cold" else 5
        made = other.ask(talk, now, as_it_came=how != "cold")
        if how == "left alone":
            other.decider.leave_alone(made, OWNER)()
        other.record(made, now)
        if back == "as it came before":
            now += 5
            one.record(one.ask(talk, now, as_it_came=True), now)
        for _ in range(2):
            now += 5
            asked = parsed(talk.body(), "anthropic", None, OWNER, now)
            anew = Server(store).decider.decide(asked)
            made = one.ask(talk, now)  # judged by the provider, too
            assert (made.kind, made.body, made.facts) == (anew.kind, anew.body, anew.facts)
            one.record(made, now)


class TestComingBack:
    """A conversation that goes from one model to another and back: each has a cache of its own."""

    def moments(self, one: Server, models: list[str], apart: float = 5) -> list[str]:
        talk, made = Talk(Signer(), models[0]), list[str]()
        for n, model in enumerate(models):
            talk.model = model
            made.append(one.ask(talk, START + apart * n).moment)
        return made

    def test_a_model_that_still_has_what_it_was_sent_writes_nothing_again(self, store: SQLiteStore):
        models = [UNBOUND, OTHER_UNBOUND] * 4
        assert self.moments(Server(store), models) == ["", "changed", *[""] * 6]

    def test_what_was_sent_too_long_ago_is_forgotten(self, store: SQLiteStore):
        models = [UNBOUND, *[OTHER_UNBOUND] * 2, UNBOUND]
        assert self.moments(Server(store), models, HOUR / 2) == ["", "changed", "", "changed"]

    def test_what_was_sent_long_before_is_little_of_it(self, store: SQLiteStore):
        models = [UNBOUND, *[OTHER_UNBOUND] * 16, UNBOUND]
        assert self.moments(Server(store), models)[-1] == "changed"
        models = [UNBOUND, *[OTHER_UNBOUND] * 15, UNBOUND]
        assert self.moments(Server(store), models)[-1] == ""

    def test_bound_reasoning_of_another_goes_each_time(self, store: SQLiteStore):
        models = [BOUND, OTHER_BOUND] * 2
        assert self.moments(Server(store), models) == ["", *["changed"] * 3]

    def test_the_same_holds_after_a_restart(self, store: SQLiteStore):
        talk = Talk(Signer(), UNBOUND)
        for n, model in enumerate([UNBOUND, OTHER_UNBOUND]):
            talk.model = model
            server = Server(store)
            server.record(server.ask(talk, START + n), START + n)
        talk.model = UNBOUND
        assert Server(store).ask(talk, START + 9).moment == ""


class TestMarks:
    """A client may mark otherwise from one request on: what was sent before stays as it was."""

    NONE, MINUTES, HOURS = None, {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}

    def ask_all(self, marks: list[Any], store: SQLiteStore, *, restarted: bool) -> list[Decision]:
        """One request for each of these; that the provider verifies it is looked at each time."""
        one, talk, made = self.server(store), Talk(Signer(), BOUND), list[Decision]()
        for n, mark in enumerate(marks):
            talk.mark = mark
            made.append(one.ask(talk, START + 5 * n))
            one.record(made[-1], START + 5 * n)
            one = self.server(store) if restarted else one
        return made

    def server(self, store: SQLiteStore) -> Server:
        one = Server(store)
        one.decider = Decider(PLANNED, store)
        return one

    @pytest.mark.parametrize("restarted", [False, True])
    def test_what_was_decided_stays_decided(self, store: SQLiteStore, restarted: bool):
        marks = [self.NONE] * 12 + [self.MINUTES] * 4 + [self.HOURS] * 4 + [self.NONE] * 4
        made = self.ask_all(marks, store, restarted=restarted)
        assert made[11].edits
        for before, after in pairwise(made):
            kept = [edit for edit in after.edits if edit in before.edits]
            assert after.epochs > before.epochs or kept == list(before.edits)

    def test_each_change_is_a_fact_where_it_came(self, store: SQLiteStore):
        marks = [self.NONE] * 3 + [self.MINUTES] * 3 + [self.HOURS] * 2
        made = self.ask_all(marks, store, restarted=False)
        known = made[-1].facts
        assert [known.breakpoint_mode_at(one.identity.prefix) for one in made] == [
            "none",
            None,
            None,
            "5m",
            None,
            None,
            "1h",
            None,
        ]
        assert store.facts(made[-1].identity.conversation).breakpoints == known.breakpoints

    def test_one_message_decides_nothing(self, store: SQLiteStore):
        assert not self.ask_all([self.MINUTES], store, restarted=False)[0].facts.breakpoints

    def test_a_retry_that_is_marked_otherwise_gets_what_it_got(self, store: SQLiteStore):
        """The model has answered already, and what it thought was signed for that."""
        one, talk = self.server(store), Talk(Signer(), BOUND)
        talk.mark = self.MINUTES
        for n in range(11):
            one.ask(talk, START + 5 * n)
        held = talk.messages
        first = one.ask(talk, START + 60)
        answered, talk.messages, talk.mark = talk.messages, held, self.NONE
        again = one.ask(talk, START + 61)
        assert (again.edits, again.facts.breakpoints) == (first.edits, first.facts.breakpoints)
        talk.messages = answered
        assert one.ask(talk, START + 62).breakpoints == "none"


class TestMarksOfOthers:
    """A gateway behind respool may mark what a client does not: what is charged for tells that."""

    CACHED, HEAD_ONLY = Usage(input=9, cache_read=90_000), Usage(input=60_000, cache_read=30_000)

    def ask_all(self, store: SQLiteStore, usage: Usage | None, *, count: int = 6) -> list[Decision]:
        one, talk, made = Server(store), Talk(Signer()), list[Decision]()
        one.decider = Decider(PLANNED, store)
        for n in range(count):
            made.append(one.ask(talk, START + n))
            one.decider.note_usage(made[-1], usage)
        return made

    def test_a_history_that_is_cached_counts_as_marked(self, store: SQLiteStore):
        made = self.ask_all(store, self.CACHED)
        assert [each.breakpoints for each in made] == [None, "none", *["behind"] * 4]
        known = made[-1].facts
        assert [known.breakpoint_mode_at(each.identity.prefix) for each in made[1:4]] == [
            None,
            "behind",
            None,
        ]
        assert store.facts(made[-1].identity.conversation).breakpoints == known.breakpoints

    def test_who_comes_after_knows_it(self, store: SQLiteStore):
        one, talk = Server(store), Talk(Signer())
        made = one.ask(talk, START)
        for n in range(1, 5):
            one.decider.note_usage(made, usage=self.CACHED)
            one.record(made, START + n - 1)
            made = one.ask(talk, START + n)
        one.record(made, START + 4)
        assert made.breakpoints == "behind"
        again = Server(store).ask(talk, START + 9)
        assert (again.breakpoints, again.facts.breakpoints) == ("behind", made.facts.breakpoints)
        talk.mark = TestMarks.MINUTES
        assert Server(store).ask(talk, START + 12).breakpoints == "5m"

    @pytest.mark.parametrize("usage", [None, Usage(), HEAD_ONLY, Usage(input=90_000)])
    def test_nothing_else_tells_that(self, store: SQLiteStore, usage: Usage | None):
        assert {each.breakpoints for each in self.ask_all(store, usage)} == {None, "none"}


class TestPauses:
    MINUTES, HOURS = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}

    @pytest.mark.parametrize(
        ("mark", "pause", "moment"),
        [
            (MINUTES, 290, ""),
            (MINUTES, 310, "cold"),
            (HOURS, 3_500, ""),
            (HOURS, 3_700, "cold"),
            (None, 3_500, ""),  # somebody behind respool may have asked for an hour
            (None, 3_700, "cold"),
        ],
    )
    def test_a_cache_is_cold_after_what_its_marks_ask_for(
        self, store: SQLiteStore, mark: dict[str, Any] | None, pause: float, moment: str
    ):
        one, talk = Server(store), Talk(Signer())
        talk.mark = mark
        one.ask(talk, START)
        one.ask(talk, START + 10)
        assert one.ask(talk, START + 10 + pause).moment == moment

    def test_who_asks_for_less_still_has_what_was_asked_for_before(self, store: SQLiteStore):
        one, talk, now, moments = Server(store), Talk(Signer()), START, list[str]()
        for mark in [self.HOURS] * 3 + [self.MINUTES] * 2:
            talk.mark = mark
            now += 600
            moments.append(one.ask(talk, now).moment)
        assert moments == ["", "", "", "", "cold"]


class TestReplicas:
    def test_a_record_that_is_not_written_yet_makes_no_cold_cache(self, store: SQLiteStore):
        """The other server had the request before; that it sent one is not known here."""
        one, other = (Server(store, shared=True) for _ in range(2))
        talk = Talk(Signer(), BOUND)
        one.record(one.ask(talk, START), START)
        one.record(one.ask(talk, START + 200), START + 200)
        one.ask(talk, START + 400)
        made = other.ask(talk, START + 600)  # 200 seconds after the last, 400 after the recorded
        assert (made.kind, made.moment, made.facts.cold) == ("projection", "", frozenset())

    def test_one_that_is_written_tells_the_time(self, store: SQLiteStore):
        one, other = (Server(store, shared=True) for _ in range(2))
        talk = Talk(Signer(), BOUND)
        one.record(one.ask(talk, START), START)
        one.record(one.ask(talk, START + 200), START + 200)
        made = other.ask(talk, START + 200 + HOUR)
        assert (made.moment, len(made.facts.cold)) == ("cold", 1)
        assert store.facts(made.identity.conversation).cold == made.facts.cold

    def test_the_first_to_see_it_says_so_for_all(self, store: SQLiteStore):
        """A retry at another server gives the same bytes, whatever its clock says."""
        one, other = (Server(store, shared=True) for _ in range(2))
        talk = Talk(Signer())
        for n in range(3):
            one.record(one.ask(talk, START + n), START + n)
        held = talk.messages
        first = one.ask(talk, START + HOUR)
        talk.messages = held
        again = other.ask(talk, START + HOUR + 1)
        assert (first.body, first.facts.cold) == (again.body, again.facts.cold)
        assert first.moment == "cold"

    def test_a_retry_after_a_while_gets_what_it_got(self, store: SQLiteStore):
        one, other = (Server(store, shared=True) for _ in range(2))
        talk = Talk(Signer())
        for n in range(3):
            one.record(one.ask(talk, START + n), START + n)
        held = talk.messages
        first = one.ask(talk, START + 3)
        one.record(first, START + 3)
        talk.messages = held
        again = other.ask(talk, START + HOUR)
        assert (again.body, again.moment) == (first.body, "")


class TestGaps:
    """Requests that did not come through here, or of which nothing is left."""

    def went_on_alone(self, talk: Talk) -> None:
        """The client asks its provider itself, with all that it holds and can be verified."""
        plain = json.loads(talk.body())
        for message in plain["messages"]:
            if message["role"] == "assistant":
                message["content"] = [
                    one for one in message["content"] if one["type"] != "thinking"
                ]
        talk.hear(json.dumps(plain).encode())

    @pytest.mark.parametrize("restarted", [False, True])
    def test_reasoning_that_was_signed_elsewhere_goes(self, store: SQLiteStore, restarted: bool):
        """Turned off for a request and on again: what was thought then was not for a projection."""
        one, talk = Server(store), Talk(Signer(), BOUND)
        for n in range(4):
            one.record(one.ask(talk, START + n), START + n)
        self.went_on_alone(talk)
        made = (Server(store) if restarted else one).ask(talk, START + 10)
        assert (made.kind, made.moment) == ("projection", "changed")

    def test_a_request_that_is_not_known_was_perhaps_edited(self, store: SQLiteStore):
        """The record of the first projection is lost, and the next one goes up as it came."""
        one, talk = Server(store), Talk(Signer(), BOUND)
        made = [one.ask(talk, START + n) for n in range(4)]
        one.record(made[0], START)
        assert not made[0].edits
        assert made[-1].edits
        Server(store).ask(talk, START + 5, as_it_came=True)

    def test_what_began_elsewhere_goes_on_with_all_its_reasoning(self, store: SQLiteStore):
        talk = Talk(Signer(), BOUND)
        for _ in range(3):
            talk.hear(talk.body())
        made = Server(store).ask(talk, START, as_it_came=True)
        assert made.body is None


def test_what_was_only_observed_was_sent_with_all_its_reasoning(store: SQLiteStore):
    """So it is once more, where it goes up as it came."""
    talk = Talk(Signer(), BOUND)
    watching = Server(store)
    watching.decider = Decider(EAGER_POLICY, store, observe=True)
    edits = 0
    for n in range(4):
        made = watching.decider.decide(parsed(talk.body(), *made_of(START + n)))
        watching.record(made, START + n, mode="observed", sent_as="original")
        talk.hear(talk.body())
        edits += len(made.edits)
    assert edits
    assert Server(store).ask(talk, START + 9, as_it_came=True).body is None


@pytest.mark.parametrize("later", [1, HOUR])
def test_what_is_written_down_of_a_request_is_so_with_what_it_rests_on(
    tmp_path: Path, later: float
):
    """The store cannot be written to for a while, then the request's record can, and all ends."""
    store = SQLiteStore(tmp_path / "respool.db")
    one, talk = Server(store), Talk(Signer(), BOUND)
    for n in range(4):
        talk.result = LONG if n < 3 else "ok"  # of which nothing is cut, so no thought goes
        one.record(one.ask(talk, START + n), START + n)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        store._database.wait = 0.05
        made = one.ask(talk, START + 5 + later)
        assert (made.kind, made.reason[:8]) == ("known-edits", "not kept")
        other.execute("ROLLBACK")
    one.decider._guard._closing.set()  # it is killed before it can tell the store anything else
    one.record(made, START + 5 + later)
    for n in range(3):
        Server(store).ask(talk, START + 10 + later + n)
    store.close()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_branch_that_went_on_from_a_projection_is_left_alone_without_its_thoughts(
    store: SQLiteStore, restarted: bool
):
    """Another answer to the same request came from the original: thoughts of both are about."""
    one, talk = Server(store), Talk(Signer(), BOUND)
    for n in range(4):
        one.record(one.ask(talk, START + n), START + n)
    other = Talk(talk.provider, BOUND)
    other.messages = talk.messages
    made = one.ask(talk, START + 5)
    one.record(made, START + 5)
    refused = one.decider.decide_original(parsed(other.body(), *made_of(START + 6)), "refused")
    other.hear(refused.body or other.body())
    one.decider.leave_alone(refused, OWNER)()
    last = Server(store) if restarted else one
    for n in range(3):
        for branch in (talk, other):
            assert last.ask(branch, START + 10 + n).reason == "left alone"
    assert b'"thinking"' in talk.body()


def test_what_comes_too_late_leaves_no_facts_of_what_did_not_go_up(tmp_path: Path):
    """It cannot be kept either: but not this went up as it came, something else did."""
    store = SQLiteStore(tmp_path / "respool.db")
    one, talk, late = Server(store), Talk(Signer(), BOUND), Event()
    one.ask(talk, START)
    name = one.ask(talk, START + 1).identity.conversation
    late.set()
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        store._database.wait = 0.05
        with pytest.raises(StoreUnavailable):
            one.decider.decide(parsed(talk.body(), *made_of(START + 2)), late)
        other.execute("ROLLBACK")
    one.decider.close()
    assert replace(store.facts(name), breakpoints=()) == Facts()
    store.close()


def made_of(time: float) -> tuple[Any, ...]:
    return "anthropic", None, OWNER, time
