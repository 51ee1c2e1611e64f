"""What the tests in a browser share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.browser import browsing, missing


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The browser, for all tests of a file."""
    if reason := missing():
        pytest.skip(reason)
    with browsing() as started:
        yield started
