//! `plimsoll log dump`: what the files hold, frame by frame.

use std::io::Write;

use anyhow::{Result, bail};
use plimsoll_log::{Dumped, Kind, SegmentReport, SegmentState, VERSION};
use serde_json::{Value, json};

use super::record::put_payload;
use crate::exit::Exit;
use crate::log_args::DumpArgs;
use crate::output;

/// How much of a payload is shown on a line.
const PREVIEW_BYTES: usize = 64;

pub(super) fn run(args: &DumpArgs) -> Result<Exit> {
    let view = args.log.view()?;
    let mut segments = view.outline()?;
    for name in &args.segment {
        if !segments.iter().any(|segment| segment.segment == *name) {
            bail!("there is no segment {name}; `plimsoll log verify --details` lists them");
        }
    }
    let last_index = super::last_index(&segments);
    let is_named = |segment: &SegmentReport| args.segment.contains(&segment.segment);
    segments.retain(|segment| args.segment.is_empty() || is_named(segment));
    if let Some(from) = args.from {
        segments.retain(|segment| may_hold(segment, from));
        if segments.is_empty() && !args.segment.is_empty() {
            bail!("no record from {from} on is in {}", args.segment.join(" or "));
        }
        if segments.is_empty() {
            return Err(super::missing(from, view.first_index(), last_index));
        }
    }
    let mut out = output::stream();
    // What may hold a record behind what is bad need not.
    let mut is_found = args.from.is_none();
    for segment in &segments {
        // Everything before the first record that was asked for is left out, but for what is bad.
        let mut begun = args.from.is_none();
        if !args.json {
            writeln!(out, "{}", segment.segment)?;
        }
        view.dump(segment, |dumped| -> Result<()> {
            if let (Dumped::Frame { frame, .. }, Some(from)) = (&dumped, args.from) {
                begun |= frame.kind == Kind::Record && frame.index >= from;
                is_found |= begun;
                if !begun {
                    return Ok(());
                }
            }
            if args.json {
                writeln!(out, "{}", object(segment, &dumped, args.payload))?;
            } else {
                writeln!(out, "{}", line(&dumped, args.payload))?;
            }
            Ok(())
        })?;
    }
    out.flush()?;
    match args.from {
        Some(from) if !is_found => Err(super::missing(from, view.first_index(), last_index)),
        _ => Ok(Exit::Ok),
    }
}

/// Whether a record from this one on may be in the segment, also behind what is bad there.
fn may_hold(segment: &SegmentReport, from: u64) -> bool {
    let behind = match &segment.state {
        SegmentState::Torn(wrong) | SegmentState::Corrupt(wrong) => *wrong.records.end(),
        SegmentState::Stale => u64::MAX,
        SegmentState::Good | SegmentState::Closed | SegmentState::Open => 0,
    };
    segment.last_index.max(behind) >= from
}

fn line(dumped: &Dumped<'_>, shows_payload: bool) -> String {
    match dumped {
        Dumped::Header(header) => format!(
            "{:>12}  header  version {VERSION}, log {:032x}, salt {:016x}, {} bytes",
            0, header.log_id, header.salt, header.segment_bytes
        ),
        Dumped::Frame { byte_offset, frame, payload, link } => {
            let kind = frame.kind.name();
            let (index, bytes) = (frame.index, frame.payload_bytes);
            let mut line = format!("{byte_offset:>12}  {kind:<6}  {index:<12} {bytes:>9} B  ok");
            if frame.more > 0 {
                line += &format!("  {} more of its batch", frame.more);
            }
            if let Some(link) = link {
                line += &format!(
                    "  ordinal {}, generation {}, after salt {:016x} (first record {}, ends at {}), \
                     durable {}, begun {}",
                    link.ordinal,
                    link.generation,
                    link.previous_salt,
                    link.previous_first_index,
                    link.previous_end,
                    link.durable,
                    time(link.unix_ns)
                );
            }
            if shows_payload && frame.kind == Kind::Record {
                let shown = &payload[..payload.len().min(PREVIEW_BYTES)];
                let rest = if payload.len() > shown.len() { "…" } else { "" };
                line += &format!("  \"{}\"{rest}", shown.escape_ascii());
            }
            line
        }
        Dumped::Empty { byte_offset } => {
            format!("{byte_offset:>12}  empty   nothing is written here")
        }
        Dumped::Bad { byte_offset, damage, next_valid } => {
            let next = match next_valid {
                Some(next) => format!("the next valid frame is at {next}"),
                None => "no valid frame follows".to_owned(),
            };
            let bad = if output::colour() { "\x1b[31mbad\x1b[0m" } else { "bad" };
            format!("{byte_offset:>12}  {bad}     {damage}; {next}")
        }
    }
}

fn object(segment: &SegmentReport, dumped: &Dumped<'_>, shows_payload: bool) -> Value {
    let mut object = match dumped {
        Dumped::Header(header) => json!({
            "frame": "header",
            "byte_offset": 0,
            "version": VERSION,
            "log_id": format!("{:032x}", header.log_id),
            "salt": format!("{:016x}", header.salt),
            "segment_bytes": header.segment_bytes,
        }),
        Dumped::Frame { byte_offset, frame, payload, link } => {
            let mut object = json!({
                "frame": frame.kind.name(),
                "byte_offset": byte_offset,
                "index": frame.index,
                "payload_bytes": frame.payload_bytes,
                "more": frame.more,
            });
            if let Some(link) = link {
                object["ordinal"] = link.ordinal.into();
                object["generation"] = link.generation.into();
                object["previous_salt"] = format!("{:016x}", link.previous_salt).into();
                object["previous_first_index"] = link.previous_first_index.into();
                object["previous_end"] = link.previous_end.into();
                object["durable"] = link.durable.into();
                object["unix_ns"] = link.unix_ns.into();
            }
            if shows_payload && frame.kind == Kind::Record {
                put_payload(&mut object, payload);
            }
            object
        }
        Dumped::Empty { byte_offset } => json!({ "frame": "empty", "byte_offset": byte_offset }),
        Dumped::Bad { byte_offset, damage, next_valid } => json!({
            "frame": "bad",
            "byte_offset": byte_offset,
            "reason": damage.to_string(),
            "next_valid": next_valid,
        }),
    };
    object["segment"] = segment.segment.clone().into();
    object
}

fn time(unix_ns: u64) -> String {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(unix_ns);
    humantime::format_rfc3339_seconds(time).to_string()
}
