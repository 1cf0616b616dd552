#!/usr/bin/env python3
"""Commits to PostgreSQL one by one, and says each number to the recorder.

    on   synchronous_commit = on: said once COMMIT has returned
    off  synchronous_commit = off: said once that is three times wal_writer_delay ago

Promised: all; all but what is younger than that ("the actual maximum duration of the risk window is
three times wal_writer_delay"), and it is "of data loss, not data corruption".
https://www.postgresql.org/docs/15/wal-async-commit.html

Debian: apt-get install postgresql
plimsoll disk record --setup 'examples/postgres/setup.py {dir}' -o trace/ -- \\
    examples/postgres/workload.py {dir} on
"""
import collections
import glob
import os
import socket
import subprocess
import sys
import time

directory, mode = sys.argv[1:3]
rows = int(sys.argv[3]) if len(sys.argv) > 3 else 60
WAL_WRITER_DELAY_SECONDS = 0.2  # as it is set by default
may_be_lost_seconds = 3 * WAL_WRITER_DELAY_SECONDS if mode == "off" else 0

recorder = socket.socket(socket.AF_UNIX)
recorder.connect(os.environ["PLIMSOLL_MARK_SOCKET"])
answers = recorder.makefile()


def mark(number):
    """What is marked is promised: somebody may be told now."""
    recorder.sendall(f"{number}\n".encode())
    assert answers.readline() == "ok\n"


os.environ["PATH"] += "".join(f":{path}" for path in glob.glob("/usr/lib/postgresql/*/bin"))
cluster = os.path.join(directory, "cluster")
options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={cluster}"]
options += ["-c", f"synchronous_commit={mode}", "-c", "log_min_messages=fatal"]
server = subprocess.Popen(["postgres", "-D", cluster, *options], user="postgres", cwd="/",
                          stdout=subprocess.DEVNULL)
while subprocess.run(["pg_isready", "--quiet", "--host", cluster]).returncode != 0:
    if server.poll() is not None:
        sys.exit("postgres has ended")
    time.sleep(0.05)
client = subprocess.Popen(["psql", "-qAtX", "-h", cluster, "-U", "postgres"], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def ask(statement):
    """Its one value, once the server has answered."""
    client.stdin.write(statement + "\n")
    client.stdin.flush()
    return client.stdout.readline().strip()


ask("CREATE TABLE payments (number int PRIMARY KEY, what text); SELECT 'made';")
committed = collections.deque()
for number in range(1, rows + 1):
    returned = ask(f"INSERT INTO payments VALUES ({number}, repeat('x', 200)) RETURNING number;")
    assert returned == str(number), returned
    if number == rows // 2:
        ask("CHECKPOINT; SELECT 'done';")
    committed.append((number, time.monotonic()))
    while committed and time.monotonic() - committed[0][1] >= may_be_lost_seconds:
        mark(committed.popleft()[0])
    if may_be_lost_seconds:
        time.sleep(0.02)
