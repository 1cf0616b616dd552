//! `plimsoll lab clean`: what killed runs left, removed.

use std::path::Path;

use anyhow::Result;
use plimsoll_lab::leftovers::{self, Cleaned};
use plimsoll_lab::units;
use serde_json::json;

use crate::exit::Exit;
use crate::output;

pub(crate) fn run(dir: &Path, dry_run: bool, json: bool) -> Result<Exit> {
    let cleaned = leftovers::clean(dir, dry_run).map_err(plimsoll_lab::Error::from)?;
    if json {
        let removed = cleaned.removed.iter().map(|left| {
            json!({ "path": left.path.display().to_string(), "files": left.files, "bytes": left.bytes })
        });
        let kept = cleaned.kept.iter().map(|kept| {
            let path = kept.path.display().to_string();
            json!({ "path": path, "in_use": kept.in_use, "reason": kept.reason })
        });
        let answer = json!({
            "directory": dir.display().to_string(),
            "dry_run": dry_run,
            "removed": removed.collect::<Vec<_>>(),
            "kept": kept.collect::<Vec<_>>(),
            "bytes": cleaned.bytes(),
        });
        output::text(&format!("{}\n", serde_json::to_string_pretty(&answer)?))?;
    } else {
        output::text(&in_words(&cleaned, dir, dry_run))?;
    }
    Ok(if leaves_some(&cleaned) { Exit::CheckFailed } else { Exit::Ok })
}

/// Whether something is left that no run is using.
fn leaves_some(cleaned: &Cleaned) -> bool {
    cleaned.kept.iter().any(|kept| !kept.in_use)
}

fn in_words(cleaned: &Cleaned, dir: &Path, dry_run: bool) -> String {
    let removed = if dry_run { "would remove" } else { "removed" };
    let mut text = String::new();
    for left in &cleaned.removed {
        let files =
            if left.files == 1 { "1 file".to_owned() } else { format!("{} files", left.files) };
        let bytes = units::bytes(left.bytes);
        text += &format!("{removed} {} ({files}, {bytes})\n", left.path.display());
    }
    for kept in &cleaned.kept {
        text += &format!("left alone: {}: {}\n", kept.path.display(), kept.reason);
    }
    match cleaned.removed.len() {
        0 if leaves_some(cleaned) => {}
        0 => text += &format!("no killed run left anything in {} to remove\n", dir.display()),
        1 => {}
        _ => text += &format!("{removed} {} in all\n", units::bytes(cleaned.bytes())),
    }
    text
}
