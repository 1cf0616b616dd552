//! What must be reached, and what was.

use crate::arms;
use crate::figures::{Figure, Figures};
use crate::plan::SEGMENTS;
use crate::tables::{gigabytes, max, p50, p99, p999, rate, settled};
use crate::task::Answer;
use crate::units::{count, three, time};

const OURS: &str = "plimsoll";
const RAW_DURABLE: [&str; 2] = ["raw-dsync", "raw-fdatasync"];

/// One line.
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) must: String,
    pub(crate) measured: String,
    pub(crate) met: bool,
}

impl Goal {
    fn new(what: &str, must: &str, measured: String, met: bool) -> Self {
        Self { what: what.to_owned(), must: must.to_owned(), measured, met }
    }
}

/// What the tables call an arm.
fn title(name: &str) -> &str {
    arms::named(name).map_or(name, |arm| arm.title)
}

fn rivals() -> impl Iterator<Item = &'static str> {
    let logs = arms::ARMS.iter().filter(|arm| !arm.raw && !arm.name.starts_with(OURS));
    logs.map(|arm| arm.name)
}

/// The arm of `arms` that we stand worst against, and how, round by round: rounds that met a slow disk
/// are compared with each other.
fn hardest<'a>(
    figures: &Figures<'_>,
    cell: &str,
    arms: impl Iterator<Item = &'a str>,
    what: impl Fn(&Answer) -> Option<f64>,
    large_is_good: bool,
) -> Option<(&'a str, Figure)> {
    let all = arms.filter_map(|arm| Some((arm, figures.ratio(cell, (OURS, arm), &what)?)));
    let order =
        |one: &(&str, Figure), other: &(&str, Figure)| one.1.median.total_cmp(&other.1.median);
    if large_is_good { all.min_by(order) } else { all.max_by(order) }
}

fn times(ratio: Figure) -> String {
    format!("{:.2} × ({:.2}–{:.2})", ratio.median, ratio.min, ratio.max)
}

/// Every goal whose cells were measured.
pub(crate) fn all(figures: &Figures<'_>) -> Vec<Goal> {
    let mut goals = Vec::new();
    for size in [100, 1024, 4096] {
        goals.extend(durable_alone(figures, size));
    }
    for size in [100, 1024, 4096] {
        goals.extend(durable_many(figures, size));
    }
    goals.extend(buffered(figures));
    for (cell, what) in [
        ("paced/torture", "20,000 appends/s, a sync a second, random writes beside it"),
        ("paced/slow-sync", "the same, each sync 100 ms longer"),
    ] {
        goals.extend(paced(figures, cell, what));
    }
    goals.extend(sustained(figures));
    goals.extend(replay(figures));
    goals.extend(memory(figures));
    goals.extend(history(figures));
    goals
}

fn durable_alone(figures: &Figures<'_>, size: usize) -> Option<Goal> {
    let cell = format!("durable/{size}/1");
    let ours = figures.of(&cell, OURS, p50)?;
    let (raw, to_raw) = hardest(figures, &cell, RAW_DURABLE.into_iter(), p50, false)?;
    let (rival, to_rival) = hardest(figures, &cell, rivals(), p50, false)?;
    Some(Goal::new(
        &format!("durable append of {size} B, 1 appender"),
        "p50 ≤ 1.15 × the raw limit; faster than every rival",
        format!(
            "{}: {} that of {}; {} that of {}",
            time(ours.median),
            times(to_raw),
            title(raw),
            times(to_rival),
            title(rival)
        ),
        to_raw.median <= 1.15 && to_rival.median < 1.0,
    ))
}

fn durable_many(figures: &Figures<'_>, size: usize) -> Option<Goal> {
    let cell = format!("durable/{size}/64");
    let ours = figures.of(&cell, OURS, rate)?;
    let (rival, ratio) = hardest(figures, &cell, rivals(), rate, true)?;
    let to_p99 = figures.ratio(&cell, (OURS, rival), p99)?;
    let (wanted, or) =
        if size == 4096 { (1.2, " or 80 % of the sequential bandwidth") } else { (2.0, "") };
    let direct = figures.of("interval/4096/1", "raw-direct", settled);
    let share =
        direct.filter(|_| size == 4096).map(|direct| ours.median * 4096.0 / 1e6 / direct.median);
    let bandwidth = share
        .map_or_else(String::new, |share| format!("; {:.0} % of the bandwidth", share * 100.0));
    Some(Goal::new(
        &format!("durable append of {size} B, 64 appenders"),
        &format!("≥ {wanted} × the best rival's records/s{or}; p99 no worse"),
        format!(
            "{}/s: {} those of {}, at a p99 {} its{bandwidth}",
            count(ours.median),
            times(ratio),
            title(rival),
            times(to_p99)
        ),
        (ratio.median >= wanted || share.is_some_and(|share| share >= 0.8)) && to_p99.median <= 1.0,
    ))
}

fn buffered(figures: &Figures<'_>) -> Option<Goal> {
    let cell = "buffered/100/1";
    let (ours, our_p50) = (figures.of(cell, OURS, rate)?, figures.of(cell, OURS, p50)?);
    let (rival, ratio) = hardest(figures, cell, rivals(), rate, true)?;
    Some(Goal::new(
        "buffered append of 100 B, 1 appender",
        "p50 ≤ 200 ns; ≥ 8 M records/s; faster than every rival without syncs",
        format!(
            "p50 {}; {}/s ({}–{}): {} those of {}",
            time(our_p50.median),
            count(ours.median),
            count(ours.min),
            count(ours.max),
            times(ratio),
            title(rival)
        ),
        our_p50.median <= 200.0 && ours.median >= 8e6 && ratio.median > 1.0,
    ))
}

fn paced(figures: &Figures<'_>, cell: &str, what: &str) -> Option<Goal> {
    let (ours, longest) = (figures.of(cell, OURS, p999)?, figures.of(cell, OURS, max)?);
    let (rival, _) = hardest(figures, cell, rivals(), p999, false)?;
    let (theirs, their_longest) = (figures.of(cell, rival, p999)?, figures.of(cell, rival, max)?);
    Some(Goal::new(
        what,
        "p99.9 ≤ 10 µs, longest under 1 ms",
        format!(
            "p99.9 {} ({}–{}), longest {}; {} {}, longest {}",
            time(ours.median),
            time(ours.min),
            time(ours.max),
            time(longest.max),
            title(rival),
            time(theirs.median),
            time(their_longest.max)
        ),
        ours.median <= 10_000.0 && longest.max < 1e6,
    ))
}

fn sustained(figures: &Figures<'_>) -> Option<Goal> {
    let cell = "interval/4096/1";
    let ours = figures.of(cell, OURS, settled)?;
    let plain = figures.ratio(cell, (OURS, "raw-write"), settled)?;
    let direct = figures.of(cell, "raw-direct", settled)?;
    Some(Goal::new(
        "sustained, 4 KiB, a sync a second",
        "≥ 90 % of plain sequential writes with the same interval",
        format!(
            "{} MB/s: {:.0} % ({:.0}–{:.0}) of them; 1 MiB O_DIRECT writes {} MB/s",
            three(ours.median),
            plain.median * 100.0,
            plain.min * 100.0,
            plain.max * 100.0,
            three(direct.median)
        ),
        plain.median >= 0.9,
    ))
}

fn replay(figures: &Figures<'_>) -> Option<Goal> {
    let cold = |answer: &Answer| gigabytes(answer, answer.cold_seconds);
    let warm = |answer: &Answer| gigabytes(answer, answer.warm_seconds);
    let ours = figures.of("replay", OURS, warm)?;
    let from_disk = figures.ratio("replay", (OURS, "raw-write"), cold)?;
    let seconds = 1.073_741_824 / ours.median;
    Some(Goal::new(
        "replay of 1 GiB, records of 1 KiB, every one checked",
        "≥ 80 % of the sequential read bandwidth; cached in under 0.25 s",
        format!(
            "{:.0} % ({:.0}–{:.0}) of a plain read from the disk; cached {} s",
            from_disk.median * 100.0,
            from_disk.min * 100.0,
            from_disk.max * 100.0,
            three(seconds)
        ),
        from_disk.median >= 0.8 && seconds < 0.25,
    ))
}

fn memory(figures: &Figures<'_>) -> Option<Goal> {
    let kib = |answer: &Answer| Some(answer.peak_kib as f64);
    let peak = figures.of("interval/4096/1", OURS, kib)?;
    let most = SEGMENTS.into_iter().max()?;
    let open = figures.of(&format!("history/{most}"), OURS, |answer| answer.open_seconds)?;
    let one = figures.of("history/1", OURS, |answer| answer.open_seconds)?;
    // A tebibyte of segments of the usual size.
    let tebibyte = one.median + (open.median - one.median).max(0.0) / most as f64 * 16_384.0;
    Some(Goal::new(
        "memory, and opening 1 TiB",
        "bounded by the ring and a segment's index; open in under 100 ms beyond the last segment's scan",
        format!(
            "peak {:.0} MiB with a ring of 32 MiB; {most} segments open in {}, so 16,384 (1 TiB at 64 MiB) in {}",
            peak.max / 1024.0,
            time(open.median * 1e9),
            time(tebibyte * 1e9)
        ),
        peak.max <= 80.0 * 1024.0 && tebibyte < 0.1,
    ))
}

/// From one segment to a hundred a file has to be opened; what comes on top from there on is history.
fn history(figures: &Figures<'_>) -> Option<Goal> {
    let [one, some, most] = SEGMENTS;
    let of = |n, what: fn(&Answer) -> Option<f64>| figures.of(&format!("history/{n}"), OURS, what);
    let ratio = |many, few, what| Some(of(many, what)?.median / of(few, what)?.median);
    let read = |answer: &Answer| answer.first_read_seconds;
    let append = ratio(most, one, p50)?;
    let (to_one, to_some) = (ratio(most, one, read)?, ratio(most, some, read)?);
    Some(Goal::new(
        &format!("cost with {most} segments"),
        "grows with work, not with history",
        format!(
            "append {append:.2} × that with one; read of a record at random {to_some:.2} × that with {some}, {to_one:.2} × \
             that with one, whose file is open"
        ),
        append <= 1.2 && to_some <= 1.2,
    ))
}
