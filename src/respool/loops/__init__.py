"""Loops of an agent: repeated calls that bring nothing new."""

from __future__ import annotations

from .detector import Loop, LoopDetector, Verdict, advice, find_loops
from .patterns import LOOP_KINDS, LoopCall, LoopKind, LoopLevel, LoopLimits

__all__ = [
    "Loop",
    "LOOP_KINDS",
    "LoopKind",
    "LoopLevel",
    "LoopLimits",
    "LoopDetector",
    "LoopCall",
    "Verdict",
    "advice",
    "find_loops",
]
