"""The brokers that are measured: each in a fresh directory, stopped by a signal while another is measured."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
TICKS = os.sysconf("SC_CLK_TCK")
sys.path.insert(0, os.path.join(ROOT, "clients"))


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Server:
    def __init__(self, parent):
        self.dir = tempfile.mkdtemp(prefix=f"{self.name}-", dir=parent)
        self.address = f"127.0.0.1:{free_port()}"
        self.process = None
        self.wrap = []

    def start(self):
        """Returns once an answer came, with the seconds that took."""
        self.prepare()
        begun = time.monotonic()
        with open(os.path.join(self.dir, "news"), "ab") as news:
            self.process = subprocess.Popen([*self.wrap, *self.command()], stdout=news, stderr=news)
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > begun + 120:
                raise RuntimeError(f"{self.name} did not start: see {self.dir}/news")
            time.sleep(0.005)
        return time.monotonic() - begun

    def prepare(self):
        pass

    def is_ready(self):
        """Whether it answers an ApiVersions request."""
        host, port = self.address.split(":")
        try:
            with socket.create_connection((host, int(port)), 1) as asked:
                asked.settimeout(5)
                asked.sendall(bytes.fromhex("0000000c" "0012" "0000" "00000001" "0002" "6d65"))
                return len(asked.recv(4)) == 4
        except OSError:
            return False

    def signal(self, number):
        self.process.send_signal(number)

    def pause(self):
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def stop(self):
        self.resume()
        self.signal(signal.SIGTERM)
        self.process.wait(120)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def remove(self):
        if self.process and self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_mib(self):
        """What is resident, rings and all."""
        with open(f"/proc/{self.process.pid}/status") as status:
            line = next(line for line in status if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


class Plimsoll(Server):
    name = "plimsoll"
    promise = "in the log's ring on tmpfs: outlives the process; synced once a second or 64 MiB"

    http = "none"
    settings = ()

    def __init__(self, parent):
        super().__init__(parent)
        self.memory = tempfile.mkdtemp(prefix="plimsoll-bench-", dir="/dev/shm")

    def command(self):
        program = os.path.join(TARGET, "release", "plimsoll")
        data = os.path.join(self.dir, "data")
        where = ["--dir", data, "--memory", self.memory, "--listen", self.address, "--http", self.http]
        return [program, "serve", *where, *self.settings]

    def remove(self):
        super().remove()
        shutil.rmtree(self.memory, ignore_errors=True)

    @staticmethod
    def version():
        said = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True)
        return said.stdout.strip()


class Kafka(Server):
    name = "kafka"
    heap = "1G"
    settings = ""
    promise = "in the page cache: outlives the process; synced when the kernel does"

    def prepare(self):
        settings = os.path.join(self.dir, "settings")
        if os.path.exists(settings):
            return
        controller = f"127.0.0.1:{free_port()}"
        with open(settings, "w") as file:
            file.write(
                "process.roles=broker,controller\nnode.id=1\n"
                f"listeners=PLAINTEXT://{self.address},CONTROLLER://{controller}\n"
                f"advertised.listeners=PLAINTEXT://{self.address}\n"
                "controller.listener.names=CONTROLLER\n"
                f"controller.quorum.voters=1@{controller}\n"
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
                f"log.dirs={self.dir}/data\noffsets.topic.replication.factor=1\n"
                "auto.create.topics.enable=false\n"
                f"{self.settings}"
            )
        java = self.java("kafka.tools.StorageTool")
        subprocess.run([*java, "format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c", settings], check=True, capture_output=True)

    @staticmethod
    def java(main, *options):
        from client import TARGET as built

        with open(os.path.join(built, "java", "classpath")) as file:
            return ["java", *options, "-cp", file.read().strip(), main]

    def command(self):
        # Those of its own start script.
        options = [f"-Xmx{self.heap}", f"-Xms{self.heap}", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        options += ["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]
        return [*self.java("kafka.Kafka", *options), os.path.join(self.dir, "settings")]

    @staticmethod
    def version():
        return "4.3.1"


class Echo(Server):
    """Reads frames and answers as many bytes as a broker would: the floor under a request."""

    name = "echo"
    promise = "none"

    def command(self):
        return [bare(), "echo", self.address]

    def is_ready(self):
        try:
            host, port = self.address.split(":")
            socket.create_connection((host, int(port)), 1).close()
            return True
        except OSError:
            return False


class Redis(Server):
    """Streams, written to its append-only file before they are acknowledged."""

    sync = "everysec"

    @property
    def name(self):
        return f"redis-{self.sync}"

    def command(self):
        host, port = self.address.split(":")
        log = ["--appendonly", "yes", "--appendfsync", self.sync, "--save", ""]
        return ["redis-server", "--bind", host, "--port", port, "--dir", self.dir, *log]

    def is_ready(self):
        port = self.address.split(":")[1]
        said = subprocess.run(["redis-cli", "-p", port, "ping"], capture_output=True, text=True)
        return said.stdout.strip() == "PONG"


class RedisAlways(Redis):
    sync = "always"


class Nats(Server):
    """JetStream, a stream in files with one replica."""

    sync = "2m"

    @property
    def name(self):
        return f"nats-{self.sync}"

    def prepare(self):
        with open(os.path.join(self.dir, "settings"), "w") as file:
            store = os.path.join(self.dir, "data")
            file.write(f'listen: "{self.address}"\njetstream {{ store_dir: "{store}", sync_interval: {self.sync} }}\n')

    def command(self):
        return ["nats-server", "-c", os.path.join(self.dir, "settings")]

    def is_ready(self):
        host, port = self.address.split(":")
        try:
            with socket.create_connection((host, int(port)), 1) as asked:
                return asked.recv(4) == b"INFO"
        except OSError:
            return False


class NatsAlways(Nats):
    sync = "always"


def others():
    """Those whose programs are here, and what is missing of the rest."""
    there = []
    for kinds, programs in [
        ([Redis, RedisAlways], ["redis-server", "redis-cli", "redis-benchmark"]),
        ([Nats, NatsAlways], ["nats-server", "nats"]),
    ]:
        missing = [program for program in programs if not shutil.which(program)]
        if missing:
            print(f"SKIPPED: {' and '.join(kind.__name__ for kind in kinds)}: there is no {missing[0]}")
        else:
            there += kinds
    return there


def bare():
    """The bare client, one request in flight a connection."""
    return os.path.join(TARGET, "release", "examples", "broker_load")
