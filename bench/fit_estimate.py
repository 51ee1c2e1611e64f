"""Fit the token estimate to o200k and to reported usage, and say how good it is.

    python -m bench.fit_estimate [CORPUS] [--families]

CORPUS (default: ../shared/corpus beside the repository) holds one .jsonl.gz for each agent and
repository. OpenAI's weights are fitted to o200k on some repositories and judged on the others. With
--families those of the other families are fitted to the growth of prompts that providers reported,
and judged on owners that they were not fitted to; this needs the dependency group `fit`. Nothing is
written: the weights printed are copied by hand into src/respool/tokens.py.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from respool import tokens
from respool.providers.registry import PROVIDERS
from respool.replay.reconciliation import drops_reasoning
from respool.sessions.readers import READERS, read_file
from respool.sessions.session import RecordedRequest, RecordedSession
from respool.shapes.content_kind import classify
from respool.shapes.excerpt import is_numbered
from respool.tokens import TokenizerFamily
from respool.transcript import Part

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

Record = dict[str, Any]

REPOSITORY = Path(__file__).resolve().parent.parent
CORPUS = REPOSITORY.parent / "shared" / "corpus"
TESTED_ON = frozenset(
    {"entireio/git-sync", "PackmindHub/context-evaluator", "gruckion/mini-swe-agent"}
)
LONG = 50  # tokens; a shorter part matters little, and one token more is many per cent of it
MEMBERS = tuple(members for name, members, _ in tokens.CLASSES if name)
FITTED = 12  # the first classes: recorded sessions hold enough of them; SAMPLES give the others

# Our own sentences: the recorded sessions are in English.
SAMPLES = {
    "TWO_BYTES": (
        "Нить ведёт обратно к выходу, и каждое слово, которое мы отложили, можно вернуть.",
        "Der Faden führt zurück, und für jedes gekürzte Stück gibt es später einen Schlüssel.",
        "الخيط يقود إلى المخرج وكل كلمة وضعناها جانبا يمكن أن تعود كما كانت.",
    ),
    "WIDE": (
        "线团会带你走出迷宫。每一个被放在一边的词都可以完整地找回来。",
        "糸は迷路の出口まで導いてくれる。脇に置いた言葉は、すべてそのまま取り戻せる。",
        "실은 미로의 출구까지 이끌어 주고, 치워 둔 모든 말은 그대로 되찾을 수 있다.",
        "धागा हमें बाहर तक ले जाता है और हर शब्द वापस मिल सकता है।",
    ),
    "FOUR_BYTES": ("🧵 🧶 🚪 ✅ 🚀 🔥 📦 🐛", "👍🎉😀🙏💡🔧"),
}


class Sample(NamedTuple):
    """Counts of one part, without its text."""

    file: str
    repository: str
    exact: int
    features: tuple[int, ...]


def main() -> int:
    """Read, fit, judge, print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("corpus", nargs="?", type=Path, default=CORPUS)
    arguments.add_argument(
        "--families", action="store_true", help="the other families, by reported usage"
    )
    given = arguments.parse_args()
    files = sorted(given.corpus.glob("*.jsonl.gz"))
    if not files:
        print(f"no recorded sessions (*.jsonl.gz) in {given.corpus}", file=sys.stderr)
        return 1
    if given.families:
        print_families(files)
        return 0
    samples, seconds = measure(files)
    fitted = fit([one for one in samples if one.repository not in TESTED_ON])
    print_weights(fitted)
    print_errors(samples, fitted)
    print_speed(seconds)
    return 0


# --- reading -----------------------------------------------------------------------------------

NESTED = frozenset(
    {"action", "content", "data", "function", "functionResponse", "message", "output", "parts"}
    | {"payload", "reasoning", "response", "result", "state", "summary", "text", "thinking"}
    | {"thoughts", "toolCalls", "tool_calls"}
)
ARGUMENTS = frozenset({"input", "arguments", "args"})
WRAPPED = {  # formats whose records wrap messages: the field, and the records that have one
    "claude-code": ("message", ("user", "assistant")),
    "codex": ("payload", ("response_item",)),
}
MEDIA = frozenset({"image", "base64", "input_image"})


def sessions(file: Path) -> Iterator[Record]:
    """The sessions of one file."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def parts(session: Record) -> set[str]:
    """Every distinct text of a session: said, thought, called with, returned."""
    key, kinds = WRAPPED.get(session["format"], ("", ()))
    found: set[str] = set()
    for record in session["messages"]:
        if not key:
            collect(record, found)
        elif record.get("type") in kinds:
            collect(record.get(key), found)
    return found


def collect(value: Any, found: set[str]) -> None:
    """Add the texts inside a record to those found."""
    if isinstance(value, str):
        found.add(value)
    elif isinstance(value, list):
        for item in cast(list[Any], value):
            collect(item, found)
    elif as_record(value).get("type") not in MEDIA:
        for key, item in as_record(value).items():
            if key in ARGUMENTS and isinstance(item, dict):
                found.add(json.dumps(item, ensure_ascii=False))
            elif key in NESTED or key in ARGUMENTS:
                collect(item, found)


def as_record(value: Any) -> Record:
    """The value if it is an object, else an empty one."""
    return cast(Record, value) if isinstance(value, dict) else {}


def features(text: str) -> tuple[int, ...]:
    """Number of characters of each class in a text."""
    data = text.encode("utf-8", "surrogatepass")
    return tuple(len(data) - len(data.translate(None, members)) for members in MEMBERS)


def measure(files: list[Path]) -> tuple[list[Sample], dict[str, float]]:
    """Every part's exact count and features; the seconds both ways of counting took."""
    exact = tokens.ExactCounter()
    exact.count("load the vocabulary")
    samples: list[Sample] = []
    seconds = {"exact": 0.0, "estimate": 0.0}
    for file in files:
        for session in sessions(file):
            texts = [text for text in parts(session) if text]
            started = time.perf_counter()
            counts = [exact.count(text) for text in texts]
            between = time.perf_counter()
            for text in texts:
                tokens.estimate(text)
            seconds["exact"] += between - started
            seconds["estimate"] += time.perf_counter() - between
            for text, count in zip(texts, counts, strict=True):
                samples.append(Sample(file.name, session["source"], count, features(text)))
    return samples, seconds


# --- fitting -----------------------------------------------------------------------------------


def fit(samples: list[Sample]) -> list[float]:
    """Tokens for each character of each class: non-negative, least squares of error / tokens^¾."""
    gram = [[0.0] * FITTED for _ in range(FITTED)]
    target = [0.0] * FITTED
    for sample in samples:
        for row in range(FITTED):
            scaled = sample.features[row] / sample.exact**1.5
            if not scaled:
                continue
            target[row] += scaled * sample.exact
            for column in range(FITTED):
                gram[row][column] += scaled * sample.features[column]
    fitted = descend(gram, target)
    return [*fitted, *from_own_sentences(fitted)]


def descend(gram: list[list[float]], target: list[float]) -> list[float]:
    """Coordinate descent on the normal equations, clipped at zero."""
    weights = [0.0] * len(target)
    for _ in range(5000):
        for at, row in enumerate(gram):
            if row[at]:
                gap = target[at] - sum(a * b for a, b in zip(row, weights, strict=True))
                weights[at] = max(0.0, weights[at] + gap / row[at])
    return weights


def from_own_sentences(fitted: list[float]) -> list[float]:
    """Tokens per character of the rare classes, from our own sentences."""
    exact = tokens.ExactCounter()
    rare: list[float] = []
    for at, sentences in enumerate(SAMPLES.values(), FITTED):
        text = "\n".join(sentences)
        counts = features(text)
        known = sum(a * b for a, b in zip(fitted, counts, strict=False))
        rare.append(max(0.0, (exact.count(text) - known) / counts[at]))
    return rare


# --- judging -----------------------------------------------------------------------------------


def print_weights(fitted: list[float]) -> None:
    """The weights fitted now beside those that ship."""
    print("hundredths of a token   fitted   shipped")
    for (name, _, shipped), weight in zip(tokens.CLASSES, fitted, strict=False):
        print(f"  {name:20} {100 * weight:8.1f} {shipped[0]:8}")


def print_errors(samples: list[Sample], fitted: list[float]) -> None:
    """Errors of the shipped weights, of those fitted now, and of characters / 4."""
    shipped = [each[0] / 100 for name, _, each in tokens.CLASSES if name]
    seen = [one for one in samples if one.repository not in TESTED_ON]
    unseen = [one for one in samples if one.repository in TESTED_ON]
    print(f"\n{'absolute error, %':46} parts   tokens median   p90 | {LONG}+: median   p90  bias")
    for title, weights in (("shipped", shipped), ("fitted now", fitted)):
        print_row(f"{title}, repositories fitted on", seen, weights)
        print_row(f"{title}, other repositories", unseen, weights)
    print_row("characters / 4, other repositories", unseen, [0.25] * len(MEMBERS))
    print_row("shipped, all", samples, shipped)
    files: dict[str, list[Sample]] = defaultdict(list)
    for one in samples:
        files[one.file].append(one)
    for name, ones in files.items():
        print_row(f"  {name.removesuffix('.jsonl.gz')}", ones, shipped)


def print_row(title: str, samples: list[Sample], weights: list[float]) -> None:
    """One line of the table."""
    exact = [one.exact for one in samples]
    guess = [predicted(one, weights) for one in samples]
    off = [100 * abs(a - b) / b for a, b in zip(guess, exact, strict=True)]
    long = [error for error, count in zip(off, exact, strict=True) if count >= LONG] or [0.0]
    bias = 100 * (sum(guess) / sum(exact) - 1)
    print(
        f"{title:46} {len(samples):5} {sum(exact):8} {median(off):6.1f} {tenth(off):5.1f}"
        f" | {median(long):11.1f} {tenth(long):5.1f} {bias:+5.1f}"
    )


def predicted(sample: Sample, weights: list[float]) -> int:
    """The estimate as tokens.estimate rounds it."""
    return max(1, int(sum(a * b for a, b in zip(weights, sample.features, strict=True)) + 0.5))


def tenth(errors: list[float]) -> float:
    """The error that a tenth of the parts exceed."""
    return sorted(errors)[len(errors) * 9 // 10]


def print_speed(seconds: dict[str, float]) -> None:
    """Print the estimate's speed relative to o200k, over every part."""
    ratio = seconds["exact"] / seconds["estimate"]
    print(
        f"\nexact {seconds['exact']:.2f} s, estimate {seconds['estimate']:.2f} s: {ratio:.1f} times"
    )


# --- families ----------------------------------------------------------------------------------

FAMILIES: dict[TokenizerFamily, tuple[float, float]] = {
    # Factor to OpenAI's weights, which the fit starts from, and how strongly it keeps to them:
    # more where fewer owners and alphabets are recorded.
    "claude": (1.5, 1e-5),
    "claude-to-4.6": (1.15, 1e-5),
    "gemini": (1.05, 1e-3),
    "other": (1.0, 1e-3),
}
FORMER = {"claude": 1.65, "claude-to-4.6": 1.25, "gemini": 1.25, "other": 1.1}  # one factor each
FOLDS = 6
FRAMED = (25.0, 50.0, 30.0)  # tokens around a result, a call and a user's text, to start from
MAX_FRAMED = (120.0, 150.0, 200.0)
JUDGED = 300  # tokens; a shorter growth is mostly framing
_TRIPLE = re.compile(rb"[0-9]{3}")
DIGIT_AT = next(at for at, (name, _, _) in enumerate(tokens.CLASSES) if name == "DIGIT")
KINDS = {"hits": "search hits", "page": "prose", "test": "test run", "edit": "edited file"}


class Growth(NamedTuple):
    """Growth of one prompt over the previous one: tokens reported, and counts of its text."""

    repository: str
    family: TokenizerFamily
    tokens: int  # reported, without an answer of known length
    chars: int
    counts: tuple[int, ...]  # of characters by class; of threes of digits; of pieces with framing
    kind: str  # of its result; empty: there is none, or several

    @property
    def owner(self) -> str:
        """The owner of the repository."""
        return self.repository.partition("/")[0]


def print_families(files: list[Path]) -> None:
    """Weights of each family, and their errors on other owners by kind of text."""
    found: dict[str, list[Growth]] = defaultdict(list)
    for file in files:
        repository = file.name.partition("__")[2].removesuffix(".jsonl.gz").replace("+", "/")
        for session in read_file(file, READERS):
            for growth in growths(session, repository):
                found[growth.family].append(growth)
    for family, (factor, hold) in FAMILIES.items():
        fit = FamilyFit(found[family], factor, hold)
        print_fit(family, fit)
        print_kinds(family, fit)


def growths(session: object, repository: str) -> Iterator[Growth]:
    """The growths of a session's prompts, of which the record has all text."""
    if not isinstance(session, RecordedSession):
        return
    codec = PROVIDERS[session.format].codec
    for sent, after in zip(session.requests, session.requests[1:], strict=False):
        family = tokens.tokenizer_family(session.format, sent.model)
        if sent.model != after.model or not sent.model or family == "openai":
            continue
        said: list[Part] = []
        came: list[Part] = []
        for message in session.messages[sent.cut : after.cut]:
            (said if codec.is_model_made(message) else came).extend(codec.decode(0, message))
        growth = growth_of(sent, after, said, came)
        if growth is not None:
            yield Growth(repository, family, *growth)


def growth_of(
    sent: RecordedRequest, after: RecordedRequest, said: list[Part], came: list[Part]
) -> tuple[int, int, tuple[int, ...], str] | None:
    """Tokens, characters, counts and kind of a growth; None if the record lacks some of it."""
    if sent.usage is None or after.usage is None:
        return None
    has_user_text = any(part.kind == "text" for part in came)
    if any(part.kind in ("media", "opaque") for part in (*said, *came)):
        return None
    if has_user_text and drops_reasoning(sent.model):
        return None
    calls = sum(part.kind == "call" for part in said)
    answer = sum(tokens.part_tokens(part, tokens.EstimateCounter()) for part in said)
    growth = after.usage.prompt - sent.usage.prompt
    parts = came
    if sent.usage.output >= max(answer + 4 * calls, 1):  # all of the answer was counted
        growth, calls = growth - sent.usage.output, 0
    elif any(part.kind == "reasoning" for part in said):
        return None
    else:
        parts = [*came, *said]
    texts = [part.text for part in parts if part.text]
    texts += [part.name for part in parts if part.kind == "call" and part.name]
    chars = sum(map(len, texts))
    if chars < 150 or not 100 <= growth < 80_000 or not 0.05 < growth / chars < 3:
        return None
    results = [part.text or "" for part in came if part.kind == "result"]
    pieces = (len(results), calls, sum(part.kind == "text" for part in came))
    return growth, chars, (*text_counts(texts), *pieces), kind_of(results, chars)


def text_counts(texts: list[str]) -> tuple[int, ...]:
    """Characters of each class in some texts, and threes of digits."""
    by_class = (sum(column) for column in zip(*map(features, texts), strict=True))
    threes = sum(len(_TRIPLE.findall(text.encode("utf-8", "surrogatepass"))) for text in texts)
    return (*by_class, threes)


def kind_of(results: list[str], chars: int) -> str:
    """The kind of the result that most of a growth's text is; empty if none is."""
    largest = max(results, key=len, default="")
    if len(largest) <= 0.8 * chars:
        return ""
    if is_numbered(largest):
        return "line-numbered file"
    kind = classify(largest, None)
    return KINDS.get(kind, kind)


class FamilyFit:
    """Weights of one family, and predictions for each owner from the others."""

    def __init__(self, found: list[Growth], factor: float, hold: float) -> None:
        import numpy as np

        self.growths = found
        openai = np.array([each[0] / 100 for name, _, each in tokens.CLASSES if name])
        highest = np.array(
            [1.0 if members[0] < 128 else 2.5 for name, members, _ in tokens.CLASSES if name]
        )
        self._start = np.concatenate([np.minimum(openai * factor, highest), [0.0], FRAMED])
        self._highest = np.concatenate([highest, [1.0], MAX_FRAMED])
        spread = np.concatenate([np.maximum(self._start[: len(openai)], 0.05), [0.5], FRAMED])
        self._penalty = hold / spread**2
        self.counts = np.array([one.counts for one in found], float)
        self.counts[:, DIGIT_AT] -= self.counts[:, len(openai)]  # one of three is free, or cheaper
        self.tokens = np.array([one.tokens for one in found], float)
        sizes = Counter(one.repository for one in found)
        self.share = np.array([1 / max(20, sizes[one.repository]) for one in found])
        self.predicted = self._held_out()
        self.weights = self._fitted(np.ones(len(found), bool))
        one_factor = np.concatenate([openai, openai[DIGIT_AT : DIGIT_AT + 1], [0] * 3])
        self.former = self.counts @ one_factor

    def _held_out(self) -> Vector:
        """Predictions for each owner, from the others."""
        import numpy as np

        owners = [name for name, _ in Counter(one.owner for one in self.growths).most_common()]
        fold = {name: at % FOLDS for at, name in enumerate(owners)}
        at = np.array([fold[one.owner] for one in self.growths])
        predicted = np.zeros(len(self.growths))
        for held in range(min(FOLDS, len(owners))):
            predicted[at == held] = self.counts[at == held] @ self._fitted(at != held)
        return predicted

    def _fitted(self, chosen: NDArray[np.bool_]) -> Vector:
        """Weights with the least sum of absolute errors / √tokens, between nothing and a token."""
        import numpy as np

        counts, real, share = self.counts[chosen], self.tokens[chosen], self.share[chosen]
        weights, importance = self._start.copy(), share / real
        for _ in range(12):
            gram = (counts * importance[:, None]).T @ counts
            target = (counts * importance[:, None]).T @ real
            penalty = self._penalty * (importance * real * real).sum()
            gram[np.diag_indices(len(gram))] += penalty
            target += penalty * self._start
            for _ in range(200):
                for at, row in enumerate(gram):
                    if row[at]:
                        better = weights[at] + (target[at] - row @ weights) / row[at]
                        weights[at] = min(self._highest[at], max(0.0, better))
            errors = np.abs(real - counts @ weights)
            importance = share / np.sqrt(real) / np.maximum(errors, 0.02 * real)
        return weights


def print_fit(family: TokenizerFamily, fit: FamilyFit) -> None:
    """The weights fitted now beside those that ship."""
    at = tokens.FAMILIES.index(family)
    owners, repositories = ({getattr(g, of) for g in fit.growths} for of in ("owner", "repository"))
    print(
        f"\n{family}: {len(fit.growths):,} growths, {len(repositories)} repositories, "
        f"{len(owners)} owners"
    )
    names = [name for name, _, _ in tokens.CLASSES if name]
    shipped: list[int | str] = [each[at] for name, _, each in tokens.CLASSES if name]
    for name, weight, ships in zip(
        [*names, "third digit", "a result", "a call", "a user's text"],
        fit.weights,
        [*shipped, 0, "", "", ""],
        strict=True,
    ):
        print(f"  {name:14} {100 * weight:8.0f} {ships:>8}")


def print_kinds(family: TokenizerFamily, fit: FamilyFit) -> None:
    """Errors by kind of text, with one factor for a family and with weights of its own."""
    import numpy as np

    framing = np.array(fit.counts[:, -3:] @ fit.weights[-3:])
    former = fit.former * FORMER[family] + framing
    print(f"  {'error in %':20} {'growths':>8}   one factor: median   p90  bias |   now")
    kinds = sorted({one.kind for one in fit.growths if one.kind} - {"other"})
    for kind in ("", *kinds, "other"):
        chosen = np.array([
            kind in ("", one.kind) and bool(one.kind) and one.tokens >= JUDGED
            for one in fit.growths
        ])  # fmt: skip
        if chosen.sum() >= 10:
            sides = " | ".join(
                told(values[chosen], fit.tokens[chosen]) for values in (former, fit.predicted)
            )
            print(f"  {kind or 'all results':20} {chosen.sum():8}   {sides}")


def told(predicted: Vector, real: Vector) -> str:
    """Median and ninth tenth of the absolute errors, and the median error."""
    import numpy as np

    off = 100 * (predicted / real - 1)
    median_error, high = np.quantile(np.abs(off), [0.5, 0.9])
    return f"{median_error:6.1f} {high:6.1f} {np.median(off):+6.1f}"


if __name__ == "__main__":
    sys.exit(main())
