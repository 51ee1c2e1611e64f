"""What passes cut and what of it was needed later, as the table of docs/passes.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from bench.needed import ALL, NAMES, Tally, kinds_in, total

MOST_KINDS = 7  # of one pass; the rest stands in one row
REST = "the rest"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def coded(name: str) -> str:
    """A pass by its name as code; that its offers are taken goes without saying."""
    name, comma, setting = name.removesuffix(", taken").partition(", ")
    return f"`{name}`{comma}{setting and f'`{setting}`'}" if name != "defaults" else name


def needed_markdown(tallies: Mapping[str, Tally]) -> str:
    """A row for each pass and kind."""
    ages = [f"at {age}" for age in NAMES]
    columns = ("pass", "what was cut", "cuts", "tokens", "needed", *ages, "first missed at")
    rows = (row for name, tally in tallies.items() if tally for row in _rows(name, tally))
    return markdown(columns, rows)


def _rows(name: str, tally: Tally) -> Iterator[list[str]]:
    tally = merged(tally)
    kinds = sorted(kinds_in(tally), key=REST.__eq__)  # the rest comes last
    for at, kind in enumerate((*kinds, ALL) if len(kinds) > 1 else kinds):
        cuts, needed = total(tally, "cuts", kind), total(tally, "needed", kind)
        share = f"{100 * needed / cuts:.0f} %" if needed else "0"
        tokens = f"{total(tally, 'tokens', kind):,}"
        told = [_at(tally, kind, age) for age in NAMES]
        first = "" if at else coded(name)
        yield [first, kind, f"{cuts:,}", tokens, share, *told, _missed(tally, kind)]


def merged(tally: Tally) -> Tally:
    """The same with all but the most frequent kinds in one."""
    kinds = kinds_in(tally)
    kept = set(kinds if len(kinds) <= MOST_KINDS + 1 else kinds[:MOST_KINDS])
    found: Tally = Counter()
    for (kind, what, age), count in tally.items():
        found[kind if kind in kept else REST, what, age] += count
    return found


def _at(tally: Tally, kind: str, age: str) -> str:
    cuts = total(tally, "cuts", kind, age)
    return f"{total(tally, 'needed', kind, age)}/{cuts}" if cuts else ""


def _missed(tally: Tally, kind: str) -> str:
    counts = ((age, total(tally, "missed", kind, age)) for age in NAMES)
    return ", ".join(f"{age}: {count}" for age, count in counts if count)
