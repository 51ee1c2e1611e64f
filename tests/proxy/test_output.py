"""Output that a client asks for near a window, of a model that signs its thoughts."""

from __future__ import annotations

import json
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import respool
from respool.proxy.conversation import Conversation
from respool.proxy.decide import Decider
from respool.proxy.middleware import Decision
from respool.store import SentRequest, SQLiteStore
from tests.providers.signing_provider import BOUND, TOOLS, UNBOUND, Signer
from tests.proxy.compaction import parsed

WINDOW = 24_000
LITTLE, MUCH = 1_000, 12_000


class Client:
    """Works on and on; what a provider rejects is noted."""

    def __init__(self, folder: Path, model: str = BOUND, seed: int = 10) -> None:
        self.store = SQLiteStore(folder / "respool.db")
        self.decider = Decider(respool.Policy(), self.store)
        self.model, self.provider, self.rejected = model, Signer(), list[str]()
        self.messages: list[Any] = [{"role": "user", "content": "go on"}]
        self._chance, self._time = random.Random(seed), 1e9

    def close(self) -> None:
        self.decider.close()
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
        asked = parsed(body, "anthropic", None, "owner", self._time)
        decider = self.decider
        if len(self.messages) == 3:
            decider.note_window(asked, WINDOW, beside_output=False)
        decision = decider.decide(asked)
        sent = body if decision.body is None else decision.body
        self.rejected += self.provider.problems(sent)
        decider.note_accepted(asked, decision)
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
        asked = parsed(body, "anthropic", None, "owner", self._time + 1, counting=True)
        decider = self.decider
        decision = decider.decide_immediately(asked) or decider.decide(asked)
        sent = body if decision.body is None else decision.body
        self.rejected += self.provider.problems(sent)
        return decision, sent

    def _text(self) -> str:
        words = (
            f"{self._chance.getrandbits(30):x}" for _ in range(self._chance.randrange(50, 700))
        )
        return " ".join(word + "\n" * (number % 8 == 7) for number, word in enumerate(words))


@pytest.mark.parametrize("seed", [10, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 5))])
def test_no_thought_stays_that_was_signed_for_another_room(tmp_path: Path, seed: int):
    """A client that was cut off asks for more: then more goes, of what was sent before, too."""
    with closing(Client(tmp_path, seed=seed)) as client:
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
def test_what_is_counted_is_what_is_sent(tmp_path: Path, model: str):
    """Near a window, too, where all is decided by an output that no count names."""
    cut = 0
    with closing(Client(tmp_path, model=model)) as client:
        for _ in range(30):
            _, counted = client.count()
            made, sent = client.step(MUCH)
            assert json.loads(counted)["messages"] == json.loads(sent)["messages"]
            cut += made.tokens_after < made.tokens_before
    assert cut > 10
    assert client.rejected == []


def test_a_record_does_not_make_forget_what_it_does_not_tell():
    known, prefix = Conversation("c", "owner"), "0a" * 16
    known.lineage.note_accepted(prefix, SentRequest(5.0, "m", "projection", 10, 1, 900))
    known.lineage.note_accepted(prefix, SentRequest(5.0, "m", "projection", 10, 1))
    assert known.lineage.parent([bytes.fromhex(prefix)], "m").latest.output == 900
    known.lineage.note_accepted(prefix, SentRequest(6.0, "m", "original", 10, 1))
    assert known.lineage.parent([bytes.fromhex(prefix)], "m").latest.output == 0
