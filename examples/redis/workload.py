#!/usr/bin/env python3
"""Pushes to a list of a Redis server with an append-only file; says each number to the recorder.

    always    appendfsync always: said once the answer is here
    everysec  appendfsync everysec: said once the answer is as old as what may be lost, SECONDS
    no        appendfsync no: said once the answer is here, as if that were a promise

Promised: all; all but the last second ("you may lose 1 second of data if there is a disaster"), and
what was written while the sync before was under way, for up to another; nothing ("Never fsync, just
put your data in the hands of the Operating System").
https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/

Debian: apt-get install redis-server
plimsoll disk record -o trace/ -- examples/redis/workload.py {dir} always
"""
import collections
import os
import socket
import subprocess
import sys
import time

directory, mode = sys.argv[1:3]
rows = int(sys.argv[3]) if len(sys.argv) > 3 else 60
may_be_lost_seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 0

recorder = socket.socket(socket.AF_UNIX)
recorder.connect(os.environ["PLIMSOLL_MARK_SOCKET"])
answers = recorder.makefile()


def mark(number):
    """What is marked is promised: somebody may be told now."""
    recorder.sendall(f"{number}\n".encode())
    assert answers.readline() == "ok\n"


def start(path):
    """A connection to a server of our own, as soon as it listens."""
    options = ["--port", "0", "--unixsocket", path, "--dir", directory, "--save", ""]
    options += ["--appendonly", "yes", "--appendfsync", mode]
    server = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
    while server.poll() is None:
        try:
            client = socket.socket(socket.AF_UNIX)
            client.connect(path)
            return client, client.makefile()
        except OSError:
            time.sleep(0.01)
    sys.exit("redis-server has ended")


client, replies = start(os.path.join(directory, "redis.sock"))
pushed = collections.deque()
for number in range(1, rows + 1):
    client.sendall(f"RPUSH payments {number}\r\n".encode())
    reply = replies.readline()
    assert reply == f":{number}\n", reply
    pushed.append((number, time.monotonic()))
    while pushed and time.monotonic() - pushed[0][1] >= may_be_lost_seconds:
        mark(pushed.popleft()[0])
    if may_be_lost_seconds:
        time.sleep(0.01)
