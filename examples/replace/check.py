#!/usr/bin/env python3
"""Reads the settings: one version of them, whole, and none older than what was promised.

plimsoll disk explore trace/ --check 'examples/replace/check.py {dir}'
"""
import os
import sys

promised = int(os.environ.get("PLIMSOLL_LAST_MARK") or 0)
try:
    with open(os.path.join(sys.argv[1], "settings"), "rb") as file:
        content = file.read()
except FileNotFoundError:
    content = b"setting of version 0\n" * 400
if not content:
    print("wrong: the file is empty")
    sys.exit(1)
if not content.strip(b"\0"):
    print(f"wrong: the file is {len(content)} bytes, and all of them are zeros")
    sys.exit(1)
lines = content.split(b"\n")[:-1] or [content]
if len(lines) != 400 or len(set(lines)) != 1 or not lines[0].startswith(b"setting of version "):
    print(f"wrong: {len(lines)} of 400 lines, {len(set(lines))} kinds of them: {lines[0][:40]!r}")
    sys.exit(1)
there = int(lines[0].split()[-1])
if there < promised:
    print(f"version {promised} was promised, version {there} is there")
    sys.exit(1)
