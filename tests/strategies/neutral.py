"""One conversation of an agent, told without any wire format; each format's renderer spells it.

What the formats spell in several ways is decided by the `form` numbers drawn here, so that a
renderer is a pure function and a longer conversation is rendered as an extension of a shorter one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

T = TypeVar("T")
JSON = Any
Args = dict[str, JSON]
Thinking = Literal["off", "adaptive", "manual"]

# A kind of block, item or part that no SDK knows yet starts like this; the judges skip it.
FUTURE = "future_"

# One transparent pixel, and the smallest thing that calls itself a PDF.
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)
PDF = "JVBERi0xLjEKJSVFT0YK"


def pick(form: int, *choices: T) -> T:
    """One of the choices; form 0, where examples shrink to, is the first."""
    return choices[form % len(choices)]


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a tool: texts (none: it is empty), perhaps media, perhaps a failure."""

    texts: tuple[str, ...]
    image: bool
    document: bool
    error: bool
    form: int

    @property
    def text(self) -> str:
        """All of its text as one string."""
        return "\n".join(self.texts)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a client's tool, and its result."""

    name: str
    args: Args
    result: Result
    form: int


@dataclass(frozen=True, slots=True)
class Server:
    """A tool that the provider ran by itself, inside the model's own output."""

    query: str
    found: tuple[str, ...]
    form: int


@dataclass(frozen=True, slots=True)
class Step:
    """One response of the model, and the results of its tools."""

    note: str | None  # a system message in front of it, where the wire has them
    compaction: str | None  # the provider's own summary of what came before
    reasoning: str | None
    text: str | None
    server: Server | None
    calls: tuple[Call, ...]
    future: bool  # holds something of a kind unknown so far
    form: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A user message."""

    texts: tuple[str, ...]
    image: bool
    document: bool
    future: bool
    form: int


@dataclass(frozen=True, slots=True)
class Turn:
    """A user message and its steps; only the last step may be without calls."""

    ask: Ask
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A whole conversation up to the moment before the model speaks."""

    system: tuple[str, ...]
    turns: tuple[Turn, ...]
    note: str | None  # a system message at its end
    thinking: Thinking
    tools: bool  # whether tools are declared; always when any was called
    compacted: str | None  # a summary that stands in place of what was there before
    ids: bool  # whether the wire's optional ids are sent
    signed: bool  # whether reasoning comes with signatures where they are optional
    breakpoint_style: int  # which habit of placing cache marks
    form: int
    alone: bool = False  # sent once, and not part of a growing row of requests
    pending: bool = False  # ends right behind the last step's calls


SHORT = (
    "Look at the failing test and mend it.",
    "What changed since yesterday?",
    "ok",
    "Now the same for the other module, please.",
    "Größe prüfen — and the naïve path too ✓",
    "line one\nline two",
    "  indented, with a tab\tinside",
    '{"looks": "like json"}',
)
PATHS = ("src/loom.py", "src/spool.py", "tests/test_loom.py", "docs/thread.md")
CALLS: tuple[tuple[str, Args], ...] = (
    ("Read", {"file_path": "src/loom.py"}),
    ("Read", {"file_path": "src/loom.py", "offset": 20, "limit": 40}),
    ("Read", {"file_path": "docs/thread.md"}),
    ("Bash", {"command": "make test", "timeout": 60000}),
    ("Bash", {"command": "sed -n 1,80p src/spool.py"}),
    ("Bash", {"command": "git status --short && ls -la"}),
    ("Grep", {"pattern": "def wind", "path": "src", "flags": ["-n", "-i"]}),
    ("Edit", {"file_path": "src/spool.py", "old_string": "a = 1\n", "new_string": "a = 2\n"}),
    ("lookup", {}),
    ("lookup", {"key": "größe", "depth": 2.5, "tags": [], "nested": {"on": True, "off": None}}),
)
TOOLS = ("Read", "Bash", "Grep", "Edit", "lookup")


def _source(count: int) -> str:
    return "\n".join(
        f"{n:>5}\tdef wind_{n}(spool): return spool.turn({n * 7})" for n in range(count)
    )


def _log(count: int) -> str:
    bars = "\r".join(f"\x1b[32m{n * 10:>3}%\x1b[0m" for n in range(11))
    body = "\n".join(f"tests/test_loom.py::test_{n} PASSED" for n in range(count))
    return (
        f"{bars}\n{body}\nE   AssertionError: 3 threads, wanted {count}\n1 failed, {count} passed"
    )


def _rows(count: int) -> str:
    body = ", ".join(f'{{"id": {n}, "name": "thread {n}", "slack": {n / 8}}}' for n in range(count))
    return f"[{body}]"


def _same(count: int) -> str:
    return "waiting for the loom   \n" * count + "done\n\n\n"


def _listing(count: int) -> str:
    return "\n".join(f"{PATHS[n % 4]}:{n * 3}: thread ünd {n}" for n in range(count))


LONG = (_source, _log, _rows, _same, _listing)

forms = st.integers(0, 11)
# Drawn once for several choices: strategies are slow to build, and every draw costs.
_odds = st.integers(0, 2**20 - 1)
_any_text = st.text(min_size=1, max_size=12)
_from_short = st.sampled_from(SHORT)
_from_long = st.sampled_from(LONG)
_from_calls = st.sampled_from(CALLS)
_counts = st.integers(4, 40)
_few = st.integers(0, 3)


class _Odds:
    """Many unlikely choices out of one number; 0, where examples shrink to, says no to all."""

    def __init__(self, draw: DrawFn) -> None:
        self._left = draw(_odds)

    def one_in(self, times: int) -> bool:
        """Yes, once in so many times."""
        self._left, rest = divmod(self._left, times)
        return rest == times - 1


def _short(draw: DrawFn) -> str:
    """A few words, at times of any letters whatsoever; never blank, which no provider takes."""
    if draw(_few) < 3:
        return draw(_from_short)
    text = draw(_any_text)
    return text if text.strip() else "."


def _long(draw: DrawFn) -> str:
    """Tool output of many lines, longer than a cap of a few hundred characters."""
    return draw(_from_long)(draw(_counts))


def _result_texts(draw: DrawFn, form: int) -> tuple[str, ...]:
    if form < 7:
        return (_long(draw),)
    if form < 9:
        return (_short(draw),)
    return (_short(draw), _long(draw)) if form < 11 else ()


def _result(draw: DrawFn) -> Result:
    """A tool's result."""
    texts = _result_texts(draw, draw(forms))
    odds = _Odds(draw)
    return Result(
        texts,
        image=odds.one_in(6),
        document=odds.one_in(9),
        error=odds.one_in(5) and bool(texts),  # a failure that says nothing is rejected
        form=draw(forms),
    )


def _call(draw: DrawFn) -> Call:
    """A call with its result."""
    name, args = draw(_from_calls)
    form = draw(forms)
    if form == 3:
        args = draw(_ARGS)
    return Call(name, args, _result(draw), form)


_LEAVES = st.none() | st.booleans() | st.integers(-9, 10**9) | _from_short | st.just(0.5)
_ARGS = st.dictionaries(
    st.text(max_size=4),
    _LEAVES | st.lists(_LEAVES, max_size=2) | st.just({"deep": [{}]}),
    max_size=3,
)


def _step(draw: DrawFn, calling: bool) -> Step:
    """A step of the model: with calls, or one that ends a turn."""
    odds = _Odds(draw)
    server = _server(draw) if odds.one_in(6) else None
    text = _short(draw) if odds.one_in(2) or not (calling or server) else None
    reasoning = _short(draw) if odds.one_in(2) else None
    return Step(
        note=_short(draw) if odds.one_in(6) else None,
        compaction=_short(draw) if odds.one_in(12) and not reasoning else None,
        reasoning=reasoning,
        text=text,
        server=server,
        calls=tuple(_call(draw) for _ in range(1 + draw(_few))) if calling else (),
        future=odds.one_in(8),
        form=draw(forms),
    )


def _server(draw: DrawFn) -> Server:
    """A tool run by the provider."""
    form = draw(forms)
    return Server(_short(draw), (_long(draw),) if form % 4 else (), form)


def _ask(draw: DrawFn) -> Ask:
    """Strategy of user messages."""
    odds = _Odds(draw)
    texts = (_short(draw), _long(draw)) if odds.one_in(3) else (_short(draw),)
    media = odds.one_in(6), odds.one_in(9)
    return Ask(texts, *media, future=odds.one_in(10), form=draw(forms))


def _turn(draw: DrawFn) -> Turn:
    """Strategy of turns: a user message and its steps."""
    ask = _ask(draw)
    made = [_step(draw, calling=True) for _ in range(draw(_few))]
    if not made or draw(st.booleans()):
        made.append(_step(draw, calling=False))
    return Turn(ask, tuple(made))


_thinking = st.sampled_from(("adaptive", "off", "manual"))


@st.composite
def conversations(draw: DrawFn) -> Conversation:
    """A conversation that ends where a request is sent: on results, or on what the user said."""
    made = [_turn(draw) for _ in range(draw(_few))]
    odds = _Odds(draw)
    if odds.one_in(4) or not made or not made[-1].steps[-1].calls:
        made.append(Turn(_ask(draw), ()))
    said = [step for turn in made for step in turn.steps]
    thinking: Thinking = draw(_thinking)
    if thinking == "manual" and not all(step.reasoning for step in said):
        thinking = "adaptive"
    return Conversation(
        system=tuple(_short(draw) for _ in range(draw(_few) % 3)),
        turns=tuple(made),
        note=_short(draw) if odds.one_in(6) else None,
        thinking=thinking,
        tools=any(step.calls or step.server for step in said) or odds.one_in(2),
        compacted=_short(draw) if odds.one_in(8) else None,
        ids=odds.one_in(2),
        signed=odds.one_in(2),
        breakpoint_style=draw(forms) % 5,
        form=draw(forms),
        alone=True,
    )


def moments(conversation: Conversation) -> Iterator[Conversation]:
    """The conversation as it stood each time the model was asked to go on."""
    for at, turn in enumerate(conversation.turns):
        for count, step in enumerate(turn.steps):
            now = replace(turn, steps=turn.steps[:count])
            yield replace(
                conversation, turns=(*conversation.turns[:at], now), note=step.note, alone=False
            )
    yield replace(conversation, alone=False)


def cut_behind_calls(conversation: Conversation) -> Conversation:
    """The conversation without its last answers; unchanged where it does not end on answers."""
    last = conversation.turns[-1]
    if not last.steps or not last.steps[-1].calls:
        return conversation
    return replace(conversation, note=None, pending=True, alone=False)
