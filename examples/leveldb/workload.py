#!/usr/bin/env python3
"""Puts rows into LevelDB one by one, and says each number to the recorder once put has returned.

    sync    put(sync=True): "not return until the data being written has been pushed all the way to
            persistent storage"
    nosync  the default: "a crash of the machine may cause the last few updates to be lost"

Promised by "Synchronous Writes" in https://github.com/google/leveldb/blob/main/doc/index.md

pip install plyvel
plimsoll disk record -o trace/ -- examples/leveldb/workload.py {dir} sync
"""
import os
import socket
import sys

import plyvel

directory, mode = sys.argv[1:3]
rows = int(sys.argv[3]) if len(sys.argv) > 3 else 120

recorder = socket.socket(socket.AF_UNIX)
recorder.connect(os.environ["PLIMSOLL_MARK_SOCKET"])
answers = recorder.makefile()


def mark(number):
    """What is marked is promised: somebody may be told now."""
    recorder.sendall(f"{number}\n".encode())
    assert answers.readline() == "ok\n"


# A small buffer, so that logs are replaced by tables while we watch.
path = os.path.join(directory, "bank")
bank = plyvel.DB(path, create_if_missing=True, write_buffer_size=64 << 10)
for number in range(1, rows + 1):
    bank.put(b"%08d" % number, b"x" * 2000, sync=mode == "sync")
    mark(number)
