"""The page of what was measured: medians of the rounds, with the least and the most; ratios are taken round by round."""

import os
from statistics import median

from servers import Kafka, Plimsoll

NAMES = {
    "plimsoll": "Plimsoll", "kafka": "Kafka", "echo": "echo server",
    "redis-everysec": "Redis Streams, everysec", "redis-always": "Redis Streams, always",
    "nats-2m": "NATS JetStream, synced each 2 min", "nats-always": "NATS JetStream, always",
}
# Cell, what it is, the column that is compared, and others.
ROWS = [
    ("one", "one producer (franz-go)", "p50_us", ["p99_us", "records_per_s", "cpu_us"]),
    ("bare-1", "one bare connection", "p50_us", ["p99_us", "requests_per_s"]),
    ("workers", "64 workers of one client, one partition", "records_per_s", ["p50_us", "p99_us", "cpu_us"]),
    ("over-1000", "the same, 1,000 partitions", "records_per_s", ["first_second", "p99_us", "cpu_us", "create_s"]),
    ("over-10000", "the same, 10,000 partitions", "records_per_s", ["first_second", "p99_us", "cpu_us", "create_s"]),
    ("kafka-10000", "the same, in a broker of its own", "records_per_s", ["first_second", "p99_us", "cpu_us", "create_s"]),
    ("clients", "64 clients, a connection each", "records_per_s", ["p50_us", "p99_us", "cpu_us"]),
    ("bare-64", "64 bare connections", "requests_per_s", ["p50_us", "p99_us", "cores"]),
    ("durable", "64 clients, flush.messages=1", "records_per_s", ["p50_us", "p99_us", "cpu_us"]),
    ("kcat-1KiB", "kcat (librdkafka), linger 5 ms, 1 KiB", "records_per_s", ["cpu_us"]),
    ("kcat-100B", "kcat (librdkafka), linger 5 ms, 100 B", "records_per_s", ["cpu_us"]),
    ("follow", "1 GiB read while it is produced", "mb_per_s", ["cores"]),
    ("read", "1 GiB read behind the tail, cached", "mb_per_s", ["first_mb_per_s", "cores"]),
    ("through", "produced to consumed, 1,000 records/s", "p50_us", ["p99_us", "p999_us", "cores"]),
    ("paced", "20,000 records/s", "p50_us", ["p99_us", "p999_us", "longest_us"]),
    ("paced-writes", "20,000 records/s beside random writes", "p50_us", ["p99_us", "p999_us", "longest_us"]),
    ("others", "64 connections, each server's own client, acknowledged before it is synced", "requests_per_s", ["cores"]),
    ("others-durable", "the same, synced before it is acknowledged", "requests_per_s", ["cores"]),
]
UNITS = {
    "records_per_s": "records/s",
    "requests_per_s": "requests/s",
    "first_second": "in the first second",
    "cpu_us": "CPU a record",
    "cores": "cores",
    "mb_per_s": "MB/s",
    "first_mb_per_s": "MB/s the first time",
    "create_s": "to make the topic",
    "p50_us": "p50",
    "p99_us": "p99",
    "p999_us": "p99.9",
    "longest_us": "longest",
}


class Found:
    def __init__(self, trials):
        self.trials = trials

    def values(self, cell, server, column):
        """By round."""
        return {
            trial["round"]: trial[column]
            for trial in self.trials
            if (trial["cell"], trial["server"]) == (cell, server) and column in trial
        }

    def median(self, cell, server, column):
        values = self.values(cell, server, column)
        return median(values.values()) if values else None

    def ratio(self, cell, column, to="kafka", of="plimsoll", to_cell=None):
        """Least, median and most of the rounds' ratios; None if there are none."""
        ours, theirs = self.values(cell, of, column), self.values(to_cell or cell, to, column)
        ratios = sorted(ours[at] / theirs[at] for at in ours.keys() & theirs.keys() if theirs[at])
        return (ratios[0], median(ratios), ratios[-1]) if ratios else None


def figure(column, value):
    if value is None:
        return "–"
    if column.endswith("_us"):
        return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.3g} µs"
    if column in ("cores",):
        return f"{value:.2f}"
    if column.endswith("_s") and column != "records_per_s" and "per_s" not in column:
        return f"{value:.2f} s"
    if column.endswith("mib"):
        return f"{value:,.0f} MiB"
    return f"{value:,.0f}"


def spread(column, values):
    if not values:
        return "–"
    values = list(values.values())
    middle = figure(column, median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({figure(column, min(values))}–{figure(column, max(values))})"


def times(ratio):
    return "–" if ratio is None else f"{ratio[1]:.2f} × ({ratio[0]:.2f}–{ratio[2]:.2f})"


def table(found):
    data, lines = Found(found["trials"]), []
    for cell, what, column, others in ROWS:
        there = [server for server in NAMES if data.values(cell, server, column)]
        for server in there:
            told = [f"{UNITS[other]} {spread(other, data.values(cell, server, other))}" for other in others
                    if data.values(cell, server, other)]
            main = f"{spread(column, data.values(cell, server, column))} {UNITS[column]}"
            lines.append(f"| {what if server == there[0] else ''} | {NAMES[server]} | {main} | {'; '.join(told)} |")
        failed = [trial for trial in found["trials"] if trial["cell"] == cell and "failed" in trial]
        lines += [f"| | {NAMES[trial['server']]} | failed | {trial['failed']} |" for trial in failed]
    return "\n".join(["| load | server | measured | and |", "| --- | --- | --- | --- |", *lines])


def once(found):
    """What is measured once: memory, and starts."""
    lines = ["| what | Plimsoll | Kafka |", "| --- | --- | --- |"]
    words = {
        "idle_mib": "resident, idle", "idle_cores": "cores, idle",
        "thousand_mib": "resident, 1,000 partitions, each with records",
        "hundred_thousand_mib": "resident, 100,000 partitions",
        "empty_s": "ready, new directory",
        "after_stop_s": "ready after a clean stop (100,000 partitions; Kafka: 1,000)",
        "after_kill_s": "ready after kill -9 with 10 GiB",
    }
    trials = {(trial["cell"], trial["server"]): trial for trial in found["trials"]}
    for column, what in words.items():
        cell = "memory" if column.endswith(("mib", "cores")) else "starts"
        name = "cores" if column == "idle_cores" else column
        of = [trials.get((cell, server), {}).get(column) for server in ("plimsoll", "kafka")]
        lines.append(f"| {what} | {figure(name, of[0])} | {figure(name, of[1])} |")
    return "\n".join(lines)


def goals(found):
    """Each goal, what was measured, and whether it is met."""
    data = Found(found["trials"])
    single = {(trial["cell"], trial["server"]): trial for trial in found["trials"] if trial["round"] == 0}

    def at_most(ratio, bound):
        return ratio is not None and ratio[1] <= bound

    def at_least(ratio, bound):
        return ratio is not None and ratio[1] >= bound

    rows = []

    def row(what, must, measured, met):
        rows.append(f"| {what} | {must} | {measured} | {'met' if met else '**not met**'} |")

    p50, p99 = data.ratio("one", "p50_us"), data.ratio("one", "p99_us")
    floor = data.ratio("bare-1", "p50_us", "echo")
    row("one producer, acks=all", "p50 and p99 ≤ 0.5 of Kafka's", f"p50 {times(p50)}, p99 {times(p99)}",
        at_most(p50, 0.5) and at_most(p99, 0.5))
    row("one bare connection", "p50 ≤ 1.7 × the echo server's", times(floor), at_most(floor, 1.7))
    rate, p99, cpu = (data.ratio("workers", column) for column in ("records_per_s", "p99_us", "cpu_us"))
    row("64 workers of one client, one partition", "≥ 1.5 × Kafka's records/s, ≤ 0.5 its p99, ≤ 1/3 its CPU a record",
        f"{times(rate)}, p99 {times(p99)}, CPU {times(cpu)}",
        at_least(rate, 1.5) and at_most(p99, 0.5) and at_most(cpu, 1 / 3))
    own = data.ratio("over-1000", "records_per_s", "plimsoll", to_cell="workers")
    rate = data.ratio("over-1000", "records_per_s")
    row("over 1,000 partitions", "≥ 0.8 of our own with one; ≥ 4 × Kafka's", f"{times(own)} our own; {times(rate)} Kafka's",
        at_least(own, 0.8) and at_least(rate, 4))
    own = data.ratio("over-10000", "records_per_s", "plimsoll", to_cell="workers")
    theirs = figure("records_per_s", data.median("kafka-10000", "kafka", "records_per_s"))
    row("over 10,000 partitions", "≥ 0.7 of our own with one",
        f"{times(own)} our own; Kafka's: {theirs} records/s behind its first second", at_least(own, 0.7))
    rate = data.ratio("clients", "records_per_s")
    row("64 clients, a connection each", "≥ 3 × Kafka's records/s", times(rate), at_least(rate, 3))
    rate = data.ratio("bare-64", "requests_per_s", "echo")
    row("64 bare connections", "≥ 0.75 of the echo server's requests/s", times(rate), at_least(rate, 0.75))
    rate = data.ratio("durable", "records_per_s")
    redis = data.ratio("others-durable", "requests_per_s", "redis-always")
    row("64 producers, flush.messages=1", "≥ 4 × Kafka's records/s; ≥ Redis' with `appendfsync always`",
        f"{times(rate)}; bare clients: {times(redis)} Redis'", at_least(rate, 4) and at_least(redis, 1))
    for cell, bytes_each in (("kcat-1KiB", "1 KiB"), ("kcat-100B", "100 B")):
        rate, cpu = data.ratio(cell, "records_per_s"), data.ratio(cell, "cpu_us")
        row(f"librdkafka, linger 5 ms, {bytes_each}", "≥ Kafka's records/s at ≤ half its CPU",
            f"{times(rate)}, CPU {times(cpu)}", at_least(rate, 1) and at_most(cpu, 0.5))
    rate = data.ratio("follow", "mb_per_s")
    row("1 GiB read at the tail", "≥ 1.3 × Kafka's bytes/s", times(rate), at_least(rate, 1.3))
    rate = data.ratio("read", "mb_per_s")
    row("1 GiB read behind it, cached", "≥ 1.0 × Kafka's bytes/s", times(rate), at_least(rate, 1))
    p50, p99 = data.ratio("through", "p50_us"), data.ratio("through", "p99_us")
    row("produced to consumed", "p50 ≤ 0.7, p99 ≤ 0.5 of Kafka's", f"p50 {times(p50)}, p99 {times(p99)}",
        at_most(p50, 0.7) and at_most(p99, 0.5))
    p999 = data.ratio("paced-writes", "p999_us", "plimsoll", to_cell="paced")
    longest = data.median("paced-writes", "plimsoll", "longest_us")
    row("20,000 records/s beside random writes", "p99.9 ≤ 2 × the quiet one; none over 5 ms",
        f"{times(p999)}, longest {figure('longest_us', longest)}",
        at_most(p999, 2) and longest is not None and longest <= 5000)
    of = single.get(("slow-syncs", "plimsoll"), {})
    slow, quiet = of.get("delayed_p999_us"), of.get("traced_p999_us")
    row("20,000 records/s, each sync 100 ms longer", "p99.9 ≤ 2 × the quiet one",
        f"{figure('p999_us', slow)}, longest {figure('longest_us', of.get('delayed_longest_us'))}; without the delay, under the "
        f"same tracer, {figure('p999_us', quiet)}, longest {figure('longest_us', of.get('traced_longest_us'))}",
        slow is not None and quiet is not None and slow <= 2 * quiet)
    of = single.get(("memory", "plimsoll"), {})
    sizes = [of.get(column) for column in ("idle_mib", "thousand_mib", "hundred_thousand_mib")]
    row("memory: idle, 1,000, 100,000 partitions", "≤ 30, 64, 256 MiB",
        ", ".join(figure("mib", size) for size in sizes),
        all(size is not None and size <= bound for size, bound in zip(sizes, (30, 64, 256))))
    of = single.get(("starts", "plimsoll"), {})
    took = [of.get(column) for column in ("after_stop_s", "after_kill_s")]
    row("ready: clean stop with 100,000 partitions; kill -9 with 10 GiB", "≤ 1 s; ≤ 2 s",
        ", ".join(figure("after_s", each) for each in took),
        all(each is not None and each <= bound for each, bound in zip(took, (1, 2))))
    return "\n".join(["| what | must | measured | |", "| --- | --- | --- | --- |", *rows])


def render(found, notes, path):
    """The page; `notes` is what a person says of it."""
    about = found["conditions"]
    with open(notes, encoding="utf-8") as file:
        said = file.read()
    text = f"""# The broker beside Kafka

Rendered by `bench/broker/run` from `bench/results/broker.json` and `broker.notes.md`; do not edit. One command reruns it:
`just broker-field`.

{about['date']} · {about['cpus']} CPUs of {about['model']} · Linux {about['kernel']} · commit `{about['commit']}` · Kafka {about['kafka']}
(KRaft, one node, a heap of 1 GiB, {about['java']}) · franz-go 1.22.2 ({about['go']}) · kcat {about['kcat']}

{about['rounds']} rounds (some cells fewer) of {about['seconds']} s a trial behind a first second, servers by turns, each trial in a topic of
its own; while one is measured the others are stopped by a signal. Both were warmed. A record is 1 KiB unless said. A figure is the median of
the rounds, with the least and the most in brackets; ratios are taken round by round. Clients run on the same CPUs as the server.

An acknowledgement (acks=all) promises: Plimsoll: {Plimsoll.promise}. Kafka: {Kafka.promise}. With `flush.messages=1` both sync first.

## What had to be reached

{goals(found)}

{said}
## What was measured

{table(found)}

{once(found)}
"""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)
