"""What happens to a cluster, drawn from a seed, and how it is done.

At most one node's memory and unsynced writes are gone and not recovered at a time: before the power of one is cut all
must vote again. Everything else comes as it is drawn, also while another node is back from a power cut and does
not vote yet."""

import random
import subprocess
import time

from cluster import NODES
from links import CLIENTS

# How often each comes, beside the others.
KINDS = {
    "kill": 5, "kill all": 1, "pause": 4, "part": 3, "part one way": 3, "cut off": 3, "slow link": 1,
    "stall the disk": 2, "power cut": 5, "restart": 2, "rolling restart": 1, "move": 5,
}
# Topics whose partitions move: no others do.
MOVED = ["from-memory", "plain", "async"]
# Between one and the next, at most; and how long one lasts.
REST_S = 4
LASTS_S = 6
# Until a node that lost its power votes again, or one that was restarted.
RECOVERED_S = 90


class Fault:
    def __init__(self, draw):
        kinds = list(KINDS)
        self.kind = draw.choices(kinds, [KINDS[kind] for kind in kinds])[0]
        self.nodes = draw.sample(NODES, len(NODES))
        # Mostly short, as what is longer than an election is not much different.
        self.lasts_s = LASTS_S * draw.random() ** 2
        self.rest_s = REST_S * draw.random()
        self.is_with_clients = draw.random() < 0.5
        self.is_silent = draw.random() < 0.5
        self.topic = draw.choice(MOVED)

    def __str__(self):
        return f"{self.kind} {self.nodes[0]} for {self.lasts_s:.1f} s"


def draw(seed):
    """What comes, without an end."""
    drawn = random.Random(seed)
    while True:
        yield Fault(drawn)


class Chaos:
    """Does it. What lasts ends while the next things happen."""

    def __init__(self, cluster, say):
        self.cluster = cluster
        self.say = say
        self.counts = dict.fromkeys(KINDS, 0)
        # When each that lasts is over, and what ends it.
        self.lasting = []
        # Partitions that are being moved, by whom.
        self.moves = []

    def run(self, faults, seconds):
        deadline = time.monotonic() + seconds
        for fault in faults:
            self.rest(fault.rest_s, deadline)
            if time.monotonic() > deadline:
                break
            self.say(fault)
            self.counts[fault.kind] += 1
            getattr(self, fault.kind.replace(" ", "_"))(fault)
        self.end()

    def rest(self, seconds, deadline):
        until = min(time.monotonic() + seconds, deadline)
        while True:
            now = time.monotonic()
            for lasting in [lasting for lasting in self.lasting if lasting[0] <= now]:
                self.lasting.remove(lasting)
                lasting[1]()
            if now >= until:
                return
            time.sleep(0.02)

    def end(self):
        for _, ends in self.lasting:
            ends()
        self.lasting = []
        self.cluster.heal()

    def moved(self):
        """How many moves were done in time. Those that were not may have been agreed on, or not."""
        return sum(move.wait() == 0 for move in self.moves)

    def later(self, fault, ends):
        self.lasting.append((time.monotonic() + fault.lasts_s, ends))

    def victim(self, fault):
        """Whoever is drawn of those that are up and not stopped."""
        nodes = [self.cluster.nodes[number] for number in fault.nodes]
        return next((node for node in nodes if node.is_up and not node.is_stopped), None)

    def start(self, node):
        def starts():
            if not node.is_up:
                node.start()
        return starts

    def kill(self, fault):
        if node := self.victim(fault):
            node.kill()
            self.later(fault, self.start(node))

    def kill_all(self, fault):
        for node in self.cluster.nodes.values():
            if node.is_up:
                node.kill()
                self.later(fault, self.start(node))

    def pause(self, fault):
        if node := self.victim(fault):
            node.stop()
            self.later(fault, lambda: node.is_stopped and node.go_on())

    def part(self, fault):
        one, other, _ = fault.nodes
        self.close(fault, [(one, other), (other, one)])

    def part_one_way(self, fault):
        one, other, _ = fault.nodes
        self.close(fault, [(one, other)])

    def cut_off(self, fault):
        one, *others = fault.nodes
        others += [CLIENTS] if fault.is_with_clients else []
        ways = [(one, other) for other in others]
        self.close(fault, ways + [(other, one) for other in others])

    def close(self, fault, ways):
        for way in ways:
            self.cluster.links.close(*way)
            self.later(fault, lambda way=way: self.cluster.links.open(*way))

    def slow_link(self, fault):
        number = fault.nodes[0]
        self.cluster.links.slow(number, True)
        self.later(fault, lambda: self.cluster.links.slow(number, False))

    def stall_the_disk(self, fault):
        """While it is stalled nothing else happens: whoever keeps it could not tell."""
        node = self.cluster.nodes[fault.nodes[0]]
        node.stall(True)
        time.sleep(min(fault.lasts_s, 3))
        node.stall(False)

    def power_cut(self, fault):
        self.until_all_vote()
        node = self.cluster.nodes[fault.nodes[0]]
        number = node.number
        if fault.is_silent:
            # Nobody is told, as nobody is where there is no power.
            others = [other for other in [CLIENTS, *NODES] if other != number]
            self.close(fault, [(number, other) for other in others])
        node.cut()
        self.later(fault, self.start(node))

    def restart(self, fault):
        if node := self.victim(fault):
            node.end()
            self.later(fault, self.start(node))

    def rolling_restart(self, fault):
        """As an operator does it: one after the other, each once all are back."""
        for number in NODES:
            self.until_all_vote()
            node = self.cluster.nodes[number]
            node.end()
            node.start()

    def move(self, fault):
        """Nobody waits for it: other things happen on its way."""
        one, other, _ = fault.nodes
        command = ["topic", "move", fault.topic, "--to", str(one), "--broker", self.cluster.nodes[other].address]
        self.moves.append(subprocess.Popen(
            [self.cluster.program, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ))

    def until_all_vote(self):
        """What lasts goes on to its end meanwhile, and what is gone is started."""
        deadline = time.monotonic() + LASTS_S
        while self.lasting and time.monotonic() < deadline:
            self.rest(0.1, deadline)
        self.cluster.until(
            "all vote again", lambda: all(self.cluster.votes(number) for number in NODES), RECOVERED_S
        )
