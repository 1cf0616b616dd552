//! The experiment: what it asks, what it costs, and how a run goes.

use std::time::Duration;

use super::answer::{answer, in_short};
use super::arm::Arm;
use super::fleet::{Fleet, Stop};
use super::plan::{self, GUARD, RECORD_BYTES, SYNC_BEHIND, Spec, block_time, specs};
use super::producers::Producers;
use super::round_trip::RoundTrip;
use crate::arm_result::ArmResult;
use crate::error::Result;
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::layout::Layout;
use crate::least::OneBlock;
use crate::result::Unavailable;
use crate::runner::{self, Rule, Size, Watch};
use crate::writer::{Shape, Writer, WriterSpec};

/// The experiment.
#[derive(Debug)]
pub(crate) struct ReplicatedCommit;

/// The file of the lab's own writer, and its records: more than a block can write.
const FILE: &str = "disk-sync";
const RECORDS: usize = 64 << 10;
/// About what four brokers keep for a second of being written to.
const BYTES_PER_S: u64 = 8 << 20;
/// What they allocate when they begin.
const BYTES_BEFORE: u64 = 320 << 20;

impl Experiment for ReplicatedCommit {
    fn name(&self) -> &'static str {
        "replicated-commit"
    }

    fn question(&self) -> &'static str {
        "What does an acknowledgement cost from a disk's sync, a quorum's memory, a quorum's disks?"
    }

    fn source(&self) -> &'static str {
        "\"Wait Before You Sync\""
    }

    fn explanation(&self) -> &'static str {
        "\
Starts brokers of this very program on this machine, one alone and three that are one cluster, with their
data on the disk that is measured. Writers send a record of 200 bytes, wait for its acknowledgement
(acks=all), and send the next: 1 writer, and 64 at once (16 too, but in the profile 'quick').

  disk-sync      no broker: the lab overwrites a record and syncs it. What a sync of this disk takes
  round-trip     no broker: as many bytes to another thread and back. What this network takes
  one-memory     one broker has it in memory: on tmpfs if there is one, otherwise with the kernel
  one-disk       one broker synced it (flush.messages=1); those who wait together share a sync
  quorum-memory  two of three brokers have it in memory
  quorum-disks   two of three brokers synced it (flush.messages=1)

What is acknowledged from memory is synced behind, every 100 ms (flush.ms=100): far more often than the
article's 10 to 30 seconds, so that each block pays for its own syncs. 'unsynced' is the most that was
acknowledged and not synced on a broker's disk, of what was seen when blocks ended.

A new cluster waits for disks until all its voters have been well for ten seconds (guarded). It is waited
for; a block in which brokers were guarded, or another came to lead, is left out, and that is said. With
one writer, each acknowledgement from a disk must have flushed the device.

How to read it: compare quorum-memory with one-disk: that is the article's advice against a database on
one machine. Compare quorum-disks with quorum-memory: that is what its advice saves. What the sync
buys instead is said in docs/replication.md: if a majority loses power at once, a quorum's disks lose
nothing, and a quorum's memory loses the last moments, and says which. Tables and charts list what is
acknowledged from memory under the promise 'nothing', which is about that power cut.

How it can mislead: the network is the loopback of this machine, so a round trip is 10 to 50 times as fast
as one between machines: add two of yours to a quorum's figures (round-trip says what ours took). Three
brokers share one disk and the CPUs of one machine: their syncs queue up behind each other, which those of
three machines do not, and 64 writers beside three brokers on few CPUs are limited by CPUs. Nothing here
tells whether anything is lost: that is what `plimsoll disk explore` and the broker's own tests are for.

It is not part of a run that names no experiment: that one is about the disk alone and takes two minutes.
It uses free ports of 127.0.0.1 and a directory in /dev/shm, which are given back; after a kill -9 the
brokers end by themselves, and `plimsoll lab clean` removes what is left here, and in /dev/shm if told so."
    }

    fn cost(&self, profile: Profile) -> Cost {
        let seconds = match profile {
            Profile::Quick => 60,
            Profile::Full => 240,
            Profile::Article => 120,
        };
        let disk_bytes = BYTES_BEFORE + seconds * BYTES_PER_S;
        let arms = specs(profile).len();
        // Between blocks it is waited until all is synced.
        let block = OneBlock { time: block_time(profile) + SYNC_BEHIND, syncs: 3, bytes: 0 };
        Cost::new(Duration::from_secs(seconds), disk_bytes, arms, block)
    }

    fn arm_names(&self, profile: Profile) -> Vec<String> {
        specs(profile).into_iter().map(Spec::name).collect()
    }

    fn runs_unasked(&self) -> bool {
        false
    }

    fn touches_beside(&self) -> Option<&'static str> {
        Some(
            "starts brokers of this program on free ports of 127.0.0.1, which have a directory of the same \
             name in /dev/shm if there is one, and are gone at the end",
        )
    }

    fn run(&self, setup: &Setup<'_>, watch: &Watch<'_>) -> Result<Measured> {
        let wanted: Vec<Spec> =
            specs(setup.profile).into_iter().filter(|spec| setup.wants(&spec.name())).collect();
        let way = |spec: &Spec| match spec {
            Spec::Acknowledged(way, _) => Some(*way),
            Spec::DiskSync | Spec::RoundTrip => None,
        };
        let ways: Vec<_> = wanted.iter().filter_map(way).collect();
        let fleet = match setup.program {
            Some(program) if !ways.is_empty() => Some(Fleet::start(setup, program, &ways, watch)?),
            _ => None,
        };
        let stop = Stop::new(watch.cancel);
        let mut arms = Vec::new();
        let mut unavailable = Vec::new();
        for spec in wanted {
            watch.check()?;
            let arm = match (spec, &fleet) {
                (Spec::DiskSync, _) => Arm::DiskSync(Box::new(disk_sync(setup)?)),
                (Spec::RoundTrip, _) => Arm::RoundTrip(RoundTrip::create()?),
                (Spec::Acknowledged(way, writers), Some(fleet)) => Arm::Producers(Box::new(
                    Producers::create(setup, way, writers, fleet, &stop, watch)?,
                )),
                (Spec::Acknowledged(..), None) => {
                    let reason =
                        "whoever runs the lab names no program to start as a broker".to_owned();
                    unavailable.push(Unavailable { name: spec.name(), reason });
                    continue;
                }
            };
            arms.push(arm);
        }
        let time = block_time(setup.profile);
        let rule = Rule {
            budget: setup.budget_left(),
            blocks_min: 10,
            precision: 0.02,
            samples: None,
            seed: setup.seed,
        };
        let progress = |so_far| {
            stop.pass_on();
            (watch.progress)(so_far);
        };
        let stoppable = Watch { cancel: &stop.stopped, progress: &progress };
        let size = Size { operations: RECORDS, time };
        let ran = runner::run(&mut arms, 1, size, &rule, setup.counters, &stoppable);
        if let Some(failure) = stop.failure() {
            return Err(failure);
        }
        let blocks = ran?;
        // A block that was cut short does not count.
        watch.check()?;
        let results: Vec<ArmResult> =
            arms.iter().zip(&blocks).map(|(arm, blocks)| arm.result(blocks, setup)).collect();
        drop(arms);
        let mut parameters = vec![
            format!("record_bytes={RECORD_BYTES}"),
            format!("method={}", plan::method(setup)),
            format!("block_ms={}", time.as_millis()),
        ];
        if let Some(fleet) = &fleet {
            let memory = if fleet.is_in_memory { "tmpfs" } else { "kernel" };
            parameters.extend([
                "network=loopback".to_owned(),
                "brokers=1+3".to_owned(),
                format!("memory={memory}"),
                format!("flush_ms={}", SYNC_BEHIND.as_millis()),
                format!("guard_s={}", GUARD.as_secs()),
            ]);
        }
        let (answer, claims) = answer(&results, setup.profile);
        let in_short = in_short(&results);
        Ok(Measured { parameters, answer, in_short, claims, arms: results, unavailable })
    }
}

/// The lab's own writer, over written blocks.
fn disk_sync(setup: &Setup<'_>) -> plimsoll_sync::Result<Writer> {
    let spec = WriterSpec {
        method: plan::method(setup),
        layout: Layout::Overwritten,
        payload_bytes: RECORD_BYTES as u64,
    };
    let block = Size { operations: RECORDS, time: block_time(setup.profile) };
    Writer::create(setup, spec, Shape { block, records: RECORDS as u64 }, FILE)
}
