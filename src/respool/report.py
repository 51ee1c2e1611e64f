"""Report of a compaction: edits, reasons and savings, counted with one counter."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, astuple

from .compaction.offers import OfferRecord
from .compaction.remainder import Remainder, describe_waiting
from .edits import Advise, Edit
from .history.refetches import Refetch
from .markers import Mimicry
from .providers.base import Repair


class TokenCounts(Struct, frozen=True, gc=False):
    """A request's tokens."""

    before: int = 0
    after: int = 0
    repaired: int = 0  # added (or removed) by repair, not part of savings
    rendered: int = 0  # added (or removed) by rendering calls as text, not part of savings
    advised: int = 0  # added by advice, not part of savings


LITTLE = 0.05  # share of the tokens: below it a report says why no more was taken out


class Report(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One compaction, in figures and reasons.

    Tokens are counted on first access: an exact count takes longer than all other work on a
    request.
    """

    format: str | None = None
    model: str | None = None
    counter: str | None = None  # "o200k" counts exactly, "estimate" is close
    tally: Callable[[], TokenCounts] = TokenCounts
    survey: Callable[[], Remainder] = Remainder
    messages: int = 0
    edits: tuple[Edit, ...] = ()
    repairs: tuple[Repair, ...] = ()
    failures: dict[str, str] = {}  # passes that were skipped, and what went wrong in them
    untouched: str | None = None  # why the request was passed on as it came
    epochs: int = 0  # how often edits were put in force so far; between epochs projections extend
    prefix: str | None = None  # the hash of this history, which facts refer to
    mimicry: tuple[Mimicry, ...] = ()  # where the model wrote what only respool writes
    refetched: tuple[Refetch, ...] = ()  # what the model fetched again after it was taken out
    trace: tuple[OfferRecord, ...] | None = None  # every offer, where that was asked for

    @cached_property
    def _counted(self) -> TokenCounts:
        return self.tally()

    @cached_property
    def remainder(self) -> Remainder:
        """Offers that wait until they pay, and results that stay, with the cause of each."""
        return self.survey()

    @property
    def tokens_before(self) -> int:
        """Tokens of the request as it came."""
        return self._counted.before

    @property
    def tokens_after(self) -> int:
        """Tokens of the projection."""
        return self._counted.after

    @property
    def tokens_repaired(self) -> int:
        """Tokens that repair added, or removed."""
        return self._counted.repaired

    @property
    def tokens_rendered(self) -> int:
        """Tokens that rendering calls as text added, or removed."""
        return self._counted.rendered

    @property
    def tokens_advised(self) -> int:
        """Tokens that advice added."""
        return self._counted.advised

    @property
    def tokens_saved(self) -> int:
        """Tokens that the edits saved, without repairs, rendering and advice."""
        added = self.tokens_repaired + self.tokens_rendered + self.tokens_advised
        return self.tokens_before + added - self.tokens_after

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        data: dict[str, Any] = {"format": self.format, "model": self.model, "counter": self.counter}
        for name in _TOKEN_FIELDS:
            data[name] = getattr(self, name)
        for name in _LIST_FIELDS:
            data[name] = msgspec.to_builtins(getattr(self, name))
        if self.trace is not None:
            data["trace"] = msgspec.to_builtins(self.trace)
        data["remainder"] = msgspec.to_builtins(self.remainder)
        return {**data, "tokens_saved": self.tokens_saved}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Report) and self.to_dict() == other.to_dict()

    def __ne__(self, other: object) -> bool:  # a Struct has one of its own
        return not self == other

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and sent to other processes with its figures, without what they are counted of."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        known = {
            "tally": partial(TokenCounts, *astuple(self._counted)),
            "survey": partial(Remainder, **asdict(self.remainder)),
        }
        return _restore_report, ({**fields, **known},)

    def __repr__(self) -> str:
        return f"<Report {self.headline()}>"

    def __str__(self) -> str:
        return self.to_text()

    def headline(self) -> str:
        """The outcome in one line."""
        if self.untouched:
            return f"passed through unchanged: {self.untouched}"
        counted = "tokens" if self.counter == "o200k" else "tokens (estimated)"
        share = 100 * self.tokens_saved / self.tokens_before if self.tokens_before else 0.0
        figures = f"{self.tokens_before:,} -> {self.tokens_after:,} {counted}"
        saving = sum(not isinstance(edit, Advise) for edit in self.edits)
        return f"{self.format}: {figures}, {share:.1f} % saved by {_pluralize(saving, 'edit')}"

    def why_so_little(self) -> str:
        """Say why nothing or little was taken out; empty if more than a twentieth was."""
        head, *causes = self.why_lines() or [""]
        return f"{head} {'; '.join(causes)}." if causes else ""

    def why_lines(self) -> list[str]:
        """The same as lines, a cause each; without a cause, none."""
        if self.untouched:
            return []
        is_changed = any(not isinstance(edit, Advise) for edit in self.edits)
        if is_changed and self.tokens_saved >= LITTLE * self.tokens_before:
            return []
        return [
            f"{'Little' if is_changed else 'Nothing'} was taken out:",
            *self.remainder.sentences(),
        ]

    def to_text(self) -> str:
        """The report for a person, a line an edit."""
        lines = [self.headline()]
        if self.untouched:
            return lines[0]
        if why := self.why_lines():
            lines += [why[0], *(f"  {cause}" for cause in why[1:])]
        elif self.remainder.offers:
            left = self.remainder
            lines.append(f"{describe_waiting(left.offers, left.offer_tokens)}.")
        advice = [edit for edit in self.edits if isinstance(edit, Advise)]
        saving = [edit for edit in self.edits if not isinstance(edit, Advise)]
        lines += [
            f"  {edit.reason} at {edit.ref}: {edit.evidence}, saved {edit.saved:,}"
            for edit in saving
        ]
        if self.repairs:
            change = f"{self.tokens_repaired:+,} tokens"
            lines.append(f"{_pluralize(len(self.repairs), 'repair')}, {change}:")
            lines += [_repair_line(one) for one in self.repairs]
        if self.tokens_rendered:
            lines.append(f"calls and results told in words, {self.tokens_rendered:+,} tokens")
        if advice:
            lines.append(
                f"advice in {_pluralize(len(advice), 'result')}, +{self.tokens_advised:,} tokens:"
            )
            lines += [f"  {edit.reason} at {edit.ref}: {edit.text}" for edit in advice]
        lines += [f"  {_describe_refetch(one)}" for one in self.refetched]
        lines += [f"  pass {name} skipped: {why}" for name, why in self.failures.items()]
        lines += [f"  {one.kind} mimicked at {one.ref}, in {one.where}" for one in self.mimicry]
        return "\n".join(lines)


__all__ = ["Report", "TokenCounts", "describe_waiting"]


def _restore_report(fields: dict[str, Any]) -> Report:
    return Report(**fields)


def _describe_refetch(one: Refetch) -> str:
    what = f"{one.tool} {one.target}".strip()
    return (
        f"fetched again at {one.ref}, stays from now on: {what}, "
        f"taken out at {one.earlier} ({one.reason}); {one.tokens:,} tokens"
    )


def _pluralize(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


_TOKEN_FIELDS = (
    "tokens_before", "tokens_after", "tokens_repaired", "tokens_rendered", "tokens_advised",
)  # fmt: skip
_LIST_FIELDS = (
    "messages", "edits", "repairs", "failures", "untouched", "epochs", "prefix", "mimicry",
    "refetched",
)  # fmt: skip


def _repair_line(repair: Repair) -> str:
    """A repair for a person, with the references of what it left out."""
    kept = f" (original {', '.join(repair.originals)})" if repair.originals else ""
    return f"  {repair.code} {repair.place}: {repair.done}{kept}"
