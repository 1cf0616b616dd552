#!/usr/bin/env python3
"""Serves what a power cut left, reads all of it with kafka-python, and holds it against what was said.

It appends a record to each topic, stops the broker in order, and notes in {dir}/checked what it read:
the next check of the same disk wants all of that.

plimsoll disk explore trace/ --check 'examples/broker/check.py {dir}'
"""
import collections
import json
import os
import pathlib
import sys
import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from served import Served

directory = sys.argv[1]
marks = [line.split() for line in pathlib.Path(os.environ["PLIMSOLL_MARKS"]).read_text().splitlines()]
notes = pathlib.Path(directory, "checked")
# Of earlier checks: how many marks there were, and what was read.
earlier = json.loads(notes.read_text()) if notes.exists() else {"marks": 0, "records": {}}
wrong = []
promised, kept, gone = 0, 0, 0
served = Served(directory)


def expect(is_so, what):
    if not is_so:
        wrong.append(what)


def said(word, topic, since=0):
    return [words[2:] for words in marks[since:] if words[:2] == [word, topic]]


def append(topic):
    """A record of our own, behind all others: whoever has read that has read all."""
    producer = KafkaProducer(bootstrap_servers=served.address)
    value = f"check-{time.time_ns()}"
    offset = producer.send(topic, value.encode()).get(30).offset
    producer.close()
    return offset, value


def read(topic, last):
    """Offset to value and leader epoch, up to the last."""
    consumer = KafkaConsumer(bootstrap_servers=served.address, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    found = {}
    while last not in found:
        for messages in consumer.poll(1000).values():
            for message in messages:
                expect(message.offset > max(found, default=-1), f"{topic} is read out of order")
                found[message.offset] = (message.value.decode().split()[0], message.leader_epoch)
    consumer.close()
    return found


def check_names(topic, found):
    """No offset ever names two records, and no record has two offsets."""
    names, offsets = collections.defaultdict(set), collections.defaultdict(set)
    known = [(int(offset), value) for offset, value in said("acked", topic)]
    known += [(int(offset), value) for offset, value in earlier["records"].get(topic, {}).items()]
    known += [(offset, value) for offset, (value, _) in found.items()]
    for offset, value in known:
        names[offset].add(value)
        offsets[value].add(offset)
    for offset, values in names.items():
        expect(len(values) == 1, f"offset {offset} of {topic} names {sorted(values)}")
    for value, at in offsets.items():
        expect(len(at) == 1, f"{value} of {topic} is at {sorted(at)}")


def check_kept(topic, found, gaps):
    """What was promised is there, and a fence covers what is not."""
    global promised, kept, gone
    since = earlier["marks"]
    acked = {int(offset) for offset, _ in said("acked", topic, since)}
    durable = max((int(end) for (end,) in said("durable", topic, since)), default=0)
    must = {offset for offset in acked if topic == "durable" or offset < durable}
    must |= set(map(int, earlier["records"].get(topic, {})))
    promised += len(must)
    kept += len(must & set(found))
    missing = acked - set(found)
    gone += len(missing)
    for offset in missing:
        expect(any(start <= offset < end for start, end in gaps), f"no fence at {offset} of {topic}")
    expect(not missing or served.verdict.startswith("records may be lost"),
           f"{len(missing)} of {topic} are gone: {served.verdict}")


def check_fences(topic, found, gaps):
    """Nothing is in a gap, none begins below what was durable, and the epoch before ended there."""
    for start, end in gaps:
        inside = [offset for offset in found if start <= offset < end]
        expect(not inside, f"{inside} of {topic} are in a gap, {start} to {end}")
        for (durable,) in said("durable", topic):
            expect(not start < int(durable) < end, f"{durable} was durable, a gap begins at {start}")
        before = max((offset for offset in found if offset < start), default=None)
        if before is not None:
            ended = served.end_of_epoch(topic, found[before][1])
            expect(ended == start, f"the epoch of {before} ended at {ended}, a gap begins at {start}")
        behind = min(offset for offset in found if offset >= end)
        expect(found[behind][1] > (found[before][1] if before is not None else -1),
               f"the leader epoch does not rise behind a gap of {topic} at {start}")


def check_committed():
    group = KafkaConsumer(bootstrap_servers=served.address, group_id="readers")
    there = group.committed(TopicPartition("shared", 0))
    group.close()
    committed = max((int(offset) for (offset,) in said("committed", "shared")), default=0)
    expect((there or 0) >= committed, f"{committed} was committed, {there} is")


there = served.topics()
for topic in ("durable", "shared"):
    expect(topic in there or not said("acked", topic), f"there is no topic {topic}")
records = {}
for topic in sorted(there & {"durable", "shared"}):
    gaps = [(gap["from"], gap["to"]) for gap in served.partition(topic)["gaps"]]
    last, value = append(topic)
    found = read(topic, last)
    expect(found[last][0] == value, f"{found[last]} at {last} of {topic}, where {value} was acknowledged")
    check_names(topic, found)
    check_kept(topic, found, gaps)
    check_fences(topic, found, gaps)
    records[topic] = {offset: value for offset, (value, _) in found.items()}
check_committed()
expect(served.stop() == 0, "not all could be made durable")
with open(notes, "w") as file:
    json.dump({"marks": len(marks), "records": records}, file)
    file.flush()
    os.fsync(file.fileno())
if wrong:
    print(f"wrong: {'; '.join(wrong[:5])}; {len(wrong)} in all")
    sys.exit(1)
if kept < promised:
    print(f"{promised} records were promised, {kept} are there")
    sys.exit(1)
print(f"{kept} records were promised, all there; {gone} were not, and are gone behind a fence")
