#!/usr/bin/env python3
"""Opens what a power cut left, as an application would, and counts what was promised.

plimsoll disk explore trace/ --check 'examples/rocksdb/check.py {dir}'
"""
import os
import sys

from rocksdict import Options, Rdict

promised = int(os.environ.get("PLIMSOLL_LAST_MARK") or 0)
options = Options(raw_mode=True)
options.create_if_missing(True)
try:
    bank = Rdict(os.path.join(sys.argv[1], "bank"), options)
    rows = list(bank.items())
except Exception as error:  # it has no class of its own for them
    print(f"it does not open: {error}")
    sys.exit(3)
if rows != [(b"%08d" % number, b"x" * 2000) for number in range(1, len(rows) + 1)]:
    print(f"wrong: {len(rows)} rows are not those from 1 to {len(rows)}")
    sys.exit(1)
if len(rows) < promised:
    print(f"{promised} rows were promised, {len(rows)} are there")
    sys.exit(1)
