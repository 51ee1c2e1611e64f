"""Simulation of agents behind one replica, whose threads share one core.

An agent pauses, sends a request and waits for its response; what the replica does after the
response competes with other requests. All that is to be done at one time advances at equal speed,
as threads under one interpreter lock do. The replica remembers so many conversations, the last
used; a request of another one costs the whole fold of its history.
"""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict
from collections.abc import Sequence

from msgspec import Struct


class Demand(Struct, frozen=True):
    """CPU seconds of a request: until its response, and after it."""

    until: float
    after: float


class Step(Struct, frozen=True):
    """One request of a session."""

    pause: float  # seconds before it
    size: int  # bytes of its body
    demand: Demand


class Outcome(Struct, frozen=True):
    """The waits of a run, its length and the CPU seconds spent."""

    waits: tuple[float, ...]  # sorted
    seconds: float
    spent: float

    @property
    def throughput(self) -> float:
        """Requests per second."""
        return len(self.waits) / self.seconds

    @property
    def busy(self) -> float:
        """The share of one core that was used."""
        return self.spent / self.seconds

    def wait(self, share: float) -> float:
        """The wait that this share of requests stays below.

        >>> Outcome((0.1, 0.2, 0.3, 0.4), 1.0, 0.5).wait(0.5)
        0.3
        """
        return self.waits[min(int(share * len(self.waits)), len(self.waits) - 1)]


class Memory(Struct, frozen=True):
    """Conversations that a replica remembers, and the price of others."""

    conversations: float = float("inf")
    seconds_per_byte: float = 0.0  # CPU time to fold a history anew


class _Remembered:
    """The conversations that are remembered, by agent: each has one at a time."""

    def __init__(self, memory: Memory, agents: int) -> None:
        self._memory = memory
        held = int(min(memory.conversations, agents))
        self._agents: OrderedDict[int, None] = OrderedDict.fromkeys(range(held))

    def demand(self, agent: int, step: Step) -> float:
        """CPU seconds until the response."""
        is_held = agent in self._agents
        self._agents[agent] = None
        self._agents.move_to_end(agent)
        if len(self._agents) > self._memory.conversations:
            self._agents.popitem(last=False)
        return step.demand.until + (0 if is_held else step.size * self._memory.seconds_per_byte)


class _Core:
    """Work in progress on one core, each piece at an equal share of its speed."""

    def __init__(self) -> None:
        self._pieces: list[tuple[float, int, int]] = []  # virtual end, number, agent
        self._now = self._virtual = 0.0
        self._number = 0
        self.spent = 0.0

    def advance(self, time: float) -> None:
        """Work until a time."""
        if self._pieces:
            self._virtual += (time - self._now) / len(self._pieces)
            self.spent += time - self._now
        self._now = time

    def add(self, work: float, agent: int) -> None:
        """Begin a piece of work; agent -1: nobody waits for it."""
        self._number += 1
        heapq.heappush(self._pieces, (self._virtual + work, self._number, agent))

    def next_end(self) -> float:
        """The time at which the next piece ends, if nothing is added."""
        if not self._pieces:
            return float("inf")
        return self._now + max(0.0, self._pieces[0][0] - self._virtual) * len(self._pieces)

    def end_piece(self) -> int:
        """Take out the piece that ended; return its agent."""
        return heapq.heappop(self._pieces)[2]


def simulate(
    sessions: Sequence[Sequence[Step]],
    *,
    agents: int,
    seed: int,
    staggered: bool = True,
    max_requests: int = 40_000,
    memory: Memory = Memory(),  # noqa: B008 - a frozen value
) -> Outcome:
    """Agents that each send recorded sessions, on one core.

    Staggered agents begin anywhere in a session and go on with others until `max_requests` are
    answered; else each sends one session from its start.

    >>> one = [Step(1.0, 10, Demand(0.5, 0.0)), Step(1.0, 10, Demand(0.5, 0.0))]
    >>> simulate([one], agents=1, seed=1, staggered=False)
    Outcome(waits=(0.5, 0.5), seconds=3.0, spent=1.0)
    >>> simulate([one], agents=2, seed=1, staggered=False).waits
    (1.0, 1.0, 1.0, 1.0)
    >>> simulate([one], agents=1, seed=1, staggered=False, memory=Memory(0, 0.1)).waits
    (1.5, 1.5)
    """
    chance, core, known = random.Random(seed), _Core(), _Remembered(memory, agents)
    places = [(at % len(sessions), 0) for at in range(agents)]
    if staggered:
        chosen = [chance.randrange(len(sessions)) for _ in range(agents)]
        places = [(one, chance.randrange(len(sessions[one]))) for one in chosen]
    coming = [(_pause(sessions, place, chance, staggered), at) for at, place in enumerate(places)]
    heapq.heapify(coming)
    sent = [0.0] * agents
    waits: list[float] = []
    now = 0.0
    while coming or core.next_end() < float("inf"):
        arrival, end = coming[0][0] if coming else float("inf"), core.next_end()
        now = min(arrival, end)
        core.advance(now)
        if arrival <= end:
            agent = heapq.heappop(coming)[1]
            session, at = places[agent]
            sent[agent] = now
            core.add(known.demand(agent, sessions[session][at]), agent)
            continue
        agent = core.end_piece()
        if agent < 0:
            continue
        waits.append(now - sent[agent])
        session, at = places[agent]
        core.add(sessions[session][at].demand.after, -1)
        place = (session, at + 1)
        if place[1] == len(sessions[session]):
            place = (chance.randrange(len(sessions)), 0) if staggered else None
        if place is not None and len(waits) < max_requests:
            places[agent] = place
            heapq.heappush(coming, (now + sessions[place[0]][place[1]].pause, agent))
    return Outcome(tuple(sorted(waits)), now, core.spent)


def _pause(
    sessions: Sequence[Sequence[Step]],
    place: tuple[int, int],
    chance: random.Random,
    staggered: bool,
) -> float:
    pause = sessions[place[0]][place[1]].pause
    return pause * chance.random() if staggered else pause
