//! `plimsoll log stat`: what is there, and what would at least survive a power cut now.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use plimsoll_lab::units;
use plimsoll_log::{SegmentReport, SegmentState};
use serde_json::json;

use crate::exit::Exit;
use crate::log_args::LookArgs;
use crate::output;

pub(super) fn run(args: &LookArgs) -> Result<Exit> {
    // First the writer: what it writes after this question is there as well, not the other way round.
    let writer = args.log.writer()?;
    let view = args.log.view()?;
    let mut segments = view.outline()?;
    segments.retain(|segment| segment.state != SegmentState::Stale);
    let first_index = view.first_index();
    let last_index = segments.last().map_or(0, |newest| newest.last_index);
    let marked = segments.iter().map(|segment| segment.durable).max().unwrap_or(0);
    // A note says so where the last segment had no room for a mark.
    let is_closed = segments.iter().any(|segment| segment.state == SegmentState::Closed);
    let durable = if is_closed { last_index } else { marked.min(last_index) };
    let file_bytes: u64 = segments.iter().map(|segment| segment.file_bytes).sum();
    let oldest = segments.iter().map(|segment| segment.unix_ns).find(|unix_ns| *unix_ns > 0);
    let corrupt = segments.iter().find_map(|segment| match &segment.state {
        SegmentState::Corrupt(corruption) => Some(corruption.to_string()),
        _ => None,
    });
    let n = last_index.saturating_add(1).saturating_sub(first_index);
    let is_in_memory = args.log.is_in_memory()?;
    let at_risk = if is_in_memory { n } else { last_index.saturating_sub(durable) };
    let exit = if corrupt.is_some() { Exit::CheckFailed } else { Exit::Ok };
    if args.json {
        let answer = json!({
            "first_index": first_index,
            "last_index": last_index,
            "records": n,
            "segments": segments.len(),
            "file_bytes": file_bytes,
            "segment_bytes": super::segment_bytes(&segments),
            "oldest_unix_ns": oldest,
            "open": writer.is_some(),
            "writer_pid": writer.flatten(),
            "durable": durable,
            "may_be_lost": at_risk,
            "in_memory": is_in_memory,
            "corrupt": corrupt,
        });
        output::answer(&format!("{answer}\n"))?;
        return Ok(exit);
    }
    let held = match n {
        0 => format!("none; the next one is {first_index}"),
        n => format!("{first_index} to {last_index} ({n})"),
    };
    let open = match writer {
        Some(pid) => {
            format!("{} writes it; what that holds in memory is not seen here", super::process(pid))
        }
        None => "nobody writes it".to_owned(),
    };
    let age = oldest.map_or_else(String::new, |unix_ns| {
        let age = Duration::from_secs(since(unix_ns).as_secs());
        format!("; the oldest begun {} ago", humantime::format_duration(age))
    });
    let mut text = format!("records    {held}\n");
    text += &format!("segments   {}, {}{age}\n", segments.len(), units::bytes(file_bytes));
    text += &format!("open       {open}\n");
    let survives = match is_in_memory {
        true => super::IN_MEMORY.to_owned(),
        false => survives(&segments, first_index, last_index, durable),
    };
    text += &format!("power cut  {survives}\n");
    if let Some(corrupt) = corrupt {
        text += &format!("damage     {corrupt}; `plimsoll log verify` says what is readable\n");
    }
    output::answer(&text)?;
    Ok(exit)
}

/// What a power cut now would leave at least: what is durable is noted at most once in 4 KiB.
fn survives(segments: &[SegmentReport], first_index: u64, last_index: u64, durable: u64) -> String {
    if segments.is_empty() || last_index < first_index {
        return "nothing to lose".to_owned();
    }
    if durable >= last_index {
        return "nothing would be lost".to_owned();
    }
    let lost = super::range(durable + 1, last_index);
    if durable < first_index {
        return format!("no record is known to be durable: {lost} may be lost");
    }
    format!("at least {} would be there; {lost} may be lost", super::range(first_index, durable))
}

fn since(unix_ns: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_nanos(unix_ns))
}
