"""OpenTelemetry spans, one for each request, if the environment names an endpoint.

Attributes have the names of the conventions for generative AI. No text of a request or a response
is in them, no header and no key.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit

from ..errors import install_command
from ..plugins import installed_version
from .log import CompactionSummary, LogEntry

_log = logging.getLogger(__name__)
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROVIDERS: Final = {
    "anthropic": "anthropic",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "gemini": "gcp.gemini",
}
_CLOSE_SECONDS: Final = 5.0  # for the last spans at shutdown
Attributes = dict[str, Any]


class SpanExporter:
    """Creates a span for each request that has ended; a thread of the SDK sends them."""

    def __init__(self, exporter: Any = None) -> None:
        from opentelemetry.propagate import extract  # late: only if spans are wanted
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import SpanKind, StatusCode

        self._processor = BatchSpanProcessor(exporter or _exporter(os.environ))
        provider = TracerProvider(
            resource=Resource.create(_service(os.environ)), shutdown_on_exit=False
        )
        provider.add_span_processor(self._processor)
        self._tracer = provider.get_tracer("respool", installed_version())
        self._extract: Callable[[Mapping[str, str]], Any] = extract
        self._kind, self._error = SpanKind.CLIENT, StatusCode.ERROR

    def __call__(self, entry: LogEntry) -> None:
        """Create the span of a request."""
        if entry.outcome == "own_page":
            return
        parent = self._extract({"traceparent": entry.traceparent}) if entry.traceparent else None
        started = int(entry.time * 1e9)
        span = self._tracer.start_span(
            span_name(entry),
            context=parent,
            kind=self._kind,
            attributes=attributes_of(entry),
            start_time=started,
        )
        if error := error_type(entry):
            span.set_status(self._error, error)
        span.end(started + int(entry.duration_ms * 1e6))

    def close(self) -> None:
        """Send the spans that wait, within a few seconds."""
        # The SDK may take half a minute.
        ending = Thread(target=self._processor.shutdown, daemon=True)
        ending.start()
        ending.join(_CLOSE_SECONDS)


def wants_spans(environ: Mapping[str, str]) -> bool:
    """True if the environment names an endpoint for spans, and does not disable them."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporters and "otlp" not in exporters.split(","):
        return False
    return any(environ.get(name, "").strip() for name in _ENDPOINTS)


def span_exporter(environ: Mapping[str, str]) -> SpanExporter | None:
    """An exporter, if spans are wanted and the packages are installed; else a warning."""
    if not wants_spans(environ):
        return None
    try:
        return SpanExporter()
    except ImportError as error:
        _log.warning(
            "The environment asks for OpenTelemetry spans, but %s is not installed: %s.",
            error.name,
            install_command("otel"),
        )
    except Exception as error:  # noqa: BLE001 - a wrong setting must not stop the proxy
        _log.warning("OpenTelemetry spans cannot be sent: %s", error)
    return None


def span_name(entry: LogEntry) -> str:
    """The name of a span: operation and model, or else the method."""
    summary = entry.compaction
    if entry.format is None or summary is None:
        return entry.method
    return f"{_operation(entry.format, summary)} {summary.model}".strip()


def error_type(entry: LogEntry) -> str:
    """The type of the error that a request ended with; empty: there was none."""
    if entry.outcome in ("upstream_closed", "client_closed", "unreachable", "rejected"):
        return entry.outcome
    return str(entry.status) if entry.status is not None and entry.status >= 400 else ""


def attributes_of(entry: LogEntry) -> Attributes:
    """The attributes of a span."""
    found = dict(_http_attributes(entry))
    if entry.format is not None:
        found["gen_ai.provider.name"] = _PROVIDERS[entry.format]
        if entry.compaction is not None:
            found |= dict(_model_attributes(entry.format, entry.compaction))
            found |= dict(_own_attributes(entry.compaction))
    return {name: value for name, value in found.items() if value not in ("", None)}


def _http_attributes(entry: LogEntry) -> Iterator[tuple[str, Any]]:
    yield "http.request.method", entry.method
    yield "http.response.status_code", entry.status
    yield "http.request.body.size", entry.bytes_up
    yield "http.response.body.size", entry.bytes_down
    yield "error.type", error_type(entry)
    if entry.upstream is not None:
        url = urlsplit(entry.upstream)
        yield "server.address", url.hostname
        yield "server.port", url.port or (443 if url.scheme == "https" else 80)


def _model_attributes(format: str, summary: CompactionSummary) -> Iterator[tuple[str, Any]]:
    yield "gen_ai.operation.name", _operation(format, summary)
    yield "gen_ai.request.model", summary.model
    yield "gen_ai.response.model", summary.response_model
    yield "gen_ai.conversation.id", summary.conversation
    if summary.stop_reason:
        yield "gen_ai.response.finish_reasons", (summary.stop_reason,)
    if (usage := summary.usage) is not None:
        # By the conventions, input tokens include those from the cache.
        yield "gen_ai.usage.input_tokens", usage.prompt
        yield "gen_ai.usage.cache_read.input_tokens", usage.cache_read
        yield "gen_ai.usage.cache_creation.input_tokens", usage.cache_write
        yield "gen_ai.usage.output_tokens", usage.output


def _own_attributes(summary: CompactionSummary) -> Iterator[tuple[str, Any]]:
    yield "respool.sent", summary.sent
    yield "respool.fallback", summary.fallback
    yield "respool.retry", summary.retry
    yield "respool.tokens.before", summary.tokens_before
    yield "respool.tokens.after", summary.tokens_before - summary.tokens_saved
    yield "respool.tokens.saved", summary.tokens_saved
    yield "respool.edits.new", summary.new_edits
    for reason, count in summary.edits.items():
        yield f"respool.edits.{reason}", count
    yield "respool.epochs", summary.epochs
    yield "respool.refetched", summary.refetched
    yield "respool.results", summary.results
    yield "respool.waiting.offers", summary.waiting_offers
    yield "respool.waiting.tokens", summary.waiting_tokens
    yield "respool.compaction.milliseconds", summary.compaction_ms


def _operation(format: str, summary: CompactionSummary) -> str:
    if summary.operation == "count":
        return "count_tokens"
    return "generate_content" if format == "gemini" else "chat"


def _exporter(environ: Mapping[str, str]) -> Any:
    """The exporter for the protocol that the environment names."""
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), "http/protobuf")
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # pyright: ignore[reportMissingImports]  # not in the extra
            OTLPSpanExporter as GrpcExporter,  # pyright: ignore[reportUnknownVariableType]
        )

        return GrpcExporter()  # pyright: ignore[reportUnknownVariableType]
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _service(environ: Mapping[str, str]) -> dict[str, str]:
    """The name of this service, unless the environment names it."""
    named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return {} if named else {"service.name": "respool", "service.version": installed_version()}
