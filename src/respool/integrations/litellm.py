# pyright: basic, reportMissingImports=false
"""Compaction for LiteLLM: a callback of SDK and proxy, a guardrail, and `completion` itself.

>>> litellm.callbacks = [CompactionLogger()]  # doctest: +SKIP
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from ..engine import FormatName
from ..policy import Policy
from ..pricing import Usage
from ..store import DecisionStore
from .chat_messages import ChatRequest, plain, read_chat
from .request_compactor import Outgoing
from .requirement import WrongUse, build_compactor, require
from .shadow import (
    EXPAND_DESCRIPTION,
    EXPAND_PARAMETERS,
    EXPAND_TOOL,
    FrameworkCompactor,
    Shadow,
    status_of,
)

require("litellm", "1.106.0")

import litellm  # noqa: E402
from litellm.integrations.custom_guardrail import CustomGuardrail  # noqa: E402
from litellm.integrations.custom_logger import CustomLogger  # noqa: E402

MAX_REMEMBERED: Final = 1000  # requests whose response is awaited
EXPAND_FUNCTION: Final = {  # for `tools=`; compactor.answer(ref) answers its calls
    "type": "function",
    "function": {
        "name": EXPAND_TOOL,
        "description": EXPAND_DESCRIPTION,
        "parameters": dict(EXPAND_PARAMETERS),
    },
}
_FORMATS: Final[Mapping[str, FormatName]] = {  # by LiteLLM's name of a call
    "completion": "openai-chat",
    "acompletion": "openai-chat",
    "anthropic_messages": "anthropic",
    "responses": "openai-responses",
    "aresponses": "openai-responses",
}
_FIELDS: Final = (  # of a request, among the arguments of LiteLLM
    *("model", "messages", "input", "system", "instructions", "tools", "tool_choice"),
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "thinking", "reasoning"),
    *("cache_control", "context_management", "previous_response_id", "conversation"),
)
_log = logging.getLogger(__name__)


class _Sent(Struct):
    """The arguments of a call, and the decision on them."""

    call_type: str
    given: Mapping[str, Any]
    outgoing: Outgoing
    chat: ChatRequest | None = None  # with its shadow: a chat completion
    shadow: Shadow | None = None

    @property
    def digest(self) -> bytes:
        """The request as it came, to recognise it when it is sent again."""
        return hashlib.blake2b(self.outgoing.request.body).digest()

    def fields(self) -> Mapping[str, Any]:
        """The arguments to send; messages that nothing touched are the same objects."""
        if self.chat is not None and self.shadow is not None:
            return {"messages": self.chat.changed(self.shadow)}
        if not self.outgoing.is_changed:
            return {}
        after = msgspec.json.decode(self.outgoing.body)
        return {key: _reused(value, after.get(key)) for key, value in self.given.items()}


class _Calls:
    """Decides on the calls of LiteLLM, and learns from their responses."""

    def __init__(self, compactor: FrameworkCompactor) -> None:
        self._compactor = compactor
        self._sent: OrderedDict[str, _Sent] = OrderedDict()  # by call
        self._refused: OrderedDict[bytes, _Sent] = OrderedDict()  # what to send instead
        self._has_warned = False

    async def compact(self, arguments: dict[str, Any], call_type: object) -> dict[str, Any]:
        """Put the projection into the arguments of a call."""
        name, id = _name(call_type), str(arguments.get("litellm_call_id"))
        known = self._sent.get(id)
        # A call inside a call: LiteLLM translated what was decided on for another endpoint.
        if name not in _FORMATS or (known is not None and known.call_type != name):
            return arguments
        try:
            sent = await self._decide(arguments, name)
            if sent is None:
                return arguments
            if self._refused and (again := self._refused.pop(sent.digest, None)) is not None:
                sent = _Sent(name, sent.given, again.outgoing, sent.chat, again.shadow)
            made = {**arguments, **sent.fields()}
        except Exception:  # noqa: BLE001 - law 9: a fault of respool fails no request
            _log.exception("A request could not be compacted; it is sent as it came")
            return arguments
        _remember(self._sent, id, sent)
        if arguments.get("stream") or name == "responses":  # the response is told late, or never
            self._compactor.accepted(sent.outgoing)
        return made

    async def _decide(self, arguments: Mapping[str, Any], name: str) -> _Sent | None:
        given = {key: arguments[key] for key in _FIELDS if arguments.get(key) is not None}
        model = given.get("model") or getattr(arguments.get("litellm_logging_obj"), "model", "")
        format = _FORMATS[name]
        if "messages" not in given and "input" not in given:
            if not self._has_warned:
                self._has_warned = True
                _log.warning("Give messages= or input= by name: callbacks see no other arguments.")
            return None
        if format == "openai-chat":
            chat = read_chat({**given, "model": model})
            if chat is None:
                return None
            shadow = await self._compactor.shadow_async(chat.shadow_request)
            return _Sent(name, given, shadow.sent, chat, shadow)
        body = msgspec.json.encode({**plain(given), "model": model})
        sent = await self._compactor.decide_async(body, format, model=model)
        return _Sent(name, given, sent)

    def accepted(self, arguments: Mapping[str, Any], response: object, call_type: object) -> None:
        """The provider accepted a request."""
        sent = self._sent.get(str(arguments.get("litellm_call_id")))
        is_own = sent is not None and sent.call_type == _name(call_type)
        if sent is not None and is_own and not arguments.get("stream"):
            self._compactor.accepted(sent.outgoing)
            self.used(arguments, response)

    def refused(self, arguments: Mapping[str, Any], error: BaseException) -> None:
        """The provider refused a request: the same one is sent as it came next time."""
        sent = self._sent.pop(str(arguments.get("litellm_call_id")), None)
        status = status_of(error)
        if sent is None or status is None:
            return
        self._compactor.failed(sent.outgoing)
        if sent.shadow is not None:
            shadow = self._compactor.after_error(sent.shadow, error)
            outgoing = None if shadow is None else shadow.sent
        else:
            shadow, text = None, str(error).encode("utf-8", "replace")
            outgoing = self._compactor.retry(sent.outgoing, status, text)
        if outgoing is not None:
            again = _Sent(sent.call_type, sent.given, outgoing, sent.chat, shadow)
            _remember(self._refused, sent.digest, again)

    def used(self, arguments: Mapping[str, Any], response: object) -> None:
        """The response to a call, with its usage."""
        sent = self._sent.pop(str(arguments.get("litellm_call_id")), None)
        if sent is not None:
            self._compactor.used(sent.outgoing, usage_of(response))


class CompactionLogger(CustomLogger):
    """Sends projections; for `litellm.callbacks`, and for `callbacks` of LiteLLM's proxy.

    `completion()` has no hook that may change a request: take a CompactionClient there.
    """

    _has_warned = False

    def __init__(
        self,
        policy: Policy | str | None = None,
        *,
        store: DecisionStore | str | os.PathLike[str] | None = None,
        deadline: float | None = None,
        compactor: FrameworkCompactor | None = None,
    ) -> None:
        super().__init__()
        self.compactor = build_compactor(compactor, policy, store, deadline)
        self._calls = _Calls(self.compactor)

    def log_pre_api_call(self, model: Any, messages: Any, kwargs: Mapping[str, Any]) -> None:
        """Tell once that calls of `completion()` pass by."""
        if kwargs.get("call_type") == "completion" and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "litellm.completion() has no hook that may change a request, so it was sent as it "
                "came: call litellm.acompletion(), or CompactionClient().completion()."
            )

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> Any:
        """Before each attempt, when the model is known."""
        return await self._calls.compact(kwargs, call_type)

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any
    ) -> None:
        """After a provider's response."""
        self._calls.accepted(request_data, response, call_type)

    async def async_post_call_failure_deployment_hook(
        self,
        request_data: Mapping[str, Any],
        exception: Exception,
        call_type: Any,
        fallback_depth: int | None = None,
    ) -> None:
        """After a provider's error."""
        self._calls.refused(request_data, exception)

    def log_success_event(
        self, kwargs: Mapping[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """After `responses()`, the one synchronous function with a hook."""
        self._calls.used(kwargs, response_obj)

    async def async_log_success_event(
        self, kwargs: Mapping[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """After the end of a stream, in the background, with the usage."""
        self._calls.used(kwargs, response_obj)


class CompactionGuardrail(CompactionLogger, CustomGuardrail):
    """The same for those requests of LiteLLM's proxy that ask for it; its mode is `pre_call`."""

    def __init__(
        self,
        policy: Policy | str | None = None,
        *,
        store: DecisionStore | str | os.PathLike[str] | None = None,
        deadline: float | None = None,
        compactor: FrameworkCompactor | None = None,
        **kwargs: Any,
    ) -> None:
        mode = kwargs.get("event_hook") or "pre_call"
        if str(getattr(mode, "value", mode)) != "pre_call":
            raise WrongUse(f"mode: {mode} changes no request; allowed: pre_call")
        CustomGuardrail.__init__(self, **{**kwargs, "event_hook": "pre_call"})
        self.compactor = build_compactor(compactor, policy, store, deadline)
        self._calls = _Calls(self.compactor)
        self._asked: OrderedDict[str, bool] = OrderedDict()

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: Any
    ) -> None:
        """Only remember who asked: other guardrails see requests as they came."""
        _remember(self._asked, str(data.get("litellm_call_id")), True)

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> Any:
        """Before each attempt, when the model is known."""
        await CustomGuardrail.async_pre_call_deployment_hook(self, kwargs, call_type)
        if str(kwargs.get("litellm_call_id")) not in self._asked:
            return kwargs
        return await self._calls.compact(kwargs, call_type)


class CompactionClient:
    """`litellm.completion` and `litellm.acompletion`, which send the projection of `messages`."""

    def __init__(
        self,
        policy: Policy | str | None = None,
        *,
        store: DecisionStore | str | os.PathLike[str] | None = None,
        deadline: float | None = None,
        compactor: FrameworkCompactor | None = None,
    ) -> None:
        self.compactor = build_compactor(compactor, policy, store, deadline)

    def completion(self, model: str, messages: Sequence[Any] = (), **kwargs: Any) -> Any:
        """Send the projection of a request, and the request as it came if that is refused."""
        chat = read_chat({**kwargs, "model": model, "messages": messages})
        if chat is None:
            return litellm.completion(model=model, messages=messages, **kwargs)
        return self.compactor.send(
            chat.shadow_request,
            lambda shadow: litellm.completion(model=model, messages=chat.changed(shadow), **kwargs),
            usage_of,
        )

    async def acompletion(self, model: str, messages: Sequence[Any] = (), **kwargs: Any) -> Any:
        """The same, awaited."""
        chat = read_chat({**kwargs, "model": model, "messages": messages})
        if chat is None:
            return await litellm.acompletion(model=model, messages=messages, **kwargs)
        return await self.compactor.send_async(
            chat.shadow_request,
            lambda shadow: litellm.acompletion(
                model=model, messages=chat.changed(shadow), **kwargs
            ),
            usage_of,
        )


def usage_of(response: object) -> Usage | None:
    """The usage in a response of any of LiteLLM's functions."""
    is_mapping = isinstance(response, Mapping)
    found = response.get("usage") if is_mapping else getattr(response, "usage", None)
    used = plain(found) if found else {}
    if not used:
        return None
    prompt = used.get("prompt_tokens", used.get("input_tokens")) or 0
    output = used.get("completion_tokens", used.get("output_tokens")) or 0
    details = used.get("prompt_tokens_details") or used.get("input_tokens_details") or {}
    read = used.get("cache_read_input_tokens") or details.get("cached_tokens") or 0
    written = used.get("cache_creation_input_tokens") or details.get("cache_creation_tokens") or 0
    # Anthropic counts cached tokens apart; LiteLLM's own classes count them in.
    is_apart = "input_tokens" in used and "input_tokens_details" not in used
    fresh = prompt if is_apart else max(0, prompt - read - written)
    return Usage(input=fresh, cache_read=read, cache_write=written, output=output)


def _name(call_type: object) -> str:
    return str(getattr(call_type, "value", call_type))


def _reused(given: Any, sent: Any) -> Any:
    """A field to send, made of the given objects wherever they are equal."""
    if not isinstance(given, list) or not isinstance(sent, list):
        return given if given == sent else sent
    known = {msgspec.json.encode(plain(one)): one for one in given}
    return [known.get(msgspec.json.encode(one), one) for one in sent]


def _remember(known: OrderedDict[Any, Any], key: object, value: object) -> None:
    known[key] = value
    if len(known) > MAX_REMEMBERED:
        known.popitem(last=False)


def __getattr__(name: str) -> CompactionLogger:
    """`logger`: an instance with the default policy, for a configuration file of the proxy."""
    if name != "logger":
        raise AttributeError(name)
    made = globals()[name] = CompactionLogger()
    return made


__all__ = ["EXPAND_FUNCTION", "CompactionClient", "CompactionGuardrail", "CompactionLogger"]
