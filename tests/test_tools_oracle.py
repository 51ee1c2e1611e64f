"""The registry against a real shell: what a command changed or printed is what was told of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from respool.tools import Span
from respool.tools.paths import may_reach
from respool.tools.programs.scripts import awk_writes, sed_writes
from tests.test_tools_shell import use

BASH = shutil.which("bash")
SED, AWK = shutil.which("sed"), shutil.which("awk")
pytestmark = pytest.mark.skipif(None in (BASH, SED, AWK), reason="there is no shell here")

FILES = {name: "".join(f"{name} {n}\n" for n in range(1, 41)) for name in ("a", "b", "d/c", "d/e")}
TEXT = FILES["a"].splitlines(keepends=True)

file = st.sampled_from(["a", "b", "d/c", "d/e", "new", "d/new", "./a", "d/../b", "$V", "*", "d/*"])
number = st.integers(1, 45)
reader = st.one_of(
    st.builds("cat {}".format, file),
    st.builds("cat {} {}".format, file, file),
    st.builds("nl -ba {}".format, file),
    st.builds("head -n {} {}".format, number, file),
    st.builds("tail -{} {}".format, number, file),
    st.builds("sed -n '{},{}p' {}".format, number, number, file),
    st.builds("sed 's/1/2/' {}".format, file),
    st.builds("grep -n 1 {}".format, file),
    st.builds("awk '{{print $1}}' {}".format, file),
    st.builds("sort -r {}".format, file),
    st.builds("wc -l {}".format, file),
    st.builds("ls {}".format, file),
    st.builds("find . -name {}".format, st.sampled_from("abce")),
    st.builds("diff {} {}".format, file, file),
    st.just("echo x"),
)
writer = st.one_of(
    st.builds("sed -i 's/1/2/' {}".format, file),
    st.builds("sed -n '2w {}' a".format, st.sampled_from(["new", "b"])),
    st.builds("sed 's/1/2/w {}' a".format, st.sampled_from(["new", "b"])),
    st.builds("awk '{{print > \"new\"}}' {}".format, file),
    st.builds("sort -o {} {}".format, file, file),
    st.builds("uniq {} {}".format, file, file),
    st.builds("cp {} {}".format, file, file),
    st.builds("cp a b {}".format, st.sampled_from(["d", "d/", "."])),
    st.builds("mv {} {}".format, file, file),
    st.builds("rm -f {}".format, file),
    st.builds("rm -rf {}".format, st.sampled_from(["d", "a", "new"])),
    st.builds("touch {}".format, file),
    st.builds("mkdir -p {}".format, st.sampled_from(["new", "d/new/x"])),
    st.builds("truncate -s 3 {}".format, file),
    st.builds("dd if=a of={} status=none".format, st.sampled_from(["new", "b"])),
    st.builds("tee {} < a".format, file),
    st.builds("find . -name {} -delete".format, st.sampled_from("abce")),
    st.builds("find . -name {} -exec rm {{}} \\;".format, st.sampled_from("abce")),
    st.builds("ls a b | xargs {}".format, st.sampled_from(["rm -f", "touch", "cat", "wc"])),
    st.builds("bash -c 'echo x > {}'".format, st.sampled_from(["new", "b"])),
    st.builds("eval 'echo x > {}'".format, st.sampled_from(["new", "b"])),
    st.builds("patch -s b <<'E'\n1c1\n< b 1\n---\n> x\nE\n".format),
    st.builds('awk \'{{print "a;}}" > "new"}}\' {}'.format, file),
    st.builds('awk \'/1;/ {{ "touch new" | getline }} END {{ system ("rm b") }}\' {}'.format, file),
    st.builds("cat <<E\n`touch {}`\nE\n".format, st.sampled_from(["new", "b"])),
    st.builds("(( 1 + $(rm {}; echo 1) ))".format, st.sampled_from(["a", "b"])),
    st.builds("ls | xargs -I% sh -c 'rm -rf %'".format),
    st.builds("find d -name {} -exec cp {{}} {{}}.new \\;".format, st.sampled_from("ce")),
    st.builds("gzip -f {}".format, st.sampled_from(["a", "b"])),
    st.builds("sed -i.bak s/1/2/ {}".format, file),
    st.builds("cp -t d {}".format, st.sampled_from(["a", "b"])),
)
simple = st.one_of(reader, reader, writer)
redirected = st.builds(
    "{} {} {}".format, simple, st.sampled_from([">", ">>", "2>", "&>", "2>&1 >", ">|"]), file
)
feeding = st.builds("cat > {} <<'E'\nx\nE\n".format, file)
command = st.one_of(simple, simple, redirected, feeding)
piped = st.builds(
    "{} | {}".format,
    reader,
    st.sampled_from(["head -3", "tee new", "grep 1 > b", "xargs -n1 echo", "sort -o new", "cat"]),
)
FRAMES = (
    "{}",
    "{}",
    "V=b; {}",
    "cd d && {}",
    "(cd d; {})",
    "for V in a b; do {}\ndone",
    "V=$(echo a); {}",
    "if true; then {}\nfi",
    "false || {}",
    "f() {{ {}\n}}; f a",
    "echo $({}\n)",
    "{{ {}\n}} > new",
    "while read V; do {}\ndone < a",
    "true && cd d; {}",
    "! {}",
    "time {}",
    "({}\n) | cat",
    "case a in a) {}\n;; esac",
    "export V=a; {}",
    "for V in *; do {}\ndone",
    "{} &\nwait",
    "[ -f a ] && {}",
    "if false; then cd d; else {}\nfi > new",
    "(cd d; {}\n) > new",
)
framed = st.sampled_from(FRAMES)
script = st.builds(lambda frame, inner: frame.format(inner), framed, command | piped)


def laid_out(folder: Path) -> None:
    """The same files in a new folder."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def state(folder: Path) -> dict[str, str]:
    """What is in a folder: files with their text, folders by name."""
    return {
        str(path.relative_to(folder)): path.read_text(errors="replace") if path.is_file() else ""
        for path in folder.rglob("*")
    }


def ran(script: str, folder: Path) -> str:
    assert BASH is not None
    script = f"ulimit -f 2000\n{script}"  # some of them would feed a file to itself for ever
    done = subprocess.run(
        [BASH, "-c", script], cwd=folder, capture_output=True, timeout=20, check=False
    )
    return done.stdout.decode()


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script)
def test_what_a_command_changed_was_told(tmp_path_factory: pytest.TempPathFactory, script: str):
    folder = tmp_path_factory.mktemp("shell")
    laid_out(folder)
    before = state(folder)
    ran(script, folder)
    after = state(folder)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    changed = {name for name in changed if not name.endswith((".orig", ".rej"))}  # left by patch
    found = use(script, str(folder))
    missed = [
        name
        for name in sorted(changed)
        if not any(may_reach(span.path, str(folder / name)) for span in found.writes)
    ]
    assert found.barrier or not missed, found
    assert found.barrier or found.kind == "write" or not changed


piece = st.sampled_from((
    "p", "d", "w new", "s/1/2/", "s/a/b/w new", "s,a;,b,", "s/[/]/x/", "y/ab/wx/", "e touch new",
    "1,3p", "/1;2/d", "/a/I w new", "\\,1,p", "$!N", "1{p", "}", "a w new", "i\\\nw new",
    "# w new", "s/x/w new/", "s/1/\\/;w new/", "/[;]/w new", "b", ":x", "bx", "q", "0~4p", "1!d",
    "r b", "=",
))  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(piece, min_size=1, max_size=4), st.sampled_from([";", "\n", " ; "]))
def test_a_sed_script_that_writes_is_known_to(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], joint: str
):
    folder = tmp_path_factory.mktemp("sed")
    laid_out(folder)
    script = joint.join(pieces)
    assert SED is not None
    subprocess.run([SED, script, "a"], cwd=folder, capture_output=True, timeout=20, check=False)
    assert sed_writes(script) or state(folder) == FILES | {"d": ""}


statement = st.sampled_from((
    "print", "print $1", 'print > "new"', "print ($2 > 3)", 'print "; > x"',
    "print /1>2/ ? 1 : 2", 'printf "%s}", $1 >> "new"', "if ($2 > 3) print", 'print "}" > "new"',
    "x = $2 / 3 > 1", 'system ("touch new")', '"touch new" | getline', 'print | "cat > new"',
    'print > "/dev/stderr"', "# > new", "print $2 / 2; y = 4 / 2", 'y = "\\"; print > \\"new"',
    "print a[1 > 2]",
))  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(statement, min_size=1, max_size=3), st.sampled_from(["; ", "\n"]))
def test_an_awk_program_that_writes_is_known_to(
    tmp_path_factory: pytest.TempPathFactory, statements: list[str], joint: str
):
    # mawk waits for ever for the one of them while it waits for the other
    assume(not {'"touch new" | getline', 'print | "cat > new"'} <= set(statements))
    folder = tmp_path_factory.mktemp("awk")
    laid_out(folder)
    program = f"/a/ {{ {joint.join(statements)}\n}}"
    assert AWK is not None
    subprocess.run([AWK, program, "a"], cwd=folder, capture_output=True, timeout=20, check=False)
    assert awk_writes(program) or state(folder) == FILES | {"d": ""}


line = st.integers(1, 45)
cut = st.one_of(
    st.builds("sed -n '{},{}p'".format, line, line),
    st.builds("sed -n '{}p'".format, line),
    st.builds("sed -n '{},$p'".format, line),
    st.builds("sed -n '{},+{}p'".format, line, line),
    st.builds("sed {}q".format, line),
    st.builds("head -n {}".format, line),
    st.builds("head -{}".format, line),
    st.builds("tail -n +{}".format, line),
    st.builds("awk 'NR>={} && NR<={}'".format, line, line),
    st.builds("awk 'NR=={}'".format, line),
    st.just("cat"),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cut, st.lists(cut, max_size=3))
def test_the_lines_that_are_told_are_the_lines_that_are_printed(
    tmp_path_factory: pytest.TempPathFactory, first: str, more: list[str]
):
    folder = tmp_path_factory.mktemp("lines")
    laid_out(folder)
    script = " | ".join([f"{first} a", *more])
    (span,) = use(script).reads
    assert span.path == "a"
    if not span.part:
        assert ran(script, folder) == "".join(lines(span))


def lines(span: Span) -> list[str]:
    """The lines of the file that a span names; past its end there are none."""
    if span.lines is None:
        return TEXT
    return TEXT[span.lines[0] - 1 : span.lines[1]]
