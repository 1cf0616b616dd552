//! `SimDir` passes the contract that the real disk passes.

use std::sync::Arc;

use plimsoll_simdisk::{DiskOptions, FillsAt, Overwriting, Persistence, SimDir, Tear};
use plimsoll_sync::{Crash, Dir, contract};

#[test]
fn sim_dir_keeps_the_contract() {
    contract::check(&|| Arc::new(SimDir::new()) as Arc<dyn Dir>);
}

#[test]
fn every_kind_of_disk_keeps_the_contract() {
    let overwritings = [
        Overwriting::InPlace,
        Overwriting::Elsewhere { in_place_on_request: false },
        Overwriting::Elsewhere { in_place_on_request: true },
        Overwriting::Memory,
    ];
    for persistence in [Persistence::Posix, Persistence::Journal] {
        for overwriting in overwritings {
            for fills_at in [FillsAt::Write, FillsAt::Sync] {
                let options = DiskOptions {
                    persistence,
                    tear: Tear::Bytes512,
                    direct_alignment: 4096,
                    capacity_bytes: Some(64 << 20),
                    overwriting,
                    fills_at,
                    history_steps: 0,
                    ..DiskOptions::default()
                };
                contract::check(&|| Arc::new(SimDir::with(options)) as Arc<dyn Dir>);
            }
        }
    }
}

#[test]
fn a_disk_that_cannot_punch_keeps_the_contract() {
    let options = DiskOptions { punches: false, ..DiskOptions::default() };
    contract::check(&|| Arc::new(SimDir::with(options)) as Arc<dyn Dir>);
}

/// A directory in a directory is as good as the first.
#[test]
fn a_directory_in_a_directory_keeps_the_contract() {
    contract::check(&|| SimDir::new().create_dir("inner").unwrap());
}

#[test]
fn a_disk_found_after_a_crash_keeps_the_contract() {
    for crash in [Crash::Process, Crash::System, Crash::PowerCut] {
        contract::check(&|| Arc::new(SimDir::new().crash(crash, 1)) as Arc<dyn Dir>);
    }
}
