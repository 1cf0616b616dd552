#!/usr/bin/env python3
"""Saves a file of settings over and over, as many programs do: writes a new one, and renames it.

    none   write, rename: the classic broken program
    file   write, fsync the file, rename: whole, but the rename itself may be lost
    full   write, fsync the file, rename, fsync the directory

Promised: fsync(2) makes the bytes of a file durable, but not its entry in the directory, which
wants an fsync of its own; rename(2) promises that others see the old file or the new one, no more.
https://man7.org/linux/man-pages/man2/fsync.2.html

plimsoll disk record -o trace/ -- examples/replace/workload.py {dir} none
"""
import os
import socket
import sys

directory, mode = sys.argv[1:3]
versions = int(sys.argv[3]) if len(sys.argv) > 3 else 40

recorder = socket.socket(socket.AF_UNIX)
recorder.connect(os.environ["PLIMSOLL_MARK_SOCKET"])
answers = recorder.makefile()


def mark(number):
    """What is marked is promised: somebody may be told now."""
    recorder.sendall(f"{number}\n".encode())
    assert answers.readline() == "ok\n"


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


path = os.path.join(directory, "settings")
neighbour = os.path.join(directory, "neighbour")
for version in range(1, versions + 1):
    with open(path + ".new", "w") as file:
        file.write(f"setting of version {version}\n" * 400)
    if mode != "none":
        sync(path + ".new")
    os.rename(path + ".new", path)
    if mode == "full":
        sync(directory)
    mark(version)
    if version % 5 == 0:  # another program on that filesystem, which syncs a file of its own
        with open(neighbour, "a") as file:
            file.write("a line\n")
        sync(neighbour)
