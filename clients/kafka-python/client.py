"""kafka-python."""

import signal
import sys
import time

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError

VALUE = " the same words again and again" * 8


def say(*words):
    print(*words, flush=True)


def produce(address, topic, compression, first, count, pace_ms):
    producer = KafkaProducer(
        bootstrap_servers=address,
        enable_idempotence=True,
        compression_type=None if compression == "none" else compression,
    )
    waiting = []
    for number in range(int(first), int(first) + int(count)):
        if stopping:
            break
        key, value = f"k{number % 20}".encode(), f"{number}{VALUE}".encode()
        sent = producer.send(topic, value, key=key, headers=[("story", b"told")])
        sent.add_callback(lambda at, number=number: say("acked", at.partition, at.offset, number))
        waiting.append(sent)
        time.sleep(int(pace_ms) / 1000)
    producer.flush()
    for sent in waiting:
        sent.get(1)
    producer.close()


def tell(message):
    headers = ",".join(f"{name}={value.decode()}" for name, value in message.headers)
    number = message.value.split()[0].decode()
    say("read", message.partition, message.offset, message.key.decode(), headers, number)


class Owned(ConsumerRebalanceListener):
    def __init__(self):
        self.owned = set()

    def on_partitions_assigned(self, assigned):
        self.owned |= {partition.partition for partition in assigned}
        say("owns", *sorted(self.owned))

    def on_partitions_revoked(self, revoked):
        self.owned -= {partition.partition for partition in revoked}
        say("owns", *sorted(self.owned))

    on_partitions_lost = on_partitions_revoked


def consume(address, topic, group, strategy):
    is_eager = strategy == "eager"
    assignor = RangePartitionAssignor if is_eager else CooperativeStickyAssignor
    consumer = KafkaConsumer(
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[assignor],
        heartbeat_interval_ms=300,
        session_timeout_ms=6000,
    )
    consumer.subscribe([topic], listener=Owned())
    while not stopping:
        try:
            polled = consumer.poll(100)
        except KafkaError as why:
            # Of a broker that is gone at this moment: it comes again.
            print("not polled:", why, file=sys.stderr)
            continue
        for messages in polled.values():
            for message in messages:
                tell(message)
        if polled:
            try:
                consumer.commit()
            except KafkaError as why:
                print("not committed:", why, file=sys.stderr)
    consumer.close()


def endure(address, topic, kind, pace_ms):
    """Goes on whatever it is told, and says it."""
    producer = KafkaProducer(bootstrap_servers=address, enable_idempotence=kind == "idempotent", acks="all")
    number = 0
    while not stopping:
        try:
            key, value = f"k{number % 20}".encode(), f"{number}{VALUE}".encode()
            sent = producer.send(topic, value, key=key, headers=[("story", b"told")])
            sent.add_callback(lambda at, number=number: say("acked", at.partition, at.offset, number))
            sent.add_errback(lambda why, number=number: say("failed", number, repr(why)))
        except KafkaError as why:
            say("failed", number, "at once:", repr(why))
        number += 1
        time.sleep(int(pace_ms) / 1000)
    producer.flush()
    producer.close()


def watch(address, topic, group):
    """Reads whatever happens, in a group or in none, and says what it is told."""
    group = None if group == "none" else group
    consumer = KafkaConsumer(
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
    )
    if group is None:
        consumer.assign([TopicPartition(topic, 0)])
    else:
        consumer.subscribe([topic])
    while not stopping:
        try:
            polled = consumer.poll(100)
        except KafkaError as why:
            say("shown", repr(why))
            continue
        for messages in polled.values():
            for message in messages:
                tell(message)
        if polled and group is not None:
            try:
                consumer.commit()
            except KafkaError as why:
                say("shown", "not committed:", repr(why))
    consumer.close()


def partitions_of(consumer, topic):
    return [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]


def read(address, topic):
    consumer = KafkaConsumer(bootstrap_servers=address)
    partitions = partitions_of(consumer, topic)
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    left = sum(consumer.end_offsets(partitions).values())
    while left > 0:
        for messages in consumer.poll(1000).values():
            for message in messages:
                tell(message)
                left -= 1
    consumer.close()


def offset_at(address, topic, ms):
    consumer = KafkaConsumer(bootstrap_servers=address)
    asked = {partition: int(ms) for partition in partitions_of(consumer, topic)}
    for partition, found in consumer.offsets_for_times(asked).items():
        say("at", partition.partition, -1 if found is None else found.offset)


def unknown(address, topic):
    producer = KafkaProducer(bootstrap_servers=address, max_block_ms=3000)
    try:
        producer.send(topic, b"1").get(10)
    except KafkaError as why:
        say("refused", repr(why))


def transact(address):
    producer = KafkaProducer(bootstrap_servers=address, transactional_id="first")
    try:
        producer.init_transactions()
    except KafkaError as why:
        say("refused", repr(why))
    producer.close(0)


stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
verb, *arguments = sys.argv[1:]
globals()[verb.replace("-", "_")](*arguments)
