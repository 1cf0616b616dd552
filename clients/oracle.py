"""What clients were told is held against what is there."""


class Told:
    """Of each offset of a topic the value that somebody was told: it never has two."""

    def __init__(self, topic):
        self.topic = topic
        self.values = {}
        self.acked = {}
        self.acked_somewhere = set()

    def hear(self, partition, offset, number, whose):
        place = (int(partition), int(offset))
        before, who = self.values.setdefault(place, (number, whose))
        assert before == number, (
            f"offset {place[1]} of {self.topic}-{place[0]} is {number} to {whose}, and was {before} to {who}"
        )

    def hear_acked(self, acked, whose):
        for partition, offset, number in acked:
            # Seen once: an idempotent producer's library tells that it is there, and not where.
            if offset in ("None", "-1"):
                self.acked_somewhere.add((int(partition), number))
                continue
            self.hear(partition, offset, number, whose)
            self.acked[(int(partition), int(offset))] = number

    def hear_read(self, reads, whose):
        for partition, offset, _, _, number, *_ in reads:
            self.hear(partition, offset, number, whose)

    def check_there(self, reads, whose):
        """All that was acknowledged is there, at its offset, in what somebody read from the beginning."""
        there = {(int(partition), int(offset)) for partition, offset, *_ in reads}
        missing = sorted(set(self.acked) - there)
        assert not missing, (
            f"{len(missing)} of {len(self.acked)} acknowledged records of {self.topic} are not there for {whose}: "
            f"{[(*place, self.acked[place]) for place in missing[:10]]}"
        )
        values = {(int(partition), number) for partition, _, _, _, number, *_ in reads}
        missing = sorted(self.acked_somewhere - values)
        assert not missing, (
            f"{len(missing)} records of {self.topic} that were acknowledged without an offset are not there for {whose}: {missing[:10]}"
        )


def check_contiguous(topic, reads, whose):
    """Whoever reads a partition alone is given each offset, or one that it had before."""
    next_ = {}
    for partition, offset, *_ in reads:
        expected = next_.get(partition, 0)
        assert int(offset) <= expected, (
            f"{whose} read {topic}-{partition} up to {expected}, and {offset} then"
        )
        next_[partition] = max(expected, int(offset) + 1)
    return next_


def check_once(topic, reads):
    """An idempotent producer's records are there once each, and in its order."""
    last, found = {}, set()
    for partition, offset, _, _, number, *_ in sorted(reads, key=lambda read: (int(read[0]), int(read[1]))):
        number = int(number)
        assert number not in found, f"{topic}: {number} is there twice, again at {offset} of {partition}"
        found.add(number)
        assert last.get(partition, -1) < number, f"{topic}-{partition}: {number} at {offset} is after {last[partition]}"
        last[partition] = number


def check_same(shard, logs, agreed):
    """Replicas have the same entries: of those that two have none differs, and all have what was agreed on. Those that are
    stopped last may have entries of a leadership that began meanwhile."""
    compared = 0
    ends = {number: max(entries, default=0) for number, entries in logs.items()}
    assert min(ends.values()) >= agreed > 0, f"{agreed} was agreed on, and logs of shard {shard} end at {ends}"
    for one, other in [(1, 2), (2, 3), (1, 3)]:
        common = logs[one].keys() & logs[other].keys()
        different = sorted(index for index in common if logs[one][index] != logs[other][index])
        assert not different, f"nodes {one} and {other} have other entries in shard {shard} at {different[:10]}"
        compared += len(common)
    return compared


def longest_gap(times):
    """Seconds between two of them, at most."""
    return max((later - sooner for sooner, later in zip(times, times[1:])), default=0)
