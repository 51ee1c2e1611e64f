"""Fixtures of the browser tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.e2e.browser import Look, Seen, Tab, browsing, missing


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The browser, for all tests of a file."""
    if reason := missing():
        pytest.skip(reason)
    with browsing() as started:
        yield started


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens tabs of a kind; at the end each is closed, with nothing to complain of."""
    tabs: list[Tab] = []

    def another(kind: type[Tab], *about: Any, **options: Any) -> Tab:
        tabs.append(kind(browser, *about, **options))
        return tabs[-1]

    yield another
    for one in tabs:
        one.close()


@pytest.fixture
def look(opened: Callable[..., Seen]) -> Look:
    """Opens dashboards."""
    return partial(opened, Seen)
