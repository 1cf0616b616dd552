#!/usr/bin/env python3
"""Keeps a broker on a disk of which the power is cut: clients/keeper.py SOCKET NEWS COMMAND...

It is what `plimsoll disk cycle` runs, in namespaces where nobody else reaches the broker; it does what a line on
SOCKET asks, and answers with a line of JSON. A power cut takes it along."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

PATIENCE_S = 60
UNBUFFERED = 0


def main(path, news, command):
    mark("it is kept")
    keeper = Keeper(news, command)
    if os.path.exists(path):
        os.remove(path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(8)
        while True:
            with listener.accept()[0] as connection, connection.makefile("rw") as lines:
                for line in lines:
                    verb, *words = line.split()
                    try:
                        said = {"is": getattr(keeper, verb)(*words)}
                    except Exception as why:  # Whoever asked is told.
                        said = {"failed": repr(why)}
                    lines.write(json.dumps(said) + "\n")
                    lines.flush()


def mark(text):
    """`plimsoll disk cycle` wants to hear from whoever it runs."""
    with socket.socket(socket.AF_UNIX) as recorder:
        recorder.connect(os.environ["PLIMSOLL_MARK_SOCKET"])
        recorder.sendall(text.encode() + b"\n")
        assert recorder.recv(3) == b"ok\n"


def catches(process, number):
    """Whether a process catches a signal, by proc_pid_status(5)."""
    try:
        with open(f"/proc/{process}/status") as lines:
            caught = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
    except OSError:
        return False
    return int(caught, 16) >> (number - 1) & 1 == 1


class Keeper:
    def __init__(self, news, command):
        self.data = os.path.join(os.environ["PLIMSOLL_DIR"], "data")
        self.command = [word.replace("{data}", self.data) for word in command]
        self.news = open(news, "ab", buffering=UNBUFFERED)
        self.broker = None

    def start(self):
        assert self.broker is None, "it is there"
        self.broker = subprocess.Popen(self.command, stdout=self.news, stderr=self.news)
        # A signal that it does not catch yet ends it as a crash would.
        while self.broker.poll() is None and not catches(self.broker.pid, signal.SIGTERM):
            time.sleep(0.005)

    def code(self):
        """How it ended, if it did."""
        return None if self.broker is None else self.broker.poll()

    def kill(self):
        self.broker.kill()
        self.broker.wait()
        self.broker = None

    def end(self):
        """In order. What it says then."""
        self.broker.send_signal(signal.SIGTERM)
        try:
            code = self.broker.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            return f"it has not ended {PATIENCE_S} s after SIGTERM"
        self.broker = None
        return code

    def stop(self):
        self.broker.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.broker.send_signal(signal.SIGCONT)

    def ask(self, url):
        """What it says over HTTP, also of what is not well."""
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return json.load(answer)
        except OSError:
            return None

    def rot(self, shard):
        """A bit flips in the middle of the first chapter of a shard. Where."""
        folder = os.path.join(self.data, f"chapters-{shard}")
        path = min(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".chapter"))
        with open(path, "r+b") as file:
            place = os.path.getsize(path) // 2
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1]))
            file.flush()
            os.fsync(file.fileno())
        return f"{os.path.basename(path)}, byte {place}"

    def plimsoll(self, *words):
        """What the program says of the data; and its exit status."""
        command = [word.replace("{data}", self.data) for word in (self.command[0], *words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        return [done.returncode, (done.stdout + done.stderr).replace(self.data, "data")]

    def entries(self, shard):
        """Of each entry of a shard's log its index and a hash."""
        command = [self.command[0], "log", "cat", os.path.join(self.data, f"shard-{shard}"), "--json"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
        return {json.loads(line)["index"]: hashlib.sha256(line.encode()).hexdigest()[:16]
                for line in said.splitlines()}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
