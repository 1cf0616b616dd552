//! What does it cost to reach the medium rather than the drive?
//!
//! Source: "fsync may not be enough to guarantee data durability on Mac OS": 1 GiB in 1 MiB chunks,
//! each synced. There fsync only hands the bytes to the drive and took 302 ms in all; `F_FULLFSYNC`
//! empties the drive's cache and took 3,019 ms. Linux has no call that stops at the drive and keeps
//! metadata; its nearest kin are `sync_file_range` and `O_DIRECT` alone, and its fsync goes all the
//! way.

use std::time::Duration;

use plimsoll_sync::{Promise, SyncMethod, System};

use crate::arm_result::{ArmResult, busy_mark_of};
use crate::claim::{Article, Claim, Holds};
use crate::error::Result;
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::layout::Layout;
use crate::least::OneBlock;
use crate::runner::{self, Rule, Size, Watch};
use crate::units;
use crate::warning::busy_stamp;
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
        "\"fsync may not be enough to guarantee data durability on Mac OS\" (1 GiB in 1 MiB chunks, \
         fsync and F_FULLFSYNC)"
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
        let here = |method: &&SyncMethod| method.promise(System::HERE).is_some();
        let arms = 2 * METHODS.iter().filter(here).count();
        let block = OneBlock { time: SHAPE.block.time, syncs: 3, bytes: 0 };
        Cost::new(Duration::from_secs(seconds), disk_bytes, arms, block)
    }

    fn arm_names(&self, _: Profile) -> Vec<String> {
        specs(&METHODS).into_iter().map(WriterSpec::name).collect()
    }

    fn run(&self, setup: &Setup<'_>, watch: &Watch<'_>) -> Result<Measured> {
        let specs = specs(&writer::working(setup));
        let (mut arms, unavailable) = Writer::create_all(setup, &specs, SHAPE, watch)?;
        let samples = (setup.profile == Profile::Article).then_some(ARTICLE_CHUNKS);
        let rule = Rule {
            budget: setup.budget_left(),
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
        let (in_short, claims) = (in_short(&arms), claim.into_iter().collect());
        Ok(Measured { parameters, answer, in_short, claims, arms, unavailable })
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

/// The cheapest arms of a layout that reach the medium and the device, with their medians.
fn cheapest(arms: &[ArmResult], layout: Layout) -> Option<[(&ArmResult, u64); 2]> {
    let of = |promise: Promise| {
        arms.iter()
            .filter(|arm| arm.valid && arm.promise == promise.name())
            .filter(|arm| arm.layout == layout.name())
            .filter_map(|arm| Some((arm, arm.p50_ns()?)))
            .min_by_key(|&(_, p50)| p50)
    };
    Some([of(Promise::Media)?, of(Promise::Device)?])
}

/// What the second half of the way costs, for a line of a screen.
fn in_short(arms: &[ArmResult]) -> Option<String> {
    let [(media, media_p50), (device, device_p50)] = cheapest(arms, Layout::Overwritten)?;
    Some(format!(
        "1 MiB: {} to the medium, {} to the device ({:.1} times){}",
        units::time(media_p50),
        units::time(device_p50),
        units::ratio(media_p50, device_p50),
        busy_mark_of(&[media, device])
    ))
}

fn answer(arms: &[ArmResult]) -> (Vec<String>, Option<Claim>) {
    let (mut answer, mut claims) = (Vec::new(), None);
    for layout in [Layout::Overwritten, Layout::Append] {
        if let Some([(media, media_p50), (device, device_p50)]) = cheapest(arms, layout) {
            answer.push(format!(
                "A MiB into {}: on the medium in {} ({}), with the device in {} ({}): {:.1} times{}.",
                if layout == Layout::Append { "a growing file" } else { "written blocks" },
                units::time(media_p50),
                media.method,
                units::time(device_p50),
                device.method,
                units::ratio(media_p50, device_p50),
                busy_stamp(media.is_noisy() || device.is_noisy())
            ));
            if layout == Layout::Overwritten {
                let found = claim(units::ratio(media_p50, device_p50)).of_arms(&[media, device]);
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
    Claim::new(Article::MacOs, claim, here, verdict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;
    use crate::warning::{Kind, Warning};

    #[test]
    fn a_free_flush_is_not_taken_for_a_fast_one() {
        let said = |ratio| claim(ratio).in_words();
        assert!(said(1.02).contains("nobody empties it (1.0 times): does not hold here."));
        assert!(said(9.0).contains("as dear (9.0 times): holds here."));
        assert!(said(3.0).contains("less so (3.0 times): holds here in part."));
    }

    #[test]
    fn a_busy_machine_makes_no_verdict() {
        let arm = |promise: Promise, p50_ns, is_busy: bool| {
            let summary = Summary { n: 100, p50_ns: Some(p50_ns), ..Summary::default() };
            let mut arm = ArmResult::of_summary(promise.name(), summary);
            (arm.layout, arm.promise) = ("overwritten".to_owned(), promise.name().to_owned());
            arm.warnings.extend(is_busy.then(|| Warning::new(Kind::Noisy, "waited 66 %")));
            arm
        };
        let said = |is_busy| {
            let arms = [(Promise::Media, 400_000, is_busy), (Promise::Device, 300_000, false)];
            let arms = arms.map(|(promise, ns, is_busy)| arm(promise, ns, is_busy));
            (answer(&arms).0.join(" "), in_short(&arms).unwrap())
        };
        let (answer, short) = said(true);
        assert!(answer.contains("1.3 times, on a busy machine."), "{answer}");
        assert!(
            answer.contains("not known here, because on stable media was measured"),
            "{answer}"
        );
        assert_eq!(short, "1 MiB: 400 µs to the medium, 300 µs to the device (1.3 times) ?");
        assert!(said(false).0.ends_with("does not hold here."), "{}", said(false).0);
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
