"""The presets that reproduce what respool comes from."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import respool
from respool import UNLIMITED, Facts, Policy, Tool, Tools
from respool.cli import main
from respool.compaction.evaluation import select_passes
from respool.compaction.memo import Memo
from respool.edits import DropExchange, DropReasoning, Offer, Replace
from respool.engine import Compaction, build_compaction, fold_request
from respool.markers import MAX_MARKER_CHARS, find_marker, reference
from respool.passes import OPT_IN
from respool.passes.base import View
from respool.policy import PRESETS
from respool.replay.policies import describe_policy
from respool.tokens import counter_for
from tests.effort import examples
from tests.laws import laws
from tests.laws.examples import Once
from tests.laws.sessions import long_session
from tests.laws.subject import IDLE, SMALL_SOURCES, Compact
from tests.passes.test_old_reasoning import thinking_session, thoughts
from tests.passes.test_repeated_calls import arguments
from tests.replay.transcripts import claude_code
from tests.source_sessions import LONG, TEXT, A, B, compact, compact_body, reasons, then
from tests.support.coding_sessions import (
    bash,
    done,
    edit,
    lines,
    read,
    requests_of,
    sessions,
    write,
)
from tests.support.formats import FIELD, FORMATS, Exchange, request, results

HERE = Path(__file__).parent
PAGE = (HERE.parent / "docs" / "how" / "presets.md").read_text("utf-8")
SOURCES = ("codetether", "clark", "rfc013", "pi-dcp")
formats = pytest.mark.parametrize("format", FORMATS)
EVERYTHING = Policy(
    passes=("default", "repeated_calls", "squeeze_prose"),
    cap_chars=500,
    eager=True,
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    keep_exchanges=0,
)
sources = pytest.mark.parametrize("preset", SOURCES)


def under(usual: Policy, format: str) -> Compact:
    """Compactor for the laws."""

    def run(
        request: Any, *, policy: Policy | None = None, memo: Memo | None = None
    ) -> Compaction[Any]:
        chosen = select_passes(policy or usual)
        folded = fold_request(
            request, format=format, policy=policy or usual, facts=Facts(), memo=memo, passes=chosen
        )
        return build_compaction(folded, request)

    return run


CASES: dict[str, Policy] = {
    **SMALL_SOURCES,
    # What they are made of, with all that respool can do beside it.
    "messages": EVERYTHING.replace(keep_messages=3, keep_reasoning_messages=1, min_chars=0),
    "calls": EVERYTHING.replace(keep_calls=2, fold_over_chars=1_000),
}


# Busy sessions, and ones in which calls are made again and say the same again.
again = st.builds(
    lambda format, kinds: (format, request(format, "Mend the loom.", *_steps(kinds))),
    st.sampled_from(FORMATS),
    st.lists(st.sampled_from(("run", "run", "same", "long", "write", "word")), min_size=4),
)


def _steps(kinds: list[str]) -> Iterator[Any]:
    for number, kind in enumerate((*kinds, "end")):
        made = {
            "run": [bash(LONG, TEXT, f"c{number}")],
            "same": [bash(f"ls {number}", TEXT, f"c{number}")],
            "long": [bash(f"make {number}", TEXT * 2, f"c{number}")],
            "write": [write(A, TEXT, f"c{number}")],
            "word": "Go on.",
        }
        yield made.get(kind, done())


@pytest.mark.parametrize("histories", [sessions, again], ids=["busy", "again"])
@pytest.mark.parametrize(
    "turns", [3, pytest.param(1, marks=pytest.mark.laws)], ids=["turns", "all"]
)
def test_every_law_holds(
    turns: int, histories: st.SearchStrategy[tuple[str, dict[str, Any]]]
) -> None:
    """Each session meets every third case, by turns; `make laws` has all of them."""
    failed: list[str] = []  # once one has failed, a smaller session is looked for with it alone

    @settings(
        max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    @given(histories)
    def run(session: tuple[str, dict[str, Any]]) -> None:
        turn = crc32(repr(session).encode()) % turns
        for case in failed or [*CASES][turn::turns]:
            try:
                hold_the_laws(case, *session)
            except Exception as problem:
                failed[:] = [case]
                problem.add_note(f"This was: {case}")
                raise

    run()


def hold_the_laws(case: str, format: str, body: dict[str, Any]) -> None:
    compact = Once(under(CASES[case], format), {})
    laws.valid(compact, format, body, whole=True)
    laws.small(compact, format, body)
    laws.reversible(compact, format, body)
    laws.honest(compact, format, body)
    laws.faithful(compact, format, body)
    for one in CASES[case].passes or ():  # of each: what one has cut, another may find to do
        if case in SOURCES:
            laws.idempotent(under(CASES[case].replace(passes=(one,)), format), format, body)
    laws.shapes_nothing_twice(compact, format, body)
    sent = requests_of(body, FIELD[format])
    laws.stable(compact, format, sent)
    laws.reproducible(compact, format, sent)


@pytest.mark.parametrize(("preset", "format"), [*zip(SOURCES, FORMATS, strict=True)])
@pytest.mark.slow
def test_one_more_turn_costs_one_more_turn(preset: str, format: str):
    """Each in one format; `make bench` has all of them."""
    compact = under(Policy.preset(preset), format)
    laws.linear(
        compact, lambda count: long_session(format, count, 600), policy=Policy.preset(preset)
    )


@sources
@formats
def test_with_nothing_to_do_the_output_is_the_input(preset: str, format: str):
    body = request(format, "go", [bash("ls", "a", "1")], done())
    assert respool.compact(body, format=format, policy=Policy.preset(preset)).request is body
    assert respool.compact(body, format=format, policy=IDLE).request is body


@sources
def test_presets_say_where_their_values_come_from(preset: str):
    origins = Policy.preset(preset).origins()
    assert {origins[name] for name in PRESETS[preset]} == {f"preset {preset}"}


@pytest.mark.parametrize(
    ("preset", "cuts"),
    [("codetether", {"over_cap"}), ("clark", set()), ("rfc013", {"folded"}), ("pi-dcp", set())],
)
def test_the_replay_knows_them_by_name(preset: str, cuts: set[str], tmp_path: Path):
    file = claude_code(tmp_path / "one.jsonl", 30, result=5_000)
    asked = ["replay", str(file), "--policy", preset, "--json", "--quiet", "--jobs", "1"]
    answer = CliRunner().invoke(main, asked)
    assert answer.exit_code == 0
    (row,) = [one for one in json.loads(answer.stdout)["totals"] if one["policy"] == preset]
    assert {cut["reason"] for cut in row["cuts"]} == cuts
    assert row["invalid"] == 0
    assert describe_policy(preset) != describe_policy("lean"), (
        "it is told apart from settings without a name"
    )


@sources
def test_the_page_says_what_a_preset_sets(preset: str):
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{preset}` |")]
    *_, passes, others = (cell.strip() for cell in row.strip("|").split("|"))
    sets = tomllib.loads("\n".join(re.findall(r"`(\w+ = [^`]+)`", others)))
    eager = tomllib.loads("\n".join(re.findall(r"`(\w+ = [^`]+)`", _common_settings())))
    assert {"passes": tuple(re.findall(r"`(\w+)`", passes)), **sets, **eager} == PRESETS[preset]


def _common_settings() -> str:
    (line,) = [line for line in PAGE.splitlines() if "`eager = true`" in line]
    return line


SHORT = "one line, and\nanother that says\n" * 5  # 155 characters
FAILED = "Exit code 1\n" + SHORT + "E   AssertionError: weave(3) is not 4\n1 failed"
# By pass: a session in which it does something, and one that is too short for its own limit.
LIMITS: dict[str, tuple[list[Any], list[Any] | None]] = {
    "repeated_calls": ([[bash(LONG, "a", "1")], [bash(LONG, "b", "2")]], None),
    "identical_results": (
        [[bash("ls a", TEXT, "1")], [bash("ls b", TEXT, "2")]],
        [[bash("ls a", SHORT, "1")], [bash("ls b", SHORT, "2")]],
    ),
    "covered_reads": (
        [[read(A, lines(3, 14), "1", offset=3, limit=12)], [read(A, lines(1, 40), "2")]],
        [[read(A, lines(3, 6), "1", offset=3, limit=4)], [read(A, lines(1, 40), "2")]],
    ),
    "superseded_writes": (
        [[write(A, TEXT, "1")], [write(A, TEXT, "2")]],
        [[write(A, "a", "1")], [write(A, "b", "2")]],
    ),
    "resolved_errors": (
        [[bash("pytest", FAILED + TEXT, "1", error=True)], [bash("pytest", "3 passed", "2")]],
        [[bash("pytest", FAILED, "1", error=True)], [bash("pytest", "3 passed", "2")]],
    ),
    "stub_results": ([[read(A, TEXT, "1")]], [[read(A, lines(1, 8), "1")]]),
}


@formats
@pytest.mark.parametrize("name", LIMITS)
def test_least_stands_in_place_of_each_passs_own_limit(format: str, name: str):
    def cuts(steps: list[Any], least: int | None) -> bool:
        policy = EVERYTHING.replace(passes=(name,), min_chars=least, cap_chars=None)
        body = request(format, "go", *steps, done())
        return bool(respool.compact(body, format=format, policy=policy, memo=None).report.edits)

    long, short = LIMITS[name]
    assert (cuts(long, None), cuts(long, 100_000)) == (True, False)
    if short is not None:
        assert (cuts(short, None), cuts(short, 0)) == (False, True)


@formats
@pytest.mark.parametrize("keep", ["keep_messages", "keep_calls"])
def test_what_is_kept_is_kept_from_every_pass(format: str, keep: str):
    """With all that respool can do: what passes would do at arrival, they do when it leaves."""
    steps = [[bash(LONG, TEXT * 2 + "   \n" * 9, f"c{n}")] for n in range(6)]
    body = request(format, "go", *steps)
    policy = EVERYTHING.replace(**{keep: 6 if keep == "keep_messages" else 3})
    out = respool.compact(body, format=format, policy=policy, memo=None)
    assert out.request[FIELD[format]][-6:] == body[FIELD[format]][-6:]
    assert out.request[FIELD[format]][:-6] != body[FIELD[format]][:-6]
    assert all(reference(text) == ref for ref, text in out.originals.items())


BIG = "\n".join(f"{number:4} of what the shell printed, and more of it" for number in range(40))


def ending_in_words(format: str, *steps: Any) -> dict[str, Any]:
    """A session in which the model has answered, and the user goes on."""
    body = request(format, "Mend the loom.", *steps)
    answer: Any = {"role": "assistant", "content": "Done."}
    if format == "gemini":
        answer = {"role": "model", "parts": [{"text": "Done."}]}
    elif format == "openai-responses":
        spoken = [{"type": "output_text", "text": "Done.", "annotations": []}]
        answer = {"type": "message", "role": "assistant", "content": spoken}
    (user,) = request(format, "And now?")[FIELD[format]]
    return {**body, FIELD[format]: [*body[FIELD[format]], answer, user]}


def left(format: str, *steps: Any, **changes: Any) -> list[str]:
    return results(format, compact("clark", format, *steps, **changes).request)


def test_the_default_cap_is_respools_own():
    assert Policy.preset("clark").cap_chars == Policy().cap_chars == 32_000


@formats
def test_clips_oversize_tool_results_above_default_cap(format: str):
    steps = [[Exchange(BIG, id="a")], "again", [Exchange(BIG, id="b")]]
    older, newer = left(format, *steps, cap_chars=1_000)
    assert find_marker(older) is not None
    assert len(older) <= 1_000
    assert newer == BIG


@formats
@pytest.mark.parametrize(("size", "clipped"), [(32_000, False), (32_001, True)])
def test_only_what_exceeds_the_cap_is_clipped(format: str, size: int, clipped: bool):
    text = "".join(f"{n:6} words of a log\n" for n in range(2_000))[:size]
    first, _ = left(format, [Exchange(text, id="a")], [Exchange("ok", id="b")])
    assert (first != text) is clipped


@formats
def test_preserves_tool_results_within_cap(format: str):
    steps = [[Exchange("x" * 50, id="a")], "again", [Exchange("x" * 50, id="b")]]
    assert compact("clark", format, *steps, cap_chars=1_000).report.edits == ()


@formats
def test_per_tool_override_unlimited_keeps_verbatim(format: str):
    tools = Tools([Tool("publish", cap_chars=UNLIMITED)])
    steps = [[Exchange(BIG, id="a", tool="publish")], "more", *then(4)]
    assert left(format, *steps, cap_chars=400, tools=tools)[0] == BIG


@formats
def test_per_tool_override_smaller_clips_below_default(format: str):
    tools = Tools([Tool("verbose", cap_chars=500)])
    steps = [[Exchange(BIG, id="a", tool="verbose")], [Exchange(BIG, id="b", tool="verbose")]]
    older, newer = left(format, *steps, cap_chars=1_000_000, tools=tools)
    assert len(older) <= 500
    assert newer == BIG


@formats
def test_idempotent_across_repeated_apply(format: str):
    steps = [[Exchange(BIG, id="a")], "again", [Exchange(BIG, id="b")]]
    once = compact("clark", format, *steps, cap_chars=1_000)
    twice = compact_body("clark", format, once.request, cap_chars=1_000)
    assert twice.request == once.request
    assert twice.report.edits == ()


@formats
def test_unknown_tool_falls_back_to_default_cap(format: str):
    tools = Tools([Tool("shell", cap_chars=UNLIMITED)])
    steps = [[Exchange(BIG, id=id, tool="synthetic")] for id in ("a", "b")]
    older, newer = left(format, *steps, cap_chars=1_000, tools=tools)
    assert (len(older) <= 1_000, newer == BIG) == (True, True)


@formats
def test_the_last_result_stays_verbatim_when_it_was_seen(format: str):
    """In the source it is the newest result that stays, whoever spoke after it."""
    body = ending_in_words(format, [Exchange(BIG, id="a")], [Exchange(BIG, id="b")])
    older, newer = results(format, compact_body("clark", format, body, cap_chars=1_000).request)
    assert find_marker(older) is not None
    assert newer == BIG
    usual = Policy(
        cap_chars=1_000,
        passes=("cap_results",),
        eager=True,
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        keep_exchanges=0,
    )
    _, seen = results(format, respool.compact(body, format=format, policy=usual).request)
    assert seen != BIG, "respool's own rule: what was seen may be clipped"


@formats
def test_of_calls_made_together_all_results_stay(format: str):
    together = [Exchange(BIG, id=f"p{n}") for n in range(3)]
    first, *rest = left(format, [Exchange(BIG, id="a")], together, cap_chars=1_000)
    assert first != BIG
    assert rest == [BIG] * 3


@formats
def test_the_marker_names_tool_size_cap_and_command(format: str):
    args = {"command": f"make {'a' * 40}_{'b' * 22}"}
    steps = [[Exchange(BIG, id="a", tool="shell", args=args)], [Exchange("ok", id="b")]]
    marker = str(find_marker(left(format, *steps, cap_chars=1_000)[0]))
    assert len(marker) <= MAX_MARKER_CHARS == 256
    assert all(one in marker for one in ("shell", f"{len(BIG):,}", "1,000", "make aaaa"))


@formats
def test_the_history_itself_stays_and_resuming_gives_the_same(format: str):
    body = request(format, "hi", [Exchange(BIG, id="a")], [Exchange(BIG, id="b")])
    before = json.dumps(body)
    first, again = (compact_body("clark", format, body, cap_chars=1_000) for _ in range(2))
    assert json.dumps(body) == before
    assert first.request == again.request
    assert list(first.originals.values()) == [BIG]


# How each wire spells arguments: as an object, or as a text that the sender wrote.
SEPARATORS = {format: (", ", ": ") if "openai" in format else (",", ":") for format in FORMATS}


def repeated(format: str, *steps: Any) -> list[bool]:
    out = compact("codetether", format, *steps)
    return ["repeat_of" in one for one in arguments(format, out.request)]


def speaking(format: str, words: str, first: list[Exchange], *steps: Any) -> dict[str, Any]:
    """A session in which the model says something before its first call."""
    body = request(format, "Mend the loom.", first, *steps)
    user, call, *rest = body[FIELD[format]]
    if format == "anthropic":
        said = [{**call, "content": [{"type": "text", "text": words}, *call["content"]]}]
    elif format == "openai-chat":
        said = [{**call, "content": words}]
    elif format == "gemini":
        said = [{**call, "parts": [{"text": words}, *call["parts"]]}]
    else:
        spoken = [{"type": "output_text", "text": words, "annotations": []}]
        said = [{"type": "message", "role": "assistant", "content": spoken}, call]
    return {**body, FIELD[format]: [user, *said, *rest]}


@formats
def test_second_calls_arguments_reference_the_first(format: str):
    steps = [[bash(LONG, "a", "first")], [bash(LONG, "b", "second")], *then(10)]
    out = compact("codetether", format, *steps)
    first, second, *_ = arguments(format, out.request)
    assert first == {"command": LONG}
    assert second["repeat_of"] == "first"
    assert json.loads(respool.expand(second["ref"], out)) == {"command": LONG}
    assert results(format, out.request)[:2] == ["a", "b"], "results stay"


@formats
def test_hits_and_bytes_saved_are_counted(format: str):
    steps = [[bash(LONG, "a", f"c{n}")] for n in range(3)]
    out = compact("codetether", format, *steps, *then(10))
    assert reasons(out) == ["repeated_call", "repeated_call"]
    size = len(json.dumps({"command": LONG}, separators=SEPARATORS[format]))
    for one in out.report.edits:
        assert isinstance(one, Replace)
        saved = size - len(one.text)
        assert one.evidence == f"same as c0, {saved:,} of {size:,} bytes saved"


@formats
def test_different_names_not_merged(format: str):
    one = Exchange("a", tool="Bash", id="1", args={"command": LONG})
    other = Exchange("b", tool="Grep", id="2", args={"command": LONG})
    assert not any(repeated(format, [one], [other], *then(10)))


@formats
def test_small_args_preserved(format: str):
    short = "ls " + "x" * 40  # under 64 bytes with its braces
    steps = [[bash(short, "a", f"c{n}")] for n in range(3)]
    assert not any(repeated(format, *steps, *then(10)))


@formats
@pytest.mark.parametrize(("after", "taken"), [(0, False), (7, False), (8, True), (9, True)])
def test_recent_calls_preserved(format: str, after: int, taken: bool):
    """A call is among the last 8 messages as long as its result is."""
    found = repeated(format, [bash(LONG, "a", "1")], [bash(LONG, "b", "2")], *then(after))
    assert found[:2] == [False, taken]


@formats
def test_a_write_in_between_makes_it_another_call(format: str):
    steps = [[bash(LONG, "a", "1")], [write(A, TEXT, "w")], [bash(LONG, "b", "2")]]
    assert not any(repeated(format, *steps, *then(10)))


@formats
@pytest.mark.parametrize(("after", "taken"), [(0, False), (7, False), (8, True)])
def test_identical_results_collapse_behind_the_last_8_messages(
    format: str, after: int, taken: bool
):
    steps = [[bash("ls a", TEXT, "1")], [bash("ls b", TEXT, "2")], *then(after)]
    first, second, *_ = results(format, compact("codetether", format, *steps).request)
    assert first == TEXT
    assert (find_marker(second) is not None) is taken
    assert ("the run of ls a above" in second) is taken


@formats
@pytest.mark.parametrize(("size", "taken"), [(255, False), (256, True)])
def test_identical_results_have_at_least_256_bytes(format: str, size: int, taken: bool):
    text = TEXT[: size - 1] + "."
    steps = [[bash("ls a", text, "1")], [bash("ls b", text, "2")], *then(8)]
    assert ("identical" in reasons(compact("codetether", format, *steps))) is taken


@formats
@pytest.mark.parametrize(
    ("size", "after", "taken"), [(4_096, 8, False), (4_097, 8, True), (4_097, 7, False)]
)
def test_long_old_results_keep_head_and_tail(format: str, size: int, after: int, taken: bool):
    text = "".join(f"{n:5}: a line that is printed\n" for n in range(200))[:size]
    out = compact("codetether", format, [bash("make", text, "1")], *then(after))
    left = results(format, out.request)[0]
    assert (left != text) is taken
    assert left.startswith(text[:1_024])
    assert left.endswith(text[-1_024:])
    assert len(left) <= 4_096 or not taken


@pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
def test_reasoning_stays_in_the_last_4_messages(format: str):
    """Of 10 turns of two messages each the last two keep theirs; the latest one always."""
    out = compact_body("codetether", format, thinking_session(format, 10))
    assert thoughts(out.request) == [8, 9]
    assert all(isinstance(one, DropReasoning) for one in out.report.edits)


@pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
def test_reasoning_is_message_by_message(format: str):
    """A word of the user's is a message, too: one more turn is out of the last 4."""
    body = thinking_session(format, 6, users=(5,))
    assert thoughts(compact_body("codetether", format, body).request) == [5]


def test_reasoning_that_the_provider_demands_back_stays():
    body = thinking_session("openai-chat", 10)
    assert thoughts(compact_body("codetether", "openai-chat", body).request) == list(range(10))


@formats
def test_white_space_in_old_prose_goes_but_in_code(format: str):
    words = "I looked  at  it.   \n\n\n\nThen:\n```\na  b\n```\n" + "One.  Two.  " * 20
    body = speaking(format, words, [bash("make", "ok", "1")], *then(8))
    sent = json.dumps(compact_body("codetether", format, body).request)
    assert "I looked at it." in sent
    assert "a  b" in sent
    recent = speaking(format, words, [bash("make", "ok", "1")], *then(4))
    assert compact_body("codetether", format, recent).report.edits == ()


@formats
def test_the_last_8_messages_are_touched_by_no_pass(format: str):
    steps = [[bash(LONG, TEXT * 9, f"c{n}")] for n in range(8)]
    body = request(format, "Mend the loom.", *steps)
    out = compact_body("codetether", format, body)
    assert out.request[FIELD[format]][-8:] == body[FIELD[format]][-8:]
    assert out.request[FIELD[format]][:-8] != body[FIELD[format]][:-8]


def test_what_is_opt_in_is_not_among_the_defaults():
    assert {"repeated_calls", "squeeze_prose"} == OPT_IN
    assert set(Policy.preset("codetether").passes or ()) >= OPT_IN


@formats
def test_attention_sinks_and_a_recent_window(format: str):
    """The first words and the last 16 messages stay, and what is between them folds."""
    body = request(format, "Mend the loom.", *([bash("ls", TEXT, f"c{n}")] for n in range(20)))
    out = compact_body(
        "codetether", format, body, passes=("fold_exchanges",), fold_over_chars=0, keep_messages=16
    )
    before, after = body[FIELD[format]], out.request[FIELD[format]]
    assert (after[0], after[-16:]) == (before[0], before[-16:])
    assert len(after) < len(before)


OLD, NEW = lines(1, 20, "warp"), lines(1, 20, "weft")
FAILED_SOURCE_PI_DCP = (
    "Exit code 1\n" + lines(1, 10) + "\nE   AssertionError: weave(3) is not 4\n1 failed"
)


@formats
@pytest.mark.parametrize("size", [20, 1])
def test_an_earlier_write_of_a_file_written_again_goes_with_its_result(format: str, size: int):
    first, second = lines(1, size, "warp"), lines(1, size, "weft")
    steps = [[write(A, first, "w1")], [write(A, second, "w2")], *then(10)]
    out = compact("pi-dcp", format, *steps)
    assert [(one.reason, type(one)) for one in out.report.edits] == [("superseded", DropExchange)]
    assert '"w1"' not in json.dumps(out.request)


@formats
@pytest.mark.parametrize(("after", "taken"), [(7, False), (8, True)])
def test_the_last_10_messages_stay_but_count(format: str, after: int, taken: bool):
    """The later write may be among the last 10; the earlier one goes when it no longer is."""
    steps = [[write(A, OLD, "w1")], [write(A, NEW, "w2")], *then(after)]
    assert (reasons(compact("pi-dcp", format, *steps)) == ["superseded"]) is taken


@formats
def test_a_write_that_comes_much_later_supersedes(format: str):
    steps = [[write(A, OLD, "w1")], *then(20), [write(A, NEW, "w2")], done()]
    assert reasons(compact("pi-dcp", format, *steps)) == ["superseded"]


@formats
def test_an_edit_is_not_a_superseding_write(format: str):
    steps = [[write(A, OLD, "w1")], [edit(A, "warp_3", NEW, "e1")], *then(12)]
    assert compact("pi-dcp", format, *steps).report.edits == ()


@formats
def test_a_resolved_error_goes_but_for_the_line_that_tells_it(format: str):
    steps = [
        [bash("pytest -q", FAILED_SOURCE_PI_DCP, "t1", error=True)],
        [edit(A, "a", "b", "e1")],
        [bash("pytest -q", "3 passed", "t2")],
        *then(10),
    ]
    out = compact("pi-dcp", format, *steps)
    assert reasons(out) == ["resolved"]
    left = results(format, out.request)[0]
    assert "AssertionError: weave(3) is not 4" in left
    assert "weave(7" not in left


@formats
def test_an_error_that_is_still_open_stays(format: str):
    steps = [[bash("pytest -q", FAILED_SOURCE_PI_DCP, "t1", error=True)], *then(12)]
    assert compact("pi-dcp", format, *steps).report.edits == ()


@formats
@pytest.mark.parametrize(("after", "taken"), [(9, False), (10, True)])
def test_duplicates_go_behind_the_last_10_messages(format: str, after: int, taken: bool):
    steps = [[bash("ls a", TEXT, "1")], [bash("ls b", TEXT, "2")], *then(after)]
    out = compact("pi-dcp", format, *steps)
    assert reasons(out) == (["identical"] if taken else [])


@formats
def test_duplicates_of_user_messages_stay(format: str):
    said = TEXT * 2
    out = compact("pi-dcp", format, said, *then(2), said, *then(12))
    assert out.report.edits == ()


@formats
def test_a_kept_result_protects_its_call_and_the_calls_beside_it_stay(format: str):
    """Part by part: of two calls in one message one goes, with its result; the other stays."""
    steps = [[write(A, OLD, "w1"), read(B, TEXT, "r1")], [write(A, NEW, "w2")], *then(10)]
    out = compact("pi-dcp", format, *steps)
    sent = json.dumps(out.request)
    assert reasons(out) == ["superseded"]
    assert '"w1"' not in sent
    assert '"r1"' in sent
    assert TEXT in results(format, out.request)


@formats
def test_protection_is_visible_in_the_outcome(format: str):
    body = request(format, "go", [write(A, OLD, "w1")], [write(A, NEW, "w2")], *then(4))
    plan = respool.plan(body, format=format, policy=Policy.preset("pi-dcp"), trace=True)
    assert plan.trace is not None
    kept = {one.reason for one in plan.trace if one.outcome == "protected"}
    assert kept == {"recent, kept as it is"}


@formats
def test_a_rule_that_throws_is_skipped_and_told(format: str):
    def broken(view: View, policy: Policy) -> Iterator[Offer]:
        raise LookupError("a rule of the user's")

    policy = Policy.preset("pi-dcp")
    policy = policy.replace(passes=(broken, *(policy.passes or ())))
    body = request(format, "go", [write(A, OLD, "w1")], [write(A, NEW, "w2")], *then(10))
    out = respool.compact(body, format=format, policy=policy, memo=None)
    assert reasons(out) == ["superseded"]
    assert out.report.failures == {"broken": "LookupError: a rule of the user's"}


@formats
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1,)])
def test_the_order_is_the_users_and_off_is_off(format: str, order: tuple[int, ...]):
    """Rules are asked in the order they are given; one that is left out is not asked."""
    asked: list[int] = []

    def rule(number: int) -> Callable[[View, Policy], Iterator[Offer]]:
        def rule_of_mine(view: View, policy: Policy) -> Iterator[Offer]:
            asked.append(number)
            yield from ()

        rule_of_mine.__name__ = f"rule_{number}"
        return rule_of_mine

    body = request(format, "go", [write(A, OLD, "w1")], [write(A, NEW, "w2")], *then(10))
    rules = [rule(number) for number in range(3)]
    policy = Policy.preset("pi-dcp").replace(passes=tuple(rules[number] for number in order))
    respool.compact(body, format=format, policy=policy, memo=None)
    times = len(asked) // len(order)
    assert times > 0
    assert asked == list(order) * times
    off = Policy.preset("pi-dcp").replace(passes=())
    assert respool.compact(body, format=format, policy=off).request is body
    some = Policy.preset("pi-dcp").replace(passes=("identical_results", "resolved_errors"))
    assert respool.compact(body, format=format, policy=some).request is body


@formats
def test_no_pruning_is_counted_twice(format: str):
    """Whole removals, cuts, and both in one message: their sum is the saving."""
    steps = [
        [write(A, OLD, "w1"), bash("ls a", TEXT, "l1")],
        [bash("pytest -q", FAILED_SOURCE_PI_DCP, "t1", error=True), bash("ls b", TEXT, "l2")],
        [write(A, NEW, "w2")],
        [bash("pytest -q", "3 passed", "t2")],
        *then(12),
    ]
    out = compact("pi-dcp", format, *steps)
    assert sorted(reasons(out)) == ["identical", "resolved", "superseded"]
    assert sum(one.saved for one in out.report.edits) == out.report.tokens_saved  # type: ignore[union-attr]
    twice = compact("pi-dcp", format, *steps)
    assert twice.report.tokens_saved == out.report.tokens_saved


CODE = "\n".join(f"def thread_{n}(spool): return spool.turn({n})" for n in range(40))  # ~ 1,800


def shown(number: int, size: int) -> str:
    return CODE[: size - 1] + f"{number % 10}"


def rfc_session(calls: int, size: int = 1_700) -> list[Any]:
    return [[read(f"/w/part_{n}.py", shown(n, size), f"r{n}")] for n in range(calls)]


def with_system(format: str, body: dict[str, Any]) -> dict[str, Any]:
    """The request with a system prompt, wherever its wire has one."""
    words = "You weave. " * 200
    if format == "anthropic":
        return {**body, "system": words}
    if format == "gemini":
        return {**body, "systemInstruction": {"parts": [{"text": words}]}}
    role = "system" if format == "openai-chat" else "developer"
    return {**body, FIELD[format]: [{"role": role, "content": words}, *body[FIELD[format]]]}


def summaries(format: str, out: Compaction[Any]) -> list[str]:
    found = results(format, out.request)
    return [text for text in found if text.startswith("Earlier in this session, ")]


def call_texts(format: str, steps: list[Any]) -> Iterator[str]:
    """The arguments of calls, as the wire spells them."""
    for step in steps:
        for one in step:
            spaced = format in ("openai-chat", "openai-responses")
            yield json.dumps(one.args, separators=None if spaced else (",", ":"))


@formats
def test_older_calls_become_a_summary_and_six_stay_in_full(format: str):
    out = compact("rfc013", format, *rfc_session(12))
    said = summaries(format, out)
    assert results(format, out.request)[len(said) :] == [shown(n, 1_700) for n in range(6, 12)]
    assert all(f"part_{n}.py" in "".join(said) for n in range(6)), "files are named"
    counts = [int(one.split()[4]) for one in said]
    assert sum(counts) == 6, "and counted"


@formats
@pytest.mark.parametrize("calls", [1, 6])
def test_no_more_than_six_calls_are_left_alone(format: str, calls: int):
    assert compact("rfc013", format, *rfc_session(calls, 1_739)).report.edits == ()


@formats
def test_under_the_threshold_nothing_happens(format: str):
    """10,000 characters of calls and results, exactly, and one more."""
    steps = rfc_session(8, 1_000)
    arguments_ = sum(len(text) for text in call_texts(format, steps))
    room = 10_000 - 8 * 1_000 - arguments_
    exact = [*steps[:7], [read("/w/part_7.py", "y" * (1_000 + room), "r7")]]
    assert compact("rfc013", format, *exact).report.edits == ()
    over = [*steps[:7], [read("/w/part_7.py", "y" * (1_001 + room), "r7")]]
    assert "folded" in reasons(compact("rfc013", format, *over))


@formats
def test_the_summary_groups_by_category(format: str):
    steps = [
        [read(A, CODE, "r1")],
        [edit(A, "thread_3", "thread_x", "e1")],
        [bash("pytest -q", "3 passed", "t1")],
        [bash("npm test", "Exit code 1\nE   AssertionError: 42 is not 41", "t2", error=True)],
        [bash("npm test", "5 passed\n" + CODE * 6, "t3")],
        *then(14),
    ]
    summary = summaries(format, compact("rfc013", format, *steps))[0].splitlines()
    kinds = {line.split(":")[0]: line for line in summary if line.startswith("- ")}
    assert {"- changed", "- ran"} <= set(kinds)
    assert any(line.strip().startswith(A) for line in summary), "what changed is named"
    assert "npm test" in kinds["- ran"]


@formats
def test_errors_survive(format: str):
    said = "Exit code 1\nFAIL tests/loom.test.ts\n  Error: Expected 42 but got undefined"
    steps = [[bash("npm test", said, "t1", error=True)], *rfc_session(12)]
    sent = json.dumps(compact("rfc013", format, *steps).request)
    assert "Expected 42 but got undefined" in sent


@formats
def test_system_prompt_and_first_user_message_stay(format: str):
    body = with_system(format, request(format, "Mend the loom.", *rfc_session(12)))
    out = compact_body("rfc013", format, body)
    assert summaries(format, out)
    first = 1 if format in ("openai-chat", "openai-responses") else 0
    for at in range(first + 1):
        assert out.request[FIELD[format]][at] is body[FIELD[format]][at]
    for field in ("system", "systemInstruction"):
        assert out.request.get(field) is body.get(field)


@formats
def test_the_summary_has_at_most_500_tokens(format: str):
    out = compact("rfc013", format, *rfc_session(40, 300))
    counter = counter_for(format, out.request.get("model"))
    said = summaries(format, out)
    assert said
    assert all(counter.count(one) <= 500 for one in said)


@formats
def test_a_summary_once_sent_is_not_rewritten(format: str):
    one, next_one = (compact("rfc013", format, *rfc_session(calls)) for calls in (10, 12))
    before, after = summaries(format, one), summaries(format, next_one)
    assert len(after) > len(before) > 0
    assert after[: len(before)] == before


@formats
def test_the_summary_is_never_put_in_the_users_mouth(format: str):
    """It stands in a result, so no turn is made up and nobody says "Acknowledged"."""
    body = request(format, "Mend the loom.", *rfc_session(12))
    out = compact_body("rfc013", format, body)
    assert "Acknowledged" not in json.dumps(out.request)
    assert len(out.request[FIELD[format]]) < len(body[FIELD[format]])
    told_in = [one for one in out.report.edits if isinstance(one, Replace)]
    assert {one.reason for one in told_in} == {"folded"}
    assert len(told_in) == len(summaries(format, out))


@formats
@pytest.mark.parametrize(("after", "stays"), [(3, True), (5, True), (6, False)])
def test_the_cut_never_falls_inside_a_batch_of_parallel_calls(format: str, after: int, stays: bool):
    """As long as one of three calls made together is among the last six, all three stay."""
    batch = [read(f"/w/batch_{n}.py", CODE, f"b{n}") for n in range(3)]
    steps = [*rfc_session(6), batch, *([bash(f"ls {n}", CODE, f"l{n}")] for n in range(after))]
    out = compact("rfc013", format, *steps)
    assert summaries(format, out)
    assert (results(format, out.request).count(CODE) == after + 3) is stays


@formats
def test_keep_0_means_none_and_not_all(format: str):
    out = compact("rfc013", format, *rfc_session(6, 1_739), keep_calls=0)
    (summary, unseen) = results(format, out.request)
    assert summary.startswith("Earlier in this session, 5 tool calls")
    assert unseen == shown(5, 1_739)


@formats
def test_empty_results_are_results(format: str):
    steps = [[bash("true --now", "", "t1")], *rfc_session(13)]
    said = summaries(format, compact("rfc013", format, *steps))
    assert said[0].startswith("Earlier in this session, 2 tool calls of the assistant, in short:")
    assert "\n- other calls: true --now\n" in said[0], "it is named"
    assert sum(int(one.split()[4]) for one in said) == 8, "and counted with seven reads"


@formats
def test_the_decision_stands_apart_from_its_application(format: str):
    body = request(format, "Mend the loom.", *rfc_session(12))
    policy = Policy.preset("rfc013")
    plan = respool.plan(body, format=format, policy=policy)
    gone = [one for one in plan.edits if isinstance(one, DropExchange)]
    assert plan.tokens_saved > 1_000
    assert {one.exchange for one in gone} <= set(range(6)), "which calls go"
    assert gone
    applied = respool.apply(body, plan)
    assert applied.request == respool.compact(body, format=format, policy=policy).request
