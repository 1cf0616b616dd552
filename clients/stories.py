"""What every client must live through with a broker. Each raises AssertionError where it does not."""

import random
import re
import time

from broker import PARTITIONS

COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]
# What clients make of the refusal: a broker that does not answer is something else.
REFUSALS = {
    "transact": r"transactional.?id.?authorization|failed to find group coordinator",
    "unknown": r"unknown.?topic|does not host|does not exist|metadata",
}


def of(client, broker, strict):
    """Each story, and how it is told: with a broker, and one that makes no topic that is asked for."""
    told = [("each compression, keys and headers", lambda: compressions(client, broker))]
    for strategy in client.strategies:
        told.append((f"a group, {strategy}", lambda strategy=strategy: group(client, broker, strategy)))
    told += [
        ("offsets by time", lambda: offsets_by_time(client, broker)),
        ("a broker that is stopped and started", lambda: survives(client, broker, broker.stop)),
        ("a broker that is killed", lambda: survives(client, broker, broker.kill)),
        ("transactions are refused", lambda: refused(client, broker, "transact")),
        ("a topic that is not there", lambda: refused(client, strict, "unknown", "absent")),
    ]
    return told


def of_three(client, three):
    """The same of three brokers, of which the one that leads is lost."""
    strategy = client.strategies[-1]
    return [
        ("each compression, keys and headers", lambda: compressions(client, three)),
        (f"a group, {strategy}", lambda: group(client, three, strategy)),
        ("a leader that is stopped and started", lambda: survives(client, three, three.stop)),
        ("a leader that is killed", lambda: survives(client, three, three.kill)),
        ("a topic that moves", lambda: survives(client, three, three.move)),
    ]


def compressions(client, broker):
    """Each makes the topic by asking for it, or finds it."""
    for round_, compression in enumerate(client.compressions):
        acked = client.produce(broker, "compressed", compression, round_ * 100, 100).end().said("acked")
        assert len(acked) == 100, f"{compression}: {len(acked)} of 100 are acknowledged"
    records = client.read(broker, "compressed")
    check_log(records, range(100 * len(client.compressions)))


def group(client, broker, strategy):
    """Three join at once; one leaves, one joins; all leave, and one goes on where they were."""
    topic, name = f"grouped-{strategy}", f"group-{strategy}"
    client.produce(broker, topic, "none", 0, 120).end()

    def join():
        return client.start("consume", broker.address, topic, name, strategy)

    members = [join() for _ in range(3)]
    everyone = list(members)
    try:
        until_shared(members)
        until_read(everyone, 120)
        time.sleep(0.5)  # They commit what they read.

        members.pop(0).leave()
        until_shared(members)
        members.append(join())
        everyone.append(members[-1])
        until_shared(members)
        client.produce(broker, topic, "none", 120, 120).end()
        until_read(everyone, 240)
        time.sleep(0.5)

        while members:
            members.pop().leave()
        client.produce(broker, topic, "none", 240, 60).end()
        members.append(join())
        everyone.append(members[-1])
        until_read(everyone, 300)
        members.pop().leave()
    finally:
        for member in members:
            member.kill()
    for member in everyone:
        check_order(member.said("read"))
    # A partition may go to whoever joined before its owner: between members its offsets are the order.
    reads = [read for member in everyone for read in member.said("read")]
    check_log(sorted(reads, key=lambda read: (read[0], int(read[1]))), range(300))


def until_shared(members):
    """Until each partition is one member's, and each member has one."""

    def is_shared():
        owned = [client_owns(member) for member in members]
        return all(owned) and sorted(sum(owned, [])) == list(range(PARTITIONS))

    members[0].until(f"{len(members)} members share the partitions", is_shared)


def client_owns(member):
    """What the member said last of what it owns."""
    said = member.said("owns")
    return [int(partition) for partition in said[-1]] if said else []


def until_read(members, count):
    """Until all together read so many different records."""

    def numbers():
        return {read[4] for member in members for read in member.said("read")}

    members[-1].until(f"{count} records are read by all together", lambda: len(numbers()) >= count)


def offsets_by_time(client, broker):
    client.produce(broker, "timed", "none", 0, 60).end()
    records = client.read(broker, "timed")
    check_log(records, range(60))
    before = {int(p): int(offset) + 1 for p, offset, *_ in records}
    time.sleep(0.05)
    between = int(time.time() * 1000)
    time.sleep(0.05)
    client.produce(broker, "timed", "none", 60, 60).end()

    def at(ms):
        said = client.start("offset-at", broker.address, "timed", ms).end().said("at")
        return {int(partition): int(offset) for partition, offset in said}

    assert all(at(0)[partition] == 0 for partition in before), f"from the beginning: {at(0)}"
    found = at(between)
    assert {p: found[p] for p in before} == before, f"{found}, not {before}"
    # None is that late: -1, or the end as librdkafka says.
    late = at(between + 3_600_000)
    assert all(late[p] == -1 or late[p] > before[p] for p in before), late


def refused(client, broker, verb, *arguments):
    """Within seconds, and the client says so. Returns what it says."""
    begun = time.monotonic()
    program = client.start(verb, broker.address, *arguments)

    def refusals():
        return [line.removeprefix("refused ") for line in program.lines if line.startswith("refused")]

    def is_refused():
        return any(re.search(REFUSALS[verb], line, re.IGNORECASE) for line in refusals())

    program.until("it is refused, and for that", is_refused, 10)
    seconds = time.monotonic() - begun
    program.kill()
    said = refusals()
    return [f"after {seconds:.1f} s: {said[0]}", *said[1:]]


def survives(client, broker, end):
    """A producer and a consumer go on by themselves; nothing acknowledged is lost or out of order."""
    topic = f"survives-{end.__name__}"
    count = 300
    client.produce(broker, topic, "none", 0, 20).end()
    consumer = client.start("consume", broker.address, topic, topic, client.strategies[-1])
    try:
        consumer.until("all partitions are read", lambda: len(client_owns(consumer)) == PARTITIONS)
        producer = client.produce(broker, topic, "lz4", 20, count - 20, pace_ms=10)
        for acknowledged in (40, 150):
            producer.until("some are acknowledged", lambda n=acknowledged: len(producer.said("acked")) > n)
            time.sleep(random.random() / 10)
            end()
            time.sleep(0.3)
            broker.start()
        acked = producer.end(60).said("acked")
        until_read([consumer], count)
    finally:
        consumer.kill()
    assert len(acked) == count - 20, f"{len(acked)} of {count - 20} are acknowledged"
    records = client.read(broker, topic)
    check_log(records, range(count))
    check_acked(acked, records)


def check_log(records, numbers):
    """All of these numbers, each with its key and header, each partition in order."""
    check_order(records)
    found = sorted(int(record[4]) for record in records)
    missing = sorted(set(numbers) - set(found))
    assert not missing, f"{len(missing)} are missing: {missing[:10]}"
    assert found == list(numbers), f"{len(found)} records for {len(numbers)} numbers"


def check_order(records):
    """Each with its key and header, each partition in order and nothing twice."""
    last = {}
    for partition, offset, key, headers, number, *_ in records:
        number = int(number)
        assert key == f"k{number % 20}", f"number {number} has the key {key}"
        assert headers == "story=told", f"number {number} has the headers {headers}"
        said = f"{number} at {offset} of partition {partition}"
        before = last.get(partition, (-1, -1))
        assert before < (int(offset), number) and before[1] < number, f"{said} after {before}"
        last[partition] = (int(offset), number)


def check_acked(acked, records):
    """What was acknowledged is where that said."""
    places = {(partition, offset): number for partition, offset, _, _, number, *_ in records}
    for partition, offset, *number in acked:
        there = places.get((partition, offset))
        assert there is not None, f"nothing at {offset} of partition {partition}, acknowledged"
        assert not number or number == [there], f"{there}, not {number}, at {offset} of {partition}"
