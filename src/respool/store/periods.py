"""Days, weeks and months in local time."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Final, Literal

Period = Literal["day", "week", "month"]

SHOWN_PERIODS: Final[dict[Period, int]] = {"day": 7, "week": 8, "month": 12}  # of each, the last


def start_of(period: Period, day: date) -> date:
    """First day of the week or month of a day; a week begins on Monday."""
    match period:
        case "day":
            return day
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)


def last_periods(period: Period, today: date, count: int) -> list[tuple[date, date]]:
    """First days of the last periods and of those after them, the oldest first."""
    longest = {"day": 1, "week": 7, "month": 31}[period]
    starts = [start_of(period, today)]
    ends = [start_of(period, starts[0] + timedelta(days=longest))]
    while len(starts) < count:
        ends.append(starts[-1])
        starts.append(start_of(period, starts[-1] - timedelta(days=1)))
    return list(zip(reversed(starts), reversed(ends), strict=True))


def midnight(day: date) -> float:
    """Local midnight at the start of a day, in seconds since 1970."""
    return datetime(day.year, day.month, day.day).timestamp()
