//! The steps of a history: what is asked of its log, and what must be so after each.

use std::sync::Arc;

use plimsoll_log::{Ack, Error, Retain};
use plimsoll_simdisk::{Fault, FaultKind, Operation};
use plimsoll_sync::Crash;
use rand::Rng;

use crate::Disk;
use crate::world::{Tally, World};

impl World {
    pub(crate) fn payload(&mut self) -> Vec<u8> {
        let longest = if self.rng.random_ratio(1, 20) { 3500 } else { 300 };
        let mut payload = vec![0; self.rng.random_range(0..longest)];
        self.rng.fill(&mut payload[..]);
        payload
    }

    pub(crate) fn ack(&mut self) -> Ack {
        match self.rng.random_range(0..60) {
            0 => Ack::Durable,
            _ if self.is_lazy => Ack::Written,
            draw => [Ack::Buffered, Ack::Written, Ack::Durable][draw % 3],
        }
    }

    pub(crate) fn append(&mut self, records: usize, ack: Ack) {
        let mut payloads: Vec<Vec<u8>> = (0..records).map(|_| self.payload()).collect();
        if self.rng.random_ratio(1, 100) {
            // As much as one append may bring, or nearly.
            let least = self.options.ring_bytes / 8;
            let bytes = self.rng.random_range(least..=self.options.ring_bytes / 2 - 32);
            payloads = vec![vec![7; bytes as usize]; 1];
        }
        let records = payloads.len();
        let bytes: usize = payloads.iter().map(|payload| payload.len() + 32).sum();
        if bytes as u64 > self.options.ring_bytes / 2 {
            return;
        }
        let Some(log) = &self.log else { return };
        self.model().offered.clone_from(&payloads);
        let appended = match &payloads[..] {
            [payload] if self.rng.random() => {
                let (front, back) = payload.split_at(self.rng.random_range(0..=payload.len()));
                log.append_pieces(&[front, &[], back], ack).map(|index| index..=index)
            }
            _ => log.append_batch_with(&payloads, ack),
        };
        self.say(&format!("append {records} records, {bytes} bytes, {ack}: {appended:?}"));
        let mut model = self.model();
        model.offered.clear();
        let before = model.last();
        let accepted = log.last_index() >= before + records as u64;
        if let Ok(indexes) = &appended {
            assert_eq!(*indexes.start(), before + 1);
            match ack {
                Ack::Buffered => {}
                Ack::Written => model.written = *indexes.end(),
                Ack::Durable => model.durable = *indexes.end(),
            }
        }
        if accepted {
            model.more.extend((0..records).rev());
            model.records.extend(payloads);
            let is_refused = matches!(appended, Err(Error::OutOfSpace { .. }));
            assert!(!is_refused, "refused, and accepted");
        } else {
            assert!(appended.is_err(), "an index and no record");
        }
        if self.disk == Disk::Good && !self.dir.is_down() {
            assert!(appended.is_ok(), "{appended:?}");
        }
    }

    pub(crate) fn drive(&mut self) {
        let Some(log) = &self.log else { return };
        let driven = log.drive();
        let marks = (log.written(), log.durable());
        self.say(&format!("drive: {driven:?}, written and durable {marks:?}"));
        self.note_marks();
    }

    pub(crate) fn wait(&mut self) {
        let Some(log) = &self.log else { return };
        // The last one is hardly ever written yet, and what is written need not be durable.
        let (last, written) = (log.last_index(), log.written());
        let index = if self.rng.random() { last } else { written.max(1).min(last) };
        let durably = self.rng.random();
        let waited = match (durably, index == last) {
            (true, true) => log.sync().map(|_| ()),
            (true, false) => log.wait(index, Ack::Durable).and_then(|wait| wait.block()),
            (false, _) => log.wait(index, Ack::Written).and_then(|wait| wait.block()),
        };
        self.say(&format!("wait for {index}, durable {durably}: {waited:?}"));
        if waited.is_ok() {
            let mut model = self.model();
            model.written = model.written.max(index);
            if durably {
                model.durable = model.durable.max(index);
            }
        }
        self.note_marks();
    }

    /// What the marks say is an acknowledgement.
    pub(crate) fn note_marks(&mut self) {
        let Some(log) = &self.log else { return };
        let mut model = self.model();
        model.written = model.written.max(log.written());
        model.durable = model.durable.max(log.durable());
        assert!(log.durable() <= log.written(), "durable before it was written");
        assert!(log.written() <= log.last_index(), "written before it was appended");
    }

    pub(crate) fn truncate_before(&mut self) {
        let Some(log) = &self.log else { return };
        let last = self.model().last();
        let index = self.rng.random_range(1..=last + 1);
        let may_be_gone = self.model().may_be_gone.max(index - 1);
        self.model().may_be_gone = may_be_gone;
        let kept = log.truncate_before(Retain::From(index));
        self.say(&format!("truncate before {index}: {kept:?}"));
        if let Ok(first_index) = kept {
            assert!(first_index <= index.max(log.first_index()), "{first_index} is kept");
            self.model().is_gone = first_index - 1;
        }
    }

    pub(crate) fn truncate_after(&mut self) {
        if self.rng.random_ratio(1, 3) {
            // Some of it is in the ring only.
            (0..4).for_each(|_| self.append(2, Ack::Buffered));
        }
        let Some(log) = &self.log else { return };
        let first = log.first_index() - 1;
        let last = self.model().last();
        let near = self.rng.random::<bool>();
        let index = if near { last.saturating_sub(5).max(first) } else { first };
        let index = self.rng.random_range(index..=last);
        // Where one segment ends and the next begins, a new one takes its name.
        let begins = |name: &String| name.strip_suffix(".seg")?.parse::<u64>().ok();
        let names = self.home.of(&self.dir).and_then(|dir| dir.list());
        let names = names.unwrap_or_default().into_iter();
        let edges: Vec<u64> = names.filter_map(|name| begins(&name)).map(|edge| edge - 1).collect();
        let edges: Vec<u64> = edges.into_iter().filter(|&e| (first..=last).contains(&e)).collect();
        let index = match self.rng.random_range(0..3) {
            0 if !edges.is_empty() => edges[self.rng.random_range(0..edges.len())],
            _ => index,
        };
        // A cut through a batch makes its front a batch of its own.
        self.model().cut_to = Some(index);
        let cut = log.truncate_after(index);
        self.say(&format!("truncate after {index}: {cut:?}"));
        let model = &mut *self.model();
        model.cut_to = None;
        model.written = model.written.min(index);
        model.durable = model.durable.min(index);
        if cut.is_ok() {
            model.keep(index);
            model.end_batch();
            if index == model.before || log.durable() == index {
                model.durable = index;
                model.written = index;
            }
        } else {
            // Half of it may have happened, whatever became of batches.
            model.may_be_cut_to = Some(index);
            model.more.iter_mut().for_each(|more| *more = 0);
        }
    }

    pub(crate) fn read(&mut self) {
        let Some(log) = &self.log else { return };
        let first = log.first_index();
        let written = log.written();
        let from = self.rng.random_range(first..=written.max(first));
        if from > written {
            return;
        }
        let mut reader = log.read_from(from).unwrap();
        let mut next = from;
        loop {
            match reader.next_record() {
                Ok(Some(record)) => {
                    assert_eq!(record.index, next);
                    let model = self.model();
                    assert!(Some(record.payload) == model.payload(next), "{next} is another one");
                    next += 1;
                }
                Ok(None) => break,
                Err(error) => {
                    let lies = self.disk == Disk::Lying;
                    let down = self.dir.is_down();
                    let fault =
                        matches!(error, Error::Disk(_)) && (down || self.disk == Disk::Failing);
                    assert!(lies || fault, "{error}");
                    return;
                }
            }
        }
        assert_eq!(next, written + 1, "not all can be read");
        self.say(&format!("read {from} to {written}"));
    }

    pub(crate) fn close(&mut self, tally: &mut Tally) {
        let Some(log) = self.log.take() else { return };
        let last = log.last_index();
        let failovers = log.stats().failovers;
        tally.failovers += failovers;
        let closed = Arc::into_inner(log).expect("nobody else has it").close();
        self.say(&format!("close: {closed:?}"));
        if closed.is_ok() {
            let mut model = self.model();
            model.durable = last;
            model.written = last;
            model.on_disk = last;
        }
        let stopped = matches!(closed, Err(Error::Stopped { .. }));
        let must = match closed {
            Ok(()) => last,
            Err(Error::OutOfSpace { last_index }) => last_index,
            Err(_) if stopped => self.model().durable,
            Err(_) => self.must_be_there(Crash::Process),
        };
        if self.dir.is_down() {
            return self.crash(Crash::Process, tally);
        }
        self.open(must, tally);
    }

    pub(crate) fn fault(&mut self, tally: &mut Tally) {
        let ahead = self.rng.random_range(1..30);
        if self.disk == Disk::Good {
            if self.rng.random_ratio(1, 3) {
                self.dir.stop_at(self.dir.operations() + ahead);
                self.say(&format!("the machine will go down in {ahead} operations"));
            }
            return;
        }
        use Operation::{Allocate, Create, Read, Remove, Rename, Sync, SyncDir, Write};
        let fault = if self.disk == Disk::Lying {
            match self.rng.random_range(0..3) {
                0 => Fault::new(Write, FaultKind::LostWrite),
                1 => Fault::new(Sync, FaultKind::DropFlush),
                _ => Fault::new(SyncDir, FaultKind::DropFlush),
            }
        } else {
            let on = [Write, Write, Sync, Sync, SyncDir, Allocate, Create, Rename, Remove, Read];
            let on = on[self.rng.random_range(0..on.len())];
            match self.rng.random_range(0..4) {
                0 if on == Write => {
                    Fault::new(on, FaultKind::ShortWrite { bytes: self.rng.random_range(0..5000) })
                }
                1 if on != Read => Fault::new(on, FaultKind::Fail(std::io::ErrorKind::StorageFull)),
                _ => Fault::new(on, FaultKind::FailRaw(5)),
            }
        };
        let fault = fault.nth(self.rng.random_range(1..12)).seed(self.seed);
        let fault = if self.rng.random_ratio(1, 10) { fault.sticky() } else { fault };
        self.say(&format!("fault: {fault:?}"));
        tally.faults += 1;
        self.dir.inject(fault);
    }
}
