#!/usr/bin/env python3
"""Opens what a power cut left, as an application would, and counts what was promised.

plimsoll disk explore trace/ --check 'examples/sqlite/check.py {dir}'
"""
import os
import sqlite3
import sys

promised = int(os.environ.get("PLIMSOLL_LAST_MARK") or 0)
try:
    database = sqlite3.connect(os.path.join(sys.argv[1], "bank.db"))
    sound = database.execute("PRAGMA integrity_check").fetchone()[0]
    table = database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'payments'").fetchone()[0]
    there = database.execute("SELECT count(*) FROM payments").fetchone()[0] if table else 0
except sqlite3.DatabaseError as error:
    print(f"it does not open: {error}")
    sys.exit(3)
if sound != "ok":
    print(f"integrity_check: {sound}")
    sys.exit(1)
if there < promised:
    print(f"{promised} payments were promised, {there} are there")
    sys.exit(1)
