"""Queries of the dashboard: parameters, totals, conversations, edits, settings.

Sessions that begin with the same messages are one conversation with several branches.
"""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, cast
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from ..history.repeat_rates import excess_refetch
from ..plugins import pass_name
from ..policy import DEFAULT, NAMES, Policy
from ..store import (
    OriginTotal,
    PeriodTotal,
    RecordedEdit,
    RecordFilter,
    RequestLineage,
    RequestRecord,
    SQLStore,
    StoreUnavailable,
    UnclearName,
    resolve_name,
)
from ..store.bill_statement import state_bill
from ..store.comparison import compare_groups, comparison_fields, excess_fields
from ..store.owned import OwnedStore
from ..store.periods import SHOWN_PERIODS, last_periods, midnight
from ..store.savings import add_savings, describe_saving, saving_of_total, state_record
from ..store.teams import Team
from ..tools.switch_off import switch_off_line

MAX_ROW_ID: Final = 2**63 - 1  # max row id
_MAX_FIELDS: Final = 16
_MAX_NAME_CHARS: Final = 200  # characters of a name
_MAX_FOLDER_CHARS: Final = 400  # characters of an agent, a folder or a model
_MAX_WORDS: Final = 8  # that are searched for

Query = Mapping[str, str]


class QueryError(Exception):
    """Error of a query: its HTTP status and a sentence."""

    def __init__(self, status: int, why: str) -> None:
        self.status = status
        self.why = why
        super().__init__(status, why)


def describe_error(error: StoreUnavailable, team: Team | None) -> str:
    """A store's error; a team does not learn where the store is."""
    return str(error) if team is None else f"The store cannot be used ({error.reason})."


def parse_query(raw: bytes) -> Query:
    """Parse a query string; of repeated fields the last one counts.

    Empty fields count as missing, but an agent, a project or a model may be unknown.
    """
    text = raw.decode("latin-1")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise QueryError(400, "There are too many fields in the query.") from None
    return {name: value for name, value in pairs if value or name in _ORIGINS}


def parse_name(query: Query, key: str) -> str:
    """Parse a required name."""
    given = query.get(key, "")
    if not 0 < len(given) <= _MAX_NAME_CHARS:
        raise QueryError(400, f"{key} has to be given, in at most {_MAX_NAME_CHARS} characters.")
    return given


def parse_integer(query: Query, key: str, default: int, maximum: int) -> int:
    """Parse a whole number from 0 to a maximum."""
    given = query.get(key)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 20 and int(given) <= maximum):
        raise QueryError(400, f"{key} has to be a whole number from 0 to {maximum}.")
    return int(given)


def parse_time(query: Query, key: str) -> float | None:
    """Parse a time in seconds since 1970; None if missing."""
    given = query.get(key)
    if given is None:
        return None
    try:
        seconds = float(given) if len(given) <= 40 else math.nan
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < 1e12:
        raise QueryError(400, f"{key} has to be a time in seconds since 1970.")
    return seconds


class BreakerStatus(Struct, frozen=True):
    """State of the circuit breaker."""

    phase: str
    why: str


class CalibrationStatus(Struct, frozen=True):
    """Ratio of a provider's token count to respool's."""

    format: str
    model: str
    factor: float
    requests: int


class EffectiveSetting(Struct, frozen=True):
    """Setting with its value and origin."""

    name: str
    value: Any
    origin: str


def _closed_breaker() -> BreakerStatus:
    return BreakerStatus("closed", "Requests are compacted.")


def _no_calibrations() -> tuple[CalibrationStatus, ...]:
    return ()


def _compacting() -> str:
    return "compact"


class ProxyStatus(Struct, frozen=True, kw_only=True):
    """Status of the proxy."""

    version: str = ""  # respool's version
    policy: Policy = Policy()
    mode: Callable[[], str] = _compacting
    can_switch: bool = True  # the visitor may change the mode
    names_files: bool = True  # as origins of settings; they are the server's
    breaker: Callable[[], BreakerStatus] = _closed_breaker
    calibrations: Callable[[], tuple[CalibrationStatus, ...]] = _no_calibrations


Mode = Literal["compact", "observe", "pause"]


class ProxyControl(Struct, frozen=True, kw_only=True):
    """What may be changed of the proxy."""

    switch: Callable[[Mode], None]
    # Of an owner, or of anybody; False: there is no such conversation.
    pin: Callable[[str, bool, str | None], bool]


def effective_settings(policy: Policy) -> list[EffectiveSetting]:
    """List every setting with its value and its origin."""
    origins = policy.origins()
    values = [
        EffectiveSetting(name, _json_value(getattr(policy, name)), origins[name]) for name in NAMES
    ]
    declared = [
        EffectiveSetting(f"tools.{tool.name}", _json_value(tool), origins[f"tools.{tool.name}"])
        for tool in policy.tools
    ]
    return [*(one for one in values if one.name != "tools"), *declared]


def _json_value(value: object) -> Any:
    """Convert a value to JSON data; a user's pass by its name."""
    if isinstance(value, tuple):
        return [_json_value(item) for item in cast("tuple[object, ...]", value)]
    if value is None or isinstance(value, str | int | float):
        return value
    return pass_name(value) if callable(value) else repr(value)


_FIRST_BRANCH = 1


def assign_branches(requests: Iterable[RequestLineage]) -> dict[str, int]:
    """Assign each request to a branch, numbered in order of appearance.

    A request whose parent already has a successor begins a branch. A request without a known
    parent (a changed history, a lost record) stays on the branch of the request before it.
    """
    found: dict[str, int] = {}
    ended: dict[str, int] = {}  # by prefix: the branch that it ends
    unfollowed: dict[str, int] = {}  # prefixes without a successor
    count = last = _FIRST_BRANCH
    for one in requests:
        at = ended.get(one.prefix) or unfollowed.get(one.parent)
        if at is None and one.prefix and one.parent in ended:
            count += 1
            at = count
        found[one.id] = last = at or ended.get(one.parent, last)
        if one.prefix and one.prefix not in ended:
            unfollowed.pop(one.parent, None)
            ended[one.prefix] = unfollowed[one.prefix] = last
    return found


RANGES: Final[Mapping[str, tuple[float, float]]] = {  # range and step in seconds
    "hour": (3_600.0, 60.0),
    "day": (86_400.0, 1_800.0),
    "week": (604_800.0, 21_600.0),
    "month": (2_592_000.0, 86_400.0),
}
_SERVERS: Final = "the server"  # origin of a setting
_PAGE_SIZE: Final = 50
_MAX_PAGE_SIZE: Final = 200
_MAX_REQUESTS: Final = 500  # requests of a conversation per page
_MAX_NOTABLE: Final = 100
_PRIVATE_FIELDS: Final = ("owner", "terms", "edits", "prefix", "parent", "facts", "unit", "repeats")
_MAX_TEXT_CHARS: Final = 400_000  # max characters of one text
_SLOTS_PER_DAY: Final = 48  # of a chosen day
_END_OF_TIME: Final = 4e11  # seconds since 1970
_ORIGINS: Final = ("agent", "project", "model")
_MAX_CHOICES: Final = 100  # agents, projects or models that are listed
_MAX_EXPORTED: Final = 100_000  # requests
_EVIDENCE_SECONDS: Final = 60.0


class StoreHealth(Struct, frozen=True, kw_only=True):
    """State of the store."""

    path: str
    bytes: int
    dropped: int  # records that were not written
    moved_aside: list[str]  # damaged files that were replaced
    trouble: str  # why it cannot be used; empty: it works


class Overview(Struct, frozen=True, kw_only=True):
    """Totals over a period."""

    version: str
    mode: str
    team: str  # whose figures these are; empty: all
    can_switch: bool  # the mode
    observe: bool
    since: float
    step: float
    totals: list[PeriodTotal]
    saving: dict[str, Any]  # of the totals
    stated: str  # the same in words, as the command line has it
    latest: float | None  # time of the latest known request
    breaker: BreakerStatus
    calibrations: tuple[CalibrationStatus, ...]
    store: StoreHealth


class EditSummary(Struct, frozen=True):
    """One edit of a request."""

    at: int  # index of the edit
    reason: str
    place: str
    evidence: str
    saved: int
    tool: str
    target: str  # a path or a command
    has_before: bool
    has_after: bool
    replaces: bool  # a replacement text exists, stored or not


class EditText(Struct, frozen=True):
    """One side of an edit."""

    text: str
    length: int  # characters of the whole text


class EditDetail(Struct, frozen=True):
    """Edit with its text before and after; None: not stored."""

    edit: EditSummary
    before: EditText | None
    after: EditText | None


class DashboardQueries:
    """Queries on the store, for the owner of its file, or on what a team has in it."""

    def __init__(
        self,
        store: SQLStore | OwnedStore,
        proxy: ProxyStatus,
        clock: Callable[[], float] = time.time,
        *,
        teams: Callable[[], Iterable[Team]] = tuple[Team],
        team: Team | None = None,
    ) -> None:
        self._store = store
        self._teams = teams  # that can be chosen
        self._team = team  # None: all that is in the store
        self._proxy = proxy
        self._clock = clock
        self._evidence: tuple[float, dict[str, Any]] | None = None  # when it was read
        self.endpoints: Mapping[str, Callable[[Query], Any]] = {
            "overview": self.overview,
            "conversations": self.conversations,
            "requests": self.requests,
            "edits": self.edits,
            "edit": self.edit,
            "notable": self.notable,
            "origins": self.origins,
            "tables": self.tables,
            "bill": self.bill,
            "evidence": self.evidence,
            "settings": self.settings,
        }

    def overview(self, query: Query) -> Overview:
        """Totals over time, and the status of proxy and store."""
        since, until, step = self._time_range(query)
        totals, latest, trouble = list[PeriodTotal](), None, ""
        try:
            latest = next((one.last for one in self._store.conversations(None, limit=1)), None)
            totals = self._store.totals(
                None, since=since, until=until, step=step, only=parse_filter(query)
            )
            if why := self._store.last_error():
                trouble = describe_error(StoreUnavailable(self._store.location, why), self._team)
        except StoreUnavailable as error:
            trouble = describe_error(error, self._team)
        around = self._proxy
        saving = add_savings(map(saving_of_total, totals))
        return Overview(
            version=around.version,
            mode=around.mode(),
            team="" if self._team is None else self._team.name,
            can_switch=around.can_switch,
            observe=around.mode() == "observe",
            since=since,
            step=step,
            totals=totals,
            saving=saving.to_dict(),
            stated=describe_saving(saving),
            latest=latest,
            breaker=around.breaker(),
            calibrations=around.calibrations(),
            store=self._health(trouble),
        )

    def conversations(self, query: Query) -> dict[str, Any]:
        """Page of conversations, latest first, and the start of the next page."""
        limit = parse_integer(query, "limit", _PAGE_SIZE, _MAX_PAGE_SIZE)
        last, id = parse_time(query, "last"), parse_integer(query, "id", 0, MAX_ROW_ID)
        behind = None if last is None else (last, id)
        only = parse_filter(query)
        found = self._store.conversations(None, behind=behind, limit=limit, only=only)
        more = bool(found) and len(found) == limit
        return {
            "conversations": [_public_fields(one) for one in found if one.requests],
            "next": {"last": found[-1].last, "id": str(found[-1].id)} if more else None,
        }

    def requests(self, query: Query) -> dict[str, Any]:
        """Requests of a conversation in order, after a time."""
        conversation = self._conversation(query)
        after = parse_time(query, "after") or 0.0
        found = self._store.requests(conversation, None, after=after, limit=_MAX_REQUESTS)
        at = assign_branches(self._store.lineage(conversation, None)) if found else {}
        listed = [
            {**_public_fields(state_record(one)), "branch": at.get(one.id, 1)} for one in found
        ]
        return {"requests": listed, "more": len(found) == _MAX_REQUESTS}

    def _conversation(self, query: Query) -> str:
        """The conversation that a query names, by its name or a unique beginning of it."""
        try:
            return resolve_name(self._store, "conversation", parse_name(query, "conversation"))
        except UnclearName as error:
            raise QueryError(400, str(error)) from None

    def notable(self, query: Query) -> dict[str, Any]:
        """Requests that broke a prefix, failed, fell back or fetched again, latest first."""
        since, _, _ = self._time_range(query)
        behind, only = parse_time(query, "behind"), parse_filter(query)
        found = self._store.notable(None, since=since, behind=behind, limit=_MAX_NOTABLE, only=only)
        return {
            "requests": [_public_fields(state_record(one)) for one in found],
            "more": len(found) == _MAX_NOTABLE,
        }

    def edits(self, query: Query) -> dict[str, Any]:
        """Edits that took effect with a request."""
        made = self._edits(query)
        kept = self._store.readable_refs(
            {ref for one in made for ref in (one.ref, one.after) if ref}, None
        )
        return {"edits": [_summarize_edit(at, one, kept) for at, one in enumerate(made)]}

    def edit(self, query: Query) -> EditDetail:
        """One edit with its text before and after."""
        made, at = self._edits(query), parse_integer(query, "at", 0, MAX_ROW_ID)
        if at >= len(made):
            raise QueryError(404, "That request has no such edit.")
        one = made[at]
        before, after = self._text(one.ref), self._text(one.after)
        kept = frozenset(ref for ref in (one.ref, one.after) if ref)
        return EditDetail(_summarize_edit(at, one, kept), before, after)

    def origins(self, _query: Query) -> dict[str, list[str]]:
        """Agents, projects and models that filters can name, the most used first."""
        found = self._store.totals_by_origin(None, since=0.0, until=_END_OF_TIME)
        teams = [one.name for one in self._teams()]
        return {"teams": teams} | {
            f"{name}s": [
                value
                for value, total in _sums_by(found, name).items()
                if value or total["requests"]
            ][:_MAX_CHOICES]
            for name in _ORIGINS
        }

    def tables(self, query: Query) -> dict[str, Any]:
        """Totals of the last days, weeks or months, and in these by agent, project and model."""
        period = query.get("period", "day")
        if period not in SHOWN_PERIODS:
            raise QueryError(400, f"period has to be one of {', '.join(SHOWN_PERIODS)}.")
        today = datetime.fromtimestamp(self._clock()).date()
        spans = last_periods(period, today, SHOWN_PERIODS[period])
        only = parse_filter(query)
        rows: list[dict[str, Any]] = []
        for start, end in reversed(spans):
            since, until = midnight(start), midnight(end)
            found = self._store.totals(
                None, since=since, until=until, step=until - since, only=only
            )
            rows += [{"name": start.isoformat(), **_figures(one)} for one in found]
        by = self._store.totals_by_origin(
            None, since=midnight(spans[0][0]), until=midnight(spans[-1][1]), only=only
        )
        named = {
            f"{name}s": [{"name": value, **total} for value, total in _sums_by(by, name).items()][
                :_MAX_CHOICES
            ]
            for name in _ORIGINS
        }
        named["teams"] = self._team_rows(midnight(spans[0][0]), midnight(spans[-1][1]), only)
        return {"period": period, "since": spans[0][0].isoformat(), "periods": rows, **named}

    def _team_rows(self, since: float, until: float, only: RecordFilter) -> list[dict[str, Any]]:
        """Totals by team; those without a request are left out."""
        rows: list[dict[str, Any]] = []
        for team in self._teams() if self._team is None else ():
            found = self._store.totals(
                team.owner, since=since, until=until, step=until - since, only=only
            )
            rows += [{"name": team.name, **_figures(one)} for one in found]
        return sorted(rows, key=lambda row: (-row["cost_before"], -row["requests"], row["name"]))

    def bill(self, query: Query) -> dict[str, Any]:
        """What the head, pauses, misses and keep-alive pings cost, and tools never called."""
        since, until, _ = self._time_range(query)
        found = self._store.bill(None, since=since, until=until)
        tools = [
            {**msgspec.to_builtins(one), "off": switch_off_line(one.agent, one.name)}
            for one in found.tools[:_MAX_CHOICES]
        ]
        return {
            "sentences": state_bill(found),
            "bill": {**msgspec.to_builtins(found), "tools": tools},
        }

    def evidence(self, _query: Query) -> dict[str, Any]:
        """Groups of a holdout compared, and refetches after a cut, over all that is recorded.

        The page asks every few seconds, and this reads all records: it is read once a minute.
        """
        now = self._clock()
        if self._evidence is None or not 0 <= now - self._evidence[0] < _EVIDENCE_SECONDS:
            self._evidence = now, self._read_evidence()
        return self._evidence[1]

    def _read_evidence(self) -> dict[str, Any]:
        return {
            "holdout": [
                comparison_fields(one) for one in compare_groups(self._store.holdout_units(None))
            ],
            "excess_refetch": excess_fields(excess_refetch(self._store.repeats(None))),
        }

    def export(self, query: Query) -> bytes:
        """CSV of all requests that the filters name, the latest first."""
        only = parse_filter(query)
        if only.since is None:
            since, until, _ = self._time_range(query)
            only = msgspec.structs.replace(only, since=since, until=until)
        return to_csv(self._store.records(None, only=only, limit=_MAX_EXPORTED))

    def settings(self, _query: Query) -> dict[str, list[EffectiveSetting]]:
        """Settings in force."""
        found = effective_settings(self._proxy.policy)
        if self._team is not None and not self._proxy.names_files:
            own = DEFAULT, f"team {self._team.name}"
            found = [
                one if one.origin in own else msgspec.structs.replace(one, origin=_SERVERS)
                for one in found
            ]
        return {"settings": found}

    def _edits(self, query: Query) -> tuple[RecordedEdit, ...]:
        found = self._store.edits(parse_name(query, "request"), None)
        if found is None:
            raise QueryError(404, "There is no such request, or it was forgotten.")
        return found

    def _text(self, ref: str) -> EditText | None:
        text = self._store.original(ref, None) if ref else None
        if text is None:
            return None
        # Agents cut texts inside a character; JSON has no lone surrogates.
        sound = text[:_MAX_TEXT_CHARS].encode("utf-8", "replace").decode("utf-8")
        return EditText(sound, len(text))

    def _time_range(self, query: Query) -> tuple[float, float, float]:
        """Time range and step, rounded to whole steps so that responses can be cached."""
        named = query.get("range", "day")
        if named not in RANGES:
            raise QueryError(400, f"range has to be one of {', '.join(RANGES)}.")
        back, step = RANGES[named]
        since, until = parse_time(query, "since"), parse_time(query, "until")
        if since is not None and until is not None and since < until:
            return since, until, max(1.0, (until - since) / _SLOTS_PER_DAY)
        until = (self._clock() // step + 1) * step
        return until - back, until, step

    def _health(self, trouble: str) -> StoreHealth:
        store = self._store
        if self._team is not None:
            return StoreHealth(path="", bytes=0, dropped=0, moved_aside=[], trouble=trouble)
        try:
            size = store.size()
            aside = [path.name for path in store.quarantined_files()]
        except (OSError, StoreUnavailable):
            size, aside = 0, []
        return StoreHealth(
            path=str(store.location),
            bytes=size,
            dropped=store.dropped,
            moved_aside=aside,
            trouble=trouble,
        )


def parse_filter(query: Query) -> RecordFilter:
    """Parse the filters of a query; what is missing filters nothing."""
    named = {name: query.get(name) for name in _ORIGINS}
    for name, value in named.items():
        if value is not None and len(value) > _MAX_FOLDER_CHARS:
            raise QueryError(400, f"{name} has at most {_MAX_FOLDER_CHARS} characters.")
    words = query.get("search", "")
    if len(words) > _MAX_NAME_CHARS:
        raise QueryError(400, f"search has at most {_MAX_NAME_CHARS} characters.")
    return RecordFilter(
        **named,
        since=parse_time(query, "since"),
        until=parse_time(query, "until"),
        words=tuple(words.split()[:_MAX_WORDS]),
    )


_SUMMED: Final = tuple(name for name in PeriodTotal.__struct_fields__ if name != "start")


def _figures(total: PeriodTotal) -> dict[str, float]:
    return {name: getattr(total, name) for name in _SUMMED}


def _sums_by(totals: Iterable[OriginTotal], name: str) -> dict[str, dict[str, float]]:
    """Sums by agent, project or model; the one with the largest bill first."""
    found: dict[str, dict[str, float]] = {}
    for one in totals:
        held = found.setdefault(getattr(one, name), dict.fromkeys(_SUMMED, 0))
        for key, value in _figures(one.total).items():
            held[key] += value
    return dict(
        sorted(found.items(), key=lambda one: (-one[1]["cost_before"], -one[1]["requests"], one[0]))
    )


_EXPORTED: Final = (
    "time", "agent", "project", "model", "conversation", "prompt", "mode", "status",
    "tokens_before", "tokens_after", "saved", "cost_before", "cost_after", "cost_uncached",
    "prefix_break", "fallback", "milliseconds", "id",
)  # fmt: skip
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")  # that a spreadsheet would calculate


def to_csv(records: Iterable[RequestRecord]) -> bytes:
    """Table of requests, as spreadsheets read it; no cell of text is a formula."""
    made = io.StringIO(newline="")
    writer = csv.writer(made)
    writer.writerow(_EXPORTED)
    for record in records:
        values = [getattr(record, name) for name in _EXPORTED[1:]]
        time = datetime.fromtimestamp(record.time).astimezone().isoformat(timespec="seconds")
        writer.writerow([time, *map(_cell, values)])
    return made.getvalue().encode("utf-8", "replace")


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    return f"'{value}" if value.startswith(_FORMULA) else value


def _summarize_edit(at: int, one: RecordedEdit, stored: frozenset[str]) -> EditSummary:
    return EditSummary(
        at,
        one.reason,
        one.place,
        one.evidence,
        one.saved,
        one.tool,
        one.target,
        one.ref in stored,
        one.after in stored,
        bool(one.after),
    )


def _public_fields(one: Struct | RequestRecord) -> dict[str, Any]:
    """Fields without the owner: not even the hash of a key leaves the store."""
    fields: dict[str, Any] = msgspec.to_builtins(one)
    return {key: value for key, value in fields.items() if key not in _PRIVATE_FIELDS}
