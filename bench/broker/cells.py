"""What is measured: a cell is a load, and the servers that it is put on."""

import json
import os
import re
import subprocess
import tempfile
import threading
import time
from collections import namedtuple
from statistics import median

from servers import TARGET, bare

LOAD = os.path.join(TARGET, "release", "broker-load")
BROKERS = ("plimsoll", "kafka")
KIB = 1024

Cell = namedtuple("Cell", "measure servers rounds", defaults=[BROKERS, 99])


def load(verb, server, *arguments, patience=120):
    said = subprocess.run(
        [LOAD, verb, server.address, *map(str, arguments)], capture_output=True, text=True, timeout=patience, check=True
    )
    return json.loads(said.stdout)


def create(server, topic, partitions=1, *settings):
    return load("create", server, topic, partitions, *settings, patience=600)


def busy(server, measure):
    """What it found, and the CPU time that the server took meanwhile."""
    before, begun = server.cpu_s(), time.monotonic()
    found = measure()
    found["cores"] = (server.cpu_s() - before) / (time.monotonic() - begun)
    return found


def produce(workers, clients, partitions=1, *settings):
    def measure(server, topic, seconds):
        made = create(server, topic, partitions, *settings)
        found = busy(server, lambda: load("produce", server, topic, partitions, workers, clients, seconds, KIB))
        # The first second has its share of the CPU's time.
        cpu_s = found["cores"] * (seconds + 1)
        found["cpu_us"] = 1e6 * cpu_s / (found["records_per_s"] * seconds + found["first_second"])
        found["create_s"] = made["seconds"]
        return found

    return measure


def requests(connections, partitions):
    """The bare client: requests, each of one record, and one of them in flight on each connection."""

    def measure(server, _topic, seconds):
        asked = 0 if server.name == "echo" else partitions
        command = [bare(), "produce", server.address, connections, asked, seconds]
        run = lambda: subprocess.run(map(str, command), capture_output=True, text=True, timeout=120, check=True).stdout
        found = {}

        def once():
            said = run()
            found.update(
                requests_per_s=float(re.search(r"([\d.]+) requests/s", said)[1]),
                p50_us=float(re.search(r"p50 ([\d.]+)", said)[1]),
                p99_us=float(re.search(r"p99 ([\d.]+)", said)[1]),
            )
            return found

        return busy(server, once)

    return measure


def against_others(verb, connections=64):
    """Each server by a client of its own, without a library between: one record of 1 KiB in flight a connection."""

    def measure(server, _topic, seconds):
        host, port = server.address.split(":")
        run = lambda *command: subprocess.run(
            [str(each) for each in command], capture_output=True, text=True, timeout=120, check=True
        ).stdout
        # As many as take about so long, here.
        count = 8_000 if server.name == "nats-always" else 50_000 * seconds

        def once():
            if server.name == "plimsoll":
                said = run(bare(), verb, server.address, connections, 1, seconds)
                return {"requests_per_s": float(re.search(r"([\d.]+) requests/s", said)[1])}
            if server.name.startswith("redis"):
                said = run("redis-benchmark", "-h", host, "-p", port, "-c", connections, "-n", count, "XADD", "s", "*", "v", "x" * KIB)
                return {"requests_per_s": float(re.search(r"([\d.]+) requests per second", said)[1])}
            begun = time.monotonic()
            options = ["--create", "--purge", "--storage=file", "--no-progress", f"--clients={connections}", f"--msgs={count}"]
            run("nats", "-s", f"nats://{server.address}", "bench", "js", "pub", "sync", "--size=1KiB", *options, "s")
            return {"requests_per_s": count / (time.monotonic() - begun)}

        return busy(server, once)

    return measure


def lines(bytes_each, records):
    """A file of so many records, for kcat."""
    file = tempfile.NamedTemporaryFile(prefix="plimsoll-bench-", dir="/dev/shm")
    file.write((b"x" * (bytes_each - 1) + b"\n") * records)
    file.flush()
    return file


def librdkafka(bytes_each, records):
    def measure(server, topic, _seconds):
        create(server, topic)
        with lines(bytes_each, records) as file:
            command = ["kcat", "-P", "-b", server.address, "-t", topic, "-p", "0", "-l", file.name]
            for setting in ["acks=all", "linger.ms=5", "queue.buffering.max.messages=1000000"]:
                command += ["-X", setting]

            def once():
                begun = time.monotonic()
                subprocess.run(command, check=True, capture_output=True, timeout=120)
                took = time.monotonic() - begun
                return {"records_per_s": records / took, "took_s": took}

            found = busy(server, once)
        found["cpu_us"] = 1e6 * found["cores"] * found["took_s"] / records
        return found

    return measure


def paced(server, topic, seconds):
    create(server, topic)
    return busy(server, lambda: load("pace", server, topic, 20_000, seconds, KIB))


def paced_beside_writes(server, topic, seconds):
    with random_writes(server.dir):
        return paced(server, topic, seconds)


class random_writes:
    """2,000 writes of 16 KiB a second over a file of 1 GiB, synced each second."""

    def __init__(self, parent):
        self.path = os.path.join(parent, "neighbour")
        self.stop = threading.Event()

    def __enter__(self):
        self.process = subprocess.Popen(["python3", "-c", NEIGHBOUR, self.path])
        time.sleep(1)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.remove(self.path)


NEIGHBOUR = """
import os, random, sys, time
file = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
os.posix_fallocate(file, 0, 1 << 30)
block, begun, n = os.urandom(16 << 10), time.monotonic(), 0
while True:
    for _ in range(20):
        os.pwrite(file, block, random.randrange(65536) << 14)
    n += 20
    if n % 2000 == 0: os.fdatasync(file)
    time.sleep(max(0, begun + n / 2000 - time.monotonic()))
"""


def through(server, topic, seconds):
    create(server, topic)
    return busy(server, lambda: load("through", server, topic, 1000, seconds, KIB))


def read(server, topic, _seconds):
    """1 GiB that was written before, and read once: what is written past the page cache is not in it."""
    create(server, topic)
    load("fill", server, topic, 1 << 20, KIB)
    first = load("read", server, topic, 1 << 20)
    found = busy(server, lambda: load("read", server, topic, 1 << 20))
    return found | {"first_mb_per_s": first["mb_per_s"]}


def follow(server, topic, _seconds):
    create(server, topic)
    return busy(server, lambda: load("follow", server, topic, 1 << 20, KIB))


def warm(server, seconds):
    if server.name not in BROKERS or seconds == 0:
        return
    create(server, "warm", 10)
    load("produce", server, "warm", 10, 64, 1, seconds, KIB)
    load("produce", server, "warm", 10, 16, 16, seconds, KIB)


def slow_syncs(server):
    """20,000 records/s while each sync takes 100 ms longer, and as much under the program that makes it so."""
    if server.name != "plimsoll":
        return None
    syncs, found = "fdatasync,fsync,pwritev2", {}
    for name, more in [("traced", []), ("delayed", ["-e", f"inject={syncs}:delay_exit=100000"])]:
        server.wrap = ["strace", "-D", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", f"trace={syncs}", *more]
        server.start()
        create(server, name)
        load("pace", server, name, 20_000, 2, KIB)
        trials = [load("pace", server, name, 20_000, 3, KIB) for _ in range(5)]
        for column in ("p999_us", "longest_us"):
            found[f"{name}_{column}"] = median(trial[column] for trial in trials)
        server.stop()
    return found


def ten_thousand(server):
    """Kafka over 10,000 partitions, in a broker of its own: what comes after it there is slower, too."""
    if server.name != "kafka":
        return None
    server.start()
    warm(server, 10)
    return produce(64, 1, 10_000)(server, "ten-thousand", 5)


def memory(server):
    """Resident: just started, with 1,000 partitions of which each had a record, with 100,000."""
    server.start()
    time.sleep(3)
    found = {"idle_mib": server.memory_mib()}
    before = server.cpu_s()
    time.sleep(10)
    found["idle_cores"] = (server.cpu_s() - before) / 10
    create(server, "thousand", 1000)
    load("produce", server, "thousand", 1000, 64, 1, 2, 100)
    time.sleep(3)
    found["thousand_mib"] = server.memory_mib()
    if server.name == "plimsoll":
        create(server, "more", 99_000)
        time.sleep(3)
        found["hundred_thousand_mib"] = server.memory_mib()
    return found


def starts(server):
    """Until it answers: after a clean stop with 100,000 partitions (Kafka: 1,000), and after kill -9 with 10 GiB."""
    found = {"empty_s": server.start()}
    create(server, "many", 100_000 if server.name == "plimsoll" else 1000)
    server.stop()
    found["after_stop_s"] = server.start()
    create(server, "large")
    for _ in range(10):
        load("fill", server, "large", 1 << 20, KIB)
    server.kill()
    found["after_kill_s"] = server.start()
    return found


OTHERS = ("plimsoll", "redis-everysec", "nats-2m")
OTHERS_DURABLE = ("plimsoll", "redis-always", "nats-always")
WITH_FLOOR = (*BROKERS, "echo")

CELLS = {
    "one": Cell(produce(1, 1)),
    "bare-1": Cell(requests(1, 1), WITH_FLOOR),
    "workers": Cell(produce(64, 1)),
    "over-1000": Cell(produce(64, 1, 1000)),
    "over-10000": Cell(produce(64, 1, 10_000), ("plimsoll",)),
    "clients": Cell(produce(64, 64)),
    "bare-64": Cell(requests(64, 1), WITH_FLOOR),
    "durable": Cell(produce(64, 64, 1, "flush.messages=1")),
    "kcat-1KiB": Cell(librdkafka(KIB, 300_000)),
    "kcat-100B": Cell(librdkafka(100, 2_000_000)),
    "follow": Cell(follow, rounds=3),
    "read": Cell(read, rounds=3),
    "through": Cell(through),
    "paced": Cell(paced, rounds=3),
    "paced-writes": Cell(paced_beside_writes, rounds=3),
    "others": Cell(against_others("produce"), OTHERS, rounds=3),
    "others-durable": Cell(against_others("synced"), OTHERS_DURABLE, rounds=3),
}

ONCE = {"memory": memory, "starts": starts, "slow-syncs": slow_syncs, "kafka-10000": ten_thousand}
