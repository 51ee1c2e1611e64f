"""Fit the token estimate to o200k on recorded sessions, and say how good it is.

    python bench/fit_estimate.py [CORPUS] [--families]

CORPUS (default: ../shared/corpus beside the repository) holds one .jsonl.gz for each agent and
repository. Weights are fitted on some repositories and judged on the others. Nothing is written:
the weights printed are copied by hand into src/respool/tokens.py.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, cast

from respool import tokens

Record = dict[str, Any]

REPOSITORY = Path(__file__).resolve().parent.parent
CORPUS = REPOSITORY.parent / "shared" / "corpus"
TESTED_ON = frozenset(
    {"entireio/git-sync", "PackmindHub/context-evaluator", "gruckion/mini-swe-agent"}
)
LONG = 50  # tokens; a shorter part matters little, and one token more is many per cent of it
MEMBERS = tuple(members for name, members, _ in tokens.CLASSES if name)
FITTED = 7  # the first classes: recorded sessions hold enough of them; SAMPLES give the others

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
    arguments.add_argument("--families", action="store_true", help="only the factors by family")
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
        print(f"  {name:20} {100 * weight:8.1f} {shipped:8}")


def print_errors(samples: list[Sample], fitted: list[float]) -> None:
    """Errors of the shipped weights, of those fitted now, and of characters / 4."""
    shipped = [each / 100 for name, _, each in tokens.CLASSES if name]
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


# --- factors by family -------------------------------------------------------------------------


class Growth(NamedTuple):
    """Growth of one prompt over the previous: the provider's count and o200k's."""

    model: str
    billed: int
    answered: int  # o200k tokens of the answer, without reasoning
    returned: int  # o200k tokens of the results


def print_families(files: list[Path]) -> None:
    """Tokens that providers counted for results, as a ratio to o200k, by model and family."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for file in files:
        reader = {"claude-code": claude_growth, "openai-chat": chat_growth}.get(
            file.name.partition("__")[0]
        )
        for session in sessions(file) if reader else ():
            for growth in reader(session) if reader else ():
                if growth.returned >= 1000 and growth.returned >= 4 * growth.answered:
                    family = tokens.tokenizer_family("", growth.model)
                    said = growth.answered * tokens.PERMILLE[family] / 1000
                    ratio = (growth.billed - said) / growth.returned
                    ratios[growth.model].append(ratio)
                    ratios[f"family {family}"].append(ratio)
    for name, found in sorted(ratios.items()):
        found.sort()
        low, high = found[len(found) // 10], found[len(found) * 9 // 10]
        print(
            f"{name:32} n {len(found):4}  median {median(found):.2f}  p10-p90 {low:.2f}-{high:.2f}"
        )


def claude_growth(session: Record) -> Iterator[Growth]:
    """From Claude Code's records: usage of consecutive answers, results between them."""
    answer, before = "", 0  # the id of the last answer, and its prompt's tokens
    said: list[str] = []
    back: list[str] = []
    hidden = True  # something between the two answers is not in the text: reasoning, images
    for record in session["messages"]:
        message = as_record(record.get("message"))
        if record.get("isSidechain") or not message:
            continue
        usage = as_record(message.get("usage"))
        if usage and message.get("id") != answer:
            if back and not hidden:
                yield Growth(message["model"], prompt(usage) - before, o200k(said), o200k(back))
            answer, before = message.get("id") or "", prompt(usage)
            said, back, hidden = [], [], False
        found: set[str] = set()
        collect(message.get("content"), found)
        (said if usage else back).extend(found)
        hidden |= bool(record.get("isCompactSummary")) or has_hidden(message.get("content"))


def has_hidden(content: Any) -> bool:
    """Check for reasoning or images, which have no text."""
    if not isinstance(content, list):
        return False
    blocks = [as_record(block) for block in cast(list[Any], content)]
    kinds = {block.get("type") for block in blocks}
    return bool(kinds & {"thinking", "redacted_thinking", "image"}) or any(
        has_hidden(block.get("content")) for block in blocks
    )


def chat_growth(session: Record) -> Iterator[Growth]:
    """From chat messages that carry their response: prompts of consecutive answers."""
    answer, before = -1, 0  # the last answer's position, and its prompt's tokens
    messages = session["messages"]
    for at, message in enumerate(messages):
        response = as_record(as_record(message.get("extra")).get("response"))
        usage = as_record(response.get("usage"))
        if message.get("role") != "assistant" or not usage:
            continue
        tokens_now = int(usage["prompt_tokens"])
        if answer >= 0 and at - answer == 2:
            said, back = set[str](), set[str]()
            collect(messages[answer].get("content"), said)
            collect(messages[at - 1].get("content"), back)
            model = str(response.get("model"))
            yield Growth(model, tokens_now - before, o200k([*said]), o200k([*back]))
        answer, before = at, tokens_now


def prompt(usage: Record) -> int:
    """All tokens of a prompt, read from the cache or not."""
    keys = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(usage.get(key) or 0 for key in keys)


def o200k(texts: list[str]) -> int:
    """The exact count of several texts."""
    return sum(tokens.ExactCounter().count(text) for text in texts)


if __name__ == "__main__":
    sys.exit(main())
