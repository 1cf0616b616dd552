"""A broker in a directory of its own, which can be stopped, killed and started again."""

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PARTITIONS = 6


class Broker:
    def __init__(self, program, *arguments, http="none"):
        self.program = program
        self.arguments = ["--http", http, *arguments]
        self.dir = tempfile.mkdtemp(prefix="plimsoll-clients-")
        # What is acknowledged is in memory that outlives the broker, where there is such a directory.
        has_tmpfs = os.path.isdir("/dev/shm")
        self.memory = tempfile.mkdtemp(prefix="plimsoll-clients-", dir="/dev/shm") if has_tmpfs else "none"
        self.address = f"127.0.0.1:{free_port()}"
        self.log = open(os.path.join(self.dir, "news"), "ab")
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()
        self.log.close()
        shutil.rmtree(self.dir)
        if self.memory != "none":
            shutil.rmtree(self.memory)

    def begin(self):
        """Does not wait for it."""
        command = [self.program, "serve", "--dir", os.path.join(self.dir, "data")]
        command += ["--memory", self.memory, "--listen", self.address]
        command += ["--partitions", str(PARTITIONS), *self.arguments]
        self.process = subprocess.Popen(command, stderr=self.log)

    def start(self):
        """Returns when connections are taken."""
        self.begin()
        host, port = self.address.split(":")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection((host, int(port)), 1).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.02)
        raise AssertionError("the broker did not start:\n" + self.news())

    def stop(self):
        """SIGTERM: all is durable when it is gone."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(20)
        assert code == 0, f"the broker ended with {code}:\n{self.news()}"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def news(self):
        with open(self.log.name, errors="replace") as file:
            return file.read()


given = set()


def free_port():
    """One below those of outgoing connections, which could take it while a broker starts again; another each time."""
    for port in random.sample(range(20_000, 32_000), 200):
        if port in given:
            continue
        with socket.socket() as free:
            try:
                free.bind(("127.0.0.1", port))
            except OSError:
                continue
            given.add(port)
            return port
    raise RuntimeError("no port is free between 20000 and 32000")
