//! One segment of frames whose checksums are right and whose content is anything: what somebody
//! writes who knows the format.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input {
    first_index: u64,
    link: Option<[u64; 7]>,
    frames: Vec<(u8, i8, u32, Vec<u8>)>,
    odd: Option<(u64, u32, Vec<u8>)>,
    cut: u16,
}

fuzz_target!(|input: Input| {
    let first = input.first_index.clamp(1, u64::MAX);
    let mut file = plimsoll_fuzz::header(1, 7, plimsoll_fuzz::SEGMENT_BYTES);
    if let Some(link) = input.link {
        let payload: Vec<u8> = link.into_iter().flat_map(u64::to_le_bytes).collect();
        plimsoll_fuzz::frame(&mut file, 7, first, 1 << 24, &payload);
    }
    let mut next = first;
    for (kind, ahead, more, payload) in &input.frames {
        let kind = u32::from(kind % 6);
        let index = next.wrapping_add_signed(i64::from(*ahead) / 32);
        plimsoll_fuzz::frame(&mut file, 7, index, kind << 24 | more & 0x3, payload);
        next = next.wrapping_add(u64::from(kind == 2));
    }
    if let Some((index, kind_and_more, payload)) = &input.odd {
        plimsoll_fuzz::frame(&mut file, 7, *index, *kind_and_more, payload);
    }
    let cut = file.len().saturating_sub(usize::from(input.cut) / 64);
    file.truncate(cut.min(65536));
    file.resize(65536, 0);
    let dir = plimsoll_fuzz::disk();
    plimsoll_fuzz::put(&dir, &format!("{first:020}.seg"), &file);
    plimsoll_fuzz::judge(&dir);
});
