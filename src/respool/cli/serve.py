"""`respool serve`: run the proxy and its dashboard."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from msgspec import to_builtins

from ..wire.base import known_formats
from .console import CommandError
from .options import (
    deadline_option,
    holdout_options,
    keep_alive_option,
    observe_option,
    policy_options,
    require_server,
    resolve_store_location,
    store_option,
    upstream_option,
)

if TYPE_CHECKING:
    from ..policy import Policy
    from ..proxy.app import App
    from ..proxy.server_options import CompactionOptions, HoldoutOptions, ServerOptions
    from ..store import StoreLocation
    from ..wire.base import FormatName

_MAX_FILES_ON_MACOS = 10_240  # the system reports no limit and accepts this many


def service_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --background and --fail-open, by which services are run, to a command that serves."""

    @functools.wraps(command)
    def serve_or_forward(*, background: bool, fail_open: bool, **given: Any) -> None:
        if background:
            _start_in_background(given["port"])
            return
        try:
            command(**given)
        except Exception as error:
            if not fail_open:
                raise
            _forward_only(error, **given)

    in_background = click.option(
        "--background",
        is_flag=True,
        help="Start it in the background, unless it runs already, and end when it answers.",
    )
    open_option = click.option(
        "--fail-open",
        is_flag=True,
        help="If the proxy cannot run with these settings, forward requests as they come.",
    )
    return in_background(open_option(serve_or_forward))


def _start_in_background(port: int) -> None:
    from ..agents.service import start_in_background  # lazily: it needs the server's options
    from ..store.location import store_path

    if not port:
        raise CommandError("--background needs a port that is known before: --port.")
    words = [word for word in sys.argv[1:] if word != "--background"]
    folder = store_path({**os.environ, "RESPOOL_STORE": ""}).parent
    start_in_background([sys.executable, "-P", "-m", "respool", *words], port, folder)


def _forward_only(
    error: Exception,
    *,
    port: int,
    upstreams: tuple[str, ...],
    upstreams_file: Path | None,
    **_unused: Any,
) -> None:
    """Serve the plain forwarder, and say why."""
    from ..agents.forwarder import inherited_socket
    from ..agents.forwarder import serve as forward
    from ..proxy.server_options import read_upstreams, upstreams_of

    going = read_upstreams(upstreams_file) if upstreams_file else upstreams_of(upstreams)
    why = error.format_message() if isinstance(error, click.ClickException) else str(error)
    click.echo(f"respool forwards requests as they come: {why}", err=True)
    forward(to_builtins(going), inherited_socket(), port, why)


@click.command()
@service_options
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=7733,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@upstream_option(
    "anthropic, openai, openai-chat, openai-responses, gemini, bedrock, vertex or azure"
)
@click.option(
    "--upstreams",
    "upstreams_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="All upstreams in one JSON file, as respool install writes it; --upstream is not used.",
)
@observe_option
@holdout_options
@store_option
@click.option(
    "--shared-store",
    is_flag=True,
    help="Set this if other servers with the same store serve the same conversations.",
)
@deadline_option
@keep_alive_option
@click.option(
    "--text-for",
    "texts",
    type=click.Choice(known_formats()),
    multiple=True,
    help="Write calls and results as plain messages to the upstream of this format. May be "
    "repeated.",
)
@click.option(
    "--memory",
    type=click.FloatRange(1, 1_000_000),
    default=512.0,
    show_default=True,
    metavar="MEGABYTES",
    help="Approximate memory for conversations; one that no longer fits is folded anew at its next "
    "request.",
)
@click.option(
    "--notice",
    type=click.FloatRange(0, 600),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="After SIGTERM, serve this long while /readyz answers 503, so that a balancer sends "
    "requests elsewhere.",
)
@click.option(
    "--drain",
    type=click.FloatRange(1, 3600),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="At shutdown, wait this long for open responses.",
)
@click.option("--quiet", is_flag=True, help="Log no line per request.")
@click.option(
    "--log-format",
    type=click.Choice(("auto", "text", "json")),
    default="auto",
    show_default=True,
    help="Lines for a person or for a program; auto: text on a terminal, else JSON.",
)
@policy_options
def serve(  # noqa: PLR0913 - each is an option
    *,
    host: str,
    port: int,
    upstreams: tuple[str, ...],
    upstreams_file: Path | None,
    observe: bool,
    holdout: HoldoutOptions,
    store_file: str | None,
    shared_store: bool,
    deadline: float,
    keep_alive: float,
    texts: tuple[FormatName, ...],
    memory: float,
    notice: float,
    drain: float,
    quiet: bool,
    log_format: Literal["auto", "text", "json"],
    policy: Policy,
) -> None:
    """Serve the proxy between agents and their providers, and its dashboard.

    Point an agent's base URL at http://127.0.0.1:7733 (for OpenAI's formats, at
    http://127.0.0.1:7733/v1). Without RESPOOL_TOKEN it listens on this machine only; with it,
    every client needs that token.
    """
    with require_server():
        from ..proxy.server import bind, inherited_socket  # late: only this command needs it
        from ..proxy.server import serve as serve_app
        from ..proxy.server_options import (
            CompactionOptions,
            ServerOptions,
            TransferLimits,
            read_upstreams,
            upstreams_of,
            validated,
        )
    host = host.removeprefix("[").removesuffix("]")  # an IPv6 address in a URL
    location = _checked_store(store_file)
    token = os.environ.get("RESPOOL_TOKEN") or None
    going = read_upstreams(upstreams_file) if upstreams_file else upstreams_of(upstreams)
    ending = TransferLimits(notice_seconds=notice, drain_seconds=drain)
    server = validated(ServerOptions(host, port, going, token, ending))
    _raise_file_limit()
    with inherited_socket() or bind(server) as listening:
        url = _url_of(host, listening.getsockname()[1])
        click.echo(f"respool listens on {url}{', and asks for its token' if token else ''}")
        options = CompactionOptions(
            policy=policy,
            observe=observe,
            deadline=deadline,
            memory=memory,
            keep_alive=keep_alive,
            text_formats=texts,
            shared_store=shared_store,
            holdout=holdout,
        )
        click.echo("\n".join(start_lines(url, server, options)))
        serve_app(partial(build_app, server, options, quiet, log_format, location), listening)


def _url_of(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _checked_store(store_file: str | None) -> StoreLocation:
    """The store, validated with its limits before the address is announced."""
    from ..store import Retention, open_store  # lazily: as all that this command needs

    location = resolve_store_location(store_file)
    open_store(location, retention=Retention.from_env()).close()  # which connects to nothing
    return location


def start_lines(url: str, server: ServerOptions, options: CompactionOptions) -> list[str]:
    """Lines at the start: base URLs, upstreams and settings in force."""
    base = url.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:")
    base = f"{base}/respool-token/$RESPOOL_TOKEN" if server.token else base
    ups = server.upstreams
    openai = {"openai": ups.openai}
    if not ups.openai == ups.openai_chat == ups.openai_responses:
        openai = {"openai-chat": ups.openai_chat, "openai-responses": ups.openai_responses}
    going = {"anthropic": ups.anthropic, **openai, "gemini": ups.gemini}
    rows = (
        ("dashboard", base),
        ("Claude Code", f"ANTHROPIC_BASE_URL={base} claude"),
        ("Codex", f'base_url = "{base}/v1" of a model provider in ~/.codex/config.toml'),
        ("Gemini CLI", f"GOOGLE_GEMINI_BASE_URL={base} gemini"),
        ("OpenAI's formats", f"OPENAI_BASE_URL={base}/v1"),
        *((f"{name} goes to", f"{one.origin}{one.prefix}") for name, one in going.items()),
        ("settings", describe_settings(options.policy)),
    )
    kept = (
        [f"Keep-alive pings may cost ${options.keep_alive:,.2f} a day, with API keys only."]
        if options.keep_alive
        else []
    )
    mode = ["It only observes: requests are measured and not changed."] if options.observe else []
    return [
        *(f"  {name:26}{value}" for name, value in rows),
        *mode,
        *kept,
        *holdout_lines(options.holdout),
        "Ctrl-C ends it.",
    ]


def holdout_lines(holdout: HoldoutOptions) -> list[str]:
    """A line on the holdout; none without one."""
    share = f"{100 * holdout.share:g} % of conversations"
    if not holdout.share:
        return []
    if holdout.is_aa:
        return [f"A/A: {share} are one group, the rest the other; both are compacted."]
    return [f"Held out: {share} are sent as they came; respool stats compares."]


def describe_settings(policy: Policy) -> str:
    """The settings that are not the defaults, by their origin."""
    by_origin: dict[str, list[str]] = {}
    for name, origin in policy.origins().items():
        if origin != "default":
            by_origin.setdefault(origin, []).append(name)
    if not by_origin:
        return "all at their defaults; respool settings lists them"
    named = (f"{', '.join(names)} ({origin})" for origin, names in by_origin.items())
    return f"{'; '.join(named)}; all others at their defaults"


def build_app(
    server: ServerOptions,
    options: CompactionOptions,
    quiet: bool,
    log_format: Literal["auto", "text", "json"] = "auto",
    store: StoreLocation | None = None,
) -> App:
    """The proxy that is served."""
    from ..proxy.app import build_app
    from ..proxy.log import (
        LineWriter,
        default_format,
        log_nothing,
        log_to,
        log_warnings_to,
        standard_error,
    )
    from ..store import Retention, open_store

    format = default_format() if log_format == "auto" else log_format
    writer = LineWriter(standard_error(), token=server.token, format=format)
    log_warnings_to(writer)
    log = log_nothing if quiet else log_to(writer)
    opened = open_store(store, retention=Retention.from_env())
    return build_app(server, options, log, store=opened)


def _raise_file_limit() -> None:
    """Raise the limit of open files to the hard limit."""
    with contextlib.suppress(ImportError):
        import resource  # lazily: missing on Windows

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        for wanted in (most, _MAX_FILES_ON_MACOS):
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
                return
