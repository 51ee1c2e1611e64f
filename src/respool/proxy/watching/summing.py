"""What one run came to: requests, tokens, money, and what did not go as planned."""

from __future__ import annotations

import threading
from collections import Counter

from ...store import RequestRecord


class Sums:
    """The records of a run, summed up as they are written down."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests = 0
        self.errors = 0  # answers with status 400 and above, or none
        self.before = 0  # tokens as the client sent them, about
        self.after = 0
        self.billed = 0  # requests whose price is known
        self.cost_before = 0.0
        self.cost_after = 0.0
        self.fallbacks: Counter[str] = Counter()

    def add(self, record: RequestRecord) -> None:
        """Another request is over."""
        with self._lock:
            self.requests += 1
            self.errors += record.status == 0 or record.status >= 400
            self.before += record.tokens_before
            self.after += record.tokens_after
            if record.cost_before is not None and record.cost_after is not None:
                self.billed += 1
                self.cost_before += record.cost_before
                self.cost_after += record.cost_after
            if record.fallback and record.mode == "compacted":
                self.fallbacks[record.fallback] += 1

    def told(self, *, observed: bool) -> list[str]:
        """The same in sentences."""
        if not self.requests:
            return ["no request that could be compacted came through"]
        return [
            self._requests(),
            self._tokens(observed),
            *self._money(observed),
            *self._trouble(),
        ]

    def _requests(self) -> str:
        failed = f", {self.errors} of them not answered well" if self.errors else ""
        return f"{_counted(self.requests)}{failed}"

    def _tokens(self, observed: bool) -> str:
        share = round(100 * (self.after - self.before) / self.before) if self.before else 0
        were = "would have been" if observed else "were"
        change = f"{abs(share)} % {'more' if share > 0 else 'less'}"
        return f"{self.before:,} tokens {were} sent as {self.after:,} ({change})"

    def _money(self, observed: bool) -> list[str]:
        """By the tokens that the provider reported, at list prices; nothing where it named none."""
        if not self.billed:
            return []
        of = "" if self.billed == self.requests else f" (of {_counted(self.billed)})"
        after, before = _dollars(self.cost_after), _dollars(self.cost_before)
        if observed:  # what was sent is what came
            return [f"{before} by the provider's own counts, which would have been {after}{of}"]
        return [f"{after} in place of {before}{of} by the provider's own counts"]

    def _trouble(self) -> list[str]:
        count = self.fallbacks.total()
        if not count:
            return []
        why, _ = self.fallbacks.most_common(1)[0]
        return [f"{count} fall-back{'s' if count > 1 else ''} (mostly {why})"]


def _counted(requests: int) -> str:
    """So many requests."""
    return f"{requests:,} request{'' if requests == 1 else 's'}"


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}" if abs(amount) >= 0.995 else f"${amount:.4f}"
