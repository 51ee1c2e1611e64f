"""Optional native accelerator of the forecast: found, checked and loaded once, at its first use.

The Python code is the definition and works without it; both give the same projections. The library
is a file in `native/` beside this one, which `make native` or the build of a wheel puts there.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, overload

from msgspec import Struct

VARIABLE: Final = "RESPOOL_NATIVE"  # "off", or the path of another library
_OFF: Final = ("off", "0", "no", "false")
_DEFAULT: Final = ("", "on", "1", "yes", "true")


class AcceleratorError(RuntimeError):
    """The native library cannot be used, or failed."""


class AcceleratorStatus(Struct, frozen=True):
    """The library in use, or the reason why there is none."""

    library: Any  # a ctypes library; None: the Python code works alone
    detail: str


class FlatFactors(Struct, frozen=True, gc=False):
    """The factors of a forecast: by feature and bin, and of pairs of features by line code."""

    tables: array[float]
    pairs: array[float]


class ScaledFactors(Sequence[float]):
    """The factors of lines, each multiplied by a rate up to a limit, and this by a ratio.

    Computed when they are looked at: the library multiplies them itself.
    """

    def __init__(
        self, factors: Sequence[float], *, ratio: float, rate: float, limit: float
    ) -> None:
        self.factors, self.ratio, self.rate, self.limit = factors, ratio, rate, limit

    @cached_property
    def _values(self) -> list[float]:
        ratio, rate, limit = self.ratio, self.rate, self.limit
        return [ratio * min(limit, rate * one) for one in self.factors]

    def __len__(self) -> int:
        return len(self.factors)

    @overload
    def __getitem__(self, at: int) -> float: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[float]: ...
    def __getitem__(self, at: int | slice) -> float | Sequence[float]:
        return self._values[at]

    def __iter__(self) -> Iterator[float]:
        return iter(self._values)


class IndexedState(Struct, frozen=True, gc=False):
    """The state of a result in the index."""

    changed: bool  # a code of a line is new
    share: int  # bin of the share of lines that are nowhere else
    names: int  # bin of the number of names that are nowhere else
    calls: int  # lines that calls used
    talk: int  # lines that messages used
    uses: int  # units with a call that used something new
    last_use: int  # the last of them


class Selection(Struct, frozen=True, gc=False):
    """The remaining text of a result, and the removed lines."""

    text: str
    removed: Sequence[int]
    total: int
    risk: float
    are_parts: bool


def library_name() -> str:
    """The file name of the library on this platform."""
    if sys.platform == "win32":
        return "respool_native.dll"
    return f"librespool_native.{'dylib' if sys.platform == 'darwin' else 'so'}"


@lru_cache(maxsize=1)
def accelerator() -> AcceleratorStatus:
    """The accelerator of this process, chosen at the first call."""
    return find_accelerator(os.environ.get(VARIABLE, ""))


def find_accelerator(choice: str) -> AcceleratorStatus:
    """Find and load the library that a value of RESPOOL_NATIVE names."""
    if choice.lower() in _OFF:
        return AcceleratorStatus(None, f"switched off by {VARIABLE}")
    from pathlib import Path  # lazily: slow to import

    is_named = choice.lower() not in _DEFAULT
    path = Path(choice) if is_named else Path(__file__).parent / "native" / library_name()
    if not path.is_file():
        missing = f"there is no library at {path}" if is_named else "the library is not installed"
        return AcceleratorStatus(None, missing)
    try:
        from .native_library import load_library  # lazily: ctypes is slow to import
    except ImportError as error:  # an interpreter without ctypes
        return AcceleratorStatus(None, f"{error}")
    try:
        return AcceleratorStatus(load_library(str(path)), str(path))
    except (AcceleratorError, AttributeError, OSError) as error:
        return AcceleratorStatus(None, f"the library cannot be used: {error}")
