"""OpenTelemetry spans, where the environment says where to send them: one for each request.

Names are those of the conventions for generative AI. No text of a request or an answer is in them,
no header and no key.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit

from ..forwarding.handling import About
from ..forwarding.record import Record
from ..installed import installed

_log = logging.getLogger(__name__)
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROVIDERS: Final = {
    "anthropic": "anthropic",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "gemini": "gcp.gemini",
}
_ENDING: Final = 5.0  # seconds for the last spans at shutdown
Attributes = dict[str, Any]


class Spans:
    """Makes a span of each request that is over; they are sent from a thread of the SDK's."""

    def __init__(self, exporter: Any = None) -> None:
        from opentelemetry.propagate import extract  # late: only where spans are wanted
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import SpanKind, StatusCode

        self._processor = BatchSpanProcessor(exporter or _exporter(os.environ))
        provider = TracerProvider(
            resource=Resource.create(_service(os.environ)), shutdown_on_exit=False
        )
        provider.add_span_processor(self._processor)
        self._tracer = provider.get_tracer("respool", installed())
        self._extract: Callable[[Mapping[str, str]], Any] = extract
        self._kind, self._error = SpanKind.CLIENT, StatusCode.ERROR

    def __call__(self, record: Record) -> None:
        """Make the span of a request."""
        if record.how == "own":
            return
        parent = self._extract({"traceparent": record.trace}) if record.trace else None
        began = int(record.at * 1e9)
        span = self._tracer.start_span(
            span_name(record),
            context=parent,
            kind=self._kind,
            attributes=attributes_of(record),
            start_time=began,
        )
        if error := error_of(record):
            span.set_status(self._error, error)
        span.end(began + int(record.ms * 1e6))

    def close(self) -> None:
        """Send what waits, within a few seconds."""
        ending = Thread(
            target=self._processor.shutdown, daemon=True
        )  # which may take half a minute
        ending.start()
        ending.join(_ENDING)


def spans_wanted(environ: Mapping[str, str]) -> bool:
    """Whether the environment names a place for spans, and does not forbid them."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporters and "otlp" not in exporters.split(","):
        return False
    return any(environ.get(name, "").strip() for name in _ENDPOINTS)


def spans_of(environ: Mapping[str, str]) -> Spans | None:
    """Spans, where they are wanted and can be had; what is missing is said once."""
    if not spans_wanted(environ):
        return None
    try:
        return Spans()
    except ImportError as error:
        _log.warning(
            "The environment asks for OpenTelemetry spans, but %s is not installed: "
            "pip install '.[otel]' in a clone of respool's repository.",
            error.name,
        )
    except Exception as error:  # noqa: BLE001 - a wrong setting for spans must not stop the proxy
        _log.warning("OpenTelemetry spans cannot be sent: %s", error)
    return None


def span_name(record: Record) -> str:
    """What a span is called: what was asked of which model, or the method."""
    about = record.respool
    if record.format is None or about is None:
        return record.method
    return f"{_operation(record.format, about)} {about.model}".strip()


def error_of(record: Record) -> str:
    """What kind of error a request ended in; empty: in none."""
    if record.how in ("broke", "gone", "unreachable", "refused"):
        return record.how
    return str(record.status) if record.status is not None and record.status >= 400 else ""


def attributes_of(record: Record) -> Attributes:
    """All that a span says of a request."""
    found = dict(_of_exchange(record))
    if record.format is not None:
        found["gen_ai.provider.name"] = _PROVIDERS[record.format]
        if record.respool is not None:
            found |= dict(_of_model(record.format, record.respool))
            found |= dict(_of_respool(record.respool))
    return {name: value for name, value in found.items() if value not in ("", None)}


def _of_exchange(record: Record) -> Iterator[tuple[str, Any]]:
    yield "http.request.method", record.method
    yield "http.response.status_code", record.status
    yield "http.request.body.size", record.up
    yield "http.response.body.size", record.down
    yield "error.type", error_of(record)
    if record.upstream is not None:
        where = urlsplit(record.upstream)
        yield "server.address", where.hostname
        yield "server.port", where.port or (443 if where.scheme == "https" else 80)


def _of_model(format: str, about: About) -> Iterator[tuple[str, Any]]:
    yield "gen_ai.operation.name", _operation(format, about)
    yield "gen_ai.request.model", about.model
    yield "gen_ai.response.model", about.answered_by
    yield "gen_ai.conversation.id", about.conversation
    if about.stop:
        yield "gen_ai.response.finish_reasons", (about.stop,)
    if (usage := about.usage) is not None:
        # The conventions' input tokens are all of them, those from the cache included.
        yield "gen_ai.usage.input_tokens", usage.input + usage.cache_read + usage.cache_write
        yield "gen_ai.usage.cache_read.input_tokens", usage.cache_read
        yield "gen_ai.usage.cache_creation.input_tokens", usage.cache_write
        yield "gen_ai.usage.output_tokens", usage.output


def _of_respool(about: About) -> Iterator[tuple[str, Any]]:
    yield "respool.sent", about.sent
    yield "respool.engine", about.why
    yield "respool.retry", about.again
    yield "respool.tokens.before", about.before
    yield "respool.tokens.saved", about.saved
    yield "respool.milliseconds", about.ms


def _operation(format: str, about: About) -> str:
    if about.operation == "count":
        return "count_tokens"
    return "generate_content" if format == "gemini" else "chat"


def _exporter(environ: Mapping[str, str]) -> Any:
    """The exporter for the protocol that is asked for."""
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), "http/protobuf")
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # pyright: ignore[reportMissingImports]  # not in the extra: who wants it installs it
            OTLPSpanExporter as GrpcExporter,  # pyright: ignore[reportUnknownVariableType]
        )

        return GrpcExporter()  # pyright: ignore[reportUnknownVariableType]
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _service(environ: Mapping[str, str]) -> dict[str, str]:
    """The name of this service, unless the environment gives it another."""
    named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return {} if named else {"service.name": "respool", "service.version": installed()}
