"""How many tokens a provider counts for one of respool's, from the usage of answers.

It changes reports, never a projection: two machines would learn different factors.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from threading import Lock
from typing import Final

from ...replay.calibration import MIN_GROWTH_TOKENS, calibrate_models, is_plausible_factor
from ...replay.result import Calibration, Growth

MOST_MODELS: Final = 256  # of which pairs are kept; the one not heard of for longest goes
MOST_PAIRS: Final = 64  # of each model, the latest: a provider may change its tokenizer

Key = tuple[str, str]  # provider and model


class Calibrations:
    """What providers counted beside what respool did; bounded, and safe to share by threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pairs: OrderedDict[Key, deque[Growth]] = OrderedDict()

    def note(self, provider: str, model: str, counted: int, reported: int) -> bool:
        """A prompt: respool's count of it, and the provider's; False: no pair to learn of.

        A short prompt is mostly framing, and a ratio that no tokenizer has comes of something
        else: a prompt that holds what the request does not, or a usage that does not belong.
        """
        if counted < MIN_GROWTH_TOKENS or not is_plausible_factor(reported / counted):
            return False
        with self._lock:
            pairs = self._pairs.setdefault((provider, model), deque(maxlen=MOST_PAIRS))
            pairs.append(Growth(model, counted, reported))
            self._pairs.move_to_end((provider, model))
            if len(self._pairs) > MOST_MODELS:
                self._pairs.popitem(last=False)
        return True

    def of(self, provider: str, model: str) -> Calibration | None:
        """A model's factor: the median, each request as weighty as it is long; None: too few."""
        with self._lock:
            pairs = tuple(self._pairs.get((provider, model), ()))
        return next(iter(calibrate_models(pairs)), None)

    def scaled(self, provider: str, model: str, counted: int) -> int:
        """A count of respool's as this provider would count it, as far as that is known."""
        found = self.of(provider, model)
        return counted if found is None else round(found.factor * counted)

    def all(self) -> dict[Key, Calibration]:
        """Every model that enough is known of."""
        with self._lock:
            known = list(self._pairs)
        found = ((key, self.of(*key)) for key in known)
        return {key: one for key, one in found if one is not None}
