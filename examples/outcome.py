"""What the states of an example say, held against what its manual promises. Pure."""
import re
from dataclasses import dataclass, field

from cases import BREAKS, KEEPS, MAY_LOSE

# How a check says that what is there is whole, but too little.
LOST = re.compile(r"promised, .*there$")
# What a power cut did to what was checked; all else says something of the check or of the disk.
DAMAGE = ("lost", "wrong", "refused")
# By these a check shows that it looks: where the disk did not mount, or the check broke, it did not.
SEEN = (*DAMAGE, "reported")


@dataclass
class Outcome:
    """An example on a filesystem."""

    example: str
    filesystem: str
    promise: str
    counts: dict
    # The first state of each kind that contradicts the promise.
    states: dict = field(default_factory=dict)
    surprises: list = field(default_factory=list)
    known: str = ""

    def states_in_all(self):
        return sum(self.counts.values())


def kind(finding):
    """The verdict on a state; of `lost`, what is damaged and not just too little is `wrong`."""
    if finding["verdict"] == "lost" and not LOST.search(finding.get("said", "")):
        return "wrong"
    return finding["verdict"]


def is_known(case, finding):
    """Where all is to be kept, only of a state in which nothing had been promised yet."""
    is_promised = case.promise == KEEPS and "last_mark" in finding
    return kind(finding) == case.known and not is_promised


def judge(example, case, filesystem, findings, lying=None):
    """`lying` are findings on a disk that lies, where a check that looks finds something."""
    outcome = Outcome(example, filesystem, case.promise, {})
    allowed = {KEEPS: (), MAY_LOSE: ("lost",)}.get(case.promise, DAMAGE)
    against = {}
    for finding in findings:
        found = kind(finding)
        outcome.counts[found] = outcome.counts.get(found, 0) + 1
        if found == "ok" or found in allowed:
            continue
        if is_known(case, finding):
            outcome.known = found
            continue
        against[found] = against.get(found, 0) + 1
        outcome.states.setdefault(found, finding["state"])
    outcome.surprises += [f"{count} {found}" for found, count in against.items()]
    counts = outcome.counts
    if not counts:
        outcome.surprises.append("no states")
    if case.promise == BREAKS and not any(counts.get(name) for name in DAMAGE):
        outcome.surprises.append("nothing is broken, and must be")
    if lying is not None and not any(kind(finding) in SEEN for finding in lying):
        outcome.surprises.append("the check finds nothing on a disk that lies")
    return outcome


def table(outcomes):
    """For people."""
    heads = ["example", "filesystem", "states", "ok", *DAMAGE, "the manual", ""]
    rows = [heads]
    for outcome in outcomes:
        counted = [str(outcome.counts.get(name, 0)) for name in ("ok", *DAMAGE)]
        rows.append([outcome.example, outcome.filesystem, str(outcome.states_in_all()), *counted,
                     outcome.promise, said_of(outcome)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    numbers = range(2, 4 + len(DAMAGE))
    lines = []
    for row in rows:
        cells = [cell.rjust(width) if column in numbers else cell.ljust(width)
                 for column, (cell, width) in enumerate(zip(row, widths))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def said_of(outcome):
    if outcome.surprises:
        return "SURPRISE: " + ", ".join(outcome.surprises)
    if outcome.known:
        return f"{outcome.known}: known, see docs/crash-testing.md"
    return "as promised" if outcome.promise in (KEEPS, MAY_LOSE) else ""
