//! The page and its chart, from a saved run only. What a person has to say of a run stands beside it, in
//! `<run>.notes.md`, and is taken over.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::arms::{self, Arm};
use crate::chart::{Bar, Kind, Panel, draw};
use crate::figures::{Figure, Figures};
use crate::goals;
use crate::plan::SEGMENTS;
use crate::result::Saved;
use crate::tables::{self, max, p50, rate};
use crate::task::Answer;
use crate::units::{count, time};

pub(crate) fn write(json: &Path, out: &Path) -> Result<()> {
    let saved = Saved::read(json)?;
    let figures = Figures::new(&saved);
    let notes = fs::read_to_string(json.with_extension("notes.md")).unwrap_or_default();
    let chart = out.with_extension("svg");
    fs::write(&chart, draw(&caption(&saved), &panels(&figures)))
        .with_context(|| format!("cannot write {}", chart.display()))?;
    let name = chart.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = page(&saved, &figures, &name, &notes)?;
    fs::write(out, text).with_context(|| format!("cannot write {}", out.display()))?;
    eprintln!("wrote {} and {}", out.display(), chart.display());
    Ok(())
}

fn page(saved: &Saved, figures: &Figures<'_>, chart: &str, notes: &str) -> Result<String> {
    let mut text = String::from("# Benchmarks: the log beside its rivals\n\n");
    let rounds = saved.trials.iter().map(|trial| trial.round + 1).max().unwrap_or(0);
    writeln!(
        text,
        "Rendered by `plimsoll-bench report` from `bench/results/field.json`; do not edit. One command reruns it: \
         `just field` (`bench/run`).\n"
    )?;
    if saved.quick {
        writeln!(text, "**A smoke run: these figures mean nothing.**\n")?;
    }
    writeln!(text, "{}\n", machine(saved))?;
    writeln!(
        text,
        "{} trials in {rounds} rounds. In a round a workload comes once (one durable appender in all of them, most others \
         in the first third, what takes long in three at most), and within a workload the arms in seeded \
         random order, each in a process and an empty directory of its own. A figure is the **median of the rounds**, with \
         the least and the most of them in brackets; nothing is dropped. Just before and after each trial a 4 KiB write \
         and fdatasync are timed, as this device has phases in which every flush takes 4 ms: † marks a figure of which half \
         of the rounds or more met flushes over three times the run's median ({}).\n",
        saved.trials.len(),
        time(figures.flush_us() * 1e3)
    )?;
    for (arm, why) in &saved.missing {
        writeln!(text, "Left out: {arm}: {why}.\n")?;
    }
    writeln!(text, "![The log beside its rivals]({chart})\n")?;

    writeln!(
        text,
        "## What had to be reached\n\n| what | must | measured | |\n| --- | --- | --- | --- |"
    )?;
    for goal in goals::all(figures) {
        let met = if goal.met { "met" } else { "**not met**" };
        writeln!(text, "| {} | {} | {} | {met} |", goal.what, goal.must, goal.measured)?;
    }
    if !notes.is_empty() {
        writeln!(text, "\n{}", notes.trim())?;
    }

    let mut part = |title: &str, words: &str, table: String| {
        writeln!(text, "\n## {title}\n\n{words}\n\n{}", table.trim_end())
    };
    part(
        "Durable appends, one appender",
        "Time until the record is durable, closed loop.",
        tables::durable_alone(figures),
    )?;
    part(
        "Durable appends, 8 appenders",
        "Each waits for its record and appends the next.",
        tables::durable_many(figures, 8),
    )?;
    part(
        "Durable appends, 64 appenders",
        "The same with 64. The raw rows are one thread that writes the records of 64 appenders at once.",
        tables::durable_many(figures, 64),
    )?;
    part(
        "Appends without a sync, one appender",
        "Closed loop for 0.8 s. Plimsoll and Pebble return when the record is in memory: Plimsoll's may hold 32 MiB and then \
         waits for the disk, Pebble's grows for as long as it is faster than its file (see Memory). \"Plimsoll, written\", Redis and the others return \
         when the kernel has the record; etcd's writer keeps up to 128 KiB, fjall's 8 KiB in memory. One append in 16 is timed.",
        tables::buffered(figures),
    )?;
    part("Appends without a sync, 8 appenders", "As above.", tables::buffered_eight(figures))?;
    part(
        "Sustained",
        "Records of 4 KiB, up to 2 GiB or 3 s, a sync a second in the background; the first column counts until a last sync has \
         returned.",
        tables::sustained(figures),
    )?;
    part(
        "20,000 appends a second, quiet",
        "Records of 1000 B at a fixed rate, a sync a second. An append that is late because the one before it was held up \
         is late by the last column only.",
        tables::paced(figures, "paced/quiet"),
    )?;
    part(
        "The same beside random writes (article 2)",
        "Another process writes 4 KiB here and there in a file of 8 GiB, through the page cache, from 1.5 s before.",
        tables::paced(figures, "paced/torture"),
    )?;
    part(
        "The same where every sync takes 100 ms longer",
        "strace holds each fsync, fdatasync, sync_file_range, msync and syncfs of every arm for 100 ms before it returns; no other call \
         is touched (seccomp filter).",
        tables::paced(figures, "paced/slow-sync"),
    )?;
    part(
        "Reading it all",
        "A log of 1 GiB in records of 1 KiB is opened and read to the end, after its pages were dropped and once more. Slow writers get \
         less than a gibibyte into 12 s; rates are of what there was.",
        tables::replay(figures),
    )?;
    part(
        "Memory",
        "The most that the process (with Redis: and its server) ever had in memory, the harness's own megabyte of random records \
         included; worst of the rounds.",
        tables::memory(figures),
    )?;
    part(
        "Cost against history",
        "Segments of 64 KiB stand in for those of 64 MiB, as what is sealed is not read when a log opens: 10,000 of the usual ones \
         are 625 GiB.",
        tables::history(figures, &SEGMENTS),
    )?;
    part(
        "Who syncs",
        "System calls of an arm that appends with one appender, from its start on, as strace counted them: an arm called durable must sync for each record, the \
         others must not. Opening and closing may.",
        tables::traced(saved),
    )?;
    part(
        "What it was measured in",
        "PSI says how much of the time somebody waited; \"stolen\" is what the hypervisor gave to others, of one CPU.",
        format!("{}\n{}", tables::rounds(saved, figures), tables::conditions(saved, figures)),
    )?;
    part(
        "The arms",
        "Each as its documentation has it for a log that must not lose records; where it is not as it comes, that is said.",
        tables::setups(),
    )?;
    Ok(text.trim_end().to_owned() + "\n")
}

fn machine(saved: &Saved) -> String {
    let environment = &saved.environment;
    let or = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let mount = environment.mount.as_ref();
    let filesystem = mount.map_or("unknown", |mount| mount.filesystem.as_str());
    let device = environment.devices.first();
    let cache = device.and_then(|device| device.write_cache.clone());
    let began = saved.trials.first().map_or(0, |trial| trial.at);
    let versions: Vec<_> = saved.versions.values().map(String::as_str).collect();
    format!(
        "{} · {} CPUs of {} · {} GiB · Linux {} · {filesystem} on {} (write cache: {}) · {} · commit `{}` · {} · crates in \
         `bench/Cargo.lock`, Go modules in `bench/go/go.sum`.",
        date(began),
        environment.cpus,
        or(&environment.cpu),
        environment.memory_kib.unwrap_or(0) / (1 << 20),
        or(&environment.kernel),
        device.map_or("unknown", |device| device.name.as_str()),
        cache.as_deref().unwrap_or("unknown"),
        or(&environment.virtualisation),
        saved.commit,
        versions.join(" · "),
    )
}

/// What the chart says of itself.
fn caption(saved: &Saved) -> String {
    let environment = &saved.environment;
    let filesystem =
        environment.mount.as_ref().map_or("unknown", |mount| mount.filesystem.as_str());
    let rounds = saved.trials.iter().map(|trial| trial.round + 1).max().unwrap_or(0);
    format!(
        "Linux {}, {filesystem}, {} CPUs, {}; median of up to {rounds} rounds, lines from least to most; dashed: no log",
        environment.kernel.as_deref().unwrap_or("unknown"),
        environment.cpus,
        date(saved.trials.first().map_or(0, |trial| trial.at)),
    )
}

/// The day, from seconds since 1970 (Howard Hinnant's `civil_from_days`).
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

fn panels(figures: &Figures<'_>) -> Vec<Panel> {
    vec![
        panel(
            figures,
            "durable/1024/64",
            "Durable appends, 64 appenders, 1 KiB",
            "records/s; longer is better",
            rate,
            count,
            false,
        ),
        panel(
            figures,
            "durable/1024/1",
            "A durable append, one appender, 1 KiB: p50",
            "shorter is better",
            p50,
            time,
            false,
        ),
        panel(
            figures,
            "buffered/100/1",
            "Appends without a sync, one appender, 100 B",
            "records/s, logarithmic; longer is better",
            rate,
            count,
            true,
        ),
        panel(
            figures,
            "paced/torture",
            "The longest of 20,000 appends/s beside random writes, a sync a second",
            "median over rounds, logarithmic; shorter is better",
            max,
            time,
            true,
        ),
        panel(
            figures,
            "paced/slow-sync",
            "The longest of 20,000 appends/s where each sync takes 100 ms longer",
            "median over rounds, logarithmic; shorter is better",
            max,
            time,
            true,
        ),
    ]
}

fn panel(
    figures: &Figures<'_>,
    cell: &str,
    title: &str,
    note: &str,
    what: fn(&Answer) -> Option<f64>,
    write: fn(f64) -> String,
    logarithmic: bool,
) -> Panel {
    let mut found: Vec<(&Arm, Figure)> = arms::ARMS
        .iter()
        .filter_map(|arm| Some((arm, figures.of(cell, arm.name, what)?)))
        .collect();
    found.sort_by(|(_, one), (_, other)| one.median.total_cmp(&other.median));
    if note.contains("longer is better") {
        found.reverse();
    }
    let bars = found.into_iter().map(|(arm, figure)| Bar {
        label: arm.title.to_owned(),
        value: figure.median,
        least: figure.min,
        most: figure.max,
        text: write(figure.median),
        kind: match (arm.name.starts_with("plimsoll"), arm.raw) {
            (true, _) => Kind::Ours,
            (_, false) => Kind::Rival,
            (_, true) => Kind::Raw,
        },
    });
    Panel { title: title.to_owned(), note: note.to_owned(), logarithmic, bars: bars.collect() }
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn days_are_counted_through_leap_years() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_795_219_200), "2026-11-21");
    }
}
