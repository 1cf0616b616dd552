"""What is measured of three brokers: a cell is a load, and the servers that it is put on."""

import json
import subprocess
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from cells import LOAD, load
from cluster_servers import NODES, Of, until

BYTES = 100
PRODUCERS = 64
# Records a second, where they come at their times.
PACE = 10_000
# 50 MB/s.
LARGE, LARGE_PACE = 10_000, 5_000
# How long records go on beside a node that comes back.
BACK_S = 30
BOTH = ("plimsoll", "kafka")
OTHERS = ("redis", "nats", "etcd")
ALL = (*BOTH, "alone", *OTHERS)
DURABLE = "flush.messages=1"

Cell = namedtuple("Cell", "measure servers", defaults=[BOTH])


def make(server, topic, partitions, *settings):
    """Returns once each partition has a leader, and all its replicas are in sync. How long both took."""
    found = load("create", server, topic, partitions, f"replicas={server.replicas}", *settings, patience=600)
    if isinstance(server, Of):
        found["seconds"] += load("settled", server, topic, partitions, patience=600)["seconds"]
    return found["seconds"]


def taking(server, seconds, measure):
    """What it found, and the CPU time that all brokers took for a record."""
    before, begun = server.cpu_s(), time.monotonic()
    found = measure()
    cpu_s = server.cpu_s() - before
    found["cores"] = cpu_s / (time.monotonic() - begun)
    # The first second has its share of the CPU's time.
    found["cpu_us"] = 1e6 * cpu_s / (found["records_per_s"] * seconds + found["first_second"])
    return found


def produce(producers, partitions, *settings):
    """Producers, each a client with connections of its own and one record in flight."""

    def measure(server, topic, seconds):
        if server.name in OTHERS:
            words = [topic, producers, seconds, BYTES, server.acks]
            return taking(server, seconds, lambda: load(server.name, server, *words, patience=seconds + 60))
        found = {"create_s": make(server, topic, partitions, *settings)}
        # Kafka makes files for a partition when it is first written to.
        found["touch_s"] = load("touch", server, topic, partitions, patience=600)["seconds"]
        words = [topic, partitions, producers, producers, seconds, BYTES]
        found.update(taking(server, seconds, lambda: load("produce", server, *words, patience=seconds + 180)))
        load("drop", server, topic)
        return found

    return measure


def warm(server, seconds):
    """By all kinds of producers. Kafka got no faster after a minute and more of it; ours needs next to nothing."""
    if server.name in OTHERS:
        return
    make(server, "warm", 10)
    each = max(1, round(seconds * server.warmed / 9))
    for _ in range(3):
        for producers, clients in [(PRODUCERS, 1), (16, 16), (PRODUCERS, PRODUCERS)]:
            load("produce", server, "warm", 10, producers, clients, each, BYTES, patience=each + 180)
    load("drop", server, "warm")


class Felt:
    """One producer that sends one record after the other, while something happens to the brokers."""

    def __init__(self, server, topic):
        command = [LOAD, "gap", server.address, topic, str(BYTES)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        if not self.process.stderr.readline():
            raise RuntimeError("the producer did not begin")
        time.sleep(2)

    def happens(self):
        self.process.stdin.write("now\n")
        self.process.stdin.flush()

    def end(self):
        """What it felt, once it goes on."""
        said, why = self.process.communicate(timeout=200)
        if self.process.returncode != 0:
            raise RuntimeError(why)
        return json.loads(said)

    def kill(self):
        """Where the brokers did not what they were asked."""
        self.process.kill()
        self.process.communicate()


def felt(server, topic, what):
    """What a producer feels of it."""
    make(server, topic, 1)
    producer = Felt(server, topic)
    try:
        producer.happens()
        done = what()
        return {**producer.end(), **(done or {})}
    finally:
        producer.kill()


def killed(server, topic, _seconds):
    """The node that leads is killed as with kill -9, and started again behind it."""
    number = None

    def kill():
        nonlocal number
        number = server.leader(topic)
        server.kill(number)

    found = felt(server, topic, kill)
    begun = time.monotonic()
    server.restart(number)
    found["whole_s"] = time.monotonic() - begun
    load("drop", server, topic)
    return found


def handed_over(server, topic, _seconds):
    def hand_over():
        begun = time.monotonic()
        server.hand_over(topic)
        return {"hand_over_ms": 1e3 * (time.monotonic() - begun)}

    found = felt(server, topic, hand_over)
    load("drop", server, topic)
    server.until_whole()
    return found


def memory(kind, parent, seconds):
    server = kind(parent)
    try:
        server.start()
        return resident(server, seconds)
    finally:
        server.remove()


def resident(server, seconds):
    """All three together: just started, with 1,000 partitions that were written to, and ours with 100,000."""
    found = {"idle_mib": server.memory_mib()}
    before, begun = server.cpu_s(), time.monotonic()
    time.sleep(seconds)
    found["idle_cores"] = (server.cpu_s() - before) / (time.monotonic() - begun)
    make(server, "thousand", 1000)
    load("touch", server, "thousand", 1000, patience=600)
    load("produce", server, "thousand", 1000, PRODUCERS, PRODUCERS, seconds, BYTES, patience=300)
    time.sleep(3)
    found["thousand_mib"] = server.memory_mib()
    if server.name == "plimsoll":
        found["more_create_s"] = load("create", server, "more", 99_000, "replicas=3", patience=600)["seconds"]
        time.sleep(3)
        found["hundred_thousand_mib"] = server.memory_mib()
    return found


def slow_disk(node):
    """10,000 records/s while each sync of one node takes 100 ms longer, and as much under the program that makes it so."""

    def measure(kind, parent, _seconds):
        found, syncs = {}, "fdatasync,fsync,msync,pwritev2"
        for name, more in [("traced", []), ("delayed", ["-e", f"inject={syncs}:delay_exit=100000"])]:
            strace = ["strace", "-D", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", f"trace={syncs}", *more]
            server = kind(parent, wraps={node: strace})
            try:
                server.start()
                make(server, name, 1)
                found[f"{name}_leader"] = server.leader(name)
                load("pace", server, name, PACE, 5, BYTES)
                trials = [load("pace", server, name, PACE, 3, BYTES) for _ in range(5)]
            finally:
                server.remove()
            for column in ("p50_us", "p999_us", "longest_us"):
                found[f"{name}_{column}"] = median(trial[column] for trial in trials)
        return found

    return measure


def away(away_s):
    """A follower loses its memory, is away while 50 MB/s are written, and comes back beside 10,000 small records/s."""

    def measure(kind, parent, _seconds):
        server = kind(parent)
        try:
            server.start()
            make(server, "away", 1)
            number = next(number for number in NODES if number != server.leader("away"))
            load("pace", server, "away", PACE, 5, BYTES)
            quiet = load("pace", server, "away", PACE, 10, BYTES)
            server.lose_memory(number)
            guarded = load("pace", server, "away", PACE, 10, BYTES)
            filled = load("pace", server, "away", LARGE_PACE, away_s, LARGE, patience=2 * away_s + 60)
            with ThreadPoolExecutor(1) as beside:
                pacing = beside.submit(load, "pace", server, "away", PACE, BACK_S, BYTES, patience=BACK_S + 60)
                time.sleep(2)
                server.nodes[number].start()
                begun = time.monotonic()
                until("it votes", lambda: server.votes(number))
                votes_s = time.monotonic() - begun
                back = pacing.result()
        finally:
            server.remove()
        found = {"votes_s": votes_s, "filled_p99_us": filled["p99_us"]}
        for name, trial in [("quiet", quiet), ("guarded", guarded), ("back", back)]:
            found |= {f"{name}_{column}": trial[column] for column in ("p50_us", "p99_us", "p999_us")}
        return found

    return measure


# Three of ours and three of Kafka by turns, and one of ours.
CELLS = {
    "one": Cell(produce(1, 1), ALL),
    "producers": Cell(produce(PRODUCERS, 1), ALL),
    "over-64": Cell(produce(PRODUCERS, 64)),
    "over-1000": Cell(produce(PRODUCERS, 1000)),
    "one-durable": Cell(produce(1, 1, DURABLE)),
    "durable": Cell(produce(PRODUCERS, 1, DURABLE)),
    "durable-1000": Cell(produce(PRODUCERS, 1000, DURABLE)),
}
# Behind all of these: a broker that was killed is cold when it is back.
FELT = {"handed-over": Cell(handed_over), "killed": Cell(killed)}
# In clusters of their own.
ONCE = {
    "memory": Cell(memory),
    # Node 2 leads the first shard of records, where the topic is, and node 3 follows; of Kafka's none is measured, as the goal
    # is of our own.
    "slow-leader": Cell(slow_disk(2), ("plimsoll",)),
    "slow-follower": Cell(slow_disk(3), ("plimsoll",)),
    "back": Cell(away(30), ("plimsoll",)),
    "catches-up": Cell(away(215), ("plimsoll",)),
}
# Between network namespaces.
FAR = {name: Cell(CELLS[name].measure) for name in ("one", "producers", "over-64", "over-1000", "durable", "durable-1000")}
FAR_FELT = FELT
