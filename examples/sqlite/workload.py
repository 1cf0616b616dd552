#!/usr/bin/env python3
"""Commits rows one by one, and says each number to the recorder once COMMIT has returned.

    DELETE EXTRA, WAL FULL   promised is all that was committed
    DELETE FULL, WAL NORMAL  promised is a sound database; the last commits may be lost
    DELETE OFF               nothing: "the database might become corrupted"

Promised by https://www.sqlite.org/pragma.html#pragma_synchronous

plimsoll disk record -o trace/ -- examples/sqlite/workload.py {dir} DELETE FULL
"""
import os
import socket
import sqlite3
import sys

directory, journal, synchronous = sys.argv[1:4]
rows = int(sys.argv[4]) if len(sys.argv) > 4 else 60

recorder = socket.socket(socket.AF_UNIX)
recorder.connect(os.environ["PLIMSOLL_MARK_SOCKET"])
answers = recorder.makefile()


def mark(number):
    """What is marked is promised: somebody may be told now."""
    recorder.sendall(f"{number}\n".encode())
    assert answers.readline() == "ok\n"


database = sqlite3.connect(os.path.join(directory, "bank.db"), isolation_level=None)
database.execute(f"PRAGMA journal_mode={journal}")
database.execute(f"PRAGMA synchronous={synchronous}")
database.execute("PRAGMA wal_autocheckpoint=20")  # often, so that there are some to be cut off
database.execute("CREATE TABLE payments (number INTEGER PRIMARY KEY, what TEXT)")
for number in range(1, rows + 1):
    database.execute("BEGIN")
    database.execute("INSERT INTO payments VALUES (?, ?)", (number, "x" * 200))
    database.execute("COMMIT")
    mark(number)
