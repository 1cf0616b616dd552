"""What is measured of chapters: a cell is what is written before, what is measured in each round, and on which servers."""

import json
import os
import re
import subprocess
import time
import urllib.request

import cells
from cells import KIB, busy, create, load
from servers import TARGET, Kafka, Plimsoll, free_port

MIB, GIB = 1 << 20, 1 << 30
# No child of ours stays longer.
PATIENCE = 1800
READERS, WRITERS = 20, 64
# Less than these, and one reader is not measured but its connection.
ONE_BYTES_MIN = 64 * MIB
# Kafka with very many partitions: without, an index of each would be of 10 MiB, and its heap too small.
MANY = "log.index.size.max.bytes=65536\nlog.cleaner.enable=false\nqueued.max.requests=64\nsocket.request.max.bytes=104857600\n"


class Settling(Plimsoll):
    """A chapter each 512 MiB; what is left ends soon, so that all is settled before it is read."""

    def __init__(self, parent):
        super().__init__(parent)
        self.http = f"127.0.0.1:{free_port()}"
        self.settings = ["--chapter-age", "5s"]

    def metric(self, name):
        """Of all shards together."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=60) as answer:
            said = answer.read().decode()
        return sum(float(value) for value in re.findall(rf"^plimsoll_shard_{name}{{[^}}]*}} (\S+)", said, re.M))

    def settle(self):
        """Waits until everything is in chapters; returns what they hold."""
        end = time.monotonic() + PATIENCE
        # The last chapter ends with its age, and what it brings is let go of then.
        while self.metric("chapters_waiting") + self.metric("chapter_open_bytes") > 0 or self.metric("chapter_runs") == 0:
            if time.monotonic() > end:
                raise RuntimeError("chapters wait, and are not settled")
            time.sleep(0.5)
        return self.metric("chapter_live_bytes")


class WithChapters(Settling):
    """As it is served by default."""

    name = "with"
    chapter_bytes = "512MiB"

    def __init__(self, parent):
        super().__init__(parent)
        path = os.path.join(self.dir, "plimsoll.toml")
        with open(path, "w") as file:
            # A chapter has at most two thirds of it.
            file.write('reserve-bytes = "9GiB"\n')
        self.settings = ["--config", path, "--chapter-bytes", self.chapter_bytes]


class WithoutChapters(WithChapters):
    """None ends in a trial: each would be larger than all that is produced in it."""

    name = "without"
    chapter_bytes = "6GiB"


class KafkaOfMany(Kafka):
    heap = "4G"
    settings = MANY


def settle(server):
    """What was written is where it will be read: in chapters, and on the disk."""
    if isinstance(server, Settling):
        server.settle()
    subprocess.run(["sync"], check=True, timeout=PATIENCE)


def forget():
    """Nothing that was written or read is in the page cache any more."""
    subprocess.run(["sync"], check=True, timeout=PATIENCE)
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


class Cell:
    """Servers that are filled once, and measured by turns."""

    kinds = (Settling, Kafka)

    def __init__(self, asked):
        self.bytes = int(asked.gib * GIB)
        self.seconds = asked.seconds

    def fill(self, server):
        """Returns what there is to say of it."""

    def measure(self, server, number):
        """One trial."""


class Spread(Cell):
    """A topic of some partitions, written evenly and at once."""

    partitions = 1

    def __init__(self, asked):
        super().__init__(asked)
        self.bytes = max(self.bytes, self.partitions * self.each_min())
        self.each = self.bytes // self.partitions // KIB

    def each_min(self):
        return 0

    def fill(self, server):
        made = create(server, "old", self.partitions)
        asked = ["old", self.partitions, self.each * self.partitions, KIB]
        found = load("spread", server, *asked, patience=PATIENCE)
        settle(server)
        return {"create_s": made["seconds"], "fill_records_per_s": found["records_per_s"], "partitions": self.partitions}


class OneOf(Spread):
    """Catch-up of one partition, another in each round."""

    def each_min(self):
        return ONE_BYTES_MIN

    def measure(self, server, number):
        forget()
        asked = ["old", number * 7 % self.partitions, self.each]
        return busy(server, lambda: load("one", server, *asked, patience=PATIENCE))


class OneOf1(OneOf):
    partitions = 1


class OneOf100(OneOf):
    partitions = 100


class Walk(Spread):
    """Catch-up of partitions that are one of very many: one after the other, and each for the first time."""

    kinds = (Settling, KafkaOfMany)
    partitions = 10_000

    def __init__(self, asked):
        self.partitions = asked.many
        super().__init__(asked)
        self.count = min(50, self.partitions // 4)

    def each_min(self):
        return KIB

    def measure(self, server, number):
        forget()
        # None that stands beside another.
        asked = ["old", number + 1, self.partitions // (self.count + 2), self.count, self.each]
        return busy(server, lambda: load("walk", server, *asked, patience=PATIENCE))


class Group(Spread):
    """Catch-up of all partitions by one group of two."""

    partitions = 1000

    def measure(self, server, _number):
        forget()
        return busy(server, lambda: load("group", server, "old", self.each * self.partitions, 2, patience=PATIENCE))


class Behind(Spread):
    """Readers of what is old, and writers in front: these are measured without those, and beside them."""

    partitions = READERS

    def __init__(self, asked):
        super().__init__(asked)
        # The readers are to have something to read as long as the writers write.
        self.each = self.each * 3 // 2
        self.seconds = max(2, self.seconds // 2)

    def fill(self, server):
        found = super().fill(server)
        create(server, "front", WRITERS)
        return found

    def write(self, server):
        asked = ["front", WRITERS, WRITERS, 1, self.seconds, KIB]
        return load("produce", server, *asked, patience=PATIENCE)

    def measure(self, server, _number):
        forget()
        alone = self.write(server)
        forget()
        # They begin before the writers' first second ends, and end after their last.
        asked = ["behind", server.address, "old", READERS, self.each, self.seconds + 1]
        readers = subprocess.Popen([cells.LOAD, *map(str, asked)], stdout=subprocess.PIPE, text=True)
        try:
            beside = self.write(server)
            said, _ = readers.communicate(timeout=PATIENCE)
        finally:
            readers.kill()
            readers.wait()
        found = {name: alone[name] for name in ("p50_us", "p99_us", "records_per_s")}
        found |= {f"beside_{name}": beside[name] for name in ("p50_us", "p99_us", "records_per_s")}
        found["p99_ratio"] = beside["p99_us"] / alone["p99_us"]
        return found | json.loads(said)


class BehindPaced(Behind):
    """The same, with writers who send 20,000 records a second, whatever becomes of them."""

    def write(self, server):
        found = load("pace", server, "front", 20_000, self.seconds, KIB, patience=PATIENCE)
        return found | {"records_per_s": 20_000}


class Producing(Cell):
    """Producing while chapters settle, and where none does: each time in a fresh directory."""

    kinds = (WithChapters, WithoutChapters)
    is_fresh = True
    partitions = 1

    def measure(self, server, _number):
        # Two chapters end in them, if it goes as fast as it went.
        seconds = max(10, self.seconds)
        found = cells.produce(WRITERS, 1, self.partitions)(server, "front", seconds)
        found["chapters"] = server.metric("chapter_settled") + server.metric("chapters_waiting")
        return found


class Producing1000(Producing):
    partitions = 1000


class Written(Cell):
    """Bytes written to the disk for each that lives in chapters, once all is settled: a run of a GiB is one of two chapters."""

    kinds = (Settling,)
    is_fresh = True

    def measure(self, server, _number):
        create(server, "old", 10)
        load("spread", server, "old", 10, self.bytes // KIB, KIB, patience=PATIENCE)
        live = server.settle()
        with open(f"/proc/{server.process.pid}/io") as file:
            said = dict(line.split(": ") for line in file.read().splitlines())
        written, cancelled = int(said["write_bytes"]), int(said["cancelled_write_bytes"])
        return {
            "written_per_byte": (written - cancelled) / live,
            "write_mib": written / MIB,
            "cancelled_mib": cancelled / MIB,
            "live_mib": live / MIB,
        }


CELLS = {
    "producing": Producing,
    "producing-1000": Producing1000,
    "one-of-1": OneOf1,
    "one-of-100": OneOf100,
    "one-of-10000": Walk,
    "group": Group,
    "behind": Behind,
    "behind-paced": BehindPaced,
    "written": Written,
}


def books(asked):
    """A hundred thousand partitions in two hundred chapters: laid out, and opened, by an example of ours."""
    program = os.path.join(TARGET, "release", "examples", "chapter_figures")
    parent = asked.parent
    command = [program, parent, asked.books_partitions, asked.books_chapters]
    said = subprocess.run([str(each) for each in command], capture_output=True, text=True, timeout=PATIENCE, check=True)
    return json.loads(said.stdout)
