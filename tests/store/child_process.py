"""Child process that uses a store: `python -m tests.store.child_process COMMAND PATH …`."""

from __future__ import annotations

import sqlite3
import sys

from respool import Facts
from respool.store import StoreUnavailable, open_store, parse_location
from tests.store.support import OWNER, by_ref, record, text_of


def write(path: str, start: str, count: str) -> None:
    """Keep originals one after another, and say each time that it was done."""
    store = open_store(parse_location(path), wait=20)
    print("ready", flush=True)
    for number in range(int(start), int(start) + int(count)):
        try:
            store.keep(OWNER, f"c{number % 3}", by_ref(text_of(number)))
        except StoreUnavailable as error:
            print(error, file=sys.stderr)
            continue
        store.record(record(f"r{number}"))
        print(number, flush=True)
    store.close()


def note(path: str, tokens: str) -> None:
    """Note the same windows as others do at the same time, and say which ones hold."""
    store = open_store(parse_location(path), wait=20)
    for number in range(20):
        store.add_facts("c1", Facts(windows=((f"{number:04x}", int(tokens)),)))
    print(*(held for _, held in store.facts("c1").windows), flush=True)
    store.close()


def lock(path: str, how: str) -> None:
    """Hold the file locked until a line is read."""
    connection = sqlite3.connect(path, isolation_level=None)
    if how == "wholly":
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("CREATE TABLE IF NOT EXISTS held (one)")
    print("locked", flush=True)
    sys.stdin.readline()
    connection.execute("ROLLBACK")
    connection.close()
    print("unlocked", flush=True)


if __name__ == "__main__":
    {"write": write, "note": note, "lock": lock}[sys.argv[1]](*sys.argv[2:])
