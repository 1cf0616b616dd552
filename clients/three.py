"""Three brokers of one cluster, on this machine: clients find them as one, and whoever leads can be lost."""

import json
import os
import subprocess
import tempfile
import time
import urllib.request

from broker import Broker, free_port

NODES = [1, 2, 3]
# The shard of records that are acknowledged from memory.
SHARED = 2
PATIENCE_S = 60


class Three:
    def __init__(self, program):
        self.program = program
        self.dir = tempfile.TemporaryDirectory(prefix="plimsoll-three-")
        config = os.path.join(self.dir.name, "cluster.toml")
        self.https = [f"127.0.0.1:{free_port()}" for _ in NODES]
        named = [["--config", config, "--node", str(node)] for node in NODES]
        self.brokers = [Broker(program, *words, http=http) for words, http in zip(named, self.https)]
        self.address = ",".join(broker.address for broker in self.brokers)
        self.away = None
        self.turns = 0
        members = ",".join(f"{node}=127.0.0.1:{free_port()}" for node in NODES)
        first = os.path.join(self.brokers[0].dir, "data")
        command = [program, "cluster", "init", "--dir", first, "--members", members]
        settings = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        with open(config, "wb") as file:
            file.write(settings.stdout)

    def __enter__(self):
        for broker in self.brokers:
            broker.start()
        self.until("all vote", lambda: all(self.voters(number) == NODES for number in NODES))
        return self

    def __exit__(self, *_):
        for broker in self.brokers:
            broker.__exit__()
        self.dir.cleanup()

    def kill(self):
        """Whoever leads. Returns when another does."""
        self.lose(lambda broker: broker.kill())

    def stop(self):
        """Whoever leads, in order. Returns when another does."""
        self.lose(lambda broker: broker.stop())

    def move(self):
        """The topic of the story that is told goes on under other brokers. Returns when they lead."""
        first, *rest = NODES if self.turns % 2 else NODES[::-1]
        self.turns += 1
        order = [word for node in (*rest, first) for word in ("--to", str(node))]
        command = [self.program, "topic", "move", "survives-move", *order, "--broker", self.brokers[0].address]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)

    def lose(self, end):
        self.until("somebody leads", lambda: self.leader() is not None)
        self.away = self.leader()
        end(self.brokers[self.away - 1])
        self.until("another leads", lambda: self.leader() not in (None, self.away))

    def start(self):
        """The one that was lost, if one was."""
        if self.away is None:
            return
        self.brokers[self.away - 1].start()
        away, self.away = self.away, None
        self.until("it follows", lambda: self.shard(away).get("leader") is not None)

    def leader(self):
        """Who says that it leads the shard of records, if one does."""
        return next((number for number in NODES if self.shard(number).get("leads")), None)

    def voters(self, number):
        """Of all shards, as a node knows them; `None` where they differ."""
        known = {tuple(shard["voters"]) for shard in self.status(number)}
        return list(known.pop()) if len(known) == 1 else None

    def shard(self, number):
        return next((shard for shard in self.status(number) if shard["number"] == SHARED), {})

    def status(self, number):
        if number == self.away and self.brokers[number - 1].process.poll() is not None:
            return []
        try:
            with urllib.request.urlopen(f"http://{self.https[number - 1]}/status", timeout=5) as answer:
                return json.load(answer)["shards"]
        except OSError:
            return []

    def until(self, what, is_so):
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            news = "\n".join(broker.news()[-2000:] for broker in self.brokers)
            assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}\n{news}"
            time.sleep(0.05)
