#!/usr/bin/env python3
"""Starts a server on what a power cut left, and counts what was promised.

plimsoll disk explore trace/ --check 'examples/redis/check.py {dir}'
"""
import os
import socket
import subprocess
import sys
import time

directory = sys.argv[1]
promised = int(os.environ.get("PLIMSOLL_LAST_MARK") or 0)
path = os.path.join(directory, "redis.sock")
if os.path.lexists(path):
    os.remove(path)
options = ["--port", "0", "--unixsocket", path, "--dir", directory]
options += ["--appendonly", "yes", "--save", ""]
server = subprocess.Popen(["redis-server", *options], stdout=subprocess.PIPE, text=True)


def ask(*words):
    """The reply to a command as a list, or None where there is no server (yet)."""
    try:
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)
        client.sendall((" ".join(words) + "\r\n").encode())
        replies = client.makefile()
        head = replies.readline().strip()
        if head.startswith("*"):  # so many strings, each after its length
            lines = [replies.readline().strip() for _ in range(2 * int(head[1:]))]
            return lines[1::2]
        return [head]
    except OSError:
        return None


while ask("PING") != ["+PONG"]:
    if server.poll() is not None:
        last = server.stdout.read().strip().splitlines()[-1:]
        print(f"it does not start: {' '.join(last)}")
        sys.exit(3)
    time.sleep(0.01)
rows = ask("LRANGE", "payments", "0", "-1")
server.kill()
if rows != [str(number) for number in range(1, len(rows) + 1)]:
    print(f"wrong: {len(rows)} payments are not those from 1 to {len(rows)}")
    sys.exit(1)
if len(rows) < promised:
    print(f"{promised} payments were promised, {len(rows)} are there")
    sys.exit(1)
