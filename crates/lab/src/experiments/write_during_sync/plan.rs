//! What a profile asks for: the rates, and the arms.

use std::time::Duration;

use plimsoll_sync::SyncMethod;

use super::race::{Rates, Target};
use crate::experiment::Profile;
use crate::layout::Layout;

/// The rates of a profile.
pub(super) const fn rates(profile: Profile) -> Rates {
    let ms = Duration::from_millis;
    let quick = Rates {
        write_bytes: 4096,
        write_every: Duration::from_micros(250),
        sync_every: ms(20),
        block: ms(250),
    };
    match profile {
        Profile::Quick => quick,
        Profile::Full => Rates { block: ms(1000), ..quick },
        Profile::Article => {
            Rates { write_bytes: 1, write_every: ms(100), sync_every: ms(1000), block: ms(10_000) }
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Rival {
    pub(super) label: &'static str,
    pub(super) target: Target,
    pub(super) syncs: &'static [SyncMethod],
}

const FSYNC: &[SyncMethod] = &[SyncMethod::ORDINARY];
const FDATASYNC: &[SyncMethod] = &[SyncMethod::Fdatasync];
const RANGE_FIRST: &[SyncMethod] = &[SyncMethod::SyncFileRange, SyncMethod::Fdatasync];

const RIVALS: [Rival; 9] = [
    Rival { label: "no sync", target: Target::Nothing, syncs: &[] },
    Rival { label: "fsync, same descriptor", target: Target::SameDescriptor, syncs: FSYNC },
    Rival { label: "fsync, other descriptor", target: Target::OtherDescriptor, syncs: FSYNC },
    Rival { label: "fsync, other file", target: Target::OtherFile, syncs: FSYNC },
    Rival { label: "fdatasync, same descriptor", target: Target::SameDescriptor, syncs: FDATASYNC },
    Rival {
        label: "fdatasync, other descriptor",
        target: Target::OtherDescriptor,
        syncs: FDATASYNC,
    },
    Rival { label: "fdatasync, other file", target: Target::OtherFile, syncs: FDATASYNC },
    Rival {
        label: "sync_file_range+fdatasync, same descriptor",
        target: Target::SameDescriptor,
        syncs: RANGE_FIRST,
    },
    Rival { label: "o_sync instead", target: Target::EveryWrite, syncs: &[SyncMethod::OSync] },
];

/// The arms of the article: its two programs, what it ends with, and the control that it lacks.
const ARTICLE: [&str; 4] =
    ["no sync", "fsync, other descriptor", "fdatasync, other descriptor", "o_sync instead"];

/// The arms of a profile.
pub(super) fn all_rivals(profile: Profile) -> Vec<(Rival, Layout)> {
    let layouts: &[Layout] = match profile {
        Profile::Article => &[Layout::Append],
        Profile::Quick | Profile::Full => &[Layout::Append, Layout::Overwritten],
    };
    let in_profile = |rival: &&Rival| profile != Profile::Article || ARTICLE.contains(&rival.label);
    let of = |&layout| RIVALS.iter().filter(in_profile).map(move |rival| (*rival, layout));
    layouts.iter().flat_map(of).collect()
}

pub(super) fn arm_name(rival: &Rival, layout: Layout) -> String {
    format!("{}/{layout}", rival.label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_room_for_the_writes_of_a_block() {
        for profile in [Profile::Quick, Profile::Full, Profile::Article] {
            let rates = rates(profile);
            assert!(rates.records() >= rates.writes() as u64, "{profile:?}");
            assert!(rates.block > 2 * rates.sync_every, "{profile:?}: too few syncs a block");
        }
    }
}
