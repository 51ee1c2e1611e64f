"""Here-documents of shell commands, by table and against a real shell."""

from __future__ import annotations

import json
import shutil
import subprocess
from time import process_time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from respool.tools import Tools, Use
from respool.tools.shell.parser import SimpleCommand, UnreadableCommand, parse_command
from tests.effort import examples
from tests.tools.shell.test_effects import describe_use

BASH = shutil.which("bash")
PATCH = "*** Begin Patch\n*** Update File: loom.py\n@@\n-warp(1)\n+weft('$(it)')\n*** End Patch"
ADDED = "*** Begin Patch\n*** Add File: loom.py\n+it's \"one\n*** End Patch"


def use(command: str | list[str], tools: Tools | None = None) -> Use:
    """Use of a shell tool with this command."""
    return (tools or Tools()).use_of("exec_command", json.dumps({"cmd": command}))


# A command whose last here-document is open, its terminator, and the effect.
OPEN = [
    (f"apply_patch <<'PATCH'\n{PATCH}", "PATCH", "write edit +loom.py"),
    (f"apply_patch <<'PATCH'\n{ADDED}", "PATCH", "write edit =loom.py"),
    (f'apply_patch <<"PATCH"\n{PATCH}', "PATCH", "write edit +loom.py"),
    (f"apply_patch <<\\PATCH\n{PATCH}", "PATCH", "write edit +loom.py"),
    (f"apply_patch << 'A PATCH'\n{PATCH}", "A PATCH", "write edit +loom.py"),
    (f"apply_patch <<EOF\n{ADDED}", "EOF", "write edit =loom.py"),
    (f"apply_patch <<-'EOF'\n{PATCH}", "\t\tEOF", "write edit +loom.py"),
    (f"apply_patch <<-EOF\n\t{ADDED}", "EOF", "write edit =loom.py"),
    (f"cd mill && apply_patch <<'EOF'\n{PATCH}", "EOF", "write edit +mill/loom.py"),
    (f"apply_patch <<'EOF' | head -3\n{PATCH}", "EOF", "write edit +loom.py"),
    (f"apply_patch <<'EOF' && rm b\n{PATCH}", "EOF", "write edit +loom.py +b"),
    (f"apply_patch <<'EOF'\r\n{PATCH}", "EOF\r", "write edit +loom.py"),
    (f"cat a.py\napply_patch <<'EOF'\n{PATCH}", "EOF", "write code a.py +loom.py"),
    (f"apply_patch <<'EOF'\n{PATCH}\n EOF\nEOFS\nEOF \n-EOF", "EOF", "write edit +loom.py"),
    (f"apply_patch <<'EOF'\n EOF\ncat b\n{PATCH}", "EOF", "write edit +loom.py"),
    (f"apply_patch <<'EOF'\n{PATCH}\n\tEOF", "EOF", "write edit +loom.py"),
    (f"apply_patch <<'EOF'\n{PATCH}\n<<EOF\n<<'B'", "EOF", "write edit +loom.py"),
    (f"apply_patch <<'__'\n{PATCH}\n _ ___", "__", "write edit +loom.py"),
    ("cat > f <<'EOF'", "EOF", "write edit =f"),
    ("cat > f <<EOF\nof $loom", "EOF", "write edit =f"),
    ("cat > f <<EOF\n$(rm b)", "EOF", "write edit =b =f"),
    ("cat > f <<EOF\n`rm b`", "EOF", "write edit =b =f"),
    ("cat > f <<'EOF'\n`rm b` $(rm b)", "EOF", "write edit =f"),
    ("cat > f <<'EOF'\nrm b\ncat c", "EOF", "write edit =f"),
    ("cat <<'EOF' >> f\nx", "EOF", "write edit +f"),
    ("tee f <<'EOF'\nx", "EOF", "write log =f"),
    ("patch -p1 <<'E'\n--- a/x.py\n+++ b/x.py", "E", "write edit +x.py"),
    ("cat > a <<'A'\nx\nA\ncat > b <<'B'\ny\nA", "B", "write edit =a =b"),
    ("cat > a <<'A'\nx\n A\nA\ncat > b <<'B'\ny\nB2", "B", "write edit =a =b"),
    ("cat > a <<'A'\ncat > b <<'B'\nx\nB", "A", "write edit =a"),
    ("bash <<'E'\ncat > f <<'G'\nx\nG", "E", "write edit =f"),
    # still not understood
    ("python - <<'EOF'\nprint(1)", "EOF", "run log barrier unknown"),
    (f"weave <<'EOF'\n{PATCH}", "EOF", "run log barrier unknown"),
    (f"apply_patch <<'EOF' && weave\n{PATCH}", "EOF", "write log +loom.py barrier unknown"),
    (f"weave; apply_patch <<'EOF'\n{PATCH}", "EOF", "write log +loom.py barrier unknown"),
    ("apply_patch <<'EOF'\nno patch", "EOF", "write edit barrier"),
    ("cat > $F <<'EOF'\nx", "EOF", "write log barrier unknown"),
]
BARRIERS = [
    # no shell accepts these, or reads them otherwise than the tree does
    f"apply_patch 'x <<'EOF'\n{PATCH}",
    f"echo $(apply_patch <<'EOF'\n{PATCH}\n)",
    f"if true; then\napply_patch <<'EOF'\n{PATCH}\nfi",
    f"apply_patch <<'EOF' &&\n{PATCH}",
    "cat > f <<P;\n$x\nP\nrm y",
    "cat > f <<'A'B\nx\nA\nrm y\nAB",
    "cat > f <<A\nx\\\nA\nrm y",
    # two on one line
    "cat <<A <<B > f\na\nA\nb",
    # the terminator is there, and more is behind it
    f"apply_patch <<'EOF'\n{PATCH}\nEOF\nweave",
    f"apply_patch <<'EOF'\n{PATCH}\nEOF\nEOF",
    "".join(f"cat > {n} <<'E{n}'\n E{n}\nE{n}\n" for n in range(9)),
]


@pytest.mark.parametrize(("command", "terminator", "expected"), OPEN)
def test_an_open_document_ends_with_the_text(command: str, terminator: str, expected: str):
    forms = (command, f"{command}\n", f"{command}\n{terminator}", f"{command}\n{terminator}\n")
    assert [describe_use(use(form)) for form in forms] == [expected] * 4
    in_bash = use(["bash", "-lc", command])
    assert describe_use(in_bash) == expected


@pytest.mark.parametrize("command", BARRIERS)
def test_what_is_not_understood_stays_a_barrier(command: str):
    found = use(command)
    assert found.barrier
    assert not found.known


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize("command", [command for command, _, _ in OPEN])
def test_a_shell_accepts_an_open_document(command: str):
    assert accepts(command)


def accepts(command: str) -> bool:
    """Check that bash reads a text without an error."""
    assert BASH is not None
    done = subprocess.run([BASH, "-n"], input=command.encode(), capture_output=True, check=False)
    return done.returncode == 0


def body_of(command: str) -> str | None:
    """The body of the here-document of a text's first command, if it can be read."""
    try:
        first = parse_command(command)[0].stages[0]
    except UnreadableCommand:
        return None
    assert isinstance(first, SimpleCommand)
    return first.text or ""


line = st.sampled_from(
    ["E", " E", "\tE", "E2", "E ", "EE", "-E", "_", "x", "", "<<E", "<<'F'", "F"]
)
opener = st.sampled_from(["<<'E'", "<<E", '<< "E"', "<<\\E", "<<-'E'", "<<-E"])


@pytest.mark.skipif(BASH is None, reason="needs bash")
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example("<<'E'", [" E", "x"], "")
@example("<<-E", ["x", "\tE", "E2"], "\n")
@given(opener, st.lists(line, max_size=8), st.sampled_from(["", "\n"]))
def test_a_document_has_the_lines_that_a_shell_reads(opener: str, lines: list[str], end: str):
    command = f"cat {opener}\n" + "\n".join(lines) + end
    assert BASH is not None
    # Of the lines that are commands, only `cat` prints.
    done = subprocess.run(
        [BASH, "-c", f"exec 2>/dev/null\n{command}"],
        env={"PATH": "/bin:/usr/bin"},
        capture_output=True,
        timeout=20,
        check=False,
    )
    body = body_of(command)
    if body is None:
        assert not accepts(command) or "<<" in "".join(lines)
    else:
        shown = [one.lstrip("\t") if "-" in opener else one for one in body.split("\n")]
        assert "\n".join(shown).strip() == done.stdout.decode().strip()


HOSTILE = {
    "lookalikes": ("cat > f <<'E'\n", " E\nE2\n"),
    "operators": ("cat > f <<'E'\n", "<<'E'" + " x" * 400 + "\n"),
    "documents": ("", "cat > f <<'E'\n" + "x\n" * 200 + "E\n"),
    "substitutions": ("cat > f <<E\n", "$(\n"),
    "quotes": ("apply_patch <<'E'\n", "'\"`$(\n"),
    "tabs": ("cat > f <<-'E'\n", "\t\t\t\t\tx"),
    "backslashes": ("cat > f <<E\n", "\\"),
    "underscores": ("cat > f <<'E'\n E\n", "_"),
}


@pytest.mark.parametrize(("head", "repeated"), HOSTILE.values(), ids=list(HOSTILE))
def test_the_time_grows_with_the_length(head: str, repeated: str):
    tools = Tools()
    use("ls")  # load the parser

    def seconds(chars: int) -> float:
        text = head + repeated * (chars // len(repeated))
        began = process_time()
        use(text, tools)
        return process_time() - began

    small = min(seconds(6_000 + at) for at in range(3))
    large = min(seconds(60_000 + at) for at in range(2))
    assert large < 30 * small + 0.3
