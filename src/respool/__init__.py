"""respool keeps an agent's thread while its tool history shrinks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from .loops import LoopDetector, Verdict
from .policy import Policy
from .providers.base import Problem
from .report import Report
from .tools import UNLIMITED, Tool, Tools

if TYPE_CHECKING:
    from . import aio
    from .integrations.transport import unwrap, wrap

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

# Loaded when first used: most users need neither.
_LATE = {"aio": "aio", "unwrap": "integrations.transport", "wrap": "integrations.transport"}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_LATE[name]}")
    return module if name == "aio" else getattr(module, name)
