# pyright: basic, reportMissingImports=false
"""respool as an arm of code-compression-bench: copy this file to its arms/respool.py.

Start respool before the run, with that benchmark's gateway as its upstream:

    respool serve --upstream anthropic=GATEWAY_URL --preset lean
    ARM_RESPOOL_URL=http://127.0.0.1:7733 make bench ARM=respool

Fields used of its contract: `name`, `needs`, `ready`, `model_base_url`.
"""

from __future__ import annotations

import os
import urllib.error
import urllib.request

from bench.arm import ProxyArm, register  # its own package, not respool's


@register("respool")
class RespoolArm(ProxyArm):
    """Claude Code's requests go to a respool that runs already."""

    name = "respool"
    needs = ("ARM_RESPOOL_URL",)

    def model_base_url(self) -> str:
        """The address of respool, without a trailing slash."""
        return os.environ["ARM_RESPOOL_URL"].rstrip("/")

    def ready(self) -> tuple[bool, str]:
        """Ask respool whether it runs."""
        if not os.environ.get("ARM_RESPOOL_URL"):
            return False, "missing env: ARM_RESPOOL_URL"
        try:
            with urllib.request.urlopen(f"{self.model_base_url()}/healthz", timeout=5):
                return True, "ok"
        except (urllib.error.URLError, OSError, ValueError) as error:
            return False, f"respool does not answer: {error}"
