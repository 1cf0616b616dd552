// KafkaJS, with what it needs for the compressions that it leaves to others.
const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require("kafkajs");
const LZ4 = require("kafkajs-lz4");
const Snappy = require("kafkajs-snappy");

CompressionCodecs[CompressionTypes.LZ4] = new LZ4().codec;
CompressionCodecs[CompressionTypes.Snappy] = Snappy;

const VALUE = " the same words again and again".repeat(8);
const say = (...words) => console.log(words.join(" "));
const sleep = (ms) => new Promise((wake) => setTimeout(wake, ms));
const connect = (address) =>
  new Kafka({ brokers: address.split(","), logLevel: logLevel.WARN, retry: { retries: 30, maxRetryTime: 2000 } });

const verbs = {
  async produce(address, topic, compression, first, count, paceMs) {
    const producer = connect(address).producer({ idempotent: true, maxInFlightRequests: 1 });
    await producer.connect();
    const name = { none: "None", gzip: "GZIP", snappy: "Snappy", lz4: "LZ4" }[compression];
    for (let number = Number(first); number < Number(first) + Number(count); number++) {
      const headers = { story: "told" };
      const messages = [{ key: `k${number % 20}`, value: `${number}${VALUE}`, headers }];
      const sent = await producer.send({ topic, compression: CompressionTypes[name], messages });
      for (const { partition, baseOffset } of sent) say("acked", partition, baseOffset, number);
      await sleep(Number(paceMs));
    }
    await producer.disconnect();
  },

  async consume(address, topic, groupId) {
    // It says that it lives between fetches only, so these are short.
    const often = { heartbeatInterval: 300, sessionTimeout: 6000, maxWaitTimeInMs: 300 };
    const consumer = connect(address).consumer({ groupId, ...often });
    const { GROUP_JOIN, REBALANCING } = consumer.events;
    consumer.on(GROUP_JOIN, ({ payload }) => {
      say("owns", ...(payload.memberAssignment[topic] || []).sort());
    });
    consumer.on(REBALANCING, () => say("owns"));
    process.on("SIGTERM", async () => {
      await consumer.disconnect();
      process.exit(0);
    });
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    const eachBatch = async ({ batch, resolveOffset, commitOffsetsIfNecessary, heartbeat }) => {
      for (const message of batch.messages) {
        tell(batch.partition, message);
        resolveOffset(message.offset);
      }
      await commitOffsetsIfNecessary();
      await heartbeat();
    };
    await consumer.run({ autoCommitThreshold: 1, eachBatch });
  },

  // Goes on whatever it is told, and says it.
  async endure(address, topic, kind, paceMs) {
    const producer = connect(address).producer({ idempotent: kind === "idempotent", maxInFlightRequests: 1 });
    // It does not wait until there is a controller.
    while (!(await producer.connect().then(() => true, () => false))) await sleep(200);
    let stopping = false;
    process.on("SIGTERM", () => (stopping = true));
    for (let number = 0; !stopping; number++) {
      const messages = [{ key: `k${number % 20}`, value: `${number}${VALUE}`, headers: { story: "told" } }];
      try {
        const sent = await producer.send({ topic, acks: -1, messages });
        for (const { partition, baseOffset } of sent) say("acked", partition, baseOffset, number);
      } catch (why) {
        say("failed", number, why);
      }
      await sleep(Number(paceMs));
    }
    await producer.disconnect();
    process.exit(0);
  },

  // Reads whatever happens, and says what it is told. In groups only: `none` is one of its own.
  async watch(address, topic, group) {
    const groupId = group === "none" ? `none-${topic}-${process.pid}` : group;
    const often = { heartbeatInterval: 300, sessionTimeout: 6000, maxWaitTimeInMs: 300 };
    const consumer = connect(address).consumer({ groupId, ...often });
    consumer.on(consumer.events.CRASH, ({ payload }) => say("shown", "crash:", payload.error, "restarts:", payload.restart));
    process.on("SIGTERM", async () => {
      await consumer.disconnect();
      process.exit(0);
    });
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    const eachMessage = async ({ partition, message }) => tell(partition, message);
    await consumer.run({ autoCommitThreshold: 1, eachMessage });
  },

  // It reads in groups only.
  async read(address, topic) {
    const kafka = connect(address);
    const admin = kafka.admin();
    await admin.connect();
    const ends = await admin.fetchTopicOffsets(topic);
    let left = ends.reduce((sum, { high }) => sum + Number(high), 0);
    const consumer = kafka.consumer({ groupId: `reads-${topic}-${process.pid}` });
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    const eachMessage = async ({ partition, message }) => {
      tell(partition, message);
      left -= 1;
    };
    await consumer.run({ eachMessage });
    while (left > 0) await sleep(50);
    await consumer.disconnect();
    await admin.disconnect();
  },

  async "offset-at"(address, topic, ms) {
    const admin = connect(address).admin();
    await admin.connect();
    for (const { partition, offset } of await admin.fetchTopicOffsetsByTimestamp(topic, Number(ms))) {
      say("at", partition, offset);
    }
    await admin.disconnect();
  },

  async unknown(address, topic) {
    const kafka = new Kafka({ brokers: address.split(","), logLevel: logLevel.NOTHING, retry: { retries: 1 } });
    const producer = kafka.producer({ allowAutoTopicCreation: false });
    await producer.connect();
    await producer.send({ topic, messages: [{ value: "1" }] }).catch((why) => say("refused", why));
    await producer.disconnect();
  },

  async transact(address) {
    const kafka = new Kafka({ brokers: address.split(","), logLevel: logLevel.NOTHING, retry: { retries: 1 } });
    const producer = kafka.producer({ transactionalId: "first", maxInFlightRequests: 1, idempotent: true });
    await producer.connect().catch((why) => say("refused", why));
    await producer.transaction().catch((why) => say("refused", why));
    process.exit(0);
  },
};

function tell(partition, { offset, key, value, headers }) {
  const told = Object.entries(headers).map(([name, value]) => `${name}=${value}`);
  say("read", partition, offset, key, told.join(","), value.toString().split(" ")[0]);
}

const [verb, ...values] = process.argv.slice(2);
verbs[verb](...values);
