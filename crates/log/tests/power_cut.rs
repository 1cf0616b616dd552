//! Power cuts of a log on ext4, xfs and btrfs: what it does is recorded block by block, and then
//! hundreds of the states that a power cut could have left are mounted, opened and checked.
//!
//! Needs root, FUSE and loop devices; elsewhere it says SKIPPED, and with `realfs` in
//! `PLIMSOLL_REQUIRE` that is a failure. `PLIMSOLL_STATES=10000` visits so many states of each
//! filesystem, `PLIMSOLL_FS=xfs` of one only; `PLIMSOLL_SEED` draws another history.
#![cfg(all(target_os = "linux", not(shuttle)))]
#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a campaign that tells its figures, and a skip must be seen; indexes are small"
)]

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use plimsoll_log::{Ack, Error, Log, Options, Policy, Retain};
use plimsoll_simdisk::block::{Belief, Mode, Plan, State, Timeline, Trace, Wanted};
use plimsoll_simdisk::mounted::{
    Explore, Filesystem, Image, Rig, RigOptions, Situation, Verdict, explore,
};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

const STEPS: u32 = 500;
/// What records hold whose first write fails, where a failover is wanted.
const FAILS: &[u8; 8] = b"FAILHERE";

/// What was true after a step.
#[derive(Debug, Clone, Default)]
struct Known {
    durable: u64,
    /// For each record, a number that no other has.
    records: Arc<Vec<u64>>,
    /// For each record, whether its batch ends with it.
    ends: Arc<Vec<bool>>,
    may_be_gone: u64,
    is_gone: u64,
    /// Where the step cut, if it did.
    cut_to: Option<u64>,
}

/// What was recorded of a log's life.
struct Recording {
    trace: Trace,
    /// After the step that mark N ended.
    known: Vec<Known>,
    rotations: u64,
    failovers: u64,
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

fn options(policy: Policy) -> Options {
    let (segment_bytes, ring_bytes) = (64 << 10, 16 << 10);
    Options { policy, segment_bytes, ring_bytes, threads: false, ..Options::default() }
}

fn policies() -> [(&'static str, Policy); 3] {
    let max_age = Duration::from_millis(3);
    [
        ("never", Policy::Never),
        ("interval", Policy::Interval { max_age, max_bytes: 5000 }),
        ("always", Policy::Always),
    ]
}

/// The payload of the record with this number.
fn payload(serial: u64) -> Vec<u8> {
    let mut rng = Pcg64Mcg::seed_from_u64(serial);
    let longest = if serial.is_multiple_of(19) { 6000 } else { 2500 };
    let mut bytes = vec![0; rng.random_range(16..longest)];
    rng.fill(&mut bytes[..]);
    bytes[..8].copy_from_slice(&serial.to_le_bytes());
    if serial.is_multiple_of(97) {
        bytes[8..16].copy_from_slice(FAILS);
    }
    bytes
}

fn rig_or_skip(filesystem: Filesystem, mount_options: &str) -> Option<Rig> {
    let mut options = RigOptions::new(filesystem);
    mount_options.clone_into(&mut options.mount_options);
    match Rig::start(options) {
        Ok(rig) => Some(rig),
        Err(error) => {
            let required = env::var("PLIMSOLL_REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|tier| tier == "realfs"), "{filesystem}: {error}");
            eprintln!("SKIPPED {filesystem}: {error}");
            None
        }
    }
}

/// Lets a log live on the rig. `end` is what happens to it then.
fn record(rig: Rig, policy: Policy, seed: u64, end: impl FnOnce(&Rig, &Log)) -> Recording {
    if policy != Policy::Never {
        // The first write of each of these records fails.
        let fails = (0..2000).map(|n| (seed << 32) + n).filter(|serial| serial % 97 == 0);
        let rules = fails.map(|serial| {
            let mut rule = "write EIO has=0x".to_owned();
            for byte in serial.to_le_bytes().iter().chain(FAILS) {
                write!(rule, "{byte:02x}").unwrap();
            }
            rule.parse().unwrap()
        });
        rig.set_faults(rules.collect(), seed);
    }
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut serial = seed << 32;
    let mut now = Known::default();
    let mut known = vec![now.clone()];
    let (log, _) = Log::open(rig.directory().join("log"), options(policy)).unwrap();
    let mut log = Some(log);
    let (mut rotations, mut failovers) = (0, 0);
    rig.mark("0").unwrap();
    for _ in 0..STEPS {
        let open = log.as_ref().unwrap();
        now.cut_to = None;
        let last = now.records.len() as u64;
        match rng.random_range(0..100) {
            0..70 => {
                let records = if rng.random_ratio(1, 6) { rng.random_range(2..5) } else { 1 };
                let payloads: Vec<_> = (serial..serial + records).map(payload).collect();
                if payloads.iter().map(|payload| payload.len() + 32).sum::<usize>() > 8000 {
                    continue;
                }
                let ack = [Ack::Buffered, Ack::Written, Ack::Durable][rng.random_range(0..3)];
                Arc::make_mut(&mut now.records).extend(serial..serial + records);
                Arc::make_mut(&mut now.ends).extend((1..=records).map(|n| n == records));
                serial += records;
                open.append_batch_with(&payloads, ack).unwrap();
            }
            70..80 => drop(open.drive().unwrap()),
            80..86 => drop(open.sync().unwrap()),
            86..92 => {
                let index = last.saturating_sub(rng.random_range(0..80)).max(1);
                now.may_be_gone = now.may_be_gone.max(index - 1);
                now.is_gone = open.truncate_before(Retain::From(index)).unwrap() - 1;
            }
            92..94 => {
                let first = open.first_index() - 1;
                let index = last.saturating_sub(rng.random_range(0..12)).max(first);
                open.truncate_after(index).unwrap();
                now.cut_to = Some(index);
                Arc::make_mut(&mut now.records).truncate(index as usize);
                Arc::make_mut(&mut now.ends).truncate(index as usize);
                if let Some(end) = Arc::make_mut(&mut now.ends).last_mut() {
                    *end = true;
                }
            }
            _ => {
                let stats = open.stats();
                rotations += stats.rotations;
                failovers += stats.failovers;
                log.take().unwrap().close().unwrap();
                let path = rig.directory().join("log");
                log = Some(Log::open(path, options(policy)).unwrap().0);
            }
        }
        now.durable = log.as_ref().unwrap().durable();
        known.push(now.clone());
        rig.mark(&(known.len() - 1).to_string()).unwrap();
    }
    let stats = log.as_ref().unwrap().stats();
    let errors: u64 = rig.faults_applied().iter().map(|(_, times)| times).sum();
    println!("{} records, {errors} errors of the disk", serial - (seed << 32));
    rotations += stats.rotations;
    failovers += stats.failovers;
    end(&rig, log.as_ref().unwrap());
    let trace = rig.trace(rig.point());
    drop(log);
    // A filesystem that was shut down may say so.
    drop(rig.stop());
    Recording { trace, known, rotations, failovers }
}

/// Opens what a power cut left and says what is wrong with it.
fn check(directory: &Path, policy: Policy, mark: usize, known: &[Known]) -> Verdict {
    // A step was on its way: what it did may be there already.
    let (before, after) = (&known[mark], known.get(mark + 1).unwrap_or(&known[mark]));
    let log = match Log::open(directory.join("log"), options(policy)) {
        Ok((log, _)) => log,
        Err(Error::Corrupt(wrong)) => return Verdict::Refused(wrong.to_string()),
        Err(error) => return Verdict::Broken(error.to_string()),
    };
    let lost = |what: String| Verdict::Lost(what);
    let (first, last) = (log.first_index(), log.last_index());
    let must = after.cut_to.map_or(before.durable, |index| before.durable.min(index));
    let most = before.records.len().max(after.records.len()) as u64;
    if last < must || last > most {
        return lost(format!("{must} to {most} should be there, {last} are"));
    }
    if first > after.may_be_gone + 1 || (last >= first && first <= before.is_gone) {
        return lost(format!("the log begins with {first}"));
    }
    let at = last as usize;
    let ends =
        |known: &Known| last < first || at == 0 || known.ends.get(at - 1).copied().unwrap_or(false);
    if !ends(before) && !ends(after) {
        return lost(format!("half a batch at {last}"));
    }
    let mut reader = log.read_from(first).expect("the first record is in range");
    for index in first..=last {
        let at = index as usize - 1;
        let may_be = [before.records.get(at), after.records.get(at)];
        match reader.next_record() {
            Ok(Some(record)) => {
                let is = |serial: &&u64| payload(**serial) == record.payload;
                if record.index != index || !may_be.iter().flatten().any(is) {
                    return lost(format!("record {index} is another"));
                }
            }
            Ok(None) => return lost(format!("record {index} cannot be read")),
            Err(error) => return lost(error.to_string()),
        }
    }
    // It goes on.
    match log.append_with(b"after the power cut", Ack::Durable) {
        Ok(_) => Verdict::Ok,
        Err(error) => Verdict::Broken(error.to_string()),
    }
}

/// How many states end how, by the name of the verdict; and the first that should not.
fn visit(
    recording: &Recording,
    policy: Policy,
    belief: Belief,
    mount_options: &str,
    states: usize,
) -> (BTreeMap<&'static str, usize>, Option<String>) {
    let Recording { trace, known, .. } = recording;
    let timeline = Timeline::of(&trace.events, belief);
    let plan = Plan::new(&trace.events, &timeline, &Wanted { states, ..Wanted::default() });
    let stop = AtomicBool::new(false);
    let how = Explore {
        trace,
        timeline: &timeline,
        states: &plan.states,
        workers: 2,
        mount_options,
        read_only: false,
        stop: &stop,
    };
    let (mut verdicts, mut first) = (BTreeMap::new(), None);
    let verdict = |situation: &Situation<'_>| {
        let Some(mark) = situation.last_mark() else { return Ok(Verdict::Ok) };
        Ok(check(situation.directory(), policy, mark.parse().unwrap(), known))
    };
    let whole = explore(&how, &verdict, |visit| {
        *verdicts.entry(visit.verdict.name()).or_default() += 1;
        if visit.verdict.is_failure() && first.is_none() {
            let state = &plan.states[visit.number];
            first = Some(format!("{state:?}: {}", visit.verdict.said()));
        }
        ControlFlow::Continue(())
    });
    assert!(whole.unwrap());
    let boundaries = (plan.coverage.boundaries, plan.coverage.flushes);
    println!("  {} states, {boundaries:?} flush boundaries: {verdicts:?}", plan.states.len());
    (verdicts, first)
}

fn filesystems() -> Vec<Filesystem> {
    let only = env::var("PLIMSOLL_FS").ok();
    let wanted = |filesystem: &Filesystem| only.as_ref().is_none_or(|o| o == filesystem.name());
    Filesystem::ALL.into_iter().filter(wanted).collect()
}

#[test]
fn nothing_durable_is_lost_to_a_power_cut_on_real_filesystems() {
    let states = number("PLIMSOLL_STATES").unwrap_or(120) as usize;
    let seed = number("PLIMSOLL_SEED").unwrap_or(1);
    for filesystem in filesystems() {
        for (name, policy) in policies() {
            let begun = Instant::now();
            let Some(rig) = rig_or_skip(filesystem, "") else { return };
            let recording = record(rig, policy, seed, |_, _| ());
            println!(
                "{filesystem}, {name}: {} steps, {} rotations, {} failovers, {} events",
                recording.known.len(),
                recording.rotations,
                recording.failovers,
                recording.trace.events.len()
            );
            assert!(recording.rotations > 0);
            assert!(policy == Policy::Never || recording.failovers > 0);
            let (_, first) = visit(&recording, policy, Belief::default(), "", states / 3);
            println!("  {:.0} s", begun.elapsed().as_secs_f64());
            assert_eq!(first, None, "{filesystem}, {name}");
        }
    }
}

#[test]
fn a_lying_disk_and_a_mount_without_barriers_are_caught() {
    let (_, policy) = policies()[2];
    for filesystem in filesystems() {
        let Some(rig) = rig_or_skip(filesystem, "") else { return };
        let recording = record(rig, policy, 1, |_, _| ());
        let lying = Belief { flushes_lie: true, ..Belief::default() };
        let (verdicts, _) = visit(&recording, policy, lying, "", 60);
        let fine = verdicts.get("ok").copied().unwrap_or(0);
        assert!(fine < 30, "{filesystem}: a disk that lies passes {fine} of 60 times");
    }
    let Some(rig) = rig_or_skip(Filesystem::Ext4, "barrier=0") else { return };
    let recording = record(rig, policy, 1, |_, _| ());
    let (verdicts, _) = visit(&recording, policy, Belief::default(), "", 60);
    assert!(verdicts["lost"] >= 6, "nobody misses the barriers: {verdicts:?}");
}

/// As when the kernel dies: what the disk was given stays, what only the kernel had is gone. A cheap
/// test of one state, where the filesystem can be told to do that.
#[test]
fn what_is_durable_survives_a_filesystem_that_is_shut_down() {
    for filesystem in filesystems() {
        for (name, policy) in policies() {
            let Some(rig) = rig_or_skip(filesystem, "") else { return };
            let mut is_down = false;
            let mut durable = 0;
            let recording = record(rig, policy, 3, |rig, log| {
                log.append_with(b"buffered", Ack::Buffered).unwrap();
                durable = log.durable();
                // FS_IOC_SHUTDOWN without a flush of the journal.
                let mut shutdown = Command::new("xfs_io");
                shutdown.args(["-x", "-c", "shutdown"]).arg(rig.directory());
                let output = shutdown.output();
                is_down = output.is_ok_and(|out| out.status.success() && out.stderr.is_empty());
                if is_down {
                    let after = log.append_with(b"too late", Ack::Durable);
                    assert!(after.is_err(), "{filesystem}, {name}: acknowledged by nobody");
                }
            });
            if !is_down {
                eprintln!("SKIPPED {filesystem}: it cannot be shut down, or xfs_io is missing");
                break;
            }
            let timeline = Timeline::of(&recording.trace.events, Belief::default());
            let state = State { point: recording.trace.events.len(), mode: Mode::Arrived };
            let platter = state.platter(&recording.trace.base, &recording.trace.events, &timeline);
            let image = Image::mount(&platter, filesystem, "", false).unwrap();
            // The two appends after the last step are nobody's promise.
            let (log, _) = Log::open(image.directory().join("log"), options(policy)).unwrap();
            let last = log.last_index();
            assert!(
                last >= durable,
                "{filesystem}, {name}: {durable} were durable, {last} are there"
            );
            println!("{filesystem}, {name}: {durable} were durable, {last} are there");
        }
    }
}
