"""Shapes of diffs, JSON, tables, pages, edit results and other text."""

from __future__ import annotations

import json

import pytest

from respool.shapes.structured_data import shape_json
from tests.shapes.support import Case, holds

# ruff: noqa: E501 (texts as tools print them)


USERS = [
    {"id": n, "name": f"user {n}", "roles": ["reader", "writer"], "bio": "likes looms " * 5}
    for n in range(9)
]


def deep(value: object, keys: str) -> object:
    """A value below so many keys."""
    for key in keys:
        value = {key: value}
    return value


CASES = [
    Case(
        "diff",
        "two files",
        330,
        """\
diff --git a/src/price.py b/src/price.py
index 1f0c3aa..9d21e44 100644
--- a/src/price.py
+++ b/src/price.py
@@ -10,7 +10,8 @@ class Price:
     def rounded(self):
-        return round(self.value, 2)
+        exact = Decimal(self.value)
+        return exact.quantize(CENT, ROUND_HALF_UP)

     def __str__(self):
         return f"{self.rounded()} EUR"
@@ -40,6 +41,12 @@ class Basket:
     def total(self):
+        if not self.items:
+            return Price("0")
+        seen = set()
+        for item in self.items:
+            seen.add(item.name)
+        log.debug("a basket of %d different items", len(seen))
         return sum(item.price for item in self.items)
diff --git a/README.md b/README.md
index 77aa001..ab34c00 100644
--- a/README.md
+++ b/README.md
@@ -1,4 +1,4 @@
 # Shop
-Prices are floats.
+Prices are decimals, rounded half up.
""",
        """\
diff --git a/src/price.py b/src/price.py [+8 -1]
[… 3 lines]
@@ -10,7 +10,8 @@ class Price: [+2 -1]
[… 7 lines]
@@ -40,6 +41,12 @@ class Basket: [+6 -0]
[… 8 lines]
diff --git a/README.md b/README.md [+1 -1]
[… 3 lines]
@@ -1,4 +1,4 @@
 # Shop
-Prices are floats.
+Prices are decimals, rounded half up.\
""",
        (21, 29, "lines"),
    ),
    Case(
        "diff",
        "git show",
        200,
        """\
commit 8c3f1d0a5c1f1f2f3a4b5c6d7e8f90a1b2c3d4e5
Author: Ann Lee <ann@example.org>
Date:   Mon Mar 2 10:11:12 2026 +0100

    Round prices half up

diff --git a/src/price.py b/src/price.py
index 1f0c3aa..9d21e44 100644
--- a/src/price.py
+++ b/src/price.py
@@ -10,7 +10,8 @@ class Price:
     def rounded(self):
-        return round(self.value, 2)
+        exact = Decimal(self.value)
+        return exact.quantize(CENT, ROUND_HALF_UP)

     def __str__(self):
         return f"{self.rounded()} EUR"
""",
        """\
commit 8c3f1d0a5c1f1f2f3a4b5c6d7e8f90a1b2c3d4e5
[… 5 lines]
diff --git a/src/price.py b/src/price.py [+2 -1]
[… 3 lines]
@@ -10,7 +10,8 @@ class Price:
[… 7 lines]\
""",
        (15, 18, "lines"),
    ),
    Case(
        "json",
        "a long array of objects",
        300,
        json.dumps(
            {
                "total": 40,
                "next": None,
                "items": [
                    {
                        "id": n,
                        "name": f"item {n}",
                        "tags": ["new", "sale"],
                        "price": {"net": n * 10, "currency": "EUR"},
                        "description": "Made of the best wood. " * 4,
                    }
                    for n in range(40)
                ],
            }
        ),
        """\
{
 "total": 40,
 "next": null,
 "items": [
  {
   "id": 0,
   "name": "item 0",
   "tags": ["new", "sale"],
   "price": {"net": 0, "currency": "EUR"},
   "description": "Made of the best wood. Made of the best wood. Made of the best wood. Made of the best wood. "
  },
[… 39 items]
 ]
}\
""",
        (39, 40, "items"),
    ),
    Case(
        "json",
        "long strings",
        240,
        json.dumps({"title": "Notes", "body": "First we met. " * 60, "done": False}, indent=2),
        """\
{
 "title": "Notes",
 "body": "First we met. First we met. First we met. First we met. First we met. First we met. First we met. First we met.[… 730 chars],
 "done": false
}\
""",
        (730, 893, "chars"),
    ),
    Case(
        "json",
        "many keys",
        160,
        json.dumps({f"setting_{n:02d}": n for n in range(40)}),
        """\
{
 "setting_00": 0,
 "setting_01": 1,
 "setting_02": 2,
 "setting_03": 3,
 "setting_04": 4,
 "setting_05": 5,
 "setting_06": 6,
 "setting_07": 7,
 "setting_08": 8,
[… 31 keys]
}\
""",
        (31, 40, "keys"),
    ),
    Case(
        "table",
        "csv",
        120,
        "id,name,price\n" + "\n".join(f"{n},item {n},{n * 10}" for n in range(1, 31)) + "\n",
        """\
id,name,price
1,item 1,10
2,item 2,20
3,item 3,30
4,item 4,40
5,item 5,50
[… 23 rows]
29,item 29,290
30,item 30,300\
""",
        (23, 30, "rows"),
    ),
    Case(
        "table",
        "psql",
        200,
        " id |  name   | price\n----+---------+-------\n"
        + "\n".join(f" {n:2d} | item {n:2d} |   {n * 10:3d}" for n in range(1, 31))
        + "\n(30 rows)\n",
        """\
 id |  name   | price
----+---------+-------
  1 | item  1 |    10
  2 | item  2 |    20
  3 | item  3 |    30
  4 | item  4 |    40
[… 25 rows]
 30 | item 30 |   300
(30 rows)\
""",
        (25, 30, "rows"),
    ),
    Case(
        "table",
        "markdown",
        160,
        "| option | default | meaning |\n|---|---|---|\n"
        + "\n".join(f"| opt_{n} | {n} | What option {n} does |" for n in range(1, 20))
        + "\n",
        """\
| option | default | meaning |
|---|---|---|
| opt_1 | 1 | What option 1 does |
| opt_2 | 2 | What option 2 does |
[… 16 rows]
| opt_19 | 19 | What option 19 does |\
""",
        (16, 19, "rows"),
    ),
    Case(
        "page",
        "markdown",
        330,
        """\
# The handbook

This is how we work. It is short on purpose, and it changes when we change our minds.

## Reviews

Every change is read by somebody else. The reader asks what they do not understand.

- small changes
- one subject each

```
git push origin feature
```

## Releases

We release on Tuesdays. A release has a number, a list of changes and an owner.

### Hotfixes

Only for what is broken. Everything else waits for Tuesday, however small it is, and however much somebody wants it.

## Holidays

Tell the others two weeks before.
""",
        """\
# The handbook

This is how we work. It is short on purpose, and it changes when we change our minds.

## Reviews
[… 10 lines]
## Releases
[… 3 lines]
### Hotfixes
[… 3 lines]
## Holidays
[… 2 lines]\
""",
        (18, 26, "lines"),
    ),
    Case(
        "page",
        "html",
        200,
        """\
<!DOCTYPE html>
<html>
<head>
<title>Rates</title>
<style>body { margin: 0; font-family: sans-serif; background: #fff; color: #222 }</style>
</head>
<body>
<h1>Rates</h1>
<p>All rates are per month and without tax.</p>
<div class="a"><div class="b"><div class="c"><span>nothing to see here, really</span></div></div></div>
<h2>Private</h2>
<p>Ten euros.</p>
<div class="a"><div class="b"><div class="c"><span>nothing to see here either</span></div></div></div>
<h2>Companies</h2>
<p>Twenty euros.</p>
</body>
</html>
""",
        """\
<!DOCTYPE html>
<html>
<head>
<title>Rates</title>
[… 3 lines]
<h1>Rates</h1>
[… 2 lines]
<h2>Private</h2>
[… 2 lines]
<h2>Companies</h2>
[… 3 lines]\
""",
        (10, 17, "lines"),
    ),
    Case(
        "edit",
        "an updated file",
        400,
        "The file /repo/src/price.py has been updated. Here's the result of running `cat -n` on a snippet of the edited file:\n"
        + "\n".join(f"    {n}→        raise ValueError('error {n}')" for n in range(10, 30))
        + "\n",
        """\
The file /repo/src/price.py has been updated. Here's the result of running `cat -n` on a snippet of the edited file:
[… 20 lines]\
""",
        (20, 21, "lines"),
    ),
    Case(
        "other",
        "an edit that partly failed",
        300,
        "Applied 3 of 4 hunks to src/price.py\n"
        + "\n".join(f"hunk {n}: applied at line {n * 20}" for n in range(1, 12))
        + "\nhunk 12: error: context does not match at line 310\n",
        """\
Applied 3 of 4 hunks to src/price.py
hunk 1: applied at line 20
hunk 2: applied at line 40
hunk 3: applied at line 60
[… 7 lines]
hunk 11: applied at line 220
hunk 12: error: context does not match at line 310\
""",
        (7, 13, "lines"),
    ),
    Case(
        "other",
        "head and tail",
        200,
        "\n".join(f"what somebody wrote on line {n}" for n in range(1, 41)) + "\n",
        """\
what somebody wrote on line 1
what somebody wrote on line 2
what somebody wrote on line 3
what somebody wrote on line 4
[… 34 lines]
what somebody wrote on line 39
what somebody wrote on line 40\
""",
        (34, 40, "lines"),
    ),
    Case(
        "other",
        "one endless line",
        200,
        "lorem ipsum dolor sit amet " * 80,
        """\
lorem ipsum dolor sit amet lorem ipsum dolor sit amet lorem ipsum dolor sit amet lorem ipsum dolor sit amet lorem ipsum dolor sit amet lorem ipsum dolor sit[… 2,004 chars]\
""",
        (2_004, 2_160, "chars"),
    ),
    Case(
        "other",
        "framed by an agent",
        260,
        "Chunk ID: 9ccceb\nWall time: 0.0000 seconds\nProcess exited with code 0\nOutput:\n"
        + "\n".join(f"what somebody wrote on line {n}" for n in range(1, 41))
        + "\n",
        """\
Chunk ID: 9ccceb
Wall time: 0.0000 seconds
Process exited with code 0
Output:
what somebody wrote on line 1
what somebody wrote on line 2
what somebody wrote on line 3
[… 35 lines]
what somebody wrote on line 39
what somebody wrote on line 40\
""",
        (35, 44, "lines"),
    ),
    Case(
        "json",
        "deeper than is opened",
        260,
        json.dumps(deep({"k": ["x" * 30] * 6, "l": {"m": "y" * 50, "n": "z" * 50}}, "jihgfedcba")),
        """\
{
 "a": {
  "b": {
   "c": {
    "d": {
     "e": {
      "f": {
       "g": {
        "h": {
[… 1 keys]
        }
       }
      }
     }
    }
   }
  }
 }
}\
""",
        (1, 9, "keys"),
    ),
    Case(
        "json",
        "items and keys together",
        260,
        json.dumps({"users": USERS} | {f"key_{n}": f"value {n}" for n in range(20)}),
        """\
{
 "users": [
  {
   "id": 0,
   "name": "user 0",
   "roles": ["reader", "writer"],
[… 1 keys]
  },
  {
   "id": 1,
   "name": "user 1",
   "roles": ["reader", "writer"],
[… 1 keys]
  },
[… 7 items]
 ],
 "key_0": "value 0",
 "key_1": "value 1",
 "key_2": "value 2",
[… 17 keys]
}\
""",
        (26, 38, "entries"),
    ),
    Case(
        "table",
        "semicolons",
        200,
        "id;name;city\n" + "".join(f"{n};weaver {n};town {n % 3}\n" for n in range(1, 21)),
        """\
id;name;city
1;weaver 1;town 1
2;weaver 2;town 2
3;weaver 3;town 0
4;weaver 4;town 1
5;weaver 5;town 2
6;weaver 6;town 0
[… 11 rows]
18;weaver 18;town 0
19;weaver 19;town 1
20;weaver 20;town 2\
""",
        (11, 20, "rows"),
    ),
    Case(
        "page",
        "html, the upper headings first",
        200,
        """\
<html><head><title>Loom</title></head>
<body>
<h1>Loom</h1>
<p>A loom weaves cloth out of threads, as it has for ages.</p>
<h2>Parts</h2>
<p>The warp is stretched on the loom; the weft is drawn through it.</p>
<h4>Details of the shuttle</h4>
<p>The shuttle carries the weft from one side to the other.</p>
<h2>Use</h2>
<p>Start with a plain weave, and count the threads.</p>
</body></html>
""",
        """\
<html><head><title>Loom</title></head>
<body>
<h1>Loom</h1>
[… 1 lines]
<h2>Parts</h2>
[… 3 lines]
<h2>Use</h2>
[… 2 lines]\
""",
        (6, 11, "lines"),
    ),
    Case(
        "page",
        "no headings",
        200,
        "\n".join(f"This is line {n} of a text that has no headings at all." for n in range(1, 21)),
        """\
This is line 1 of a text that has no headings at all.
This is line 2 of a text that has no headings at all.
[… 17 lines]
This is line 20 of a text that has no headings at all.\
""",
        (17, 20, "lines"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_exactly_this_stays(case: Case) -> None:
    holds(case)


@pytest.mark.parametrize("said", ["😀", "é", "a😀", "C:\\u12", "\\", "x\\u00e9"])
@pytest.mark.parametrize("room", range(600, 640))
def test_a_string_is_never_cut_inside_an_escape(said: str, room: int) -> None:
    text = json.dumps({"said": said * 2_000, "beside": said * 2_000})
    shaped = shape_json(text, room)
    assert shaped is not None
    told = [line.partition("[… ")[0] for line in shaped.text.split("\n") if "[… " in line]
    assert len(told) == 2
    for line in told:
        said_so_far = json.loads("{" + line.strip() + '"}')
        ((_, value),) = said_so_far.items()
        assert (said * 2_000).startswith(value)
