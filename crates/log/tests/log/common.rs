//! What all of these tests append, and how they look at it.

use plimsoll_log::{Log, Options};
use plimsoll_sync::Dir;

/// The shortest segments there are.
pub(crate) fn small() -> Options {
    Options { segment_bytes: 64 << 10, ring_bytes: 32 << 10, ..Options::default() }
}

/// Those, in a log that the test drives.
pub(crate) fn driven() -> Options {
    Options { threads: false, ..small() }
}

pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Up to 900 bytes that say which record they are.
pub(crate) fn payload(index: u64) -> Vec<u8> {
    let len = usize::try_from(index * 37 % 900).unwrap();
    (0..len as u64).map(|byte| (byte * 31 + index).to_le_bytes()[0]).collect()
}

/// Appends records after the last one, up to this.
pub(crate) fn append_to(log: &Log, last: u64) {
    for index in log.last_index() + 1..=last {
        assert_eq!(log.append(&payload(index)).unwrap(), index);
    }
}

pub(crate) fn read_all(log: &Log) -> Vec<(u64, Vec<u8>)> {
    let mut reader = log.read_from(log.first_index()).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        records.push((record.index, record.payload.to_vec()));
    }
    records
}

/// The log reads as records `first` to `last`, each as it was appended.
pub(crate) fn expect(log: &Log, first: u64, last: u64) {
    let records = read_all(log);
    let indexes: Vec<u64> = records.iter().map(|(index, _)| *index).collect();
    assert_eq!(indexes, (first..=last).collect::<Vec<_>>());
    assert!(records.iter().all(|(index, read)| *read == payload(*index)));
}

/// The files whose names end so.
pub(crate) fn names(dir: &dyn Dir, ending: &str) -> Vec<String> {
    dir.list().unwrap().into_iter().filter(|name| name.ends_with(ending)).collect()
}
