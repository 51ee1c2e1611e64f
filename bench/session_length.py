"""Session length under a budget, and the content left in the last projection.

    python -m bench.session_length CORPUS [--policy NAME|FILE] [--window N] [--starts N] [--json]

A session is continued with the other sessions of its repository and agent, in their order, with
ids of their own, until the original history fills the window, at request N0; then on until the
projection fills it too, up to 6 × N0 requests, or until there are no more sessions. At the end of
each session the bench reports the changed files that are still named, and the failed operations
without a later success whose main line is still in the projection.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

import respool
from bench.passes import CONDITIONS
from respool.compaction.projection import project
from respool.compaction.state import State
from respool.engine import FoldedRequest, extend_fold
from respool.facts import Facts
from respool.history.failures import clip_error_line, error_line
from respool.providers.registry import PROVIDERS
from respool.replay.policies import POLICY_NAMES_HELP
from respool.replay.prompt_cache import (
    CharacterMeasure,
    CounterMeasure,
    MessageRow,
    TokenMeasure,
    read_row,
)
from respool.sessions.readers import READERS, read_file
from respool.sessions.session import RecordedRequest, RecordedSession
from respool.summaries.outcome import parse_outcome
from respool.tokens import counter_for
from respool.transcript import Exchange
from respool.wire.base import FormatName, SourceRun
from respool.wire.body import ObjectBody
from respool.wire.json import JSON

FILES = (
    "claude-code__PackmindHub+context-evaluator",
    "claude-code__entireio+cli",
    "claude-code__entireio+git-sync",
    "codex__entireio+git-sync",
    "pi__badlogic+pi-mono",
    "opencode__eitatech+gatomia-vscode",
)
HEADS = {name: conditions.head for name, conditions in CONDITIONS.items()} | {"openai-chat": 12_000}
WINDOW = 200_000
RESERVE = 20_000  # tokens that are left for the answer
LONGEST = 6  # times N0: no session is followed for longer
EVERY = 25  # requests between two that are checked
SPOKEN = ("input", "arguments", "args")  # what a call says is no place for ids
IDS = ("id", "tool_use_id", "call_id", "tool_call_id")
_BELOW = re.compile(r"; … stands for (.+):$", re.MULTILINE)
_NO_FACTS = Facts()


class Chain(Struct, frozen=True):
    """Sessions joined to one history: its messages, its requests, and where each session ends."""

    id: str
    agent: str
    format: FormatName
    messages: list[JSON]
    requests: list[RecordedRequest]
    ends: list[int]  # how many requests there are when each session ends


class Contained(Struct, frozen=True):
    """Number of items, and of those that the projection still contains."""

    told: int = 0
    of: int = 0

    @property
    def share(self) -> float:
        """The share of contained items; 1 if there are none."""
        return self.told / self.of if self.of else 1.0

    def __add__(self, other: Contained) -> Contained:
        return Contained(self.told + other.told, self.of + other.of)


class Point(Struct, frozen=True):
    """Content of the projection at one request."""

    request: int
    edited: Contained
    errors: Contained


class Lasted(Struct, frozen=True):
    """Length of one session, and its points."""

    id: str
    agent: str
    source: str
    n0: int
    n1: int
    why: str  # it ended
    peak: int  # tokens, head included
    sessions: int
    checked: int
    invalid: tuple[str, ...]
    points: tuple[Point, ...]
    failures: Mapping[str, str]  # passes that failed
    missing: tuple[str, ...] = ()  # of what is told at the end no more, some

    @property
    def ratio(self) -> float:
        """Ratio of the length to that without compaction."""
        return self.n1 / self.n0

    @property
    def edited(self) -> Contained:
        """Changed files that were named, over all points."""
        return sum((point.edited for point in self.points), Contained())

    @property
    def errors(self) -> Contained:
        """Open errors in the projection, over all points."""
        return sum((point.errors for point in self.points), Contained())


# Sessions joined.


def chained(sessions: Sequence[RecordedSession]) -> Chain:
    """These sessions, one after the other, as if they were one."""
    first = sessions[0]
    chain = Chain(first.id, first.agent, first.format, [], [], [])
    for number, session in enumerate(sessions):
        messages, requests = _whole(session)
        skipped = _opening(messages) if number else 0
        offset = len(chain.messages) - skipped
        chain.messages.extend(renamed(one, f"_{number}") for one in messages[skipped:])
        chain.requests.extend(
            msgspec.structs.replace(sent, cut=sent.cut + offset, model=first.requests[0].model)
            for sent in requests
            if sent.cut > skipped
        )
        chain.ends.append(len(chain.requests))
    return chain


def _whole(session: RecordedSession) -> tuple[Sequence[JSON], Sequence[RecordedRequest]]:
    """A session up to its last answer; without it where that asks for what never came."""
    last, read = session.requests[-1].cut, PROVIDERS[session.format].codec.decode
    kinds = [part.kind for message in session.messages[last:] for part in read(0, message)]
    if kinds.count("call") <= kinds.count("result"):
        return session.messages, session.requests
    return session.messages[:last], session.requests[:-1]


def _opening(messages: Sequence[JSON]) -> int:
    """Number of messages at the start that belong to the head."""
    count = 0
    while count < len(messages) and _role(messages[count]) in ("system", "developer"):
        count += 1
    return count


def _role(message: JSON) -> object:
    return cast(dict[str, JSON], message).get("role") if isinstance(message, dict) else None


def renamed(value: JSON, ending: str) -> JSON:
    """The same with another ending to each id; arguments and texts stay as they are."""
    if isinstance(value, list):
        return [renamed(one, ending) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: one
        if name in SPOKEN
        else _ended_with(one, ending)
        if name in IDS
        else renamed(one, ending)
        for name, one in value.items()
    }


def _ended_with(id: JSON, ending: str) -> JSON:
    return f"{id}{ending}" if isinstance(id, str) and id else id


def rejected(format: FormatName, messages: list[JSON]) -> list[str]:
    """Problems in the history that the provider would reject; tools are not recorded."""
    problems = respool.check(messages, format=format)
    return [f"{one.code}: {one.message}" for one in problems if one.severity == "error"]


# One chain followed.


class Follower:
    """One chain under one policy, request by request.

    Between two epochs a projection only grows by what came new. So it is put together only where
    somebody looks at it; `tokens` is at least what it has.
    """

    def __init__(
        self, chain: Chain, policy: respool.Policy, measure: TokenMeasure, head: int
    ) -> None:
        self.chain = chain
        self._head = head
        self.codec = PROVIDERS[chain.format].codec
        self._policy = policy
        self._measure = measure
        self._folded: FoldedRequest | None = None
        self._changed: dict[
            int | None, MessageRow
        ] = {}  # what stands for a source message, by its number
        self._rows: list[MessageRow] = []  # of the source messages sent so far
        self.tokens = 0
        self.raw = 0  # tokens of the history as it came

    @property
    def state(self) -> State:
        """The state of the fold."""
        assert self._folded is not None
        return self._folded.state

    def send(self, number: int) -> bool:
        """Fold over the next request; True if the sent prefix may have changed."""
        sent = self.chain.requests[number]
        epochs = 0 if self._folded is None else self.state.evaluation.epochs
        new = self.chain.messages[len(self._rows) : sent.cut]
        self._rows += (read_row(self.codec, message, self._measure) for message in new)
        added = sum(row.tokens for row in self._rows[len(self._rows) - len(new) :])
        self.raw += added
        self.tokens += added
        history = [row.message for row in self._rows]
        body = ObjectBody({"model": sent.model, self.codec.history_field: history}, [])
        self._folded = extend_fold(
            body,
            format=self.codec.name,
            policy=self._policy,
            facts=_NO_FACTS,
            before=self._folded,
            head=self._head,
        )
        return self.state.evaluation.epochs > epochs

    def look(self) -> list[MessageRow]:
        """The projection of the last request, and exactly how many tokens it has."""
        assert self._folded is not None
        pieces, _ = project(self._folded.body, self.state, self._folded.context)
        rows: list[MessageRow] = []
        for piece in pieces:
            if isinstance(piece, SourceRun):
                rows += self._rows[piece.start : piece.stop]
            else:
                rows.append(self._row(piece.source, piece.message))
        self.tokens = sum(row.tokens for row in rows)
        return rows

    def _row(self, source: int | None, message: JSON) -> MessageRow:
        known = self._changed.get(source)
        if known is None or known.message != message:
            known = self._changed[source] = read_row(self.codec, message, self._measure)
        return known


def follow(
    chain: Chain, policy: respool.Policy, measure: TokenMeasure, head: int, window: int
) -> Lasted | None:
    """A chain until its projection is full; None: even its history never fills the window."""
    follower = Follower(chain, policy, measure, head)
    n0, peak, checked = 0, 0, 0
    invalid: list[str] = []
    points: list[Point] = []
    why, number = "no more sessions", 0
    for number in range(len(chain.requests)):
        if follower.send(number) or follower.tokens > peak:
            follower.look()
        if not n0 and follower.raw + head > window:
            n0 = number
        if follower.tokens + head > window or (n0 and number >= LONGEST * n0):
            why = "full" if follower.tokens + head > window else f"{LONGEST} × N0"
            break
        peak = max(peak, follower.tokens)
        ends = number + 1 in chain.ends
        if number % EVERY == 0 or ends:
            checked += 1
            invalid += [f"request {number}: {one}" for one in problems_in(follower)[:1]]
        if ends:
            points.append(point_at(follower, number)[0])
    else:
        number = len(chain.requests)
    if not n0:
        return None
    last, missing = point_at(follower, number)
    return Lasted(
        chain.id,
        chain.agent,
        "",
        n0,
        number,
        why,
        peak + head,
        sum(end <= number for end in chain.ends) + 1,
        checked,
        tuple(invalid),
        (*points, last),
        follower.state.evaluation.failures,
        missing,
    )


def problems_in(follower: Follower) -> list[str]:
    """Problems in the projection that the provider would reject."""
    return rejected(follower.chain.format, [row.message for row in follower.look()])


# --- content of the projection ---


def point_at(follower: Follower, number: int) -> tuple[Point, tuple[str, ...]]:
    """Changed files and open errors in the projection, and some that are missing."""
    now = _Reader(follower.look())
    files, lines = changed_files(follower.state), open_errors(follower.state)
    lost = [path for path, whole in files.items() if not whole and not now.names(path)]
    unsaid = [line for line in lines if not now.says(line)]
    edited = Contained(len(files) - len(lost), len(files))
    errors = Contained(len(lines) - len(unsaid), len(lines))
    return Point(number, edited, errors), (*lost, *unsaid)


def changed_files(state: State) -> dict[str, bool]:
    """The files that calls wrote so far, and whether one of those calls still stands as it was.

    Such a call tells what it changed even where it names it from a folder that it went to first.
    """
    found: dict[str, bool] = {}
    for exchange, _, failed in _ended(state):
        use = state.analysis.ledger.uses[exchange.ordinal]
        if use.kind == "write" and not failed:
            whole = exchange.call not in state.edits.claimed
            for span in use.writes:
                found[span.path] = whole or found.get(span.path, False)
    return found


def open_errors(state: State) -> list[str]:
    """The main line of each operation's last failure that no success has followed."""
    found: dict[str, None] = {}
    for exchange, text, failed in _ended(state):
        outcomes = state.analysis.ledger.outcomes(
            state.analysis.ledger.uses[exchange.ordinal], state.analysis.ledger_exchanges
        )
        if failed and outcomes and outcomes[-1].failed and outcomes[-1].ordinal == exchange.ordinal:
            found[error_line(text)] = None
    return [line for line in found if line]


def _ended(state: State) -> Iterator[tuple[Exchange, str, bool]]:
    """Completed exchanges with their output and whether they failed."""
    parts = state.transcript.parts
    for exchange in state.transcript.exchanges[: state.analysis.ledger_exchanges]:
        if exchange.result is not None:
            result, use = parts[exchange.result], state.analysis.ledger.uses[exchange.ordinal]
            ending = parse_outcome(result.text, result.error, use.kind)
            yield exchange, ending.body, ending.failed


class _Reader:
    """Search of a projection for names and lines."""

    def __init__(self, rows: Sequence[MessageRow]) -> None:
        blocks = [block.text for row in rows for block in row.blocks]
        self._text = "\n".join(map(_unfolded, blocks))
        self._words = " ".join(self._text.split())

    def names(self, path: str) -> bool:
        """Check for a path, whole or by its last two segments."""
        return "/".join(path.split("/")[-2:]) in self._text

    def says(self, line: str) -> bool:
        """Check for a line, clipped as summaries clip it."""
        return " ".join(clip_error_line(line).removesuffix("…").split()) in self._words


def _unfolded(text: str) -> str:
    """A summary with its paths whole."""
    below = _BELOW.search(text[:1_000])
    return text.replace("…/", f"{below[1]}/") if below else text


# The corpus.


def chains(corpus: Path, starts: int, files: Sequence[str] = FILES) -> Iterator[tuple[str, Chain]]:
    """Chains of each file, each begun with another of its sessions, spread over it."""
    for name in files:
        if not (corpus / f"{name}.jsonl.gz").exists():
            continue
        read = read_file(corpus / f"{name}.jsonl.gz", READERS)
        sessions = [one for one in read if isinstance(one, RecordedSession) and one.parent is None]
        for number in range(min(starts, len(sessions))):
            at = number * len(sessions) // starts
            same = [*sessions[at:], *sessions[:at]]
            yield name, chained([one for one in same if one.format == same[0].format])


def policy_of(name: str, window: int) -> respool.Policy:
    """A policy by name, with a budget if it has none."""
    if name == "budget":
        policy = respool.Policy(passes=("default", "old_reasoning", "trim_results", "stub_results"))
    elif name.endswith(".toml"):
        policy = respool.Policy.from_toml(name)
    else:
        policy = respool.Policy.preset(name)
    return policy if policy.budget else policy.replace(budget=window - RESERVE)


def measured(
    corpus: Path,
    name: str,
    window: int,
    starts: int,
    files: Sequence[str],
    own: bool,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Lasted]:
    """All chains under one policy."""
    found: list[Lasted] = []
    for source, chain in chains(corpus, starts, files):
        head = HEADS[chain.format]
        counter = counter_for(chain.format, chain.requests[0].model)
        measure = CounterMeasure(counter) if own else CharacterMeasure()
        one = follow(chain, policy_of(name, window), measure, head, window)
        tell(f"{source} {chain.id}: {'never full' if one is None else f'{one.ratio:.2f}'}")
        if one is not None:
            found.append(msgspec.structs.replace(one, source=source))
    return found


def table(found: Sequence[Lasted]) -> Table:
    """Table of the results."""
    shown = Table(
        "begun with",
        "N0",
        "N1",
        "N1/N0",
        "ended",
        "peak",
        "sessions",
        "invalid",
        "edited told",
        "at the end",
        "errors told",
        "at the end",
    )
    for one in found:
        last = one.points[-1]
        shown.add_row(
            f"{one.source.partition('__')[0]} {one.source.rpartition('+')[2]} {one.id[:8]}",
            str(one.n0),
            str(one.n1),
            f"{one.ratio:.2f}",
            one.why,
            f"{one.peak:,}",
            str(one.sessions),
            f"{len(one.invalid)} of {one.checked}",
            *_shares(one.edited, last.edited),
            *_shares(one.errors, last.errors),
        )
    n0, n1 = sum(one.n0 for one in found), sum(one.n1 for one in found)
    edited, errors = (
        sum((getattr(one, what) for one in found), Contained()) for what in ("edited", "errors")
    )
    shown.add_section()
    shown.add_row(
        "all",
        str(n0),
        str(n1),
        f"{n1 / max(n0, 1):.2f}",
        f"least {min((one.ratio for one in found), default=0):.2f}",
        "",
        "",
        str(sum(len(one.invalid) for one in found)),
        f"{edited.share:.4f}",
        "",
        f"{errors.share:.4f}",
        "",
    )
    return shown


def _shares(over: Contained, last: Contained) -> tuple[str, str]:
    return f"{over.share:.3f}", f"{last.told} of {last.of}"


def main() -> None:
    """Print the table, or everything as JSON."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("corpus", type=Path)
    asked.add_argument("--policy", default="budget", help=f"budget, or {POLICY_NAMES_HELP}")
    asked.add_argument("--window", type=int, default=WINDOW)
    asked.add_argument("--starts", type=int, default=2, help="chains of each repository")
    asked.add_argument("--files", nargs="*", default=list(FILES))
    asked.add_argument(
        "--own", action="store_true", help="count as respool does, not characters / 4"
    )
    asked.add_argument("--json", action="store_true")
    told = asked.parse_args()
    found = measured(
        told.corpus,
        told.policy,
        told.window,
        told.starts,
        told.files,
        told.own,
        lambda line: print(line, file=sys.stderr, flush=True),
    )
    if told.json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
        return
    Console(width=170 if not sys.stdout.isatty() else None).print(table(found))


if __name__ == "__main__":
    main()
