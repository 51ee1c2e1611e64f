# pyright: basic, reportMissingImports=false
"""Compaction for LiteLLM: a callback, a guardrail of its proxy, and completion with a projection.

>>> litellm.callbacks = [CompactionLogger()]  # doctest: +SKIP
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict, defaultdict, deque
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Final

import msgspec
from msgspec import Struct

from ..engine import FormatName
from ..policy import Policy
from ..pricing import Usage
from ..store import DecisionStore
from .request_compactor import Outgoing, unread
from .requirement import WrongUse, build_compactor, require
from .shadow import (
    EXPAND_DESCRIPTION,
    EXPAND_PARAMETERS,
    EXPAND_TOOL,
    FrameworkCompactor,
    status_of,
)

require("litellm", "1.106.0")

import litellm  # noqa: E402
from litellm.integrations.custom_guardrail import CustomGuardrail  # noqa: E402
from litellm.integrations.custom_logger import CustomLogger  # noqa: E402

MAX_REMEMBERED: Final = 128  # requests whose response is awaited
EXPAND_FUNCTION: Final = {  # for `tools=`; compactor.answer(ref) answers its calls
    "type": "function",
    "function": {
        "name": EXPAND_TOOL,
        "description": EXPAND_DESCRIPTION,
        "parameters": EXPAND_PARAMETERS,
    },
}
_FORMATS: Final[Mapping[str, FormatName]] = {
    "completion": "openai-chat",
    "acompletion": "openai-chat",
    "anthropic_messages": "anthropic",
    "responses": "openai-responses",
    "aresponses": "openai-responses",
}
_FIELDS: Final = (  # of a request, among the arguments of LiteLLM
    *("model", "messages", "input", "system", "instructions", "tools", "tool_choice"),
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "thinking", "reasoning"),
    *("reasoning_effort", "cache_control", "context_management", "prompt_cache_key"),
    *("prompt_cache_retention", "previous_response_id", "conversation"),
)
_JSON: Final = msgspec.json.Decoder()


class _Sent(Struct):
    """A request of LiteLLM, and what goes out in its place."""

    given: Mapping[str, Any]  # the fields as they came
    outgoing: Outgoing
    again: Outgoing | None = None  # after the provider refused it

    def fields(self) -> dict[str, Any]:
        """The fields to send: messages that nothing touched are the same objects."""
        sent = self.again or self.outgoing
        if not sent.is_changed:
            return dict(self.given)
        before, after = _JSON.decode(sent.request.body), _JSON.decode(sent.body)
        return {
            key: value if before.get(key) == after.get(key) else _aligned(value, before, after, key)
            for key, value in self.given.items()
        }


class LiteLLMRequests:
    """Decides on the arguments of LiteLLM's functions, which are those of a provider's request."""

    def __init__(self, compactor: FrameworkCompactor) -> None:
        self.compactor = compactor
        self._by_history: OrderedDict[bytes, _Sent] = OrderedDict()
        self._by_call: OrderedDict[str, _Sent] = OrderedDict()
        self._refused: OrderedDict[bytes, Outgoing] = OrderedDict()
        self._lock = Lock()

    def decide(self, data: Mapping[str, Any], format: FormatName) -> _Sent:
        """Decide on a request."""
        given, body = _read(data)
        if body is None:
            return _Sent(given, unread("no JSON"))
        return _Sent(given, self.compactor.decide(body, format, model=given.get("model")))

    async def decide_async(self, data: Mapping[str, Any], format: FormatName) -> _Sent:
        """The same in a thread, so that the event loop goes on."""
        given, body = _read(data)
        if body is None:
            return _Sent(given, unread("no JSON"))
        sent = await self.compactor.decide_async(body, format, model=given.get("model"))
        return _Sent(given, sent)

    async def compact(self, data: dict[str, Any], call_type: object) -> dict[str, Any] | None:
        """Put the projection into the arguments of a call; once, however many hooks ask."""
        format = _FORMATS.get(str(getattr(call_type, "value", call_type)))
        digest = _digest(data)
        if format is None or digest is None:
            return None
        sent = self._by_history.get(digest)  # a projection, from the hook before this one
        if sent is None:
            sent = await self.decide_async(data, format)
            sent.again = self._refused.pop(digest, None)
        data.update(sent.fields())
        with self._lock:
            _remember(self._by_history, _digest(data), sent)
            _remember(self._by_call, data.get("litellm_call_id"), sent)
        if data.get("stream"):  # the end of a stream is not told in time
            self.compactor.accepted(sent.again or sent.outgoing)
        return data

    def accepted(self, data: Mapping[str, Any]) -> None:
        """The provider accepted a request, given as it was sent."""
        sent = self._by_history.get(_digest(data) or b"")
        if sent is not None and not data.get("stream"):
            self.compactor.accepted(sent.again or sent.outgoing)

    def refused(self, data: Mapping[str, Any], error: BaseException) -> None:
        """The provider refused a request: the next attempt sends what it should."""
        sent = self._by_history.get(_digest(data) or b"")
        if sent is None:
            return
        if sent.again is not None:
            self.compactor.failed(sent.again)
        elif again := self.after_error(sent, error):
            sent.again = again.again
            with self._lock:
                _remember(self._refused, _digest(sent.given), again.again)

    def after_error(self, sent: _Sent, error: BaseException) -> _Sent | None:
        """Decide what to send after a provider's error; None: the error stands."""
        status, text = status_of(error), str(error).encode("utf-8", "replace")
        again = None if status is None else self.compactor.retry(sent.outgoing, status, text)
        return None if again is None else _Sent(sent.given, sent.outgoing, again)

    def used(self, call_id: object, response: object) -> None:
        """The response to a call, with its usage."""
        with self._lock:
            sent = self._by_call.pop(str(call_id), None)
        if sent is not None:
            self.compactor.used(sent.again or sent.outgoing, usage_of(response))


class _Hooks:
    """The hooks that a callback and a guardrail share."""

    compactor: FrameworkCompactor
    _requests: LiteLLMRequests

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Before LiteLLM's proxy routes a request."""
        return await self._requests.compact(data, call_type)

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any
    ) -> None:
        """After a provider's response."""
        self._requests.accepted(request_data)

    async def async_post_call_failure_deployment_hook(
        self,
        request_data: Mapping[str, Any],
        exception: Exception,
        call_type: Any,
        fallback_depth: int | None = None,
    ) -> None:
        """After a provider's error: LiteLLM's next attempt sends the request as it came."""
        self._requests.refused(request_data, exception)

    async def async_log_success_event(
        self, kwargs: Mapping[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """With the usage, in the background."""
        self._requests.used(kwargs.get("litellm_call_id"), response_obj)


class CompactionLogger(_Hooks, CustomLogger):
    """Sends projections; for `litellm.callbacks`, and for `callbacks` of LiteLLM's proxy.

    `completion()` has no hook that may change a request: take a CompactionClient there.
    """

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
        self._requests = LiteLLMRequests(self.compactor)

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Before each attempt, in the SDK and in the proxy."""
        return await self._requests.compact(kwargs, call_type)


class CompactionGuardrail(_Hooks, CustomGuardrail):
    """The same as a guardrail of LiteLLM's proxy, with `mode: pre_call`."""

    def __init__(
        self,
        policy: Policy | str | None = None,
        *,
        store: DecisionStore | str | os.PathLike[str] | None = None,
        deadline: float | None = None,
        compactor: FrameworkCompactor | None = None,
        **kwargs: Any,
    ) -> None:
        mode = kwargs.get("event_hook", "pre_call")
        if str(getattr(mode, "value", mode)) != "pre_call":
            raise WrongUse(f"mode: {mode} changes no request; allowed: pre_call")
        super().__init__(**{"event_hook": "pre_call", **kwargs})
        self.compactor = build_compactor(compactor, policy, store, deadline)
        self._requests = LiteLLMRequests(self.compactor)


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
        self._requests = LiteLLMRequests(self.compactor)

    def completion(self, model: str, messages: Sequence[Any] = (), **kwargs: Any) -> Any:
        """Send the projection of a request, and the request as it came if that is refused."""
        request = {"model": model, "messages": messages, **kwargs}
        sent = self._requests.decide(request, "openai-chat")
        try:
            response = litellm.completion(**{**request, **sent.fields()})
        except Exception as error:
            again = self._requests.after_error(sent, error)
            if again is None:
                raise
            sent = again
            try:
                response = litellm.completion(**{**request, **sent.fields()})
            except Exception:
                self.compactor.failed(again.again or again.outgoing)
                raise
        return self._learn(sent, response)

    async def acompletion(self, model: str, messages: Sequence[Any] = (), **kwargs: Any) -> Any:
        """The same, awaited."""
        request = {"model": model, "messages": messages, **kwargs}
        sent = await self._requests.decide_async(request, "openai-chat")
        try:
            response = await litellm.acompletion(**{**request, **sent.fields()})
        except Exception as error:
            again = self._requests.after_error(sent, error)
            if again is None:
                raise
            sent = again
            try:
                response = await litellm.acompletion(**{**request, **sent.fields()})
            except Exception:
                self.compactor.failed(again.again or again.outgoing)
                raise
        return self._learn(sent, response)

    def _learn(self, sent: _Sent, response: Any) -> Any:
        outgoing = sent.again or sent.outgoing
        self.compactor.accepted(outgoing)
        self.compactor.used(outgoing, usage_of(response))
        return response


def usage_of(response: object) -> Usage | None:
    """The usage in a response of any of LiteLLM's functions."""
    found = response.get("usage") if isinstance(response, Mapping) else vars(response).get("usage")
    used = found if isinstance(found, Mapping) else _plain(found) if found is not None else {}
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


def _read(data: Mapping[str, Any]) -> tuple[dict[str, Any], bytes | None]:
    """The fields of a request, and its body; None if it holds what is no JSON."""
    given = {key: data[key] for key in _FIELDS if data.get(key) is not None}
    try:
        return given, msgspec.json.encode(given, enc_hook=_plain)
    except (TypeError, ValueError):
        return given, None


def _plain(value: Any) -> Any:
    """A message object of LiteLLM as a dict."""
    if not hasattr(value, "model_dump"):
        raise TypeError(f"{type(value).__name__} is no part of a request")
    return value.model_dump(exclude_none=True)


def _digest(data: Mapping[str, Any]) -> bytes | None:
    """The history of a request, to recognise it in another hook; None if there is none."""
    history = data.get("messages") or data.get("input")
    _, body = _read({"messages": history}) if isinstance(history, list) else ({}, None)
    return None if body is None else hashlib.blake2b(body).digest()


def _aligned(given: Any, before: Any, after: Any, key: str) -> Any:
    """A changed field, with the given objects wherever a message is equal."""
    if not isinstance(given, list) or not isinstance(after.get(key), list):
        return after.get(key)
    places: defaultdict[bytes, deque[int]] = defaultdict(deque)
    for at, one in enumerate(before[key]):
        places[msgspec.json.encode(one)].append(at)
    found: list[Any] = []
    last = -1
    for one in after[key]:
        waiting = places[msgspec.json.encode(one)]
        while waiting and waiting[0] <= last:
            waiting.popleft()
        last = waiting[0] if waiting else last
        found.append(given[last] if waiting else one)
    return found


def _remember(known: OrderedDict[Any, Any], key: object, value: object) -> None:
    if key is not None:
        known[key] = value
        known.move_to_end(key)
        if len(known) > MAX_REMEMBERED:
            known.popitem(last=False)


def __getattr__(name: str) -> CompactionLogger:
    """`logger`: an instance with the default policy, for a configuration file of the proxy."""
    if name != "logger":
        raise AttributeError(name)
    made = globals()[name] = CompactionLogger()
    return made


__all__ = ["EXPAND_FUNCTION", "CompactionClient", "CompactionGuardrail", "CompactionLogger"]
