"""Where an agent goes in circles: calls that are made again and again and bring nothing new."""

from __future__ import annotations

from .circle import KINDS, Kind, Level, Limits, Round
from .detector import LoopDetector, Verdict
from .found import Circle, circles_in
from .walk import advice

__all__ = [
    "Circle", "KINDS", "Kind", "Level", "Limits", "LoopDetector", "Round", "Verdict", "advice",
    "circles_in",
]  # fmt: skip
