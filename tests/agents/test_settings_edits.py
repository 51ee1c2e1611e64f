"""Edits of settings texts: one value changes, everything else stays as it is written."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.agents.settings_edits import (
    UneditableSettings,
    append_item,
    get_value,
    remove_item,
    remove_value,
    set_value,
)

COMMENTED = """\
{
  // which model
  "model": "opus", /* the large one */
  "env": {"A": "1"},
  "list": [1, 2], // last
}
"""
TABLES = """\
# mine
model = "x"

[model_providers.g]
name = "g" # why
base_url = 'http://a/v1'   # the gateway

["b.c".d]
x = [1,
  2]
"""
DOTENV = "# mine\nexport OPENAI_BASE_URL='http://a/v1'\nKEY=1\n"
FLAT = "# mine\nmodel: x\nread:\n  - a  # b\nopenai-api-base: http://a/v1\n"

# Text, format, keys, value; the line that must be there then, and all others as before.
SET: list[tuple[str, Any, tuple[str, ...], Any, str]] = [
    (COMMENTED, "json", ("env", "B"), "2", '  "env": {"A": "1", "B": "2"},'),
    (COMMENTED, "json", ("env", "A"), "2", '  "env": {"A": "2"},'),
    (COMMENTED, "json", ("model",), "é", '  "model": "é", /* the large one */'),
    (
        TABLES,
        "toml",
        ("model_providers", "g", "base_url"),
        "http://p",
        'base_url = "http://p"   # the gateway',
    ),
    (TABLES, "toml", ("openai_base_url",), "http://p", 'openai_base_url = "http://p"'),
    (TABLES, "toml", ("b.c", "d", "y"), "z", ""),
    (DOTENV, "env", ("OPENAI_BASE_URL",), "http://p", "export OPENAI_BASE_URL=http://p"),
    (DOTENV, "env", ("OTHER",), "http://p", "OTHER=http://p"),
    (FLAT, "yaml", ("openai-api-base",), "http://p", "openai-api-base: http://p"),
    (FLAT, "yaml", ("other",), "http://p", "other: http://p"),
]


@pytest.mark.parametrize(("text", "format", "keys", "value", "line"), SET)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_setting_a_value_changes_its_line_and_no_other(
    text: str, format: Any, keys: tuple[str, ...], value: Any, line: str, end: str
):
    text = text.replace("\n", end)
    if not line:  # a table that only a parser of all of TOML could find
        with pytest.raises(UneditableSettings, match="cannot be edited there"):
            set_value(text, format, keys, value)
        return
    made = set_value(text, format, keys, value)
    assert get_value(made, format, keys) == value
    before, after = text.splitlines(keepends=True), made.splitlines(keepends=True)
    assert line + end in after
    assert [one for one in after if one not in before] == [line + end]
    former = get_value(text, format, keys)
    if former is None:
        assert remove_value(made, format, keys) == text
    elif format == "json":
        assert set_value(made, format, keys, former) == text
    else:
        assert get_value(set_value(made, format, keys, former), format, keys) == former


ITEM = {"hooks": [{"type": "command"}]}


@pytest.mark.parametrize(
    "text",
    ["", "{}", "{}\n", '{"a":1}', COMMENTED, '\ufeff{\n\t"a": {\n\t\t"b": []\n\t}\n}', '{"a": {}}'],
)
@pytest.mark.parametrize("keys", [("a", "b"), ("x", "y", "z"), ("model", "q")])
def test_what_is_added_to_json_is_taken_out_again(text: str, keys: tuple[str, ...]):
    depth = sum(get_value(text, "json", keys[:end]) is not None for end in (1, 2, 3))
    if isinstance(get_value(text, "json", keys[:1]), str | int):
        with pytest.raises(UneditableSettings):  # the value of another kind would be lost
            append_item(text, keys, ITEM)
        return
    if get_value(text, "json", keys) is None:
        made = set_value(text, "json", keys, ITEM)
        assert json.loads(json.dumps(get_value(made, "json", keys))) == ITEM
        undone = remove_value(made, "json", keys, kept_depth=min(depth, len(keys) - 1))
        assert get_value(undone, "json", ()) == get_value(text or "{}", "json", ())
        if text.strip("\ufeff{}\n") and text != '{"a": {}}':
            assert undone == text
    made = append_item(append_item(text, keys, 1), keys, ITEM)
    assert get_value(made, "json", keys) == [1, ITEM]
    once = remove_item(made, keys, ITEM, kept_depth=depth)
    assert get_value(once, "json", keys) == [1]
    assert get_value(remove_item(once, keys, 1, kept_depth=depth), "json", ()) == get_value(
        text or "{}", "json", ()
    )


REFUSED = [
    ("[1]", "json", ("a",), "no JSON object"),
    ("{", "json", ("a",), "no JSON object"),
    ("a = ", "toml", ("a",), "not valid TOML"),
    ('a = {b = "c"}\n', "toml", ("a", "b"), "cannot be edited there"),
    ('a.b = "c"\n', "toml", ("a", "b"), "cannot be edited there"),
    (
        'a = """\nopenai_base_url = "x"\n"""\nopenai_base_url = 3\n',
        "toml",
        ("openai_base_url",),
        "cannot be edited there",
    ),
    ("- a\n- b\n", "yaml", ("a",), "does not read"),
    ("a: 1\n---\nb: 2\n", "yaml", ("a",), "does not read"),
    ("{a: 1}\n", "yaml", ("a",), "does not read"),
]


@pytest.mark.parametrize(("text", "format", "keys", "why"), REFUSED)
def test_what_cannot_be_edited_safely_is_refused(
    text: str, format: Any, keys: tuple[str, ...], why: str
):
    with pytest.raises(UneditableSettings, match=why):
        set_value(text, format, keys, "x")


def test_a_value_inside_a_string_of_several_lines_is_not_taken_for_a_key():
    text = 'a = """\n[t]\nurl = "x"\n"""\n[t]\nurl = "y"\n'
    try:
        made = set_value(text, "toml", ("t", "url"), "z")
    except UneditableSettings:
        return
    assert tomllib.loads(made) == {"a": '[t]\nurl = "x"\n', "t": {"url": "z"}}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=3), below),
    max_leaves=6,
)


@pytest.mark.drawn
@given(
    st.dictionaries(st.text(max_size=3), values, max_size=4),
    st.lists(st.text(max_size=3), min_size=1, max_size=3),
    st.sampled_from([None, 1, 4, "\t"]),
)
def test_any_json_object_can_be_edited_and_gets_its_bytes_back(
    settings: dict[str, Any], keys: list[str], indent: Any
):
    text = json.dumps(settings, indent=indent, ensure_ascii=False)
    known = [get_value(text, "json", keys[:end]) for end in range(1, len(keys) + 1)]
    if any(one is not None and not isinstance(one, dict) for one in known[:-1]):
        return  # a value of another kind is in the way
    made = set_value(text, "json", keys, "http://p")
    assert get_value(made, "json", keys) == "http://p"
    if known[-1] is not None:
        assert json.loads(set_value(made, "json", keys, known[-1])) == settings
