"""Every law, for every pass, in every format, on histories whole and broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from respool.compaction.evaluation import select_passes
from respool.passes import OPT_IN, PASSES, Pass
from respool.policy import Policy
from tests.laws import laws
from tests.laws.sessions import long_session
from tests.laws.subject import (
    EAGER,
    LEAN,
    MARKERS,
    ORDINARY,
    PRICED,
    SMALL_SOURCES,
    SUBJECTS,
    compactor,
    real,
)
from tests.laws.trial_passes import fail
from tests.strategies import (
    FORMATS,
    arbitrary_json,
    arbitrary_json_messages,
    broken,
    growing,
    requests,
)

quick = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)
formats = pytest.mark.parametrize("format", FORMATS)
# Every pass takes all at once; together they also wait until what they offer pays.
USUAL = tuple(one for one in PASSES if one.__name__ not in OPT_IN)
CASES: dict[str, tuple[tuple[Pass, ...], Policy]] = {
    **{name: (passes, EAGER) for name, passes in SUBJECTS.items()},
    "priced": (USUAL, PRICED),
    "lean": (USUAL, LEAN),
    "all, priced": (SUBJECTS["all"], PRICED),
    **{name: (select_passes(policy), policy) for name, policy in SMALL_SOURCES.items()},
    "advised": (USUAL, EAGER.replace(advise=True)),
}
subjects = pytest.mark.parametrize(("passes", "policy"), CASES.values(), ids=CASES.keys())
# Edits that shape a part are recognised again; those that take parts out leave nothing to shape.
shaping = pytest.mark.parametrize(
    "passes", [(one,) for one in PASSES], ids=[one.__name__ for one in PASSES]
)


def listed(check: Callable[..., None], strategy: Any, *before: Any, **extra: Any) -> None:
    """Run one law over the examples of a strategy whose history is a list."""

    @quick
    @given(strategy)
    def run(example: Any) -> None:
        one = example[-1] if isinstance(example, list) else example
        if all(not isinstance(one.get(name), str) for name in ("messages", "input", "contents")):
            check(*before, example, **extra)

    run()


@formats
@subjects
def test_faithful(format: str, passes: tuple[Pass, ...], policy: Policy) -> None:
    listed(laws.faithful, requests(format), compactor(*passes, format=format, usual=policy), format)


@formats
@subjects
def test_valid_when_whole(format: str, passes: tuple[Pass, ...], policy: Policy) -> None:
    listed(
        laws.valid,
        requests(format),
        compactor(*passes, format=format, usual=policy),
        format,
        whole=True,
    )


@formats
@subjects
def test_valid_when_broken(format: str, passes: tuple[Pass, ...], policy: Policy) -> None:
    listed(
        laws.valid,
        broken(format),
        compactor(*passes, format=format, usual=policy),
        format,
        whole=False,
    )


@formats
def test_repair_touches_only_what_is_broken(format: str) -> None:
    listed(
        laws.repairs_only_what_is_broken,
        requests(format) | broken(format),
        compactor(format=format),
        format,
    )


@formats
@subjects
def test_small(format: str, passes: tuple[Pass, ...], policy: Policy) -> None:
    listed(
        laws.small,
        requests(format) | broken(format),
        compactor(*passes, format=format, usual=policy),
        format,
    )


@formats
@subjects
def test_stable(format: str, passes: tuple[Pass, ...], policy: Policy) -> None:
    listed(laws.stable, growing(format), compactor(*passes, format=format, usual=policy), format)


@formats
@subjects
def test_reproducible(format: str, passes: tuple[Pass, ...], policy: Policy) -> None:
    listed(
        laws.reproducible, growing(format), compactor(*passes, format=format, usual=policy), format
    )


@formats
@subjects
def test_reproducible_when_broken(format: str, passes: tuple[Pass, ...], policy: Policy) -> None:
    listed(
        laws.reproducible,
        broken(format).map(lambda one: [one]),
        compactor(*passes, format=format, usual=policy),
        format,
    )


@formats
@subjects
def test_reversible(format: str, passes: tuple[Pass, ...], policy: Policy) -> None:
    listed(
        laws.reversible, requests(format), compactor(*passes, format=format, usual=policy), format
    )


@formats
@shaping
def test_honest(format: str, passes: tuple[Pass, ...]) -> None:
    listed(
        laws.honest, requests(format) | broken(format), compactor(*passes, format=format), format
    )


@formats
@shaping
def test_idempotent(format: str, passes: tuple[Pass, ...]) -> None:
    listed(laws.idempotent, requests(format), compactor(*passes, format=format), format)


@formats
@shaping
def test_nothing_is_shaped_twice(format: str, passes: tuple[Pass, ...]) -> None:
    compact = compactor(*passes, format=format, usual=PRICED)
    listed(laws.shapes_nothing_twice, requests(format), compact, format)


@formats
def test_a_failing_pass_is_skipped_and_reported(format: str) -> None:
    @quick
    @given(requests(format))
    def run(request: dict[str, Any]) -> None:
        faulty, sound = compactor(fail, *PASSES)(request), real(request)
        assert faulty.request == sound.request
        if sound.report.epochs:
            assert faulty.report.failures == {"fail": "ZeroDivisionError: a planted bug"}

    run()


@quick
@given(arbitrary_json() | arbitrary_json_messages())
def test_harmless(anything: Any) -> None:
    laws.harmless(real, anything)


@formats
@subjects
def test_linear(format: str, passes: tuple[Pass, ...], policy: Policy) -> None:
    ordinary = ORDINARY.replace(eager=policy.eager)
    laws.linear(
        compactor(*passes), lambda exchanges: long_session(format, exchanges), policy=ordinary
    )


@pytest.mark.parametrize("format", MARKERS)
def test_a_mark_of_our_own_is_valid_and_changes_nothing_else(format: str) -> None:
    listed(
        laws.valid, requests(format), compactor(MARKERS[format], format=format), format, whole=True
    )
    listed(laws.stable, growing(format), compactor(MARKERS[format], format=format), format)
    listed(laws.reproducible, growing(format), compactor(MARKERS[format], format=format), format)
