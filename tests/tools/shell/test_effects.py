"""Effects of shell commands, by table and against a real shell."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from respool.tools import Span, Tools, Use
from respool.tools.paths import can_reach
from respool.tools.shell.file_programs import has_awk_write, has_sed_write
from respool.tools.shell.programs import PROGRAMS
from respool.tools.use import END_OF_FILE
from tests.effort import examples

TOOLS = Tools()


def use(command: str | list[str], workdir: str | None = None) -> Use:
    """Use of a shell tool with this command."""
    given = {"cmd": command} if workdir is None else {"cmd": command, "workdir": workdir}
    return TOOLS.use_of("exec_command", json.dumps(given))


def describe_span(span: Span) -> str:
    """A span in short: `a.py`, `a.py:1-5`, `src~` for some part of it."""
    end = "" if span.lines is None else f":{span.lines[0]}-{span.lines[1]}"
    return f"{span.path}{end}{'~' if span.part else ''}"


def describe_use(found: Use) -> str:
    """A use in one line: kind, content, what is read, what is written (`=` whole, `+` in part)."""
    reads = [describe_span(one) for one in found.reads]
    writes = [("=" if found.replaces else "+") + describe_span(one) for one in found.writes]
    ends = (["barrier"] if found.barrier else []) + ([] if found.known else ["unknown"])
    return " ".join([found.kind, str(found.content), *reads, *writes, *ends])


READS = [
    ("cat a.py", "read code a.py"),
    ("cat a.py b.py", "read code a.py b.py"),
    ("cat package.json", "read json package.json"),
    ("cat README.md", "read page README.md"),
    ("cat rows.csv", "read table rows.csv"),
    ("cat -n ./a//b/../c.py", "read code a/c.py"),
    ("cat 'a b.py' c\\ d.py", "read code a b.py c d.py"),
    ("cat src/*.py", "read code src~"),
    ('cat "src/*.py"', "read code src/*.py"),
    ("cat src/{a,b}.py", "read code src~"),
    ("cat ~/x $HOME/y", "read code ~/x ~/y"),
    ("cat $FILE", "read code"),
    ('cat "$(git ls-files)"', "read code"),
    ("F=a.py; cat $F", "read code a.py"),
    ('F=a.py && cat "$F" ${F}', "read code a.py"),
    ("FILES='a b'; cat $FILES", "read code a b"),
    ("[ -f x ] && F=a || F=b; cat $F", "read code"),
    ("bat -r 5:9 a.py", "read code a.py:5-9"),
    ("nl -ba a.py", "read code a.py"),
    ("less a.py", "read code a.py"),
    ("head a.py", "read code a.py:1-10"),
    ("head -50 a.py", "read code a.py:1-50"),
    ("head -n 50 a.py b.py", "read code a.py:1-50 b.py:1-50"),
    ("head -n50 a.py", "read code a.py:1-50"),
    ("head --lines=7 a.py", "read code a.py:1-7"),
    ("head -c 100 a.py", "read code a.py~"),
    ("head -n -5 a.py", "read code a.py~"),
    ("tail -20 a.py", "read code a.py~"),
    ("tail -n +30 a.py", f"read code a.py:30-{END_OF_FILE}"),
    ("sed -n '5,9p' a.py", "read code a.py:5-9"),
    ("sed -n 5,9p a.py", "read code a.py:5-9"),
    ("sed -n '5p' a.py", "read code a.py:5-5"),
    ("sed -n '5,$p' a.py", f"read code a.py:5-{END_OF_FILE}"),
    ("sed -n '5,+3p' a.py", "read code a.py:5-8"),
    ("sed -n '1,5p;20,30p' a.py", "read code a.py:1-5 a.py:20-30"),
    ("sed -n -e 1,5p -e 20,30p a.py", "read code a.py:1-5 a.py:20-30"),
    ("sed -n '5,9p;9q' a.py", "read code a.py:5-9"),
    ("sed 10q a.py", "read code a.py:1-10"),
    ("sed -n '/start/,/end/p' a.py", "read code a.py~"),
    ("sed -n '5,9p' a.py b.py", "read code a.py~ b.py~"),
    ('sed -n "$A,${B}p" a.py', "read code a.py~"),
    ("sed 's/hello world/x/' a.py", "read code a.py~"),
    ("awk 'NR>=5 && NR<=9' a.py", "read code a.py:5-9"),
    ("awk 'NR==5,NR==9' a.py", "read code a.py:5-9"),
    ("awk '{print $1}' a.py", "read code a.py~"),
    ("awk '$1 > 5' a.py", "read code a.py~"),
    ("wc -l a.py", "read code a.py~"),
    ("sort a.py | uniq -c", "read code a.py~"),
    ("diff a b", "read diff a~ b~"),
    ("jq .name package.json", "read json package.json~"),
    ("wc -l < a.py", "read code a.py~"),
    ("while read l; do echo $l; done < a.py", "read log"),
]
PIPES = [
    ("cat a.py | head -5", "read code a.py:1-5"),
    ("cat a.py | sed -n '5,9p'", "read code a.py:5-9"),
    ("nl -ba a.py | sed -n '5,9p'", "read code a.py:5-9"),
    ("nl -ba a.py | sed -n '5,29p' | head -3", "read code a.py:5-7"),
    ("sed -n '10,50p' a.py | sed -n '5,9p'", "read code a.py:14-18"),
    ("cat a.py | grep x", "read code a.py~"),
    ("cat a.py b.py | head -5", "read code a.py~ b.py~"),
    ("cat a.py | cat | nl", "read code a.py"),
    ("cat a.py | wc -l", "read code a.py~"),
    ("cat a.json | jq .x", "read json a.json~"),
    ("go test ./... 2>&1 | tail -20", "run test"),
    ("go build ./... 2>&1 | head", "run log"),
    ("rg foo | head -3", "search hits .~"),
    ("git log | head", "read log"),
    ("ls | wc -l", "search listing .~"),
    ("ls src | head -5", "search listing src~"),
    ("cat a.json | jq --arg x 1 .y", "read json a.json~"),
    ("jq --arg x 1 .y a.json", "read json a.json~"),
    ("find . -name '*.py' | xargs grep foo", "search hits"),
    ("find . -name '*.py' | xargs rm", "write edit barrier unknown"),
    ("git ls-files | xargs sed -i s/a/b/", "write edit barrier unknown"),
    ("cat a.py | tee b.py", "write code a.py =b.py"),
    ("cat a.py | tee -a b.py", "write code a.py +b.py"),
    ("cat a.sh | bash", "run log barrier unknown"),
    ("curl -s https://x.io | sh", "run log barrier unknown"),
    ("cat a.py | python3 -c 'print(1)'", "run log barrier unknown"),
    ("(cd src && cat a.py) | head -5", "read code src/a.py:1-5"),
    ("{ cat a.py; cat b.py; } | head", "read code a.py~ b.py~"),
    ("for f in a b; do cat $f; done | head", "read code a~ b~"),
]
SEARCHES = [
    ("rg -n foo", "search hits .~"),
    ("rg -n foo src lib", "search hits src~ lib~"),
    ("rg -n -g '*.py' -A 3 foo src", "search hits src~"),
    ("rg -e foo src", "search hits src~"),
    ("rg --files src", "search listing src~"),
    ("rg -l foo src", "search listing src~"),
    ("grep -rn foo .", "search hits .~"),
    ("grep -rn --include='*.go' foo", "search hits .~"),
    ("grep -n foo a.py", "search hits a.py~"),
    ("grep -c foo a.py", "search listing a.py~"),
    ("git grep foo -- src", "search hits src~"),
    ("ls", "search listing ."),
    ("ls -la src", "search listing src"),
    ("tree -L 2 src", "search listing src"),
    ("fd -e py foo src", "search listing src"),
    ("find src -name '*.py'", "search listing src"),
    ("find . -name '*.py' -exec grep -n foo {} +", "search hits"),
    ("du -sh src", "search listing src"),
    ("rg --pre ./x foo", "run log barrier unknown"),
]
WRITES = [
    ("echo x > a", "write edit =a"),
    ("echo x >> a", "write edit +a"),
    ("cat b > a", "write edit =a"),
    ("cat <<'EOF' > a.py\nx\nEOF", "write edit =a.py"),
    ("cat > a.py <<EOF\nx\nEOF", "write edit =a.py"),
    ("cat >> a.py <<EOF\nx\nEOF", "write edit +a.py"),
    ("cat <<EOF > a && go test ./...\nx\nEOF", "write test =a"),
    ("cat <<EOF | tee a\nx\nEOF", "write log =a"),
    ("tee a <<EOF\nx\nEOF", "write log =a"),
    ("sort a | uniq > b", "write edit =b"),
    ("go test ./... > out.log 2>&1", "write edit =out.log"),
    ("go test ./... 2> err.log", "write test =err.log"),
    ("go test ./... &> out.log", "write edit =out.log"),
    ("make test >| out.log", "write edit =out.log"),
    ("echo x > $OUT", "write log barrier unknown"),
    ("echo x > $(mktemp)", "write log barrier unknown"),
    ("> a", "write edit =a"),
    ("sed -i 's/a/b/' a.py", "write edit +a.py"),
    ("sed -i '' 's/a/b/' a.py", "write edit +a.py"),
    ("sed -i.bak -e 's/a/b/' a.py b.py", "write edit +a.py +b.py +a.py.bak +b.py.bak"),
    ("sed -i s/a/b/ src/*.py", "write edit +src~"),
    ("sed -i s/a/b/ $FILES", "write edit barrier unknown"),
    ("sed -n '/x/w out' a", "run log barrier"),
    ("sed 's,a,b,w out' a", "run log barrier"),
    ("sed 's/a/b/e' a", "run log barrier"),
    ("awk '{print > \"x\"}' a", "run log barrier"),
    ("awk '{system(\"rm \" $1)}' a", "run log barrier"),
    ("perl -pi -e 's/a/b/' a.py", "write edit +a.py"),
    ("perl -0pi -e 's/a/b/' a.py", "write edit +a.py"),
    ("perl -i.bak -pe 's/a/b/' a.py", "write edit +a.py +a.py.bak"),
    ("perl -ne 'print if /x/' a.py", "read code a.py~"),
    ("perl -e 'unlink q(a)'", "run log barrier unknown"),
    ("ln -s src/a.py", "write edit +a.py"),
    ("install -d x y", "write edit +x +y"),
    ("tmux send-keys 'rm a' Enter", "run log barrier unknown"),
    ("sort -o b a", "write edit =b"),
    ("uniq a b", "write edit =b"),
    ("yq -i .a=1 a.yml", "write edit +a.yml"),
    ("cp a b", "write edit =b"),
    ("cp a b dir/", "write edit =dir/a =dir/b"),
    ("cp -r a b", "write edit +b~"),
    ("mv a b", "write edit +a +b"),
    ("rm -rf build", "write edit =build"),
    ("mkdir -p src/x", "write edit +src/x"),
    ("touch a", "write edit +a"),
    ("chmod +x a.sh", "write edit +a.sh"),
    ("ln -s a b", "write edit +b"),
    ("dd if=a of=b", "write edit =b"),
    ("patch a.py < fix.diff", "write edit +a.py"),
    ("patch -p1 <<EOF\n--- a/x.py\n+++ b/x.py\n@@\nEOF", "write edit +x.py"),
    ("patch -p1 < fix.diff", "write edit barrier"),
    ("find . -name '*.pyc' -delete", "write listing . +.~"),
    ("find . -name '*.py' -exec rm {} ;", "write edit barrier unknown"),
    ("find . -fprint out", "write listing . =out"),
    ("fd -e pyc -x rm", "write edit barrier unknown"),
    ("tar czf a.tgz src", "write edit =a.tgz"),
    ("tar xzf a.tgz", "run log barrier"),
    ("tar --extract -f a.tgz", "run log barrier"),
    ("tar -C out -xzf a.tgz", "write edit +out~"),
    ("tar tzf a.tgz", "search listing"),
    ("curl -o a.html https://x.io/a", "write edit =a.html"),
    ("curl -O https://x.io/a.html", "write edit =a.html"),
    ("wget https://x.io/a.html", "write edit =a.html"),
    ("gofmt -w a.go b.go", "write edit +a.go +b.go"),
    ("prettier --write src", "write edit +src"),
    ("ruff check --fix src", "write edit +src"),
    ("ruff --fix src", "write edit +src"),
    ("ruff format src", "write edit +src"),
    ("black .", "write edit +."),
    ("eslint --fix", "run log barrier"),
    ("npx biome check --write src/a.ts", "write edit +src/a.ts"),
    ("go mod tidy", "write edit +go.mod +go.sum"),
    ("go build -o bin/x ./cmd", "write log =bin/x"),
    ("go test -coverprofile=c.out ./...", "write test =c.out"),
    ("git rm a.py", "write edit =a.py"),
    ("git mv a b", "write edit +a +b"),
    ("git checkout -- a.py", "write edit +a.py"),
    ("git restore a.py", "write edit +a.py"),
    ("git clone https://x.io/a/b.git", "write edit +b"),
    ("git diff --output=x.diff", "write edit =x.diff"),
    ('echo "$(rm a)"', "write log =a"),
    ("X=$(touch a)", "write log +a"),
    ("cat <<EOF\n$(rm a)\nEOF", "write log =a"),
    ("f() { rm a; }; f", "write edit =a"),
    ('f() { rm "$1"; }; f a', "write edit barrier unknown"),
    ("trap 'rm a' EXIT; ls", "write listing . =a"),
    ("for f in a b; do rm $f; done", "write edit =a =b"),
    ("for f in *.py; do rm $f; done", "write edit barrier unknown"),
    ("while read f; do rm $f; done < list", "write edit barrier unknown"),
    ("if true; then rm a; fi", "write edit +a"),
    ("true || rm a", "write edit +a"),
    ("! rm a", "write edit =a"),
    ("case x in a) rm a;; esac", "write edit +a"),
    ("cat a & rm b", "write code a =b"),
    ("diff <(cat a) >(tee b)", "write diff =b"),
]
GIT = [
    ("git status", "read listing"),
    ("git diff", "read diff"),
    ("git diff --stat", "read listing"),
    ("git diff HEAD~1 -- a.py", "read diff a.py~"),
    ("git show", "read diff"),
    ("git show HEAD:src/a.py", "read code HEAD:src/a.py"),
    ("git show HEAD:a.md | sed -n 1,5p", "read page HEAD:a.md:1-5"),
    ("git log --oneline -5", "read log"),
    ("git log -p", "read diff"),
    ("git blame a.py", "read code a.py~"),
    ("git branch", "read listing"),
    ("git branch new", "run log"),
    ("git -C sub status", "read listing"),
    ("git --no-pager diff", "read diff"),
    ("git add -A && git commit -m x && git push", "run log"),
    ("git commit -m \"$(cat <<'EOF'\nhi > there\nEOF\n)\"", "run log"),
    ("git checkout -b new", "run log"),
    ("git checkout -b new main", "write log barrier"),
    ("git checkout main", "write log barrier"),
    ("git switch -c new", "run log"),
    ("git reset HEAD~1", "run log"),
    ("git reset --hard", "write log barrier"),
    ("git stash", "write log barrier"),
    ("git stash list", "read listing"),
    ("git apply x.patch", "write log barrier"),
    ("git apply --check x.patch", "read listing"),
    ("git rebase main", "write log barrier"),
    ("git pull", "write log barrier"),
    ("git clean -fd", "write log barrier"),
    ("git clean -nd", "read listing"),
    ("git restore --staged a.py", "run log"),
    ("git frobnicate", "run log barrier unknown"),
    ("gh pr view 3", "read page"),
    ("gh pr diff 3", "read diff"),
    ("gh pr create --title x", "run log"),
    ("gh pr checkout 3", "write log barrier"),
    ("gh api repos/a/b/pulls", "read json https://api.github.com/repos/a/b/pulls"),
    ("gh api -X POST repos/a/b/pulls", "run log"),
    ("gh api repos/a/b/issues -f title=x", "run log"),
]
RUNS = [
    ("pytest -q tests", "run test"),
    ("python -m pytest -q", "run test"),
    (".venv/bin/pytest", "run test"),
    ("uv run pytest -q", "run test"),
    ("poetry run pytest", "run test"),
    ("npx vitest run", "run test"),
    ("npx vitest -u", "run test barrier"),
    ("go test ./... -update", "run test barrier"),
    ("UPDATE_GOLDEN=1 go test ./...", "run test barrier"),
    ("env UPDATE_GOLDEN=1 go test ./...", "run test barrier"),
    ("env GOCACHE=/tmp/x go test ./...", "run test"),
    ("cargo test", "run test"),
    ("cargo fmt", "run log barrier"),
    ("cargo fmt --check", "run log"),
    ("npm test", "run test"),
    ("npm run test:unit", "run test"),
    ("npm run lint", "run log"),
    ("npm run lint:fix", "run log barrier"),
    ("npm run lint -- --fix", "run log barrier"),
    ("npm run frob", "run log barrier unknown"),
    ("npm install", "run log barrier"),
    ("npm ls", "read listing"),
    ("bun run scripts/test.ts", "run log barrier unknown"),
    ("make test", "run test"),
    ("make fmt", "run log barrier"),
    ("make", "run log"),
    ("make frob", "run log barrier unknown"),
    ("mise run lint", "run log"),
    ("mise exec -- shellcheck a.sh", "run log"),
    ("tsc --noEmit", "run log"),
    ("pip install x", "run log barrier"),
    ("pip list", "read listing"),
    ("python -c 'print(1)'", "run log barrier unknown"),
    ("python3 - <<EOF\nprint(1)\nEOF", "run log barrier unknown"),
    ("python script.py", "run log barrier unknown"),
    ("python --version", "read listing"),
    ("node -e 'x'", "run log barrier unknown"),
    ("./run.sh", "run log barrier unknown"),
    ("$CMD a", "run log barrier unknown"),
    ("go run ./cmd/x", "run log barrier unknown"),
    ("source .env", "run log barrier unknown"),
    ("docker ps", "read listing"),
    ("docker logs x", "read log"),
    ("docker run x", "run log barrier unknown"),
    ("kubectl get pods", "read listing"),
    ("curl https://X.io:443/a#b", "read page https://x.io/a"),
    ("curl -X POST https://x.io", "run page"),
    ("curl -d x=1 https://x.io", "run page"),
    ("sleep 5", "other log"),
    ("echo hi", "other log"),
    ("echo hi > /dev/null 2>&1", "other log"),
    ("echo hi >&2", "other log"),
    ("pwd", "other log"),
    ("sudo cat a", "read code a"),
    ("time cat a", "read code a"),
    ("timeout 5 cat a", "read code a"),
    ("nohup cat a", "read code a"),
    ("command cat a", "read code a"),
    ("command -v cat", "search listing"),
    ("bash -lc 'cat a'", "read code a"),
    ('bash -c "cd src && cat a"', "read code src/a"),
    ('bash -c "$X"', "run log barrier unknown"),
    ("bash <<EOF\ncat a\nEOF", "read code a"),
    ("bash -n a.sh", "run log"),
    ("eval 'cat a'", "read code a"),
    ("sh x.sh", "run log barrier unknown"),
    ("xargs cat", "read code"),
]
SEQUENCES = [
    ("cat a && cat b", "read code a b"),
    ("cat a; ls", "read log a ."),
    ("git status && go test ./...", "run log"),
    ("go vet ./... && go test ./...", "run test"),
    ("cd src && cat a.py", "read code src/a.py"),
    ("cd src && ls 2>&1 | head -3; rm a", "write listing src~ =src/a"),
    ("cat a | head -5 && ls 2>&1 | head -2", "read log a:1-5 .~"),
    ("cat a && cat b 2>/dev/null | head -2", "read code a b:1-2"),
    ("cd src; cd lib; cat a.py", "read code src/lib/a.py"),
    ("cd /w/src && cat ../a.py /b", "read code /w/a.py /b"),
    ("(cd src; ls); cat a.py", "read log src a.py"),
    ("cd $X && cat a.py /b", "read code /b"),
    ("cd $X && rm a.py", "write edit barrier unknown"),
    ("cd $X && rm /a.py", "write edit =/a.py"),
    ("cd src || exit 1; cat a.py", "read code src/a.py"),
    ("false || cd src; cat a.py", "read code"),
    ("if true; then cd src; fi; rm a", "write edit barrier unknown"),
    ("mkdir d && cd d && touch a", "write edit +d +d/a"),
    ("cat a # rm b", "read code a"),
    ("echo 'rm b'; cat a", "read code a"),
    ("", "other log"),
    ("# nothing", "other log"),
]
BROKEN = [
    "cat 'a",
    "echo $(",
    "if true; then",
    "a &&",
    ")",
    "cat <<EOF",
    "`",
    "\x00" * 3,
    "cat " * 40_000,
]


@pytest.mark.parametrize(
    ("command", "expected"),
    [*READS, *PIPES, *SEARCHES, *WRITES, *GIT, *RUNS, *SEQUENCES],
    ids=lambda text: text.replace("\n", "⏎")[:60],
)
def test_a_command_is_told(command: str, expected: str):
    assert describe_use(use(command)) == expected


@pytest.mark.parametrize("command", BROKEN)
def test_what_is_no_command_counts_as_writing_anything(command: str):
    found = use(command)
    assert found.barrier or found.kind == "other"
    if command != "cat <<EOF":
        assert not found.known


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ("*** Begin Patch\n*** Add File: a.py\n+x\n*** End Patch", "write edit =a.py"),
        ("*** Begin Patch\n*** Delete File: a.py\n*** End Patch", "write edit =a.py"),
        ("*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** End Patch", "write edit +a.py"),
        (
            "*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n@@\n*** Add File: c\n+\n",
            "write edit +a.py +b.py +c",
        ),
        ("*** Begin Patch\n*** End Patch", "write edit barrier"),
        ("nothing", "write edit barrier"),
    ],
)
def test_a_patch_names_its_files(patch: str, expected: str):
    assert describe_use(use(f"apply_patch <<'PATCH'\n{patch}\nPATCH")) == expected
    assert describe_use(TOOLS.use_of("apply_patch", patch)) == expected
    assert describe_use(TOOLS.use_of("apply_patch", json.dumps({"input": patch}))) == expected
    assert describe_use(TOOLS.use_of("apply_patch", json.dumps({"patchText": patch}))) == expected


@pytest.mark.parametrize(
    ("command", "workdir", "expected"),
    [
        ("cat a.py", "/w", "read code /w/a.py"),
        ("cat a.py", "/w/", "read code /w/a.py"),
        ("cat /a.py ~/b", "/w", "read code /a.py ~/b"),
        ("cd src && cat a.py", "/w", "read code /w/src/a.py"),
        ("cat $PWD/a.py", "/w", "read code /w/a.py"),
        ("ls", "/w", "search listing /w"),
        ("echo x > a", "/w", "write edit =/w/a"),
        ("git -C sub diff -- a", "/w", "read diff /w/sub/a~"),
        ("apply_patch <<'P'\n*** Begin Patch\n*** Add File: a\n+\nP", "/w", "write edit =/w/a"),
        (["bash", "-lc", "cd src && sed -n 1,5p a.py"], "/w", "read code /w/src/a.py:1-5"),
        (["cat", "a b.py"], "/w", "read code /w/a b.py"),
        (["rm", "-rf", "$X"], "/w", "write edit =/w/$X"),
        (["ls -la"], "/w", "search listing /w"),
        (["sed", "-i", "", "s/a/b/", "f"], None, "write edit +f"),
        ([], "/w", "run log barrier unknown"),
        (["a", 3], "/w", "run log barrier unknown"),
        (None, "/w", "run log barrier unknown"),
        (3, "/w", "run log barrier unknown"),
    ],
)
def test_a_command_runs_where_its_arguments_say(command: str, workdir: str | None, expected: str):
    assert describe_use(use(command, workdir)) == expected


@pytest.mark.parametrize(
    ("command", "target"),
    [
        ("sed -n 1,5p ./a.py", "a.py"),
        ("cd src && echo x > a", "src/a"),
        ("cat a; rm b", "b"),
        ("go test ./pkg -run X 2>&1 | tail -3", "go test ./pkg"),
        ("git status --short", "git status"),
        ("npm run lint | head", "npm run lint"),
        ("curl -s https://x.io/a", "https://x.io/a"),
        ("cd x && ./run.sh now", "./run.sh now"),
        ("echo hi", None),
    ],
)
def test_what_errors_are_counted_by(command: str, target: str | None):
    assert (use(command).target or "")[: len(target or "")] == (target or "")
    assert (use(command).target is None) == (target is None)


def test_a_command_that_is_too_long_is_not_parsed():
    found = use("cat > a <<'EOF'\n" + "x\n" * 50_000 + "EOF")
    assert (found.kind, found.barrier, found.known) == ("write", True, False)


def test_every_program_stands_any_words():
    words = [
        "",
        "-",
        "--",
        "-x",
        "--x=",
        "a",
        "$X",
        "'*'",
        "-n",
        "-i",
        "-o",
        "-e",
        "-c",
        "x=1",
        "run",
    ]
    for name in PROGRAMS:
        for first in words:
            for second in ("", "a", "-o", "$Y"):
                use(f"{name} {first} {second}")


def test_what_only_reads_is_safe_to_run_again():
    assert use("cat a").rerun
    assert use("rg a").rerun
    assert not use("rm a").rerun
    assert not use("pytest").rerun
    assert not use("cat a; ./x").rerun


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


def write_files(folder: Path) -> None:
    """The same files in a new folder."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def state(folder: Path) -> dict[str, str]:
    """Content of a folder: files with their text, folders by name."""
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


@settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script)
def test_what_a_command_changed_was_told(tmp_path_factory: pytest.TempPathFactory, script: str):
    folder = tmp_path_factory.mktemp("shell")
    write_files(folder)
    before = state(folder)
    ran(script, folder)
    after = state(folder)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    changed = {name for name in changed if not name.endswith((".orig", ".rej"))}  # left by patch
    found = use(script, str(folder))
    missed = [
        name
        for name in sorted(changed)
        if not any(can_reach(span.path, str(folder / name)) for span in found.writes)
    ]
    assert found.barrier or not missed, found
    assert found.barrier or found.kind == "write" or not changed


piece = st.sampled_from(
    (
        "p",
        "d",
        "w new",
        "s/1/2/",
        "s/a/b/w new",
        "s,a;,b,",
        "s/[/]/x/",
        "y/ab/wx/",
        "e touch new",
        "1,3p",
        "/1;2/d",
        "/a/I w new",
        "\\,1,p",
        "$!N",
        "1{p",
        "}",
        "a w new",
        "i\\\nw new",
        "# w new",
        "s/x/w new/",
        "s/1/\\/;w new/",
        "/[;]/w new",
        "b",
        ":x",
        "bx",
        "q",
        "0~4p",
        "1!d",
        "r b",
        "=",
    )
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(piece, min_size=1, max_size=4), st.sampled_from([";", "\n", " ; "]))
@example(pieces=["# w new", "i\\\nw new"], joint=";")  # a comment ends with its line
def test_a_sed_script_that_writes_is_known_to(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], joint: str
):
    folder = tmp_path_factory.mktemp("sed")
    write_files(folder)
    script = joint.join(pieces)
    assert SED is not None
    command = [SED, script, "a"]
    try:
        subprocess.run(command, cwd=folder, capture_output=True, timeout=2, check=False)
    except subprocess.TimeoutExpired:
        assume(False)  # a loop without an end
    assert has_sed_write(script) or state(folder) == FILES | {"d": ""}


statement = st.sampled_from(
    (
        "print",
        "print $1",
        'print > "new"',
        "print ($2 > 3)",
        'print "; > x"',
        "print /1>2/ ? 1 : 2",
        'printf "%s}", $1 >> "new"',
        "if ($2 > 3) print",
        'print "}" > "new"',
        "x = $2 / 3 > 1",
        'system ("touch new")',
        '"touch new" | getline',
        'print | "cat > new"',
        'print > "/dev/stderr"',
        "# > new",
        "print $2 / 2; y = 4 / 2",
        'y = "\\"; print > \\"new"',
        "print a[1 > 2]",
    )
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(statement, min_size=1, max_size=3), st.sampled_from(["; ", "\n"]))
def test_an_awk_program_that_writes_is_known_to(
    tmp_path_factory: pytest.TempPathFactory, statements: list[str], joint: str
):
    # mawk waits for ever for the one of them while it waits for the other
    assume(not {'"touch new" | getline', 'print | "cat > new"'} <= set(statements))
    folder = tmp_path_factory.mktemp("awk")
    write_files(folder)
    program = f"/a/ {{ {joint.join(statements)}\n}}"
    assert AWK is not None
    subprocess.run([AWK, program, "a"], cwd=folder, capture_output=True, timeout=20, check=False)
    assert has_awk_write(program) or state(folder) == FILES | {"d": ""}


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


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cut, st.lists(cut, max_size=3))
def test_the_lines_that_are_told_are_the_lines_that_are_printed(
    tmp_path_factory: pytest.TempPathFactory, first: str, more: list[str]
):
    folder = tmp_path_factory.mktemp("lines")
    write_files(folder)
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
