"""The public functions as coroutines: the work runs in a thread, and the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

from . import api
from .api import Plan
from .engine import Compaction
from .providers.base import Problem
from .report import Report

_Request = TypeVar("_Request")


async def compact(
    request: _Request, *, deadline: float | None = None, **options: Any
) -> Compaction[_Request]:
    """The request made smaller; `options` are those of `respool.compact`.

    After `deadline` seconds the request comes back as it came, and its report says so. The work
    goes on in its thread and makes the next request faster.
    """
    work = asyncio.ensure_future(asyncio.to_thread(api.compact, request, **options))
    if deadline is None:
        return await work
    done, _ = await asyncio.wait({work}, timeout=deadline)
    if done:
        return await work
    work.add_done_callback(_forget)
    return Compaction(request, Report(untouched=f"late: over {deadline:g} s"), {})


def _forget(work: asyncio.Future[Any]) -> None:
    """Take note of an error that nobody waits for."""
    if not work.cancelled():
        work.exception()


async def plan(request: object, **options: Any) -> Plan:
    """Decide what to change in a request; `options` are those of `respool.plan`."""
    return await asyncio.to_thread(api.plan, request, **options)


async def apply(request: _Request, plan: Plan, **options: Any) -> Compaction[_Request]:
    """The request with a plan's edits; `options` are those of `respool.apply`."""
    return await asyncio.to_thread(api.apply, request, plan, **options)


async def check(request: object, **options: Any) -> list[Problem]:
    """List the problems for which the provider would reject the request."""
    return await asyncio.to_thread(api.check, request, **options)


async def repair(request: _Request, **options: Any) -> Compaction[_Request]:
    """The smallest change that makes the request valid."""
    return await asyncio.to_thread(api.repair, request, **options)


async def expand(ref: str, source: Compaction[Any] | Mapping[str, str], **options: Any) -> str:
    """The original behind a marker; `options` are those of `respool.expand`."""
    return await asyncio.to_thread(api.expand, ref, source, **options)


__all__ = ["apply", "check", "compact", "expand", "plan", "repair"]
