"""Other proxies under the same load: headroom's and LiteLLM's, each in an environment of its own.

They are pointed at the bench's upstream on this machine and kept from reaching for anything else:
no telemetry, no price list, no model from a hub. Limits that would answer in their place are off.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from bench.proxy_load import KEY
from bench.proxy_table import Absent
from bench.proxy_upstream import HERE

READY_TIMEOUT = 120.0  # seconds until a peer must be ready
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
TELLING = re.compile(r"error|fail|refused|not found|because|cannot|could not", re.IGNORECASE)
MOST = 200  # characters of a reason


class Peer(msgspec.Struct, frozen=True):
    """Another project's proxy: its package, start command and readiness path."""

    name: str  # of its dependency group and its environment
    package: str
    arguments: Callable[[int, int, Path], list[str]]
    variables: dict[str, str]
    ready: str


class Running(msgspec.Struct, frozen=True):
    """A peer that is up."""

    name: str
    process: subprocess.Popen[bytes]
    port: int


def headroom(port: int, upstream: int, folder: Path) -> list[str]:
    """Its defaults, but for the limit of 60 requests a minute and a cache of answers."""
    return [
        "headroom",
        "proxy",
        "--host",
        HERE,
        "--port",
        f"{port}",
        "--anthropic-api-url",
        f"http://{HERE}:{upstream}",
        "--no-rate-limit",
        "--no-cache",
        "--no-subscription-tracking",
        "--no-telemetry",
    ]


def litellm(port: int, upstream: int, folder: Path) -> list[str]:
    """Its defaults, with every model at the one upstream."""
    chosen = {"model": "anthropic/*", "api_base": f"http://{HERE}:{upstream}", "api_key": "k"}
    config = {"model_list": [{"model_name": "*", "litellm_params": chosen}]}
    (folder / "config.yaml").write_bytes(msgspec.json.encode(config))  # JSON is YAML too
    return ["litellm", "--config", "config.yaml", "--host", HERE, "--port", f"{port}"]


OFFLINE = {
    "HEADROOM_OFFLINE": "1",
    "HF_HUB_OFFLINE": "1",
    "HTTPS_PROXY": f"http://{HERE}:9",  # where nothing listens: what still tries, stays here
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "ORT_DISABLE_TELEMETRY": "1",
}
PEERS = (
    Peer("headroom", "headroom-ai", headroom, OFFLINE, "/readyz"),
    Peer(
        "litellm", "litellm", litellm, {**OFFLINE, "LITELLM_MASTER_KEY": KEY}, "/health/liveliness"
    ),
)


def started(peer: Peer, environments: Path, upstream: int, folder: Path) -> Running | Absent:
    """Start a peer; yield it when ready, or the reason why it is not."""
    bin = environments.absolute() / peer.name / "bin"
    version = version_in(environments / peer.name, peer.package)
    if version is None:
        log = environments / f"{peer.name}.log"
        told = reason_in(log.read_text("utf-8", "replace")) if log.exists() else ""
        return Absent(peer.package, f"is not installed: {told or 'make bench-proxy does that'}")
    at, home = _free_port(), folder / peer.name
    home.mkdir()
    command, *arguments = peer.arguments(at, upstream, home)
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [bin / command, *arguments],
            cwd=home,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**_surroundings(bin.parent, home), **peer.variables},
            start_new_session=True,
        )
    one = Running(f"{peer.package} {version}", process, at)
    if _is_ready(one, peer.ready):
        return one
    stopped(one)
    told = reason_in((home / "log").read_text("utf-8", "replace"))
    return Absent(one.name, f"did not start: {told or 'it said nothing'}")


def _surroundings(environment: Path, home: Path) -> dict[str, str]:
    """Nothing of ours; and the vocabularies that LiteLLM's package, which both have, carries.

    Headroom compacts nothing while it cannot count, and would fetch them from the network.
    """
    found = environment.glob("lib/python*/site-packages/litellm/litellm_core_utils/tokenizers")
    carried = next(found, home)
    return {
        "HOME": f"{home}",
        "PATH": f"{environment / 'bin'}:{os.defpath}",
        "TIKTOKEN_CACHE_DIR": f"{carried}",
    }


def stopped(one: Running) -> None:
    """End a peer, with all that it started."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(one.process.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            one.process.wait(10.0)


def version_in(environment: Path, package: str) -> str | None:
    """The version of a package that is installed there."""
    name = package.replace("-", "_")
    found = sorted(environment.glob(f"lib/python*/site-packages/{name}-*.dist-info"))
    return found[0].name.removeprefix(f"{name}-").removesuffix(".dist-info") if found else None


def reason_in(log: str) -> str:
    """Return the last line with an error; else the last line."""
    lines = [COLOURS.sub("", line).strip() for line in log.splitlines()]
    lines = [line for line in lines if line]
    telling = [line for line in lines if TELLING.search(line)]
    return (telling or lines or [""])[-1][:MOST]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HERE, 0))
        return free.getsockname()[1]


def _is_ready(one: Running, path: str) -> bool:
    until = time.monotonic() + READY_TIMEOUT
    while time.monotonic() < until and one.process.poll() is None:
        asked = http.client.HTTPConnection(HERE, one.port, timeout=5.0)
        with suppress(OSError, http.client.HTTPException):
            asked.request("GET", path)
            if asked.getresponse().status == 200:
                return True
        asked.close()
        time.sleep(0.25)
    return False
