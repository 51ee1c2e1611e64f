"""Originals over the port: to the key that left them, and to no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ..store import Store, StoreUnavailable
from .compacting.owners import ANONYMOUS, owner_of
from .forwarding.asgi import Receive, Scope, Send, answer
from .forwarding.refusals import Refusal

FOLDER: Final = "/respool/originals/"
_READS: Final = ("GET", "HEAD")
# What a tool printed may be hostile HTML: no browser may take it for more than text.
_AS_TEXT: Final = (
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"content-security-policy", b"default-src 'none'; sandbox"),
)


class GivenBack:
    """Answers with the original behind a reference."""

    def __init__(self, store: Store, salt: Callable[[], bytes]) -> None:
        self._store = store
        self._salt = salt

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer with the text that the path's reference leads to, for the key that came along."""
        if scope["method"] not in _READS:
            raise Refusal(405, "method", "originals can only be read.")
        owner = owner_of(scope["headers"], scope["query_string"], self._salt())
        if owner == ANONYMOUS:
            raise Refusal(401, "key", "an original is given to the API key whose request had it.")
        ref = scope["path"].removeprefix(FOLDER)
        try:
            text = await asyncio.to_thread(self._store.original, ref, owner)
        except StoreUnavailable as error:
            raise Refusal(503, "store", f"the store cannot be read now ({error.reason}).") from None
        if text is None:  # malformed, unknown, or another's: nobody is told which
            raise Refusal(404, "unknown", "no original of this key is kept under that reference.")
        await answer(send, 200, text.encode("utf-8", "surrogatepass"), *_AS_TEXT)
