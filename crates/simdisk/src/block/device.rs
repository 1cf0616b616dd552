//! The live disk: what a host reads from it, and what goes wrong with it. What it is asked for goes into a
//! [recording](super::recording).
//!
//! A request has two moments. It *arrives*: what a write brings is at once what reads see, as in a
//! volatile cache. It *ends*: the host is told. Between the two lies whatever time the device takes.
//!
//! Invariant: events are in the order in which the host could observe them: an end is recorded before
//! the host is told, a mark when it is heard.

use std::ops::Range;
use std::sync::Arc;

use super::event::{End, Errno, Event};
use super::fault::{Fault, FaultKind, Faults, Operation};
use super::platter::Platter;
use super::recording::{Keep, Recording, overlap};

/// How far a misdirected write may land from where it belongs, in sectors.
const MISDIRECTED_SECTORS_MAX: usize = 64;
const SECTOR: u64 = 512;
/// Zeros are written so many at once.
const ZEROS_BYTES: u64 = 1 << 20;
/// What a mark may say.
const MARK_BYTES_MAX: usize = 1024;
/// A disk with a volatile cache, that records what is asked of it.
#[derive(Debug)]
pub struct Device {
    seen: Platter,
    recording: Recording,
    requests: u32,
    /// How often it began anew: what arrived before does not end after.
    generation: u32,
    faults: Faults,
    unreadable: Vec<Range<u64>>,
}

/// A request that has arrived and not ended.
#[derive(Debug)]
#[must_use = "a request that is never ended is never durable"]
pub struct Ticket {
    generation: u32,
    request: u32,
    /// Index of its arrival.
    arrived: usize,
    end: End,
}

impl Ticket {
    /// What the host is told.
    pub fn answer(&self) -> Result<(), Errno> {
        match self.end {
            End::Failed(errno) => Err(errno),
            End::Done | End::Lied => Ok(()),
        }
    }
}

impl Device {
    /// A disk that holds `base`, all of it durable. What it records takes at most `limit_bytes` of
    /// memory: after that it refuses writes, and [`Device::is_full`].
    #[must_use]
    pub fn new(base: Platter, faults: Faults, limit_bytes: u64) -> Self {
        Self {
            seen: base.clone(),
            recording: Recording::new(base, limit_bytes),
            requests: 0,
            generation: 0,
            unreadable: faults.unreadable().collect(),
            faults,
        }
    }

    /// Keeps so much from now on.
    #[must_use]
    pub fn keeping(mut self, keep: Keep) -> Self {
        self.recording.keep = keep;
        self
    }

    /// While it is held, no bytes are forgotten: the point now stays one at which the power can be cut.
    pub fn hold(&mut self, is_held: bool) {
        self.recording.is_held = is_held;
    }

    /// Begins anew: what is on the disk now was always there, these faults are in force, and so much is kept.
    pub fn begin(&mut self, faults: Faults, keep: Keep) {
        let limit_bytes = self.recording.limit_bytes;
        let generation = self.generation + 1;
        let anew = Self::new(self.seen.clone(), faults, limit_bytes).keeping(keep);
        *self = Self { generation, ..anew };
    }

    /// How large it is.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.seen.disk_bytes()
    }

    /// Fills `buf`, beyond the end of the disk with zeros.
    pub fn read(&mut self, byte_offset: u64, buf: &mut [u8]) -> Result<(), Errno> {
        let touched = byte_offset..byte_offset.saturating_add(buf.len() as u64);
        let fault = self.faults.meet(Operation::Read, &touched, &[]);
        if let Some(FaultKind::Fail(errno)) = fault {
            return Err(errno);
        }
        if self.unreadable.iter().any(|range| overlap(range, &touched)) {
            return Err(Errno::Eio);
        }
        self.seen.read(byte_offset, buf);
        if fault == Some(FaultKind::Flip) && !buf.is_empty() {
            flip(buf, &mut self.faults);
        }
        Ok(())
    }

    /// A write arrives. One that reaches beyond the end is refused.
    pub fn write(&mut self, byte_offset: u64, bytes: &[u8]) -> Ticket {
        let touched = byte_offset..byte_offset.saturating_add(bytes.len() as u64);
        let fault = self.faults.meet(Operation::Write, &touched, bytes);
        let mut at = byte_offset;
        let mut stored: Arc<[u8]> = Arc::from(bytes);
        let mut end = End::Done;
        match fault {
            Some(FaultKind::Fail(errno)) => end = End::Failed(errno),
            Some(FaultKind::LostWrite) => end = End::Lied,
            Some(FaultKind::Misdirect) => at = self.elsewhere(byte_offset, bytes.len() as u64),
            Some(FaultKind::Flip) if !bytes.is_empty() => {
                let mut wrong = bytes.to_vec();
                flip(&mut wrong, &mut self.faults);
                stored = Arc::from(wrong);
            }
            _ => {}
        }
        if !self.seen.holds(at, stored.len() as u64) || u32::try_from(bytes.len()).is_err() {
            // Nothing of it may be kept, not even its place.
            (at, stored, end) = (0, Arc::from([]), End::Failed(Errno::Eio));
        }
        if !self.recording.has_room(stored.len() as u64) {
            (stored, end) = (Arc::from([]), End::Failed(Errno::Enospc));
        }
        if end == End::Done {
            self.seen.write(at, &stored);
            self.heal(&(at..at + stored.len() as u64));
        }
        self.arrive(Event::Write { byte_offset: at, bytes: stored }, end)
    }

    /// A request to make a range zeros arrives: as writes of zeros, because it may be torn like one, and
    /// must not be lost as a discard may. One that reaches beyond the end is refused.
    pub fn zero(&mut self, byte_offset: u64, byte_count: u64) -> Vec<Ticket> {
        if !self.seen.holds(byte_offset, byte_count) {
            return vec![self.write(u64::MAX, &[])];
        }
        let zeros = vec![0; usize::try_from(byte_count.min(ZEROS_BYTES)).expect("at most that")];
        let mut tickets = Vec::new();
        let mut at = byte_offset;
        let end = byte_offset + byte_count;
        while at < end && !self.is_full() {
            let bytes = usize::try_from((end - at).min(ZEROS_BYTES)).expect("at most that");
            tickets.push(self.write(at, &zeros[..bytes]));
            at += bytes as u64;
        }
        tickets
    }

    /// A discard arrives. One that reaches beyond the end is refused.
    pub fn discard(&mut self, byte_offset: u64, byte_count: u64) -> Ticket {
        let touched = byte_offset..byte_offset.saturating_add(byte_count);
        let end = match self.faults.meet(Operation::Discard, &touched, &[]) {
            Some(FaultKind::Fail(errno)) => End::Failed(errno),
            Some(FaultKind::LostWrite) => End::Lied,
            _ if !self.recording.has_room(0) => End::Failed(Errno::Enospc),
            _ => End::Done,
        };
        if !self.seen.holds(byte_offset, byte_count) {
            let nothing = Event::Discard { byte_offset: 0, byte_count: 0 };
            return self.arrive(nothing, End::Failed(Errno::Eio));
        }
        if end == End::Done {
            self.seen.discard(byte_offset, byte_count);
            self.heal(&touched);
        }
        self.arrive(Event::Discard { byte_offset, byte_count }, end)
    }

    /// A flush arrives.
    pub fn flush(&mut self) -> Ticket {
        let end = match self.faults.meet(Operation::Flush, &(0..0), &[]) {
            Some(FaultKind::Fail(errno)) => End::Failed(errno),
            Some(FaultKind::DropFlush) => End::Lied,
            _ => End::Done,
        };
        self.arrive(Event::Flush, end)
    }

    /// A request ends. To be called before the host is told.
    #[expect(clippy::needless_pass_by_value, reason = "a request ends once")]
    pub fn end(&mut self, ticket: Ticket) {
        let Ticket { generation, request, arrived, end } = ticket;
        if generation != self.generation {
            return;
        }
        self.recording.end(request, arrived, end);
    }

    /// The workload says something: one line, at most 1 KiB. What it says comes after all that the
    /// disk was asked for and answered before.
    pub fn mark(&mut self, text: &str) -> Result<(), String> {
        if text.len() > MARK_BYTES_MAX {
            return Err(format!("a mark is at most {MARK_BYTES_MAX} bytes"));
        }
        if text.is_empty() || text.contains(['\n', '\0']) {
            return Err("a mark is one line of text".to_owned());
        }
        if !self.recording.has_room(text.len() as u64) {
            return Err("the recording is full".to_owned());
        }
        self.faults.mark(text);
        self.recording.add(Event::Mark(Arc::from(text)));
        Ok(())
    }

    /// How many events there were: the point of a power cut now.
    #[must_use]
    pub fn point(&self) -> usize {
        self.recording.events.len()
    }

    /// Whether more was asked of it than may be recorded.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.recording.is_full
    }

    /// What was there at first, and all that happened since.
    #[must_use]
    pub fn recorded(&self) -> (&Platter, &[Event]) {
        (&self.recording.base, &self.recording.events)
    }

    /// The faults in force, with how often each happened.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Puts other faults in force.
    pub fn set_faults(&mut self, faults: Vec<Fault>, seed: u64) {
        self.faults = Faults::new(faults, seed);
        self.unreadable = self.faults.unreadable().collect();
    }

    fn arrive(&mut self, event: Event, end: End) -> Ticket {
        let (request, arrived) = (self.requests, self.recording.events.len());
        if self.recording.keep != Keep::Nothing {
            self.requests = request.checked_add(1).expect("the limit comes long before");
        }
        self.recording.add(event);
        Ticket { generation: self.generation, request, arrived, end }
    }

    fn heal(&mut self, written: &Range<u64>) {
        let mut left = Vec::with_capacity(self.unreadable.len());
        for range in self.unreadable.drain(..) {
            if overlap(&range, written) {
                left.push(range.start..written.start.max(range.start));
                left.push(written.end.min(range.end)..range.end);
            } else {
                left.push(range);
            }
        }
        left.retain(|range| !range.is_empty());
        self.unreadable = left;
    }

    /// A place nearby, on the disk, that is not the right one.
    fn elsewhere(&mut self, byte_offset: u64, byte_count: u64) -> u64 {
        let far = (1 + self.faults.draw(MISDIRECTED_SECTORS_MAX)) as u64 * SECTOR;
        let ahead = byte_offset.saturating_add(far);
        if self.seen.holds(ahead, byte_count) { ahead } else { byte_offset.saturating_sub(far) }
    }
}

fn flip(bytes: &mut [u8], faults: &mut Faults) {
    let bit = faults.draw(bytes.len() * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
}

#[cfg(test)]
mod tests {
    use super::super::recording::EVENT_BYTES;
    use super::super::states::{Mode, State};
    use super::super::timeline::{Belief, Timeline};
    use super::*;

    fn device(lines: &[&str]) -> Device {
        let faults = lines.iter().map(|line| line.parse().unwrap()).collect();
        Device::new(Platter::new(1 << 20), Faults::new(faults, 7), 1 << 20)
    }

    fn write(device: &mut Device, byte_offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let ticket = device.write(byte_offset, bytes);
        let answer = ticket.answer();
        device.end(ticket);
        answer
    }

    fn flush(device: &mut Device) -> Result<(), Errno> {
        let ticket = device.flush();
        let answer = ticket.answer();
        device.end(ticket);
        answer
    }

    fn byte(device: &mut Device, byte_offset: u64) -> Result<u8, Errno> {
        let mut byte = [0];
        device.read(byte_offset, &mut byte).map(|()| byte[0])
    }

    /// What a power cut now leaves if it takes all it can.
    fn left(device: &Device) -> Platter {
        let (base, events) = device.recorded();
        let timeline = Timeline::of(events, Belief::default());
        State { point: device.point(), mode: Mode::Durable }.platter(base, events, &timeline)
    }

    fn byte_left(device: &Device, byte_offset: u64) -> u8 {
        let mut byte = [0];
        left(device).read(byte_offset, &mut byte);
        byte[0]
    }

    #[test]
    fn what_is_flushed_is_left_and_what_is_not_is_gone() {
        let mut device = device(&[]);
        write(&mut device, 0, &[1; 512]).unwrap();
        flush(&mut device).unwrap();
        write(&mut device, 0, &[2; 512]).unwrap();
        assert_eq!(byte(&mut device, 0), Ok(2));
        assert_eq!(byte_left(&device, 0), 1);
    }

    #[test]
    fn a_dropped_flush_leaves_nothing() {
        let mut device = device(&["flush dropped sticky"]);
        write(&mut device, 0, &[1; 512]).unwrap();
        assert_eq!(flush(&mut device), Ok(()));
        assert_eq!((byte(&mut device, 0), byte_left(&device, 0)), (Ok(1), 0));
    }

    #[test]
    fn a_lost_write_is_not_there_when_it_is_read() {
        let mut device = device(&["write lost nth=2"]);
        write(&mut device, 0, &[1; 512]).unwrap();
        write(&mut device, 0, &[2; 512]).unwrap();
        flush(&mut device).unwrap();
        assert_eq!((byte(&mut device, 0), byte_left(&device, 0)), (Ok(1), 1));
    }

    #[test]
    fn a_failed_write_stores_nothing_and_says_so() {
        let mut device = device(&["write ENOSPC sticky", "flush ETIMEDOUT"]);
        assert_eq!(write(&mut device, 0, &[1; 512]), Err(Errno::Enospc));
        assert_eq!(flush(&mut device), Err(Errno::Etimedout));
        assert_eq!((flush(&mut device), byte(&mut device, 0)), (Ok(()), Ok(0)));
    }

    #[test]
    fn zeros_are_written_and_not_discarded() {
        let mut device = device(&["discard lost sticky", "write EIO nth=2"]);
        write(&mut device, 4096, &[1; 4096]).unwrap();
        let failed = device.zero(4096, 512);
        assert_eq!(failed.iter().map(Ticket::answer).collect::<Vec<_>>(), [Err(Errno::Eio)]);
        let (large, end) = (1_u64 << 19, 1_u64 << 20);
        for ticket in failed.into_iter().chain(device.zero(large, end - large)) {
            device.end(ticket);
        }
        assert_eq!(byte(&mut device, 4096), Ok(1), "what failed stored nothing");
        let tickets = device.zero(4096, 4096);
        assert_eq!(byte(&mut device, 4096), Ok(0));
        assert_eq!(byte_left(&device, 4096), 0, "nothing was flushed");
        for ticket in tickets {
            device.end(ticket);
        }
        let (_, events) = device.recorded();
        assert!(!events.iter().any(|event| matches!(event, Event::Discard { .. })));
        for (at, count) in [(end, 512), (end - 512, 1024), (u64::MAX, 2)] {
            let refused = device.zero(at, count);
            assert!(refused.iter().any(|ticket| ticket.answer() == Err(Errno::Eio)), "{at}");
        }
    }

    #[test]
    fn more_zeros_than_may_be_recorded_fill_the_recording_and_not_the_memory() {
        let mut device = Device::new(Platter::new(1 << 45), Faults::new(Vec::new(), 7), 3 << 20);
        let tickets = device.zero(0, 1 << 45);
        assert!(tickets.len() < 6 && device.is_full());
        assert_eq!(tickets.last().map(Ticket::answer), Some(Err(Errno::Enospc)));
    }

    #[test]
    fn a_misdirected_write_is_somewhere_else() {
        for place in [0, (1 << 20) - 512] {
            let mut device = device(&["write misdirected"]);
            write(&mut device, place, &[9; 512]).unwrap();
            assert_eq!(byte(&mut device, place), Ok(0));
            let mut all = vec![0; 1 << 20];
            device.read(0, &mut all).unwrap();
            assert_eq!(all.iter().filter(|&&byte| byte == 9).count(), 512);
        }
    }

    #[test]
    fn a_flipped_bit_is_one_bit() {
        let mut stored = device(&["write flip"]);
        write(&mut stored, 0, &[0; 512]).unwrap();
        let mut read = device(&["read flip"]);
        for device in [&mut stored, &mut read] {
            let mut all = [0; 512];
            device.read(0, &mut all).unwrap();
            assert_eq!(all.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
        }
        let mut again = [0; 512];
        read.read(0, &mut again).unwrap();
        assert_eq!(again, [0; 512], "what is stored was right");
    }

    #[test]
    fn an_unreadable_sector_is_readable_once_it_is_written() {
        let mut device = device(&["read unreadable range=4KiB..8KiB"]);
        assert_eq!(byte(&mut device, 0), Ok(0));
        assert_eq!(byte(&mut device, 5000), Err(Errno::Eio));
        write(&mut device, 4096, &[1; 1024]).unwrap();
        assert_eq!(byte(&mut device, 4096), Ok(1));
        assert_eq!(byte(&mut device, 4096 + 1024), Err(Errno::Eio));
    }

    #[test]
    fn a_request_beyond_the_end_is_refused() {
        let mut device = device(&[]);
        assert_eq!(write(&mut device, (1 << 20) - 1, &[1; 512]), Err(Errno::Eio));
        assert_eq!(write(&mut device, u64::MAX, &[1; 512]), Err(Errno::Eio));
        assert!(device.discard(u64::MAX, 1).answer().is_err());
        assert_eq!(byte(&mut device, u64::MAX), Ok(0));
    }

    #[test]
    fn a_recording_that_is_full_refuses_writes() {
        let mut device = Device::new(Platter::new(1 << 20), Faults::new(vec![], 0), 10_000);
        for _ in 0..2 {
            write(&mut device, 0, &[1; 4096]).unwrap();
        }
        assert_eq!(write(&mut device, 0, &[2; 4096]), Err(Errno::Enospc));
        assert!(device.is_full() && device.mark("more").is_err());
        assert_eq!(byte(&mut device, 0), Ok(1));
    }

    #[test]
    fn what_is_kept_of_pending_writes_only_is_the_same_disk_after_a_cut() {
        let (mut all, mut few) = (device(&[]), device(&[]).keeping(Keep::Pending));
        for device in [&mut all, &mut few] {
            write(device, 0, &[1; 4096]).unwrap();
            let early = device.write(512, &[2; 512]);
            let flush_in_between = device.flush();
            device.end(early);
            device.end(flush_in_between);
            write(device, 0, &[3; 512]).unwrap();
            let discard = device.discard(8192, 4096);
            device.end(discard);
        }
        // The first write is durable, the second was answered after the flush arrived.
        assert!(few.recording.bytes + 4096 == all.recording.bytes);
        assert!(left(&few) == left(&all) && byte_left(&few, 4095) == 1);
        for seed in 0..50 {
            let state = State { point: all.point(), mode: Mode::Subset { seed } };
            let of = |device: &Device| {
                let (base, events) = device.recorded();
                state.platter(base, events, &Timeline::of(events, Belief::default()))
            };
            assert!(of(&few) == of(&all), "{state}");
        }
        few.hold(true);
        flush(&mut few).unwrap();
        assert!(left(&few) != left(&all), "it is durable, and a cut before it can be made still:");
        let (base, events) = few.recorded();
        let before = &events[..all.point()];
        let state = State { point: before.len(), mode: Mode::Durable };
        let timeline = Timeline::of(before, Belief::default());
        assert!(state.platter(base, before, &timeline) == left(&all));
        few.hold(false);
        flush(&mut few).unwrap();
        let payload = few.recording.bytes - few.point() as u64 * EVENT_BYTES;
        assert_eq!((payload, byte_left(&few, 0)), (0, 3));
    }

    /// Where only pending bytes are kept, what failed is known no longer than in a whole recording.
    #[test]
    fn what_failed_may_be_there_until_it_is_written_over() {
        let eio = ["write EIO"];
        let (mut all, mut few) = (device(&eio), device(&eio).keeping(Keep::Pending));
        let found = |device: &Device| -> Vec<u8> {
            let (base, events) = device.recorded();
            let timeline = Timeline::of(events, Belief::default());
            let left = |seed| {
                let state = State { point: events.len(), mode: Mode::Subset { seed } };
                let mut byte = [0];
                state.platter(base, events, &timeline).read(0, &mut byte);
                byte[0]
            };
            (0..50).map(left).collect()
        };
        for device in [&mut all, &mut few] {
            write(device, 0, &[1; 4096]).unwrap_err();
            write(device, 8192, &[2; 512]).unwrap();
            flush(device).unwrap();
            assert_eq!(byte(device, 0), Ok(0), "reads do not show it");
        }
        assert_eq!(found(&all), found(&few));
        assert!(found(&all).contains(&1) && found(&all).contains(&0));
        for device in [&mut all, &mut few] {
            write(device, 512, &[3; 512]).unwrap();
            flush(device).unwrap();
            assert_eq!(found(device), [0; 50]);
        }
        assert_eq!(few.recording.bytes, few.point() as u64 * EVENT_BYTES);
    }

    #[test]
    fn a_disk_that_keeps_nothing_is_never_full() {
        let disk = Device::new(Platter::new(1 << 20), Faults::new(vec![], 0), 10_000);
        let mut disk = disk.keeping(Keep::Nothing);
        disk.begin(Faults::new(vec!["write lost nth=9".parse().unwrap()], 1), Keep::Nothing);
        for value in 1..10 {
            write(&mut disk, 0, &[value; 4096]).unwrap();
        }
        assert_eq!((byte(&mut disk, 0), disk.point(), disk.is_full()), (Ok(8), 0, false));
        assert!(disk.mark("heard, and not kept").is_ok());
    }

    #[test]
    fn what_arrived_before_it_began_anew_does_not_end_after() {
        let mut device = device(&[]);
        let early = device.write(0, &[1; 512]);
        device.begin(Faults::new(vec![], 0), Keep::Everything);
        device.end(early);
        assert_eq!(device.point(), 0);
        assert_eq!(byte_left(&device, 0), 1, "it is part of what was always there");
    }

    #[test]
    fn a_mark_is_one_line() {
        let mut device = device(&[]);
        assert!(device.mark("17").is_ok());
        assert!(device.mark("1\n2").is_err() && device.mark("").is_err());
        assert!(device.mark(&"x".repeat(2000)).is_err());
        assert_eq!(device.recorded().1.len(), 1);
    }
}
