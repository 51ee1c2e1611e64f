"""Process of the model server: `model_process.py MODEL TEMPLATE ADDRESS`, until stdin closes."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

CONTEXT = 2048  # tokens: small, so that a short history is already too long


def parameters(api: Any, model: str, template: str) -> Any:
    """One slot that remembers the last prompt and no other, on a free port of the loopback."""
    chosen = api.CommonParams()
    chosen.model.path = model
    chosen.chat_template = Path(template).read_text(encoding="utf-8")
    chosen.use_jinja = True
    chosen.hostnames = ["127.0.0.1"]
    chosen.port = 0
    chosen.n_ctx = CONTEXT
    chosen.n_parallel = 1
    chosen.cache_ram_mib = 0
    chosen.warmup = False
    return chosen


def main(model: str, template: str, address: str) -> None:
    """Serve, say where, and end with whoever started this."""
    api: Any = import_module("xllamacpp")  # by name, for only make e2e installs it
    server = api.Server(parameters(api, model, template))
    written = Path(f"{address}.new")
    written.write_text(server.listening_address, encoding="utf-8")
    written.rename(address)
    while os.read(sys.stdin.fileno(), 1024):
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
