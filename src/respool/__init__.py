"""respool keeps an agent's thread while its tool history shrinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import aio
    from .api import Plan, apply, check, compact, expand, plan, repair
    from .compaction.memo import Memo
    from .engine import Compaction
    from .errors import (
        BudgetError,
        PassedThrough,
        PlanMismatch,
        PolicyError,
        RespoolError,
        UnknownFormat,
        UnknownReference,
        UnreadableRequest,
    )
    from .facts import Facts
    from .integrations.transport import unwrap, wrap
    from .loops import LoopDetector, Verdict
    from .policy import Policy
    from .providers.base import Problem
    from .report import Report
    from .tools import UNLIMITED, Tool, Tools

__all__ = [
    "BudgetError",
    "Compaction",
    "Facts",
    "LoopDetector",
    "Memo",
    "PassedThrough",
    "Plan",
    "PlanMismatch",
    "Policy",
    "PolicyError",
    "Problem",
    "Report",
    "RespoolError",
    "Tool",
    "Tools",
    "UNLIMITED",
    "UnknownFormat",
    "UnknownReference",
    "UnreadableRequest",
    "Verdict",
    "aio",
    "apply",
    "check",
    "compact",
    "expand",
    "plan",
    "repair",
    "unwrap",
    "wrap",
]

# By module. Each is loaded when a name of it is first used: the command line, the hooks and the
# other modules import this package too, and need few of them.
_NAMES = {
    "api": "Plan apply check compact expand plan repair",
    "compaction.memo": "Memo",
    "engine": "Compaction",
    "errors": (
        "BudgetError PassedThrough PlanMismatch PolicyError RespoolError UnknownFormat"
        " UnknownReference UnreadableRequest"
    ),
    "facts": "Facts",
    "integrations.transport": "unwrap wrap",
    "loops": "LoopDetector Verdict",
    "policy": "Policy",
    "providers.base": "Problem",
    "report": "Report",
    "tools": "UNLIMITED Tool Tools",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    from importlib import import_module
    from importlib.util import find_spec

    if name in _MODULES:
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    elif not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
