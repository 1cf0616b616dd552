#!/usr/bin/env python3
"""Opens what a power cut left, as an application would, and counts what was promised.

plimsoll disk explore trace/ --check 'examples/lmdb/check.py {dir}'
"""
import os
import sys

import lmdb

promised = int(os.environ.get("PLIMSOLL_LAST_MARK") or 0)
try:
    bank = lmdb.open(os.path.join(sys.argv[1], "bank"), map_size=64 << 20)
    with bank.begin() as transaction:
        rows = [(key, value) for key, value in transaction.cursor()]
        counted = transaction.stat()["entries"]
except lmdb.Error as error:
    print(f"it does not open: {error}")
    sys.exit(3)
if rows != [(b"%08d" % number, b"x" * 200) for number in range(1, counted + 1)]:
    print(f"wrong: {len(rows)} rows are not those from 1 to {counted}")
    sys.exit(1)
if counted < promised:
    print(f"{promised} rows were promised, {counted} are there")
    sys.exit(1)
