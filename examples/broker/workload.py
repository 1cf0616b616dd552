#!/usr/bin/env python3
"""Produces to `plimsoll serve` with kafka-python; says each answer to the recorder.

    acked TOPIC OFFSET VALUE   a record was acknowledged there
    durable TOPIC OFFSET       the broker said over HTTP that all below is durable
    committed TOPIC OFFSET     a group's offset was acknowledged

Promised (docs/broker.md): of the topic `durable` (flush.messages=1) all that was acknowledged; of the topic `shared`,
with nothing set, all below an offset that was called durable; that a fence covers what else is gone,
and that no offset ever names two records; each committed offset.
https://kafka.apache.org/documentation/#topicconfigs_flush.messages

pip install kafka-python==3.0.12
plimsoll disk record -o trace/ -- examples/broker/workload.py {dir}
plimsoll disk cycle --cut-after 500ms..4s --run 'examples/broker/workload.py {dir} 100000' \\
    --check 'examples/broker/check.py {dir}'
"""
import os
import socket
import subprocess
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from served import Served

directory = sys.argv[1]
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 100
generation = os.environ.get("PLIMSOLL_GENERATION", "1")
SHARED_EACH_ROUND = 3
# A flush of the disk covers whatever arrived, so `shared` must be alone for a while to lose something.
DURABLE_EACH, COMMIT_EACH = 25, 60
FILLER = "x" * 200

recorder = socket.socket(socket.AF_UNIX)
recorder.connect(os.environ["PLIMSOLL_MARK_SOCKET"])
answers = recorder.makefile()


def mark(*words):
    """What is marked is promised: somebody may be told now."""
    recorder.sendall((" ".join(map(str, words)) + "\n").encode())
    assert answers.readline() == "ok\n"


def make(topic, *settings):
    plimsoll = os.environ.get("PLIMSOLL", "plimsoll")
    command = [plimsoll, "topic", "create", topic, "--broker", served.address, *settings]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


served = Served(directory)
there = served.topics()
if "durable" not in there:
    make("durable", "--config", "flush.messages=1")
if "shared" not in there:
    make("shared")
producer = KafkaProducer(bootstrap_servers=served.address)
group = KafkaConsumer(bootstrap_servers=served.address, group_id="readers", enable_auto_commit=False)
shared = TopicPartition("shared", 0)
group.assign([shared])
for number in range(rounds):
    topics = ["shared"] * SHARED_EACH_ROUND
    topics += ["durable"] * (number % DURABLE_EACH == 0)
    values = [f"{generation}-{number}-{place}" for place in range(len(topics))]
    sent = [producer.send(topic, f"{value} {FILLER}".encode())
            for topic, value in zip(topics, values)]
    for topic, value, record in zip(topics, values, sent):
        mark("acked", topic, record.get(30).offset, value)
    for topic in ("durable", "shared"):
        mark("durable", topic, served.partition(topic)["durable"])
    if number % COMMIT_EACH == COMMIT_EACH - 1:
        here = sent[0].get().offset
        group.commit({shared: OffsetAndMetadata(here, "", -1)})
        mark("committed", "shared", here)
