"""Policy: settings, presets, files and environment."""

from __future__ import annotations

import copy
import math
import os
import pickle
import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.errors import PolicyError
from respool.policy import ADVANCED, NAMES, PRESETS, Policy, pass_names
from respool.tools import UNLIMITED, Tool, Tools

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "settings.md"
PASSES = pass_names()

# setting, as written in the environment, as written in TOML, the value that both mean
WRITTEN: list[tuple[str, str, str, object]] = [
    ("cap_chars", "20000", "20000", 20_000),
    ("cap_chars", "20_000", "20_000", 20_000),
    ("cap_chars", "0", "0", 0),
    ("cap_chars", "unlimited", '"unlimited"', None),
    ("passes", "cap_results", '["cap_results"]', ("cap_results",)),
    ("passes", "none", "[]", ()),
    ("passes", "default", '"default"', None),
    ("repair", "off", "false", False),
    ("repair", "True", "true", True),
    ("counter", "estimate", '"estimate"', "estimate"),
    ("reevaluate_tokens", "1", "1", 1),
    ("reevaluate_ratio", "0.25", "0.25", 0.25),
    ("reevaluate_ratio", "1", "1", 1.0),
    ("keep_exchanges", "0", "0", 0),
    ("keep_messages", "8", "8", 8),
    ("keep_calls", "6", "6", 6),
    ("keep_reasoning_messages", "4", "4", 4),
    ("keep_reasoning_messages", "same", '"same"', None),
    ("fold_over_chars", "10_000", "10_000", 10_000),
    ("fold_over_chars", "never", '"never"', None),
    ("min_chars", "0", "0", 0),
    ("min_chars", "default", '"default"', None),
    ("pin_tools", "Task, write", '["Task", "write"]', ("Task", "write")),
    ("pin_tools", "none", "[]", ()),
    ("pin_paths", "docs/**,PLAN.md", '["docs/**", "PLAN.md"]', ("docs/**", "PLAN.md")),
    ("pin_calls", "toolu_01", '["toolu_01"]', ("toolu_01",)),
    ("errors_verbatim", "off", "false", False),
    ("trim_on_arrival", "yes", "true", True),
    ("line_number_interval", "10", "10", 10),
    ("trim_kinds", "default, code", '["default", "code"]', ("default", "code")),
    ("trim_kinds", "none", "[]", ()),
    ("trim_kinds", "default", '"default"', None),
    ("budget", "150_000", "150_000", 150_000),
    ("budget", "unlimited", '"unlimited"', None),
    ("miss_penalty", "0", "0", 0.0),
    ("miss_penalty", "2.5", "2.5", 2.5),
    ("eager", "on", "true", True),
    ("eager", "No", "false", False),
    ("advise", "on", "true", True),
    ("cache_read_price", "0.1", "0.1", 0.1),
    ("cache_read_price", "listed", '"listed"', None),
    ("cache_write_price", "100", "100", 100.0),
    ("cache_write_price", "listed", '"listed"', None),
    ("rendering", "calls", '"calls"', "calls"),
    ("rendering", "text", '"text"', "text"),
    ("rendering", "text-only", '"text-only"', "text-only"),
    ("rendering", "rfc013", '"rfc013"', "rfc013"),
]

# setting, a value that code may not give, and what the error must say beside key and value
REFUSED: list[tuple[str, Any, str]] = [
    ("cap_chars", -1, "from 0 to 1,000,000,000"),
    ("cap_chars", True, "whole number"),
    ("cap_chars", 2.0, "whole number"),
    ("cap_chars", "20000", "whole number"),
    ("cap_chars", "unlimited", "None in code"),
    ("cap_chars", 10**9 + 1, "1,000,000,000"),
    ("cap_chars", float("inf"), "whole number"),
    ("tools", [Tool("Bash")], "a Tools"),
    ("tools", None, "a Tools"),
    ("passes", "cap_results", "a list of tidy_results"),
    ("passes", ("cap_result",), "cap_results"),
    ("passes", ("cap_results", "cap_results"), "at most once"),
    ("passes", (["cap_results"],), "cap_results"),
    ("passes", {"cap_results": 1}, "a list"),
    ("repair", 1, "true or false"),
    ("repair", None, "true or false"),
    ("counter", "cl100k", "auto, o200k, estimate"),
    ("counter", ["auto"], "auto, o200k, estimate"),
    ("reevaluate_tokens", 0, "from 1"),
    ("reevaluate_tokens", None, "from 1"),
    ("reevaluate_ratio", 1.01, "from 0 to 1"),
    ("reevaluate_ratio", -0.1, "from 0 to 1"),
    ("reevaluate_ratio", math.nan, "from 0 to 1"),
    ("reevaluate_ratio", False, "from 0 to 1"),
    ("keep_exchanges", -1, "from 0"),
    ("keep_messages", -1, "from 0"),
    ("keep_messages", None, "whole number"),
    ("keep_calls", 1.5, "whole number"),
    ("keep_calls", True, "whole number"),
    ("keep_reasoning_messages", -1, "or same"),
    ("keep_reasoning_messages", "same", "None in code"),
    ("fold_over_chars", -1, "or never"),
    ("fold_over_chars", 10**9 + 1, "1,000,000,000"),
    ("min_chars", "default", "None in code"),
    ("min_chars", 0.5, "or default"),
    ("pin_tools", "Task", "a list of texts"),
    ("pin_tools", None, "a list of texts"),
    ("pin_paths", [Path("docs")], "a list of texts"),
    ("pin_paths", ["docs", " "], "none of them empty"),
    ("pin_calls", [1], "a list of texts"),
    ("errors_verbatim", 0, "true or false"),
    ("trim_on_arrival", "on", "true or false"),
    ("line_number_interval", 0, "a whole number from 1 to"),
    ("trim_kinds", ["prose"], "a list of code, listing, hits"),
    ("trim_kinds", ["code", "code"], "each at most once"),
    ("trim_kinds", "code", "a list of code, listing, hits"),
    ("trim_kinds", [["code"]], "a list of code, listing, hits"),
    ("advise", 1, "true or false"),
    ("budget", 0, "from 2,000"),
    ("budget", 1_999, "from 2,000"),
    ("budget", "unlimited", "None in code"),
    ("budget", 150_000.0, "whole number"),
    ("miss_penalty", -0.1, "from 0 to 100"),
    ("miss_penalty", 100.1, "from 0 to 100"),
    ("miss_penalty", math.nan, "from 0 to 100"),
    ("miss_penalty", True, "from 0 to 100"),
    ("miss_penalty", None, "from 0 to 100"),
    ("miss_penalty", "1", "from 0 to 100"),
    ("eager", 1, "true or false"),
    ("eager", None, "true or false"),
    ("eager", "on", "true or false"),
    ("cache_read_price", -1, "from 0 to 100"),
    ("cache_read_price", math.inf, "from 0 to 100"),
    ("cache_read_price", "listed", "None in code"),
    ("cache_write_price", 101, "from 0 to 100"),
    ("cache_write_price", False, "from 0 to 100"),
    ("cache_write_price", "1.25", "None in code"),
    ("rendering", "prose", "calls, text, text-only, rfc013"),
    ("rendering", True, "calls, text, text-only, rfc013"),
]


def write(folder: Path, name: str, text: str) -> Path:
    """A file with this text, in a folder that is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(text, "utf-8")
    return file


class TestDefaults:
    def test_are_the_documented_ones(self):
        assert Policy().cap_chars == 32_000
        assert Policy() == Policy.preset("safe")
        assert set(Policy().origins().values()) == {"default"}

    def test_the_table_names_every_field_in_order(self):
        assert tuple(field.name for field in fields(Policy)) == NAMES

    def test_advanced_settings_exist(self):
        assert set(NAMES) > ADVANCED

    def test_the_page_shows_a_file_that_can_be_read(self, tmp_path: Path):
        example = re.search(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
        assert example
        policy = Policy.from_toml(write(tmp_path, "respool.toml", example[1]))
        assert (policy.trim_on_arrival, policy.budget) == (True, 150_000)
        assert policy.origins()["tools.mcp__docs__search"].startswith("respool.toml")


class TestValue:
    def test_is_frozen(self):
        with pytest.raises(FrozenInstanceError):
            Policy().cap_chars = 1  # pyright: ignore[reportAttributeAccessIssue]

    def test_equality_is_of_values_not_of_origins(self):
        assert Policy(cap_chars=32_000) == Policy()
        assert hash(Policy(cap_chars=32_000)) == hash(Policy())

    def test_explicit_values_come_from_code_even_when_they_equal_the_default(self):
        assert Policy(cap_chars=32_000).origins()["cap_chars"] == "code"

    def test_replace_keeps_the_other_origins(self):
        policy = Policy.from_env({"RESPOOL_CAP_CHARS": "5"}).replace(reevaluate_tokens=7)
        assert (policy.cap_chars, policy.reevaluate_tokens) == (5, 7)
        assert policy.origins()["cap_chars"] == "environment RESPOOL_CAP_CHARS"
        assert policy.origins()["reevaluate_tokens"] == "code"

    @pytest.mark.parametrize(
        "twin", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))]
    )
    def test_survives_copying(self, twin: Any):
        policy = Policy(
            cap_chars=5, tools=Tools([Tool("Bash", cap_chars=UNLIMITED), Tool("Read", rerun=True)])
        )
        assert twin(policy) == policy
        assert twin(policy).origins() == policy.origins()
        assert twin(policy).fingerprint() == policy.fingerprint()

    def test_passes_may_be_a_list(self):
        assert Policy(passes=["cap_results"]).passes == ("cap_results",)


class TestRefusals:
    @pytest.mark.parametrize(("name", "value", "allowed"), REFUSED)
    def test_name_key_value_and_what_is_allowed(self, name: str, value: Any, allowed: str):
        with pytest.raises(PolicyError) as error:
            Policy(**{name: value})
        said = str(error.value)
        assert f"Policy: {name}: " in said
        assert allowed in said
        assert repr(value)[:20] in said

    def test_speak_of_a_number_that_python_will_not_print(self):
        with pytest.raises(PolicyError, match="cap_chars: a value of type int is not allowed"):
            Policy(cap_chars=10**5000)

    @pytest.mark.parametrize("make", [Policy, Policy.load, Policy().replace])
    def test_an_unknown_key_is_named_with_the_nearest_one(self, make: Any):
        with pytest.raises(
            PolicyError, match=r"unknown key 'cap_char' \(value 3\); did you mean cap_chars\?"
        ):
            make(cap_char=3)

    def test_an_unknown_key_far_from_all_lists_what_there_is(self):
        with pytest.raises(
            PolicyError, match=r"unknown key 'zzz'.*allowed: cap_chars, tools, passes"
        ):
            Policy(zzz=None)  # pyright: ignore[reportCallIssue]

    @pytest.mark.parametrize("name", ["leaner", "", None, ["safe"]])
    def test_an_unknown_preset_is_named_with_the_known_ones(self, name: Any):
        with pytest.raises(PolicyError, match=f"{re.escape(repr(name))}.*allowed: safe"):
            Policy.preset(name)

    def test_presets_hold_only_what_is_allowed(self):
        for name, values in PRESETS.items():
            assert Policy.preset(name) == Policy().replace(**values)

    @given(st.sampled_from(NAMES), st.from_type(type).flatmap(st.from_type) | st.text())
    def test_any_value_is_taken_or_refused_in_a_sentence(self, name: str, value: Any):
        try:
            said = Policy(**{name: value}).fingerprint().hex()
        except PolicyError as error:
            said = str(error)
        assert len(said) == 32 or f"Policy: {name}: " in said
        assert len(said) < 500


class TestEnvironment:
    @pytest.mark.parametrize(("name", "text", "_toml", "value"), WRITTEN)
    def test_sets_each_setting(self, name: str, text: str, _toml: str, value: object):
        policy = Policy.from_env(
            {f"RESPOOL_{name.upper()}": text, "PATH": "/bin", "respool_cap": "x"}
        )
        assert getattr(policy, name) == value
        assert type(getattr(policy, name)) is type(value)
        assert policy.origins()[name] == f"environment RESPOOL_{name.upper()}"

    @pytest.mark.parametrize(
        ("variable", "text", "said"),
        [
            ("RESPOOL_CAP_CHARS", "", "cap_chars: '' is not allowed"),
            ("RESPOOL_CAP_CHARS", "many", "unlimited"),
            ("RESPOOL_CAP_CHARS", "1e3", "cap_chars: 1000.0"),
            ("RESPOOL_CAP_CHARS", "9" * 5000, "cap_chars: "),
            ("RESPOOL_PASSES", "", "cap_results"),
            ("RESPOOL_PASSES", "cap_results,nope", "'nope'"),
            ("RESPOOL_REPAIR", "maybe", "on or off"),
            ("RESPOOL_REEVALUATE_RATIO", "nan", "from 0 to 1"),
            ("RESPOOL_PIN_TOOLS", "", "none of them empty"),
            ("RESPOOL_PIN_PATHS", "a,,b", "none of them empty"),
            ("RESPOOL_BUDGET", "none", "unlimited"),
            ("RESPOOL_TRIM_ON_ARRIVAL", "sometimes", "on or off"),
            ("RESPOOL_CAPS", "1", "did you mean RESPOOL_CAP_CHARS?"),
            ("RESPOOL_Cap", "1", "did you mean RESPOOL_CAP_CHARS?"),
            ("RESPOOL_", "1", "unknown key 'RESPOOL_'"),
            ("RESPOOL_TOKN", "1", "did you mean RESPOOL_TOKEN?"),
            ("RESPOOL_STOR", "1", "did you mean RESPOOL_STORE?"),
            ("RESPOOL_TOOLS", "Bash", "[tools.NAME] in TOML"),
            ("RESPOOL_PRESET", "leen", "preset: 'leen' is not allowed; allowed: safe, lean, tight"),
        ],
    )
    def test_refuses_what_it_does_not_understand(self, variable: str, text: str, said: str):
        with pytest.raises(PolicyError) as error:
            Policy.from_env({variable: text})
        assert said in str(error.value)
        assert variable in str(error.value)

    def test_tells_no_value_of_a_variable_that_is_not_its_own(self):
        with pytest.raises(PolicyError) as error:
            Policy.from_env({"RESPOOL_TOKN": "open-sesame-open"})
        assert "sesame" not in str(error.value)

    def test_leaves_the_rest_of_its_base(self):
        assert Policy.from_env({"RESPOOL_REEVALUATE_TOKENS": "3"}, Policy(cap_chars=9)) == Policy(
            cap_chars=9, reevaluate_tokens=3
        )


class TestToml:
    @pytest.mark.parametrize(("name", "_text", "toml", "value"), WRITTEN)
    def test_sets_each_setting(
        self, name: str, _text: str, toml: str, value: object, tmp_path: Path
    ):
        own = write(tmp_path, "respool.toml", f"{name} = {toml}")
        shared = write(
            tmp_path, "pyproject.toml", f"[project]\nx = 1\n[tool.respool]\n{name} = {toml}"
        )
        for file in (own, shared):
            policy = Policy.from_toml(file)
            assert getattr(policy, name) == value
            assert policy.origins()[name] == f"{file.name}: {file}"

    def test_declares_tools(self, tmp_path: Path):
        text = (
            "[tools]\nBash.cap_chars = 5\nRead = {}\n"
            '"my tool" = {cap_chars = "unlimited", rerun = true}'
        )
        file = write(tmp_path, "respool.toml", text)
        policy = Policy.from_toml(str(file))
        declared = [
            Tool("Bash", cap_chars=5),
            Tool("my tool", cap_chars=UNLIMITED, rerun=True),
            Tool("Read"),
        ]
        assert policy.tools == Tools(declared)
        assert policy.origins()["tools.my tool"] == f"respool.toml: {file}"

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("cap_chars = -1", "cap_chars: -1 is not allowed; allowed: a whole number"),
            ('cap_chars = "lots"', "cap_chars: 'lots'"),
            ("cap_chars = 1979-05-27", "cap_chars: datetime.date"),
            ("cap_charss = 1", "unknown key 'cap_charss' (value 1); did you mean cap_chars?"),
            ("repair = 'off'", "repair: 'off'"),
            ("tools = 3", "tools: 3 is not allowed; allowed: a table"),
            ("tools.Bash = 3", "tools.Bash: 3 is not allowed; allowed: a table"),
            ("[tools.Bash]\ncap_chars = 1.5", "tool 'Bash': cap_chars: 1.5"),
            ("[tools.Bash]\nrerun = 1", "tool 'Bash': rerun: 1"),
            (
                "[tools.Bash]\nkap_chars = 1",
                "tools.Bash: unknown key 'kap_chars' (value 1); did you mean cap_chars?",
            ),
            ("[tools.Bash]\nname = 'x'", "tools.Bash: unknown key 'name'"),
            ('[tools.""]\ncap_chars = 1', "name: ''"),
            ("cap_chars = 1\ncap 2", "at line 2"),
            ("cap_chars = 1\ncap_chars = 2", "not valid TOML"),
            ("cap_chars = " + "9" * 5000, "not valid TOML"),
            ("cap_chars = " + "[" * 20_000, "not valid TOML"),
        ],
        ids=lambda text: text[:20],
    )
    def test_refuses_with_the_name_of_the_file(self, text: str, said: str, tmp_path: Path):
        file = write(tmp_path, "respool.toml", text)
        with pytest.raises(PolicyError) as error:
            Policy.from_toml(file)
        assert str(file) in str(error.value)
        assert said in str(error.value)

    def test_refuses_what_cannot_be_read(self, tmp_path: Path):
        with pytest.raises(PolicyError, match=r"missing\.toml: cannot be read: No such file"):
            Policy.from_toml(tmp_path / "missing.toml")
        with pytest.raises(PolicyError, match="cannot be read: Is a directory"):
            Policy.from_toml(tmp_path)
        (tmp_path / "respool.toml").write_bytes(b"cap_chars = 1\n# \xff")
        with pytest.raises(PolicyError, match=r"not valid UTF-8 \(at line 2\)"):
            Policy.from_toml(tmp_path / "respool.toml")

    def test_reads_a_byte_order_mark(self, tmp_path: Path):
        (tmp_path / "respool.toml").write_bytes(b"\xef\xbb\xbfcap_chars = 1\r\n")
        assert Policy.from_toml(tmp_path / "respool.toml").cap_chars == 1

    def test_a_pyproject_named_on_purpose_must_speak_of_respool(self, tmp_path: Path):
        file = write(tmp_path, "pyproject.toml", "[tool.other]\ncap_chars = 1")
        with pytest.raises(PolicyError, match=r"no \[tool.respool\] table"):
            Policy.from_toml(file)
        with pytest.raises(PolicyError, match="respool: 3 is not allowed"):
            Policy.from_toml(write(tmp_path, "pyproject.toml", "tool.respool = 3"))


class TestLoad:
    def test_each_source_wins_over_the_ones_before(self, tmp_path: Path):
        deep = tmp_path / "a" / "b"
        shared = write(
            tmp_path,
            "pyproject.toml",
            "[tool.respool]\ncap_chars = 1\nreevaluate_tokens = 1\nreevaluate_ratio = 0.1",
        )
        write(deep, "pyproject.toml", "[project]\nname = 'x'")
        own = write(tmp_path / "a", "respool.toml", "cap_chars = 2\nreevaluate_tokens = 2")
        policy = Policy.load(
            deep, {"RESPOOL_CAP_CHARS": "3", "RESPOOL_COUNTER": "o200k"}, counter="estimate"
        )
        assert policy == Policy(
            cap_chars=3, reevaluate_tokens=2, reevaluate_ratio=0.1, counter="estimate"
        )
        assert policy.origins() == {
            **dict.fromkeys(NAMES, "default"),
            "cap_chars": "environment RESPOOL_CAP_CHARS",
            "counter": "code",
            "reevaluate_tokens": f"respool.toml: {own}",
            "reevaluate_ratio": f"pyproject.toml: {shared}",
        }

    def test_the_nearest_file_of_a_name_is_the_only_one(self, tmp_path: Path):
        write(tmp_path, "respool.toml", "cap_chars = 1\nreevaluate_tokens = 5")
        write(tmp_path / "a", "respool.toml", "cap_chars = 2")
        assert Policy.load(tmp_path / "a", {}) == Policy(cap_chars=2)

    def test_tools_are_joined_and_each_keeps_its_origin(self, tmp_path: Path):
        shared = write(
            tmp_path, "pyproject.toml", "[tool.respool.tools]\nA.cap_chars = 1\nB.rerun = true"
        )
        own = write(tmp_path, "respool.toml", "[tools]\nB.cap_chars = 2\nC.cap_chars = 3")
        policy = Policy.load(tmp_path, {}, tools=Tools([Tool("D", cap_chars=4)]))
        declared = [
            Tool("A", cap_chars=1),
            Tool("B", cap_chars=2),
            Tool("C", cap_chars=3),
            Tool("D", cap_chars=4),
        ]
        assert policy.tools == Tools(declared)
        origins = policy.origins()
        assert origins["tools.A"] == f"pyproject.toml: {shared}"
        assert origins["tools.B"] == origins["tools.C"] == f"respool.toml: {own}"
        assert origins["tools.D"] == origins["tools"] == "code"

    def test_reads_this_folder_and_this_environment_by_default(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        write(tmp_path, "respool.toml", "cap_chars = 7")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("RESPOOL_REEVALUATE_TOKENS", "8")
        assert Policy.load() == Policy(cap_chars=7, reevaluate_tokens=8)

    def test_a_broken_file_on_the_way_is_an_error(self, tmp_path: Path):
        write(tmp_path, "respool.toml", "cap_chars = = 7")
        with pytest.raises(PolicyError, match=r"respool\.toml: not valid TOML: .*line 1"):
            Policy.load(tmp_path / "a" / "b", {})

    @pytest.mark.parametrize("text", ["[project\n", "<<<<<<< ours\n[tool.other]\n"])
    def test_a_broken_pyproject_that_does_not_speak_of_respool_is_none_of_ours(
        self, text: str, tmp_path: Path
    ):
        file = write(tmp_path, "pyproject.toml", text)
        assert Policy.load(tmp_path, {}) == Policy()
        file.write_text(f"{text}[tool.respool]\n")
        with pytest.raises(PolicyError, match=r"pyproject\.toml: not valid TOML: "):
            Policy.load(tmp_path, {})

    def test_folders_without_files_give_the_defaults(self, tmp_path: Path):
        assert Policy.load(tmp_path / "not there", {}) == Policy()


class TestFingerprint:
    CHANGES: tuple[dict[str, Any], ...] = (
        {"cap_chars": 1},
        {"cap_chars": None},
        {"tools": Tools([Tool("Bash")])},
        {"tools": Tools([Tool("Bash", cap_chars=1)])},
        {"tools": Tools([Tool("Bash", cap_chars=None)])},
        {"tools": Tools([Tool("Bash", rerun=True)])},
        {"tools": Tools([Tool("Bash", cap_chars=0, rerun=False)])},
        {"tools": Tools([Tool("\ud800")])},
        {"passes": ()},
        {"passes": PASSES},
        {"repair": False},
        {"counter": "estimate"},
        {"reevaluate_tokens": 1},
        {"reevaluate_ratio": 0.0},
        {"keep_exchanges": 0},
        {"keep_messages": 6},
        {"keep_calls": 6},
        {"keep_reasoning_messages": 0},
        {"keep_reasoning_messages": 6},
        {"fold_over_chars": 0},
        {"fold_over_chars": 6},
        {"min_chars": 0},
        {"min_chars": 6},
        {"tools": Tools([Tool("Bash", kind="run")])},
        {"tools": Tools([Tool("Bash", target=str)])},
        {"tools": Tools([Tool("Bash", target=repr)])},
        {"pin_tools": ("a",)},
        {"pin_paths": ("a",)},
        {"pin_calls": ("a",)},
        {"pin_calls": ("a", "b")},
        {"errors_verbatim": False},
        {"trim_on_arrival": True},
        {"strip_decoration": True},
        {"line_number_interval": 10},
        {"trim_kinds": ()},
        {"trim_kinds": ("code",)},
        {"trim_kinds": ("default", "code")},
        {"budget": 2_000},
        {"miss_penalty": 0.0},
        {"miss_penalty": 2.0},
        {"eager": True},
        {"advise": True},
        {"cache_read_price": 0.0},
        {"cache_read_price": 1.25},
        {"cache_write_price": 1.25},
        {"rendering": "text"},
        {"rendering": "text-only"},
        {"rendering": "rfc013"},
    )

    def test_differs_for_every_setting(self):
        prints = {Policy(**change).fingerprint() for change in self.CHANGES}
        assert len(prints | {Policy().fingerprint()}) == len(self.CHANGES) + 1
        assert {name for change in self.CHANGES for name in change} == set(NAMES)

    def test_is_of_values_alone(self):
        one = Policy(tools=Tools([Tool("A"), Tool("B")]), reevaluate_ratio=0.0)
        other = Policy.from_env({"RESPOOL_REEVALUATE_RATIO": "-0"}).replace(
            tools=Tools([Tool("B"), Tool("A")])
        )
        assert one.fingerprint() == other.fingerprint()

    def test_is_the_same_in_another_process(self):
        code = (
            "from respool.policy import Policy; from respool.tools import Tool, Tools;"
            "tools = Tools([Tool('A'), Tool('B', cap_chars=3)]);"
            "print(Policy(cap_chars=5, tools=tools).fingerprint().hex())"
        )
        policy = Policy(cap_chars=5, tools=Tools([Tool("A"), Tool("B", cap_chars=3)]))
        for seed in ("1", "2"):
            environ = {**os.environ, "PYTHONHASHSEED": seed}
            printed = subprocess.check_output([sys.executable, "-c", code], env=environ, text=True)
            assert printed.strip() == policy.fingerprint().hex()
