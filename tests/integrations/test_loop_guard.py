"""Loop detection between the hooks before and after a call."""

from __future__ import annotations

from respool.integrations.loop_guard import MAX_PENDING, LoopGuard

READ = ("Read", {"file_path": "a.py"})


def test_verdict_of_a_call_is_given_with_its_result() -> None:
    guard = LoopGuard()
    begun, ended = [], []
    for call in range(10):
        begun.append(guard.begin("c", call, *READ).action)
        ended.append(guard.end("c", call, "print(1)").action)
    assert begun == ended
    assert begun[:3] == ["allow", "allow", "advise"]
    assert begun[-1] == "refuse"


def test_calls_of_one_batch_are_no_loop() -> None:
    guard = LoopGuard()
    for call in range(4):
        assert guard.begin("c", call, *READ, batch="turn").action == "allow"
    for call in range(4):
        guard.end("c", call, "print(1)")
    assert guard.ask("c", *READ, batch="turn").action == "allow"


def test_results_of_unknown_calls_are_ignored() -> None:
    guard = LoopGuard()
    for call in range(9):
        assert guard.end("c", call, "print(1)").action == "allow"
    assert guard.ask("c", *READ).action == "allow"


def test_abandoned_calls_are_forgotten() -> None:
    guard = LoopGuard()
    for call in range(MAX_PENDING + 5):
        guard.begin("c", call, *READ)
    assert len(guard._pending) == MAX_PENDING
