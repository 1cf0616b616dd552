//! Any bytes as the only segment of a log.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&how, bytes)) = bytes.split_first() else { return };
    // As they are, or behind a header that is right.
    let mut file = if how % 2 == 0 {
        Vec::new()
    } else {
        plimsoll_fuzz::header(1, 7, plimsoll_fuzz::SEGMENT_BYTES)
    };
    file.extend(bytes);
    let dir = plimsoll_fuzz::disk();
    plimsoll_fuzz::put(&dir, "00000000000000000001.seg", &file);
    plimsoll_fuzz::judge(&dir);
});
