"""Token counters: o200k, or an estimate for tokenizers that are not public."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib import import_module
from typing import Final, Literal, Protocol, cast
from zlib import adler32

from msgspec import Struct

from .regex import lazy_compile
from .transcript import Part
from .wire.base import wire_format

CounterChoice = Literal["auto", "o200k", "estimate"]
TokenizerFamily = Literal["openai", "claude", "claude-to-4.6", "gemini", "other"]


class TokenCounter(Protocol):
    """A counter of a text's tokens; a report and its edits share one."""

    @property
    def name(self) -> str:
        """ "o200k" or "estimate"."""
        ...

    def count(self, text: str) -> int:
        """The tokens of the text; 0 only for the empty text."""
        ...


class ExactCounter(Struct, frozen=True):
    """o200k, the tokenizer of OpenAI's models; the vocabulary loads at the first count."""

    name: str = "o200k"

    def count(self, text: str) -> int:
        """The o200k tokens of a text; special tokens count as ordinary text."""
        try:
            # The counter caches the UTF-8 form on the text object: give it a copy.
            return load_o200k()(text if text.isascii() else _copy_text(text))
        except UnicodeEncodeError:
            return load_o200k()(replace_surrogates(text))


def _copy_text(text: str) -> str:
    """A copy of the text."""
    return f"{text} "[:-1]


class EstimateCounter(Struct, frozen=True):
    """The estimate for a family of models, scaled if its real counts are known."""

    family: TokenizerFamily = "openai"
    permille: int = 1000
    name: str = "estimate"

    def count(self, text: str) -> int:
        """The estimated tokens of the text; never falls when text is appended."""
        return _tokens(_weight(text, self.family) * self.permille // 1000) if text else 0


def estimate(text: str) -> int:
    """Estimate the o200k tokens of a text, many times faster than counting them.

    >>> estimate("")
    0
    >>> estimate("Where does the thread lead?")
    6
    """
    return _tokens(_weight(text, "openai")) if text else 0


def fast_counter(counter: TokenCounter) -> TokenCounter:
    """A fast counter for approximate sizes: the counter itself if it is fast."""
    return EstimateCounter() if isinstance(counter, ExactCounter) else counter


def counter_for(format: str, model: str | None, choice: CounterChoice = "auto") -> TokenCounter:
    """The counter for a request, by its wire format and model.

    >>> counter_for("openai-chat", "gpt-5").name
    'o200k'
    >>> counter_for("openai-chat", "qwen3-coder").name
    'estimate'
    """
    family = tokenizer_family(format, model)
    if choice == "o200k" or (choice == "auto" and family == "openai"):
        return ExactCounter()
    return EstimateCounter(family)


def part_tokens(part: Part, counter: TokenCounter) -> int:
    """Tokens of one part: its text, its name, and its media or encrypted content."""
    text = counter.count(part.text) if part.text else 0
    return text + unworded_tokens(part, counter)


def unworded_tokens(part: Part, counter: TokenCounter) -> int:
    """Tokens of one part beside its text."""
    if part.kind == "call" and part.name:
        return part.weight + _name_tokens(part.name, counter)
    return part.weight


@lru_cache(1024)
def _name_tokens(name: str, counter: TokenCounter) -> int:
    """Tokens of a tool's name."""
    return counter.count(name)


# --- counts by line ----------------------------------------------------------------------------

MIN_LINED_CHARS: Final = 800  # shorter texts are counted as a whole
_MAX_LINES: Final = 500_000  # whose tokens are kept, four bytes each
_MAX_HEAD_CHARS: Final = 600  # searched for the place after which two texts are alike
_LINED_TEXT_BYTES: Final = 250  # of a text, without its lines
# A token ends with a line break unless a blank, a slash or another line break follows: o200k joins
# line breaks with those, and never with a word, a sign, or a line's indentation before one.
_TOKEN_END: Final = lazy_compile(r"\n(?=[^\s/]|[ \t]+\S)")


class LineTokens:
    """Exact tokens of texts by line, for texts that have many lines of these.

    It keeps numbers and no text.
    """

    def __init__(self) -> None:
        self._known: dict[int, array[int]] = {}  # by hash of the text
        self._lines = 0

    @property
    def size_bytes(self) -> int:
        """Approximate bytes in memory."""
        return 4 * self._lines + _LINED_TEXT_BYTES * len(self._known)

    def count(self, text: str, counter: TokenCounter) -> int:
        """The tokens of a text; those of its lines are kept."""
        if len(text) < MIN_LINED_CHARS or not isinstance(counter, ExactCounter):
            return counter.count(text)
        known = self._known.get(hash(text))
        if known is None:
            known = array("I", _count_lines(_TOKEN_END.split(text)))
            self._lines += len(known)
            if self._lines > _MAX_LINES:
                self._known.clear()
                self._lines = len(known)
            self._known[hash(text)] = known
        return sum(known)

    def count_cut(self, text: str, original: str, counter: TokenCounter) -> int:
        """The tokens of a text that has many lines of another one."""
        known = self._known.get(hash(original)) if text else None
        if known is None or not isinstance(counter, ExactCounter):
            return counter.count(text)
        # The last line has no line break: it is another text in the middle.
        tokens = dict(zip(_TOKEN_END.split(original)[:-1], known, strict=False))
        *lines, last = _TOKEN_END.split(text)
        found = list(map(tokens.get, lines))
        total = counter.count(last)
        for line, count in zip(lines, found, strict=True):
            total += counter.count(f"{line}\n") if count is None else count
        return total


def differing_heads(one: str, other: str) -> tuple[str, str] | None:
    """The beginnings of two texts that end alike, up to a place where tokens end in both.

    None: there is no such place near the beginning.

    >>> differing_heads("id: 7\\nso\\nit is", "so\\nit is")
    ('id: 7\\nso\\n', 'so\\n')
    """
    for found in _TOKEN_END.finditer(other, 0, _MAX_HEAD_CHARS):
        end = len(one) - len(other) + found.end()
        if end > 0 and one[end - 1] == "\n" and one.endswith(other[found.end() :]):
            return one[:end], other[: found.end()]
    return None


def _count_lines(lines: Sequence[str]) -> list[int]:
    """The tokens of each line; all but the last end with a line break."""
    count = load_o200k()
    try:
        found = [count(f"{line}\n") for line in lines[:-1]]
    except UnicodeEncodeError:
        found = [ExactCounter().count(f"{line}\n") for line in lines[:-1]]
    return [*found, ExactCounter().count(lines[-1])]


# --- models ------------------------------------------------------------------------------------

# A model's name often follows a vendor or a region: "openrouter/qwen/…", "us.anthropic.…".
_NAME_START = r"(?:^|[/:@._-])(?:"
_CLAUDE_TO_46 = lazy_compile(
    r"claude-(?:v?[123](?!\d)|instant|[a-z]+-4(?:-[0-6](?!\d)|-\d{8}|-[a-z]|[@:]|$))"
)
OPENAI_MODELS = lazy_compile(_NAME_START + r"(?:chat)?gpt|o[1-9](?![0-9a-z])|codex|computer-use)")
OTHER_MODELS = lazy_compile(
    _NAME_START
    + "aya|baichuan|chatglm|cogito|command|codestral|dbrx|deepseek|devstral|doubao|ernie"
    "|exaone|falcon|glm|granite|grok|hermes|hunyuan|internlm|jamba|kimi|llama|longcat|magistral"
    "|mimo|minimax|ministral|mistral|mixtral|moonshot|nemotron|nova|olmo|palmyra|phi|pixtral|qwen"
    "|qwq|reka|seed|smollm|solar|sonar|starcoder|step|yi(?![a-z]))"
)


def tokenizer_family(format: str, model: str | None) -> TokenizerFamily:
    """The tokenizer of a request's model; the wire format's own if the name is not known."""
    name = (model or "").lower()
    if "claude" in name:
        return "claude-to-4.6" if _CLAUDE_TO_46.search(name.replace(".", "-")) else "claude"
    if "gemini" in name or "gemma" in name:
        return "gemini"
    if OTHER_MODELS.search(name):  # before OpenAI's: "deepseek-v3-gpt-distill" is no OpenAI model
        return "other"
    if OPENAI_MODELS.search(name):
        return "openai"
    return cast(TokenizerFamily, wire_format(format).tokenizer)


# --- the estimate ------------------------------------------------------------------------------

# Hundredths of a token for each character, by class and family; a character outside ASCII is
# weighed at the first byte of its UTF-8 form. OpenAI's are fitted to o200k, the others to the
# growth of prompts that providers reported (bench/fit_estimate.py; errors in bench/RESULTS.md).
# ASCII has at most 100: no text has more tokens than characters. No class but DIGIT has its weight.
FAMILIES: tuple[TokenizerFamily, ...] = ("openai", "claude", "claude-to-4.6", "gemini", "other")
CLASSES: tuple[tuple[str, bytes, tuple[int, int, int, int, int]], ...] = (
    ("LOWER", b"abcdefghijklmnopqrstuvwxyz", (19, 33, 21, 18, 17)),
    ("UPPER", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", (27, 98, 51, 28, 35)),
    ("DIGIT", b"0123456789", (75, 100, 100, 100, 96)),
    ("SPACE", b" ", (18, 12, 9, 18, 20)),
    ("NEWLINE", b"\n", (38, 78, 99, 45, 42)),
    ("TAB", b"\t", (38, 16, 43, 44, 41)),
    ("CONTROL", bytes({*range(32)} - {9, 10}) + b"\x7f", (38, 21, 44, 42, 38)),
    ("QUOTE", b"\"'`", (58, 37, 37, 53, 59)),
    ("BRACKET", b"()<>[]{}", (58, 88, 96, 63, 59)),
    ("JOINER", b"-./_", (58, 99, 99, 85, 64)),
    ("PUNCTUATION", b"!#$%&*+,:;=?@\\^|~", (58, 86, 31, 44, 51)),
    ("SYMBOL", b"\xe2", (95, 92, 89, 80, 94)),  # arrows, box drawing, bullets, typographic quotes
    ("TWO_BYTES", bytes(range(0xC0, 0xE0)), (32, 176, 44, 35, 32)),  # accents, Cyrillic, Arabic
    ("WIDE", b"\xe0\xe1" + bytes(range(0xE3, 0xF0)), (68, 107, 120, 71, 68)),  # Indic, kana, CJK
    ("FOUR_BYTES", bytes(range(0xF0, 0x100)), (196, 250, 156, 206, 197)),  # emoji
    ("", bytes(range(0x80, 0xC0)), (0, 0, 0, 0, 0)),  # continuation bytes: counted at the first
)
# Reported to estimated tokens of a session's results: nine in ten sessions lie between
# (bench/RESULTS.md; of "other" too few are recorded, so its range is wider).
ESTIMATE_RANGES: dict[TokenizerFamily, tuple[float, float]] = {
    "openai": (1.0, 1.0),
    "claude": (0.95, 1.25),
    "claude-to-4.6": (0.95, 1.35),
    "gemini": (0.9, 1.25),
    "other": (0.8, 1.25),
}
# The most that a provider's larger count of a prompt enlarges an estimate, in thousandths: half of
# Claude's sessions have 1.07 and more. What is beyond is hidden reasoning and framing.
MAX_SCALES: dict[TokenizerFamily, int] = {
    "openai": 1000,
    "claude": 1100,
    "claude-to-4.6": 1100,
    "gemini": 1100,
    "other": 1250,
}
# Tokenizers take up to three digits as one token: every third of a run is free.
TRIPLES: tuple[bool, ...] = (False, True, True, True, True)


class _Weights(Struct, frozen=True, gc=False):
    """The weight of each byte as a table for bytes.translate, and of digits in threes."""

    table: bytes
    triple: bytes = b""  # three digits as the table makes them; empty: none is free


def _weights(at: int) -> _Weights:
    """The weights of a family."""
    table = bytearray(256)
    for _, members, weights in CLASSES:
        for byte in members:
            table[byte] = weights[at]
    digit = table[ord("0")]
    return _Weights(bytes(table), bytes((digit,) * 3) if TRIPLES[at] else b"")


_WEIGHTS: dict[TokenizerFamily, _Weights] = {
    family: _weights(at) for at, family in enumerate(FAMILIES)
}

# The lower half of Adler-32 is the sum of the bytes modulo 65,521: the fastest sum that Python has.
# A block's own sum stays below: at most 100 for each byte, and 250 for a last emoji cut short.
_BLOCK = 650


def _weight(text: str, family: TokenizerFamily) -> int:
    """Hundredths of tokens: a sum over characters, so appending text can only add to it."""
    known = _WEIGHTS[family]
    weights = text.encode("utf-8", "surrogatepass").translate(known.table)
    triple = known.triple
    free = weights.count(triple) * triple[0] if triple else 0
    if len(weights) <= _BLOCK:
        return (adler32(weights, 0) & 0xFFFF) - free
    starts = range(0, len(weights), _BLOCK)
    return sum([adler32(weights[at : at + _BLOCK], 0) & 0xFFFF for at in starts]) - free


def _tokens(weight: int) -> int:
    """Whole tokens, at least one."""
    return max(1, (weight + 50) // 100)


# --- o200k -------------------------------------------------------------------------------------


@cache
def load_o200k() -> Callable[[str], int]:
    """The exact counter of the installed library; both include the vocabulary."""
    try:
        return load_rs_bpe()
    except ImportError:  # it has no wheel for this Python
        return load_bpe_openai()


def load_rs_bpe() -> Callable[[str], int]:
    """rs_bpe's counter."""
    library = import_module("rs_bpe.bpe")
    return cast(Callable[[str], int], library.openai.o200k_base().count)


def load_bpe_openai() -> Callable[[str], int]:
    """bpe_openai's counter."""
    # Its public face refuses 1,000,000 characters or 200,000 tokens at once, and cutting a text
    # would change the count where no border between tokens is certain: two machines would differ.
    # The binding beneath has no limit; the version is pinned, and a test holds the two equal.
    library = import_module("bpe_openai._bindings")
    return cast(Callable[[str], int], library.tokenizer_for_encoding("o200k_base").count)


def replace_surrogates(text: str) -> str:
    """The text with every lone surrogate as a replacement character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
