"""Continue's configuration, and a copy of it whose models go through a proxy.

Only the changed values of the copy differ from the file, which is YAML and is never written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import yaml
from msgspec import Struct

from ..proxy.server_options import UpstreamName as Name
from .base_urls import AgentProvider
from .settings_files import as_object, as_text, config_folder, get_nested, is_http_url, read_text

_MAKERS: Final[dict[str, Name]] = {"anthropic": "anthropic"}  # go through without an apiBase
_COMPATIBLE: Final = frozenset(
    {
        *("openai", "openrouter", "mistral", "groq", "together", "fireworks", "deepinfra", "xAI"),
        *("nvidia", "vllm", "lmstudio", "llama.cpp", "llamafile", "ollama"),
    }
)
# Continue goes by these hosts themselves: it sends other requests or headers to any other.
_DISTINGUISHED: Final = ("api.openai.com", "azure.com")
_LOCAL_PREFIXES: Final = (".", "file://.")


class ContinueModel(Struct, frozen=True):
    """Model of a configuration: its place in the list, and its provider if that can be moved."""

    at: int
    name: str
    provider: AgentProvider | None


class ContinueConfig(Struct, frozen=True):
    """Configuration as it was read."""

    path: Path
    text: str
    settings: dict[str, Any]
    models: list[ContinueModel]
    servers: list[Any]  # of the Model Context Protocol


def continue_path(environ: Mapping[str, str], working_dir: Path, given: str) -> Path | None:
    """File of the configuration; None: it is not in a file."""
    if not given:
        return config_folder(environ, "CONTINUE_GLOBAL_DIR", ".continue") / "config.yaml"
    is_path = given.startswith((".", "/", "~")) or given.endswith((".yaml", ".yml", ".json"))
    return working_dir / Path(given).expanduser() if is_path else None


def read_continue_config(path: Path) -> ContinueConfig | None:
    """Read a configuration; None: it is missing or cannot be understood."""
    text = read_text(path)
    settings = as_object(_load(text))
    listed = settings.get("models")
    if not isinstance(listed, list) or _has_http_proxy(settings):
        return None
    models = [
        ContinueModel(at, as_text(get_nested(one, "name")) or str(at + 1), _provider(one))
        for at, one in enumerate(cast(list[Any], listed))
    ]
    servers = settings.get("mcpServers")
    known = cast(list[Any], servers) if isinstance(servers, list) else []
    return ContinueConfig(path, text, settings, models, known)


def _load(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _has_http_proxy(holder: Any) -> bool:
    """Report whether requests go through an HTTP proxy, which cannot reach this machine."""
    return bool(get_nested(holder, "requestOptions", "proxy"))


def _provider(model: Any) -> AgentProvider | None:
    """Provider of a model that can be moved without any other effect; None: it is left."""
    kind, url = (as_text(get_nested(model, key)) for key in ("provider", "apiBase"))
    if "uses" in as_object(model) or _has_http_proxy(model):
        return None
    if kind in _MAKERS and not url:
        return AgentProvider(kind, _MAKERS[kind])
    if not is_http_url(url) or any(host in url for host in _DISTINGUISHED):
        return None
    if kind == "ollama" and not url.rstrip("/").endswith("/v1"):
        url = f"{url.rstrip('/')}/v1"  # Continue adds it
    upstream = _MAKERS.get(kind) or ("openai" if kind in _COMPATIBLE else None)
    return AgentProvider(kind, upstream, url) if upstream else None


def moved_continue_config(
    config: ContinueConfig,
    urls: Mapping[int, str],
    working_dir: Path,
    server: Mapping[str, Any] | None = None,
) -> str | None:
    """Text of a copy with these base URLs, and an MCP server; None: it cannot be made.

    The copy is parsed again: it must be the same configuration but for these values.
    """
    expected = cast(dict[str, Any], _with_local_files(config, config.settings, working_dir))
    models = cast(list[Any], expected["models"])
    expected["models"] = [
        {**model, "apiBase": urls[at]} if at in urls else model for at, model in enumerate(models)
    ]
    if server is not None:
        expected["mcpServers"] = [server, *cast(list[Any], expected.get("mcpServers") or [])]
    try:
        root = cast(Any, yaml).compose(config.text, yaml.SafeLoader)
        text = _apply(config.text, [*_edits(config, root, urls, working_dir, server)])
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    return text if _load(text) == expected else None


class _Edit(Struct, frozen=True, order=True):
    """Replacement of a range of characters."""

    start: int
    end: int
    text: str


def _apply(text: str, edits: list[_Edit]) -> str:
    for edit in sorted(set(edits), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _edits(
    config: ContinueConfig,
    root: Any,
    urls: Mapping[int, str],
    working_dir: Path,
    server: Mapping[str, Any] | None,
) -> Iterator[_Edit]:
    fields = _fields(root)
    for at, model in enumerate(fields["models"].value):
        if at in urls:
            yield _set_field(model, "apiBase", json.dumps(urls[at]))
    for node in _nodes(root):
        if isinstance(node, yaml.MappingNode) and (used := _fields(node).get("uses")):
            path = _absolute(config, used.value, working_dir)
            if path != used.value:
                yield _replace_node(used, json.dumps(path))
    if server is not None:
        yield _add_server(root, fields.get("mcpServers"), json.dumps(server))


def _fields(node: Any) -> dict[str, Any]:
    return {key.value: value for key, value in node.value if isinstance(key.value, str)}


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    if isinstance(node, yaml.SequenceNode):
        for one in node.value:
            yield from _nodes(one)
    elif isinstance(node, yaml.MappingNode):
        for _, value in node.value:
            yield from _nodes(value)


def _replace_node(node: Any, text: str) -> _Edit:
    return _Edit(node.start_mark.index, node.end_mark.index, text)


def _set_field(node: Any, key: str, value: str) -> _Edit:
    """Replace the value of a key; add the key before the others where it is missing."""
    if key in _fields(node):
        return _replace_node(_fields(node)[key], value)
    first = node.value[0][0].start_mark
    between = ", " if node.flow_style else f"\n{' ' * first.column}"
    return _Edit(first.index, first.index, f"{key}: {value}{between}")


def _add_server(root: Any, listed: Any, server: str) -> _Edit:
    """Add an MCP server before the others."""
    if listed is None or not listed.value:
        return _set_field(root, "mcpServers", f"[{server}]")
    start = listed.start_mark
    if listed.flow_style:
        return _Edit(start.index + 1, start.index + 1, f"{server}, ")
    return _Edit(start.index, start.index, f"- {server}\n{' ' * start.column}")


def _with_local_files(config: ContinueConfig, value: Any, working_dir: Path) -> Any:
    """Settings whose files are named by absolute paths: a copy stands in another folder."""
    if isinstance(value, list):
        return [_with_local_files(config, one, working_dir) for one in cast(list[Any], value)]
    if not isinstance(value, dict):
        return value
    made = dict(cast(dict[Any, Any], value))
    for key, one in made.items():
        is_file = key == "uses" and isinstance(one, str)
        made[key] = (
            _absolute(config, one, working_dir)
            if is_file
            else _with_local_files(config, one, working_dir)
        )
    return made


def _absolute(config: ContinueConfig, name: str, working_dir: Path) -> str:
    """Absolute path of a file beside the configuration; the working folder comes first."""
    plain = name.removeprefix("file://")
    if not name.startswith(_LOCAL_PREFIXES) or (working_dir / plain).exists():
        return name
    return str((config.path.parent / plain).resolve())
