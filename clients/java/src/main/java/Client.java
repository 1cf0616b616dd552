import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

/** Kafka's own client. */
public class Client {
    static final String VALUE = " the same words again and again".repeat(8);

    static synchronized void say(Object... words) {
        System.out.println(Arrays.stream(words).map(String::valueOf).collect(Collectors.joining(" ")));
        System.out.flush();
    }

    static KafkaProducer<String, String> producer(String address, String... more) {
        var settings = settings(address, more);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String address, String... more) {
        var settings = settings(address, more);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static Map<String, Object> settings(String address, String... more) {
        var settings = new HashMap<String, Object>();
        settings.put("bootstrap.servers", address);
        for (int i = 0; i < more.length; i += 2) settings.put(more[i], more[i + 1]);
        return settings;
    }

    static void produce(String address, String topic, String compression, int first, int count, int paceMs)
            throws InterruptedException {
        try (var producer = producer(address, "compression.type", compression)) {
            for (int i = first; i < first + count; i++) {
                int number = i;
                var story = new RecordHeader("story", "told".getBytes());
                var record = new ProducerRecord<>(
                        topic, null, "k" + number % 20, number + VALUE, List.of(story));
                producer.send(record, (at, error) -> {
                    if (error == null) {
                        say("acked", at.partition(), at.offset(), number);
                    } else {
                        System.err.println(error);
                        Runtime.getRuntime().halt(1);
                    }
                });
                Thread.sleep(paceMs);
            }
        }
    }

    static void tell(ConsumerRecord<String, String> record) {
        var headers = StreamSupport.stream(record.headers().spliterator(), false)
                .map(header -> header.key() + "=" + new String(header.value()))
                .collect(Collectors.joining(","));
        var number = record.value().split(" ")[0];
        say("read", record.partition(), record.offset(), record.key(), headers, number);
    }

    static void consume(String address, String topic, String group, String strategy)
            throws InterruptedException {
        var assignor = strategy.equals("eager") ? "RangeAssignor" : "CooperativeStickyAssignor";
        var consumer = consumer(address, "group.id", group,
                "partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor,
                "auto.offset.reset", "earliest", "enable.auto.commit", "false",
                "heartbeat.interval.ms", "300", "session.timeout.ms", "6000");
        atEnd(Thread.currentThread(), consumer::wakeup);
        var owned = new TreeSet<Integer>();
        var listener = new ConsumerRebalanceListener() {
            public void onPartitionsAssigned(Collection<TopicPartition> gained) {
                gained.forEach(partition -> owned.add(partition.partition()));
                say("owns", owned.stream().map(String::valueOf).collect(Collectors.joining(" ")));
            }

            public void onPartitionsRevoked(Collection<TopicPartition> lost) {
                lost.forEach(partition -> owned.remove(partition.partition()));
                say("owns", owned.stream().map(String::valueOf).collect(Collectors.joining(" ")));
            }
        };
        try (consumer) {
            consumer.subscribe(List.of(topic), listener);
            while (true) {
                var records = consumer.poll(Duration.ofMillis(100));
                records.forEach(Client::tell);
                try {
                    if (!records.isEmpty()) consumer.commitSync();
                } catch (CommitFailedException | RetriableCommitFailedException why) {
                    System.err.println("not committed: " + why);
                }
            }
        } catch (WakeupException stopped) {
        }
    }

    /** Goes on whatever it is told, and says it. */
    static void endure(String address, String topic, String kind, int paceMs) throws InterruptedException {
        var stopping = new java.util.concurrent.atomic.AtomicBoolean();
        var producer = producer(address, "enable.idempotence", String.valueOf(kind.equals("idempotent")));
        atEnd(Thread.currentThread(), () -> stopping.set(true));
        for (int i = 0; !stopping.get(); i++) {
            int number = i;
            try {
                var story = new RecordHeader("story", "told".getBytes());
                var record = new ProducerRecord<>(topic, null, "k" + number % 20, number + VALUE, List.of(story));
                producer.send(record, (at, error) -> {
                    if (error == null) {
                        say("acked", at.partition(), at.offset(), number);
                    } else {
                        say("failed", number, error);
                    }
                });
            } catch (KafkaException why) {
                say("failed", number, "at once:", why);
            }
            Thread.sleep(paceMs);
        }
        producer.close();
    }

    /** Reads whatever happens, in a group or in none, and says what it is told. */
    static void watch(String address, String topic, String group) throws InterruptedException {
        var isAlone = group.equals("none");
        var settings = new ArrayList<>(List.of("auto.offset.reset", "earliest", "enable.auto.commit", "false"));
        if (!isAlone) settings.addAll(List.of("group.id", group, "session.timeout.ms", "6000"));
        var consumer = consumer(address, settings.toArray(String[]::new));
        atEnd(Thread.currentThread(), consumer::wakeup);
        if (isAlone) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
        } else {
            consumer.subscribe(List.of(topic));
        }
        try (consumer) {
            while (true) {
                try {
                    var records = consumer.poll(Duration.ofMillis(100));
                    records.forEach(Client::tell);
                    if (!isAlone && !records.isEmpty()) consumer.commitSync();
                } catch (WakeupException stopped) {
                    throw stopped;
                } catch (KafkaException why) {
                    say("shown", why);
                    Thread.sleep(100);
                }
            }
        } catch (WakeupException stopped) {
        }
    }

    /** Once it is asked to end: this, then it waits for the thread. */
    static void atEnd(Thread main, Runnable ends) {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            ends.run();
            try {
                main.join();
            } catch (InterruptedException ignored) {
            }
            Runtime.getRuntime().halt(0);
        }));
    }

    static List<TopicPartition> partitions(KafkaConsumer<String, String> consumer, String topic) {
        return consumer.partitionsFor(topic).stream()
                .map(partition -> new TopicPartition(topic, partition.partition())).toList();
    }

    static void read(String address, String topic) {
        try (var consumer = consumer(address)) {
            var partitions = partitions(consumer, topic);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long left = consumer.endOffsets(partitions).values().stream().mapToLong(end -> end).sum();
            while (left > 0) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    tell(record);
                    left--;
                }
            }
        }
    }

    static void offsetAt(String address, String topic, long ms) {
        try (var consumer = consumer(address)) {
            var asked = partitions(consumer, topic).stream().collect(Collectors.toMap(p -> p, p -> ms));
            consumer.offsetsForTimes(asked).forEach((partition, found) ->
                    say("at", partition.partition(), found == null ? -1 : found.offset()));
        }
    }

    static void unknown(String address, String topic) throws InterruptedException {
        try (var producer = producer(address, "max.block.ms", "3000")) {
            producer.send(new ProducerRecord<>(topic, "1")).get();
        } catch (ExecutionException why) {
            say("refused", why.getCause());
        }
    }

    static void transact(String address) {
        try (var producer = producer(address, "transactional.id", "first")) {
            producer.initTransactions();
        } catch (KafkaException why) {
            say("refused", why);
        }
    }

    public static void main(String[] a) throws Exception {
        switch (a[0]) {
            case "produce" -> produce(a[1], a[2], a[3], Integer.parseInt(a[4]), Integer.parseInt(a[5]),
                    Integer.parseInt(a[6]));
            case "consume" -> consume(a[1], a[2], a[3], a[4]);
            case "endure" -> endure(a[1], a[2], a[3], Integer.parseInt(a[4]));
            case "watch" -> watch(a[1], a[2], a[3]);
            case "read" -> read(a[1], a[2]);
            case "offset-at" -> offsetAt(a[1], a[2], Long.parseLong(a[3]));
            case "unknown" -> unknown(a[1], a[2]);
            case "transact" -> transact(a[1]);
        }
    }
}
