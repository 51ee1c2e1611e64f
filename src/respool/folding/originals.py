"""All that edits put aside, by the reference that leads back to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from ..summaries.record import Attached, record
from ..transcript import History

Original = str | tuple[int, ...]  # a text, or the exchanges whose record it is


class Originals(Mapping[str, str]):
    """Originals by reference. Records and images are put together only when they are asked for."""

    def __init__(
        self, kept: Mapping[str, Original], images: Mapping[str, int], history: History,
        held: Mapping[int, Attached], block: Callable[[int], str],
    ) -> None:  # fmt: skip
        self._kept = kept
        self._images = images  # by reference their parts
        self._history = history
        self._held = held
        self._block = block  # what an image's block says

    def __getitem__(self, ref: str) -> str:
        if ref in self._images:
            return self._block(self._images[ref])
        original = self._kept[ref]
        if isinstance(original, str):
            return original
        return "".join(record(self._history, original, self._held))

    def __contains__(self, ref: object) -> bool:
        return ref in self._kept or ref in self._images

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(chain(self._kept, self._images)))

    def __len__(self) -> int:
        return len(self._kept) + sum(ref not in self._kept for ref in self._images)

    def __reduce__(self) -> tuple[type[dict[str, str]], tuple[dict[str, str]]]:
        """Copied and sent to other processes as the texts alone."""
        return dict, (dict(self),)

    def __repr__(self) -> str:
        return f"Originals({len(self):,})"
