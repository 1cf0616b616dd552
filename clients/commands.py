"""Kafka's own commands, as an operator types them."""

import json
import subprocess
import tempfile
import time

from client import java

TOOLS = "org.apache.kafka.tools."
TOPICS = TOOLS + "TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = TOOLS + "consumer.group.ConsumerGroupCommand"
OFFSETS = TOOLS + "GetOffsetShell"
ELECTION = TOOLS + "LeaderElectionCommand"
REASSIGN = TOOLS + "reassign.ReassignPartitionsCommand"
LOG_DIRS = TOOLS + "LogDirsCommand"
PRODUCER = TOOLS + "ConsoleProducer"
CONSUMER = TOOLS + "consumer.ConsoleConsumer"


def of(client, broker):
    """Each story, and how it is told."""
    return [
        ("kafka-topics", lambda: topics(broker)),
        ("kafka-configs", lambda: configs(broker)),
        ("kafka-console-producer, -consumer and -consumer-groups", lambda: groups(broker)),
        ("kafka-get-offsets and -log-dirs", lambda: places(broker)),
        ("settings that are refused", lambda: refused(broker)),
    ]


def of_three(three):
    return [("kafka-reassign-partitions and -leader-election", lambda: reassigned(three))]


def command(broker, main, *arguments, typed=None, fails=False):
    """What it prints; it must fail, or must not."""
    done = subprocess.run(
        [*java(main), "--bootstrap-server", broker.address, *arguments],
        input=typed, capture_output=True, text=True, timeout=60,
    )
    said = done.stdout + done.stderr
    assert (done.returncode != 0) == fails, f"{main} {arguments} ended with {done.returncode}:\n{said}"
    return said


def expect(said, *parts):
    for part in parts:
        assert part in said, f"no {part!r} in:\n{said}"


def topics(broker):
    create = ["--create", "--topic", "made", "--partitions", "2", "--replication-factor", "1"]
    expect(command(broker, TOPICS, *create), "Created topic made.")
    expect(command(broker, TOPICS, *create, fails=True), "the topic made exists")
    command(broker, TOPICS, "--alter", "--topic", "made", "--partitions", "3")
    described = command(broker, TOPICS, "--describe", "--topic", "made")
    expect(described, "PartitionCount: 3", "ReplicationFactor: 1", "Leader: 1")
    command(broker, TOPICS, "--delete", "--topic", "made")
    assert "made" not in command(broker, TOPICS, "--list").split()


def configs(broker):
    command(broker, TOPICS, "--create", "--topic", "set")
    of_topic = ["--entity-type", "topics", "--entity-name", "set"]
    command(broker, CONFIGS, "--alter", *of_topic, "--add-config", "retention.ms=1000,flush.messages=1")
    described = command(broker, CONFIGS, "--describe", *of_topic)
    expect(described, "retention.ms=1000", "flush.messages=1")
    command(broker, CONFIGS, "--alter", *of_topic, "--delete-config", "retention.ms")
    assert "retention.ms=1000" not in command(broker, CONFIGS, "--describe", *of_topic)
    everything = command(broker, CONFIGS, "--describe", "--all", *of_topic)
    expect(everything, "retention.ms=604800000", "cleanup.policy=delete", "DEFAULT_CONFIG")
    of_broker = ["--entity-type", "brokers", "--entity-name", "1"]
    expect(command(broker, CONFIGS, "--describe", "--all", *of_broker), "auto.create.topics.enable")


def groups(broker):
    lines = "".join(f"line {number}\n" for number in range(10))
    command(broker, PRODUCER, "--topic", "typed", typed=lines)
    read = ["--topic", "typed", "--group", "readers", "--from-beginning", "--max-messages"]
    assert sorted(command(broker, CONSUMER, *read, "10").splitlines()[:10]) == sorted(lines.splitlines())
    assert "readers" in command(broker, GROUPS, "--list").split()
    described = command(broker, GROUPS, "--describe", "--group", "readers")
    expect(described, "CURRENT-OFFSET", "typed")
    assert lag(described) == 0, described
    expect(command(broker, GROUPS, "--describe", "--group", "readers", "--state"), "Empty")
    reset = ["--reset-offsets", "--group", "readers", "--topic", "typed", "--to-earliest", "--execute"]
    command(broker, GROUPS, *reset)
    assert lag(command(broker, GROUPS, "--describe", "--group", "readers")) == 10
    command(broker, GROUPS, "--delete-offsets", "--group", "readers", "--topic", "typed")
    expect(command(broker, GROUPS, "--delete", "--group", "readers"), "was successful")
    assert "readers" not in command(broker, GROUPS, "--list").split()


def lag(described):
    rows = (line.split() for line in described.splitlines())
    return sum(int(row[5]) for row in rows if row[:2] == ["readers", "typed"])


def reassigned(three):
    """Each partition is led by the broker that is named first, and the tool sees that."""
    create = ["--create", "--topic", "reassigned", "--partitions", "3", "--replication-factor", "3"]
    command(three, TOPICS, *create)
    firsts = [[2, 1, 3], [2, 1, 3], [1, 2, 3]]
    plan = [
        {"topic": "reassigned", "partition": number, "replicas": replicas} for number, replicas in enumerate(firsts)
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"version": 1, "partitions": plan}, file)
        file.flush()
        of_file = ["--reassignment-json-file", file.name]
        expect(command(three, REASSIGN, "--execute", *of_file), "Successfully started partition reassignments")
        deadline = time.monotonic() + 30
        while "Leader: 2" not in (said := command(three, TOPICS, "--describe", "--topic", "reassigned")):
            assert time.monotonic() < deadline, said
        # Of the others the order is the brokers' own.
        verified = command(three, REASSIGN, "--verify", *of_file)
        expect(verified, "Reassignment of partition reassigned-2 is completed.", "Clearing topic-level throttles")
    expect(command(three, REASSIGN, "--list"), "No partition reassignments found.")
    leaders = [line.split("Leader: ")[1].split()[0] for line in said.splitlines() if "Leader: " in line]
    assert leaders == ["2", "2", "1"], said
    elect = ["--election-type", "preferred", "--all-topic-partitions"]
    command(three, ELECTION, *elect)


def places(broker):
    now = str(int(time.time() * 1000) + 3_600_000)
    for when, wanted in [("-1", 10), ("-2", 0)]:
        listed = command(broker, OFFSETS, "--topic", "typed", "--time", when).split()
        ends = [line.split(":") for line in listed if line.startswith("typed:")]
        assert sum(int(end) for _, _, end in ends) == wanted, listed
    command(broker, OFFSETS, "--topic", "typed", "--time", now)
    expect(command(broker, LOG_DIRS, "--describe", "--topic-list", "typed"), '"typed-0"', '"size"')


def refused(broker):
    """What a client is told of a setting that is not as in Kafka."""
    said = []
    for setting in ["compression.type=gzip", "no.such=1"]:
        create = ["--create", "--topic", "refused", "--config", setting]
        complaint = command(broker, TOPICS, *create, fails=True).strip().splitlines()[0]
        said.append(f"{setting}: {complaint}")
    create = ["--create", "--topic", "refused", "--replication-factor", "3"]
    said.append(command(broker, TOPICS, *create, fails=True).strip().splitlines()[0])
    return said
