"""Which clew this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed() -> str:
    """The installed version of clew."""
    try:
        return version("clew")
    except PackageNotFoundError:
        return "not installed"
