//! A log whose every frame is known, and the judge of what a damaged copy of it gives.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use plimsoll_log::{
    Ack, Clock, Corruption, Dumped, Error, Kind, Log, Options, Recovery, SegmentState, View,
};
use plimsoll_simdisk::{DiskOptions, SimDir};
use plimsoll_sync::{Access, Crash, Dir};

pub(crate) const SEGMENT_BYTES: u64 = 64 << 10;
/// The note of where a log ended.
pub(crate) const CLOSED: &str = "closed";

/// A log that is closed, and what its files hold.
pub(crate) struct Fixture {
    pub(crate) dir: Arc<SimDir>,
    /// What was appended, by index - 1.
    pub(crate) records: Vec<Vec<u8>>,
    pub(crate) files: BTreeMap<String, Vec<Said>>,
    /// Whether the note of its end is there.
    pub(crate) is_noted: bool,
}

/// A frame that counts, and what it says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) durable: u64,
}

pub(crate) fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES,
        ring_bytes: 32 << 10,
        threads: false,
        clock: Clock::manual(1),
        ..Options::default()
    }
}

pub(crate) fn disk() -> SimDir {
    SimDir::with(DiskOptions { history_steps: 0, ..DiskOptions::default() })
}

pub(crate) fn open(dir: &Arc<SimDir>, options: Options) -> plimsoll_log::Result<(Log, Recovery)> {
    Log::open_in(Arc::clone(dir) as Arc<dyn Dir>, options)
}

pub(crate) fn payload(index: u64, generation: u64, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|byte| (byte * 7 + index * 31 + generation * 101 + 1).to_le_bytes()[0]).collect()
}

impl Fixture {
    /// `build` appends; what is durable then stands in the files.
    pub(crate) fn new(seed: u64, build: impl FnOnce(&Log, &mut Vec<Vec<u8>>)) -> Self {
        let dir = Arc::new(disk());
        let options = Options { clock: Clock::manual(seed), ..options() };
        let (log, _) = Log::open_in(dir.clone(), options).unwrap();
        let mut records = Vec::new();
        build(&log, &mut records);
        log.close().unwrap();
        let dir = Arc::new(dir.crash(Crash::Process, 0));
        let view = View::of(dir.clone()).unwrap();
        let mut files = BTreeMap::new();
        let reports = view.verify(&|_, _| {}).unwrap();
        for report in &reports {
            let mut said = Vec::new();
            let is_last = report.segment == reports.last().unwrap().segment;
            view.dump(report, |dumped| {
                let Dumped::Frame { byte_offset: start, frame, payload, .. } = dumped else {
                    return Ok::<_, Error>(());
                };
                let durable = match frame.kind {
                    Kind::Mark => frame.index,
                    Kind::Link => u64::from_le_bytes(payload[40..48].try_into().unwrap()),
                    Kind::Record | Kind::Seal | Kind::Pad => 0,
                };
                // What was cut off does not count any more.
                if is_last || start < report.records_end {
                    let end = start + 24 + u64::from(frame.payload_bytes);
                    said.push(Said { start, end, durable });
                }
                Ok(())
            })
            .unwrap();
            files.insert(report.segment.clone(), said);
        }
        Self { dir, records, files, is_noted: true }
    }

    /// As if the log had not been closed: only marks say what was durable.
    pub(crate) fn without_note(self) -> Self {
        self.dir.remove(CLOSED).unwrap();
        Self { is_noted: false, ..self }
    }

    /// Three segments: two full ones, and a last one with about 6 KiB of frames.
    pub(crate) fn full() -> Self {
        Self::new(1, |log, records| {
            let mut append = |bytes: u64| {
                let index = records.len() as u64 + 1;
                records.push(payload(index, 0, bytes));
                assert_eq!(log.append(&records[records.len() - 1]).unwrap(), index);
                index
            };
            let mut index = 0;
            while log.stats().segments < 3 {
                index = append(1500 + index * 37 % 900);
                if index.is_multiple_of(3) {
                    log.wait(index, Ack::Durable).unwrap().block().unwrap();
                }
            }
            for bytes in [0, 1, 100, 2000, 8, 900, 24, 700, 33, 5, 64, 1000] {
                let index = append(bytes);
                if index.is_multiple_of(3) {
                    log.wait(index, Ack::Durable).unwrap().block().unwrap();
                }
            }
        })
    }

    /// Four segments with less than 1 KiB of frames each, made by cutting; records that were cut off still
    /// stand in their files. Batches among them.
    pub(crate) fn cut() -> Self {
        Self::new(2, |log, records| {
            for generation in 1..=4 {
                for batch in 1..=4_u64 {
                    let first = records.len() as u64 + 1;
                    let record = |number| payload(first + number, generation, number * 30 + 5);
                    let batch: Vec<_> = (0..batch % 4 + 1).map(record).collect();
                    log.append_batch_with(&batch, Ack::Durable).unwrap();
                    records.extend(batch);
                }
                if generation < 4 {
                    records.truncate(records.len() - 3);
                    log.truncate_after(records.len() as u64).unwrap();
                }
            }
        })
    }

    pub(crate) fn used_bytes(&self, file: &str) -> u64 {
        self.files[file].last().unwrap().end
    }

    /// Up to where the note says that records were durable, or else the frames that are left: `is_left`
    /// says which.
    pub(crate) fn durable(&self, file: &str, is_left: impl Fn(&Said) -> bool) -> u64 {
        if self.is_noted {
            return self.records.len() as u64;
        }
        let others = self.files.iter().filter(|(name, _)| *name != file);
        let others = others.flat_map(|(_, said)| said);
        let own = self.files.get(file).into_iter().flatten().filter(|said| is_left(said));
        others.chain(own).map(|said| said.durable).max().unwrap_or(0)
    }

    /// What the note says, or else the frames of one file.
    pub(crate) fn durable_of(&self, file: &str) -> u64 {
        if self.is_noted {
            return self.records.len() as u64;
        }
        self.files[file].iter().map(|said| said.durable).max().unwrap_or(0)
    }

    /// A copy of the files, changed.
    pub(crate) fn damaged(&self, damage: impl FnOnce(&SimDir)) -> Arc<SimDir> {
        let dir = self.dir.crash(Crash::Process, 0);
        damage(&dir);
        Arc::new(dir)
    }

    /// Holds everything against what was appended. `durable` is what is left of the marks.
    pub(crate) fn judge(&self, case: &str, dir: &Arc<SimDir>, durable: u64) -> Verdict {
        let judged = catch_unwind(AssertUnwindSafe(|| self.try_judge(case, dir, durable)));
        judged.unwrap_or_else(|_| panic!("{case}"))
    }

    pub(crate) fn try_judge(&self, case: &str, dir: &Arc<SimDir>, durable: u64) -> Verdict {
        // Looked at.
        let view = View::of(Arc::clone(dir) as Arc<dyn Dir>).unwrap();
        let reports = view.verify(&|_, _| {}).unwrap();
        let corrupt = reports.iter().any(|r| matches!(r.state, SegmentState::Corrupt(_)));
        let mut reader = view.read_from(view.first_index());
        let seen = self.read(case, view.first_index(), || {
            let record = reader.as_mut().map_err(|error| error.clone())?.next_record()?;
            Ok(record.map(|record| (record.index, record.payload.to_vec())))
        });
        match seen {
            Ok(last) => assert!(last >= durable, "{case}: ends at {last} of {durable}"),
            Err(wrong) => assert!(corrupt, "{case}: verify does not see {wrong}: {reports:#?}"),
        }
        // Opened.
        let (log, recovery) = match open(dir, options()) {
            Ok(opened) => opened,
            Err(Error::Corrupt(wrong)) => {
                assert!(corrupt, "{case}: verify does not see {wrong}: {reports:#?}");
                self.accept_loss(case, dir, &wrong);
                return Verdict::Corrupt;
            }
            Err(other) => panic!("{case}: {other} ({other:?})"),
        };
        assert!(recovery.last_index >= durable, "{case}: {recovery:?} of {durable}");
        let read = self.read_log(case, &log);
        if !corrupt {
            assert_eq!(read, Ok(recovery.last_index), "{case}: {recovery:?}");
        }
        // It goes on, and stays as it is found.
        let next = log.append_with(b"one more", Ack::Durable).unwrap();
        assert_eq!(next, recovery.last_index + 1, "{case}");
        let mut reader = log.read_from(next).unwrap();
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!((record.index, record.payload), (next, &b"one more"[..]), "{case}");
        if read.is_err() || corrupt { Verdict::CorruptWhenRead } else { Verdict::Whole }
    }

    /// What comes before the loss can be had.
    pub(crate) fn accept_loss(&self, case: &str, dir: &Arc<SimDir>, wrong: &Corruption) {
        let (log, recovery) = match open(dir, Options { accept_loss: true, ..options() }) {
            Ok(opened) => opened,
            Err(error) => panic!("{case}: {wrong} was not accepted: {error}"),
        };
        assert!(recovery.lost.is_some(), "{case}: {recovery:?}");
        assert!(recovery.last_index < *wrong.records.start(), "{case}: {recovery:?} {wrong}");
        if let Ok(last) = self.read_log(case, &log) {
            assert_eq!(last, recovery.last_index, "{case}");
        }
        let next = log.append_with(b"one more", Ack::Durable).unwrap();
        assert_eq!(next, recovery.last_index + 1, "{case}");
        log.close().unwrap();
        // What was accepted once need not be accepted again.
        let (_, again) = open(dir, options()).unwrap_or_else(|e| panic!("{case}: again: {e}"));
        assert_eq!(again.last_index, next, "{case}");
    }

    pub(crate) fn read_log(&self, case: &str, log: &Log) -> Result<u64, Corruption> {
        let mut reader = log.read_from(log.first_index()).unwrap();
        self.read(case, log.first_index(), || {
            let record = reader.next_record()?;
            Ok(record.map(|record| (record.index, record.payload.to_vec())))
        })
    }

    /// Reads to the end, and returns it: each record is the next one, and what was appended.
    pub(crate) fn read(
        &self,
        case: &str,
        first: u64,
        mut next: impl FnMut() -> plimsoll_log::Result<Option<(u64, Vec<u8>)>>,
    ) -> Result<u64, Corruption> {
        let mut expected = first;
        loop {
            match next() {
                Ok(Some((index, payload))) => {
                    assert_eq!(index, expected, "{case}");
                    let appended =
                        usize::try_from(index - 1).ok().and_then(|i| self.records.get(i));
                    assert_eq!(Some(&payload), appended, "{case}: record {index}");
                    expected += 1;
                }
                Ok(None) => return Ok(expected - 1),
                Err(Error::Corrupt(wrong)) => {
                    assert!(*wrong.records.start() <= expected, "{case}: {wrong} at {expected}");
                    assert!(*wrong.records.end() >= expected, "{case}: {wrong} at {expected}");
                    return Err(*wrong);
                }
                Err(other) => panic!("{case}: record {expected}: {other} ({other:?})"),
            }
        }
    }

    /// Every byte of the used part of each file, or of those places that `choose` picks.
    pub(crate) fn flip_bytes(&self, choose: impl Fn(&str, u64) -> bool) -> Counts {
        let mut counts = Counts::default();
        for file in self.files.keys() {
            // Nothing but zeros stands between the header and the first frame.
            let used =
                (0..self.used_bytes(file)).filter(|at| !(64..4096).contains(at) || at % 61 == 0);
            for at in used.filter(|&at| choose(file, at)) {
                for pattern in patterns(at) {
                    let dir = self.damaged(|dir| {
                        let file = dir.open(file, Access::default()).unwrap();
                        let mut byte = [0];
                        file.read_at(&mut byte, at).unwrap();
                        file.write_at(&[byte[0] ^ pattern], at).unwrap();
                    });
                    let durable =
                        self.durable(file, |s| at >= 64 && !(s.start..s.end).contains(&at));
                    let case = format!("{file} byte {at} ^ {pattern:#x}");
                    counts.add(self.judge(&case, &dir, durable));
                }
            }
        }
        counts
    }

    /// Every length of each file up to its used part, or of those that `choose` picks, and some of
    /// the zeros behind.
    pub(crate) fn shorten_files(&self, choose: impl Fn(&str, u64) -> bool) -> Counts {
        let mut counts = Counts::default();
        for file in self.files.keys() {
            let used = self.used_bytes(file);
            let lengths = (0..used).filter(|len| !(65..4096).contains(len) || len % 61 == 0);
            let lengths = lengths.filter(|&len| choose(file, len));
            for len in lengths.chain((used..SEGMENT_BYTES).step_by(1021)) {
                let dir = self.damaged(|dir| {
                    dir.open(file, Access::default()).unwrap().truncate(len).unwrap();
                });
                let durable = self.durable(file, |said| len >= 64 && said.end <= len);
                counts.add(self.judge(&format!("{file} cut to {len}"), &dir, durable));
            }
        }
        counts
    }
}

/// What a byte is changed by: one of three, or all of them where time does not matter.
pub(crate) fn patterns(at: u64) -> Vec<u8> {
    let all = [0x01, 0x80, 0xff];
    let every = std::env::var_os("PLIMSOLL_EVERY").is_some();
    (0..).zip(all).filter(|(number, _)| every || at % 3 == *number).map(|(_, by)| by).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It opens, and is read to its end.
    Whole,
    /// It opens, and reading says where durable records are lost.
    CorruptWhenRead,
    /// It does not open.
    Corrupt,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) whole: u64,
    pub(crate) corrupt_when_read: u64,
    pub(crate) corrupt: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Whole => self.whole += 1,
            Verdict::CorruptWhenRead => self.corrupt_when_read += 1,
            Verdict::Corrupt => self.corrupt += 1,
        }
    }
}
