"""Build the accelerator into a wheel, where cargo is.

RESPOOL_BUILD_NATIVE=off makes a pure wheel in any case, `required` fails where none can be built;
as a rule a wheel without it is made then, which works the same. RESPOOL_WHEEL_PLATFORM sets the
wheel's platform, for builds in a container of known age (manylinux_2_28_x86_64).
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_MACOS = "11.0"  # the oldest that the library runs on


class AcceleratorBuildHook(BuildHookInterface[Any]):
    """Builds native/ and puts its library beside the package's modules."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library to a wheel, and tag the wheel for this platform."""
        choice = os.environ.get("RESPOOL_BUILD_NATIVE", "auto")
        if choice not in ("auto", "off", "required"):
            raise ValueError(f"RESPOOL_BUILD_NATIVE={choice}: auto, off or required")
        if version == "editable" or choice == "off":
            return
        problem = self._build()
        if problem and choice == "required":
            raise RuntimeError(problem)
        if problem:
            self.app.display_warning(f"{problem}: the wheel has no accelerator")
            return
        built = Path(self.root) / "native" / "target" / "release" / _library_name()
        build_data["force_include"][str(built)] = f"respool/native/{_library_name()}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform_tag()}"

    def _build(self) -> str:
        """Run cargo; return what went wrong."""
        cargo = shutil.which("cargo")
        if cargo is None:
            return "there is no cargo"
        manifest = Path(self.root) / "native" / "Cargo.toml"
        command = [cargo, "build", "--lib", "--release", "--offline", "--manifest-path", manifest]
        environ = {"MACOSX_DEPLOYMENT_TARGET": _MACOS, **os.environ}
        try:
            subprocess.run(command, check=True, env=environ)  # noqa: S603 - our own crate
        except (OSError, subprocess.CalledProcessError) as error:
            return f"cargo failed: {error}"
        return ""


def _library_name() -> str:
    """The file name of the library, as in respool.accelerator."""
    if sys.platform == "win32":
        return "respool_native.dll"
    return f"librespool_native.{'dylib' if sys.platform == 'darwin' else 'so'}"


def _platform_tag() -> str:
    """The platform of the wheel: any Python 3 can load the library."""
    named = os.environ.get("RESPOOL_WHEEL_PLATFORM", "")
    if not named and sys.platform == "darwin":  # Python may be universal, the library is not
        named = f"macosx_{_MACOS}_{platform.machine()}"
    return (named or sysconfig.get_platform()).replace("-", "_").replace(".", "_")
