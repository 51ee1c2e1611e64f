"""How much output a client asks for, near a window, of a model that signs its thoughts."""

from __future__ import annotations

import json
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import respool
from respool.proxy.compacting.conversations import Conversation
from respool.proxy.compacting.deciding import Deciding
from respool.proxy.compacting.decision import Decision
from respool.proxy.compacting.journal import Journal, ring_for
from respool.proxy.compacting.reading import Asked
from respool.store import ParentRequest, SQLiteStore
from tests.providers.signing_provider import BOUND, TOOLS, UNBOUND, Signer

WINDOW = 24_000
LITTLE, MUCH = 1_000, 12_000


class Client:
    """Works on and on, at one of several processes in turn; what a provider rejects is noted."""

    def __init__(
        self, folder: Path, processes: int = 1, model: str = BOUND, seed: int = 10
    ) -> None:
        self.store = SQLiteStore(folder / "respool.db")
        ring, shared = ring_for(processes), processes > 1
        self.deciding = [
            Deciding(respool.Policy(), self.store, shared=shared, journal=Journal(ring, row))
            for row in range(processes)
        ]
        self.model, self.provider, self.rejected = model, Signer(), list[str]()
        self.messages: list[Any] = [{"role": "user", "content": "go on"}]
        self._chance, self._time = random.Random(seed), 1e9

    def close(self) -> None:
        for one in self.deciding:
            one.close()
        self.store.close()

    def step(self, output: int) -> tuple[Decision, bytes]:
        """One more request, its answer, and what the called tool says."""
        self._time += 10
        body = json.dumps(
            {
                "model": self.model,
                "max_tokens": output,
                "tools": TOOLS,
                "messages": self.messages,
            }
        ).encode()
        asked = Asked(body, "anthropic", None, "owner", self._time)
        deciding = self.deciding[len(self.messages) // 2 % len(self.deciding)]
        if len(self.messages) == 3:
            deciding.fits(asked, WINDOW, beside_output=False)
        decision = deciding.decide(asked)
        sent = body if decision.body is None else decision.body
        self.rejected += self.provider.problems(sent)
        deciding.sent(asked, decision)
        made = self.provider.answer(sent)
        told = {"type": "tool_result", "tool_use_id": made[-1]["id"], "content": self._text()}
        self.messages += [
            {"role": "assistant", "content": made},
            {"role": "user", "content": [told]},
        ]
        return decision, sent

    def count(self) -> tuple[Decision, bytes]:
        """Ask how many tokens the next request would be, as one may: without its output."""
        fields = {"model": self.model, "tools": TOOLS, "messages": self.messages}
        body = json.dumps(fields).encode()
        asked = Asked(body, "anthropic", None, "owner", self._time + 1, counting=True)
        deciding = self.deciding[len(self.messages) // 2 % len(self.deciding)]
        decision = (
            deciding.decide_at_once(asked) if len(self.deciding) == 1 else None
        ) or deciding.decide(asked)
        sent = body if decision.body is None else decision.body
        self.rejected += self.provider.problems(sent)
        return decision, sent

    def _text(self) -> str:
        words = (
            f"{self._chance.getrandbits(30):x}" for _ in range(self._chance.randrange(50, 700))
        )
        return " ".join(word + "\n" * (number % 8 == 7) for number, word in enumerate(words))


@pytest.mark.parametrize("seed", [3, 5, 10])
@pytest.mark.parametrize("processes", [1, 2])
def test_no_thought_stays_that_was_signed_for_another_room(
    tmp_path: Path, processes: int, seed: int
):
    """A client that was cut off asks for more: then more goes, of what was sent before, too."""
    with closing(Client(tmp_path, processes, seed=seed)) as client:
        steps = [client.step(MUCH if number % 9 > 5 else LITTLE) for number in range(36)]
    assert client.rejected == []
    changed = [number for number, (made, _) in enumerate(steps) if made.moment == "changed"]
    assert changed
    assert {number % 9 for number in changed} <= {0, 6}
    assert any(b'"thinking"' in sent for _, sent in steps[-5:])


def test_far_from_a_window_it_does_not_matter(tmp_path: Path):
    with closing(Client(tmp_path)) as client:
        steps = [client.step(LITTLE + number % 2) for number in range(8)]
    assert {made.moment for made, _ in steps} == {""}
    assert client.rejected == []


def test_who_asks_for_the_same_keeps_its_thoughts(tmp_path: Path):
    with closing(Client(tmp_path)) as client:
        steps = [client.step(MUCH) for _ in range(30)]
    assert {made.moment for made, _ in steps} == {""}
    assert client.rejected == []


def test_where_thoughts_are_not_bound_nothing_is_taken_for_changed(tmp_path: Path):
    with closing(Client(tmp_path, model=UNBOUND)) as client:
        steps = [client.step(MUCH if number % 9 > 5 else LITTLE) for number in range(30)]
    assert {made.moment for made, _ in steps} == {""}


@pytest.mark.parametrize("model", [BOUND, UNBOUND])
@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_counted_is_what_is_sent(tmp_path: Path, processes: int, model: str):
    """Near a window, too, where all is decided by an output that no count names."""
    cut = 0
    with closing(Client(tmp_path, processes, model=model)) as client:
        for _ in range(30):
            _, counted = client.count()
            made, sent = client.step(MUCH)
            assert json.loads(counted)["messages"] == json.loads(sent)["messages"]
            cut += made.after < made.before
    assert cut > 10
    assert client.rejected == []


def test_a_record_does_not_make_forget_what_it_does_not_tell():
    known, prefix = Conversation("c", "owner"), "0a" * 16
    known.note_sent(prefix, ParentRequest(5.0, "m", "projection", 10, 1, 900))
    known.note_sent(prefix, ParentRequest(5.0, "m", "projection", 10, 1))
    assert known.last([bytes.fromhex(prefix)], "m").latest.output == 900
    known.note_sent(prefix, ParentRequest(6.0, "m", "original", 10, 1))
    assert known.last([bytes.fromhex(prefix)], "m").latest.output == 0
