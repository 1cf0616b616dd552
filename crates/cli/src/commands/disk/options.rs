//! What was typed, as the library wants it: disks, checks, beliefs, traces.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use plimsoll_lab::result::{self, ArmResult};
use plimsoll_simdisk::block::{Belief, Model, Trace};
use plimsoll_simdisk::mounted::{Check, MarkOn, Preparation, Program, RigOptions};

use crate::disk_args::{CheckArgs, DiskArgs, ViewArgs};

/// What was typed, for the library.
pub(super) fn rig_options(filesystem: &str, args: &DiskArgs) -> Result<RigOptions> {
    let filesystem = filesystem.parse().map_err(anyhow::Error::msg)?;
    Ok(RigOptions {
        disk_bytes: args.size,
        mkfs_args: args.mkfs.clone(),
        mount_options: args.mount_options.clone(),
        faults: args.faults.clone(),
        latency: latency(args)?,
        seed: args.seed,
        ..RigOptions::new(filesystem)
    })
}

/// What is put on a disk first.
pub(super) fn preparation(args: &DiskArgs) -> Preparation {
    Preparation { from: args.from.clone(), setup: args.setup.clone() }
}

/// Which lines are marks.
pub(super) fn mark_on(expression: Option<&str>) -> Result<Option<MarkOn>> {
    let parsed = expression.map(str::parse).transpose();
    parsed.map_err(|wrong: String| anyhow!("--mark-on: {wrong}"))
}

/// A model by name, or one made of what the lab measured.
fn latency(args: &DiskArgs) -> Result<Option<Model>> {
    let Some(name) = &args.latency else { return Ok(None) };
    let model = match name.parse::<Model>() {
        Ok(model) => model,
        Err(wrong) if !Path::new(name).exists() => bail!("--latency: {wrong}, nor a file"),
        Err(_) => measured(Path::new(name))?,
    };
    Ok(Some(match args.cache {
        Some(bytes) => model.with_cache(bytes),
        None => model,
    }))
}

/// Of a result of `sync-cost`: 4 KiB handed to the device, and 4 KiB made durable, over blocks that are
/// there already.
fn measured(path: &Path) -> Result<Model> {
    let results = result::load(path)?;
    let p50 = |methods: &[&str]| {
        let arms = results.iter().flat_map(|result| &result.arms);
        let fits = |arm: &&ArmResult| {
            arm.valid
                && arm.payload_bytes == 4096
                && arm.layout == "overwritten"
                && methods.contains(&arm.method.as_str())
        };
        arms.filter(fits).find_map(ArmResult::p50_ns)
    };
    let durable = p50(&["o_direct+fdatasync", "o_direct+o_dsync", "fdatasync"]);
    let written = p50(&["o_direct"]);
    match (written, durable) {
        (Some(written), Some(durable)) => Ok(Model::measured(written, durable)),
        _ => bail!(
            "{} has no arms o_direct and fdatasync of 4 KiB over blocks that are there: it must come from \
             `plimsoll lab run sync-cost`",
            path.display()
        ),
    }
}

/// A check as the library knows it.
pub(super) fn check(args: &CheckArgs) -> Check {
    let program = Program::shell(&args.check);
    Check { program, limit: args.check_limit, aloud: false }
}

/// What is believed of the disk.
pub(super) fn belief(view: &ViewArgs) -> Belief {
    Belief { flushes_lie: view.lying, cache_bytes: view.cache }
}

/// The traces that are meant: a file, or all of a directory.
pub(super) fn traces(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let listed = std::fs::read_dir(path).with_context(|| format!("read {}", path.display()))?;
    let mut traces = Vec::new();
    for entry in listed {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "trace") {
            traces.push(path);
        }
    }
    traces.sort();
    if traces.is_empty() {
        bail!("{} holds no traces: `plimsoll disk record -o {0}` makes them", path.display());
    }
    Ok(traces)
}

/// Reads a trace.
pub(super) fn load(path: &Path) -> Result<Trace> {
    Ok(Trace::load(path)?)
}
