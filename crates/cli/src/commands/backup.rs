//! `plimsoll backup` and `plimsoll restore`: a broker's data, kept in another directory, and brought back.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plimsoll_lab::units;
use plimsoll_server::backup::{self, Error, HEAD, Progress, Report, ShardReport};
use plimsoll_sync::{Dir, OsDir};
use serde_json::{Value, json};

use crate::backup_args::{BackupArgs, RestoreArgs};
use crate::exit::Exit;
use crate::interrupt::{interrupted, on_interrupt};
use crate::output::{self, counted};

/// What a filesystem puts into its first directory.
const LOST_AND_FOUND: &str = "lost+found";
/// What a backup that was killed at once leaves.
const OURS: [&str; 3] = [LOST_AND_FOUND, "lock", "backup.new"];

pub(crate) fn backup(args: &BackupArgs) -> Result<Exit> {
    on_interrupt(|| {})?;
    let BackupArgs { source, dest, json } = args;
    refuse_one_in_the_other(source, dest)?;
    let from: Arc<dyn Dir> = Arc::new(OsDir::open(source)?);
    if !dest.join(HEAD).is_file() {
        refuse_what_is_there(dest, &OURS)?;
    }
    let is_new = !dest.exists();
    let to: Arc<dyn Dir> = Arc::new(OsDir::create_all(dest)?);
    let bar = bar();
    let taken = backup::backup(&from, &to, now_ms(), &mut |progress| show(&bar, progress));
    bar.finish_and_clear();
    match taken {
        Ok(report) if *json => output::text(&format!("{}\n", object(&report)))?,
        Ok(report) => output::text(&text(&report, true))?,
        Err(Error::Stopped) => {
            let shown = dest.display();
            output::news(&format!(
                "interrupted: what was copied of chapters stays in {shown}, and the next `plimsoll backup` goes on \
                 from there; a backup that was whole before still is"
            ));
            return Ok(Exit::Interrupted);
        }
        Err(why) => {
            if is_new {
                // Only if nothing is in it.
                fs::remove_dir(dest).ok();
            }
            let of_dest = matches!(
                why,
                Error::NotEmpty { .. } | Error::OtherBroker { .. } | Error::Damaged { .. }
            );
            let shown = if of_dest { dest } else { source };
            return Err(why).context(shown.display().to_string());
        }
    }
    Ok(Exit::Ok)
}

pub(crate) fn restore(args: &RestoreArgs) -> Result<Exit> {
    on_interrupt(|| {})?;
    let RestoreArgs { backup, dest, json } = args;
    refuse_one_in_the_other(backup, dest)?;
    refuse_what_is_there(dest, &[LOST_AND_FOUND])?;
    let from: Arc<dyn Dir> = Arc::new(OsDir::open(backup)?);
    // Before a directory is made that nobody needs.
    backup::Look::open(&from).with_context(|| backup.display().to_string())?;
    let is_new = !dest.exists();
    let to: Arc<dyn Dir> = Arc::new(OsDir::create_all(dest)?);
    let bar = bar();
    let put = backup::restore(&from, &to, &mut |progress| show(&bar, progress));
    bar.finish_and_clear();
    let why = match put {
        Ok(report) => {
            if *json {
                output::text(&format!("{}\n", object(&report)))?;
            } else {
                let shown = dest.display();
                output::text(&text(&report, false))?;
                let alone = if report.came_from.is_some() {
                    "; docs/backup.md says how more brokers join it"
                } else {
                    ""
                };
                output::text(&format!(
                    "`plimsoll serve --dir {shown}` starts it; it will say that records may be lost: what was \
                     written after the backup{alone}\n"
                ))?;
            }
            return Ok(Exit::Ok);
        }
        // What is there is somebody else's.
        Err(why @ Error::NotEmpty { .. }) => {
            return Err(why).with_context(|| dest.display().to_string());
        }
        Err(why) => why,
    };
    drop(to);
    let cleared = clear(dest, is_new);
    let left = match &cleared {
        Ok(()) => "nothing was restored".to_owned(),
        Err(why) => {
            format!("{} is not a broker's directory, and cannot be removed: {why}", dest.display())
        }
    };
    if matches!(why, Error::Stopped) {
        output::news(&format!("interrupted: {left}"));
        return Ok(Exit::Interrupted);
    }
    Err(why).context(format!("{}: {left}", backup.display()))
}

/// A backup within what it is a backup of would be lost with it, and changes it.
fn refuse_one_in_the_other(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        bail!("there is no directory {}", from.display());
    }
    let (from_whole, to_whole) = (fs::canonicalize(from)?, whole_path(to)?);
    if to_whole.starts_with(&from_whole) || from_whole.starts_with(&to_whole) {
        bail!(
            "{} and {} lie one in the other: name a directory elsewhere, best on another disk",
            from.display(),
            to.display()
        );
    }
    Ok(())
}

/// Where a path leads that may not be there yet.
fn whole_path(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let there = path.ancestors().find(|above| above.exists()).unwrap_or(&path);
    let behind = path.strip_prefix(there)?;
    Ok(fs::canonicalize(there)?.join(behind))
}

/// Refuses a directory that has something beside these.
fn refuse_what_is_there(dir: &Path, may_be: &[&str]) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| dir.display().to_string())?,
    };
    for entry in entries {
        let found = entry?.file_name().to_string_lossy().into_owned();
        if !may_be.contains(&&*found) {
            return Err(Error::NotEmpty { found }).with_context(|| dir.display().to_string());
        }
    }
    Ok(())
}

/// Takes away what was restored in part. The directory was empty, or not there.
fn clear(dir: &Path, and_itself: bool) -> io::Result<()> {
    if and_itself {
        return fs::remove_dir_all(dir);
    }
    // What keeps a broker from starting there goes last.
    let mut entries: Vec<_> = fs::read_dir(dir)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(|entry| entry.file_name() == "cluster");
    for entry in entries {
        match entry.file_type()?.is_dir() {
            true if entry.file_name() == LOST_AND_FOUND => {}
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Whether to go on.
fn show(bar: &ProgressBar, progress: Progress) -> bool {
    match progress {
        Progress::Lacking(bytes) => bar.set_length(bar.position() + bytes),
        Progress::Runs(bytes) => bar.inc(bytes),
        Progress::Log(_) => bar.set_message("logs"),
    }
    !interrupted()
}

fn bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:24} {bytes} of {total_bytes}, {eta} left {msg}")
        .expect("it is well formed");
    ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(4)).with_style(style)
}

fn text(report: &Report, is_backup: bool) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(report.begun_ms);
    let time = humantime::format_rfc3339_seconds(time);
    let what = if is_backup { "backed up" } else { "restored" };
    let cluster = &report.cluster;
    let mut text = match &report.came_from {
        None => format!("{what}: the broker {cluster}, with all that was durable at {time}\n"),
        Some(before) => format!(
            "{what}: a replica of the cluster {before}, with all that was durable on its disk at {time}; it is a \
             new cluster now, {cluster}, whose only node is 1\n"
        ),
    };
    for doubt in &report.doubts {
        text += &format!(
            "this broker may lack what others have: {doubt}; take a backup of another too\n"
        );
    }
    let sum = |of: fn(&ShardReport) -> u64| report.shards.iter().map(of).sum::<u64>();
    let runs = |runs: u64, bytes: u64| format!("{}, {}", counted(runs, "run"), units::bytes(bytes));
    text += &format!(
        "copied: {} of chapters; {} of what is not settled\n",
        runs(sum(|shard| shard.runs.copied_runs), sum(|shard| shard.runs.copied_bytes)),
        units::bytes(sum(|shard| shard.log_bytes))
    );
    if is_backup {
        text += &format!(
            "there already: {}; dropped, as the broker has: {}\n",
            runs(sum(|shard| shard.runs.kept_runs), sum(|shard| shard.runs.kept_bytes)),
            counted(sum(|shard| shard.runs.dropped_runs), "run")
        );
    }
    for shard in &report.shards {
        let ShardReport { number, last_index, log_entries, chapter, .. } = shard;
        text += &format!(
            "shard {number} ({}): up to log index {last_index}, {log_entries} of them in the log",
            whose(*number)
        );
        if *chapter > 0 {
            text += &format!(", chapters up to {chapter}");
        }
        text += "\n";
    }
    text
}

/// What a shard holds.
fn whose(number: u32) -> &'static str {
    ["topics", "groups", "records", "records of topics with flush.messages=1"]
        .get(number as usize)
        .copied()
        .unwrap_or("records")
}

fn object(report: &Report) -> Value {
    let shard = |shard: &ShardReport| {
        json!({
            "shard": shard.number,
            "last_log_index": shard.last_index,
            "log_entries": shard.log_entries,
            "log_bytes": shard.log_bytes,
            "chapter": shard.chapter,
            "copied_runs": shard.runs.copied_runs,
            "copied_bytes": shard.runs.copied_bytes,
            "kept_runs": shard.runs.kept_runs,
            "kept_bytes": shard.runs.kept_bytes,
            "dropped_runs": shard.runs.dropped_runs,
        })
    };
    json!({
        "cluster": report.cluster,
        "came_from": report.came_from,
        "begun_ms": report.begun_ms,
        "doubts": report.doubts,
        "shards": report.shards.iter().map(shard).collect::<Vec<_>>(),
    })
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
