"""Hashes of every projection, to show that a change of the code changes none of them.

    python -m bench.projections record FILE [--corpus FOLDER] [--share N] [--only SUBSTRING]
    python -m bench.projections compare FILE [--corpus FOLDER] [--share N] [--only SUBSTRING]

Each request of each recorded session is compacted under each preset with a memo, as a proxy does,
and so are generated histories in all formats (kept beside FILE). One line a session and preset:
a hash of what goes out and of the originals, and a hash of the report. `--share N` takes every Nth
session.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from msgspec.structs import astuple

from respool import BudgetError, Memo, PassedThrough, Policy, Report, UnreadableRequest, compact
from respool.policy import PRESETS
from tests.corpus.sessions import READERS, encode, read
from tests.strategies import FORMATS, broken, growing

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus"
EXAMPLES = 60
Line = tuple[str, str]


class Hashes:
    """The hashes of one conversation under one policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self._memo = policy, Memo()
        self.last: Report | None = None
        self._sent, self._report = hashlib.sha256(), hashlib.sha256()

    def add(self, request: Any) -> None:
        """Compact one request."""
        try:
            out = compact(request, policy=self._policy, memo=self._memo)
        except (BudgetError, PassedThrough, UnreadableRequest) as error:
            self._sent.update(type(error).__name__.encode())
            return
        sent = out.request if isinstance(out.request, bytes) else encode(out.request)
        self._sent.update(sent)
        for reference, original in sorted(out.originals.items()):
            self._sent.update(f"{reference}\0{original}\0".encode("utf-8", "surrogatepass"))
        self.last = out.report
        edits = [[str(edit.ref), edit.reason, edit.saved] for edit in out.report.edits]
        repairs = [astuple(one)[:2] for one in out.report.repairs]
        self._report.update(json.dumps([edits, repairs, out.report.epochs], default=str).encode())

    def __str__(self) -> str:
        if self.last is not None:  # counting exactly is slow: once a conversation
            counted = [self.last.tokens_before, self.last.tokens_after, self.last.tokens_repaired]
            self._report.update(json.dumps(counted).encode())
        return f"{self._sent.hexdigest()[:24]} {self._report.hexdigest()[:12]}"


def sessions_in(path: Path, share: int) -> Iterator[tuple[str, str]]:
    """The sessions of one file of the corpus: a name and a line of JSON each."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for at, line in enumerate(lines):
            name = f"{path.name.split('.')[0]}#{at}"
            if int(hashlib.sha256(name.encode()).hexdigest(), 16) % share == 0:
                yield name, line


def hash_session(task: tuple[str, str]) -> list[Line]:
    """One session under each preset."""
    name, line = task
    found: list[Line] = []
    session = json.loads(line)
    histories = read(session).histories if session["format"] in READERS else []
    for at, history in enumerate(histories):
        for preset in PRESETS:
            hashes = Hashes(Policy.preset(preset))
            for body in history.bodies():
                hashes.add(body)
            found.append((f"{name}.{at} {preset}", str(hashes)))
    return found


def hash_generated(task: tuple[str, list[Any]]) -> list[Line]:
    """One generated conversation under each preset, and eagerly at low prices."""
    name, requests = task
    eager = Policy.preset("lean").replace(
        cap_chars=200,
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        miss_penalty=0.0,
        cache_read_price=0.1,
        cache_write_price=0.2,
    )
    found: list[Line] = []
    for preset, policy in {**{one: Policy.preset(one) for one in PRESETS}, "eager": eager}.items():
        hashes = Hashes(policy)
        for request in requests:
            hashes.add(request)
        found.append((f"{name} {preset}", str(hashes)))
    return found


def generate() -> dict[str, list[Any]]:
    """Histories in every format, whole and broken: the requests of one conversation each.

    They are recorded with the hashes, for Hypothesis draws from the constants of the code.
    """
    found: dict[str, list[Any]] = {}
    quiet = settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    for format in FORMATS:
        _draw(format, quiet, found)
    return found


def _draw(format: str, quiet: settings, found: dict[str, list[Any]]) -> None:
    """Add the histories of one format."""

    @seed(20261118)
    @quiet
    @given(growing(format), broken(format))
    def draw(requests: list[Any], damaged: Any) -> None:
        found[f"generated {format} whole {len(found)}"] = requests
        found[f"generated {format} broken {len(found)}"] = [damaged]

    draw()


def all_hashes(
    corpus: Path, share: int, only: str, examples: dict[str, list[Any]]
) -> dict[str, str]:
    """Every line, with progress on standard error."""
    found: dict[str, str] = {}
    started = time.monotonic()
    files = sorted(corpus.glob("*.jsonl.gz"))
    with Pool(2) as pool:
        if not only:
            for lines in pool.imap_unordered(hash_generated, examples.items(), 20):
                found.update(lines)
        for at, path in enumerate(files):
            if only not in path.name:
                continue
            for lines in pool.imap_unordered(hash_session, sessions_in(path, share)):
                found.update(lines)
            print(
                f"{at + 1}/{len(files)} {path.name}: {len(found)} lines, "
                f"{time.monotonic() - started:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    return found


def main() -> None:
    """Record the hashes, or compare with those that were recorded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--share", type=int, default=1)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    inputs = asked.file.with_suffix(".examples.json")
    if asked.what == "record":
        inputs.write_text(json.dumps(generate()), "utf-8")
    examples = json.loads(inputs.read_text("utf-8"))
    found = all_hashes(asked.corpus, asked.share, asked.only, examples)
    if asked.what == "record":
        asked.file.write_text("".join(f"{k}: {v}\n" for k, v in sorted(found.items())), "utf-8")
        return
    known = dict(line.split(": ", 1) for line in asked.file.read_text("utf-8").splitlines())
    sent = [k for k, v in found.items() if k in known and known[k].split()[0] != v.split()[0]]
    told = [k for k, v in found.items() if k in known and known[k].split()[1] != v.split()[1]]
    new = [k for k in found if k not in known]
    print(
        f"{len(found)} compared: {len(sent)} projections differ, {len(told)} reports differ, "
        f"{len(new)} were not recorded"
    )
    print("\n".join([*sent[:20], *(f"report: {k}" for k in told[:20]), *new[:5]]))
    sys.exit(bool(sent or told))


if __name__ == "__main__":
    main()
