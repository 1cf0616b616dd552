#!/usr/bin/env python3
"""Opens what a power cut left, as an application would, and counts what was promised.

plimsoll disk explore trace/ --check 'examples/leveldb/check.py {dir}'
"""
import os
import sys

import plyvel

promised = int(os.environ.get("PLIMSOLL_LAST_MARK") or 0)
try:
    bank = plyvel.DB(os.path.join(sys.argv[1], "bank"), create_if_missing=True)
    rows = list(bank.iterator(verify_checksums=True))
except plyvel.Error as error:
    print(f"it does not open: {error}")
    sys.exit(3)
if rows != [(b"%08d" % number, b"x" * 2000) for number in range(1, len(rows) + 1)]:
    print(f"wrong: {len(rows)} rows are not those from 1 to {len(rows)}")
    sys.exit(1)
if len(rows) < promised:
    print(f"{promised} rows were promised, {len(rows)} are there")
    sys.exit(1)
