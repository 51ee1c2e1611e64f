"""States, contexts and views of a fold, for tests of single functions."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from respool.compaction.context import Context, Counters
from respool.compaction.state import State
from respool.engine import fold_request
from respool.facts import Facts
from respool.passes.base import View
from respool.policy import Policy


def state_with(**values: Any) -> State:
    """A state with these values, each named by its part and field: `tokens__exact_total=5`."""
    state = State()
    for name, value in values.items():
        part, field = name.split("__")
        setattr(getattr(state, part), field, value)
    return state


def context_with(policy: Policy | None = None, **values: Any) -> Context:
    """A context of an empty Anthropic request, counted by its exact counter, with these values."""
    folded = fold_request(
        [{"role": "user", "content": "go"}],
        format="anthropic",
        policy=policy or Policy(),
        facts=Facts(),
        memo=None,
    )
    made = folded.context
    of_request = {name: values.pop(name) for name in ("head", "fields") if name in values}
    return replace(
        made,
        counters=Counters(made.counter, made.counter),
        request=replace(made.request, **of_request),
        **values,
    )


def view_with(view: View, **properties: Any) -> View:
    """The same view, in which these properties have these values."""
    twin = View(view.state, view.context, view.phase, view.unseen_from)
    vars(twin).update(vars(view) | properties)
    return twin
