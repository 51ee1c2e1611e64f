"""Edits in force, their dependencies, and the originals they replace."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain

from msgspec import Struct, field
from msgspec.structs import replace

from ..edits import (
    FOLDED,
    Advise,
    DropExchange,
    Edit,
    PlaceBreakpoint,
    Replace,
    touched_parts,
    touched_rows,
)
from ..markers import append_advice, reference
from ..summaries.batch import AttachedOriginal, render_exchanges
from ..tokens import TokenCounter
from ..transcript import ReadOnlyTranscript

Original = str | tuple[int, ...]  # a text, or the exchanges that a record is rendered from


class EditSet(Struct):
    """Edits in force by part, with the parts they touch and the originals they replace."""

    by_part: dict[int, Edit] = field(default_factory=dict[int, Edit])
    claimed: set[int] = field(default_factory=set[int])  # all parts that these edits touch
    advice: dict[int, Advise] = field(default_factory=dict[int, Advise])  # by part, beside edits
    dependencies: dict[int, tuple[int, ...]] = field(  # by part: the parts its edit needs whole
        default_factory=dict[int, tuple[int, ...]]
    )
    originals: dict[str, Original] = field(default_factory=dict[str, Original])
    external: set[str] = field(default_factory=set[str])  # references of originals not held here
    saved: int = 0  # tokens, advice included

    def copy(self) -> EditSet:
        """Return a set that can change apart from this one."""
        return EditSet(
            by_part=self.by_part.copy(),
            claimed=self.claimed.copy(),
            advice=self.advice.copy(),
            dependencies=self.dependencies.copy(),
            originals=self.originals.copy(),
            external=self.external.copy(),
            saved=self.saved,
        )

    def dependents(self) -> dict[int, set[int]]:
        """The parts that edits need whole, each with the parts of those edits."""
        found: dict[int, set[int]] = {}
        for dependent, parts in self.dependencies.items():
            for part in parts:
                found.setdefault(part, set()).add(dependent)
        return found

    def text_of(self, part: int, transcript: ReadOnlyTranscript) -> str:
        """The text of a part in the projection, without advice."""
        edit = self.by_part.get(part)
        return edit.text if isinstance(edit, Replace) else transcript.parts[part].text

    def take(
        self, edit: Edit, transcript: ReadOnlyTranscript, media: Collection[int]
    ) -> Collection[int]:
        """Put an edit in force in place of those on the same parts; return the changed rows.

        `media` are the parts whose original stays in the request.
        """
        if isinstance(edit, Advise):
            return self._advise(edit)
        parts = touched_parts(edit, transcript)
        rows = set(touched_rows(edit, transcript))
        for part in parts:
            self._remove(part)
            if isinstance(edit, DropExchange) or edit.reason == FOLDED:
                rows.update(self.withdraw_advice(part))
        self.by_part[parts[0]] = edit
        self.claimed.update(parts)
        self.saved += edit.saved
        self._keep_originals(edit, parts, transcript, media)
        return rows

    def withdraw(self, part: int, transcript: ReadOnlyTranscript) -> Collection[int]:
        """Restore the text of a part; return the changed rows."""
        edit = self.by_part.get(part)
        if edit is None:
            return ()
        self._remove(part)
        self.claimed.difference_update(touched_parts(edit, transcript))
        return touched_rows(edit, transcript)

    def withdraw_advice(self, part: int) -> Collection[int]:
        """Remove the advice of a part; return the changed rows."""
        before = self.advice.pop(part, None)
        if before is None:
            return ()
        self.saved -= before.saved
        return (before.ref.row,)

    def recount_advice(
        self, parts: Iterable[int], transcript: ReadOnlyTranscript, counter: TokenCounter
    ) -> Collection[int]:
        """Count again the tokens that advice adds to changed parts; return the changed rows."""
        rows: list[int] = []
        for part in self.advice.keys() & set(parts):
            edit, text = self.advice[part], self.text_of(part, transcript)
            saved = counter.count(text) - counter.count(append_advice(text, edit.text))
            rows += self._advise(replace(edit, saved=saved))
        return rows

    def _advise(self, edit: Advise) -> Collection[int]:
        """Add advice to a result, beside whatever edit is in force there."""
        self.withdraw_advice(edit.part)
        self.advice[edit.part] = edit
        self.saved += edit.saved
        return (edit.ref.row,)

    def _remove(self, part: int) -> None:
        before = self.by_part.pop(part, None)
        self.dependencies.pop(part, None)
        if before is not None:
            self.saved -= before.saved

    def _keep_originals(
        self,
        edit: Edit,
        parts: Iterable[int],
        transcript: ReadOnlyTranscript,
        media: Collection[int],
    ) -> None:
        if isinstance(edit, Replace):
            if edit.stands_for:
                self.originals[edit.original] = edit.stands_for
            elif edit.part not in media:
                self.originals[edit.original] = transcript.parts[edit.part].text
            else:
                self.external.add(edit.original)
        elif not isinstance(edit, PlaceBreakpoint | Advise):
            texts = (transcript.parts[part].text for part in parts)
            self.originals |= {reference(text): text for text in texts if text}


class LazyOriginals(Mapping[str, str]):
    """Originals by reference; records and media blocks are rendered on access."""

    def __init__(
        self,
        originals: Mapping[str, Original],
        *,
        media: Mapping[str, int],
        transcript: ReadOnlyTranscript,
        attached: Mapping[int, AttachedOriginal],
        media_block: Callable[[int], str],
    ) -> None:
        self._originals = originals
        self._media = media  # parts by reference
        self._transcript = transcript
        self._attached = attached
        self._media_block = media_block  # JSON of a part's block

    def __getitem__(self, ref: str) -> str:
        if ref in self._media:
            return self._media_block(self._media[ref])
        original = self._originals[ref]
        if isinstance(original, str):
            return original
        return "".join(render_exchanges(self._transcript, original, self._attached))

    def __contains__(self, ref: object) -> bool:
        return ref in self._originals or ref in self._media

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(chain(self._originals, self._media)))

    def __len__(self) -> int:
        return len(self._originals) + sum(ref not in self._originals for ref in self._media)

    def __reduce__(self) -> tuple[type[dict[str, str]], tuple[dict[str, str]]]:
        """Pickle as a plain dict of texts."""
        return dict, (dict(self),)

    def __repr__(self) -> str:
        return f"Originals({len(self):,})"
