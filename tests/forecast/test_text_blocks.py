"""Blocks of a text: what belongs together stays or goes together."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.forecast import text_blocks as blocks_of_text
from respool.forecast.text_blocks import Layout, keep_blocks, lines_of, text_blocks
from tests.effort import examples

LAYOUTS: tuple[Layout, ...] = ("code", "prose", "diff", "hits", "rows")


def kept(text: str, layout: Layout, *needed: str, worth: float = 100.0) -> list[str]:
    """The lines that stay if lines with these words are needed and each other one costs 1."""
    lines = textwrap.dedent(text).strip("\n").split("\n")
    values = [worth if any(word in line for word in needed) else -1.0 for line in lines]
    stays = bytearray(len(lines))
    blocks = text_blocks("\n".join(lines), layout, 0, len(lines))
    keep_blocks(blocks, values, stays)
    return [line.strip() for line, stay in zip(lines, stays, strict=True) if stay and line.strip()]


CODE = '''
    import loom

    def weave(threads, warp):
        """Weave the threads into a cloth.

        Interface summary: one thread after the other is pulled through the warp, by class
        instances that hold it (see loom.Shuttle, which is for threads and for
        class instances).

        Returns the cloth.
        """
        cloth = loom.Cloth(warp)
        cloth.begin()
        cloth.stretch(warp)

        for thread in threads:
            shuttle = loom.Shuttle(thread)
            shuttle.load()
            shuttle.pass_through(warp)
            cloth.add(shuttle)
            shuttle.unload()

        cloth.end()
        return cloth

    def unweave(cloth):
        while cloth.rows:
            cloth.rows.pop()
        cloth.end()
        return cloth.threads
'''


def test_a_docstring_stays_as_a_whole_with_its_definition() -> None:
    left = kept(CODE, "code", "Interface summary")
    assert left[0] == "def weave(threads, warp):"
    assert left[1].startswith('"""Weave')
    assert left[-2:] == ["Returns the cloth.", '"""']
    assert "class instances)." in left
    assert not any("cloth.begin" in line or "unweave" in line for line in left)


def test_a_needed_line_stays_with_its_block_and_all_that_heads_it() -> None:
    left = kept(CODE, "code", "pass_through")
    assert left[:3] == [
        "def weave(threads, warp):",
        "for thread in threads:",
        "shuttle = loom.Shuttle(thread)",
    ]
    assert not any("unweave" in line or "cloth.begin" in line for line in left)


def test_nothing_needed_keeps_nothing() -> None:
    for layout in LAYOUTS:
        assert kept(CODE, layout) == []


def test_one_of_several_needs_is_not_paid_by_a_long_block() -> None:
    """What stays must be worth all the lines that stay with it."""
    assert kept(CODE, "code", "pass_through", worth=3.0) == []


DIFF = """
    diff --git a/loom.py b/loom.py
    index 1..2 100644
    --- a/loom.py
    +++ b/loom.py
    @@ -1,4 +1,4 @@
     def weave():
    -    return old_cloth
    +    return new_cloth
    @@ -40,3 +40,3 @@
    -    last = 1
    +    last = 2
    diff --git a/warp.py b/warp.py
    index 3..4 100644
    --- a/warp.py
    +++ b/warp.py
    @@ -1 +1 @@
    -other
    +others
"""


def test_a_hunk_stays_whole_below_its_file() -> None:
    left = kept(DIFF, "diff", "new_cloth")
    assert left[0] == "diff --git a/loom.py b/loom.py"
    assert left[4:] == [
        "@@ -1,4 +1,4 @@",
        "def weave():",
        "-    return old_cloth",
        "+    return new_cloth",
    ]


PAGE = """
    # The loom

    It weaves. A long sentence about
    weaving that goes on.

    ## Threads

    Threads come in colours,
    and each colour has a number.

    - red is one
    - blue is two

    | colour | number |
    |---|---|
    | red | 1 |
    | blue | 2 |

    ## Cloth

    Cloth is sold.
"""


@pytest.mark.parametrize(
    ("needed", "left"),
    [
        (
            "has a number",
            [
                "# The loom",
                "## Threads",
                "Threads come in colours,",
                "and each colour has a number.",
            ],
        ),
        ("blue is two", ["# The loom", "## Threads", "- blue is two"]),
        ("is sold", ["# The loom", "## Cloth", "Cloth is sold."]),
    ],
)
def test_a_paragraph_or_an_item_stays_below_its_headings(needed: str, left: list[str]) -> None:
    assert kept(PAGE, "prose", needed) == left


def test_a_member_of_json_stays_with_its_key() -> None:
    text = """
        {
          "name": "loom",
          "scripts": {
            "build": "make",
            "test": "pytest",
            "lint": "ruff",
            "format": "ruff format",
            "types": "pyright"
          },
          "dependencies": {
            "thread": "1.0",
            "warp": "2.0",
            "weft": "3.0",
            "cloth": "4.0",
            "colour": "5.0"
          }
        }
    """
    left = kept(text, "code", '"weft"')
    assert '"dependencies": {' in left
    assert '"scripts": {' not in left


def test_rows_go_one_by_one_and_an_error_takes_its_lines_along() -> None:
    text = """
        ok one
        ok two
        error: the thread broke
        at loom.py:3
        41 | weave(thread)
           |       ^^^^^^ here

        ok three
    """
    assert kept(text, "rows", "ok two") == ["ok two"]
    assert kept(text, "rows", "the thread broke")[-1] == "|       ^^^^^^ here"


def test_hits_stay_below_the_name_of_their_file() -> None:
    text = "src/loom.py\n3:import warp\n9:warp(thread)\n\nsrc/weft.py\n4:import warp\n"
    assert kept(text, "hits", "9:warp") == ["src/loom.py", "9:warp(thread)"]


SWITCH = """
    func (l *Loom) Turn(way Way) int {
        total := 0
        switch way {
        case Left:
            l.shuttle.Left()
            total++
            l.Count(total)

        case Right, Straight:
            l.shuttle.Right()
            total--
            l.Count(total)
        default:
            panic("no way")
        }
        return total
    }
"""


def test_a_label_stays_below_its_switch_and_others_go() -> None:
    assert kept(SWITCH, "code", "Right()") == [
        "func (l *Loom) Turn(way Way) int {",
        "total := 0",
        "switch way {",
        "case Right, Straight:",
        "l.shuttle.Right()",
        "total--",
        "l.Count(total)",
        "}",
        "return total",
        "}",
    ]


def test_among_labels_alone_each_is_a_block() -> None:
    """A range of a file may begin inside a switch."""
    inside = "\n".join(SWITCH.split("\n")[4:14])
    assert kept(inside, "code", "Right()")[0] == "case Right, Straight:"


def test_what_begins_a_statement_stays_with_its_end() -> None:
    text = """
        weave(
            threads={
                "red": 1,
                "blue": 2,
                "green": 3,
                "white": 4,
                "black": 5,
            },
            title="cloth",
        )

        def unweave(cloth):
            while cloth.rows:
                cloth.rows.pop()
            cloth.end()
            cloth.begin()
            return cloth.threads
    """
    assert kept(text, "code", "threads={", "title") == [
        "weave(",
        "threads={",
        "},",
        'title="cloth",',
        ")",
    ]
    assert kept(text, "code", "def unweave") == ["def unweave(cloth):"]
    value = """
        const cloth = await weave("/threads", {
            colour: "red",
            warp: 4,
            count: 9,
            long: true,
            wide: true,
        });
        const rows = cloth.rows;
    """
    assert kept(value, "code", "await weave") == ['const cloth = await weave("/threads", {', "});"]


@pytest.mark.parametrize(
    ("text", "needed", "left"),
    [
        (
            "## Colours\n\n| colour | number |\n|---|---|\n| red | 1 |\n| blue | 2 |\n",
            "blue",
            ["## Colours", "| colour | number |", "|---|---|", "| blue | 2 |"],
        ),
        (
            "**Steps** (of the loom):\n1. wind\n2. pull\n\n3. cut\n\nAfter that it is cloth.\n",
            "pull",
            ["**Steps** (of the loom):", "2. pull"],
        ),
        (
            "The colours are these:\n\n| colour | number |\n|:---|---:|\n| red | 1 |\n",
            "red",
            ["| colour | number |", "|:---|---:|", "| red | 1 |"],
        ),
        ("It weaves:\n\nA cloth.\n", "cloth", ["A cloth."]),
    ],
)
def test_rows_stay_below_their_head_and_items_below_their_lead(
    text: str, needed: str, left: list[str]
) -> None:
    assert kept(text, "prose", needed) == left


@pytest.mark.parametrize(
    ("text", "needed", "left"),
    [
        (
            "=== RUN   TestWeave\n--- PASS: TestWeave\n=== RUN   TestCut\n--- PASS: TestCut",
            "PASS: TestCut",
            ["=== RUN   TestCut", "--- PASS: TestCut"],
        ),
        ("--- PASS: A\n--- PASS: B\n--- PASS: C", "PASS: B", ["--- PASS: B"]),
        (
            "[loom] body: {\n  colour: 1,\n}\n[loom] done",
            "colour",
            ["[loom] body: {", "colour: 1,", "}"],
        ),
        (
            "loom {\n" + "".join(f"  thread {n}\n\n" for n in range(9)) + "}\n[loom]",
            "thread 4",
            ["loom {", "thread 4", "thread 5", "}"],
        ),
    ],
)
def test_rows_of_one_thing_stay_together(text: str, needed: str, left: list[str]) -> None:
    assert kept(text, "rows", needed) == left


@pytest.mark.parametrize(
    ("text", "needed", "left"),
    [
        (  # a comment stays only with what it is about
            (
                "open(warp)\nstretch(warp)\nwind(warp)\nload(warp)\n# Each thread\n# is pulled.\n"
                "for one in threads:\n    a(one)\n    b(one)\n    c(one)\n    d(one)\n"
            ),
            "is pulled",
            ["# Each thread", "# is pulled.", "for one in threads:"],
        ),
        (  # and may go without it
            (
                "# Each thread\n# is pulled.\n# Then all.\ndef pull(threads):\n    one(threads)\n"
                "    two(threads)\n    three(threads)\n    four(threads)\n"
            ),
            "def pull",
            ["def pull(threads):"],
        ),
        (  # a lone statement belongs to the block behind it
            (
                "cloth, err = weave()\nif err:\n    a(err)\n    b(err)\n    c(err)\n    d(err)\n"
                "rest(1)\nrest(2)\nrest(3)\nrest(4)\nrest(5)\n"
            ),
            "weave()",
            ["cloth, err = weave()", "if err:", "a(err)", "b(err)", "c(err)", "d(err)"],
        ),
        (  # the last one to the block before it
            "if err:\n    a(err)\n    b(err)\n    c(err)\n    d(err)\nreturn cloth\n",
            "return cloth",
            ["if err:", "a(err)", "b(err)", "c(err)", "d(err)", "return cloth"],
        ),
        (  # a brace on a line of its own belongs to the line before it
            (
                "class Loom\n{\n    a();\n    b();\n    c();\n    d();\n}\n\nclass Warp\n{\n"
                "    e();\n    f();\n    g();\n    h();\n}\n"
            ),
            "class Warp",
            ["class Warp", "{"],
        ),
        (  # a range that begins inside a block
            (
                "        a(thread)\n        b(thread)\n    c(cloth)\n    d(cloth)\n}\n\n"
                "func weave() {\n    f()\n    g()\n    h()\n    i()\n}\n"
            ),
            "g()",
            ["func weave() {", "f()", "g()", "h()", "i()", "}"],
        ),
    ],
)
def test_statements_and_comments_stay_with_their_block(
    text: str, needed: str, left: list[str]
) -> None:
    assert kept(text, "code", needed, worth=9.0) == left


def test_a_record_of_json_stays_whole() -> None:
    records = [
        f'  {{\n    "id": {n},\n    "name": "loom {n}",\n    "colour": "red"\n  }},'
        for n in range(9)
    ]
    text = "\n".join(["[", *records, "]"])
    expected = ["[", "{", '"id": 4,', '"name": "loom 4",', '"colour": "red"', "},", "]"]
    assert kept(text, "code", "loom 4") == expected


TREE = """
    .
    ├── docs
    │   ├── loom.md
    │   ├── warp.md
    │   ├── weft.md
    │   ├── cloth.md
    │   └── thread.md
    ├── src
    │   ├── loom
    │   │   ├── __init__.py
    │   │   ├── shuttle.py
    │   │   ├── weave.py
    │   │   └── wind.py
    │   └── warp.py
    └── tests
"""


@pytest.mark.parametrize("layout", ["rows", "hits"])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_leaf_of_a_tree_stays_below_its_directories(layout: Layout, ascii_only: bool) -> None:
    tree = textwrap.dedent(TREE)
    if ascii_only:
        tree = tree.replace("├──", "|--").replace("└──", "`--").replace("│", "|")
    left = [line.split(" ")[-1] for line in kept(tree, layout, "weave.py")]
    assert left[:3] == [".", "src", "loom"]
    assert "weave.py" in left
    assert "docs" not in left
    assert "tests" not in left


def test_a_list_of_directories_is_a_tree() -> None:
    text = (
        "- /loom/\n  - docs/\n    - a.md\n    - b.md\n  - src/\n    - c.py\n    - d.py\n"
        "  - tests/\n    - e.py\n    - f.py\n    - g.py\n    - h.py\n    - i.py\n"
    )
    left = kept(text, "hits", "f.py")
    assert left[:2] == ["- /loom/", "- tests/"]
    assert "- docs/" not in left


def test_a_row_stays_below_the_line_that_heads_it() -> None:
    text = "--- src ---\nloom.py\nwarp.py\n--- docs ---\nloom.md\nwarp.md\n./tests:\nweft.py\n"
    assert kept(text, "rows", "warp.md") == ["--- docs ---", "warp.md"]
    assert kept(text, "rows", "weft.py") == ["./tests:", "weft.py"]


@pytest.mark.parametrize("place", ["", "src/loom-2.py"])
def test_a_hit_stays_with_its_context(place: str) -> None:
    def rows(first: int, count: int, hit: int) -> list[str]:
        numbers = range(first, first + count)
        signs = {n: ":" if n == hit else "-" for n in numbers}
        return [f"{place}{place and signs[n]}{n}{signs[n]} thread {n}" for n in numbers]

    some, other = rows(8, 4, 9), rows(40, 5, 42)
    assert kept("\n".join([*some, *other]), "hits", "thread 41") == other
    plain = [f"src/loom.py:{n}: thread {n}" for n in range(8, 14)]
    assert kept("\n".join(plain), "hits", "thread 9") == [plain[1]]


_LINE = st.text(st.sampled_from("ab:{}()#\"'-+@|`/* \t\n"), max_size=24)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(_LINE, max_size=60), st.sampled_from(LAYOUTS))
def test_no_line_is_in_two_blocks_and_none_but_blank_ones_is_in_none(
    pieces: list[str], layout: Layout
) -> None:
    text = "\n".join(pieces)
    lines = text.split("\n")
    found = [line for block in text_blocks(text, layout, 0, len(lines)) for line in lines_of(block)]
    assert len(set(found)) == len(found)
    bare = [line[1:] if layout == "diff" else line for line in lines]
    assert all(not bare[at].strip() for at in set(range(len(lines))).difference(found))


def test_the_scan_is_linear() -> None:
    """However deep or long a text is, its blocks are found in one pass over each level."""
    deep = "\n".join(f"{' ' * (n % 400)}if a{n}:" for n in range(20_000))
    for layout in LAYOUTS:
        assert text_blocks(deep, layout, 0, 20_000)


def test_known_blocks_are_bounded_by_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_of_text, "_MAX_CACHED_LINES", 100)
    cache = blocks_of_text._BlockCache()
    monkeypatch.setattr(blocks_of_text, "_BLOCKS", cache)
    texts = ["\n".join(f"line {at}, {number}" for number in range(30)) for at in range(9)]
    for text in texts:
        assert text_blocks(texts[0], "rows", 0, 30) is text_blocks(texts[0], "rows", 0, 30)
        assert text_blocks(text, "rows", 0, 30) == blocks_of_text._divide(text, "rows", 0, 30)
        assert cache._lines == 30 * len(cache._found) <= 100
