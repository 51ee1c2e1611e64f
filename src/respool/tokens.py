"""Token counters: o200k, or an estimate for tokenizers that are not public."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from importlib import import_module
from typing import Literal, Protocol, cast
from zlib import adler32

from msgspec import Struct

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
    """The estimate, scaled to a family of models."""

    permille: int = 1000  # tokens of that family for a thousand of o200k's
    name: str = "estimate"

    def count(self, text: str) -> int:
        """The estimated tokens of the text; never falls when text is appended."""
        return _tokens(_weight(text) * self.permille // 1000) if text else 0


def estimate(text: str) -> int:
    """Estimate the o200k tokens of a text, many times faster than counting them.

    >>> estimate("")
    0
    >>> estimate("Where does the thread lead?")
    6
    """
    return _tokens(_weight(text)) if text else 0


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
    return EstimateCounter(PERMILLE[family])


def part_tokens(part: Part, counter: TokenCounter) -> int:
    """Tokens of one part: its text, its name, and its media or encrypted content."""
    tokens = part.weight
    if part.text:
        tokens += counter.count(part.text)
    if part.kind == "call" and part.name:
        tokens += _name_tokens(part.name, counter)
    return tokens


@lru_cache(1024)
def _name_tokens(name: str, counter: TokenCounter) -> int:
    """Tokens of a tool's name."""
    return counter.count(name)


# --- models ------------------------------------------------------------------------------------

# Tokens for a thousand of o200k's, from what providers reported for tool results of 1,000 tokens
# and more in recorded sessions (bench/fit_estimate.py --families, 2026-11-15; median, p10 to p90):
# Claude up to 4.6 1.25 (n = 364, 1.08 to 1.44), later ones 1.67 (75, 1.54 to 1.79), Gemini 3 1.25
# (155, 1.15 to 1.33). "other" is a guess: most have vocabularies somewhat smaller than o200k's.
PERMILLE: dict[TokenizerFamily, int] = {
    "openai": 1000,
    "claude": 1650,
    "claude-to-4.6": 1250,
    "gemini": 1250,
    "other": 1100,
}


# A model's name often follows a vendor or a region: "openrouter/qwen/…", "us.anthropic.…".
_NAME_START = r"(?:^|[/:@._-])(?:"
_CLAUDE_TO_46 = re.compile(
    r"claude-(?:v?[123](?!\d)|instant|[a-z]+-4(?:-[0-6](?!\d)|-\d{8}|-[a-z]|[@:]|$))"
)
_OPENAI = re.compile(_NAME_START + r"(?:chat)?gpt|o[1-9](?![0-9a-z])|codex|computer-use)")
_OTHER = re.compile(
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
    if _OTHER.search(name):  # before OpenAI's: "deepseek-v3-gpt-distill" is no OpenAI model
        return "other"
    if _OPENAI.search(name):
        return "openai"
    return cast(TokenizerFamily, wire_format(format).tokenizer)


# --- the estimate ------------------------------------------------------------------------------

# Hundredths of a token for each character, by class; a character outside ASCII is weighed at the
# first byte of its UTF-8 form. Fitted to o200k by bench/fit_estimate.py on 2026-11-15.
# On repositories it was not fitted to (26,129 parts): median error 5.7 %, a tenth of the parts over
# 15.8 %, all together 1.0 % too low; characters / 4: 14.6 %, 28.3 %, 11.3 %. 19 times faster.
LOWER = 19
SPACE = 18
PUNCTUATION = 58
UPPER = 27
DIGIT = 75
CONTROL = 38
SYMBOL = 95
TWO_BYTES = 32
WIDE = 68
FOUR_BYTES = 196

# Every byte is in one class.
CLASSES: tuple[tuple[str, bytes, int], ...] = (
    ("LOWER", b"abcdefghijklmnopqrstuvwxyz", LOWER),
    ("SPACE", b" ", SPACE),
    ("PUNCTUATION", b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", PUNCTUATION),
    ("UPPER", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", UPPER),
    ("DIGIT", b"0123456789", DIGIT),
    ("CONTROL", bytes(range(32)) + b"\x7f", CONTROL),  # newlines, tabs and control characters
    ("SYMBOL", b"\xe2", SYMBOL),  # arrows, box drawing, bullets, typographic quotes
    ("TWO_BYTES", bytes(range(0xC0, 0xE0)), TWO_BYTES),  # accents, Cyrillic, Greek, Arabic
    ("WIDE", b"\xe0\xe1" + bytes(range(0xE3, 0xF0)), WIDE),  # Indic, Thai, kana, CJK, Hangul
    ("FOUR_BYTES", bytes(range(0xF0, 0x100)), FOUR_BYTES),  # emoji
    ("", bytes(range(0x80, 0xC0)), 0),  # continuation bytes: counted at the first byte
)


def _byte_weights() -> bytes:
    """The weight of each byte, as a table for bytes.translate."""
    table = bytearray(256)
    for _, members, weight in CLASSES:
        for byte in members:
            table[byte] = weight
    return bytes(table)


_WEIGHTS = _byte_weights()

# The lower half of Adler-32 is the sum of the bytes modulo 65,521: the fastest sum that Python has.
# A block's own sum stays below that: at most 75 for each byte, and 196 for a last emoji cut short.
_BLOCK = 800


def _weight(text: str) -> int:
    """Hundredths of tokens: a sum over characters, so appending text can only add to it."""
    weights = text.encode("utf-8", "surrogatepass").translate(_WEIGHTS)
    if len(weights) <= _BLOCK:
        return adler32(weights, 0) & 0xFFFF
    starts = range(0, len(weights), _BLOCK)
    return sum(adler32(weights[at : at + _BLOCK], 0) & 0xFFFF for at in starts)


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
