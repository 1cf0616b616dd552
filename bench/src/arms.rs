//! The arms: which engine can do what, in which program it lives, and what version it is.

use crate::task::{Beside, Cell, Kind, Level};

/// An arm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arm {
    pub(crate) name: &'static str,
    /// What the tables call it.
    pub(crate) title: &'static str,
    pub(crate) program: Program,
    /// Whether it is what a disk or a memory gives at best, and no log.
    pub(crate) raw: bool,
    durable: bool,
    buffered: bool,
    interval: bool,
    replay: bool,
    /// How it is set up, and why: for the notes.
    pub(crate) setup: &'static str,
}

/// Where an arm lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Rust,
    Go,
}

const RIVAL: Arm = Arm {
    name: "",
    title: "",
    program: Program::Rust,
    raw: false,
    durable: true,
    buffered: true,
    interval: true,
    replay: true,
    setup: "",
};
const RAW: Arm =
    Arm { raw: true, durable: false, buffered: false, interval: false, replay: false, ..RIVAL };

/// All of them, ours first, then rivals by name, then the raw limits.
pub(crate) const ARMS: &[Arm] = &[
    Arm {
        name: "plimsoll",
        title: "Plimsoll",
        setup: "`Policy::Always`, `Never` or `everysec()`; everything else as it comes. Every segment is kept.",
        ..RIVAL
    },
    Arm {
        name: "plimsoll-tasks",
        title: "Plimsoll, tasks",
        buffered: false,
        interval: false,
        replay: false,
        setup: "As above, but the appenders are tasks of tokio on one thread and await their records \
            (`Log::wait`), as the goroutines of Pebble, etcd and raft-wal do; not where there is one appender.",
        ..RIVAL
    },
    Arm {
        name: "plimsoll-written",
        title: "Plimsoll, written",
        durable: false,
        interval: false,
        replay: false,
        setup: "`direct: false`, each append waiting until the kernel has the record (`Ack::Written`): what rivals \
            that write(2) in the appender give.",
        ..RIVAL
    },
    Arm {
        name: "plimsoll-tmpfs",
        title: "Plimsoll, ring on tmpfs",
        durable: false,
        interval: false,
        replay: false,
        setup: "The ring is a file on tmpfs (`Ring::File`): what has been appended survives a crash of the process, as \
            what was given to write(2) does.",
        ..RIVAL
    },
    Arm {
        name: "fjall",
        title: "fjall 3.1.13",
        setup: "`insert` under a counter, `persist(SyncData)` after each where durable. It is a store: the \
            memtable's work is in the figure.",
        ..RIVAL
    },
    Arm {
        name: "okaywal",
        title: "okaywal 0.3.1",
        buffered: false,
        interval: false,
        setup: "Segments of 64 MiB instead of 1 MiB (as its README advises for larger ones); its checkpoints keep nothing, \
            so that files are recycled, which is what it is fastest at. It knows no append without a sync.",
        ..RIVAL
    },
    Arm {
        name: "raft-engine",
        title: "raft-engine 0.4.2",
        setup: "One region for each appender, as its interface wants; `write(batch, sync)`; compression off, as records \
            are random. `Engine::sync()` does nothing (no system call), so a sync is an entry written with `sync = true`.",
        ..RIVAL
    },
    Arm {
        name: "rocksdb",
        title: "RocksDB 7.8.3",
        setup: "`put` with `sync` or without; a memtable of 4 GiB, so that only its WAL touches the disk. It is a \
            store: the memtable's work is in the figure. Read with `get_updates_since`.",
        ..RIVAL
    },
    Arm {
        name: "sqlite",
        title: "SQLite, WAL",
        setup: "One connection behind a mutex, an `INSERT` a transaction; `synchronous` is FULL, or NORMAL where not durable; \
            checkpoints as they come.",
        ..RIVAL
    },
    Arm {
        name: "walrus",
        title: "walrus-rust 0.2.0",
        setup: "One topic (a log has one order); `SyncEach`, `NoFsync` or `Milliseconds(1000)`.",
        ..RIVAL
    },
    Arm {
        name: "redis",
        title: "Redis 7.0, XADD",
        setup: "A server over a Unix socket, a connection for each appender, `appendfsync` always, no or everysec. Each append \
            is a round trip: what it costs to be a server is in the figure.",
        ..RIVAL
    },
    Arm {
        name: "pebble",
        title: "Pebble 2.1.7, LogWriter",
        program: Program::Go,
        setup: "`record.LogWriter` over a file that is preallocated 4 MiB ahead, WAL sync chunks on; appenders take turns at a \
            mutex, as Pebble's commit pipeline has them. Memory is not bounded: what is appended faster than written is kept.",
        ..RIVAL
    },
    Arm {
        name: "raft-wal",
        title: "hashicorp/raft-wal 0.4.2",
        program: Program::Go,
        buffered: false,
        interval: false,
        setup: "With more than one appender a committer takes up to 64 waiting records for a `StoreLogs`, as raft does. It knows no append \
            without a sync.",
        ..RIVAL
    },
    Arm {
        name: "etcd",
        title: "etcd wal 3.6.4",
        program: Program::Go,
        interval: false,
        setup: "With more than one appender a committer takes up to 64 waiting records for a `Save`, as raft does. Without sync: \
            `SetUnsafeNoFsync`, which turns every sync off.",
        ..RIVAL
    },
    Arm {
        name: "raw-dsync",
        title: "raw: O_DIRECT, RWF_DSYNC",
        durable: true,
        setup: "No log: the records of all appenders in one block-aligned write into zero-filled space, no thread woken.",
        ..RAW
    },
    Arm {
        name: "raw-fdatasync",
        title: "raw: O_DIRECT, fdatasync",
        durable: true,
        setup: "The same with fdatasync(2) after the write.",
        ..RAW
    },
    Arm {
        name: "raw-memcpy",
        title: "raw: memcpy",
        buffered: true,
        setup: "No log: the record copied into a buffer of 32 MiB.",
        ..RAW
    },
    Arm {
        name: "raw-write",
        title: "raw: write(2)",
        buffered: true,
        interval: true,
        replay: true,
        setup: "No log: write(2) of the record to a growing file, fdatasync each second in another thread; read with 1 MiB reads, \
            nothing checked.",
        ..RAW
    },
    Arm {
        name: "raw-direct",
        title: "raw: O_DIRECT, 1 MiB",
        interval: true,
        setup: "No log: records gathered to 1 MiB and written past the page cache to a growing file, fdatasync each second.",
        ..RAW
    },
];

impl Arm {
    /// Whether it knows no append without a sync.
    pub(crate) fn syncs_always(&self) -> bool {
        !self.buffered
    }

    fn can(&self, cell: &Cell) -> bool {
        match (cell.kind, cell.level) {
            (Kind::History, _) => self.name == "plimsoll",
            (Kind::Replay, _) => self.replay,
            (Kind::Paced, _) => self.interval && self.name != "raw-direct",
            (Kind::Append, Level::Durable) => {
                self.durable && (cell.appenders > 1 || self.name != "plimsoll-tasks")
            }
            // A copy or a write does not get faster by more threads at the same file.
            (Kind::Append, Level::Buffered) => self.buffered && (cell.appenders == 1 || !self.raw),
            (Kind::Append, Level::Interval) => self.interval,
        }
    }
}

/// The arms of a cell.
pub(crate) fn of(cell: &Cell) -> impl Iterator<Item = &'static Arm> + use<'_> {
    ARMS.iter().filter(|arm| arm.can(cell))
}

/// An arm by its name.
pub(crate) fn named(name: &str) -> Option<&'static Arm> {
    ARMS.iter().find(|arm| arm.name == name)
}

/// Whether a trial in the cell is slowed from outside.
pub(crate) fn slowed(cell: &Cell) -> bool {
    cell.beside == Beside::SlowSync
}
