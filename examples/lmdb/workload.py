#!/usr/bin/env python3
"""Commits to LMDB one by one, and says each number to the recorder once commit has returned.

    sync        the default
    nometasync  MDB_NOMETASYNC

Promised: with the default all that was committed; with MDB_NOMETASYNC "a system crash may undo the
last committed transaction", and the integrity of the database stays.
mdb_env_open(): http://www.lmdb.tech/doc/group__mdb.html

pip install lmdb
plimsoll disk record -o trace/ -- examples/lmdb/workload.py {dir} sync
"""
import os
import socket
import sys

import lmdb

directory, mode = sys.argv[1:3]
rows = int(sys.argv[3]) if len(sys.argv) > 3 else 60

recorder = socket.socket(socket.AF_UNIX)
recorder.connect(os.environ["PLIMSOLL_MARK_SOCKET"])
answers = recorder.makefile()


def mark(number):
    """What is marked is promised: somebody may be told now."""
    recorder.sendall(f"{number}\n".encode())
    assert answers.readline() == "ok\n"


bank = lmdb.open(os.path.join(directory, "bank"), map_size=64 << 20, metasync=mode != "nometasync")
for number in range(1, rows + 1):
    with bank.begin(write=True) as transaction:
        transaction.put(b"%08d" % number, b"x" * 200)
    mark(number)
