"""A producer (confluent-kafka, idempotent) and a group of each reader, which go on by themselves whatever becomes of their brokers; and
what must hold of all that they were told."""

import time

import stories
from broker import PARTITIONS

ENDLESS = 10**9
PACE_MS = 5
SETTLED_S = 120
WATCHED_S = 1


class Live:
    """A producer, a reader for each group, and who watches it."""

    def __init__(self, broker, topic, librdkafka, readers):
        def start(client, verb, *arguments):
            return client.start(verb, broker.address, topic, *arguments)

        self.readers = [start(client, "consume", client.name, "eager") for client in readers]
        self.watchers = {client.name: start(librdkafka, "committed", client.name) for client in readers}
        for reader in self.readers:
            reader.until("it reads", lambda reader=reader: reader.said("read"))
        self.producer = librdkafka.produce(broker, topic, "none", 1, ENDLESS, PACE_MS)

    def end(self):
        """Once all is read and committed: what was acknowledged, read, and seen as committed."""
        acked = self.producer.leave().said("acked")
        for reader in self.readers:
            until_all_read(reader, 1 + len(acked))
        reads = [read for reader in self.readers for read in reader.leave().said("read")]
        time.sleep(WATCHED_S)
        watched = self.watchers.items()
        return acked, reads, {group: seen.leave().said("committed") for group, seen in watched}

    def kill(self):
        for program in [self.producer, *self.readers, *self.watchers.values()]:
            program.kill()


def until_all_read(reader, count):
    """It may read a record again, and none is missing once all is."""

    def numbers():
        return {number for *_, number in reader.said("read")}

    reader.until(f"{count} records are read", lambda: len(numbers()) >= count, SETTLED_S)


def check_log(records, acked, count):
    """All are there once, in order, where their acknowledgements said, and no fence is between them."""
    stories.check_log(records, range(count))
    stories.check_acked(acked, records)
    for partition in range(PARTITIONS):
        offsets = [int(offset) for at, offset, *_ in records if int(at) == partition]
        assert offsets == list(range(len(offsets))), f"offsets of partition {partition} have a gap"


def check_reads(records, reads):
    """Whoever read an offset at any time read what is there now."""
    there = {(partition, offset): number for partition, offset, *_, number in records}
    for partition, offset, *_, number in reads:
        now = there.get((partition, offset))
        assert now == number, f"{number} was read at {offset} of partition {partition}, {now} is there"


def check_committed(group, seen, records):
    """It never goes back, and comes to the end."""
    last = [0] * PARTITIONS
    for offsets in seen:
        offsets = [int(offset) for offset in offsets]
        went_back = any(now < before for now, before in zip(offsets, last))
        assert not went_back, f"what {group} had committed was {last}, and then {offsets}"
        last = offsets
    ends = [0] * PARTITIONS
    for partition, offset, *_ in records:
        ends[int(partition)] = int(offset) + 1
    assert last == ends, f"{group} has committed {last} of {ends}"
