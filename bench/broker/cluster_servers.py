"""Three brokers that are one cluster, ours and Kafka's, and one of our own: each can be stopped by signals as a whole."""

import json
import os
import shutil
import subprocess
import time
import urllib.request

from broker import free_port
from cells import load
from servers import TARGET, Kafka, Nats, Plimsoll, Redis, Server

NODES = (1, 2, 3)
LOOPBACK = "127.0.0.1"
PROGRAM = os.path.join(TARGET, "release", "plimsoll")
ETCD = os.path.join(TARGET, "release", "bench-etcd")
PATIENCE_S = 180
# With fewer that are healthy a cluster of ours waits for disks, and for ten seconds after all is well again.
GUARDED_S = 12
# A topic that is there before anything is measured, and by which a cluster is seen to be whole.
PROBE = "probe"


def until(what, is_so):
    begun = time.monotonic()
    while not is_so():
        if time.monotonic() > begun + PATIENCE_S:
            raise RuntimeError(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.1)


class Of:
    """What three have in common. Whoever measures sees one server, with three addresses."""

    replicas = 3
    is_probed = False
    # The share of the time to warm that it is given.
    warmed = 0.1

    def __init__(self, parent, network=None, wraps=()):
        """On loopback, if they have no network of their own. `wraps`: what is put before the command of a node."""
        self.nodes = {number: self.kind(parent) for number in NODES}
        for number, node in self.nodes.items():
            node.number, node.company = number, self
            node.wrap = [*(network.wrap(number) if network else []), *dict(wraps).get(number, [])]
            node.host = network.host(number) if network else LOOPBACK
            node.address, node.http, node.peer = (f"{node.host}:{free_port()}" for _ in range(3))
        self.address = ",".join(node.address for node in self.nodes.values())
        self.dir = self.nodes[1].dir
        self.found()

    def start(self):
        for node in self.nodes.values():
            node.begin()
        for node in self.nodes.values():
            node.await_ready()
        self.until_whole()
        self.rest()

    def until_whole(self):
        """All nodes are there, and each has caught up."""
        until("a topic is on all nodes", self.has_probe)
        load("settled", self, PROBE, len(NODES), patience=PATIENCE_S)

    def has_probe(self):
        """Makes it, if it is not there. Before all nodes are known that is refused."""
        try:
            if not self.is_probed:
                load("create", self, PROBE, len(NODES), "replicas=3")
            self.is_probed = True
        except subprocess.CalledProcessError as why:
            self.is_probed = "TOPIC_ALREADY_EXISTS" in why.stderr
        return self.is_probed

    def rest(self):
        """Waits for what a cluster does once all are there."""

    def pause(self):
        for node in self.nodes.values():
            node.pause()

    def resume(self):
        for node in self.nodes.values():
            node.resume()
        self.until_whole()
        self.rest()

    def leader(self, topic):
        return load("leader", self, topic)["leader"]

    def kill(self, number):
        self.nodes[number].kill()

    def restart(self, number):
        self.nodes[number].start()
        self.until_whole()
        self.rest()

    def cpu_s(self):
        return sum(node.cpu_s() for node in self.nodes.values())

    def memory_mib(self):
        return sum(node.memory_mib() for node in self.nodes.values())

    def remove(self):
        for node in self.nodes.values():
            if node.process and node.process.poll() is None:
                node.resume()
            node.remove()

    def news(self):
        """The end of what each said."""
        said = []
        for number, node in self.nodes.items():
            path = os.path.join(node.dir, "news")
            if os.path.exists(path):
                with open(path, errors="replace") as file:
                    said.append(f"node {number}: {file.read()[-1500:]}")
        return "\n".join(said)


class Node:
    """Of three: none answers before a majority is there, so all are begun before one is waited for."""

    number, company, host = None, None, None

    def begin(self):
        self.prepare()
        with open(os.path.join(self.dir, "news"), "ab") as news:
            self.process = subprocess.Popen([*self.wrap, *self.command()], stdout=news, stderr=news)

    def await_ready(self):
        begun = time.monotonic()
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > begun + PATIENCE_S:
                raise RuntimeError(f"{self.name} did not start:\n{self.company.news()}")
            time.sleep(0.02)

    def start(self):
        self.begin()
        self.await_ready()


class OurNode(Node, Plimsoll):
    def command(self):
        where = ["--dir", os.path.join(self.dir, "data"), "--memory", self.memory, "--listen", self.address]
        named = ["--config", self.company.config, "--node", str(self.number)]
        named += [] if self.host == LOOPBACK else ["--allow-anyone"]
        return [PROGRAM, "serve", *named, *where, "--http", self.http]

    def status(self):
        try:
            with urllib.request.urlopen(f"http://{self.http}/status", timeout=5) as answer:
                return json.load(answer)["shards"]
        except OSError:
            return []


class Plimsolls(Of):
    name = "plimsoll"
    kind = OurNode
    promise = "in the memory of a majority: rings on tmpfs, which outlive the process; synced once a second or 64 MiB"

    def found(self):
        self.config = os.path.join(self.dir, "cluster.toml")
        members = ",".join(f"{number}={node.peer}" for number, node in self.nodes.items())
        command = [PROGRAM, "cluster", "init", "--dir", os.path.join(self.dir, "data"), "--members", members]
        said = subprocess.run(command, check=True, capture_output=True, text=True)
        with open(self.config, "w") as file:
            file.write(said.stdout)

    def until_whole(self):
        until("all vote, and those lead that are preferred", lambda: all(map(self.is_whole, self.nodes.values())))
        super().until_whole()

    @staticmethod
    def is_whole(node):
        """As the node knows it. Of the voters the one at half the shard's number, modulo how many they are, is preferred."""
        shards = node.status()
        return bool(shards) and all(
            tuple(shard["voters"]) == NODES
            and shard["leader"] == NODES[shard["number"] // 2 % len(NODES)]
            and not shard["is_in_doubt"]
            for shard in shards
        )

    def rest(self):
        time.sleep(GUARDED_S)

    def lose_memory(self, number):
        """Kills a node, and takes away what outlives its process. Its kernel still has what it was given."""
        node = self.nodes[number]
        node.kill()
        shutil.rmtree(node.memory)
        os.mkdir(node.memory)

    def votes(self, number):
        """Whether a node is in doubt in no shard, as it says, of all that the others have: one that it opens is none yet."""
        have = [{shard["number"] for shard in node.status()} for node in self.nodes.values()]
        shards = self.nodes[number].status()
        return {shard["number"] for shard in shards} >= set.union(*have) and not any(shard["is_in_doubt"] for shard in shards)

    def hand_over(self, topic):
        """To another node, by the command for it."""
        now = self.leader(topic)
        shards = [shard["number"] for shard in self.nodes[now].status() if shard["leads"] and shard["tail_bytes"] is not None]
        to = now % len(NODES) + 1
        for shard in shards:
            command = [PROGRAM, "cluster", "move", "--shard", str(shard), "--to", str(to), "--http", self.nodes[now].http]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        return self.leader(topic) == to

    def version(self):
        return Plimsoll.version()


class KafkaNode(Node, Kafka):
    def prepare(self):
        path = os.path.join(self.dir, "settings")
        if os.path.exists(path):
            return
        with open(path, "w") as file:
            file.write(
                f"process.roles=broker,controller\nnode.id={self.number}\n"
                f"listeners=PLAINTEXT://{self.address},CONTROLLER://{self.peer}\n"
                f"advertised.listeners=PLAINTEXT://{self.address}\n"
                "controller.listener.names=CONTROLLER\n"
                f"controller.quorum.voters={self.company.voters}\n"
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
                f"log.dirs={self.dir}/data\noffsets.topic.replication.factor=3\nauto.create.topics.enable=false\n"
                "min.insync.replicas=2\n"
                # What a deleted topic leaves would be removed while something else is measured.
                "file.delete.delay.ms=1000\nlog.segment.delete.delay.ms=1000\n"
            )
        format = [*self.java("kafka.tools.StorageTool"), "format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c", path]
        subprocess.run(format, check=True, capture_output=True)


class Kafkas(Of):
    name = "kafka"
    kind = KafkaNode
    warmed = 1
    promise = "in the page caches of all replicas in sync, of two at least; synced when the kernels do"

    def found(self):
        self.voters = ",".join(f"{number}@{node.peer}" for number, node in self.nodes.items())

    def hand_over(self, topic):
        """To another replica, which is made the preferred one and elected."""
        to = self.leader(topic) % len(NODES) + 1
        load("prefer", self, topic, to)
        return True


class Alone(Plimsoll):
    """One of our own, with one replica."""

    name = "alone"
    replicas = 1
    warmed = Of.warmed


def whole(server, topic, partitions):
    """Every partition of it has a leader and all its replicas."""
    if isinstance(server, Of):
        load("settled", server, topic, partitions, patience=PATIENCE_S)


class RedisNode(Node, Redis):
    name = "redis"

    def command(self):
        host, port = self.company.nodes[1].address.split(":")
        return super().command() + ([] if self.number == 1 else ["--replicaof", host, port])


class Redises(Of):
    """One that takes records, and two that follow it. Whoever adds one waits until one of these has it."""

    name = "redis"
    kind = RedisNode
    programs = ["redis-server", "redis-cli"]
    # So many of those that follow.
    acks = 1
    promise = "written to the append-only file of the one that takes records, synced once a second, and in the memory of one that follows"

    def found(self):
        self.address = self.nodes[1].address

    def until_whole(self):
        until("two follow", lambda: self.info().count("state=online") == 2)

    def info(self):
        host, port = self.address.split(":")
        return subprocess.run(["redis-cli", "-h", host, "-p", port, "info", "replication"], capture_output=True, text=True).stdout


class NatsNode(Node, Nats):
    name = "nats"

    def prepare(self):
        super().prepare()
        routes = ", ".join(f'"nats://{node.peer}"' for node in self.company.nodes.values())
        with open(os.path.join(self.dir, "settings"), "a") as file:
            file.write(f'server_name: n{self.number}\ncluster {{ name: three, listen: "{self.peer}", routes: [{routes}] }}\n')


class Natses(Of):
    """JetStream, a stream with three replicas."""

    name = "nats"
    kind = NatsNode
    programs = ["nats-server"]
    acks = 3
    promise = "in the page caches of two of three; synced once in two minutes (its default)"

    def found(self):
        self.times = 0

    def until_whole(self):
        """A stream can be made: they have elected who makes it."""
        self.times += 1
        until("a stream is made", self.has_stream)

    def has_stream(self):
        try:
            load("nats", self, f"{PROBE}{self.times}", 1, 1, 10, self.acks)
            return True
        except subprocess.CalledProcessError:
            self.times += 1
            return False


class EtcdNode(Node, Server):
    name = "etcd"

    def command(self):
        peer, client = f"http://{self.peer}", f"http://{self.address}"
        all = ",".join(f"n{number}=http://{node.peer}" for number, node in self.company.nodes.items())
        urls = ["--listen-client-urls", client, "--advertise-client-urls", client]
        urls += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", all]
        return [ETCD, "--name", f"n{self.number}", "--data-dir", os.path.join(self.dir, "data"), *urls, "--log-level", "error"]

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://{self.address}/health", timeout=5) as answer:
                return json.load(answer)["health"] == "true"
        except OSError:
            return False


class Etcds(Of):
    name = "etcd"
    kind = EtcdNode
    programs = [ETCD]
    # It has no choice of them.
    acks = 0
    promise = "synced by two of three"

    def found(self):
        pass

    def until_whole(self):
        until("all are well", lambda: all(node.is_ready() for node in self.nodes.values()))
