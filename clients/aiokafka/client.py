"""aiokafka: asyncio."""

import asyncio
import signal
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError

VALUE = " the same words again and again" * 8


def say(*words):
    print(*words, flush=True)


async def produce(address, topic, compression, first, count, pace_ms):
    producer = AIOKafkaProducer(
        bootstrap_servers=address,
        enable_idempotence=True,
        compression_type=None if compression == "none" else compression,
    )

    async def acked(sent, number):
        at = await sent
        say("acked", at.partition, at.offset, number)

    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with producer:
        waiting = []
        for number in range(int(first), int(first) + int(count)):
            if stopping.is_set():
                break
            key, value = f"k{number % 20}".encode(), f"{number}{VALUE}".encode()
            sent = await producer.send(topic, value, key=key, headers=[("story", b"told")])
            waiting.append(asyncio.create_task(acked(sent, number)))
            await asyncio.sleep(int(pace_ms) / 1000)
        await asyncio.gather(*waiting)


def tell(message):
    headers = ",".join(f"{name}={value.decode()}" for name, value in message.headers)
    number = message.value.split()[0].decode()
    say("read", message.partition, message.offset, message.key.decode(), headers, number)


class Owned(ConsumerRebalanceListener):
    async def on_partitions_assigned(self, assigned):
        say("owns", *sorted(partition.partition for partition in assigned))

    async def on_partitions_revoked(self, _):
        say("owns")


async def consume(address, topic, group, _strategy):
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=(RoundRobinPartitionAssignor,),
        heartbeat_interval_ms=300,
        session_timeout_ms=6000,
    )
    consumer.subscribe([topic], listener=Owned())
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with consumer:
        while not stopping.is_set():
            polled = await consumer.getmany(timeout_ms=100)
            for messages in polled.values():
                for message in messages:
                    tell(message)
            if polled:
                try:
                    await consumer.commit()
                except KafkaError as why:
                    print("not committed:", why, file=sys.stderr)


async def endure(address, topic, kind, pace_ms):
    """Goes on whatever it is told, and says it."""
    producer = AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=kind == "idempotent", acks="all")

    async def told(sent, number):
        try:
            at = await sent
            say("acked", at.partition, at.offset, number)
        except KafkaError as why:
            say("failed", number, repr(why))

    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with producer:
        waiting, number = [], 0
        while not stopping.is_set():
            try:
                key, value = f"k{number % 20}".encode(), f"{number}{VALUE}".encode()
                sent = await producer.send(topic, value, key=key, headers=[("story", b"told")])
                waiting.append(asyncio.create_task(told(sent, number)))
            except KafkaError as why:
                say("failed", number, "at once:", repr(why))
            number += 1
            await asyncio.sleep(int(pace_ms) / 1000)
        await asyncio.gather(*waiting)


async def watch(address, topic, group):
    """Reads whatever happens, in a group or in none, and says what it is told."""
    group = None if group == "none" else group
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
    )
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with consumer:
        while not stopping.is_set():
            try:
                polled = await consumer.getmany(timeout_ms=100)
            except KafkaError as why:
                say("shown", repr(why))
                continue
            for messages in polled.values():
                for message in messages:
                    tell(message)
            if polled and group is not None:
                try:
                    await consumer.commit()
                except KafkaError as why:
                    say("shown", "not committed:", repr(why))


def all_of(address, topic):
    """In no group: it has every partition, from its beginning on."""
    return AIOKafkaConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest")


async def read(address, topic):
    async with all_of(address, topic) as consumer:
        left = sum((await consumer.end_offsets(consumer.assignment())).values())
        while left > 0:
            for messages in (await consumer.getmany(timeout_ms=1000)).values():
                for message in messages:
                    tell(message)
                    left -= 1


async def offset_at(address, topic, ms):
    async with all_of(address, topic) as consumer:
        asked = {partition: int(ms) for partition in consumer.assignment()}
        for partition, found in (await consumer.offsets_for_times(asked)).items():
            say("at", partition.partition, -1 if found is None else found.offset)


async def unknown(address, topic):
    async with AIOKafkaProducer(bootstrap_servers=address, request_timeout_ms=3000) as producer:
        try:
            await producer.send_and_wait(topic, b"1")
        except KafkaError as why:
            say("refused", repr(why))


async def transact(address):
    producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id="first")
    try:
        await producer.start()
    except KafkaError as why:
        say("refused", repr(why))
    await producer.stop()


verb, *arguments = sys.argv[1:]
asyncio.run(globals()[verb.replace("-", "_")](*arguments))
