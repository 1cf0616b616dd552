"""Three brokers and more, each with a network and a disk of its own, whose power can be cut."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from broker import PARTITIONS
from links import Links, call_by_names, ip_of, name_of

HERE = os.path.dirname(os.path.abspath(__file__))
NODES = [1, 2, 3]
KAFKA, HTTP, PEERS = 9092, 9093, 9094
# The shards of records: those that are acknowledged from memory, and the one that waits for disks.
SHARED, DURABLE = (2, 4, 6), 3
PATIENCE_S = 90
# Each node's disk is in memory, and takes of that what is written.
DISK = "2GiB"


class Cluster:
    """Of the nodes 1 to 3. `spare`: numbers of those that may come; then all have names. `serve` and `settings`: more of each."""

    def __init__(self, program, seed, spare=(), serve=(), settings="", fs="ext4"):
        self.fs = fs
        self.dir = tempfile.mkdtemp(prefix="plimsoll-chaos-")
        self.links = Links([*NODES, *spare])
        self.program, self.seed, self.serve, self.settings = program, seed, list(serve), settings
        self.host_of = name_of if spare else ip_of
        if spare:
            call_by_names([*NODES, *spare], os.path.join(self.dir, "hosts"))
        members = ",".join(f"{node}={self.host_of(node)}:{PEERS}" for node in NODES)
        self.config = os.path.join(self.dir, "cluster.toml")
        more = f" && printf '%s' {shlex.quote(settings)} >> {self.config}"
        found = f"{program} cluster init --dir {{dir}}/data --members {members} > {self.config}{more}"
        named = ["--config", self.config, "--node"]
        self.nodes = {node: Node(self, node, [*named, node], found if node == 1 else None) for node in NODES}
        self.address = ",".join(node.address for node in self.nodes.values())

    def __enter__(self):
        try:
            for node in self.nodes.values():
                node.power_up()
            for node in self.nodes.values():
                node.start()
            self.until("all nodes vote", lambda: all(self.votes(node) for node in NODES))
        except BaseException:
            self.__exit__()
            raise
        return self

    def add(self, number, settings, faults=()):
        """One more, which is told by these who it is; what its disk does wrong."""
        config = os.path.join(self.dir, f"{name_of(number)}.toml")
        with open(config, "w") as file:
            file.write(settings + self.settings)
        self.nodes[number] = Node(self, number, ["--config", config], faults=faults)
        self.nodes[number].power_up()
        self.nodes[number].start()

    def __exit__(self, *_):
        for node in self.nodes.values():
            node.remove()
        shutil.rmtree(self.dir, ignore_errors=True)

    def votes(self, number, voters=NODES):
        """Whether it knows these as the voters of all shards, follows or leads in each, and is in doubt of none."""
        status = self.nodes[number].status()
        return status is not None and all(
            shard["voters"] == voters and not shard["is_in_doubt"] and shard.get("leader")
            for shard in status["shards"]
        )

    def until(self, what, is_so, seconds=PATIENCE_S):
        deadline = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {what}\n{self.standing()}")
            time.sleep(0.1)

    def is_guarded(self):
        """Whether whoever leads a shard that is acknowledged from memory has acknowledgements wait for disks."""
        shards = [shard for node in self.nodes.values() for shard in (node.status() or {"shards": []})["shards"]]
        return any(shard["is_guarded"] for shard in shards if shard["number"] in SHARED)

    def heal(self):
        """Everybody is there, and reaches everybody."""
        self.links.heal()
        for number, node in self.nodes.items():
            self.links.slow(number, False)
            node.stall(False)
            if node.is_stopped:
                node.go_on()
            if not node.is_up:
                node.start()

    def standing(self):
        """What each says of itself, and the end of what it said."""
        said = []
        for number, node in self.nodes.items():
            status = node.status()
            said.append(f"node {number}: up {node.is_up}, stopped {node.is_stopped}, code {node.code()}")
            for shard in (status or {}).get("shards", []):
                words = ["number", "leads", "leader", "voters", "is_in_doubt", "offline", "committed", "durable"]
                said.append("   " + ", ".join(f"{word} {shard.get(word)}" for word in words))
            said += [f"   group {group}" for group in node.groups()]
            said += ["   | " + line for line in node.said().splitlines()[-12:]]
        return "\n".join(said)


class Node:
    """A broker that is kept on a disk."""

    def __init__(self, cluster, number, named, setup=None, faults=()):
        self.number = number
        host = cluster.host_of(number)
        self.address = f"{host}:{KAFKA}"
        self.socket = os.path.join(cluster.dir, f"keeper-{number}")
        self.news = os.path.join(cluster.dir, f"news-{number}")
        self.memory = tempfile.mkdtemp(prefix=f"plimsoll-chaos-{number}-", dir="/dev/shm")
        self.is_up = self.is_stopped = False
        self.disk = None
        serve = [cluster.program, "serve", *named, *cluster.serve, "--dir", "{data}", "--memory", self.memory]
        serve += ["--listen", f"{ip_of(number)}:{KAFKA}", "--advertise", self.address]
        serve += ["--http", f"{ip_of(number)}:{HTTP}", "--allow-anyone", "--partitions", PARTITIONS]
        keep = [os.path.join(HERE, "keeper.py"), self.socket, self.news, *serve]
        # The memory of a node goes with its power.
        forget = f"rm -rf {self.memory} && mkdir {self.memory}"
        self.command = ["ip", "netns", "exec", f"n{number}", cluster.program, "disk", "cycle", "--fs", cluster.fs]
        self.command += ["--size", DISK, "--cut-on", "USR1", "--for", "1d", "--seed", str(cluster.seed * 10 + number)]
        self.command += ["--output", os.path.join(cluster.dir, f"disk-{number}"), "--check", forget]
        self.command += ["--run", "exec " + " ".join(map(str, keep))]
        self.command += ["--setup", setup] if setup else []
        self.command += [word for fault in faults for word in ("--fault", fault)]

    def power_up(self):
        log = open(self.news + ".disk", "ab")
        self.disk = subprocess.Popen(self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.get_power()

    def cut(self):
        """The power is gone, and comes back: the disk has what it likes of what was not synced; nothing is started."""
        self.lose_power()
        self.get_power()

    def lose_power(self):
        """It is gone; `get_power` waits until it is back."""
        os.remove(self.socket)
        os.kill(self.disk.pid, signal.SIGUSR1)
        self.is_up = self.is_stopped = False


    def start(self):
        self.ask("start")
        self.is_up = True

    def kill(self):
        self.ask("kill")
        self.is_up = self.is_stopped = False

    def end(self):
        """In order."""
        code = self.ask("end")
        assert code == 0, f"node {self.number} ended with {code}:\n{self.said()[-3000:]}"
        self.is_up = False

    def stop(self):
        self.ask("stop")
        self.is_stopped = True

    def go_on(self):
        self.ask("go_on")
        self.is_stopped = False

    def stall(self, is_stalled):
        """The disk answers nobody until it does again."""
        for process in processes_below(self.disk.pid):
            if "disk" in process.words and "cycle" in process.words:
                os.kill(process.number, signal.SIGSTOP if is_stalled else signal.SIGCONT)

    def code(self):
        return self.ask("code") if self.disk and self.disk.poll() is None else "no power"

    def status(self):
        if not self.is_up or self.is_stopped:
            return None
        return self.ask("ask", f"http://{ip_of(self.number)}:{HTTP}/status")

    def groups(self):
        """Those that it coordinates."""
        is_there = self.is_up and not self.is_stopped
        return (is_there and self.ask("ask", f"http://{ip_of(self.number)}:{HTTP}/groups")) or []

    def entries(self, shard):
        return {int(index): known for index, known in self.ask("entries", shard).items()}

    def ask(self, *words):
        with socket.socket(socket.AF_UNIX) as keeper:
            keeper.settimeout(PATIENCE_S)
            keeper.connect(self.socket)
            keeper.sendall((" ".join(map(str, words)) + "\n").encode())
            said = json.loads(keeper.makefile().readline())
        if "failed" in said:
            raise AssertionError(f"node {self.number}: {' '.join(map(str, words))}: {said['failed']}")
        return said["is"]

    def said(self):
        if not os.path.exists(self.news):
            return ""
        with open(self.news, errors="replace") as file:
            return file.read()

    def remove(self):
        if self.disk and self.disk.poll() is None:
            self.stall(False)
            self.disk.kill()
            self.disk.wait()
        shutil.rmtree(self.memory, ignore_errors=True)

    def get_power(self):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                self.ask("code")
                return
            except OSError:
                pass
            if self.disk.poll() is not None:
                break
            time.sleep(0.05)
        with open(self.news + ".disk", errors="replace") as file:
            raise AssertionError(f"the disk of node {self.number} is not there:\n{file.read()[-2000:]}")


class Process:
    def __init__(self, number):
        self.number = number
        with open(f"/proc/{number}/cmdline", "rb") as file:
            self.words = file.read().decode(errors="replace").split("\0")


def processes_below(number):
    """It, and those that it started."""
    try:
        with open(f"/proc/{number}/task/{number}/children") as file:
            children = [int(child) for child in file.read().split()]
        found = [Process(number)]
    except OSError:
        return []
    return found + [process for child in children for process in processes_below(child)]
