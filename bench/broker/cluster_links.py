"""A network namespace for each node, and a steady delay between any two, where the kernel has no netem.

Each namespace has a TUN device, and a relay in user space carries the packets between them, half a round trip later. It needs
root, and it takes of the CPUs that brokers and clients have."""

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
import time

from cells import LOAD
from servers import ROOT

sys.path.insert(0, os.path.join(ROOT, "clients"))
import links

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
# Fewer packets; what is on a wire has 1500.
MTU = 65000
DEVICE = "far"
# Where clients are.
CLIENTS = 100


class Delayed:
    """From here on this process has a network of its own, with namespaces for the nodes. Once in a process."""

    def __init__(self, nodes, round_trip_ms):
        links.enter()
        links.ip("link", "set", "lo", "up")
        here = os.open("/proc/self/ns/net", os.O_RDONLY)
        files = {}
        for node in nodes:
            links.ip("netns", "add", self.name(node))
            with open(f"/run/netns/{self.name(node)}") as there:
                enter(there.fileno())
                files[node] = device(node)
                enter(here)
        files[CLIENTS] = device(CLIENTS)
        pairs = [f"{who}={file}" for who, file in files.items()]
        command = [LOAD, "relay", str(round(round_trip_ms * 500)), "-", *pairs]
        self.process = subprocess.Popen(command, pass_fds=files.values())
        time.sleep(0.2)
        self.round_trip_ms = self.measured_ms(nodes[0])

    @staticmethod
    def name(node):
        return f"n{node}"

    def wrap(self, node):
        return ["ip", "netns", "exec", self.name(node)]

    @staticmethod
    def host(who):
        return f"10.78.0.{who}"

    def measured_ms(self, node):
        """The median round trip, as it is: until a connection is refused where nobody listens."""
        found = []
        for _ in range(51):
            begun = time.monotonic()
            with socket.socket() as asked:
                asked.connect_ex((self.host(node), 9))
            found.append(1e3 * (time.monotonic() - begun))
            time.sleep(0.002)
        return sorted(found)[len(found) // 2]

    def remove(self):
        self.process.kill()
        self.process.wait()


def enter(file):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(file, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "the namespace cannot be entered")


def device(who):
    """In the namespace of this thread: the file of its end for the relay."""
    file = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    links.ip("link", "set", "lo", "up")
    links.ip("addr", "add", f"{Delayed.host(who)}/24", "dev", DEVICE)
    links.ip("link", "set", DEVICE, "mtu", MTU, "up")
    return file
