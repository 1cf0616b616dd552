#!/usr/bin/env python3
"""Produces to `plimsoll serve` whose chapters are small, deletes, and says each answer to the recorder.

    acked TOPIC OFFSET VALUE [KEY]   a record was acknowledged there
    durable TOPIC OFFSET             the broker said over HTTP that all below is durable
    trimming | trimmed TOPIC OFFSET  records below are asked to be deleted; they are
    making | made TOPIC N            the topic is made for the Nth time
    deleting | deleted TOPIC N       and deleted

A value is GENERATION-ROUND-PLACE, behind it `gone` where the record has none: a tombstone has no bytes to say who it is.
Promised (docs/broker.md, docs/chapters.md): what `workload.py` says, and: what is deleted stays so; of `short` at
least retention.bytes are there; of `keyed` the newest record of each key; each record once, settled or not.

pip install kafka-python==3.0.12
plimsoll disk record -o trace/ -- examples/broker/chapters_workload.py {dir}
plimsoll disk cycle --cut-after 1s..6s --run 'examples/broker/chapters_workload.py {dir} 100000' \\
    --check 'examples/broker/chapters_check.py {dir}'
"""
import os
import random
import socket
import subprocess
import sys

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from served import Served
from settling import SERVE, TOPICS

directory = sys.argv[1]
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 240
generation = int(os.environ.get("PLIMSOLL_GENERATION", "1"))
drawn = random.Random(generation)
KEYS = 12
# A flush of the disk covers whatever arrived, so what nobody waits for must be alone for a while to be lost.
BURST_EACH, BURST = 12, 5
TRIM_EACH, FLEETING_EACH = 30, 20
FILLER = "x" * 400
# The log lets go of segments, and these have 64 MiB.
LARGE_EACH, LARGE = 2, "y" * 900_000

recorder = socket.socket(socket.AF_UNIX)
recorder.connect(os.environ["PLIMSOLL_MARK_SOCKET"])
answers = recorder.makefile()


def mark(*words):
    """What is marked is promised: somebody may be told now."""
    recorder.sendall((" ".join(map(str, words)) + "\n").encode())
    assert answers.readline() == "ok\n"


def make(topic):
    plimsoll = os.environ.get("PLIMSOLL", "plimsoll")
    command = [plimsoll, "topic", "create", topic, "--broker", served.address]
    for setting in TOPICS[topic][0]:
        command += ["--config", setting]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def produce(topics, name, large=None):
    """A record of each, sent at once; marked as they are acknowledged. Those of one topic are large."""
    sent = []
    for place, topic in enumerate(topics):
        value, key = f"{name}-{place}", None
        content = f"{value} {LARGE if topic == large else FILLER}"
        if topic == "keyed":
            key = f"key-{drawn.randrange(KEYS)}"
            if drawn.randrange(8) == 0:
                value, content = f"{value}-gone", None
        record = producer.send(topic, content and content.encode(), key and key.encode())
        sent.append((topic, value, key, record))
    for topic, value, key, record in sent:
        mark("acked", topic, record.get(30).offset, value, *([key] if key else []))
    return {topic: record.get().offset for topic, _, _, record in sent}


served = Served(directory, *SERVE)
there = served.topics()
for topic in TOPICS.keys() - {"fleeting"} - there:
    make(topic)
producer = KafkaProducer(bootstrap_servers=served.address, max_request_size=1_000_000)
admin = KafkaAdminClient(bootstrap_servers=served.address)
# Above that of each generation before.
fleeting, is_there = generation * 100_000, "fleeting" in there
for number in range(rounds):
    last = produce(["shared"] * 4 + ["short"] * 2, f"{generation}-{number}")
    if number % LARGE_EACH == 0:
        last |= produce(["short"], f"{generation}-{number}-large", large="short")
    if number % BURST_EACH == BURST_EACH - 1:
        for turn in range(BURST):
            of_burst = ["durable", "durable", "keyed", "keyed", "trimmed", "wide"] + ["fleeting"] * is_there
            last |= produce(of_burst, f"{generation}-{number}-{turn}", large="wide")
        for topic in TOPICS:
            if topic != "fleeting":
                mark("durable", topic, served.partition(topic)["durable"])
    if number % TRIM_EACH == TRIM_EACH - 1 and "trimmed" in last:
        below = drawn.randrange(max(0, last["trimmed"] - 12), last["trimmed"] + 1)
        mark("trimming", "trimmed", below)
        admin.delete_records({TopicPartition("trimmed", 0): below})
        mark("trimmed", "trimmed", below)
    if number % FLEETING_EACH == FLEETING_EACH - 1:
        if is_there:
            mark("deleting", "fleeting", fleeting)
            admin.delete_topics(["fleeting"])
            mark("deleted", "fleeting", fleeting)
        fleeting += 1
        mark("making", "fleeting", fleeting)
        make("fleeting")
        mark("made", "fleeting", fleeting)
        is_there = True
