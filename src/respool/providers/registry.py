"""Registry of providers, one for each wire format."""

from __future__ import annotations

from collections.abc import Sequence

from ..wire.base import FORMATS, Fields, FormatName
from ..wire.json import JSON
from .anthropic import ANTHROPIC
from .base import Codec, Problem, Provider, RuleState, split_steps
from .gemini import GEMINI
from .openai_chat import OPENAI_CHAT
from .openai_responses import OPENAI_RESPONSES

PROVIDERS: dict[FormatName, Provider] = {}


def register(provider: Provider) -> None:
    """Make a provider known under the name of its wire format."""
    PROVIDERS[provider.name] = provider
    FORMATS[provider.name] = provider.format


def unregister(name: FormatName) -> None:
    """Forget a provider."""
    del PROVIDERS[name], FORMATS[name]


for _provider in (
    ANTHROPIC,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    GEMINI,
):
    register(_provider)


def check_request(codec: Codec, messages: Sequence[JSON], fields: Fields | None) -> list[Problem]:
    """Everything the provider would reject, in the order of the history."""
    rules = PROVIDERS[codec.name].rules
    state = RuleState()
    found: list[Problem] = []
    for step in split_steps(codec, messages):
        found += rules.check_step(step, state, fields)
        rules.advance(step, state)
    found += rules.check_end(state, len(messages), lambda row: messages[row], fields)
    found += rules.check_fields(messages, fields)
    return found
