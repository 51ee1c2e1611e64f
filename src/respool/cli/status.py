"""`respool status`: the proxy, the store and what was saved, on one screen."""

from __future__ import annotations

import http.client
import json
import os
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import click
from msgspec import Struct

from ..errors import RespoolError
from ..store.periods import midnight, start_of
from ..store.savings import Saving, describe_saving
from .console import CommandError, Table, show
from .options import json_option, open_recorded_store, resolve_store_location, store_option, to_json
from .stats import NOTHING_RECORDED, SavingsByOrigin, saving_between, savings_by_origin

if TYPE_CHECKING:
    from ..store import SQLStore

DEFAULT_URL: Final = "http://127.0.0.1:7733"  # of `respool serve`
_TIMEOUT: Final = 1.0  # seconds
_MAX_BYTES: Final = 10_000  # of an answer
_MODES: Final = {
    "observe": "observes, changes nothing",
    "pause": "is paused and passes requests on as they come",
}

url_option = click.option(
    "--url",
    default=DEFAULT_URL,
    show_default=True,
    metavar="URL",
    help="Address of the proxy. Its token is taken from RESPOOL_TOKEN.",
)


class ProxyHealth(Struct, frozen=True, kw_only=True):
    """Answer of a proxy's health endpoint; empty members were withheld or not understood."""

    url: str
    is_listening: bool = False
    is_respool: bool = False
    version: str = ""
    mode: str = ""
    store: str = ""
    breaker: str = ""
    breaker_reason: str = ""
    why: str = ""  # why it cannot be reached

    @property
    def is_well(self) -> bool:
        """Report whether a respool proxy answers, and nothing is wrong that it tells."""
        return self.is_respool and self.store in ("", "ok") and self.breaker in ("", "closed")

    def describe(self) -> str:
        """Describe the state in a sentence."""
        if not self.is_listening:
            return f"not listening on {self.url} ({self.why})"
        if not self.is_respool:
            return f"something else than respool answers on {self.url}"
        if not self.version:
            return f"listening on {self.url}; it asks for its token for more (RESPOOL_TOKEN)"
        does = _MODES.get(self.mode, "compacts requests")
        store = "" if self.store == "ok" else f"; its store is {self.store}"
        breaker = "" if self.breaker == "closed" else f": {self.breaker_reason}"
        return (
            f"listening on {self.url}, version {self.version}, {does}; "
            f"circuit breaker {self.breaker}{breaker}{store}"
        )


def ask_health(url: str, token: str | None, timeout: float = _TIMEOUT) -> ProxyHealth:
    """Ask a proxy how it is. The token goes only to what answers as respool does without it."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise CommandError(f"--url: {url!r} is not allowed; write it as {DEFAULT_URL}.")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    try:
        answer = _get(kind(host, port, timeout=timeout), {})
        if token and answer == {"status": "ok"}:
            named = {"x-respool-token": token}
            answer = _get(kind(host, port, timeout=timeout), named) or answer
    except (OSError, http.client.HTTPException) as error:
        is_listening = isinstance(error, http.client.HTTPException)
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return ProxyHealth(url=shown, is_listening=is_listening, why=why)
    breaker = answer.get("circuit_breaker")
    breaker = cast(dict[str, Any], breaker) if isinstance(breaker, dict) else {}
    return ProxyHealth(
        url=shown,
        is_listening=True,
        is_respool=answer == {"status": "ok"} or "circuit_breaker" in answer,
        version=str(answer.get("version", "")),
        mode=str(answer.get("mode", "")),
        store=str(answer.get("store", "")),
        breaker=str(breaker.get("phase", "")),
        breaker_reason=str(breaker.get("reason", "")),
    )


def _get(connection: http.client.HTTPConnection, headers: dict[str, str]) -> dict[str, Any]:
    """Get the health of a server; empty if the answer is no JSON object."""
    try:
        connection.request("GET", "/healthz", headers=headers)
        found = json.loads(connection.getresponse().read(_MAX_BYTES))
    except (ValueError, RecursionError):
        return {}
    finally:
        connection.close()
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


class StoreStatus(Struct, frozen=True, kw_only=True):
    """State of the store, and what its records sum up to."""

    path: str
    exists: bool = False
    bytes: int = 0
    trouble: str = ""  # why it cannot be used; empty: it can
    damaged: tuple[str, ...] = ()  # damaged files beside it
    today: Saving = Saving()
    week: Saving = Saving()
    all: Saving = Saving()
    origins: SavingsByOrigin = SavingsByOrigin()

    def describe(self) -> str:
        """Describe the state in a sentence."""
        if self.trouble:
            return self.trouble
        if not self.exists:
            return f"{self.path}: not made yet"
        aside = f"; damaged and moved aside: {', '.join(self.damaged)}" if self.damaged else ""
        return f"{self.path}: {format_bytes(self.bytes)}, healthy{aside}"


def format_bytes(size: int) -> str:
    """Format a size in bytes.

    >>> format_bytes(12), format_bytes(3_400_000)
    ('12 bytes', '3.4 MB')
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def read_store(store_file: str | None) -> StoreStatus:
    """Read the state of the store and the savings of today, this week and in all."""
    path = str(resolve_store_location(store_file))
    try:
        with open_recorded_store(store_file) as store:
            return StoreStatus(path=path) if store is None else _read(store)
    except RespoolError as error:
        return StoreStatus(path=path, exists=True, trouble=str(error))


def _read(store: SQLStore) -> StoreStatus:
    today = datetime.now().date()
    return StoreStatus(
        path=str(store.location),
        exists=True,
        bytes=store.size(),
        damaged=tuple(file.name for file in store.quarantined_files()),
        today=saving_between(store, midnight(today)),
        week=saving_between(store, midnight(start_of("week", today))),
        all=saving_between(store, 0.0),
        origins=savings_by_origin(store, 0.0),
    )


@click.command()
@url_option
@store_option
@json_option
def status(url: str, store_file: str | None, as_json: bool) -> None:
    """Show the proxy, the store and what was saved, on one screen."""
    held = read_store(store_file)
    proxy = ask_health(url, os.environ.get("RESPOOL_TOKEN") or None)
    if as_json:
        click.echo(to_json(_to_json(proxy, held)))
        return
    hint = (
        "" if proxy.is_listening else "; respool serve starts one, and respool run starts its own"
    )
    rows = [("Proxy", proxy.describe() + hint), ("Store", held.describe())]
    if held.all.requests:
        periods = (("Today", held.today), ("This week", held.week), ("In all", held.all))
        rows = [(name, describe_saving(one)) for name, one in periods] + rows
    elif not held.trouble:
        rows.insert(0, ("Saved", NOTHING_RECORDED))
    by = held.origins.tables("agent", "project", would=bool(held.all.observed))
    show(Table("respool", ("What", "State"), rows), *by)


def _to_json(proxy: ProxyHealth, held: StoreStatus) -> dict[str, Any]:
    return {
        "proxy": {
            "url": proxy.url,
            "listening": proxy.is_listening,
            "respool": proxy.is_respool,
            "version": proxy.version or None,
            "mode": proxy.mode or None,
            "store": proxy.store or None,
            "circuit_breaker": proxy.breaker or None,
        },
        "store": {
            "path": held.path,
            "exists": held.exists,
            "bytes": held.bytes,
            "trouble": held.trouble or None,
            "damaged_files": list(held.damaged),
        },
        "saved": {
            "today": held.today.to_dict(),
            "week": held.week.to_dict(),
            "all": held.all.to_dict(),
            **held.origins.to_dict(),
        },
    }
