"""What stays of scripts, schemas and settings: read each one."""

from __future__ import annotations

import pytest

from tests.shape_rules import Case, holds

CASES = [
    Case(
        "code",
        "ruby",
        200,
        """\
require "json"
require "net/http"

module Shop
  # Talks to the service.
  class Client
    def initialize(base)
      @base = base
    end

    def items(page: 1)
      answer = Net::HTTP.get(URI("#{@base}/items?page=#{page}"))
      JSON.parse(answer).fetch("items")
    end
  end

  def self.client
    @client ||= Client.new(ENV.fetch("SHOP_URL"))
  end
end
""",
        """\
require "json"
require "net/http"

module Shop
  # Talks to the service.
  class Client
[… 4 lines]
    def items(page: 1)
[… 5 lines]
  def self.client
[… 3 lines]\
""",
        (12, 20, "lines"),
    ),
    Case(
        "code",
        "shell",
        200,
        """\
#!/usr/bin/env bash
set -euo pipefail

ROOT="$(cd "$(dirname "$0")/.." && pwd)"
TARGET="${1:-debug}"

function build() {
  cargo build --profile "$TARGET" --manifest-path "$ROOT/Cargo.toml"
  cp "$ROOT/target/$TARGET/app" "$ROOT/dist/app"
}

function clean() {
  rm -rf "$ROOT/dist"
  mkdir -p "$ROOT/dist"
}

clean
build
""",
        """\
#!/usr/bin/env bash
set -euo pipefail

ROOT="$(cd "$(dirname "$0")/.." && pwd)"
TARGET="${1:-debug}"

function build() {
[… 4 lines]
function clean() {
[… 6 lines]\
""",
        (10, 18, "lines"),
    ),
    Case(
        "code",
        "sql",
        300,
        """\
-- Sessions and their events.
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    started TIMESTAMP NOT NULL,
    ended TIMESTAMP,
    title TEXT
);

CREATE UNIQUE INDEX sessions_started ON sessions (started, id);

CREATE TABLE events (
    session TEXT REFERENCES sessions (id),
    at TIMESTAMP NOT NULL,
    kind TEXT NOT NULL,
    body JSONB
);
""",
        """\
-- Sessions and their events.
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    started TIMESTAMP NOT NULL,
    ended TIMESTAMP,
    title TEXT
);

CREATE UNIQUE INDEX sessions_started ON sessions (started, id);
[… 7 lines]\
""",
        (7, 16, "lines"),
    ),
    Case(
        "code",
        "toml as keys",
        150,
        """\
[project]
name = "shop"
version = "1.4.0"
dependencies = [
    "httpx>=0.27",
    "pydantic>=2",
    "rich",
]

[project.optional-dependencies]
test = ["pytest", "hypothesis"]

[tool.ruff]
line-length = 100
target-version = "py311"

[tool.ruff.lint]
select = ["E", "F", "I"]
""",
        """\
[project]
name = "shop"
version = "1.4.0"
dependencies = [
[… 13 lines]
select = ["E", "F", "I"]\
""",
        (13, 18, "lines"),
    ),
    Case(
        "code",
        "yaml as keys",
        150,
        """\
name: checks
on:
  push:
    branches: [main]
  pull_request:
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - run: pip install -e .[test]
      - run: pytest -q
  lint:
    runs-on: ubuntu-latest
    steps:
      - run: ruff check .
""",
        """\
name: checks
on:
  push:
    branches: [main]
  pull_request:
jobs:
[… 12 lines]
      - run: ruff check .\
""",
        (12, 19, "lines"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_exactly_this_stays(case: Case) -> None:
    holds(case)
