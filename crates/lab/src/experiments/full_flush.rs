//! What does it cost to reach the medium rather than the drive?
//!
//! Source: article 5 (F_FULLFSYNC on macOS): 1 GiB in 1 MiB chunks, each synced. There fsync only
//! hands the bytes to the drive and took 302 ms in all; `F_FULLFSYNC` empties the drive's cache and
//! took 3,019 ms. Linux has no call that stops at the drive and keeps metadata; its nearest kin are
//! `sync_file_range` and `O_DIRECT` alone, and its fsync goes all the way.

use std::time::Duration;

use plimsoll_sync::{Promise, SyncMethod};

use crate::claim::{Claim, Holds};
use crate::error::Result;
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::layout::Layout;
use crate::result::ArmResult;
use crate::runner::{self, Rule, Size, Watch};
use crate::units;
use crate::writer::{self, Shape, Writer, WriterSpec};

/// The experiment.
#[derive(Debug)]
pub(super) struct FullFlush;

/// The size of the article's chunks, and how many of them it writes.
const CHUNK: u64 = 1 << 20;
const ARTICLE_CHUNKS: usize = 1024;
/// The article's times for all chunks, to the drive and to the medium; they give its ratio.
const ARTICLE_HOST_MS: u32 = 302;
const ARTICLE_DEVICE_MS: u32 = 3019;

const SHAPE: Shape =
    Shape { block: Size { operations: 16, time: Duration::from_millis(100) }, records: 64 };

/// Methods of all systems that differ in how far they go. Those that work here are run.
const METHODS: [SyncMethod; 8] = [
    SyncMethod::SyncFileRange,
    SyncMethod::Direct,
    SyncMethod::Fdatasync,
    SyncMethod::Fsync,
    SyncMethod::DirectODsync,
    SyncMethod::BarrierFsync,
    SyncMethod::FullFsync,
    SyncMethod::FlushFileBuffers,
];

impl Experiment for FullFlush {
    fn name(&self) -> &'static str {
        "full-flush"
    }

    fn question(&self) -> &'static str {
        "What does it cost to reach the medium rather than the drive?"
    }

    fn source(&self) -> &'static str {
        "article 5, fsync and F_FULLFSYNC on macOS (1 GiB in 1 MiB chunks)"
    }

    fn explanation(&self) -> &'static str {
        "\
One writer writes chunks of 1 MiB and syncs after each, on a growing file and over written blocks.
Methods that stop at the device (sync_file_range, o_direct; on macOS fsync) stand beside methods that
make the device empty its cache (fsync, fdatasync, o_direct+o_dsync; on macOS F_FULLFSYNC). The two
kinds promise different things and are not ranked together: the question is what the second half of
the way costs.

How to read it: a ratio near ten means a volatile cache that is really emptied, as in the article. A
ratio near one means that the flush is free: a cache that survives power cuts, or a device or a
hypervisor that does not do what it is asked. Nothing inside the machine can tell these apart.

How it can mislead: the more is cached, the more there is to empty; a chunk of 1 MiB is much for one
sync and little for a cache."
    }

    fn cost(&self, profile: Profile) -> Cost {
        let seconds = match profile {
            Profile::Quick => 4,
            Profile::Full => 60,
            Profile::Article => 60,
        };
        let files = 2 * METHODS.len() as u64;
        let disk_bytes = files * SHAPE.records * CHUNK;
        Cost { budget: Duration::from_secs(seconds), disk_bytes }
    }

    fn arm_names(&self, _: Profile) -> Vec<String> {
        specs(&METHODS).into_iter().map(WriterSpec::name).collect()
    }

    fn run(&self, setup: &Setup<'_>, watch: &Watch<'_>) -> Result<Measured> {
        let specs = specs(&writer::working(setup));
        let (mut arms, unavailable) = Writer::create_all(setup, &specs, SHAPE, watch)?;
        let samples = (setup.profile == Profile::Article).then_some(ARTICLE_CHUNKS);
        let rule = Rule {
            budget: setup.budget,
            blocks_min: 8,
            precision: 0.02,
            samples,
            seed: setup.seed,
        };
        let blocks = runner::run(&mut arms, 1, SHAPE.block, &rule, setup.counters, watch)?;
        let arms: Vec<ArmResult> = arms
            .iter()
            .zip(&blocks)
            .map(|(arm, blocks)| with_throughput(arm.result(blocks, setup)))
            .collect();
        let parameters = vec![
            format!("chunk_bytes={CHUNK}"),
            format!("block_chunks={}", SHAPE.block.operations),
        ];
        let (answer, claim) = answer(&arms);
        let claims = claim.into_iter().collect();
        Ok(Measured { parameters, answer, claims, arms, unavailable })
    }
}

/// The arms, for the methods that work here.
fn specs(methods: &[SyncMethod]) -> Vec<WriterSpec> {
    let layouts = [Layout::Append, Layout::Overwritten];
    METHODS
        .into_iter()
        .filter(|method| methods.contains(method))
        .flat_map(|method| {
            layouts.map(|layout| WriterSpec { method, layout, payload_bytes: CHUNK })
        })
        .collect()
}

fn with_throughput(mut arm: ArmResult) -> ArmResult {
    if let Some(p50) = arm.p50_ns() {
        let mib_s = units::ratio(1_000_000_000, p50);
        arm.values.insert("throughput_mib_s".to_owned(), mib_s);
    }
    arm
}

fn answer(arms: &[ArmResult]) -> (Vec<String>, Option<Claim>) {
    let cheapest = |promise: Promise, layout: Layout| {
        arms.iter()
            .filter(|arm| arm.valid && arm.promise == promise.name())
            .filter(|arm| arm.layout == layout.name())
            .filter_map(|arm| Some((arm, arm.p50_ns()?)))
            .min_by_key(|&(_, p50)| p50)
    };
    let (mut answer, mut claims) = (Vec::new(), None);
    for layout in [Layout::Overwritten, Layout::Append] {
        let (media, device) = (cheapest(Promise::Media, layout), cheapest(Promise::Device, layout));
        if let (Some((media, media_p50)), Some((device, device_p50))) = (media, device) {
            answer.push(format!(
                "A MiB into {}: on the medium in {} ({}), with the device in {} ({}): {:.1} times.",
                if layout == Layout::Append { "a growing file" } else { "written blocks" },
                units::time(media_p50),
                media.method,
                units::time(device_p50),
                device.method,
                units::ratio(media_p50, device_p50)
            ));
            if layout == Layout::Overwritten {
                let found = claim(units::ratio(media_p50, device_p50));
                answer.push(found.in_words());
                claims = Some(found);
            }
        }
    }
    (answer, claims)
}

fn claim(ratio: f64) -> Claim {
    let article = f64::from(ARTICLE_DEVICE_MS) / f64::from(ARTICLE_HOST_MS);
    let (verdict, meaning) = if ratio < 2.0 {
        let free =
            "the flush is nearly free, by a cache that survives power cuts, or nobody empties it";
        (Holds::DoesNotHold, free)
    } else if ratio < article / 2.0 {
        (Holds::InPart, "it is dear, but less so")
    } else {
        (Holds::Holds, "it is as dear")
    };
    let claim = format!(
        "reaching the medium costs {article:.0} times reaching the drive ({ARTICLE_HOST_MS} ms and \
         {ARTICLE_DEVICE_MS} ms for 1 GiB)"
    );
    let here = format!("{meaning} ({ratio:.1} times)");
    Claim { article: 5, claim, claimed_ns: None, here, verdict }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_flush_is_not_taken_for_a_fast_one() {
        let said = |ratio| claim(ratio).in_words();
        assert!(said(1.02).contains("nobody empties it (1.0 times): does not hold here."));
        assert!(said(9.0).contains("as dear (9.0 times): holds here."));
        assert!(said(3.0).contains("less so (3.0 times): holds here in part."));
    }

    #[test]
    fn each_class_of_promise_has_a_method_on_linux_and_on_macos() {
        use plimsoll_sync::System;
        for system in [System::Linux, System::Apple] {
            for promise in [Promise::Media, Promise::Device] {
                assert!(METHODS.iter().any(|method| method.promise(system) == Some(promise)));
            }
        }
    }
}
