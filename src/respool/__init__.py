"""respool keeps an agent's thread while its tool history shrinks."""

from __future__ import annotations

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
    "apply",
    "check",
    "compact",
    "expand",
    "plan",
    "repair",
]
