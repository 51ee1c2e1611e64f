"""The installed version of respool."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The installed version of respool."""
    try:
        return version("respool")
    except PackageNotFoundError:
        return "not installed"
