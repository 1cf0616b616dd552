"""A broker on the disk of which the power is cut, whose memory no power cut leaves."""
import json
import os
import re
import socket
import struct
import subprocess
import sys
import urllib.request

# A /dev/shm of its own, which goes with its last process: that is what a power cut does to memory.
OWN_MEMORY = 'mount -t tmpfs none /dev/shm && exec "$@"'
SERVES = re.compile(r"clients on (\S+),")
PAGE = re.compile(r"status page.*: (http://\S+/)")
VERDICT = re.compile(r"of the last run: (.*)")
OFFSETS_FOR_LEADER_EPOCH, VERSION = 23, 2


class Served:
    def __init__(self, directory, *settings):
        plimsoll = os.environ.get("PLIMSOLL", "plimsoll")
        serve = [plimsoll, "serve", "--dir", os.path.join(directory, "broker")]
        serve += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *settings]
        apart = ["unshare", "--mount", "sh", "-c", OWN_MEMORY, "sh", *serve]
        self.process = subprocess.Popen(apart, stderr=subprocess.PIPE, text=True)
        self.news = ""
        while not PAGE.search(self.news):
            line = self.process.stderr.readline()
            if not line:
                print(self.news, end="")
                sys.exit(3)  # it refuses to open
            self.news += line
        self.address = SERVES.search(self.news)[1]
        self.verdict = VERDICT.search(self.news)[1]

    def ask(self, path):
        """What it says over HTTP."""
        with urllib.request.urlopen(PAGE.search(self.news)[1] + path, timeout=30) as answer:
            return json.load(answer)

    def topics(self):
        return {topic["name"] for topic in self.ask("topics")}

    def partition(self, topic):
        """The only one that a topic has here."""
        (partition,) = self.ask(f"topics/{topic}")["partition"]
        return partition

    def end_of_epoch(self, topic, epoch):
        """Where the leader epoch ended; asked by hand, as no client shows the answer."""
        name = struct.pack(">h", len(topic)) + topic.encode()
        one, partition, current = 1, 0, -1
        body = struct.pack(">i", one) + name + struct.pack(">iiii", one, partition, current, epoch)
        head = struct.pack(">hhih", OFFSETS_FOR_LEADER_EPOCH, VERSION, 1, -1)
        host, port = self.address.split(":")
        with socket.create_connection((host, int(port)), 30) as connection:
            connection.sendall(struct.pack(">i", len(head + body)) + head + body)
            answer = connection.makefile("rb")
            (length,) = struct.unpack(">i", answer.read(4))
            error, _, _, end = struct.unpack(">hiiq", answer.read(length)[-18:])
        assert error == 0, f"OffsetsForLeaderEpoch: error {error}"
        return end

    def stop(self):
        """In order: what was acknowledged is durable then."""
        self.process.terminate()
        self.process.communicate()
        return self.process.returncode
