"""librdkafka in Python: confluent_kafka."""

import signal
import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

VALUE = " the same words again and again" * 8


def say(*words):
    print(*words, flush=True)


def produce(address, topic, compression, first, count, pace_ms, idempotent="true"):
    producer = Producer({
        "bootstrap.servers": address,
        "enable.idempotence": idempotent,
        "compression.type": compression,
        "topic.metadata.refresh.interval.ms": 1000,
        "reconnect.backoff.max.ms": 500,
    })

    def acked(error, message):
        if error is not None:
            sys.exit(f"not delivered: {error}")
        say("acked", message.partition(), message.offset(), message.value().split()[0].decode())

    for number in range(int(first), int(first) + int(count)):
        if stopping:
            break
        value = f"{number}{VALUE}"
        headers = [("story", b"told")]
        producer.produce(topic, value, key=f"k{number % 20}", headers=headers, on_delivery=acked)
        producer.poll(int(pace_ms) / 1000)
    producer.flush()


def tell(message):
    headers = ",".join(f"{name}={value.decode()}" for name, value in message.headers() or [])
    number = message.value().split()[0].decode()
    say("read", message.partition(), message.offset(), message.key().decode(), headers, number)


def consume(address, topic, group, strategy):
    consumer = Consumer({
        "bootstrap.servers": address,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": "range" if strategy == "eager" else "cooperative-sticky",
        "heartbeat.interval.ms": 300,
        "session.timeout.ms": 6000,
        "topic.metadata.refresh.interval.ms": 1000,
    })
    owned = set()

    def changed(partitions, taken):
        for partition in partitions:
            (owned.add if taken else owned.discard)(partition.partition)
        say("owns", *sorted(owned))

    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: changed(partitions, True),
        on_revoke=lambda _, partitions: changed(partitions, False),
        on_lost=lambda _, partitions: changed(partitions, False),
    )
    while not stopping:
        messages = [m for m in consumer.consume(100, 0.1) if m.error() is None]
        for message in messages:
            tell(message)
        if messages:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as why:
                print("not committed:", why, file=sys.stderr)
    consumer.close()


def endure(address, topic, kind, pace_ms):
    """Goes on whatever it is told, and says it."""
    producer = Producer({
        "bootstrap.servers": address,
        "enable.idempotence": kind == "idempotent",
        "topic.metadata.refresh.interval.ms": 1000,
        "error_cb": lambda error: say("shown", "error_cb:", error) if error.fatal() else None,
    })

    def told(error, message):
        number = message.value().split()[0].decode()
        if error is None:
            say("acked", message.partition(), message.offset(), number)
        else:
            say("failed", number, error)

    number = 0
    while not stopping:
        try:
            key, value, headers = f"k{number % 20}", f"{number}{VALUE}", [("story", b"told")]
            producer.produce(topic, value, key=key, headers=headers, on_delivery=told)
        except KafkaException as why:
            say("failed", number, "at once:", why)
        number += 1
        try:
            producer.poll(int(pace_ms) / 1000)
        except KafkaException as why:
            say("shown", "poll:", why)
    producer.flush()


def watch(address, topic, group):
    """Reads whatever happens, in a group or in none, and says what it is told."""
    consumer = Consumer({
        "bootstrap.servers": address,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        "topic.metadata.refresh.interval.ms": 1000,
    })
    if group == "none":
        consumer.assign([TopicPartition(topic, 0, 0)])
    else:
        consumer.subscribe([topic])
    while not stopping:
        messages = consumer.consume(100, 0.1)
        for message in messages:
            if message.error() is not None:
                say("shown", message.error())
            else:
                tell(message)
        if messages and group != "none":
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as why:
                say("shown", "not committed:", why)
    consumer.close()


def read(address, topic):
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none"})
    ends = {}
    for partition in consumer.list_topics(topic).topics[topic].partitions:
        _, ends[partition] = consumer.get_watermark_offsets(TopicPartition(topic, partition))
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    left = sum(ends.values())
    while left:
        for message in consumer.consume(left, 1):
            tell(message)
            left -= 1
    consumer.close()


def committed(address, topic, group):
    """Asked again and again, of a group that others are in."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    asked = [TopicPartition(topic, partition) for partition in partitions]
    while not stopping:
        try:
            there = consumer.committed(asked, timeout=2)
        except KafkaException:
            continue  # It is being started.
        if not any(partition.error for partition in there):
            say("committed", *(max(partition.offset, 0) for partition in there))
        time.sleep(0.1)
    consumer.close()


def offset_at(address, topic, ms):
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none"})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    asked = [TopicPartition(topic, partition, int(ms)) for partition in partitions]
    for found in consumer.offsets_for_times(asked, timeout=10):
        say("at", found.partition, found.offset)


def unknown(address, topic):
    producer = Producer({
        "bootstrap.servers": address,
        "topic.metadata.propagation.max.ms": 1000,
    })
    producer.produce(topic, "1", on_delivery=lambda error, _: say("refused", error))
    producer.flush(10)


def transact(address):
    producer = Producer({"bootstrap.servers": address, "transactional.id": "first"})
    try:
        producer.init_transactions(20)
    except KafkaException as why:
        say("refused", why)


stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
verb, *arguments = sys.argv[1:]
globals()[verb.replace("-", "_")](*arguments)
