"""Which respool this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed() -> str:
    """The installed version of respool."""
    try:
        return version("respool")
    except PackageNotFoundError:
        return "not installed"
