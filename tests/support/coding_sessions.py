"""Sessions that read, write and edit files and run commands, in every wire format."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from respool.compaction.memo import Memo
from respool.engine import Compaction, build_compaction, fold_request
from respool.facts import Facts
from respool.passes import Pass
from respool.policy import Policy
from tests.laws.laws import idempotent, reproducible, reversible, small, stable, valid
from tests.laws.subject import IDLE, Compact
from tests.support.formats import FORMATS, Exchange, request

PATHS = ("/w/loom.py", "/w/heddle.py")


def lines(first: int, last: int, word: str = "thread") -> str:
    """The text of a file, numbered as many tools do it."""
    return "\n".join(
        f"{n:6}\t{word}_{n} = weave({n}, warp={n * 7})" for n in range(first, last + 1)
    )


def read(path: str, text: str, id: str, **about: Any) -> Exchange:
    """A read of a file, or of some of its lines."""
    args = {"file_path": path, **{k: about.pop(k) for k in ("offset", "limit") if k in about}}
    return Exchange(text, tool="Read", id=id, args=args, **about)


def write(path: str, text: str, id: str, result: str = "File written.", **about: Any) -> Exchange:
    """A write of a whole file."""
    return Exchange(result, tool="Write", id=id, args={"file_path": path, "content": text}, **about)


def edit(path: str, old: str, new: str, id: str, **about: Any) -> Exchange:
    """A change of some part of a file."""
    args = {"file_path": path, "old_string": old, "new_string": new}
    return Exchange(about.pop("result", "Edited."), tool="Edit", id=id, args=args, **about)


def bash(command: str, result: str, id: str, **about: Any) -> Exchange:
    """A shell command."""
    return Exchange(result, tool="Bash", id=id, args={"command": command}, **about)


def done(id: str = "last") -> list[Exchange]:
    """A last call, whose result the model has not seen."""
    return [bash("true", "ok", id)]


def run(
    offer_pass: Pass, format: str, *steps: Any, keep: int = 0, **settings: Any
) -> Compaction[Any]:
    """A session compacted by one pass at every boundary."""
    body = request(format, "go", *steps)
    body.update(settings)
    return run_on(offer_pass, format, body, keep)


def run_on(offer_pass: Pass, format: str, body: Any, keep: int = 0) -> Compaction[Any]:
    """A request compacted by one pass at every boundary."""
    policy = Policy(reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=keep)
    folded = fold_request(
        body, format=format, policy=policy, facts=Facts(), memo=None, passes=(offer_pass,)
    )
    return build_compaction(folded, body)


@st.composite
def _exchange(draw: st.DrawFn, number: int) -> Exchange:
    path = draw(st.sampled_from(PATHS))
    id, word = f"call_{number}", draw(st.sampled_from(["thread", "weft"]))
    kind = draw(st.sampled_from(["read", "range", "write", "edit", "test", "cat"]))
    end = f"\n(no. {number})"  # what is exactly an original counts as fetched back
    if kind == "read":
        return read(path, lines(1, 40, word) + end, id)
    if kind == "range":
        first = draw(st.sampled_from([1, 11, 21]))
        return read(path, lines(first, first + 19, word) + end, id, offset=first, limit=20)
    if kind == "write":
        return write(path, lines(1, 40, word), id)
    if kind == "edit":
        failed = draw(st.booleans())
        said = "Error: the text to replace was not found.\n" + lines(1, 12) + end
        result = said if failed else "Edited."
        return edit(path, f"{word}_3", "thread_x", id, result=result, error=failed)
    if kind == "cat":
        return bash(f"cat {path}", lines(1, 40, word) + end, id)
    failed = draw(st.booleans())
    said = f"Exit code 1\nE   AssertionError: {word}\n{lines(1, 20)}{end}" if failed else "3 passed"
    return bash("pytest tests/test_loom.py -q --maxfail=1 --tb=short --color=no", said, id)


@st.composite
def _session(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    format = draw(st.sampled_from(FORMATS))
    steps: list[Any] = ["Please mend the loom."]
    number = 0
    for width in draw(st.lists(st.integers(0, 3), min_size=2, max_size=10)):
        if not width:
            steps.append("Go on, please.")
            continue
        steps.append([draw(_exchange(number + k)) for k in range(width)])
        number += width
    if isinstance(steps[-1], str):
        steps.append(done())
    return format, request(format, *steps)


sessions: st.SearchStrategy[tuple[str, dict[str, Any]]] = _session()


def hold_the_laws(offer_pass: Pass, format: str, body: dict[str, Any], field: str) -> None:
    """Every law that speaks of one pass, on one session and all its prefixes."""
    compact = _compactor(offer_pass, format)
    valid(compact, format, body, whole=True)
    small(compact, format, body)
    reversible(compact, format, body)
    idempotent(compact, format, body)
    sent = requests_of(body, field)
    stable(compact, format, sent)
    reproducible(compact, format, sent)


def requests_of(body: dict[str, Any], field: str) -> list[dict[str, Any]]:
    """All requests of a session, the last one as it is."""
    return [
        {**body, field: body[field][:end]}
        for end in range(1, len(body[field]) + 1)
        if end == len(body[field]) or _is_sent(body[field][end - 1], body[field][end])
    ]


def _is_sent(message: Any, next_message: Any) -> bool:
    """Return whether a request ends between these two."""
    return not _by_model(message) and _by_model(next_message)


def _by_model(message: Any) -> bool:
    made = ("reasoning", "function_call")
    return message.get("role") in ("assistant", "model") or message.get("type") in made


def _compactor(offer_pass: Pass, format: str) -> Compact:
    eager = Policy(reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=1)

    def compact(
        request: Any, *, policy: Policy | None = None, memo: Memo | None = None
    ) -> Compaction[Any]:
        passes = () if policy is IDLE else (offer_pass,)
        folded = fold_request(
            request, format=format, policy=policy or eager, facts=Facts(), memo=memo, passes=passes
        )
        return build_compaction(folded, request)

    return compact
