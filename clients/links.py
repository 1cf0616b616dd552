"""The network of a cluster: a namespace for each node, and a bridge between them, all in our own.

Nothing of it is seen from outside, and all of it goes with the last process in it. What does not get from one to
another is sent to an address on the wire that nobody has: so it is gone without a word, and one way does not
close the other."""

import ctypes
import os
import subprocess

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
NOBODY = "02:00:00:00:00:00"
BRIDGE = "hub"
# Where the clients are, beside the nodes 1, 2 and so on.
CLIENTS = 0


class Refused(Exception):
    """There can be no such network here, and why."""


def ip_of(who):
    return f"10.77.0.{who or 100}"


def name_of(who):
    """What a node is called, once `call_by_names` was done."""
    return chr(ord("a") + who - 1)


def mac_of(who):
    return f"02:00:00:00:77:{(who or 100):02x}"


def ip(*words):
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")


def enter():
    """From here on this process has a network and mounts of its own. Before any thread is started."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS | CLONE_NEWNET) != 0:
        raise Refused(f"no namespace for the network: {os.strerror(ctypes.get_errno())} (it needs root)")
    for command in (
        ["mount", "--make-rprivate", "/"],
        ["mkdir", "-p", "/run/netns"],
        ["mount", "-t", "tmpfs", "netns", "/run/netns"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Refused(f"{' '.join(command)}: {done.stderr.strip()}")


def call_by_names(nodes, path):
    """From here on nodes are found by their names, here and by all that is started here. `path`: a file for that."""
    with open(path, "w") as hosts:
        hosts.write("127.0.0.1 localhost\n" + "".join(f"{ip_of(node)} {name_of(node)}\n" for node in nodes))
    done = subprocess.run(["mount", "--bind", path, "/etc/hosts"], capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(f"mount --bind: {done.stderr.strip()}")


class Links:
    """Who reaches whom."""

    def __init__(self, nodes):
        self.nodes = nodes
        ip("link", "set", "lo", "up")
        ip("link", "add", BRIDGE, "address", mac_of(CLIENTS), "type", "bridge")
        ip("addr", "add", f"{ip_of(CLIENTS)}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for node in nodes:
            ip("netns", "add", f"n{node}")
            ip("link", "add", f"v{node}", "type", "veth", "peer", "name", "eth0", "netns", f"n{node}")
            ip("link", "set", f"v{node}", "master", BRIDGE, "up")
            ip("-n", f"n{node}", "link", "set", "eth0", "address", mac_of(node), "up")
            ip("-n", f"n{node}", "link", "set", "lo", "up")
            ip("-n", f"n{node}", "addr", "add", f"{ip_of(node)}/24", "dev", "eth0")
        self.heal()

    def close(self, source, target):
        """What the one sends the other is lost from here on; the way back is as it was."""
        self._way(source, target, NOBODY)

    def open(self, source, target):
        self._way(source, target, mac_of(target))

    def heal(self):
        everybody = [CLIENTS, *self.nodes]
        for source in everybody:
            for target in everybody:
                if source != target:
                    self.open(source, target)

    def slow(self, node, is_slow):
        """What is sent to it waits in a queue of 300 ms, which a busy broker fills."""
        words = ["replace", "dev", f"v{node}", "root", "tbf", "rate", "1mbit", "burst", "2kb", "latency", "300ms"]
        words = words if is_slow else ["del", "dev", f"v{node}", "root"]
        done = subprocess.run(["tc", "qdisc", *words], capture_output=True, text=True)
        if is_slow and done.returncode != 0:
            raise Refused(f"tc qdisc {' '.join(words)}: {done.stderr.strip()}")

    def _way(self, source, target, mac):
        inside = ["-n", f"n{source}"] if source != CLIENTS else []
        device = "eth0" if source != CLIENTS else BRIDGE
        ip(*inside, "neigh", "replace", ip_of(target), "lladdr", mac, "dev", device, "nud", "permanent")
