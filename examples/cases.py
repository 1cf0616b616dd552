"""What there is to run: databases, in modes that their manuals speak of, and what is promised."""
import glob
import importlib.util
import pathlib
import shutil
import subprocess
import sys
from dataclasses import dataclass, field

HERE = pathlib.Path(__file__).resolve().parent

# What a manual says of a power cut.
KEEPS = "keeps all"  # all that was marked is there
MAY_LOSE = "may lose the last"  # it opens, and is what it was some time ago
NOTHING = "promises nothing"
BREAKS = "must break"  # a control: where nothing is found, nothing is looked for


@dataclass(frozen=True)
class Case:
    """A workload in a mode, and its check."""

    name: str
    promise: str
    arguments: tuple = ()
    # Whether the kernel is to write what is not synced: nothing would be on the disk otherwise.
    writeback: bool = False
    # A verdict against the manual that was looked into, and that docs/crash-testing.md explains; of what keeps
    # all, one on states before the first mark.
    known: str = ""


@dataclass(frozen=True)
class Example:
    """A folder beside this file, with workload.py and check.py unless it says otherwise."""

    name: str
    cases: tuple
    # What is missing here, and how to get it; empty if nothing is.
    missing: object = field(default=lambda: "")
    # What is run before the recording, so that no power cut takes it.
    setup: tuple = ()
    workload: tuple = (sys.executable, "workload.py")
    check: tuple = (sys.executable, "check.py")

    def command(self, words, *arguments):
        """The words with the files of the folder by their whole paths."""
        known = [str(HERE / self.name / word) if self.is_ours(word) else word for word in words]
        return [*known, *arguments]

    def is_ours(self, word):
        return "/" not in word and (HERE / self.name / word).is_file()


def needs_module(name, package):
    """Whether this Python has a module; a folder of its name, like ours, has no origin."""
    def missing():
        spec = importlib.util.find_spec(name)
        if spec and spec.origin:
            return ""
        return f"no module {name} in {sys.executable}: {sys.executable} -m pip install {package}"
    return missing


def needs_program(name, package):
    def missing():
        found = shutil.which(name) or glob.glob(f"/usr/lib/postgresql/*/bin/{name}")
        return "" if found else f"no program {name}: apt-get install {package}"
    return missing


def builds_bbolt():
    if not shutil.which("go"):
        return "no program go: apt-get install golang (1.23 or newer)"
    build = ["go", "build", "-o", "bbolt", "."]
    built = subprocess.run(build, cwd=HERE / "bbolt", capture_output=True, text=True)
    return "" if built.returncode == 0 else f"go build fails: {built.stderr.strip()}"


EXAMPLES = (
    Example("replace", (
        Case("none", BREAKS, ("none",), writeback=True),
        Case("file", MAY_LOSE, ("file",)),
        Case("full", KEEPS, ("full",)),
    )),
    Example("sqlite", (
        Case("delete-extra", KEEPS, ("DELETE", "EXTRA")),
        Case("delete-full", MAY_LOSE, ("DELETE", "FULL")),
        Case("wal-full", KEEPS, ("WAL", "FULL")),
        Case("wal-normal", MAY_LOSE, ("WAL", "NORMAL"), writeback=True),
        Case("delete-off", NOTHING, ("DELETE", "OFF"), writeback=True),
    )),
    Example("lmdb", (
        Case("sync", KEEPS, ("sync",)),
        Case("nometasync", MAY_LOSE, ("nometasync",)),
    ), needs_module("lmdb", "lmdb")),
    Example("leveldb", (
        Case("create", KEEPS, ("sync", "1"), known="refused"),
        Case("sync", KEEPS, ("sync",), known="refused"),
        Case("nosync", MAY_LOSE, ("nosync",), writeback=True, known="refused"),
    ), needs_module("plyvel", "plyvel")),
    Example("rocksdb", (
        Case("sync", KEEPS, ("sync",)),
        Case("nosync", MAY_LOSE, ("nosync",), writeback=True),
    ), needs_module("rocksdict", "rocksdict")),
    Example("bbolt", (
        Case("update", KEEPS),
    ), builds_bbolt, workload=("bbolt", "workload"), check=("bbolt", "check")),
    Example("redis", (
        Case("always", KEEPS, ("always",)),
        # The marks say what is older than what may be lost; so all that was marked is promised.
        Case("everysec", KEEPS, ("everysec", "500", "2")),
        Case("no", MAY_LOSE, ("no", "400"), writeback=True, known="refused"),
    ), needs_program("redis-server", "redis-server")),
    Example("postgres", (
        Case("on", KEEPS, ("on",)),
        Case("off", KEEPS, ("off", "150")),
    ), needs_program("initdb", "postgresql"), setup=(sys.executable, "setup.py")),
    Example("broker", (
        Case("answers", KEEPS),
    ), needs_module("kafka", "kafka-python")),
)
