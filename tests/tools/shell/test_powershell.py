"""Effects of PowerShell commands, and texts that its parser leaves alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.tools.shell.parser import MAX_NESTING
from respool.tools.shell.powershell import is_powershell, parse_powershell
from respool.tools.shell.syntax import UnreadableCommand
from tests.effort import examples
from tests.tools.shell.test_effects import describe_use, use

READS = [
    ("Get-Content -Path components\\a.tsx", "read code components/a.tsx"),
    ("Get-Content 'd:\\Game builds\\a.py'", "read code d:/Game builds/a.py"),
    ("get-content -Raw -Encoding utf8 a.py", "read code a.py"),
    ("Get-Content a.py, b.py", "read code a.py b.py"),
    ("Get-Content README.md -TotalCount 250", "read page README.md:1-250"),
    ("Get-Content a.py -Tail 40", "read code a.py~"),
    ("Get-Content a.py | Select-Object -First 20", "read code a.py:1-20"),
    ("Get-Content a.py | Select-Object -Skip 100 -First 50", "read code a.py:101-150"),
    ("Get-Content a.py | Select-Object -Last 5", "read code a.py~"),
    ("Get-Content a.py |\n Select-String foo", "read code a.py~"),
    ("(Get-Content a.py)[10..20]", "read code a.py:11-21"),
    ("(Get-Content a.py)[-20..-1]", "read code a.py~"),
    ("$lines = Get-Content a.py; $lines[99..199]", "read code a.py:100-200"),
    ("$f = 'a.py'\nGet-Content $f", "read code a.py"),
    ("Get-Content $unknown", "read code"),
    ('Get-Content "$root\\a.py"', "read code"),
    ("cd src; Get-Content a.py", "read code src/a.py"),
    ("cd $x; Get-Content a.py", "read code"),
    ("if (Test-Path a.py) { Get-Content a.py } else { 'none' }", "read code a.py"),
    ('$i=0; Get-Content a.md | % { $i++; "{0}`t{1}" -f $i,$_ }', "read page a.md~"),
    ("$l=gc a.py; for ($i=10;$i -le 20;$i++) { '{0}' -f $l[$i] }", "read code a.py~"),
    ("Select-String -Path src\\*.py -Pattern 'foo' -Context 3,3", "search hits src~"),
    ("Select-String foo a.py", "search hits a.py~"),
    ("Get-ChildItem -Recurse -Filter *.md | Select-Object Name", "search listing .~"),
    ("(Invoke-WebRequest -UseBasicParsing https://x.y/z).Content", "read page https://x.y/z~"),
]

WRITES = [
    ("Get-Content a.py > b.py", "write edit =b.py"),
    ("Get-Content a.py | Out-File b.py", "write edit =b.py"),
    ("(Get-Content a.py -Raw).Replace('a','b') | Set-Content a.py", "write edit =a.py"),
    ("$p='a.py'; $c=Get-Content $p; Set-Content -Path $p -Value $c", "write edit =a.py"),
    ("Add-Content a.py 'x'", "write edit +a.py"),
    ("Set-Content $p 'x'", "write edit barrier unknown"),
    ("Get-Item a | % { Remove-Item b.py }", "write listing a~ =b.py"),
    ("Remove-Item a.py -Force", "write edit =a.py"),
    ("Remove-Item out -Recurse", "write edit =out barrier"),
    ("Copy-Item a.py b.py", "write edit +b.py"),
    ("Move-Item a.py b.py", "write edit +a.py +b.py"),
    ("New-Item -ItemType File a.py | Out-Null", "write log +a.py"),
    ("Get-Content a.py | Tee-Object b.py", "write code a.py =b.py"),
]

UNKNOWN = [
    "[System.IO.File]::WriteAllText('a.py','x'); Get-Content a.py",
    "Get-Item a.py | ForEach-Object { $_.Delete() }",
    "Get-Content a.py; & $tool x",
    "Get-Content a.py; .\\build.ps1",
    "Get-Content a.py; Invoke-Expression $x",
    "function f { Remove-Item a.py }; f; Get-Content b.py",
    "Get-Content (Join-Path a 'b",
    "@'\nprint(1)\n'@ | python -; Get-Content a.py",
]


@pytest.mark.parametrize(("command", "expected"), [*READS, *WRITES])
def test_cmdlets(command: str, expected: str) -> None:
    assert describe_use(use(["powershell.exe", "-NoProfile", "-Command", command])) == expected
    if is_powershell(command):
        assert describe_use(use(command)) == expected


@pytest.mark.parametrize("command", UNKNOWN)
def test_what_may_write_out_of_sight_is_a_barrier(command: str) -> None:
    found = use(["pwsh", "-c", command])
    assert found.barrier
    assert not found.known


@pytest.mark.parametrize(
    "words",
    [
        ["powershell", "Get-Content a.py"],
        ["C:\\Program Files\\PowerShell\\7\\pwsh.exe", "-c", "Get-Content a.py"],
        ["powershell.exe", "-ExecutionPolicy", "Bypass", "-Command", "type a.py"],
        ["bash", "-lc", "pwsh -NoProfile -Command 'Get-Content a.py'"],
    ],
)
def test_ways_to_start_it(words: list[str]) -> None:
    assert describe_use(use(words)) == "read code a.py"


def test_files_and_encoded_commands_are_unknown() -> None:
    for words in (["-File", "a.ps1"], ["-EncodedCommand", "aGk="], []):
        assert use(["powershell.exe", *words]).barrier


def test_a_command_of_a_posix_shell_stays_one() -> None:
    text = "cat > x.ps1 <<'EOF'\nGet-Content a.py\nEOF"
    assert describe_use(use(text)) == "write edit =x.ps1"


@settings(max_examples=examples(200))
@given(st.text(alphabet="Get-Content a.py|;(){}[]$'\"`@#\n&<>=,", max_size=60))
def test_any_text_is_parsed_or_unreadable(text: str) -> None:
    try:
        parse_powershell(text, None)
    except UnreadableCommand:
        return


def test_deep_nesting_is_unreadable() -> None:
    with pytest.raises(UnreadableCommand):
        parse_powershell("(" * (MAX_NESTING + 1) + ")" * (MAX_NESTING + 1), None)
