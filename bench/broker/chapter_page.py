"""The page of what was measured of chapters: goals, and all that was found."""

from page import UNITS, Found, figure, times
from servers import Kafka, Plimsoll

NAMES = {"plimsoll": "Plimsoll", "kafka": "Kafka", "with": "with chapters", "without": "without"}
MORE_UNITS = {
    "readers_mb_per_s": "MB/s of the readers",
    "readers_ended": "readers at their end",
    "beside_p50_us": "beside readers p50",
    "beside_p99_us": "beside readers p99",
    "beside_records_per_s": "beside readers records/s",
    "ms_a_partition": "ms a partition",
    "bytes_a_partition": "bytes a partition",
    "written_per_byte": "bytes written for each that lives",
    "write_mib": "written",
    "cancelled_mib": "of that truncated before it was written",
    "live_mib": "live",
    "chapters": "chapters that ended in it",
    "fill_records_per_s": "written before, at records/s",
}
# Cell, what it is, the column that is compared, and others.
ROWS = [
    ("producing", "64 workers, one partition", "records_per_s", ["p50_us", "p99_us", "p999_us", "cores", "chapters"]),
    ("producing-1000", "the same, 1,000 partitions", "records_per_s", ["p50_us", "p99_us", "p999_us", "cores", "chapters"]),
    ("one-of-1", "one partition, all of its topic", "mb_per_s", ["cores"]),
    ("one-of-100", "one partition of 100", "mb_per_s", ["cores"]),
    ("one-of-10000", "one of very many, one after the other", "mb_per_s", ["ms_a_partition", "bytes_a_partition", "cores"]),
    ("group", "all 1,000 partitions, a group of two", "mb_per_s", ["cores"]),
    ("behind", "64 writers, 64 partitions", "p99_us",
     ["p50_us", "records_per_s", "beside_p99_us", "beside_p50_us", "beside_records_per_s", "readers_mb_per_s", "readers_ended"]),
    ("behind-paced", "20,000 records/s", "p99_us",
     ["p50_us", "beside_p99_us", "beside_p50_us", "readers_mb_per_s", "readers_ended"]),
    ("written", "written once, and settled", "written_per_byte", ["write_mib", "cancelled_mib", "live_mib"]),
]


def page(found, said):
    about = found["conditions"]
    return f"""# Chapters beside Kafka

Rendered by `bench/broker/chapters` from `bench/results/chapters.json` and `chapters.notes.md`; do not edit. One command reruns it:
`just chapters-field`, as root.

{about['date']} · {about['cpus']} CPUs of {about['model']}, {about['memory_gib']} GiB · {about['filesystem']} · Linux {about['kernel']} · commit `{about['commit']}`
· Kafka {about['kafka']} (KRaft, one node, a heap of 1 GiB, {about['java']}) · franz-go 1.22.2 ({about['go']})

{about['rounds']} rounds, servers by turns; while one is measured the other is stopped by a signal. Records of 1 KiB that cannot be compressed,
acks=all. A topic that is read has {about['gib']:g} GiB, written evenly over its partitions at once; ours is settled in chapters before
anything is read (`--chapter-age 5s`, chapters of 512 MiB), and both are on the disk. **Cold**: `sync` and `drop_caches` come before each
trial, of both. Each server was measured once before, which does not count. A trial with producers takes {about['seconds']} s behind a first
second (beside readers half as long, with half as much again to read). A figure is the median of the rounds, with the least and the most in brackets; ratios are taken round by round. Clients run
on the same CPUs as the server.

An acknowledgement promises: Plimsoll: {Plimsoll.promise}. Kafka: {Kafka.promise}.

## What had to be reached

{goals(found)}

{said}
## What was measured

{table(found)}
{books(found)}"""


def table(found):
    data, lines = Found(found["trials"]), ["| load | server | measured | and |", "| --- | --- | --- | --- |"]
    units = UNITS | MORE_UNITS
    for cell, what, column, others in ROWS:
        trials = [trial for trial in found["trials"] if trial["cell"] == cell]
        servers = list(dict.fromkeys(trial["server"] for trial in trials))
        for server in sorted(servers, key=list(NAMES).index):
            values = {other: data.values(cell, server, other) for other in [column, *others]}
            name = what if server == min(servers, key=list(NAMES).index) else ""
            if values[column]:
                told = [f"{units[other]} {spread(other, values[other])}" for other in others if values[other]]
                lines.append(f"| {name} | {NAMES[server]} | {spread(column, values[column])} {units[column]} | {'; '.join(told)} |")
            failed = [trial["failed"] for trial in trials if trial["server"] == server and "failed" in trial]
            lines += [f"| {name} | {NAMES[server]} | failed | {why.replace('|', '/')} |" for why in dict.fromkeys(failed)]
    return "\n".join(lines)


def spread(column, values):
    values = spread_of(values)
    if column in ("written_per_byte", "ms_a_partition"):
        least, middle, most = (f"{value:.2f}" for value in values)
    else:
        least, middle, most = (figure(column, value) for value in values)
    return middle if least == most else f"{middle} ({least}–{most})"


def books(found):
    trials = [trial for trial in found["trials"] if trial["cell"] == "books" and "cold" in trial]
    if not trials:
        return ""
    lines = ["", f"{trials[0]['partitions']:,} partitions in {trials[0]['chapters']} chapters (`chapter_figures`): a batch of each in each, and one "
             f"partition that is in one alone; {trials[0]['cold']['file_mib']:,} MiB in {trials[0]['cold']['files']} files.", "",
             "| | cold | warm |", "| --- | --- | --- |"]
    of = [trials[0][how] for how in ("cold", "warm")]
    row = lambda what, figure: lines.append(f"| {what} | {figure(of[0])} | {figure(of[1])} |")
    row("the shelf opens in", lambda each: f"{each['open_s']:.2f} s")
    row("calls that read, meanwhile", lambda each: f"{each['open_reads']:,}")
    row("read from the disk, meanwhile", lambda each: f"{each['open_disk_bytes'] >> 20:,} MiB")
    row("resident then (at most)", lambda each: f"{each['rss_mib']:,} MiB ({each['rss_most_mib']:,})")
    for name, what in (("quiet", "of the partition that is in one chapter"), ("busy", "of one that is in all")):
        fetch = lambda each: each[f"{name}_fetch"]
        row(f"a fetch {what}", lambda each: f"{fetch(each)['reads']} reads, {fetch(each)['disk_bytes'] >> 10} KiB from the disk, "
            f"{fetch(each)['ms']:.2f} ms")
    return "\n".join([*lines, ""])


def goals(found):
    """Each goal, what was measured, and whether it is met."""
    data, rows = Found(found["trials"]), ["| what | must | measured | |", "| --- | --- | --- | --- |"]

    def row(what, must, measured, met):
        rows.append(f"| {what} | {must} | {measured} | {'–' if met is None else 'met' if met else '**not met**'} |")

    def holds(ratio, bound, is_most=False):
        if ratio is None:
            return None
        return ratio[1] <= bound if is_most else ratio[1] >= bound

    def both(*held):
        return None if None in held else all(held)

    for cell, over in (("producing", "one partition"), ("producing-1000", "1,000 partitions")):
        rate = data.ratio(cell, "records_per_s", to="without", of="with")
        late = data.ratio(cell, "p999_us", to="without", of="with")
        ended = data.median(cell, "with", "chapters")
        row(f"producing to {over} while chapters settle", "≥ 0.85 of the records/s without, p99.9 ≤ 2 ×",
            f"{times(rate)}, p99.9 {times(late)}", both(holds(rate, 0.85), holds(late, 2, is_most=True), bool(ended) or None))
    for cell, of, bound in (("one-of-1", "1", 0.9), ("one-of-100", "100", 0.9)):
        rate = data.ratio(cell, "mb_per_s")
        row(f"catch-up of one partition of {of}, cold", f"≥ {bound} × Kafka's bytes/s", times(rate), holds(rate, bound))
    rate = data.ratio("one-of-10000", "mb_per_s")
    row(f"catch-up of one partition of {found['conditions']['many']:,}, cold", "≥ 0.5 × Kafka's bytes/s", times(rate), holds(rate, 0.5))
    rate = data.ratio("group", "mb_per_s")
    row("catch-up of all 1,000 partitions by one group, cold", "≥ 1.0 × Kafka's bytes/s", times(rate), holds(rate, 1))
    for cell, writers in (("behind", "64 writers in front"), ("behind-paced", "20,000 records/s in front")):
        late = spread_of(data.values(cell, "plimsoll", "p99_ratio"))
        theirs = spread_of(data.values(cell, "kafka", "p99_ratio"))
        row(f"20 readers behind, {writers}", "the writers' p99 ≤ 1.5 × theirs alone", f"{times(late)}; Kafka's {times(theirs)}",
            holds(late, 1.5, is_most=True))
    written = spread_of(data.values("written", "plimsoll", "written_per_byte"))
    row("written for each byte that lives past its chapter", "≤ 2.1", times(written).replace(" ×", ""), holds(written, 2.1, is_most=True))
    for trial in (trial for trial in found["trials"] if trial["cell"] == "books" and "cold" in trial):
        cold, runs = trial["cold"], f"{trial['partitions']:,} partitions in {trial['chapters']} chapters"
        row(f"{runs}: the shelf opens, cold", "≤ 1 s", f"{cold['open_s']:.2f} s", cold["open_s"] <= 1)
        row("the same: resident", "≤ 256 MiB", f"{cold['rss_mib']:,} MiB", cold["rss_mib"] <= 256)
        reads = cold["quiet_fetch"]["reads"]
        row("the same: a fetch of a quiet partition, cold", "≤ 3 reads", f"{reads} reads", reads <= 3)
    return "\n".join(rows)


def ended(data, cell):
    """A warning, where readers had nothing left to read before the writers ended."""
    servers = [server for server in ("plimsoll", "kafka") if data.median(cell, server, "readers_ended")]
    return "".join(f"; {NAMES[server]}'s readers came to their end before" for server in servers)


def spread_of(values):
    """Least, median and most; None if there are none."""
    values = sorted(values.values())
    return (values[0], (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2, values[-1]) if values else None
