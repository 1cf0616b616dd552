#!/usr/bin/env python3
"""Puts rows into RocksDB one by one, and says each number to the recorder once put has returned.

    sync    WriteOptions::sync: "the WAL file is fsync'ed before returning to the user"
    nosync  the default: "if this flag is false, and the machine crashes, some recent writes may be
            lost"

Promised by https://github.com/facebook/rocksdb/wiki/WAL-Performance and include/rocksdb/options.h

pip install rocksdict
plimsoll disk record -o trace/ -- examples/rocksdb/workload.py {dir} sync
"""
import os
import socket
import sys

from rocksdict import Options, Rdict, WriteOptions

directory, mode = sys.argv[1:3]
rows = int(sys.argv[3]) if len(sys.argv) > 3 else 120

recorder = socket.socket(socket.AF_UNIX)
recorder.connect(os.environ["PLIMSOLL_MARK_SOCKET"])
answers = recorder.makefile()


def mark(number):
    """What is marked is promised: somebody may be told now."""
    recorder.sendall(f"{number}\n".encode())
    assert answers.readline() == "ok\n"


options = Options(raw_mode=True)
options.create_if_missing(True)
options.set_write_buffer_size(64 << 10)  # small, so that logs are replaced by tables while we watch
how = WriteOptions()
how.sync = mode == "sync"
bank = Rdict(os.path.join(directory, "bank"), options)
for number in range(1, rows + 1):
    bank.put(b"%08d" % number, b"x" * 2000, write_opt=how)
    mark(number)
os._exit(0)  # closing it would write what a power cut must find unwritten
