"""Every pass alone, in every format: four times the history takes about four times as long."""

from __future__ import annotations

import pytest

from tests.strategies import FORMATS
from tests.test_laws import CASES, hold_linear

pytestmark = pytest.mark.bench


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", CASES)
def test_linear(name: str, format: str) -> None:
    hold_linear(name, format)
