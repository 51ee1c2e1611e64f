"""Modules that are loaded when they are first used: SDKs take seconds, and few tests need one."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Late:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # as pytest asks of whatever stands in a module
            raise AttributeError(name)
        return getattr(import_module(self._name), name)


def late(name: str) -> Any:
    """The module of this name, loaded when something is taken from it."""
    return _Late(name)
