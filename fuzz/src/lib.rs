//! What all targets share: files and formats from bytes, and what must hold of any whatever.

use std::io::ErrorKind;
use std::sync::Arc;

use plimsoll_log::{Ack, Clock, Error, Log, Options, SegmentState, View};
use plimsoll_simdisk::{DiskOptions, SimDir};
use plimsoll_sync::{Access, Dir};
use twox_hash::XxHash3_64;

pub const SEGMENT_BYTES: u64 = 64 << 10;

#[must_use]
pub fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES,
        ring_bytes: 8 << 10,
        threads: false,
        clock: Clock::manual(1),
        ..Options::default()
    }
}

#[must_use]
pub fn disk() -> Arc<SimDir> {
    Arc::new(SimDir::with(DiskOptions { history_steps: 0, ..DiskOptions::default() }))
}

pub fn put(dir: &SimDir, name: &str, bytes: &[u8]) {
    if let Ok(file) = dir.create(name, Access::default()) {
        file.write_at(bytes, 0).unwrap();
    }
}

/// The block that begins a segment, as the format draws it.
#[must_use]
pub fn header(log_id: u128, salt: u64, segment_bytes: u64) -> Vec<u8> {
    let mut bytes = b"PLIMSEG\n".to_vec();
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(4096_u32.to_le_bytes());
    bytes.extend(log_id.to_le_bytes());
    bytes.extend(salt.to_le_bytes());
    bytes.extend(segment_bytes.to_le_bytes());
    bytes.resize(56, 0);
    bytes.extend(XxHash3_64::oneshot(&bytes).to_le_bytes());
    bytes.resize(4096, 0);
    bytes
}

/// Appends a frame whose checksum is right, whatever it says.
pub fn frame(file: &mut Vec<u8>, salt: u64, index: u64, kind_and_more: u32, payload: &[u8]) {
    let mut keyed = (file.len() as u64).to_le_bytes().to_vec();
    keyed.extend(index.to_le_bytes());
    keyed.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
    keyed.extend(kind_and_more.to_le_bytes());
    let head = keyed[8..].to_vec();
    keyed.extend(XxHash3_64::oneshot(payload).to_le_bytes());
    file.extend(XxHash3_64::oneshot_with_seed(salt, &keyed).to_le_bytes());
    file.extend(head);
    file.extend(payload);
    file.resize(file.len().next_multiple_of(8), 0);
}

/// Any files get a clear verdict: `verify`, a reader of files and `open` agree, records come in order,
/// and a log that opens goes on and opens again. No panic; no error but corruption.
pub fn judge(dir: &Arc<SimDir>) {
    let the_dir = || Arc::clone(dir) as Arc<dyn Dir>;
    let view = View::of(the_dir()).unwrap();
    let reports = view.verify(&|_, _| {}).unwrap();
    let corrupt = reports.iter().any(|r| matches!(r.state, SegmentState::Corrupt(_)));
    for report in &reports {
        match view.dump(report, |_| Ok::<_, Error>(())) {
            // What is reported is that it is missing.
            Err(Error::Disk(error)) if error.kind() == Some(ErrorKind::NotFound) => {
                assert!(matches!(report.state, SegmentState::Corrupt(_)), "{report:?}");
            }
            dumped => dumped.unwrap(),
        }
    }
    match view.read_from(view.first_index()) {
        Ok(mut reader) => {
            let mut expected = view.first_index();
            loop {
                match reader.next_record() {
                    Ok(Some(record)) => assert_eq!(record.index, expected),
                    Ok(None) | Err(Error::Corrupt(_)) => break,
                    Err(other) => panic!("{other:?}"),
                }
                expected += 1;
            }
        }
        Err(Error::Corrupt(_)) => {}
        Err(other) => panic!("{other:?}"),
    }
    let accept_loss = match Log::open_in(the_dir(), options()) {
        // Of a log that was closed little is read to open it. The note of that is gone then, and the next open
        // may see what `verify` did.
        Ok((log, recovery)) => {
            drop(log);
            corrupt && recovery.clean
        }
        Err(Error::Corrupt(wrong)) => {
            assert!(corrupt, "verify does not see {wrong}: {reports:?}");
            true
        }
        Err(other) => panic!("{other:?}"),
    };
    let (log, recovery) = Log::open_in(the_dir(), Options { accept_loss, ..options() }).unwrap();
    let mut reader = log.read_from(log.first_index()).unwrap();
    let mut expected = log.first_index();
    loop {
        match reader.next_record() {
            Ok(Some(record)) => assert_eq!(record.index, expected),
            Ok(None) => {
                assert_eq!(expected - 1, recovery.last_index, "{recovery:?}");
                break;
            }
            Err(Error::Corrupt(_)) => break,
            Err(other) => panic!("{other:?}"),
        }
        expected += 1;
    }
    let last = match log.append_with(b"goes on", Ack::Durable) {
        Ok(last) => {
            assert_eq!(last, recovery.last_index + 1);
            last
        }
        Err(Error::Exhausted { last_index }) if last_index == (1 << 63) - 1 => last_index,
        Err(other) => panic!("{other:?}"),
    };
    log.close().unwrap();
    let (_, again) = Log::open_in(the_dir(), options()).unwrap();
    assert_eq!((again.last_index, again.torn_tail), (last, None));
}

/// What `read` makes of so many bytes, in memory that they account for, whatever they claim.
///
/// # Panics
/// It takes more at once.
pub fn bounded<T>(bytes: usize, read: impl FnOnce() -> T) -> T {
    // The largest of what a byte may stand for is a member of a group, in a tree that is half full.
    const MOST_FOR_A_BYTE: usize = 32;
    let (made, most) = taken(read);
    assert!(most <= (4096 + MOST_FOR_A_BYTE * bytes) as u64, "{most} bytes for {bytes}");
    made
}

/// What `make` makes, and how many bytes it held at once on its way.
pub fn taken<T>(make: impl FnOnce() -> T) -> (T, u64) {
    let mut made = None;
    let counted = allocation_counter::measure(|| made = Some(make()));
    (made.expect("it was made"), counted.bytes_max)
}

/// These bytes, and their checksum behind them.
#[must_use]
pub fn sealed(body: &[u8]) -> Vec<u8> {
    [body, &XxHash3_64::oneshot(body).to_le_bytes()].concat()
}

/// The parts of an input, each behind its length in two bytes; the last may be shorter than it says.
pub fn parts(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (part, rest) = rest.split_at(length);
        bytes = rest;
        Some(part)
    })
}
