"""Numbers for hashes are those that a dict would give, in a fraction of the room."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from hypothesis import given, settings
from hypothesis import strategies as st

from respool.ledger.numbering import NONE, Numbers, held_by

KEYS = st.integers(-(2**63), 2**63 - 1)
# So that many fall on the same slots.
CLOSE = st.builds(lambda high, low: (high << 40) | low, st.integers(0, 200), st.integers(1, 3))


@settings(max_examples=40, deadline=None)
@given(st.lists(KEYS | CLOSE, max_size=1_500))
def test_each_hash_has_one_number_in_the_order_they_came(keys: list[int]) -> None:
    numbers, known = Numbers(), dict[int, int]()
    found = numbers.numbers_of(keys)
    for key in keys:
        known.setdefault(key, len(known) + 1)
    assert list(found) == [known[key] for key in keys]
    assert [numbers.get(key) for key in known] == list(known.values())
    assert len(numbers) == len(known) + 1


def test_what_has_none_is_told() -> None:
    numbers = Numbers()
    assert numbers.get(7) == NONE
    assert numbers.number_of(7) == 1
    assert (numbers.get(7), numbers.get(8)) == (1, NONE)


def test_it_grows_and_stays_small() -> None:
    numbers, count = Numbers(), 50_000
    found = numbers.numbers_of(range(1, count + 1))
    assert (found[0], found[-1]) == (1, count)
    assert numbers.get(count // 2) == count // 2
    assert 8 * count < numbers.size_bytes < 30 * count  # a dict of ints takes over a hundred
    assert numbers.size_bytes > held_by(found)


def test_one_thread_may_add_while_another_asks() -> None:
    numbers, known = Numbers(), range(1, 2_000)
    numbers.numbers_of(known)
    with ThreadPoolExecutor(1) as threads:
        adding = threads.submit(numbers.numbers_of, range(2_000, 150_000))
        while not adding.done():
            assert [numbers.get(key) for key in known] == list(known)
        assert adding.result()[-1] == 149_999
