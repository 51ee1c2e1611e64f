"""False drops at a fixed size, and cost with intervals, on owners that no weight was fitted on.

    python -m bench.report [CORPUS] [--per-repository N] [--peer-repository N] [--minutes N]
                           [--part judge|fit] [--venv PATH] [--render]

Writes bench/recorded/18-proof.json and .md, bench/RESULTS.md and the table in README.md. Sessions
that were measured by the same code before (build/report) are not measured again. --render measures
nothing and only writes the tables.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

import respool
from bench import results as results_page
from bench.cut_recall import markdown
from bench.false_drops import SELECTIONS, Moment, bootstrap_ratio, moments_of
from bench.held_out import (
    AGENTS,
    CORPUS,
    corpus_files,
    long_sessions,
    owner_of,
    use_weights,
)
from bench.passes import recording_of
from bench.peers import PEERS, Peer, PeerUnavailable, chat_of
from respool.policy import PRESETS
from respool.replay.policies import (
    MaskingSender,
    ProjectionSender,
    ResultLocation,
    Sender,
    UnchangedSender,
    sender_factory,
)
from respool.replay.recording import Recording
from respool.replay.score import score_policy
from respool.sessions.session import RecordedSession

HERE = Path(__file__).resolve().parent
DATA = HERE / "recorded" / "18-proof.json"
# Fitted on the owners that do not judge; the shipped ones are fitted on all.
WEIGHTS = HERE / "judged_weights.toml"
SECTION = HERE / "recorded" / "18-proof.md"
README = HERE.parent / "README.md"
PARTS = HERE.parent / "build" / "report"
BEGIN, END = "<!-- proof: written by make report -->", "<!-- /proof -->"
SHARES = (0.25, 0.5)
SOURCES = ("codetether", "clark", "rfc013", "pi-dcp")
OWN_SIZE = ("safe", "lean", *SOURCES)  # policies that choose their size themselves
COSTED = ("safe", "lean", "mask-10", "clear-100k", *SOURCES, "oracle", "floor")
_AGENT_NAMES = {"claude-code": "Claude Code", "codex": "Codex"}
_FORECAST, _NEWEST, _LARGEST, _ORACLE = SELECTIONS


class Drops(Struct):
    """Sums of one method over the moments of some sessions of a repository."""

    needs: int = 0
    dropped: int = 0
    size: int = 0  # characters of old results
    kept: int = 0
    forecast_dropped: int = 0  # by respool's forecast at the same size
    newest_dropped: int = 0  # by keeping the newest at the same size


class Cost(Struct):
    """Sums of one policy over some sessions of a repository, in tokens of plain input."""

    sessions: int = 0
    requests: int = 0
    base: float = 0.0
    bill: float = 0.0
    all_in: float = 0.0
    lost: int = 0
    worse: int = 0
    invalid: int = 0


class RepositoryFigures(Struct):
    """All figures of one repository with one agent."""

    agent: str
    owner: str
    repository: str
    sessions: int = 0
    drops: dict[str, dict[str, Drops]] = {}  # by share (own: its own size), then by method
    costs: dict[str, Cost] = {}  # by policy


class Proof(Struct):
    """All that the tables are made of."""

    date: str
    per_repository: int
    peer_repository: int
    repositories: list[RepositoryFigures]
    unavailable: dict[str, str] = {}  # peers, and why they could not be run


# --- measuring ---------------------------------------------------------------------------------


def measure_drops(
    recording: Recording, peers: Mapping[str, Peer], failed: dict[str, str]
) -> dict[str, dict[str, Drops]]:
    """False drops of every method in one session."""
    found: dict[str, dict[str, Drops]] = {}
    results = MaskingSender(recording, 0).results
    senders = {name: _Projected(recording, name) for name in OWN_SIZE}
    for moment in moments_of(recording, results):
        for share in SHARES:
            size = round(share * moment.size)
            chosen = {name: choose(moment, size) for name, choose in SELECTIONS.items()}
            chosen |= dict(_peers_keep(moment, results, share, peers, failed))
            held = found.setdefault(f"{share:g}", {})
            for name, texts in chosen.items():
                _add_drops(held, name, moment, sum(map(len, texts)), texts)
        for name, sender in senders.items():
            kept, texts = sender.kept_at(moment)
            _add_drops(found.setdefault("own", {}), name, moment, kept, texts)
    return found


def _peers_keep(
    moment: Moment,
    results: list[ResultLocation],
    share: float,
    peers: Mapping[str, Peer],
    failed: dict[str, str],
) -> Iterator[tuple[str, list[str]]]:
    chat = chat_of(moment, results) if peers else []
    for name, peer in peers.items():
        try:
            yield name, peer.keep(moment, chat, share)
        except PeerUnavailable as error:
            failed[name] = str(error)


def _add_drops(
    held: dict[str, Drops], name: str, moment: Moment, kept: int, texts: Sequence[str]
) -> None:
    sums = held.setdefault(name, Drops())
    sums.needs += moment.total
    sums.dropped += moment.dropped(texts)
    sums.size += moment.size
    sums.kept += kept
    if name not in SELECTIONS:
        sums.forecast_dropped += moment.dropped(SELECTIONS[_FORECAST](moment, kept))
        sums.newest_dropped += moment.dropped(SELECTIONS[_NEWEST](moment, kept))


class _Projected:
    """A preset, sent request by request up to each moment."""

    def __init__(self, recording: Recording, name: str) -> None:
        self._recording = recording
        self._sender = ProjectionSender(recording, respool.Policy.preset(name))
        self._next = 0

    def kept_at(self, moment: Moment) -> tuple[int, list[str]]:
        """The characters that are left of old results, and all texts that go out."""
        messages: Sequence[Any] = ()
        while self._next <= moment.request:
            messages = self._sender.send(self._next)
            self._next += 1
        rows = [self._recording.row(message) for message in messages]
        texts = [block.text for row in rows for block in row.blocks]
        cut = self._recording.cuts[moment.request]
        whole = sum(len(block.text) for row in self._recording.rows[:cut] for block in row.blocks)
        gone = whole - sum(map(len, texts))
        return max(0, moment.size - gone), texts


def measure_costs(recording: Recording) -> dict[str, Cost]:
    """Cost and losses of every policy in one session."""
    unchanged = score_policy(recording, UnchangedSender(recording), "none")
    base, own = unchanged.all_in, set(unchanged.invalid)
    found: dict[str, Cost] = {}
    for name in COSTED:
        sender: Sender = sender_factory(name)(recording)
        got = score_policy(recording, sender, name)
        found[name] = Cost(
            sessions=1,
            requests=got.requests,
            base=base,
            bill=got.bill.cost,
            all_in=got.all_in,
            lost=got.lost_turns,
            worse=int(got.all_in > 1.01 * base),
            invalid=sum(one not in own for one in got.invalid),
        )
    return found


def add_figures(into: Any, more: Any) -> None:
    """Add the sums of one value to another of its type."""
    for name in into.__struct_fields__:
        setattr(into, name, getattr(into, name) + getattr(more, name))


def measure_session(
    path: Path, session: RecordedSession, peers: Mapping[str, Peer], failed: dict[str, str]
) -> RepositoryFigures:
    """All figures of one session; measured before: as they were written."""
    agent, _, rest = path.name.removesuffix(".jsonl.gz").partition("__")
    part = PARTS / code_version() / f"{agent}-{session.id[:80].replace('/', '_')}-{len(peers)}.json"
    if part.exists():
        return msgspec.json.decode(part.read_bytes(), type=RepositoryFigures)
    recording = recording_of(session, real=False)
    found = RepositoryFigures(
        agent=agent,
        owner=owner_of(path),
        repository=rest.replace("+", "/"),
        sessions=1,
        drops=measure_drops(recording, peers, failed),
        costs=measure_costs(recording),
    )
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(msgspec.json.encode(found))
    return found


@cache
def code_version() -> str:
    """A hash of all code and weights that figures depend on."""
    found = hashlib.blake2b(digest_size=8)
    package = Path(respool.__file__).parent
    own = [HERE / f"{name}.py" for name in ("false_drops", "forecast_data", "peers", "peer_worker")]
    for file in sorted([*package.rglob("*.py"), *package.rglob("*.toml"), *own, WEIGHTS]):
        found.update(file.name.encode() + b"\0" + file.read_bytes())
    return found.hexdigest()


def merge(sessions: Iterable[RepositoryFigures]) -> list[RepositoryFigures]:
    """Sums by agent and repository."""
    found: dict[tuple[str, str], RepositoryFigures] = {}
    for one in sessions:
        key = one.agent, one.repository
        held = found.setdefault(
            key, RepositoryFigures(one.agent, one.owner, one.repository, 0, {}, {})
        )
        held.sessions += one.sessions
        for share, methods in one.drops.items():
            for name, drops in methods.items():
                add_figures(held.drops.setdefault(share, {}).setdefault(name, Drops()), drops)
        for name, cost in one.costs.items():
            add_figures(held.costs.setdefault(name, Cost()), cost)
    return [found[key] for key in sorted(found)]


def _first_sessions(path: Path, count: int) -> Iterator[RecordedSession]:
    """The first long sessions of a file, which is read no further."""
    return islice(long_sessions(path, count), count)


def measure(asked: argparse.Namespace) -> Proof:
    """Measure until all is done or the time is up."""
    began, failed = time.monotonic(), dict[str, str]()
    peers: dict[str, Peer] = {}
    for spec in PEERS:
        try:
            peers[spec.name] = Peer(spec, asked.venv)
        except PeerUnavailable as error:
            failed[spec.name] = str(error)
    found: list[RepositoryFigures] = []
    try:
        # By rounds, so that every repository has been looked at if the time is up.
        taken = [
            (number, path, session)
            for path in corpus_files(asked.corpus, asked.part, AGENTS)
            for number, session in enumerate(_first_sessions(path, asked.per_repository))
        ]
        for number, path, session in sorted(taken, key=lambda one: one[0]):
            if time.monotonic() - began > 60 * asked.minutes:
                print("The time is up: the rest is left out.", file=sys.stderr)
                break
            used = peers if number < asked.peer_repository else {}
            found.append(measure_session(path, session, used, failed))
            print(f"{time.monotonic() - began:5.0f} s  {path.name} {session.id}", file=sys.stderr)
    finally:
        for peer in peers.values():
            peer.close()
    return Proof(
        date=date.today().isoformat(),
        per_repository=asked.per_repository,
        peer_repository=asked.peer_repository,
        repositories=merge(found),
        unavailable=failed,
    )


# --- tables ------------------------------------------------------------------------------------


def percent(value: float, digits: int = 1) -> str:
    """A share in per cent."""
    return f"{100 * value:.{digits}f} %"


def interval(parts: Sequence[tuple[float, float]], digits: int = 1) -> str:
    """A ratio of sums with its interval, in per cent."""
    if not any(base for _, base in parts):
        return "–"
    value, low, high = bootstrap_ratio(parts)
    return f"{percent(value, digits)} ({100 * low:.{digits}f}–{100 * high:.{digits}f})"


def _of(proof: Proof, agent: str) -> list[RepositoryFigures]:
    return [one for one in proof.repositories if one.agent == agent]


def _drops(held: Sequence[RepositoryFigures], share: str, name: str) -> list[Drops]:
    found = (one.drops.get(share, {}).get(name) for one in held)
    return [one for one in found if one is not None]


def _false_drops(drops: Sequence[Drops], field: str = "dropped") -> str:
    return interval([(getattr(one, field), one.needs) for one in drops])


def _shown(name: str) -> str:
    spec = next((one for one in PEERS if one.name == name), None)
    if spec is not None:
        return spec.shown
    return f"`{name}`" if name in PRESETS or "-" in name else name


def fixed_table(proof: Proof, agent: str) -> str:
    """Selections of one size beside each other."""
    held = _of(proof, agent)
    names = (_FORECAST, _NEWEST, _LARGEST, _ORACLE)
    rows = [
        [
            _shown(name),
            *(_false_drops(_drops(held, f"{share:g}", name)) for share in SHARES),
        ]
        for name in names
    ]
    return markdown(("kept of old results", *(percent(share, 0) for share in SHARES)), rows)


def peer_table(proof: Proof, agent: str) -> str:
    """Methods that reach a size of their own, beside two selections of that same size."""
    held = _of(proof, agent)
    asked = [(f"{share:g}", spec.name) for spec in PEERS for share in SHARES]
    rows: list[list[str]] = []
    for share, name in [*asked, *(("own", name) for name in OWN_SIZE)]:
        drops = _drops(held, share, name)
        if not sum(one.needs for one in drops):
            continue
        wanted = "" if share == "own" else f", asked for {percent(float(share), 0)}"
        kept = sum(one.kept for one in drops) / sum(one.size for one in drops)
        rows.append(
            [
                f"{_shown(name)}{wanted}",
                percent(kept, 0),
                *(_false_drops(drops, one) for one in ("dropped", "forecast_dropped")),
                _false_drops(drops, "newest_dropped"),
            ]
        )
    columns = ("method", "kept", "false drops", "forecast at that size", "newest at that size")
    return markdown(columns, rows)


def owner_table(proof: Proof, agent: str) -> str:
    """Selections of a quarter by owner."""
    names, share = (_FORECAST, _NEWEST, _LARGEST, _ORACLE), f"{SHARES[0]:g}"
    rows: list[list[str]] = []
    for owner in sorted({one.owner for one in _of(proof, agent)}):
        held = [one for one in _of(proof, agent) if one.owner == owner]
        by_name = {name: _drops(held, share, name) for name in names}
        needs = sum(one.needs for one in by_name[_FORECAST])
        shares = [
            percent(sum(one.dropped for one in by_name[name]) / needs) if needs else "–"
            for name in names
        ]
        rows.append([owner, f"{needs:,}", *shares])
    return markdown(("owner", "needs", *names), rows)


def _costs(held: Sequence[RepositoryFigures], name: str) -> list[Cost]:
    found = (one.costs.get(name) for one in held)
    return [one for one in found if one is not None]


def cost_table(proof: Proof, agent: str) -> str:
    """Bill, all-in and lost turns of every policy."""
    rows: list[list[str]] = []
    for name in COSTED:
        costs = _costs(_of(proof, agent), name)
        sessions = sum(one.sessions for one in costs)
        rows.append(
            [
                _shown(name),
                interval([(one.bill, one.base) for one in costs]),
                interval([(one.all_in, one.base) for one in costs]),
                interval([(one.lost, one.requests) for one in costs], 2),
                f"{sum(one.worse for one in costs)} of {sessions}",
                str(sum(one.invalid for one in costs)),
            ]
        )
    columns = ("policy", "bill", "all-in", "lost turns", "worse by > 1 %", "invalid")
    return markdown(columns, rows)


def render_section(proof: Proof) -> str:
    """The section of bench/RESULTS.md."""
    parts = [
        "# Proof for a sceptic: false drops and cost on owners held out",
        "",
        "<!-- command: make report CORPUS=path -->",
        f"<!-- date: {proof.date} -->",
        "",
        _method_text(proof),
    ]
    for agent in AGENTS:
        held = _of(proof, agent)
        sessions = sum(one.sessions for one in held)
        needs = sum(one.needs for one in _drops(held, f"{SHARES[0]:g}", _FORECAST))
        parts += [
            "",
            f"### {_AGENT_NAMES[agent]}",
            "",
            f"{sessions} sessions of {len(held)} repositories, {needs:,} later needs.",
            "",
            "False drops at a fixed size:",
            "",
            fixed_table(proof, agent),
            "",
            "Methods that choose their own size:",
            "",
            peer_table(proof, agent),
            "",
            f"By owner, {percent(SHARES[0], 0)} kept:",
            "",
            owner_table(proof, agent),
            "",
            "Cost as a ratio to no compaction:",
            "",
            cost_table(proof, agent),
        ]
    missing = [f"- {_shown(name)}: {why}" for name, why in sorted(proof.unavailable.items())]
    if missing:
        parts += ["", "Peers that could not be run, or failed at some moments:", "", *missing]
    return "\n".join([*parts, ""])


def _method_text(proof: Proof) -> str:
    return (
        f"At a quarter, half and three quarters of each long session of the owners that judge "
        f"(`bench/held_out.py`; at most {proof.per_repository} sessions per repository), each "
        "method chooses what is kept of all results of 200 characters or more that were sent four "
        "times or more. A *need* is an identifier or a line in a later call that such results "
        "alone hold. A *false drop* is a need that is not in what was kept. The forecast and the "
        "oracle choose lines, by expected and by real needs per character; the placebos keep the "
        "newest results, or cut the largest, down to the same size. Sizes are in characters. "
        f"Peers are asked for the size in their own way, on {proof.peer_repository} session per "
        "repository, their histories as chat messages; the last two columns show selections of "
        "the very size that they reached. In brackets: 95 % intervals, by drawing repositories "
        "2,000 times. *all-in* and *lost* are as everywhere in these results; *invalid* counts "
        "requests with a fault that the unchanged request does not have (those of one session "
        "hold a turn that ends in thinking, which respool repairs and other methods leave)."
    )


def render_readme(proof: Proof) -> str:
    """The table of README.md."""
    share = f"{SHARES[0]:g}"
    kept = {
        "chosen by respool's forecast": _FORECAST,
        "placebo: the newest results": _NEWEST,
        "placebo: the largest results cut": _LARGEST,
        "oracle, which knows what is needed later": _ORACLE,
    }
    agents = [_of(proof, agent) for agent in AGENTS]
    rows = [
        [f"{label}", *(_false_drops(_drops(held, share, name)) for held in agents)]
        for label, name in kept.items()
    ]
    heads = [
        f"{_AGENT_NAMES[agent]}, {len(held)} repositories"
        for agent, held in zip(AGENTS, agents, strict=True)
    ]
    costs: list[list[str]] = []
    for name in ("safe", "lean"):
        held = [_costs(one, name) for one in agents]
        cost = [interval([(one.all_in, one.base) for one in some]) for some in held]
        lost = [interval([(one.lost, one.requests) for one in some], 2) for some in held]
        costs += [[f"`{name}`: cost", *cost], [f"`{name}`: turns that missed something", *lost]]
    return "\n".join(
        [
            BEGIN,
            markdown((f"{percent(SHARES[0], 0)} of old results kept: needs dropped", *heads), rows),
            "",
            markdown(("as a share of no compaction", *heads), costs),
            END,
        ]
    )


def with_table(page: str, table: str) -> str:
    """A page with its table between the markers replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md has no {BEGIN} … {END}")
    return f"{before}{table}{after}"


def read_proof(path: Path = DATA) -> Proof:
    """The recorded figures."""
    return msgspec.json.decode(path.read_bytes(), type=Proof)


def write_tables(proof: Proof) -> None:
    """Write the section, the page of results and the table of the README."""
    SECTION.write_text(render_section(proof), "utf-8")
    results_page.RESULTS.write_text(results_page.assemble(results_page.read_sections()), "utf-8")
    README.write_text(with_table(README.read_text("utf-8"), render_readme(proof)), "utf-8")


def main() -> None:
    """Measure, record and render."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS)
    parser.add_argument("--per-repository", type=int, default=3)
    parser.add_argument("--peer-repository", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--venv", type=Path, default=HERE.parent / ".venv")
    parser.add_argument("--part", choices=("judge", "fit"), default="judge")
    parser.add_argument("--render", action="store_true")
    asked = parser.parse_args()
    if not asked.render:
        use_weights(WEIGHTS)
        proof = measure(asked)
        if not proof.repositories:
            sys.exit(f"There are no sessions of these owners in {asked.corpus}.")
        if asked.part == "fit":
            print(render_section(proof))  # to look at, never to publish
            return
        DATA.write_bytes(msgspec.json.format(msgspec.json.encode(proof), indent=1) + b"\n")
    write_tables(read_proof())


if __name__ == "__main__":
    main()
