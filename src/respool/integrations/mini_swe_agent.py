# pyright: basic, reportMissingImports=false
"""Compaction for mini-swe-agent, as a model class.

In a configuration file: `model_class: respool.integrations.mini_swe_agent.CompactionModel`.
"""

from __future__ import annotations

from typing import Any, Final

from .chat_messages import read_chat
from .loop_guard import LoopGuard
from .requirement import WrongUse, build_compactor, require

require("mini-swe-agent", "2.4.0")

from minisweagent.models.litellm_model import LitellmModel, LitellmModelConfig  # noqa: E402
from minisweagent.models.utils.actions_toolcall import BASH_TOOL  # noqa: E402
from pydantic import field_serializer  # noqa: E402

from .litellm import usage_of  # noqa: E402

_CONVERSATION: Final = "run"  # a model serves one run at a time


class CompactionModelConfig(LitellmModelConfig):
    """The settings of LitellmModel, and three more."""

    policy: Any = None  # the name of a preset, or a Policy
    store: Any = None  # a file for originals: `respool expand REF` gives them back
    loops: bool = False  # advice behind the results of commands that repeat

    @field_serializer("policy", "store", when_used="json-unless-none")
    def _name(self, value: object) -> str:
        return str(value)


class CompactionModel(LitellmModel):
    """LitellmModel that sends the projection of the agent's messages; the agent keeps them whole.

    A refused projection is sent again as it came, at once: mini-swe-agent's own retries would send
    the same one up to ten times.
    """

    def __init__(self, **kwargs: Any) -> None:
        kind = kwargs.setdefault("config_class", CompactionModelConfig)
        if not (isinstance(kind, type) and issubclass(kind, CompactionModelConfig)):
            raise WrongUse(f"config_class={kind!r} is no subclass of CompactionModelConfig.")
        super().__init__(**kwargs)
        self.compactor = build_compactor(None, self.config.policy, self.config.store, None)
        self._guard = LoopGuard(self.compactor.policy.tools) if self.config.loops else None

    def _query(self, messages: list[dict[str, Any]], **kwargs: Any) -> Any:
        call = super()._query
        if self._guard is not None and all(one["role"] != "assistant" for one in messages):
            self._guard.heard(_CONVERSATION)  # a new run
        chat = read_chat(
            {
                **self.config.model_kwargs,
                **kwargs,
                "model": self.config.model_name,
                "messages": messages,
                "tools": [BASH_TOOL],
            }
        )
        if chat is None:
            return call(messages, **kwargs)
        return self.compactor.send(
            chat.shadow_request, lambda shadow: call(chat.changed(shadow), **kwargs), usage_of
        )

    def format_observation_messages(
        self, message: dict[str, Any], outputs: list[dict[str, Any]], template_vars: Any = None
    ) -> list[dict[str, Any]]:
        """Results of commands, with advice on loops."""
        made = super().format_observation_messages(message, outputs, template_vars)
        if self._guard is None:
            return made
        actions = message.get("extra", {}).get("actions", [])
        for action, output, result in zip(actions, outputs, made, strict=False):
            call = (_CONVERSATION, "bash", {"command": action["command"]})
            verdict = self._guard.ask(*call, batch=id(message))
            failed = output.get("returncode") != 0
            self._guard.tell(*call, output.get("output", ""), failed, batch=id(message))
            if verdict.action != "allow" and isinstance(result["content"], str):
                result["content"] += f"\n{verdict.message}"
        return made


__all__ = ["CompactionModel", "CompactionModelConfig"]
