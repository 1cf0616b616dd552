//! Tails that come back short, long, zeroed, torn or full of garbage: what is damaged and was called
//! durable is corruption, and nothing else is. The verdict expected is found without the log, from
//! which of its frames have all their bytes.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_log::{Ack, Clock, Dumped, Error, Kind, Log, Options, Policy, View};
use plimsoll_simdisk::{DiskOptions, SimDir};
use plimsoll_sync::{Access, Crash, Dir, File, SyncMethod, System};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::number;
use crate::points::dyn_dir;

/// A frame of the log as it was.
struct Whole {
    from: usize,
    to: usize,
    kind: Kind,
    index: u64,
    more: u32,
    /// What a link or a mark calls durable.
    durable: u64,
}

struct Before {
    disk: SimDir,
    name: String,
    bytes: Vec<u8>,
    frames: Vec<Whole>,
    payloads: Vec<Vec<u8>>,
    /// The last record, of a log that was closed: all of it was durable.
    closed: u64,
}

fn options() -> Options {
    Options {
        policy: Policy::Interval { max_age: Duration::from_secs(3600), max_bytes: 1 << 30 },
        segment_bytes: 64 << 10,
        ring_bytes: 32 << 10,
        threads: false,
        clock: Clock::manual(1),
        ..Options::default()
    }
}

fn content(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// A log whose last records are written and not durable, or that was closed.
fn before(seed: u64, closes: bool) -> Before {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let options_of_disk = DiskOptions { system: System::HERE, ..DiskOptions::default() };
    let dir = Arc::new(SimDir::with(options_of_disk));
    let (log, _) = Log::open_in(dyn_dir(&dir), options()).unwrap();
    let mut payloads = Vec::new();
    for unit in 0..45 {
        let mut batch = vec![vec![]; if unit % 7 == 3 { 3 } else { 1 }];
        for payload in &mut batch {
            payload.resize(rng.random_range(0..700), 0);
            rng.fill(&mut payload[..]);
        }
        let ack = if unit % 5 == 4 && unit < 32 { Ack::Durable } else { Ack::Written };
        log.append_batch_with(&batch, ack).unwrap();
        payloads.append(&mut batch);
    }
    let mut closed = 0;
    let disk = if closes {
        closed = log.last_index();
        log.close().unwrap();
        dir.power_cut(seed)
    } else {
        dir.crash(Crash::Process, 0)
    };
    let view = View::of(Arc::new(disk.crash(Crash::Process, 0))).unwrap();
    let reports = view.verify(&|_, _| {}).unwrap();
    let mut frames = Vec::new();
    let each = |dumped: Dumped<'_>| {
        if let Dumped::Frame { byte_offset, frame, link, .. } = dumped {
            let from = byte_offset as usize;
            let durable = match frame.kind {
                Kind::Link => link.unwrap().durable,
                Kind::Mark => frame.index,
                _ => 0,
            };
            let to = from + 24 + frame.payload_bytes as usize;
            let (kind, index, more) = (frame.kind, frame.index, frame.more);
            frames.push(Whole { from, to, kind, index, more, durable });
        }
        Ok::<(), Error>(())
    };
    view.dump(&reports[0], each).unwrap();
    let name = reports[0].segment.clone();
    let bytes = content(&*disk.open(&name, Access::default()).unwrap());
    assert!(frames.iter().filter(|frame| frame.kind == Kind::Mark).count() >= 3);
    Before { disk, name, bytes, frames, payloads, closed }
}

/// What the verdict must be: the last record, and the last one that is called durable.
fn expected(before: &Before, after: &[u8]) -> (u64, u64) {
    let is_whole = |frame: &&Whole| {
        after.get(frame.from..frame.to) == Some(&before.bytes[frame.from..frame.to])
    };
    let durable = before.frames.iter().filter(is_whole).map(|frame| frame.durable).max();
    let durable = durable.max(Some(before.closed));
    let whole = before.frames.iter().take_while(is_whole);
    let ends = whole.filter(|frame| frame.kind == Kind::Record && frame.more == 0);
    (ends.map(|frame| frame.index).max().unwrap_or(0), durable.unwrap_or(0))
}

#[derive(Debug, Default)]
struct Verdicts {
    whole: u64,
    torn: u64,
    corrupt: u64,
}

fn check(before: &Before, after: &[u8], how: &str, verdicts: &mut Verdicts) {
    let dir = Arc::new(before.disk.crash(Crash::Process, 0));
    let file = dir.open(&before.name, Access::default()).unwrap();
    file.truncate(0).unwrap();
    file.write_at(after, 0).unwrap();
    file.sync(SyncMethod::Fsync).unwrap();
    let (last, durable) = expected(before, after);
    let opened = Log::open_in(dyn_dir(&dir), options());
    if durable > last {
        let Err(Error::Corrupt(wrong)) = opened else {
            panic!("{how}: {durable} were durable, {last} are there, and it opens");
        };
        assert_eq!(wrong.records, last + 1..=durable, "{how}");
        assert!(content(&*file) == after, "{how}: a corrupt log was changed");
        verdicts.corrupt += 1;
        return;
    }
    let (log, recovery) = opened.unwrap_or_else(|error| panic!("{how}: {error}"));
    assert_eq!(log.last_index(), last, "{how}");
    let first_lost = before
        .frames
        .iter()
        .find(|frame| after.get(frame.from..frame.to) != Some(&before.bytes[frame.from..frame.to]));
    match first_lost {
        None => {
            verdicts.whole += 1;
            // Something else may stand where the next record would.
            let end = before.frames.last().unwrap().to.next_multiple_of(8);
            let next = after.get(end..end + 24).unwrap_or_default();
            let nothing = next.iter().all(|&byte| byte == 0);
            assert_eq!(nothing, recovery.torn_tail.is_none(), "{how}: {recovery:?}");
        }
        Some(lost) => {
            verdicts.torn += 1;
            let head = after.get(lost.from..lost.from + 24).unwrap_or_default();
            let nothing = head.iter().all(|&byte| byte == 0);
            assert!(nothing || recovery.torn_tail.is_some(), "{how}: {recovery:?}");
        }
    }
    // What is appended now stands behind the last whole record, also after a power cut.
    log.append_with(b"next", Ack::Durable).unwrap();
    let found = Arc::new(dir.power_cut(last));
    drop(log);
    let (log, _) = Log::open_in(dyn_dir(&found), options()).unwrap();
    assert_eq!(log.last_index(), last + 1, "{how}");
    let mut reader = log.read_from(1).unwrap();
    while let Some(record) = reader.next_record().unwrap() {
        let payload = before.payloads.get(record.index as usize - 1);
        let payload = if record.index > last { b"next" } else { payload.unwrap().as_slice() };
        assert!(record.payload == payload, "{how}: record {} is another", record.index);
    }
}

#[test]
fn damage_is_called_what_it_is() {
    let verdicts = harm(&before(7, false));
    assert!(verdicts.corrupt > 0 && verdicts.torn > 0 && verdicts.whole > 0);
}

/// Whoever closes a log notes where it ends: there is no unfinished write then.
#[test]
fn a_record_that_is_missing_from_a_log_that_was_closed_is_corruption() {
    let verdicts = harm(&before(7, true));
    assert!(verdicts.corrupt > 0 && verdicts.whole > 0);
}

/// Harms a log in each way, at one byte offset after the other.
fn harm(before: &Before) -> Verdicts {
    let every = number("PLIMSOLL_EVERY").unwrap_or(97) as usize;
    let mut rng = Pcg64Mcg::seed_from_u64(8);
    let mut verdicts = Verdicts::default();
    // Of a log that was closed what comes before its records is not read.
    let is_begun = |frame: &&Whole| before.closed == 0 || frame.kind == Kind::Record;
    let first = before.frames[1..].iter().find(is_begun).expect("it has records").from;
    let end = before.frames.last().unwrap().to + 5000;
    let garbage: Vec<u8> = (0..before.bytes.len() + 9000).map(|_| rng.random()).collect();
    let stale = &before.bytes[before.frames[1].from..before.frames[3].to];
    let mark = before.frames.iter().rfind(|frame| frame.kind == Kind::Mark).unwrap();
    for at in (first..end).step_by(every) {
        let mut damage = |how: &str, act: &dyn Fn(&mut Vec<u8>)| {
            let mut after = before.bytes.clone();
            act(&mut after);
            check(before, &after, &format!("{how} at {at}"), &mut verdicts);
        };
        damage("short", &|bytes| bytes.truncate(at));
        damage("zeros", &|bytes| bytes[at..].fill(0));
        damage("garbage", &|bytes| {
            let end = bytes.len();
            bytes[at..].copy_from_slice(&garbage[at..end]);
        });
        damage("a flipped bit", &|bytes| bytes[at] ^= 1 << (at % 8));
        for unit in [512, 4096] {
            let from = (at / unit * unit).max(first);
            let part = from..(at / unit + 1) * unit;
            damage("a zeroed sector", &|bytes| bytes[part.clone()].fill(0));
            damage("a sector of garbage", &|bytes| {
                bytes[part.clone()].copy_from_slice(&garbage[part.clone()]);
            });
        }
        let to = at / 8 * 8;
        damage("frames of another place", &|bytes| {
            bytes[to..to + stale.len()].copy_from_slice(stale);
        });
        // Misdirected: nothing is left but the newest mark, elsewhere.
        damage("a mark of another place", &|bytes| {
            let to = (to + 1024).max(mark.to.next_multiple_of(8));
            bytes[at..].fill(0);
            bytes[to..to + 24].copy_from_slice(&before.bytes[mark.from..mark.from + 24]);
        });
        damage("long, with zeros", &|bytes| bytes.resize(bytes.len() + at % 9000, 0));
        damage("long, with garbage", &|bytes| {
            bytes.extend_from_slice(&garbage[..at % 9000]);
        });
    }
    println!("{verdicts:?}");
    verdicts
}
