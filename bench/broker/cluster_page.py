"""The page of three brokers beside three of Kafka: goals, what was measured, and what was not."""

from cluster_servers import Etcds, Kafkas, Natses, Plimsolls, Redises
from page import Found, figure, spread, times

NAMES = {"plimsoll": "Plimsoll, three", "kafka": "Kafka, three", "alone": "Plimsoll, one", "redis": "Redis, two that follow",
         "nats": "NATS JetStream, R3", "etcd": "etcd, three"}
AWAY = [f"{when}_{column}" for when in ("quiet", "guarded", "back") for column in ("p50_us", "p99_us", "p999_us")]
# Cell, what it is, the column that is compared, and others.
ROWS = [
    ("one", "one producer", "p50_us", ["p99_us", "p999_us", "records_per_s", "cpu_us"]),
    ("producers", "64 producers, one partition", "records_per_s", ["p50_us", "p99_us", "cpu_us"]),
    ("over-64", "64 producers, 64 partitions", "records_per_s", ["p50_us", "p99_us", "cpu_us"]),
    ("over-1000", "64 producers, 1,000 partitions", "records_per_s", ["p50_us", "p99_us", "cpu_us", "create_s", "touch_s"]),
    ("one-durable", "one producer, flush.messages=1", "p50_us", ["p99_us", "records_per_s", "cpu_us"]),
    ("durable", "64 producers, one partition, flush.messages=1", "records_per_s", ["p50_us", "p99_us", "cpu_us"]),
    ("durable-1000", "64 producers, 1,000 partitions, flush.messages=1", "records_per_s", ["p50_us", "p99_us", "cpu_us"]),
    ("handed-over", "planned hand-over", "gap_ms", ["quiet_gap_ms", "hand_over_ms", "refused"]),
    ("killed", "the leader killed (-9)", "gap_ms", ["quiet_gap_ms", "refused", "whole_s"]),
    ("slow-leader", "10,000 records/s, the leader's syncs 100 ms longer", "delayed_p999_us",
     ["delayed_p50_us", "delayed_longest_us", "traced_p50_us", "traced_p999_us", "traced_longest_us"]),
    ("slow-follower", "10,000 records/s, a follower's syncs 100 ms longer", "delayed_p999_us",
     ["delayed_p50_us", "delayed_longest_us", "traced_p50_us", "traced_p999_us", "traced_longest_us"]),
    ("back", "a node back without its memory, 1.5 GB missing", "votes_s", AWAY),
    ("catches-up", "a node back without its memory, 10 GiB missing", "votes_s", AWAY),
    *(row for delay in ("0.2", "2") for row in [
        (f"one@{delay}", f"one producer, {delay} ms", "p50_us", ["p99_us", "records_per_s", "round_trip_ms"]),
        (f"producers@{delay}", f"64 producers, one partition, {delay} ms", "records_per_s", ["p50_us", "p99_us", "cpu_us", "round_trip_ms"]),
        (f"over-64@{delay}", f"64 producers, 64 partitions, {delay} ms", "records_per_s", ["p50_us", "p99_us", "cpu_us", "round_trip_ms"]),
        (f"over-1000@{delay}", f"64 producers, 1,000 partitions, {delay} ms", "records_per_s", ["p50_us", "p99_us", "cpu_us", "round_trip_ms"]),
        (f"durable@{delay}", f"64 producers, one partition, flush.messages=1, {delay} ms", "records_per_s", ["p50_us", "p99_us", "round_trip_ms"]),
        (f"durable-1000@{delay}", f"64 producers, 1,000 partitions, flush.messages=1, {delay} ms", "records_per_s", ["p50_us", "p99_us", "round_trip_ms"]),
        (f"killed@{delay}", f"the leader is killed, {delay} ms", "gap_ms", ["quiet_gap_ms", "refused", "whole_s"]),
        (f"handed-over@{delay}", f"a planned hand-over, {delay} ms", "gap_ms", ["quiet_gap_ms", "refused", "hand_over_ms"]),
    ]),
    ("memory", "memory, all three", "thousand_mib", ["idle_mib", "hundred_thousand_mib", "idle_cores"]),
]
UNITS = {
    "records_per_s": "records/s", "cpu_us": "CPU a record, all brokers", "p50_us": "p50", "p99_us": "p99", "p999_us": "p99.9",
    "create_s": "to make the topic", "touch_s": "a first record to each", "gap_ms": "longest gap",
    "quiet_gap_ms": "longest before it", "hand_over_ms": "whole command", "refused": "records refused to it",
    "whole_s": "until all three are whole again", "thousand_mib": "with 1,000 partitions", "idle_mib": "idle",
    "delayed_p999_us": "p99.9", "delayed_p50_us": "p50", "delayed_longest_us": "longest", "traced_p50_us": "not longer: p50",
    "traced_p999_us": "not longer: p99.9", "traced_longest_us": "not longer: longest", "round_trip_ms": "round trip as measured",
    "hundred_thousand_mib": "with 100,000 partitions", "idle_cores": "cores, idle", "votes_s": "until it votes",
    **{f"{when}_{column}_us": f"{said}: {name}"
       for when, said in [("quiet", "10,000 records/s, all well"), ("guarded", "while it is away"), ("back", "while it comes back")]
       for column, name in [("p50", "p50"), ("p99", "p99"), ("p999", "p99.9")]},
}
NOT_MEASURED = """* With a slow disk: Kafka.
* Iggy `replicated`, whose server comes as source or image only.
"""


def said(column, value):
    if value is not None and column.endswith("_ms"):
        return figure("ms_us", value * 1000) if value < 1000 else f"{value / 1000:.2f} s"
    return figure(column, value)


def spread_of(column, values):
    """As the other page has it; what is in ms has no figure there."""
    if not column.endswith("_ms"):
        return spread(column, values)
    if not values:
        return "–"
    ordered = sorted(values.values())
    middle = said(column, ordered[len(ordered) // 2])
    return middle if len(ordered) == 1 else f"{middle} ({said(column, ordered[0])}–{said(column, ordered[-1])})"


def table(found):
    data, lines = Found(found["trials"]), []
    for cell, what, column, others in ROWS:
        there = [server for server in NAMES if data.values(cell, server, column)]
        for server in there:
            told = [f"{UNITS[other]} {spread_of(other, data.values(cell, server, other))}" for other in others
                    if data.values(cell, server, other)]
            main = f"{spread_of(column, data.values(cell, server, column))} {UNITS[column]}"
            lines.append(f"| {what if server == there[0] else ''} | {NAMES[server]} | {main} | {'; '.join(told)} |")
        for trial in found["trials"]:
            if trial["cell"] == cell and "failed" in trial:
                why = " ".join(trial["failed"].split()).replace("|", "/")
                lines.append(f"| {what} | {NAMES[trial['server']]} | failed, round {trial['round']} | {why} |")
    return "\n".join(["| load | brokers | measured | and |", "| --- | --- | --- | --- |", *lines])


def goals(found):
    """Each goal with ours, Kafka's, their ratio, and whether it is met."""
    data, lines = Found(found["trials"]), ["| what | goal | ours | Kafka's | ratio | |", "| --- | --- | --- | --- | --- | --- |"]

    def row(what, goal, cell, column, met, to="kafka", of="plimsoll", to_cell=None):
        ratio = data.ratio(cell, column, to=to, of=of, to_cell=to_cell)
        ours = data.median(cell, of, column)
        theirs = data.median(to_cell or cell, to, column) if to else None
        is_met = "not measured" if ours is None else "met" if met(ours, ratio and ratio[1]) else "**not met**"
        lines.append(f"| {what} | {goal} | {said(column, ours)} | {said(column, theirs)} | {times(ratio)} | {is_met} |")

    def at_most(bound):
        return lambda _, ratio: ratio is not None and ratio <= bound

    def at_least(bound):
        return lambda _, ratio: ratio is not None and ratio >= bound

    for column, name in [("p50_us", "p50"), ("p99_us", "p99")]:
        row(f"one producer, {name}", "≤ 0.5 of Kafka's", "one", column, at_most(0.5))
    spread = [("producers", "one partition"), ("over-64", "64 partitions"), ("over-1000", "1,000 partitions")]
    for cell, what in spread:
        row(f"64 producers, {what}: records/s", "≥ 2 × Kafka's", cell, "records_per_s", at_least(2))
        row("p99", "≤ 0.5 of Kafka's", cell, "p99_us", at_most(0.5))
        row("CPU of all brokers a record", "≤ 1/3 of Kafka's", cell, "cpu_us", at_most(1 / 3))
    durable = [("durable", "64 producers, one partition"), ("durable-1000", "64 producers, 1,000 partitions")]
    for cell, what in durable:
        row(f"{what}, flush.messages=1: records/s", "≥ 3 × Kafka's", cell, "records_per_s", at_least(3))
    row("three replicas against one of our own (in Kafka's column): records/s", "≥ 0.45 of it", "producers",
        "records_per_s", at_least(0.45), to="alone")
    def gaps(where="", at=""):
        row(f"{where}leader killed: longest gap", "≤ 1 s, ≤ 1/3 of Kafka's", f"killed{at}", "gap_ms",
            lambda ours, ratio: ours <= 1000 and ratio is not None and ratio <= 1 / 3)
        row(f"{where}planned hand-over: longest gap", "≤ 50 ms", f"handed-over{at}", "gap_ms", lambda ours, _: ours <= 50)

    gaps()
    for delay in ("0.2", "2"):
        for column, name in [("p50_us", "p50"), ("p99_us", "p99")]:
            row(f"{delay} ms between nodes: one producer, {name}", "≤ 0.5 of Kafka's", f"one@{delay}", column, at_most(0.5))
        for cell, what in spread:
            row(f"{delay} ms: 64 producers, {what}: records/s", "≥ 2 × Kafka's", f"{cell}@{delay}", "records_per_s", at_least(2))
            row(f"{delay} ms: p99", "≤ 0.5 of Kafka's", f"{cell}@{delay}", "p99_us", at_most(0.5))
            row(f"{delay} ms: CPU of all brokers a record", "≤ 1/3 of Kafka's", f"{cell}@{delay}", "cpu_us", at_most(1 / 3))
        for cell, what in durable:
            row(f"{delay} ms: {what}, flush.messages=1: records/s", "≥ 3 × Kafka's", f"{cell}@{delay}", "records_per_s", at_least(3))
        gaps(f"{delay} ms: ", f"@{delay}")
    for cell, whose in [("slow-leader", "the leader's"), ("slow-follower", "a follower's")]:
        slow, quiet = data.median(cell, "plimsoll", "delayed_p999_us"), data.median(cell, "plimsoll", "traced_p999_us")
        is_met = "not measured" if slow is None else "met" if slow <= 2 * quiet else "**not met**"
        lines.append(f"| 10,000 records/s, {whose} syncs 100 ms longer: p99.9 | ≤ 2 × the quiet one (in Kafka's column) | "
                     f"{figure('p_us', slow)} | {figure('p_us', quiet)} | "
                     f"{'–' if slow is None else f'{slow / quiet:.2f} ×'} | {is_met} |")
    for cell, what, column, name in [("back", "30 s of 50 MB/s", "p99_us", "p99"), ("catches-up", "10 GiB", "p999_us", "p99.9")]:
        quiet, back = (data.median(cell, "plimsoll", f"{when}_{column}") for when in ("quiet", "back"))
        is_met = "not measured" if back is None else "met" if back <= 2 * quiet else "**not met**"
        lines.append(f"| 10,000 records/s while a node comes back that lacks {what}: {name} | ≤ 2 × the quiet one (in Kafka's column) | "
                     f"{figure('p_us', back)} | {figure('p_us', quiet)} | "
                     f"{'–' if back is None else f'{back / quiet:.2f} ×'} | {is_met} |")
    row("until it votes, 30 s of 50 MB/s missing", "≤ 5 s", "back", "votes_s", lambda ours, _: ours <= 5, to=None)
    row("memory of three, 1,000 partitions", "≤ 1/6 of Kafka's", "memory", "thousand_mib", at_most(1 / 6))
    row("memory of three, 100,000 partitions", "≤ 1 GiB", "memory", "hundred_thousand_mib", lambda ours, _: ours <= 1024)
    return "\n".join(lines)


def page(found, notes):
    about = found["conditions"]
    return f"""# Three brokers beside three of Kafka

Rendered by `bench/broker/cluster` from `bench/results/cluster.json` and `cluster.notes.md`; do not edit. One command reruns it:
`just cluster-field`.

{about['date']} · {about['cpus']} CPUs of {about['model']} · {about['disk']} · Linux {about['kernel']} · commit `{about['commit']}` ·
Kafka {about['kafka']} ({about['java']}) · franz-go 1.22.2 ({about['go']}) · load average before it {about['load_before']:.2f} · it took
{about.get('minutes', 0):.0f} minutes

All brokers, three and three, and their clients are on this one machine, on loopback: three replicas share its CPUs and one disk. Kafka has
three nodes that are controllers and brokers both (KRaft), each with a heap of 1 GiB, `min.insync.replicas=2`; its topics have three
replicas. Ours have three, as all topics of a cluster of three have, and take a majority, which is two. Producers ask for acks=all and are
idempotent (franz-go's defaults); no linger, no compression, records of {100} bytes, one in flight a producer; each producer is a client
with connections of its own. A partition was written to once before it is measured.

{about['rounds']} rounds of {about['seconds']} s a trial behind a first second. In a round each kind of brokers comes once, with all its loads, and
the order turns; the others stand still meanwhile, stopped by a signal. Kafka was
warmed for {about['warm']} s, ours for a tenth of that. Once a kind goes on, it is waited until all
replicas are in sync and lead where they are preferred, and ten seconds more for ours, which waits for disks so long after a node was
away. Each trial has a topic of its own, which is deleted behind it. A figure is the median of the rounds, with the
least and the most in brackets; ratios are taken round by round.

An acknowledgement (acks=all) promises: Plimsoll: {Plimsolls.promise}. Kafka: {Kafkas.promise}. With `flush.messages=1` a majority of
ours, and those in sync of Kafka's, sync first. Redis (XADD, and WAIT for one in the same bytes; a client of a few lines): {Redises.promise}; it asks
no consensus, and who takes over may lack what was acknowledged. NATS JetStream (nats.go, a stream of three replicas): {Natses.promise}. etcd (its Go
client, a key for each producer): {Etcds.promise}.

A *gap* is the longest time from one acknowledgement to the next that one producer saw, of those that ended after the command for a hand-over or the
kill was given; its client asks again each 10 ms, not each 5 s as by default. Kafka's hand-over: another replica is made the preferred one and elected.
Ours: `plimsoll cluster move`; the whole command is its process, too. A broker that is killed is the one that leads the partition; it may lead more, in either cluster.

With a *delay* each node is in a network namespace of its own, and a relay in user space carries packets between them, and to the clients, half
a round trip later; it takes of the same CPUs, and a round trip is as long as was measured. A *slow disk*: strace has each sync of one node take 100 ms longer, and
costs much by itself: the quiet one is under it too, without the delay.

## What had to be reached

{goals(found)}

{notes}
## Not measured

{NOT_MEASURED}
## What was measured

{table(found)}
"""
