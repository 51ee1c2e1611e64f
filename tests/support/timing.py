"""Time limits that hold on a busy machine."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Work = Callable[[], object]
ROUNDS = 12  # of which one calm one is enough


def takes_at_most(times: float, long: Work, short: Work, rounds: int = ROUNDS) -> None:
    """The long work takes at most so many times as long as the short one.

    Their shortest times are compared, and both are tried again until they agree with that or
    have been tried often: what else the machine does can make work look slow, never fast.
    """
    least_long = least_short = float("inf")
    with _own_garbage():
        short()
        for _ in range(rounds):
            least_short = min(least_short, seconds(short))
            least_long = min(least_long, seconds(long))
            if least_long <= times * least_short:
                return
    took = f"{least_long:.4f} s against {least_short:.4f} s"
    raise AssertionError(f"{took}: {least_long / least_short:.1f} times, at most {times} allowed")


def seconds(work: Work) -> float:
    """The time of the processor that a piece of work takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


@contextmanager
def _own_garbage() -> Iterator[None]:
    """Collections look through what the work makes, not through what all tests before it left."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
