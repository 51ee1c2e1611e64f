"""Outlines of source code and settings."""

from __future__ import annotations

import pytest

from tests.shapes.support import Case, holds

CASES = [
    Case(
        "code",
        "python with docstrings",
        420,
        """\
\"\"\"Orders, and what they cost.\"\"\"

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal

RATES = {"de": Decimal("0.19"), "fr": Decimal("0.20")}
DEFAULT_COUNTRY = "de"


@dataclass(frozen=True)
class Order:
    \"\"\"One order of a customer.\"\"\"

    id: int
    items: tuple[str, ...]
    country: str = DEFAULT_COUNTRY

    def total(self, prices: dict[str, Decimal]) -> Decimal:
        \"\"\"What all items cost, with tax.\"\"\"
        net = sum((prices[item] for item in self.items), Decimal(0))
        if net < 0:
            raise ValueError("a negative total")
        return net * (1 + RATES[self.country])

    def as_json(self) -> str:
        return json.dumps({"id": self.id, "items": self.items})


def parse_order(
    line: str,
    *,
    strict: bool = True,
) -> Order:
    \"\"\"Read an order from a line of the export.\"\"\"
    fields = line.split(";")
    if strict and len(fields) != 3:
        raise ValueError(f"expected 3 fields, got {len(fields)}")
    return Order(int(fields[0]), tuple(fields[1].split(",")), fields[2])
""",
        """\
\"\"\"Orders, and what they cost.\"\"\"
[… 7 lines]
RATES = {"de": Decimal("0.19"), "fr": Decimal("0.20")}
DEFAULT_COUNTRY = "de"
[… 3 lines]
class Order:
    \"\"\"One order of a customer.\"\"\"
[… 5 lines]
    def total(self, prices: dict[str, Decimal]) -> Decimal:
[… 6 lines]
    def as_json(self) -> str:
[… 3 lines]
def parse_order(
    line: str,
    *,
    strict: bool = True,
) -> Order:
[… 5 lines]\
""",
        (29, 41, "lines"),
    ),
    Case(
        "code",
        "go read with line numbers",
        330,
        """\
     1→package store
     2→
     3→import (
     4→	"context"
     5→	"database/sql"
     6→	"fmt"
     7→)
     8→
     9→// ErrGone is returned for rows that were deleted.
    10→var ErrGone = fmt.Errorf("gone")
    11→
    12→// Store keeps sessions in a database.
    13→// It is safe for concurrent use.
    14→type Store struct {
    15→	db    *sql.DB
    16→	limit int
    17→}
    18→
    19→func Open(path string) (*Store, error) {
    20→	db, err := sql.Open("sqlite", path)
    21→	if err != nil {
    22→		return nil, fmt.Errorf("open %s: %w", path, err)
    23→	}
    24→	return &Store{db: db, limit: 100}, nil
    25→}
    26→
    27→// Get finds one session.
    28→func (s *Store) Get(ctx context.Context, id string) (*Session, error) {
    29→	row := s.db.QueryRowContext(ctx, "SELECT data FROM sessions WHERE id = ?", id)
    30→	var data []byte
    31→	if err := row.Scan(&data); err != nil {
    32→		return nil, fmt.Errorf("get %s: %w", id, err)
    33→	}
    34→	return decode(data)
    35→}
""",
        """\
     1→package store
     2→
     3→import (
[… 6 lines]
    10→var ErrGone = fmt.Errorf("gone")
[… 3 lines]
    14→type Store struct {
[… 4 lines]
    19→func Open(path string) (*Store, error) {
[… 8 lines]
    28→func (s *Store) Get(ctx context.Context, id string) (*Session, error) {
[… 7 lines]\
""",
        (28, 35, "lines"),
    ),
    Case(
        "code",
        "typescript with a class",
        330,
        """\
import { useState } from "react";
import type { Item } from "./types";

export const LIMIT = 20;

export interface Page {
  items: Item[];
  next?: string;
}

export class Client {
  private token: string;

  constructor(token: string) {
    this.token = token;
  }

  async list(cursor?: string): Promise<Page> {
    const url = cursor ? `/items?cursor=${cursor}` : "/items";
    const answer = await fetch(url, { headers: { Authorization: this.token } });
    if (!answer.ok) {
      throw new Error(`list failed: ${answer.status}`);
    }
    return answer.json();
  }
}

export function useItems(client: Client) {
  const [items, setItems] = useState<Item[]>([]);
  return { items, reload: () => client.list().then((page) => setItems(page.items)) };
}
""",
        """\
import { useState } from "react";
[… 2 lines]
export const LIMIT = 20;

export interface Page {
[… 4 lines]
export class Client {
[… 2 lines]
  constructor(token: string) {
[… 3 lines]
  async list(cursor?: string): Promise<Page> {
[… 9 lines]
export function useItems(client: Client) {
[… 3 lines]\
""",
        (23, 31, "lines"),
    ),
    Case(
        "code",
        "rust",
        260,
        """\
use std::collections::HashMap;

/// How many entries are kept.
pub const CAPACITY: usize = 128;

#[derive(Debug, Clone)]
pub struct Cache<V> {
    entries: HashMap<String, V>,
}

impl<V: Clone> Cache<V> {
    pub fn new() -> Self {
        Self { entries: HashMap::with_capacity(CAPACITY) }
    }

    pub fn get(&self, key: &str) -> Option<V> {
        self.entries.get(key).cloned()
    }
}

fn evict<V>(cache: &mut Cache<V>) {
    if cache.entries.len() > CAPACITY {
        cache.entries.clear();
    }
}
""",
        """\
use std::collections::HashMap;
[… 2 lines]
pub const CAPACITY: usize = 128;
[… 2 lines]
pub struct Cache<V> {
[… 3 lines]
impl<V: Clone> Cache<V> {
    pub fn new() -> Self {
[… 8 lines]
fn evict<V>(cache: &mut Cache<V>) {
[… 4 lines]\
""",
        (19, 25, "lines"),
    ),
    Case(
        "code",
        "java",
        260,
        """\
package org.example.shop;

import java.util.List;
import java.util.Map;

/**
 * Sells things.
 */
public class Shop {
    private final Map<String, Integer> stock;

    public Shop(Map<String, Integer> stock) {
        this.stock = stock;
    }

    public boolean sell(String name, int count) {
        int left = stock.getOrDefault(name, 0);
        if (left < count) {
            return false;
        }
        stock.put(name, left - count);
        return true;
    }
}
""",
        """\
package org.example.shop;
[… 5 lines]
 * Sells things.
 */
public class Shop {
[… 2 lines]
    public Shop(Map<String, Integer> stock) {
[… 3 lines]
    public boolean sell(String name, int count) {
[… 8 lines]\
""",
        (18, 24, "lines"),
    ),
    Case(
        "code",
        "c",
        260,
        """\
#include <stdio.h>
#include <stdlib.h>

#define LIMIT 64

struct node {
    struct node *next;
    int value;
};

static struct node *push(struct node *head, int value)
{
    struct node *fresh = malloc(sizeof *fresh);
    fresh->next = head;
    fresh->value = value;
    return fresh;
}

int main(int argc, char **argv)
{
    struct node *head = NULL;
    for (int i = 1; i < argc; i++)
        head = push(head, atoi(argv[i]));
    printf("%d\\n", head ? head->value : 0);
    return 0;
}
""",
        """\
#include <stdio.h>
#include <stdlib.h>

#define LIMIT 64

struct node {
    struct node *next;
    int value;
};

static struct node *push(struct node *head, int value)
[… 7 lines]
int main(int argc, char **argv)
[… 7 lines]\
""",
        (14, 26, "lines"),
    ),
    Case(
        "code",
        "javascript: what branches is no method",
        330,
        """\
import { sleep } from "./time.js";

class Queue {
  constructor(limit) {
    this.limit = limit;
    this.waiting = [];
  }

  push(item) {
    if(this.waiting.length >= this.limit) {
      return false;
    }
    this.waiting.push(item);
    return true;
  }

  async drain(work) {
    while(this.waiting.length > 0) {
      await work(this.waiting.shift());
    }
    for(const one of this.later) {
      await sleep(one.delay);
    }
  }
}

function createQueue(limit = 10) {
  return new Queue(limit);
}
""",
        """\
import { sleep } from "./time.js";

class Queue {
  constructor(limit) {
[… 4 lines]
  push(item) {
[… 7 lines]
  async drain(work) {
[… 9 lines]
function createQueue(limit = 10) {
[… 2 lines]\
""",
        (22, 29, "lines"),
    ),
    Case(
        "code",
        "tests by their names",
        230,
        """\
import { parse } from "./parse";

describe("parse", () => {
  it("reads a number", () => {
    expect(parse("1")).toBe(1);
    expect(parse("-1")).toBe(-1);
  });

  it.each(["", " "])("refuses %j", (text) => {
    expect(() => parse(text)).toThrow();
  });

  test.skip("reads a date", () => {
    expect(parse("2024-01-01")).toBe(0);
  });
});
""",
        """\
import { parse } from "./parse";

describe("parse", () => {
  it("reads a number", () => {
[… 4 lines]
  it.each(["", " "])("refuses %j", (text) => {
[… 3 lines]
  test.skip("reads a date", () => {
[… 3 lines]\
""",
        (10, 16, "lines"),
    ),
    Case(
        "code",
        "shell: a test that runs is none that is defined",
        150,
        """\
#!/bin/sh
set -eu

function build() {
  test -d dist || mkdir dist
  test -f dist/app || cc -o dist/app main.c
  it is here that a line begins with a word of tests
}

function clean() {
  test -d dist && rm -r dist
  context=$(pwd)
  echo "cleaned $context"
}

build
""",
        """\
#!/bin/sh
set -eu

function build() {
[… 5 lines]
function clean() {
[… 6 lines]\
""",
        (11, 16, "lines"),
    ),
    Case(
        "code",
        "settings: keys, the outermost first",
        220,
        """\
# How the service runs.
name: shop
version: 3
services:
  web:
    image: shop/web
    ports:
      - "80:8080"
    limits:
      memory: 512M
      cores: 2
  worker:
    image: shop/worker
    command: run --queue orders
    limits:
      memory: 256M
      cores: 1
volumes:
  data:
    driver: local
""",
        """\
# How the service runs.
name: shop
version: 3
services:
  web:
[… 6 lines]
  worker:
[… 5 lines]
volumes:
  data:
    driver: local\
""",
        (11, 20, "lines"),
    ),
    Case(
        "code",
        "nothing that is defined: both ends",
        300,
        """\
first line of a text that has no outline
line 2 of a text that has no outline
line 3 of a text that has no outline
line 4 of a text that has no outline
line 5 of a text that has no outline
line 6 of a text that has no outline
line 7 of a text that has no outline
line 8 of a text that has no outline
line 9 of a text that has no outline
line 10 of a text that has no outline
line 11 of a text that has no outline
line 12 of a text that has no outline
line 13 of a text that has no outline
line 14 of a text that has no outline
line 15 of a text that has no outline
line 16 of a text that has no outline
line 17 of a text that has no outline
line 18 of a text that has no outline
line 19 of a text that has no outline
line 20 of a text that has no outline
""",
        """\
first line of a text that has no outline
line 2 of a text that has no outline
line 3 of a text that has no outline
line 4 of a text that has no outline
[… 13 lines]
line 18 of a text that has no outline
line 19 of a text that has no outline
line 20 of a text that has no outline\
""",
        (13, 20, "lines"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_exactly_this_stays(case: Case) -> None:
    holds(case)


CASES_SHAPES_SETTINGS = [
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
