"""Replayed bills without compaction against reported charges, and causes of the difference.

    python bench/reconciliation.py [CORPUS] [--sessions]

CORPUS (default: ../shared/corpus beside the repository) holds transcripts of Claude Code and Codex.
Prints bills in sum, or by session too; what prompts were made of; why bills differ; calibration.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import accumulate
from pathlib import Path
from statistics import median

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from respool.pricing import Growth, calibrations
from respool.providers.registry import PROVIDERS
from respool.replay import reconciliation
from respool.replay.prompt_cache import CounterMeasure, TokenMeasure, read_row
from respool.replay.reconciliation import UNRECORDED_PART
from respool.replay.recording import infer_head_tokens
from respool.replay.result import ReportedUsage, SessionResult
from respool.replay.runner import ReplayOptions, replay_session
from respool.sessions.readers import READERS, read_file
from respool.sessions.session import RecordedSession
from respool.tokens import (
    EstimateCounter,
    ExactCounter,
    TokenizerFamily,
    counter_for,
    part_tokens,
    tokenizer_family,
)

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus"
AGENTS = ("claude-code", "codex")

Errors = list[float]


class Framed(Struct, frozen=True, array_like=True):
    """Calls, results or characters of signatures, with the tokens counted and reported."""

    family: TokenizerFamily
    kind: str
    counted: int
    pieces: int
    reported: int


class Found(Struct, frozen=True):
    """Figures of one session, without text."""

    repository: str
    result: SessionResult
    errors: dict[str, Errors]  # by how prompts were counted: predicted / reported - 1
    framed: tuple[Framed, ...]


def main() -> int:
    """Read, replay, print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("corpus", nargs="?", type=Path, default=CORPUS)
    arguments.add_argument("--sessions", action="store_true", help="a line for each session too")
    given = arguments.parse_args()
    files = [file for file in sorted(given.corpus.iterdir()) if file.name.startswith(AGENTS)]
    if not files:
        print(f"no transcripts of {' or '.join(AGENTS)} in {given.corpus}", file=sys.stderr)
        return 1
    with ProcessPoolExecutor() as workers:
        found = [one for some in workers.map(replayed, files) for one in some]
    console = Console(width=150)
    if given.sessions:
        console.print(session_table(found))
    for made in (
        sums,
        spread,
        parts,
        causes,
        models,
        growth_errors,
        prompt_errors,
        enough,
        framing,
    ):
        console.print(made(found))
    console.print(reminders(files, found))
    return 0


# --- reading -----------------------------------------------------------------------------------


def replayed(file: Path) -> list[Found]:
    """The sessions of one file."""
    repository = repository_of(file)
    options = ReplayOptions(policies=("none",))
    return [
        Found(
            repository,
            replace(replay_session(session, options), scores=()),
            dict(judged(session)),
            tuple(framed(session)),
        )
        for session in read_file(file, READERS)
        if isinstance(session, RecordedSession)
    ]


def repository_of(file: Path) -> str:
    """The repository in a collection's name."""
    return file.name.partition("__")[2].removesuffix(".jsonl.gz").replace("+", "/")


def judged(session: RecordedSession) -> Iterator[tuple[str, Errors]]:
    """Prompts as they are predicted from the first one: by the family's factor, and calibrated.

    Calibration learns from the first half of the requests and is judged by the second.
    """
    half = len(session.requests) // 2
    if half < 1 or session.requests[0].usage is None:
        return
    model = session.requests[0].model
    seen = replace(
        session,
        messages=session.messages[: session.requests[half].cut],
        requests=session.requests[: half + 1],
    )
    evidence = reconciliation.infer_evidence(seen)
    assert evidence is not None
    family = tokenizer_family(session.format, model)
    bare = replace(
        evidence,
        scale=replace(evidence.scale, framing=reconciliation.Framing(), tokens_per_thought=0),
    )
    unshown = replace(evidence, scale=replace(evidence.scale, tokens_per_thought=0))
    measures: dict[str, TokenMeasure] = {
        "the family's factor": CounterMeasure(counter_for(session.format, model)),
        "the session's own factor": reconciliation.calibrated_measure(bare, family),
        "… and framing": reconciliation.calibrated_measure(unshown, family),
        "… and hidden reasoning": reconciliation.calibrated_measure(evidence, family),
    }
    for name, measure in measures.items():
        yield name, errors(session, measure, half + 1)


def errors(session: RecordedSession, measure: TokenMeasure, start: int) -> Errors:
    """Errors of predicted prompts against reported ones."""
    codec = PROVIDERS[session.format].codec
    tokens = [read_row(codec, message, measure).tokens for message in session.messages]
    sums = list(accumulate(tokens, initial=infer_head_tokens(session, measure)))
    return [
        sums[sent.cut] / sent.usage.prompt - 1
        for sent in session.requests[start:]
        if sent.usage is not None and sent.usage.prompt
    ]


def framed(session: RecordedSession) -> Iterator[Framed]:
    """Answers that are only calls, answers with sealed thoughts, steps that bring only results."""
    codec = PROVIDERS[session.format].codec
    family = tokenizer_family(session.format, session.requests[0].model)
    counter = ExactCounter() if family == "openai" else EstimateCounter(family)
    for sent, after in zip(session.requests, session.requests[1:], strict=False):
        if sent.usage is None or after.usage is None or sent.model != after.model:
            continue
        said, came = [], []
        for message in session.messages[sent.cut : after.cut]:
            (said if codec.is_model_made(message) else came).extend(codec.decode(0, message))
        answer = sum(part_tokens(part, counter) for part in said)
        if sent.usage.output < 0.7 * answer + 4:
            continue  # only the start of the answer was counted
        hidden = sum(
            reconciliation.signature_chars(message)
            for message in session.messages[sent.cut : after.cut]
        )
        if hidden and not any(part.text for part in said if part.kind == "reasoning"):
            calls = sum(part.kind == "call" for part in said)
            around = reconciliation.FRAMING.get(family, reconciliation.Framing()).call * calls
            yield Framed(family, "signature", answer, hidden, sent.usage.output - around)
        if all(part.kind == "call" for part in said):
            yield Framed(family, "call", answer, len(said), sent.usage.output)
        if all(part.kind == "result" for part in came):
            more = after.usage.prompt - sent.usage.prompt - sent.usage.output
            counted = sum(part_tokens(part, counter) for part in came)
            yield Framed(family, "result", counted, len(came), more)


# --- bills -------------------------------------------------------------------------------------


def grouped(found: Sequence[Found]) -> dict[str, list[ReportedUsage]]:
    """Reported usage by agent and repository, and by agent."""
    groups: dict[str, list[ReportedUsage]] = {}
    for agent in AGENTS:
        own = [one for one in found if one.result.agent == agent and one.result.recorded]
        repositories = sorted({one.repository for one in own})
        for name in (*repositories, ""):
            if name or len(repositories) > 1:
                wanted = [one for one in own if name in ("", one.repository)]
                recorded = [one.result.recorded for one in wanted if one.result.recorded]
                groups[f"{agent}, {name or 'all'}"] = recorded
    return groups


def table(title: str, *columns: str) -> Table:
    """A table whose first column is words and whose others are figures."""
    made = Table(title=title, title_justify="left")
    for at, column in enumerate(columns):
        made.add_column(column, justify="right" if at else "left", no_wrap=not at)
    return made


def total(
    recorded: Iterable[ReportedUsage], figure: Callable[[ReportedUsage], float | None]
) -> float:
    """One figure over many sessions."""
    return sum(figure(one) or 0 for one in recorded)


def row(recorded: Sequence[ReportedUsage]) -> list[str]:
    """Bills of some sessions, side by side."""
    cost = total(recorded, lambda one: one.reported.cost)
    again = total(recorded, lambda one: one.replayed.cost)
    tokens = total(recorded, lambda one: one.reported.tokens)
    counted = total(recorded, lambda one: one.replayed.tokens)
    return [
        f"{total(recorded, lambda one: one.requests):,.0f}",
        f"{cost / 1e6:,.3f}",
        f"{again / 1e6:,.3f}",
        f"{again / cost:.3f}",
        f"{counted / tokens:.3f}",
        f"{total(recorded, lambda one: one.reported.read) / tokens:.3f}",
        f"{total(recorded, lambda one: one.replayed.read) / counted:.3f}",
        f"{total(recorded, lambda one: one.reported.money):,.2f}",
        f"{total(recorded, lambda one: one.replayed.money):,.2f}",
    ]


BILLS = (
    "requests",
    "charged",
    "replayed",
    "ratio",
    "tokens",
    "read",
    "replayed",
    "$",
    "replayed $",
)


def sums(found: Sequence[Found]) -> Table:
    """Bills in sum."""
    made = table("Bills, in millions of tokens of plain input", "", "sessions", *BILLS)
    for title, recorded in grouped(found).items():
        made.add_row(title, str(len(recorded)), *row(recorded))
    return made


def spread(found: Sequence[Found]) -> Table:
    """Print the spread of single sessions' bills."""
    made = table(
        "Replayed to charged, by session",
        "",
        "p5",
        "p25",
        "median",
        "p75",
        "p95",
        "within 10 %",
        "of the cost",
    )
    for title, recorded in grouped(found).items():
        ratios = [one.replayed.cost / one.reported.cost for one in recorded]
        near = [one for one, ratio in zip(recorded, ratios, strict=True) if abs(ratio - 1) <= 0.1]
        cost = total(near, lambda one: one.reported.cost)
        cost /= total(recorded, lambda one: one.reported.cost)
        tells = (f"{quantile(ratios, at):.2f}" for at in (0.05, 0.25, 0.5, 0.75, 0.95))
        made.add_row(title, *tells, f"{len(near)} of {len(recorded)}", f"{100 * cost:.0f} %")
    return made


def session_table(found: Sequence[Found]) -> Table:
    """Bills by session."""
    made = table("Sessions", "session", *BILLS, "head", "hidden")
    for one in found:
        if (recorded := one.result.recorded) is None:
            continue
        name = f"{one.result.agent} {Path(one.result.id).name[:20]}#{one.result.segment}"
        made.add_row(name, *row([recorded]), f"{recorded.head:,}", f"{recorded.hidden:,}")
    return made


def shares(
    title: str, found: Sequence[Found], of: str, whole: Callable[[ReportedUsage], float]
) -> Table:
    """A dictionary of figures, in sum, as shares of a whole."""
    groups = grouped(found)
    made = table(title, "", *groups)
    figures = {
        title: [(getattr(one, of), whole(one)) for one in some] for title, some in groups.items()
    }
    names = dict.fromkeys(name for some in figures.values() for each, _ in some for name in each)
    for name in names:
        made.add_row(name, *(f"{percent(name, some):+.1f}" for some in figures.values()))
    return made


def percent(name: str, figures: Sequence[tuple[dict[str, float], float]]) -> float:
    """One figure of many sessions, of the whole."""
    return 100 * sum(each.get(name, 0) for each, _ in figures) / sum(all for _, all in figures)


def parts(found: Sequence[Found]) -> Table:
    """Print the components of prompts."""
    title = "What the reported prompts were made of, % of their tokens"
    return shares(title, found, "made_of", lambda one: one.reported.tokens)


def causes(found: Sequence[Found]) -> Table:
    """Print the causes of the difference between bills."""
    title = "Charged less replayed, % of what was charged"
    return shares(title, found, "explained", lambda one: one.reported.cost)


# --- calibration -------------------------------------------------------------------------------


def samples(found: Iterable[Found]) -> list[Growth]:
    """The growths of many sessions."""
    return [growth for one in found for growth in one.result.samples]


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so many lie below."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def told(off: Sequence[float]) -> tuple[str, str, str]:
    """Errors: the median and the ninth tenth of their size, and their mean."""
    sizes = [abs(one) for one in off]
    mean = sum(off) / len(off)
    return f"{100 * median(sizes):.1f}", f"{100 * quantile(sizes, 0.9):.1f}", f"{100 * mean:+.1f}"


def models(found: Sequence[Found]) -> Table:
    """Each model's factor, and how often its bounds hold for a session that it has not seen."""
    made = table(
        "Calibration",
        "model",
        "factor",
        "low",
        "high",
        "growths",
        "sessions",
        "within, held out",
    )
    for one in calibrations(samples(found)):
        own = [f for f in found if any(g.model == one.model for g in f.result.samples)]
        inside = [hit for f in own for hit in within(one.model, f, own)]
        held = f"{100 * sum(inside) / len(inside):.0f} %" if inside else "–"
        made.add_row(
            one.model,
            f"{one.factor:.3f}",
            f"{one.low:.2f}",
            f"{one.high:.2f}",
            str(one.requests),
            str(len(own)),
            held,
        )
    return made


def within(model: str, left: Found, found: Sequence[Found]) -> Iterator[bool]:
    """Check if each growth of a session lies within the bounds from the others."""
    others = samples(f for f in found if f is not left)
    bound = next((c for c in calibrations(others) if c.model == model), None)
    for growth in left.result.samples:
        if bound is not None and growth.model == model:
            yield bound.low <= growth.ratio <= bound.high


def growth_errors(found: Sequence[Found]) -> Table:
    """Errors of growths with a model's factor from other repositories or sessions."""
    made = table(
        "Growths of prompts, error in %", "learnt from", "growths", "median", "p90", "mean"
    )
    ways: dict[str, Callable[[Found, Found], bool]] = {
        "nothing: the family's factor": lambda one, other: False,
        "the model's sessions in other repositories": lambda one, other: (
            one.repository != other.repository
        ),
        "all other sessions of the model": lambda one, other: one is not other,
    }
    estimated = [one for one in found if one.result.agent != "codex"]
    for name, may_learn in ways.items():
        off: Errors = []
        for one in estimated:
            learnt = calibrations(samples(other for other in estimated if may_learn(one, other)))
            factors = {each.model: each.factor for each in learnt}
            for growth in one.result.samples:
                factor = factors.get(growth.model, 1.0)
                off.append(factor / growth.ratio - 1)
        made.add_row(name, str(len(off)), *told(off))
    return made


def prompt_errors(found: Sequence[Found]) -> Table:
    """Whole prompts of each session's second half, by what was learnt in its first."""
    made = table(
        "Whole prompts of the second halves of sessions, error in %",
        "agent",
        "counted by",
        "prompts",
        "median",
        "p90",
        "mean",
    )
    for agent in AGENTS:
        own = [one.errors for one in found if one.result.agent == agent and one.errors]
        for name in own[0] if own else ():
            off = [error for each in own for error in each[name]]
            made.add_row(agent, name, str(len(off)), *told(off))
    return made


def enough(found: Sequence[Found]) -> Table:
    """Number of its own growths that a session needs: fitted on the first, tested on the rest."""
    made = table(
        f"Growths that a session's own factor needs (in use: {reconciliation.MIN_SAMPLES})",
        "learnt from",
        "growths",
        "median",
        "p90",
        "family's: median",
        "p90",
    )
    for count in (1, 2, 3, 5, 8, 13, 21):
        own: Errors = []
        family: Errors = []
        for one in found:
            growths = one.result.samples
            if one.result.agent == "codex" or len(growths) < 26:  # the same sessions in every row
                continue
            factor = reconciliation.factor_of(growths[:count])
            own += [factor / growth.ratio - 1 for growth in growths[21:]]
            family += [1 / growth.ratio - 1 for growth in growths[21:]]
        if own:
            made.add_row(f"the first {count}", str(len(own)), *told(own)[:2], *told(family)[:2])
    return made


# --- framing and reminders ---------------------------------------------------------------------


def framing(found: Sequence[Found]) -> Table:
    """Tokens around a call and a result, and for a character of a signature, beside the factor."""
    made = table("Framing", "family", "kind", "n", "factor", "tokens each", "in use")
    pools: defaultdict[tuple[TokenizerFamily, str], list[Framed]] = defaultdict(list)
    for one in found:
        for each in one.framed:
            pools[each.family, each.kind].append(each)
    for (family, kind), pool in sorted(pools.items()):
        factor, each = fitted(pool)
        used = (
            reconciliation.TOKENS_PER_SIGNATURE_CHAR
            if kind == "signature"
            else getattr(reconciliation.FRAMING[family], kind)
        )
        made.add_row(family, kind, str(len(pool)), f"{factor:.2f}", f"{each:.2f}", str(used))
    return made


def fitted(pool: Sequence[Framed]) -> tuple[float, float]:
    """Factor and tokens a piece that make the sum of absolute errors least."""
    factor = each = 0.0
    weights = [1.0] * len(pool)
    for _ in range(60):
        rows = [(w, o.counted, o.pieces, o.reported) for w, o in zip(weights, pool, strict=True)]
        xx, xn = sum(w * x * x for w, x, _, _ in rows), sum(w * x * n for w, x, n, _ in rows)
        xy, ny = sum(w * x * y for w, x, _, y in rows), sum(w * n * y for w, _, n, y in rows)
        nn = sum(w * n * n for w, _, n, _ in rows)
        apart = xx * nn - xn * xn
        if not apart:
            break
        factor, each = (xy * nn - ny * xn) / apart, (xx * ny - xn * xy) / apart
        weights = [1 / max(5.0, abs(y - factor * x - each * n)) for _, x, n, y in rows]
    return factor, each


def reminders(files: Sequence[Path], found: Sequence[Found]) -> Table:
    """Reminders as often as they were carried, beside what prompts had that no record shows."""
    made = table(
        "Reminders, with tokens as often as they were sent",
        "repository",
        "reminders",
        "their tokens",
        "left out",
        "% of it",
    )
    claude = [one for one in found if one.result.agent == "claude-code"]
    for file in files:
        count, length = attached(file)
        repository = repository_of(file)
        own = [one for one in claude if one.repository == repository and one.result.recorded]
        growths = samples(own)
        if not count or not growths:
            continue
        tokens = length / 4 * median(growth.ratio for growth in growths)
        missing = sum(
            one.result.recorded.made_of[UNRECORDED_PART] for one in own if one.result.recorded
        )
        share = f"{100 * tokens / missing:.0f}"
        made.add_row(repository, f"{count:,}", f"{tokens:,.0f}", f"{missing:,.0f}", share)
    return made


def attached(file: Path) -> tuple[int, int]:
    """Reminders among a collection's records, and their characters in all later requests."""
    count = length = 0
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            later: set[str] = set()  # answers that come after, read from the end
            for record in reversed(json.loads(line).get("messages", ())):
                if record.get("type") == "assistant" and not record.get("isSidechain"):
                    later.add(record["message"].get("id"))
                elif record.get("type") == "attachment":
                    text = json.dumps(record.get("attachment"), ensure_ascii=False)
                    count += 1
                    length += len(text) * len(later)
    return count, length


if __name__ == "__main__":
    sys.exit(main())
