"""Conversations for a model server: short, with all that matters, and growing turn by turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.e2e.fitting import fit
from tests.strategies import render
from tests.strategies.neutral import Ask, Call, Conversation, Result, Step, Turn, moments


def conversation(lines: int = 16) -> Conversation:
    """A short conversation with all that matters: parallel calls, failures, words beside calls."""
    long = "\n".join(f"{n}: def wind_{n}(spool)" for n in range(lines))

    def call(form: int, text: str, error: bool = False) -> Call:
        return Call(
            "Bash", {"command": f"make {form}"}, Result((text,), False, False, error, 0), form
        )

    def step(*calls: Call, text: str | None = None) -> Step:
        return Step(None, None, None, text, None, calls, False, 0)

    def ask(text: str) -> Ask:
        return Ask((text,), False, False, False, 0)

    first = step(call(0, long), call(1, "1 failed", error=True), text="I look.")
    return Conversation(
        system=("Be brief.",),
        turns=(
            Turn(ask("Why does it fail?"), (first, step(call(2, "ok")), step(text="Mended."))),
            Turn(ask("And now?"), (step(call(0, "ok")),)),
        ),
        note=None, thinking="off", tools=True, compacted=None,
        ids=True, signed=False, marks=0, form=0,
    )  # fmt: skip


def growing(format: str, lines: tuple[int, ...]) -> list[dict[str, Any]]:
    """The requests of one agent's turn whose calls give so many lines each."""
    whole = conversation()
    turn = whole.turns[0]
    call = turn.steps[0].calls[0]
    steps = tuple(
        replace(turn.steps[1], calls=(replace(call, result=_lines(count, seed)),))
        for seed, count in enumerate(lines)
    )
    whole = replace(whole, turns=(replace(turn, steps=steps),))
    return [render(format, moment) for moment in moments(fit(format, whole))]


def _lines(count: int, seed: int) -> Result:
    text = "\n".join(f"{n}: thread {n * 7 + seed} of loom {seed}" for n in range(count))
    return Result((text,), image=False, document=False, error=False, form=0)
