"""Holdout: a share of conversations is sent as it came, drawn once and for good."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from respool.cli import main
from respool.cli.serve import holdout_lines
from respool.proxy.holdout import draw_arm
from respool.proxy.server_options import CompactionOptions, HoldoutOptions, StartupError
from respool.store import RequestRecord
from respool.store.comparison import compare_groups
from tests.providers.signing_provider import BOUND
from tests.proxy.compaction import (
    EAGER_POLICY,
    LONG,
    STEPS,
    Compacted,
    answer,
    drive,
    response_header,
)
from tests.proxy.driver import Driver
from tests.proxy.sockets import Reply, reply_with
from tests.support.formats import FORMATS, Exchange, request

SALT = b"s" * 32
HALF = HoldoutOptions(0.5)
FORKED = 16  # conversations: all of one group in one of 32,768 runs
USAGE = {"input_tokens": 4_000, "output_tokens": 10}
PRICED = reply_with(answer(200, {"model": "claude-sonnet-4-5", "usage": USAGE}))


def body_of(format: str, name: object, steps: int) -> bytes:
    """A request of a conversation of its own."""
    return json.dumps(request(format, f"task {name}", *STEPS[:steps])).encode()


async def send(one: Compacted, name: object, steps: int, format: str = "anthropic") -> Reply:
    """Send a request of a session of that name."""
    body = body_of(format, name, steps)
    return await one.send(format, body, f"x-session-id: session {name}")


async def all_records(one: Compacted, count: int) -> list[RequestRecord]:
    await one.records(1)
    found = list[RequestRecord]()
    for _ in range(100):
        one.store.flush()
        names = [held.name for held in one.store.conversations(None, limit=200)]
        found = [record for name in names for record in one.store.requests(name, None)]
        if len(found) >= count:
            break
        await one.records(1)
    assert len(found) == count
    return sorted(found, key=lambda record: record.time)


class TestDraw:
    def test_a_share_is_held_out(self):
        arms = [draw_arm(f"unit {n}", SALT, HoldoutOptions(0.1)) for n in range(10_000)]
        assert 900 <= arms.count("held-out") <= 1_100
        assert arms.count("held-out") + arms.count("compacted") == 10_000

    def test_a_larger_share_holds_out_the_same_and_more(self):
        few, many = (
            {n for n in range(1_000) if draw_arm(str(n), SALT, HoldoutOptions(share)) == "held-out"}
            for share in (0.1, 0.3)
        )
        assert few < many

    def test_another_store_draws_others(self):
        one, other = (
            [draw_arm(str(n), salt, HALF) for n in range(64)] for salt in (SALT, b"t" * 32)
        )
        assert one != other

    def test_both_groups_of_an_aa_run_are_named(self):
        alike = HoldoutOptions(0.5, is_aa=True)
        arms = [draw_arm(str(n), SALT, alike) for n in range(100)]
        drawn = [draw_arm(str(n), SALT, HALF) for n in range(100)]
        assert [arm == "a" for arm in arms] == [arm == "held-out" for arm in drawn]

    @pytest.mark.parametrize("share", [-0.1, 1.0, 7])
    def test_a_share_is_below_one(self, share: float):
        with pytest.raises(StartupError, match="from 0 to below 1"):
            HoldoutOptions(share)


@pytest.mark.parametrize("format", FORMATS)
def test_held_out_conversations_pass_untouched_and_the_others_do_not(tmp_path: Path, format: str):
    async def act(one: Compacted) -> None:
        for name in range(12):
            for steps in (3, 4):
                await send(one, name, steps, format)
        records = await all_records(one, 24)
        arms = {record.unit: record.arm for record in records}
        came = {body_of(format, name, steps) for name in range(12) for steps in (3, 4)}
        assert len(arms) == 12
        assert {"held-out", "compacted"} == set(arms.values())
        for record, body in zip(records, one.bodies, strict=True):
            assert record.arm == arms[record.unit]  # for good
            is_held_out = record.arm == "held-out"
            assert (body in came) == is_held_out
            assert record.mode == ("observed" if is_held_out else "compacted")
            assert record.sent_as == ("original" if is_held_out else "projection")
            assert record.saved > 500  # or would have been

    drive(tmp_path, act, holdout=HALF)


def test_the_draw_outlives_a_restart_and_holds_on_every_server(tmp_path: Path):
    drawn: list[dict[str, str]] = []

    def act_with(steps: int) -> Any:
        async def act(one: Compacted) -> None:
            for name in range(12):
                await send(one, name, steps)
            records = await all_records(one, 12 * (steps - 2))
            drawn.append({record.unit: record.arm for record in records[-12:]})

        return act

    for steps in (3, 4, 5):
        drive(tmp_path, act_with(steps), holdout=HALF, shared_store=True)
    assert drawn[0] == drawn[1] == drawn[2]
    assert len(set(drawn[0].values())) == 2


def test_sub_agents_follow_their_session(tmp_path: Path):
    async def act(one: Compacted) -> None:
        for name in range(8):
            header = f"x-claude-code-session-id: {name}"
            await one.send("anthropic", body_of("anthropic", name, 3), header)
            sub = json.dumps(request("anthropic", f"look into {name}", *STEPS[:3])).encode()
            await one.send("anthropic", sub, header)
        records = await all_records(one, 16)
        for first, second in zip(records[::2], records[1::2], strict=True):
            assert first.conversation != second.conversation
            assert (first.unit, first.arm) == (second.unit, second.arm)
        assert len({record.arm for record in records}) == 2

    drive(tmp_path, act, holdout=HALF)


def test_a_fork_under_another_session_id_follows_its_ancestors(tmp_path: Path):
    async def first(one: Compacted) -> None:
        for name in range(FORKED):
            for steps in (3, 4):
                await send(one, name, steps)
        await all_records(one, 2 * FORKED)

    async def resumed(one: Compacted) -> None:
        for name in range(FORKED):
            body = body_of("anthropic", name, 5)
            await one.send("anthropic", body, f"x-session-id: resumed {name}")
        records = await all_records(one, 3 * FORKED)
        by_conversation: dict[str, set[tuple[str, str]]] = {}
        for record in records:
            by_conversation.setdefault(record.conversation, set()).add((record.unit, record.arm))
        assert len(by_conversation) == FORKED
        assert all(len(drawn) == 1 for drawn in by_conversation.values())
        assert len({record.arm for record in records}) == 2

    drive(tmp_path, first, holdout=HALF)
    drive(tmp_path, resumed, holdout=HALF)


def test_sessions_that_open_with_the_same_words_are_drawn_apart(tmp_path: Path):
    async def act(one: Compacted) -> None:
        for steps in (0, 1, 2, 3):
            for name in range(8):
                did = [[Exchange(f"{name} {LONG}", id=f"c{n}")] for n in range(steps)]
                body = json.dumps(request("anthropic", "hi", *did)).encode()
                await one.send("anthropic", body, f"x-session-id: {name}")
        records = await all_records(one, 32)
        assert len({record.conversation for record in records}) == 1
        for name in range(8):
            assert len({record.unit for record in records[name::8]}) == 1
        assert len({record.unit for record in records}) == 8

    drive(tmp_path, act, holdout=HALF)


def test_what_began_before_takes_no_part(tmp_path: Path):
    async def before(one: Compacted) -> None:
        for name in range(8):
            for steps in (3, 4):
                await send(one, name, steps)
        await all_records(one, 16)

    async def after(one: Compacted) -> None:
        await send(one, 1, 5)
        *_, last = await all_records(one, 17)
        assert (last.arm, last.unit, last.mode) == ("", "", "compacted")

    drive(tmp_path, before)
    drive(tmp_path, after, holdout=HoldoutOptions(0.99))


def test_paused_and_bypassed_requests_are_in_no_group(tmp_path: Path):
    async def act(one: Compacted) -> None:
        await one.ask("anthropic", 3, "x-respool-bypass: 1")
        one.compactor.switch("pause")
        await one.ask("anthropic", 4)
        one.compactor.switch("compact")
        await one.ask("anthropic", 5)
        records = await all_records(one, 3)
        assert [record.arm for record in records] == ["", "", "held-out"]
        assert len({record.unit for record in records}) == 1

    drive(tmp_path, act, holdout=HoldoutOptions(0.999_999))


def test_both_groups_of_an_aa_run_are_compacted(tmp_path: Path):
    async def act(one: Compacted) -> None:
        for name in range(12):
            reply = await send(one, name, 3)
            assert response_header(reply, "x-respool-sent") == "projection"
        records = await all_records(one, 12)
        assert {record.arm for record in records} == {"a", "b"}
        assert {record.mode for record in records} == {"compacted"}

    drive(tmp_path, act, holdout=HoldoutOptions(0.5, is_aa=True))


def test_the_store_sums_both_groups_by_what_was_paid(tmp_path: Path):
    async def act(one: Compacted) -> None:
        for name in range(12):
            for steps in (3, 4):
                await send(one, name, steps)
        records = await all_records(one, 24)
        units = one.store.holdout_units(None)
        assert len(units) == 12
        for unit in units:
            held = [record for record in records if record.unit == unit.unit]
            assert (unit.requests, unit.errors) == (2, 0)
            is_held_out = unit.arm == "held-out"
            paid = [one.cost_before if is_held_out else one.cost_after for one in held]
            assert unit.cost == pytest.approx(sum(filter(None, paid)))
            assert unit.cost > 0
        (found,) = compare_groups(units)
        assert found.control_units + found.other_units == 12
        assert {one.verdict for one in found.measures} == {"too-few"}
        assert one.store.holdout_units(None, since=records[-1].time + 1) == []

    drive(tmp_path, act, script=PRICED, holdout=HALF)


def test_repeated_results_are_recorded_and_summed_without_the_held_out(tmp_path: Path):
    async def act(one: Compacted) -> None:
        for name in range(12):
            await send(one, name, 4)
        records = await all_records(one, 12)
        assert all(record.repeats for record in records)
        compacted = [record for record in records if record.arm == "compacted"]
        cells = one.store.repeats(None)
        assert sum(cell.cut + cell.whole for cell in cells) == 4 * len(compacted)
        assert sum(cell.cut for cell in cells) == 3 * len(compacted)

    drive(tmp_path, act, holdout=HALF)


def test_without_a_holdout_nothing_is_drawn(tmp_path: Path):
    async def act(one: Compacted) -> None:
        await one.ask("anthropic", 3)
        (record,) = await all_records(one, 1)
        assert (record.arm, record.unit) == ("", "")
        assert one.store.holdout_units(None) == []

    drive(tmp_path, act)
    assert CompactionOptions().holdout.share == 0


@pytest.mark.parametrize("servers", [1, 2])
def test_held_out_requests_keep_all_signed_reasoning(tmp_path: Path, servers: int):
    """Other sessions with the same opening were compacted, on a store that servers share."""

    async def play() -> None:
        driver = Driver(tmp_path, 7, servers)
        driver.policy, driver.holdout = EAGER_POLICY, 0.0
        driver.servers = [driver._server() for _ in range(servers)]
        opening = driver.branches[0]
        opening.model = BOUND
        fork = opening.fork()
        for _ in range(4):
            await driver.grow(opening)  # compacted
        driver.holdout = 0.999_999
        driver.servers = [driver._server() for _ in range(servers)]
        for _ in range(6):
            await driver.grow(fork)
            assert fork.went is not None
            assert fork.went[0] == fork.messages[: len(fork.went[0])]  # as they came
        await driver.close()

    asyncio.run(asyncio.wait_for(play(), 60))


class TestOptions:
    def test_an_aa_run_needs_a_share(self):
        result = CliRunner().invoke(main, ["serve", "--port", "0", "--holdout-aa"])
        assert result.exit_code == 2
        assert "--holdout-aa needs the share of the first group" in result.output

    @pytest.mark.parametrize("share", ["1", "-0.1", "half"])
    def test_what_is_no_share_is_refused(self, share: str):
        result = CliRunner().invoke(main, ["serve", "--port", "0", "--holdout", share])
        assert result.exit_code == 2
        assert "--holdout" in result.output

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (HoldoutOptions(), []),
            (HoldoutOptions(0.1), ["Held out: 10 % of conversations are sent as they came"]),
            (HoldoutOptions(0.5, is_aa=True), ["A/A: 50 % of conversations are one group"]),
        ],
    )
    def test_the_start_says_it(self, options: HoldoutOptions, said: list[str]):
        lines = holdout_lines(options)
        assert len(lines) == len(said)
        assert all(line.startswith(words) for line, words in zip(lines, said, strict=True))
