#!/usr/bin/env python3
"""Serves what a power cut left of `chapters_workload.py`, reads all of it, and holds it against what was said.

Before that it has every chapter verified without a broker, and prints how many there are, and how many of the
records that it read were in one. It appends a record to each topic, stops the broker in order, and notes in
{dir}/checked what it read: the next check of the same disk wants all of that, and nothing that was gone. Where
PLIMSOLL_CHECKS names a file, what it met goes there as a line of JSON.

plimsoll disk explore trace/ --check 'examples/broker/chapters_check.py {dir}'
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from served import Served
from settling import KEEP_LITTLE, RETENTION_BYTES, SERVE, TOPICS

directory = sys.argv[1]
plimsoll = os.environ.get("PLIMSOLL", "plimsoll")
data = os.path.join(directory, "broker")
marks = [line.split() for line in pathlib.Path(os.environ["PLIMSOLL_MARKS"]).read_text().splitlines()]
notes = pathlib.Path(directory, "checked")
# Of earlier checks: how many marks there were, and what was read of each topic that stays.
earlier = json.loads(notes.read_text()) if notes.exists() else {"marks": 0, "records": {}}
wrong = []
promised, kept, gone, settled_records = 0, 0, 0, 0

Record = collections.namedtuple("Record", "value key")


def expect(is_so, what):
    if not is_so:
        wrong.append(what)


def said(word, topic, since=0):
    return [words[2:] for words in marks[since:] if words[:2] == [word, topic]]


def most(word, topic, otherwise=0):
    return max((int(words[0]) for words in said(word, topic)), default=otherwise)


def ask(*command, otherwise=None):
    """What it prints; nothing where it refuses with these words."""
    done = subprocess.run([plimsoll, *command], capture_output=True, text=True)
    if otherwise and re.search(otherwise, done.stderr):
        return ""
    if done.returncode != 0:
        print(f"{' '.join(command[:2])}: {done.stdout[-300:].strip()} {done.stderr.strip()}")
        sys.exit(1)
    return done.stdout


def records(lines):
    """Offset to record, as it was read."""
    found = {}
    for line in lines.splitlines():
        line = json.loads(line)
        expect(line["offset"] > max(found, default=-1), f"offset {line['offset']} is read out of order, or twice")
        value = line["value"]
        found[line["offset"]] = Record(None if value is None else value.split()[0], line["key"])
    return found


def settled():
    """How many chapters there are, in how many files, and of how many shards the log has let go of some; looked at
    without a broker. All of the chapters are verified."""
    before_the_first = "there are no chapters"
    if not os.path.isdir(data) or not ask("chapter", "verify", data, otherwise=before_the_first):
        return 0, 0, 0
    shards = json.loads(ask("chapter", "list", data, "--json"))["shards"]
    logs = [sorted(pathlib.Path(data, f"shard-{shard['shard']}").glob("*.seg")) for shard in shards]
    shorter = sum(int(log[0].stem) > 1 for log in logs if log)
    return sum(shard["settled"]["chapter"] for shard in shards), sum(len(shard["files"]) for shard in shards), shorter


def cat(topic):
    """What is settled of a topic, read without a broker."""
    nothing = "nothing of partition|no topic .* is known"
    return records(ask("chapter", "cat", data, "--topic", topic, "--partition", "0", "--json", otherwise=nothing))


def consume(topic):
    """All of a topic, and what was said of its partition before and behind that: retention may take some meanwhile."""
    before = served.partition(topic)
    while True:
        lines = ask("consume", topic, "--broker", served.address, "--json", otherwise="offset out of range")
        if lines:
            return records(lines), before, served.partition(topic)


def append(topic):
    """A record of our own, behind all others: whoever has read that has read all."""
    value = f"check-{time.time_ns()}"
    line = f"check={value}\n"
    done = subprocess.run([plimsoll, "produce", topic, "--broker", served.address, "--key-separator", "="],
                          input=line, capture_output=True, text=True)
    expect(done.returncode == 0, f"{topic} takes no record: {done.stderr.strip()}")
    return value


def is_named(record, value):
    """Whether a record is the one of which that was said: a tombstone has no name of its own."""
    return record.value == value or (record.value is None and value.endswith("-gone"))


def check_names(topic, found):
    """No offset names another record than it did, and no record has two offsets."""
    known = collections.defaultdict(set)
    for offset, value, *_ in said("acked", topic):
        known[int(offset)].add(value)
    for offset, (value, _) in earlier["records"].get(topic, {}).items():
        if value is not None:
            known[int(offset)].add(value)
    places = collections.Counter()
    for offset, values in known.items():
        expect(len(values) == 1, f"offset {offset} of {topic} names {sorted(values)}")
        record = found.get(offset)
        expect(record is None or any(is_named(record, value) for value in values),
               f"offset {offset} of {topic} names {record and record.value}, and {sorted(values)}")
        places.update(value for value in values if offset not in found)
    places.update(record.value for record in found.values() if record.value is not None)
    twice = [value for value, count in places.items() if count > 1]
    expect(not twice, f"{twice[:3]} of {topic} are at two offsets")


def check_kept(topic, found, partition):
    """What was promised and is not deleted is there; a fence covers what is not."""
    global promised, kept, gone
    since, start = earlier["marks"], partition["start"]
    is_durable = TOPICS[topic][1]
    acked = {int(words[0]): words[1:] for words in said("acked", topic, since) if int(words[0]) >= start}
    durable = most("durable", topic)
    must = {offset for offset in acked if is_durable or offset < durable}
    read = {int(offset): Record(*record) for offset, record in earlier["records"].get(topic, {}).items()}
    must |= {offset for offset in read if offset >= start}
    if topic == "keyed":
        keys = {offset: words[1] for offset, words in acked.items()} | {o: r.key for o, r in read.items()}
        must = newest(must, keys, acked, read, found)
    promised += len(must)
    kept += len(must & set(found))
    missing = acked.keys() - set(found) if topic != "keyed" else set()
    gone += len(missing)
    gaps = [(gap["from"], gap["to"]) for gap in partition["gaps"]]
    for offset in missing:
        expect(any(begin <= offset < end for begin, end in gaps), f"no fence at {offset} of {topic}")
    expect(not missing or served.verdict.startswith("records may be lost"),
           f"{len(missing)} of {topic} are gone: {served.verdict}")
    for begin, end in gaps:
        inside = [offset for offset in found if begin <= offset < end]
        expect(not inside, f"{inside} of {topic} are in a gap, {begin} to {end}")
        expect(not begin < durable < end, f"{durable} of {topic} was durable, a gap begins at {begin}")
    back = [offset for offset in found if read and offset <= max(read) and offset not in read]
    expect(not back, f"{back[:3]} of {topic} were gone, and are back")


def newest(must, keys, acked, read, found):
    """Of each key the newest that was promised, unless a newer one is there, or it is a tombstone: that may go."""
    last = {}
    for offset in sorted(must):
        last[keys[offset]] = offset
    there = {}
    for offset in sorted(found):
        there[found[offset].key] = offset
    stay = set()
    for key, offset in last.items():
        is_tombstone = acked[offset][0].endswith("-gone") if offset in acked else read[offset].value is None
        behind = there.get(key, -1)
        if is_tombstone and behind <= offset:
            expect(behind in (-1, offset), f"a record of {key} is at {behind}, its tombstone was at {offset}")
        elif behind <= offset:
            stay.add(offset)
    return stay


def check_deleted(topic, found, partition):
    start = partition["start"]
    expect(all(offset >= start for offset in found), f"records of {topic} below its start, {start}")
    trimmed, asked = most("trimmed", topic), most("trimming", topic)
    if topic in KEEP_LITTLE:
        expect(start == 0 or partition["bytes"] >= RETENTION_BYTES, f"{partition['bytes']} bytes of {topic} are left")
    else:
        expect(trimmed <= start <= asked, f"{topic} begins at {start}; {trimmed} was acknowledged, {asked} asked for")


def check_fleeting(is_there):
    """Of a topic that was deleted and made again there is the newest, whole, and nothing of those before."""
    global promised, kept
    topic = "fleeting"
    deleted, made, asked = most("deleted", topic), most("made", topic), most("deleting", topic)
    expect(is_there or made <= asked, f"{topic} was made the {made}th time, and is not there")
    expect(not is_there or most("making", topic) > deleted, f"{topic} was deleted the {deleted}th time, and is there")
    if not is_there:
        return
    number, of = 0, {}
    for words in marks:
        if words[:2] == ["making", topic]:
            number = int(words[2])
        elif words[:2] == ["acked", topic]:
            of[words[3]] = (number, int(words[2]))
    found = records(ask("consume", topic, "--broker", served.address, "--json"))
    numbers = {of[record.value][0] for record in found.values() if record.value in of}
    expect(len(numbers) <= 1 and all(number > deleted for number in numbers), f"records of {numbers}, {deleted} was deleted")
    if made > asked:
        must = {offset for number, offset in of.values() if number == made}
        promised += len(must)
        kept += len(must & set(found))


chapters, files, shorter = settled()
in_chapters = {topic: cat(topic) for topic in TOPICS if chapters}
served = Served(directory, *SERVE)
there = served.topics()
read = {}
for topic, (_, is_durable) in TOPICS.items():
    if topic == "fleeting":
        continue
    expect(topic in there or not said("acked", topic), f"there is no topic {topic}")
    if topic not in there:
        continue
    value = append(topic)
    found, before, partition = consume(topic)
    expect(found and found[max(found)].value == value, f"{value} was acknowledged last in {topic}, and is not read last")
    check_names(topic, found)
    check_kept(topic, found, partition)
    check_deleted(topic, found, before)
    # What is settled may have been deleted or compacted since; what is there says the same.
    of = in_chapters.get(topic, {})
    settled_records += len(of.keys() & found.keys())
    other = [offset for offset in of.keys() & found.keys() if of[offset] != found[offset]]
    expect(not other, f"{other[:3]} of {topic} are others in their chapter")
    read[topic] = found
check_fleeting("fleeting" in there)
expect(served.stop() == 0, "not all could be made durable")
with open(notes, "w") as file:
    json.dump({"marks": len(marks), "records": read}, file)
    file.flush()
    os.fsync(file.fileno())
if "PLIMSOLL_CHECKS" in os.environ:
    met = {"chapters": chapters, "files": files, "shorter_logs": shorter, "settled_records": settled_records}
    met |= {"promised": promised, "gone": gone}
    with open(os.environ["PLIMSOLL_CHECKS"], "a") as file:
        file.write(json.dumps(met) + "\n")
if wrong:
    print(f"wrong: {'; '.join(wrong[:5])}; {len(wrong)} in all")
    sys.exit(1)
if kept < promised:
    print(f"{promised} records were promised, {kept} are there")
    sys.exit(1)
print(f"{kept} records were promised, all there; {gone} were not, and are gone behind a fence; "
      f"{chapters} chapters, {settled_records} records of them read")
