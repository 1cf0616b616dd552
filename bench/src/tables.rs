//! The tables of the page.

use std::fmt::Write;

use crate::arms::{self, Arm};
use crate::figures::{Figure, Figures};
use crate::plan::SIZES;
use crate::result::Saved;
use crate::task::Answer;
use crate::units::{count, spread, three, time};

/// Records a second.
pub(crate) fn rate(answer: &Answer) -> Option<f64> {
    (answer.seconds > 0.0).then(|| answer.records as f64 / answer.seconds)
}

pub(crate) fn p50(answer: &Answer) -> Option<f64> {
    (answer.append.n > 0).then_some(answer.append.p50 as f64)
}

pub(crate) fn p99(answer: &Answer) -> Option<f64> {
    (answer.append.n > 0).then_some(answer.append.p99 as f64)
}

pub(crate) fn p999(answer: &Answer) -> Option<f64> {
    (answer.append.n > 0).then_some(answer.append.p999 as f64)
}

pub(crate) fn max(answer: &Answer) -> Option<f64> {
    (answer.append.n > 0).then_some(answer.append.max as f64)
}

/// Megabytes a second, counted until all of them were durable; records of 4 KiB.
pub(crate) fn settled(answer: &Answer) -> Option<f64> {
    (answer.settled_seconds > 0.0)
        .then(|| answer.records as f64 * 4096.0 / 1e6 / answer.settled_seconds)
}

/// From when it was due.
pub(crate) fn due999(answer: &Answer) -> Option<f64> {
    answer.from_due.as_ref().map(|times| times.p999 as f64)
}

/// A table being made: a row for each arm that has a figure, ours first, then rivals by the first column
/// that ranks, then what is no log.
struct Rows<'a> {
    figures: &'a Figures<'a>,
    cell: String,
}

impl Rows<'_> {
    fn sorted(
        &self,
        rank: impl Fn(&Answer) -> Option<f64>,
        large_first: bool,
    ) -> Vec<&'static Arm> {
        let mut rows: Vec<(&Arm, Figure)> = arms::ARMS
            .iter()
            .filter_map(|arm| Some((arm, self.figures.of(&self.cell, arm.name, &rank)?)))
            .collect();
        rows.sort_by(|(a, one), (b, other)| {
            let order = one.median.total_cmp(&other.median);
            let order = if large_first { order.reverse() } else { order };
            (group(a), order).cmp(&(group(b), std::cmp::Ordering::Equal))
        });
        rows.into_iter().map(|(arm, _)| arm).collect()
    }
}

fn group(arm: &Arm) -> u8 {
    match (arm.name.starts_with("plimsoll"), arm.raw) {
        (true, _) => 0,
        (_, false) => 1,
        (_, true) => 2,
    }
}

fn title(arm: &Arm) -> String {
    if group(arm) == 0 {
        format!("**{}**", arm.title)
    } else if arm.raw {
        format!("*{}*", arm.title)
    } else {
        arm.title.to_owned()
    }
}

fn head(columns: &[String]) -> String {
    format!("| {} |\n|{}\n", columns.join(" | "), " --- |".repeat(columns.len()))
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn bytes(size: usize) -> String {
    if size < 1024 { format!("{size} B") } else { format!("{} KiB", size / 1024) }
}

/// A durable append of one appender: p50 and p99.
pub(crate) fn durable_alone(figures: &Figures<'_>) -> String {
    let rows = Rows { figures, cell: "durable/1024/1".to_owned() };
    let mut text = head(
        &std::iter::once("p50 (rounds) / p99".to_owned())
            .chain(SIZES.map(bytes))
            .collect::<Vec<_>>(),
    );
    for arm in rows.sorted(p50, false) {
        let mut cells = vec![title(arm)];
        for size in SIZES {
            let cell = format!("durable/{size}/1");
            let p99 = figures
                .of(&cell, arm.name, p99)
                .map_or_else(String::new, |p99| format!(" / {}", time(p99.median)));
            cells.push(format!("{}{p99}", spread(figures.of(&cell, arm.name, p50), time)));
        }
        text += &row(&cells);
    }
    text
}

/// Durable appends of many: records a second and p99.
pub(crate) fn durable_many(figures: &Figures<'_>, appenders: usize) -> String {
    rates(figures, "durable", appenders, "records/s (rounds) / p99 of an append", p99)
}

/// Appends that nobody waits for: records a second and p50.
pub(crate) fn buffered(figures: &Figures<'_>) -> String {
    rates(figures, "buffered", 1, "records/s (rounds) / p50 of an append", p50)
}

fn rates(
    figures: &Figures<'_>,
    level: &str,
    appenders: usize,
    corner: &str,
    also: impl Fn(&Answer) -> Option<f64>,
) -> String {
    let rows = Rows { figures, cell: format!("{level}/1024/{appenders}") };
    let mut text =
        head(&std::iter::once(corner.to_owned()).chain(SIZES.map(bytes)).collect::<Vec<_>>());
    for arm in rows.sorted(rate, true) {
        let mut cells = vec![title(arm)];
        for size in SIZES {
            let cell = format!("{level}/{size}/{appenders}");
            let also = figures
                .of(&cell, arm.name, &also)
                .map_or_else(String::new, |also| format!(" / {}", time(also.median)));
            cells.push(format!("{}{also}", spread(figures.of(&cell, arm.name, rate), count)));
        }
        text += &row(&cells);
    }
    text
}

/// Eight appenders, 1 KiB, nothing synced.
pub(crate) fn buffered_eight(figures: &Figures<'_>) -> String {
    let cell = "buffered/1024/8";
    let rows = Rows { figures, cell: cell.to_owned() };
    let mut text = head(&[
        "8 appenders, 1 KiB".to_owned(),
        "records/s".to_owned(),
        "p50".to_owned(),
        "p99".to_owned(),
    ]);
    for arm in rows.sorted(rate, true) {
        text += &row(&[
            title(arm),
            spread(figures.of(cell, arm.name, rate), count),
            spread(figures.of(cell, arm.name, p50), time),
            spread(figures.of(cell, arm.name, p99), time),
        ]);
    }
    text
}

/// Sustained, 4 KiB, a sync a second.
pub(crate) fn sustained(figures: &Figures<'_>) -> String {
    let cell = "interval/4096/1";
    let rows = Rows { figures, cell: cell.to_owned() };
    let mut text = head(
        &[
            "",
            "MB/s until all was durable",
            "MB/s accepted",
            "p99 of an append",
            "peak memory, MiB",
        ]
        .map(str::to_owned),
    );
    for arm in rows.sorted(settled, true) {
        let accepted = |answer: &Answer| rate(answer).map(|rate| rate * 4096.0 / 1e6);
        text += &row(&[
            title(arm),
            match arm.name {
                "walrus" | "redis" => "not known: no call says".to_owned(),
                name => spread(figures.of(cell, name, settled), three),
            },
            spread(figures.of(cell, arm.name, accepted), three),
            spread(figures.of(cell, arm.name, p99), time),
            peak(figures.of(cell, arm.name, peak_mib)),
        ]);
    }
    text
}

/// 20,000 appends a second.
pub(crate) fn paced(figures: &Figures<'_>, cell: &str) -> String {
    let rows = Rows { figures, cell: cell.to_owned() };
    let mut text = head(
        &["", "p50", "p99.9 (rounds)", "longest of all rounds", "p99.9 from when it was due"]
            .map(str::to_owned),
    );
    for arm in rows.sorted(p999, false) {
        let longest = figures.of(cell, arm.name, max).map_or(0.0, |figure| figure.max);
        text += &row(&[
            title(arm),
            spread(figures.of(cell, arm.name, p50).map(alone), time),
            spread(figures.of(cell, arm.name, p999), time),
            time(longest),
            spread(figures.of(cell, arm.name, due999), time),
        ]);
    }
    text
}

fn alone(figure: Figure) -> Figure {
    Figure { rounds: 1, slow: 0, ..figure }
}

/// Bytes a second of a log of records of 1 KiB that took so long to read.
pub(crate) fn gigabytes(answer: &Answer, seconds: Option<f64>) -> Option<f64> {
    Some(answer.records as f64 * 1024.0 / 1e9 / seconds?)
}

/// Opened and read.
pub(crate) fn replay(figures: &Figures<'_>) -> String {
    let cell = "replay";
    let rows = Rows { figures, cell: cell.to_owned() };
    let mut text = head(
        &[
            "",
            "from the disk: GB/s",
            "from memory: GB/s",
            "from memory, a gibibyte",
            "checks records",
        ]
        .map(str::to_owned),
    );
    for arm in rows.sorted(|answer| gigabytes(answer, answer.warm_seconds), true) {
        let warm = figures.of(cell, arm.name, |answer| gigabytes(answer, answer.warm_seconds));
        let gibibyte = warm.map(|warm| format!("{} s", three(1.073_741_824 / warm.median)));
        text += &row(&[
            title(arm),
            spread(
                figures.of(cell, arm.name, |answer| gigabytes(answer, answer.cold_seconds)),
                three,
            ),
            spread(warm, three),
            gibibyte.unwrap_or_default(),
            match arm.name {
                "raft-wal" => "no: only the last batch, when it opens",
                "redis" => "no: there is nothing to check",
                "sqlite" => "those still in the WAL",
                "fjall" => "those still in the journal, when it opens",
                _ if arm.raw => "no",
                _ => "yes",
            }
            .to_owned(),
        ]);
    }
    text
}

fn peak_mib(answer: &Answer) -> Option<f64> {
    Some(answer.peak_kib as f64 / 1024.0)
}

fn peak(figure: Option<Figure>) -> String {
    figure.map_or_else(|| "–".to_owned(), |figure| format!("{:.0}", figure.max))
}

/// The most memory that an arm's process had.
pub(crate) fn memory(figures: &Figures<'_>) -> String {
    let cells = [
        ("durable/1024/1", "durable, 1 KiB, 1 appender"),
        ("durable/1024/64", "durable, 1 KiB, 64"),
        ("buffered/1024/1", "no sync, 1 KiB, 1"),
        ("interval/4096/1", "2 GiB, a sync a second"),
        ("replay", "1 GiB written and read"),
    ];
    let rows = Rows { figures, cell: "durable/1024/64".to_owned() };
    let mut text = head(
        &std::iter::once("peak, MiB")
            .chain(cells.map(|(_, title)| title))
            .map(str::to_owned)
            .collect::<Vec<_>>(),
    );
    for arm in rows.sorted(peak_mib, false) {
        let mut row_cells = vec![title(arm)];
        row_cells.extend(cells.map(|(cell, _)| peak(figures.of(cell, arm.name, peak_mib))));
        text += &row(&row_cells);
    }
    text
}

/// Cost against history.
pub(crate) fn history(figures: &Figures<'_>, segments: &[u64]) -> String {
    let mut text = head(
        &["segments", "open", "read of a record at random", "durable append, p50", "p99"]
            .map(str::to_owned),
    );
    for n in segments {
        let cell = format!("history/{n}");
        let of =
            |what: fn(&Answer) -> Option<f64>| spread(figures.of(&cell, "plimsoll", what), time);
        text += &row(&[
            n.to_string(),
            of(|answer| Some(answer.open_seconds? * 1e9)),
            of(|answer| Some(answer.first_read_seconds? * 1e9)),
            of(p50),
            of(p99),
        ]);
    }
    text
}

/// Who syncs.
pub(crate) fn traced(saved: &Saved) -> String {
    let mut text = head(
        &["", "durable: syncs for 200 records", "not durable: syncs for 208 records"]
            .map(str::to_owned),
    );
    let seen = |arm: &Arm, durable: bool| {
        let traced = saved.traced.iter().find(|traced| {
            traced.arm == arm.name && (traced.cell.level == crate::task::Level::Durable) == durable
        });
        traced.map_or("–".to_owned(), |traced| {
            let calls: Vec<_> =
                traced.calls.iter().map(|(name, n)| format!("{n} {name}")).collect();
            if calls.is_empty() { "none".to_owned() } else { calls.join(", ") }
        })
    };
    for arm in arms::ARMS {
        let (durable, buffered) = (seen(arm, true), seen(arm, false));
        if durable != "–" || buffered != "–" {
            text += &row(&[title(arm), durable, buffered]);
        }
    }
    text
}

/// What the run was measured in, part by part.
pub(crate) fn conditions(saved: &Saved, figures: &Figures<'_>) -> String {
    let mut text = head(
        &[
            "part",
            "trials",
            "failed",
            "a flush: median, least–most",
            "trials beside slow flushes",
            "waiting for I/O, median",
            "waiting for a CPU, median",
            "stolen, most",
        ]
        .map(str::to_owned),
    );
    let part = |name: &str| name.split('/').next().unwrap_or_default().to_owned();
    let mut parts: Vec<String> =
        saved.trials.iter().map(|trial| part(&trial.cell.name())).collect();
    parts.dedup();
    parts.sort();
    parts.dedup();
    for name in parts {
        let trials: Vec<_> =
            saved.trials.iter().filter(|trial| part(&trial.cell.name()) == name).collect();
        let sorted = |of: &dyn Fn(&crate::conditions::Conditions) -> Option<f64>| {
            let mut values: Vec<f64> =
                trials.iter().filter_map(|trial| of(&trial.conditions)).collect();
            values.sort_unstable_by(f64::total_cmp);
            values
        };
        let share = |values: &[f64], at: usize| {
            values.get(at).map_or("–".to_owned(), |v| format!("{:.0} %", v * 100.0))
        };
        let flush = sorted(&|conditions| Some(conditions.flush_us_before));
        let io = sorted(&|conditions| conditions.io_pressure);
        let cpu = sorted(&|conditions| conditions.cpu_pressure);
        let steal = sorted(&|conditions| conditions.steal);
        text += &row(&[
            name,
            trials.len().to_string(),
            trials.iter().filter(|trial| trial.failed.is_some()).count().to_string(),
            range(&flush),
            trials.iter().filter(|trial| figures.was_slow(trial)).count().to_string(),
            share(&io, io.len() / 2),
            share(&cpu, cpu.len() / 2),
            share(&steal, steal.len().wrapping_sub(1)),
        ]);
    }
    text
}

/// What each round was measured in.
pub(crate) fn rounds(saved: &Saved, figures: &Figures<'_>) -> String {
    let mut text = head(
        &[
            "round",
            "trials",
            "a flush: median, least–most",
            "trials beside slow flushes",
            "stolen, most",
        ]
        .map(str::to_owned),
    );
    for round in 0..saved.trials.iter().map(|trial| trial.round + 1).max().unwrap_or(0) {
        let trials: Vec<_> = saved.trials.iter().filter(|trial| trial.round == round).collect();
        let mut flush: Vec<f64> =
            trials.iter().map(|trial| trial.conditions.flush_us_before).collect();
        flush.sort_unstable_by(f64::total_cmp);
        let steal = trials.iter().filter_map(|trial| trial.conditions.steal).fold(0.0, f64::max);
        text += &row(&[
            (round + 1).to_string(),
            trials.len().to_string(),
            range(&flush),
            trials.iter().filter(|trial| figures.was_slow(trial)).count().to_string(),
            format!("{:.0} %", steal * 100.0),
        ]);
    }
    text
}

/// Median, least and most of sorted microseconds.
fn range(sorted: &[f64]) -> String {
    let at = |i: usize| time(sorted.get(i).copied().unwrap_or(0.0) * 1e3);
    format!("{}, {}–{}", at(sorted.len() / 2), at(0), at(sorted.len().wrapping_sub(1)))
}

/// How each arm is set up, and why.
pub(crate) fn setups() -> String {
    let mut text = String::new();
    for arm in arms::ARMS {
        writeln!(text, "* {}: {}", title(arm), arm.setup).expect("a string takes it");
    }
    text
}
