"""Kafka's own commands, as an operator types them."""

import subprocess
import time

from client import java

TOOLS = "org.apache.kafka.tools."
TOPICS = TOOLS + "TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = TOOLS + "consumer.group.ConsumerGroupCommand"
OFFSETS = TOOLS + "GetOffsetShell"
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
