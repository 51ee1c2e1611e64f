"""The command line: output, settings, and one sentence for bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import respool
from respool.cli import main
from respool.cli.console import escape_unprintable, show
from respool.cli.demo import DEMO_POLICY, load_example
from respool.cli.explain import explanation
from respool.engine import fold_request
from respool.wire.base import FORMATS

HOME = Path(respool.__file__).parents[1]
POSIX = pytest.mark.skipif(os.name == "nt", reason="needs POSIX pipes and signals")

# The same settings as the demo's, as anyone can give them.
CAPPED = (
    "--set",
    "cap_chars=2000",
    "--set",
    "reevaluate_tokens=100",
    "--set",
    "reevaluate_ratio=0",
    "--set",
    "eager=on",
    "--set",
    "keep_exchanges=0",
)
CLIPPED = (*CAPPED, "--set", "passes=cap_results")
ALL = ("--set", "keep_exchanges=0")  # the example is short: by default it is all recent
WAITS = "2 offers, 3,184 tokens, wait until they pay; `eager` takes them now"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run where no policy is found by chance."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("RESPOOL_")]:
        monkeypatch.delenv(name)


def run(*arguments: str, data: bytes | None = None) -> Result:
    result = CliRunner().invoke(main, arguments, input=data)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def process(*arguments: str, stdin: Any = None, stdout: Any = None) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": str(HOME)}
    command = [sys.executable, "-m", "respool", *arguments]
    return subprocess.Popen(
        command,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        preexec_fn=_heed_interrupts if os.name == "posix" else None,  # noqa: PLW1509 (one thread)
    )


def _heed_interrupts() -> None:
    """A job in the background ignores interrupts, and would hand that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def anthropic(*messages: Any, **fields: Any) -> bytes:
    return json.dumps({"model": "claude-sonnet-4-5", "messages": messages, **fields}).encode()


class TestCompact:
    def test_tells_calls_in_words(self):
        result = run("compact", "--text", "--report", "-", data=load_example())
        policy = respool.Policy(rendering="text")
        assert (
            result.stdout_bytes == respool.compact(load_example(), policy=policy, memo=None).request
        )
        assert b'"tool_use"' not in result.stdout_bytes
        assert b"Record of tool use, kept by the client" in result.stdout_bytes
        assert "calls and results told in words, +" in result.stderr
        same = run("compact", "--set", "rendering=text", "-", data=load_example())
        assert same.stdout_bytes == result.stdout_bytes
        told = json.loads(run("settings", "--json", "--text").stdout)
        assert told["rendering"] == {"value": "text", "origin": "option --text"}

    def test_writes_the_projection_and_nothing_else(self):
        result = run("compact", *CAPPED, "-", data=load_example())
        assert result.exit_code == 0
        assert result.stderr == ""
        policy = respool.Policy(
            cap_chars=2_000,
            reevaluate_tokens=100,
            reevaluate_ratio=0.0,
            eager=True,
            keep_exchanges=0,
        )
        assert (
            result.stdout_bytes == respool.compact(load_example(), policy=policy, memo=None).request
        )
        assert result.stdout_bytes != load_example()

    def test_writes_what_needs_no_change_as_it_came(self):
        sound = respool.repair(load_example()).request
        result = run("compact", "-", data=sound)
        assert (result.exit_code, result.stdout_bytes) == (0, sound)

    def test_reads_and_writes_files(self, tmp_path: Path):
        Path("in.json").write_bytes(load_example())
        result = run("compact", "in.json", "-o", "out.json")
        assert (result.exit_code, result.stdout) == (0, "")
        assert Path("out.json").read_bytes() == respool.repair(load_example()).request

    def test_says_why_nothing_is_taken_out(self):
        said = run("compact", "-", *ALL, data=load_example()).stderr
        assert said.startswith(f"respool: Nothing was taken out: {WAITS}; 3 results, ")
        assert said.count("\n") == 1
        assert run("compact", "-", *CLIPPED, data=load_example()).stderr == ""
        report = run("compact", "-", *ALL, "--report", data=load_example()).stderr
        assert f"\nNothing was taken out:\n  {WAITS}\n  3 results, " in report

    def test_reports_on_standard_error(self):
        result = run("compact", "-", *CLIPPED, "--report", data=load_example())
        assert "over_cap" in result.stderr
        assert "A1" in result.stderr

    def test_writes_the_report_and_the_originals(self):
        outputs = ("-o", "out.json", "--report-json", "report.json", "--originals", "back.json")
        assert run("compact", "-", *CAPPED, *outputs, data=load_example()).exit_code == 0
        report = json.loads(Path("report.json").read_bytes())
        originals = json.loads(Path("back.json").read_bytes())
        assert {edit["original"] for edit in report["edits"]} == set(originals)
        sent = {
            block["content"]
            for message in json.loads(load_example())["messages"]
            for block in message["content"]
            if isinstance(block, dict) and block["type"] == "tool_result"
        }
        assert len(originals) == 3
        assert {respool.expand(ref, originals) for ref in originals} <= sent

    def test_sends_one_thing_to_standard_output(self):
        assert run("compact", "-", "--originals", "-", data=load_example()).exit_code == 2
        both = run("compact", "-", *CAPPED, "-o", "out", "--originals", "-", data=load_example())
        assert len(json.loads(both.stdout)) == 3

    @pytest.mark.parametrize(
        "outputs",
        [
            ("-o", "out", "--originals", "out"),
            ("-o", "out", "--report-json", "./out"),
            ("--originals", "out", "--report-json", "link"),
            ("-o", "out", "--originals", "in.json"),
            ("-o", "out", "--report-json", "in.json"),
        ],
    )
    def test_writes_no_two_things_to_one_file(self, outputs: tuple[str, ...]):
        Path("in.json").write_bytes(load_example())
        if "link" in outputs:
            Path("link").symlink_to("out")
        refused(run("compact", "in.json", *outputs), "This is named twice")
        assert not Path("out").exists()
        assert Path("in.json").read_bytes() == load_example()

    def test_may_put_the_projection_in_the_place_of_the_request(self):
        Path("in.json").write_bytes(load_example())
        outputs = ("-o", "in.json", "--originals", os.devnull, "--report-json", os.devnull)
        assert run("compact", "in.json", *CAPPED, *outputs).exit_code == 0
        assert len(Path("in.json").read_bytes()) < len(load_example())

    @pytest.mark.parametrize("output", ["no/such/folder/out", "."])
    def test_says_where_it_cannot_write(self, output: str):
        result = run("compact", "-", "-o", output, data=load_example())
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"respool: {output}: ")

    @pytest.mark.parametrize(
        "body",
        [
            b'{"input": [], "previous_response_id": "resp_1"}',
            b'{"input": [], "conversation": "conv_1"}',
            b'{"input": "hello"}',
            b'{"model": "claude-sonnet-4-5", "messages": [], "thread": {"type": "continue"}}',
            b'{"contents": [], "cachedContent": "cachedContents/1"}',
            b'{"messages": [], "inferenceConfig": {}}',
            b'{"messages": [], "data_sources": []}',
            b'[{"role": "user",   "content": "hello"}]\n',
        ],
    )
    def test_passes_through_what_is_not_its_to_change(self, body: bytes):
        if b"thread" in body:
            body = body.replace(b"[]", b'[{"role": "user", "content": "x"}]')
        result = run("compact", "-", data=body)
        assert (result.exit_code, result.stdout_bytes) == (0, body)
        assert result.stderr.startswith("passed through unchanged: ")
        assert run("explain", "-", data=body).stdout.startswith("Passed through unchanged: ")
        assert run("check", "-", data=body).exit_code == 0


class TestExplain:
    def test_shows_every_edit_and_repair(self):
        result = run("explain", "-", *CLIPPED, data=load_example())
        assert result.exit_code == 0
        rows = [line.split() for line in result.stdout.splitlines() if "over_cap" in line]
        assert [row[0] for row in rows] == [f"messages[{at}].content[0]" for at in (4, 6, 8)]
        assert "  A1 " in result.stdout

    def test_says_which_passes_failed(self, monkeypatch: pytest.MonkeyPatch):
        def faulty(*_: object):
            raise RuntimeError("out of order")

        monkeypatch.setattr("respool.compaction.evaluation.PASSES", (faulty,))
        result = run("explain", "-", data=load_example())
        assert result.exit_code == 0
        assert "faulty" in result.stdout
        assert "out of order" in result.stdout

    def test_says_why_nothing_is_taken_out(self):
        plain = run("explain", "-", *ALL, data=load_example()).stdout
        assert f"\nNothing was taken out:\n  {WAITS}\n  3 results, " in plain
        assert plain.count("\n--debug lists the offers, --set eager=on takes them.\n") == 1
        assert "--debug" not in run("explain", "-", "--debug", data=load_example()).stdout
        short = b'[{"role": "user", "content": "hello"}]'
        said = run("explain", "-", "--format", "anthropic", data=short).stdout
        assert "1 message: " in said
        assert "Nothing was taken out:\n  there are no tool results in it" in said
        clipped = run("explain", "-", *CLIPPED, data=load_example()).stdout
        assert "was taken out" not in clipped

    def test_never_breaks_a_reference(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ):
        monkeypatch.setattr("respool.cli.console.is_terminal", lambda: True)
        monkeypatch.setenv("COLUMNS", "60")
        out = respool.compact(load_example(), policy=DEMO_POLICY, memo=None)
        show(*explanation(out.report))
        shown = capsys.readouterr().out
        assert max(map(len, shown.splitlines())) <= 60
        assert all(ref in shown for ref in out.originals)

    @pytest.mark.parametrize("columns", ["20", "40", "50"])
    def test_breaks_no_word_where_columns_have_no_room(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str
    ):
        monkeypatch.setattr("respool.cli.console.is_terminal", lambda: True)
        monkeypatch.setenv("COLUMNS", columns)
        out = respool.compact(load_example(), policy=DEMO_POLICY, memo=None)
        show(*explanation(out.report))
        shown = capsys.readouterr().out
        assert "place     messages[4].content[0]\nreason    stubbed\n" in shown
        assert all(f"original  {ref}\n" in shown for ref in out.originals)

    @pytest.mark.parametrize("command", ["compact", "explain"])
    @pytest.mark.parametrize("looks", [True, False])
    def test_who_waits_at_a_terminal_is_told_so(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        command: str,
        looks: bool,
    ):
        monkeypatch.setattr("respool.cli.options.SLOW_AFTER_SECONDS", 0.05)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: looks, raising=False)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
        slow = fold_request
        for place in ("respool.api.fold_request", "respool.cli.explain.fold_request"):
            module, name = place.rsplit(".", 1)
            held = lambda *given, **more: (time.sleep(0.5), slow(*given, **more))[1]  # noqa: E731
            monkeypatch.setattr(sys.modules[module], name, held)
        Path("body.json").write_bytes(load_example())
        with pytest.raises(SystemExit) as ended:
            main([command, "body.json"])
        assert ended.value.code == 0
        said = capsys.readouterr().err
        assert ("respool: body.json has 0.0 MB; that takes a while" in said) == looks

    def test_gives_the_report_as_json(self):
        result = run("explain", "-", "--json", *CLIPPED, data=load_example())
        report = json.loads(result.stdout)
        assert [edit["reason"] for edit in report["edits"]] == ["over_cap"] * 3
        assert report["tokens_saved"] == sum(edit["saved"] for edit in report["edits"])

    def test_names_the_format_that_it_is_told(self):
        body = b'[{"role": "user", "content": "hello"}]'
        for format in FORMATS:
            result = run("explain", "-", "--format", format, data=body)
            assert result.stdout.startswith(f"{format}, ")


class TestCheck:
    warned = json.dumps(
        [
            {"role": "user", "content": "hello"},
            {
                "role": "assistant",
                "tool_calls": [
                    {
                        "id": "c" * 41,
                        "type": "function",
                        "function": {"name": "a", "arguments": "{}"},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c" * 41, "content": "x"},
        ]
    ).encode()

    def test_lists_problems_and_ends_with_1(self):
        result = run("check", "-", data=load_example())
        assert result.exit_code == 1
        (problem,) = respool.check(load_example())
        assert result.stdout == f"A1 {problem.place}: {problem.message}\n"
        assert result.stderr == "standard input: 1 error, 0 warnings\n"

    def test_is_content_with_a_sound_request(self):
        result = run("check", "-", data=respool.repair(load_example()).request)
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr == "standard input: no problems\n"

    def test_counts_warnings_only_when_strict(self):
        lenient, strict = (
            run("check", "-", data=self.warned),
            run("check", "-", "--strict", data=self.warned),
        )
        assert (lenient.exit_code, strict.exit_code) == (0, 1)
        assert lenient.stdout == strict.stdout
        assert lenient.stdout.endswith(" (warning)\n")

    def test_gives_json(self):
        result = run("check", "-", "--json", data=load_example())
        assert result.exit_code == 1
        told = json.loads(result.stdout)
        assert told["untouched"] is None
        assert [p["code"] for p in told["problems"]] == ["A1"]
        assert set(told["problems"][0]) == {"code", "place", "message", "severity"}


class TestDemo:
    def test_shows_history_projection_and_explanation(self):
        result = run("demo")
        assert result.exit_code == 0
        for heading in ("HISTORY IN", "WHAT RESPOOL DID", "PROJECTION OUT", "THE WAY BACK"):
            assert heading in result.stdout
        assert "NOT" not in result.stdout
        assert run("demo").stdout == result.stdout

    def test_prints_the_example_itself(self):
        assert run("demo", "--raw").stdout_bytes == load_example()

    def test_the_example_shows_what_it_should(self):
        out = respool.compact(load_example(), policy=DEMO_POLICY, memo=None)
        assert len(out.originals) == 3
        assert [repair.code for repair in out.report.repairs] == ["A1"]
        assert respool.check(out.request) == []

    def test_does_not_depend_on_where_it_runs(self, monkeypatch: pytest.MonkeyPatch):
        plain = run("demo").stdout
        monkeypatch.setenv("RESPOOL_CAP_CHARS", "unlimited")
        assert run("demo").stdout == plain


class TestPolicy:
    def test_comes_from_files_environment_and_options(self, monkeypatch: pytest.MonkeyPatch):
        Path("respool.toml").write_text(
            "cap_chars = 1000\nreevaluate_tokens = 7\n[tools.Bash]\ncap_chars = 'unlimited'\n"
        )
        monkeypatch.setenv("RESPOOL_REEVALUATE_TOKENS", "8")
        told = json.loads(run("settings", "--json", "--set", "repair=off").stdout)
        assert told["cap_chars"]["value"] == "1000"
        assert told["cap_chars"]["origin"].startswith("respool.toml")
        assert told["reevaluate_tokens"] == {
            "value": "8",
            "origin": "environment RESPOOL_REEVALUATE_TOKENS",
        }
        assert told["repair"] == {"value": "false", "origin": "option --set repair"}
        assert told["reevaluate_ratio"]["origin"] == "default"
        assert told["tools.Bash"]["value"] == "cap unlimited, rerun false"

    def test_comes_from_one_file_alone(self, monkeypatch: pytest.MonkeyPatch):
        Path("respool.toml").write_text("cap_chars = 1000\n")
        Path("other.toml").write_text("reevaluate_tokens = 5\npasses = []\n")
        monkeypatch.setenv("RESPOOL_REEVALUATE_RATIO", "0.5")
        told = json.loads(run("settings", "--json", "--policy", "other.toml").stdout)
        values = {name: one["value"] for name, one in told.items()}
        assert values["reevaluate_tokens"] == "5"
        assert values["passes"] == "none"
        assert (values["cap_chars"], values["reevaluate_ratio"]) == ("32000", "0.2")

    @pytest.mark.parametrize(
        ("toml", "variable", "options", "came", "budget"),
        [
            ("", "", ("--preset", "tight"), "option --preset", "120000"),
            ("", "", ("--preset", "tight", "--set", "budget=60000"), "option --preset", "60000"),
            ("", "tight", (), "environment RESPOOL_PRESET", "120000"),
            ("preset = 'tight'", "", (), "respool.toml: ", "120000"),
            ("budget = 9000\npreset = 'tight'", "", (), "respool.toml: ", "9000"),
            ("preset = 'tight'", "lean", (), "environment RESPOOL_PRESET", "unlimited"),
            ("budget = 9000", "lean", (), "environment RESPOOL_PRESET", "9000"),
        ],
    )
    def test_a_preset_is_chosen_in_any_place(
        self,
        monkeypatch: pytest.MonkeyPatch,
        toml: str,
        variable: str,
        options: tuple[str, ...],
        came: str,
        budget: str,
    ):
        """Settings beside a preset take precedence, and a later preset replaces an earlier one."""
        Path("respool.toml").write_text(toml)
        if variable:
            monkeypatch.setenv("RESPOOL_PRESET", variable)
        told = json.loads(run("settings", "--json", *options).stdout)
        assert told["trim_on_arrival"]["value"] == "true"
        assert f", by {came}" in told["trim_on_arrival"]["origin"]
        assert told["budget"]["value"] == budget

    def test_the_default_preset_takes_back_another_one(self):
        Path("respool.toml").write_text("preset = 'lean'\n")
        told = json.loads(run("settings", "--json", "--preset", "safe").stdout)
        assert told["trim_on_arrival"]["value"] == "false"

    def test_settings_can_be_written_as_they_are_shown(self):
        told = json.loads(run("settings", "--json").stdout)
        values = {name: one["value"] for name, one in told.items() if name != "tools"}
        options = [f"--set={name}={value}" for name, value in values.items()]
        again = json.loads(run("settings", "--json", *options).stdout)
        assert {name: one["value"] for name, one in again.items() if name != "tools"} == values

    def test_settings_are_a_table(self):
        lines = run("settings", "--set", "cap_chars=unlimited").stdout.splitlines()
        assert lines[0] == "Settings"
        assert lines[2].split() == ["cap_chars", "unlimited", "option", "--set", "cap_chars"]

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("--set", "cap_chars=-1"), ("cap_chars", "-1", "allowed")),
            (("--set", "cap_char=1"), ("cap_char", "did you mean cap_chars")),
            (("--set", "tools=x"), ("tools", "allowed")),
            (("--set", "cap_chars"), ("KEY=VALUE",)),
            (("--policy", "missing.toml"), ("missing.toml",)),
            (("--policy", "."), ("directory",)),
            (("--policy", "bad.toml"), ("bad.toml", "budgett")),
            (("--policy", "lean"), ("no file lean", "--preset lean")),
            (("--set", "passes=trimresults"), ("did you mean trim_results?",)),
        ],
    )
    def test_refuses_what_is_not_allowed(self, arguments: tuple[str, ...], words: tuple[str, ...]):
        Path("bad.toml").write_text("budgett = 1\n")
        for command in (("compact", "-"), ("explain", "-"), ("settings",)):
            refused(run(*command, *arguments, data=load_example()), *words)

    def test_a_transcript_is_sent_to_the_commands_that_read_it(self):
        lines = b'{"type": "user"}\n{"type": "assistant"}\n'
        for command in ("compact", "explain", "check"):
            refused(run(command, "-", data=lines), "respool replay and respool loops read those")

    def test_refuses_a_bad_environment(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("RESPOOL_CAP_CHARS", "much")
        refused(run("compact", "-", data=load_example()), "RESPOOL_CAP_CHARS", "much", "allowed")


def _raising(error: Exception) -> Any:
    def fails(*_: object) -> None:
        raise error

    return fails


def refused(result: Result, *words: str) -> None:
    """One sentence on standard error, nothing on standard output, exit status 2."""
    assert result.exit_code == 2
    assert result.stdout_bytes == b""
    assert result.stderr.startswith("respool: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


DEEP = b"[" * 10_000 + b"]" * 10_000
UNREADABLE = {
    "malformed": b'{"messages": [',
    "with text behind it": b'{"messages": []} and more',
    "no chat request": b'{"hello": 1}',
    "a number": b"42",
    "a string": b'"hello"',
    "null": b"null",
    "messages that are no list": b'{"messages": {"role": "user"}}',
    "deep": DEEP,
    "deep inside a message": b'{"messages": [{"role": "user", "content": ' + DEEP + b"}]}",
    "deep beside the history": b'{"metadata": ' + DEEP + b', "messages": []}',
    "deep objects": b'{"messages":' * 10_000 + b"1" + b"}" * 10_000,
    "a lone surrogate": b'{"messages": [{"role": "tool", "content": "\\ud800"}]}',
    "NaN": b'{"messages": [{"role": "tool", "content": NaN}]}',
    "digits without end": b'{"messages": [{"role": "tool", "content": ' + b"9" * 5_000 + b"}]}",
    "invalid UTF-8": b'{"messages": [{"role": "tool", "content": "\xff\xfe"}]}',
    "UTF-16": '{"messages": []}'.encode("utf-16"),
    "binary": bytes(range(256)) * 10,
    "zero bytes": bytes(100),
    "empty": b"",
    "blank": b" \n\t",
}
READABLE = {
    "integers of 400 digits": anthropic(
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {"n": 10**399}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]},
        tools=[{"name": "b", "input_schema": {"type": "object"}}],
        metadata={"n": -(10**399)},
    ),
    "duplicate keys": b'{"system": "s", "messages": [], "messages": '
    b'[{"role": "user", "content": "a", "content": "b"}]}',
}


class TestBadInput:
    @pytest.mark.parametrize("command", ["compact", "explain", "check"])
    @pytest.mark.parametrize("what", UNREADABLE)
    def test_is_refused_in_a_sentence(self, command: str, what: str):
        refused(run(command, "-", data=UNREADABLE[what]), "standard input: ")
        Path("body.json").write_bytes(UNREADABLE[what])
        refused(run(command, "body.json"), "body.json: ")

    @pytest.mark.parametrize("what", READABLE)
    def test_is_left_alone_where_it_can_be_read(self, what: str):
        body = READABLE[what]
        result = run("compact", "-", data=body)
        assert (result.exit_code, result.stdout_bytes) == (0, body)
        assert result.stderr.startswith("respool: Nothing was taken out: ")
        assert run("check", "-", data=body).exit_code == 0

    @pytest.mark.parametrize("command", ["compact", "explain", "check"])
    def test_names_a_file_that_cannot_be_read(self, command: str):
        refused(run(command, "missing.json"), "missing.json: ")
        refused(run(command, "."), ".: ")
        refused(run(command, "a\0b"))

    @POSIX
    def test_names_a_folder_that_is_gone_or_closed_not_the_output(
        self, monkeypatch: pytest.MonkeyPatch
    ):
        Path("gone").mkdir()
        monkeypatch.chdir("gone")
        Path.cwd().rmdir()
        refused(run("settings"), "The folder that this was started in is gone.")
        closed = PermissionError(13, "Permission denied", "/closed/respool.toml")
        monkeypatch.setattr("respool.config._find_upwards", _raising(closed))
        monkeypatch.chdir("/")
        refused(run("settings"), "respool: /closed/respool.toml: Permission denied.")

    def test_refuses_a_format_that_does_not_exist(self):
        result = run("compact", "-", "--format", "mistral", data=load_example())
        assert (result.exit_code, result.stdout) == (2, "")
        assert all(name in result.stderr for name in ("mistral", *FORMATS))

    def test_refuses_a_format_that_the_body_is_not(self):
        refused(
            run("compact", "-", "--format", "gemini", data=load_example()), "contents", "messages"
        )

    @pytest.mark.parametrize("arguments", [("compact",), ("nonsense",), ("check", "--nonsense")])
    def test_refuses_wrong_usage(self, arguments: tuple[str, ...]):
        result = run(*arguments)
        assert result.exit_code == 2
        assert "Usage: " in result.stderr

    @pytest.mark.slow
    def test_takes_ten_thousand_calls_in_one_message(self):
        calls = [
            {"type": "tool_use", "id": f"t{k}", "name": "b", "input": {}} for k in range(10_000)
        ]
        body = anthropic(
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": calls},
            {"role": "user", "content": "what happened?"},
            tools=[{"name": "b", "input_schema": {"type": "object"}}],
        )
        assert run("check", "-", data=body).stdout.count("\n") == 10_000
        repaired = run("compact", "-", data=body)
        assert repaired.exit_code == 0
        assert run("check", "-", data=repaired.stdout_bytes).stdout == ""

    @pytest.mark.parametrize("size", [5, pytest.param(100, marks=pytest.mark.slow)])
    def test_takes_a_body_of_100_mb(self, size: int):
        text = "x" * 1_000_000 * size
        result = {"type": "tool_result", "tool_use_id": "a", "content": text}
        body = anthropic(
            {"role": "user", "content": "x"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}],
            },
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": "I see."},
            {"role": "user", "content": "Go on."},
            tools=[{"name": "b", "input_schema": {"type": "object"}}],
        )
        done = run(
            "compact", "-", "--set", "reevaluate_ratio=0", "--set", "reevaluate_tokens=1", data=body
        )
        assert done.exit_code == 0
        assert len(done.stdout_bytes) < 40_000

    def test_takes_no_more_than_a_limit(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("respool.cli.options.MAX_INPUT_BYTES", 100)
        refused(run("compact", "-", data=load_example()), "larger")

    @pytest.mark.parametrize(
        ("error", "status"), [(MemoryError(), 2), (RecursionError(), 2), (KeyboardInterrupt(), 130)]
    )
    def test_ends_well_whatever_gives_out(
        self, error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch
    ):
        def give_out(*_: object, **__: object):
            raise error

        monkeypatch.setattr("respool.compact", give_out)
        result = run("compact", "-", data=load_example())
        assert (result.exit_code, result.stdout) == (status, "")
        assert result.stderr.startswith("respool: ")

    def test_cannot_reach_the_terminal(self):
        body = b'[{"role": "tool", "tool_call_id": "\\u001b[31m", "content": "x"}]'
        assert "\x1b" not in run("check", "-", data=body).output
        assert escape_unprintable("a\x1b[31m\x07\u202eb\n") == "a\\x1b[31m\\x07\\u202eb\n"


class TestProcesses:
    """Behaviour that only a real process shows."""

    def test_version_help_and_status(self):
        for arguments in (["--version"], ["--help"], ["check", "-h"]):
            done = process(*arguments, stdout=subprocess.PIPE)
            out, err = done.communicate(timeout=60)
            assert (done.returncode, err) == (0, b"")
            assert b"respool" in out

    def test_compact_is_exact_and_does_not_load_rich(self):
        code = (
            "import sys, respool.cli\n"
            "try: respool.cli.main(['compact', '-'])\n"
            "finally: assert not [m for m in sys.modules if m.split('.')[0] == 'rich']\n"
        )
        env = {**os.environ, "PYTHONPATH": str(HOME)}
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, input=load_example(), env=env, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr.count(b"\n")) == (0, 1), done.stderr
        assert done.stdout == respool.repair(load_example()).request

    @POSIX
    @pytest.mark.parametrize("command", ["compact", "explain", "check"])
    def test_a_reader_that_goes_away_is_no_error(self, command: str):
        read, write = os.pipe()
        os.close(read)
        done = process(command, "-", stdin=subprocess.PIPE, stdout=write)
        os.close(write)
        _, err = done.communicate(load_example(), timeout=60)
        assert done.returncode == 141
        assert b"Traceback" not in err
        assert b"Exception ignored" not in err

    @POSIX
    def test_an_interrupt_ends_it(self):
        done = process("compact", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert done.stdin is not None
        done.stdin.write(b"x" * 200_000)  # more than a pipe holds: it has begun to read
        done.stdin.flush()
        done.send_signal(signal.SIGINT)
        out, err = done.communicate(timeout=60)
        assert (done.returncode, out, err) == (130, b"", b"respool: interrupted\n")

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    @pytest.mark.parametrize("arguments", [["compact", "-"], ["demo"]])
    def test_a_full_disk_is_a_sentence(self, arguments: list[str]):
        with Path("/dev/full").open("wb") as full:
            done = process(*arguments, stdin=subprocess.PIPE, stdout=full)
            _, err = done.communicate(load_example(), timeout=60)
        assert done.returncode == 2
        assert err.startswith(b"respool: The output cannot be written: ")
        assert err.count(b"\n") == 1

    @POSIX
    def test_closed_streams_are_a_sentence(self):
        for redirection in ("<&-", ">&-"):
            line = f'"$0" -m respool compact - {redirection}'
            env = {**os.environ, "PYTHONPATH": str(HOME)}
            command = ["/bin/sh", "-c", line, sys.executable]
            done = subprocess.run(
                command, env=env, capture_output=True, check=False, input=load_example(), timeout=60
            )
            assert done.returncode == 2
            assert done.stderr.startswith(b"respool: Standard ")

    @POSIX
    def test_a_terminal_gets_tables_and_everything_else_plain_text(self):
        pty = pytest.importorskip("pty")
        leader, follower = pty.openpty()
        env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", "PYTHONPATH": str(HOME)}
        command = [sys.executable, "-m", "respool", "settings"]
        with subprocess.Popen(command, env=env, stdout=follower) as done:
            os.close(follower)
            shown = b""
            while b"reevaluate_ratio" not in shown and (piece := os.read(leader, 65_536)):
                shown += piece
            done.wait(60)
        os.close(leader)
        assert "─".encode() in shown
        assert "─" not in run("settings").stdout

    def test_what_it_cannot_encode_it_escapes(self):
        env = {**os.environ, "PYTHONPATH": str(HOME), "PYTHONIOENCODING": "latin-1"}
        command = [sys.executable, "-m", "respool", "demo"]
        done = subprocess.run(command, env=env, capture_output=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"\\u2026" in done.stdout


def test_it_runs_as_a_module():
    command = [sys.executable, "-m", "respool", "check", "--help"]
    env = {**os.environ, "PYTHONPATH": str(HOME)}
    done = subprocess.run(command, env=env, capture_output=True, check=False, timeout=60, text=True)
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        0,
        "Usage: respool check [OPTIONS] FILE",
    )


def test_the_entry_point_is_there():
    project = tomllib.loads((HOME.parent / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["scripts"] == {"respool": "respool.cli:main"}
