"""Provider caches: charges worked out by hand from each provider's rules."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from respool.pricing import CacheTerms
from respool.replay.prompt_cache import (
    HOUR,
    MINUTES,
    NO_WARM_PREFIX,
    BilledTokens,
    MessageRow,
    ModelCaches,
    Prompt,
    PromptBlock,
    WarmPrefix,
)

EXPLICIT = CacheTerms(cache="explicit", read=0.1, write=1.25, write_1h=2.0)
PREFIX = CacheTerms(cache="prefix", lifetime=600)
POINTS = CacheTerms(cache="breakpoints", write=1.25, lifetime=1800, look_back=80)


def row(name: str, tokens: int = 100, *, kind: str = "text", ttl: float = 0) -> MessageRow:
    """A message of one block; a name in capitals is the model's."""
    block = PromptBlock(
        key=hash(name), tokens=tokens, kind=kind, call_id="", name="", text="", cache_lifetime=ttl
    )
    made = name.isupper()
    return MessageRow(
        message=name,
        blocks=(block,),
        key=hash(name),
        tokens=tokens,
        shape=0,
        breakpoints=(0,) if ttl else (),
        is_model_made=made,
        has_media=False,
    )


def rows(
    names: str, *, breakpoints_at: str = "", ttl: float = HOUR, kind: str = "text"
) -> list[MessageRow]:
    return [row(name, kind=kind, ttl=ttl if name in breakpoints_at else 0) for name in names]


class Client:
    """Sends one prompt after the other to one cache."""

    def __init__(
        self,
        terms: CacheTerms,
        *,
        head: int = 0,
        lifetime: float = HOUR,
        warm: WarmPrefix = NO_WARM_PREFIX,
    ) -> None:
        self.prompt = Prompt(head)
        self.caches = ModelCaches(terms, lifetime, warm)
        self.last: list[MessageRow] = []

    def send(
        self, new: list[MessageRow], now: float | None = 0.0, model: str | None = None
    ) -> BilledTokens:
        pairs = zip(self.last, new, strict=False)
        kept = next((at for at, (a, b) in enumerate(pairs) if a.key != b.key), None)
        same = min(len(self.last), len(new)) if kept is None else kept
        self.prompt.update(new, same)
        self.last = new
        return self.caches.bill(self.prompt, now, model)


def test_a_prompt_is_the_same_however_it_came_about() -> None:
    grown, anew = Prompt(7), Prompt(7)
    grown.update(rows("abcd"), 0)
    grown.update(rows("abxy", breakpoints_at="y"), 2)
    anew.update(rows("abxy", breakpoints_at="y"), 0)
    for name in ("chain", "sums", "positions", "breakpoints"):
        assert getattr(grown, name) == getattr(anew, name)
    assert grown.shared == 3  # the head, a and b


def test_marks_write_and_are_found_again() -> None:
    client = Client(EXPLICIT, head=1000)
    assert client.send(rows("ab", breakpoints_at="b")) == BilledTokens(0, 0, 1200, 0)
    assert client.send(rows("abcd", breakpoints_at="d")) == BilledTokens(1200, 0, 200, 0)
    assert client.send(rows("abxd", breakpoints_at="d")) == BilledTokens(1200, 0, 200, 0)
    assert client.send(rows("axxd", breakpoints_at="d")) == BilledTokens(
        1000, 0, 400, 0
    )  # no mark stood at a


def test_what_is_behind_the_last_mark_is_plain() -> None:
    client = Client(EXPLICIT, head=1000)
    assert client.send(rows("abc", breakpoints_at="b")) == BilledTokens(0, 0, 1200, 100)
    assert client.send(rows("abc")) == BilledTokens(1000, 0, 0, 300)


def test_a_mark_looks_back_twenty_positions_its_own_counted() -> None:
    names = "abcdefghijklmnopqrstuvwxyz"
    for gap, read in ((19, 300), (20, 0)):
        client = Client(EXPLICIT)
        client.send(rows("123", breakpoints_at="3"))
        assert client.send(rows("123" + names[:gap], breakpoints_at=names[gap - 1])).read == read


def test_a_run_of_results_is_one_position() -> None:
    client = Client(EXPLICIT)
    client.send(rows("123", breakpoints_at="3"))
    many = [row(name, kind="result") for name in "abcdefghijklmnopqrstuvwxyzABCDEF"]
    many[-1] = row("F", kind="result", ttl=HOUR)
    assert client.send([*rows("123"), *many]).read == 300


def test_lifetimes_count_from_the_last_use() -> None:
    for lifetime, alive, dead in ((MINUTES, 300, 301), (HOUR, 3600, 3601)):
        client = Client(EXPLICIT, lifetime=lifetime)
        client.send(rows("ab", breakpoints_at="b", ttl=lifetime), 0)
        assert client.send(rows("ab", breakpoints_at="b", ttl=lifetime), alive).read == 200
        assert client.send(rows("ab", breakpoints_at="b", ttl=lifetime), alive + dead).read == 0
        assert client.send(rows("ab", breakpoints_at="b", ttl=lifetime), None).read == 200


def test_each_lifetime_has_its_price() -> None:
    client = Client(EXPLICIT, head=1000, lifetime=HOUR)
    asked = [
        *rows("a", breakpoints_at="a", ttl=HOUR),
        *rows("b", breakpoints_at="b", ttl=MINUTES),
    ]
    billed = client.send(asked)
    assert billed == BilledTokens(0, 100, 1100, 0)
    assert billed.cost(EXPLICIT) == 100 * 1.25 + 1100 * 2.0


def test_a_short_prefix_is_not_cached() -> None:
    client = Client(replace(EXPLICIT, minimum=250))
    assert client.send(rows("ab", breakpoints_at="b")) == BilledTokens(0, 0, 0, 200)
    assert client.send(rows("abc", breakpoints_at="c")) == BilledTokens(0, 0, 300, 0)
    assert client.send(rows("abc", breakpoints_at="c")).read == 300


def test_a_client_that_sets_no_marks_pays_for_everything() -> None:
    client = Client(EXPLICIT, head=1000, lifetime=0)
    assert client.send(rows("ab")) == client.send(rows("ab")) == BilledTokens(plain=1200)


@pytest.mark.parametrize("cache", ["prefix", "implicit"])
def test_the_longest_prefix_is_found(cache: Any) -> None:
    client = Client(replace(PREFIX, cache=cache), head=1000)
    assert client.send(rows("ab"), 0) == BilledTokens(0, 1200)
    assert client.send(rows("abcd"), 10) == BilledTokens(1200, 200)
    assert client.send(rows("axcd"), 20) == BilledTokens(1100, 300)
    assert client.send(rows("axcd"), 621) == BilledTokens(0, 1400)


def test_prefixes_come_in_steps_and_from_a_least_length_on() -> None:
    client = Client(replace(PREFIX, step=128, minimum=300))
    client.send(rows("abcd"))
    assert client.send(rows("abcde")).read == 384
    client.send(rows("ab"))
    assert client.send(rows("abx")).read == 0


def test_a_breakpoint_is_found_only_where_one_stood() -> None:
    client = Client(POINTS, head=1000)
    assert client.send(rows("a"), 0) == BilledTokens(0, 1100)
    assert client.send(rows("aMb"), 1) == BilledTokens(1100, 200)
    assert client.send(rows("aMbNcd"), 2) == BilledTokens(1300, 300)
    assert client.send(rows("aMbNcx"), 3) == BilledTokens(1300, 300)  # none stood at c
    assert client.send(rows("aXbNcx"), 4) == BilledTokens(1100, 500)
    assert client.send(rows("xMbNcx"), 5) == BilledTokens(0, 1600)  # nor at the end of the head
    assert client.send(rows("aMbNcd"), 6) == BilledTokens(1600, 0)
    assert client.send(rows("aMbNcd"), 1806) == BilledTokens(1600, 0)
    assert client.send(rows("aMbNcd"), 3607) == BilledTokens(0, 1600)


def test_no_breakpoint_stands_behind_what_the_model_said() -> None:
    client = Client(POINTS, head=1000)
    assert client.send(rows("aMbN"), 0) == BilledTokens(0, 1300, plain=100)
    assert client.send(rows("aMbNc"), 1) == BilledTokens(1300, 200)
    assert Client(POINTS, head=1000).send(rows("MN"), 0) == BilledTokens(plain=1200)


def test_a_short_prefix_has_no_breakpoint() -> None:
    client = Client(replace(POINTS, minimum=250))
    assert client.send(rows("aMb"), 0) == BilledTokens(0, 300)
    assert client.send(rows("a"), 1) == BilledTokens(plain=100)
    assert client.send(rows("aMbNc"), 2) == BilledTokens(300, 200)


def test_only_the_latest_breakpoints_are_looked_at() -> None:
    for latest, read in ((3, 100), (2, 0)):
        client = Client(replace(POINTS, look_back=latest))
        client.send(rows("a"))
        assert client.send(rows("aMbNc")).read == read


@pytest.mark.parametrize("terms", [EXPLICIT, PREFIX, POINTS])
def test_only_the_first_request_finds_what_others_had_written(terms: CacheTerms) -> None:
    client = Client(terms, head=1000, warm=WarmPrefix(600))
    asked = rows("a", breakpoints_at="a")
    first = client.send(asked, 0)
    assert (first.read, first.write + first.write_1h, first.plain) == (600, 500, 0)
    assert client.send(asked, 1).read == 1100
    assert client.send(asked, 1e6).read == 0
    assert (
        Client(replace(terms, cache="none"), head=1000, warm=WarmPrefix(600)).send(asked).read == 0
    )


@pytest.mark.parametrize("terms", [EXPLICIT, PREFIX, POINTS])
def test_of_a_history_that_another_conversation_had_sent_a_share_is_found(
    terms: CacheTerms,
) -> None:
    for names, read in (("aMb", 1225), ("a", 1075)):  # as much of a shorter one, too
        client = Client(terms, head=1000, warm=WarmPrefix(1000, 0.75))
        asked = rows(names, breakpoints_at=names[-1])
        assert client.send(asked, 0).read == read
        assert client.send(asked, 1).read == 1000 + 100 * len(names)


@pytest.mark.parametrize(("terms", "left"), [(EXPLICIT, 1000), (PREFIX, 1100), (POINTS, 0)])
def test_no_model_finds_what_another_one_wrote(terms: CacheTerms, left: int) -> None:
    client = Client(terms, head=1000)
    assert client.send(rows("a", breakpoints_at="a"), 0, "large").read == 0
    assert client.send(rows("aMb", breakpoints_at="b"), 1, "small").read == 0
    assert client.send(rows("aMbNc", breakpoints_at="c"), 2, "small").read == 1300
    assert client.send(rows("aMbNcOd", breakpoints_at="d"), 3, "large").read == 1100
    assert client.send(rows("axbNcOd", breakpoints_at="d"), 4, "small").read == left


def test_without_a_cache_everything_is_plain() -> None:
    client = Client(CacheTerms(cache="none"), head=10)
    assert client.send(rows("ab")) == client.send(rows("abc")[:2]) == BilledTokens(plain=210)
