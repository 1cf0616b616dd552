//! The cells, and how long a trial of each is.

use crate::task::{Beside, Cell, Kind, Level, Task};

/// Records of these sizes.
pub(crate) const SIZES: [usize; 4] = [100, 1024, 4096, 65536];
/// So many appenders.
pub(crate) const APPENDERS: [usize; 3] = [1, 8, 64];
/// What a pace is: the rate of article 1's test.
pub(crate) const RATE: u64 = 20_000;
/// Segments of a log whose cost is compared with that of a short one.
pub(crate) const SEGMENTS: [u64; 3] = [1, 100, 10_000];

/// All cells, in the order in which a round goes through them.
pub(crate) fn cells() -> Vec<Cell> {
    let cell = |kind, level, record_bytes, appenders| Cell {
        kind,
        level,
        record_bytes,
        appenders,
        beside: Beside::Nothing,
        segments: 0,
    };
    let mut cells = Vec::new();
    for appenders in APPENDERS {
        for size in SIZES {
            cells.push(cell(Kind::Append, Level::Durable, size, appenders));
        }
    }
    for size in SIZES {
        cells.push(cell(Kind::Append, Level::Buffered, size, 1));
    }
    cells.push(cell(Kind::Append, Level::Buffered, 1024, 8));
    cells.push(cell(Kind::Append, Level::Interval, 4096, 1));
    for beside in [Beside::Nothing, Beside::Torture, Beside::SlowSync] {
        cells.push(Cell { beside, ..cell(Kind::Paced, Level::Interval, 1000, 1) });
    }
    cells.push(cell(Kind::Replay, Level::Buffered, 1024, 1));
    for segments in SEGMENTS {
        cells.push(Cell { segments, ..cell(Kind::History, Level::Buffered, 1000, 1) });
    }
    cells
}

/// How long a trial of a cell is, and how much it may write.
pub(crate) fn sized(cell: &Cell, quick: bool, mut task: Task) -> Task {
    let (seconds, bytes_max) = match (cell.kind, cell.level) {
        (Kind::Append, Level::Durable) => (0.8, 2 << 30),
        (Kind::Append, Level::Buffered) => (0.8, 2 << 30),
        (Kind::Append, Level::Interval) => (3.0, 2 << 30),
        (Kind::Paced, _) => (2.5, 1 << 30),
        (Kind::Replay, _) => (12.0, 1 << 30),
        (Kind::History, _) => (0.5, 1 << 30),
    };
    (task.seconds, task.bytes_max) =
        if quick { (f64::min(seconds, 0.1), 16 << 20) } else { (seconds, bytes_max) };
    task.rate = RATE;
    task
}

/// How often a cell is measured where the others are measured `rounds` times: what takes long, less
/// often; where all wait for the same flush and are a few per cent apart, more often.
pub(crate) fn rounds(cell: &Cell, rounds: u32) -> u32 {
    match cell.kind {
        Kind::Append if cell.level == Level::Durable && cell.appenders == 1 => rounds * 3,
        Kind::Append => rounds,
        Kind::Paced | Kind::Replay | Kind::History => rounds.min(3),
    }
}
