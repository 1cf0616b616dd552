"""The clients: how each is had and started, and what it can do."""

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree

from program import Program
from stories import COMPRESSIONS

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.path.join(HERE, "target")
EAGER, BOTH = ["eager"], ["eager", "cooperative"]


class Absent(Exception):
    """A client that cannot be had here, and why."""


class Client:
    def __init__(self, name, install, strategies, compressions=COMPRESSIONS):
        self.name = name
        self.install = install
        self.strategies = strategies
        self.compressions = compressions
        self.command = None

    def had(self):
        """Has it, or raises Absent."""
        version, self.command = self.install(self.name)
        return version

    def start(self, verb, *arguments):
        return Program(self.command, verb, *arguments)

    def produce(self, broker, topic, compression, first, count, pace_ms=0):
        return self.start("produce", broker.address, topic, compression, first, count, pace_ms)

    def read(self, broker, topic):
        return self.start("read", broker.address, topic).end().said("read")


def step(name, *command, cwd=None):
    """Runs it; what it cannot do is not to be had."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as why:
        raise Absent(f"{command[0]}: {why}") from why
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Absent(f"{' '.join(command[:3])}: {''.join(last)}")
    return done.stdout


def program(name, package):
    """A program of the system, installed where that may be done."""
    if shutil.which(name) is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise Absent(f"there is no {name} (Debian: apt-get install {package})")
        step(name, "apt-get", "update", "-qq")
        step(name, "apt-get", "install", "-y", "-qq", package)
    return name


def kcat(name):
    program("kcat", "kcat")
    version = step(name, "kcat", "-V").split("Version ")[1].split(" (")[0]
    return version, [os.path.join(HERE, "kcat", "client")]


def from_pypi(name):
    """In an environment that the Python clients share; with it what they need to compress."""
    venv = os.path.join(TARGET, "python")
    python = os.path.join(venv, "bin", "python")
    if not os.path.exists(os.path.join(venv, "bin", "pip")):
        step(name, sys.executable, "-m", "venv", venv)
    wanted = os.path.join(HERE, "requirements.txt")
    step(name, python, "-m", "pip", "install", "--quiet", "-r", wanted)
    ask = f"import importlib.metadata as m; print(m.version({name!r}))"
    version = step(name, python, "-c", ask).strip()
    return version, [python, "-u", os.path.join(HERE, name, "client.py")]


def from_go(name):
    program("go", "golang")
    folder, built = os.path.join(HERE, name), os.path.join(TARGET, name)
    step(name, "go", "build", "-o", built, ".", cwd=folder)
    module = {"franz-go": "github.com/twmb/franz-go", "sarama": "github.com/IBM/sarama"}[name]
    version = step(name, "go", "list", "-m", "-f", "{{.Version}}", module, cwd=folder).strip()
    return version, [built]


def from_npm(name):
    program("node", "nodejs")
    program("npm", "npm")
    folder = os.path.join(HERE, name)
    step(name, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", cwd=folder)
    ask = "console.log(require('kafkajs/package.json').version)"
    version = step(name, "node", "-e", ask, cwd=folder).strip()
    return version, ["node", os.path.join(folder, "client.js")]


def from_maven(name):
    program("javac", "default-jdk-headless")
    program("mvn", "maven")
    folder = os.path.join(HERE, name)
    step(name, "mvn", "-q", "-B", "compile", "dependency:build-classpath", cwd=folder)
    pom = xml.etree.ElementTree.parse(os.path.join(folder, "pom.xml"))
    return pom.findtext(".//{*}kafka.version"), java("Client")


def java(main):
    """One of the classes, with all that it needs."""
    with open(os.path.join(TARGET, "java", "classpath")) as file:
        classpath = f"{os.path.join(TARGET, 'java', 'classes')}:{file.read().strip()}"
    return ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", classpath, main]


CLIENTS = {
    "kcat": [Client("kcat", kcat, BOTH)],
    "python": [
        Client("confluent-kafka", from_pypi, BOTH),
        Client("kafka-python", from_pypi, BOTH),
        Client("aiokafka", from_pypi, EAGER),
    ],
    "go": [Client("franz-go", from_go, BOTH), Client("sarama", from_go, EAGER)],
    "node": [Client("kafkajs", from_npm, EAGER, ["none", "gzip", "snappy", "lz4"])],
    "java": [Client("java", from_maven, BOTH)],
}
