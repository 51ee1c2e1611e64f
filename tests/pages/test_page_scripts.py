"""The scripts of respool's pages, joined: every name declared, and none twice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import pairwise

import pytest

from respool import pages
from respool.dashboard import page as dashboard
from respool.replay import page as replay

_TOKEN = re.compile(
    r"""(?P<skipped>\s+|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    |(?P<pattern>/(?![\s/*])(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\[\n])+/[a-z]*)
    |(?P<number>\d[\w.]*)
    |(?P<word>[A-Za-z_$][\w$]*:?)
    |(?P<sign>=>|\.\.\.|\?\.|.)""",
    re.VERBOSE | re.DOTALL,
)
_IN_TEMPLATE = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*(`|\$\{)", re.DOTALL)
_AT_TOP = re.compile(
    r"^(?:async )?(?:const|let|function|class) (\w+|[{[][^}\]]*[}\]])", re.MULTILINE
)
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_CLASS = re.compile(r"^class .*?^}", re.MULTILINE | re.DOTALL)
_METHOD = re.compile(r"^  (?:async |get |set |static )*#?\w+\(", re.MULTILINE)
_FIELD = re.compile(r"^  (?:static )?#?(\w+)(?= =|;)", re.MULTILINE)

KEYWORDS = frozenset(
    """
    async await break case catch class const continue default delete do else extends false finally
    for function if in instanceof let new null of return static super switch this throw true try
    typeof undefined void while Infinity NaN
    """.split()  # noqa: SIM905 - reads better
)
GIVEN = frozenset(
    """
    AbortSignal Array Boolean Date Element Error Event Intl JSON Map Math Number Object
    ResizeObserver Set String SyntaxError URLSearchParams addEventListener clearTimeout document
    encodeURIComponent fetch getComputedStyle getSelection history innerHeight innerWidth
    localStorage location matchMedia performance setTimeout window
    """.split()  # noqa: SIM905 - reads better
)
SHARED = tuple(("respool.pages", name) for name in pages._SCRIPTS)  # pyright: ignore[reportPrivateUsage]
PAGES = {
    package: SHARED + tuple((package, name) for name in module._SCRIPTS)  # pyright: ignore[reportPrivateUsage]
    for package, module in (("respool.dashboard.page", dashboard), ("respool.replay.page", replay))
}
each_page = pytest.mark.parametrize("page", PAGES)


def text_of(script: tuple[str, str]) -> str:
    """A script as it is shipped."""
    package, name = script
    return files(package).joinpath(name).read_text("utf-8")


def tokens(text: str) -> list[str]:
    """The words and signs of a script, those inside of its templates too; a key has its colon."""
    found: list[str] = []
    braces: list[int] = []  # of each template that is open: how many are open inside
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token is not None
        at, sign = token.end(), token[0]
        if sign == "`" or (sign == "}" and braces and braces[-1] == 0):
            at = _after_words(text, at, braces, begun=sign == "`")
            found.append(";")
        elif token.lastgroup != "skipped":
            found.append(sign if token.lastgroup in ("word", "sign") else "0")
            if braces:
                braces[-1] += (sign == "{") - (sign == "}")
    return found


def _after_words(text: str, at: int, braces: list[int], *, begun: bool) -> int:
    """End of a template's text; `braces` records if code goes on inside the template."""
    words = _IN_TEMPLATE.match(text, at)
    assert words is not None
    if begun:
        braces.append(0)
    if words[1] == "`":
        braces.pop()
    return words.end()


def plain(text: str) -> str:
    """A script whose classes have functions without names, and fields of something's."""
    return _CLASS.sub(
        lambda one: _FIELD.sub(r"  this.\1", _METHOD.sub("  function (", one[0])), text
    )


def at_top(text: str) -> list[str]:
    """The names that a script gives to all behind it."""
    return [name for match in _AT_TOP.findall(text) for name in _WORD.findall(match)]


def declared(found: Sequence[str]) -> Iterator[str]:
    """The names that a script declares, in whatever scope."""
    for at, (one, following) in enumerate(pairwise(found)):
        if one in ("const", "let", "class", "function", "catch"):
            start = at + 1
            if _WORD.fullmatch(following):
                yield following
                start += 1
            if found[start] in ("{", "[", "(") and (
                one in ("function", "catch") or start == at + 1
            ):
                yield from _bound(_inside(found[start:]))
        elif following == "=>":
            yield from [one] if one != ")" else _bound(_inside(found[at::-1]))


def _inside(found: Iterable[str]) -> list[str]:
    """All up to the bracket that belongs to the first, in either direction."""
    depth, inside = 0, []
    for one in found:
        depth += (one in "([{") - (one in ")]}") if len(one) == 1 else 0
        inside.append(one)
        if depth == 0:
            break
    return inside if inside[0] in "([{" else inside[::-1]


def _bound(pattern: Sequence[str]) -> Iterator[str]:
    """The names that parameters or a pattern bind: no key, no default."""
    return (
        one
        for before, one in pairwise(pattern)
        if _WORD.fullmatch(one) and one not in KEYWORDS and before not in ("=", ".", "?.")
    )


def used(found: Sequence[str]) -> set[str]:
    """The names that a script uses: no key, and nothing that belongs to something else."""
    return {
        one
        for before, one in pairwise([";", *found])
        if _WORD.fullmatch(one) and before not in (".", "?.")
    } - KEYWORDS


def missing(texts: Sequence[str]) -> list[tuple[int, str]]:
    """Each name that a script uses, and neither it nor another's top declares, with its place.

    A name that a script declares in one scope and uses in another is taken for declared.
    """
    known = GIVEN.union(*map(at_top, texts))
    found: list[tuple[int, str]] = []
    for at, text in enumerate(texts):
        words = tokens(plain(text))
        found += [(at, name) for name in sorted(used(words) - set(declared(words)) - known)]
    return found


def twice(texts: Sequence[str]) -> list[str]:
    """The names that are given more than once."""
    counts = Counter(name for text in texts for name in at_top(text))
    return [name for name, count in counts.items() if count > 1]


@each_page
def test_no_name_is_declared_twice(page: str):
    assert twice([text_of(script) for script in PAGES[page]]) == []


@each_page
def test_every_name_is_declared(page: str):
    found = missing([text_of(script) for script in PAGES[page]])
    assert [(PAGES[page][at], name) for at, name in found] == []


@pytest.mark.parametrize(
    ("texts", "lacking"),
    [
        (["let n = 0;", "const id = () => `a-${++n}`;"], []),
        (["const id = () => `a-${++n}`;"], [(0, "n")]),
        (["function f() { const n = 1; return n; }", "const g = () => `${`${n}`} n`;"], [(1, "n")]),
        (["const f = ({ a, b: [c], d = e }, ...r) => ({ a, c, d, r, k: 1 });"], [(0, "e")]),
        (
            ["const f = (a) => (a ? b : 1) / 2; // c", "const s = 'd' + /e[/]f/.exec(\"g\").h;"],
            [(0, "b")],
        ),
        (
            ["class A {\n  x = y;\n\n  z(w) {\n    return w + this.x + v;\n  }\n}"],
            [(0, "v"), (0, "y")],
        ),
        (["try { f(); } catch (e) { e; } for (const [k, v] of m) k + v;"], [(0, "f"), (0, "m")]),
        (["const f = (a, b = { c: 1 }) => a?.d + b.c; const g = async one => one;"], []),
    ],
)
def test_what_nobody_declares_is_found(texts: list[str], lacking: list[tuple[int, str]]):
    assert missing(texts) == lacking


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["const a = 1;\nlet b;", "function c() {}\n  const a = 2;"], []),
        (["const a = 1;", "async function a() {}"], ["a"]),
        (["const { a, b } = c;", "class b {}"], ["b"]),
    ],
)
def test_what_is_declared_twice_is_found(texts: list[str], found: list[str]):
    assert twice(texts) == found


@each_page
def test_every_file_is_in_the_page_once(page: str):
    shipped = {
        (package, asset.name)
        for package in ("respool.pages", page)
        for asset in files(package).iterdir()
        if asset.name.endswith(".js")
    }
    assert shipped == set(PAGES[page])
    assert len(PAGES[page]) == len(shipped)
