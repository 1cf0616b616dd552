//! Bugs that are planted in a copy of the log, each of which its simulation must find
//! (`shared/planted.rs`, `crates/log/mutants`).
//!
//! `just mutants` looks for all of them, `PLIMSOLL_MUTANTS=no-sync,same-salt` for some. Otherwise only
//! their texts are looked for.
#![cfg(not(shuttle))]
#![expect(clippy::print_stdout, reason = "it prints a table")]
#![expect(clippy::disallowed_methods, reason = "it waits for a process, and may have to kill it")]

#[path = "shared/planted.rs"]
mod planted;

use std::env;

use planted::{Campaign, Hunt};

/// Those that tell one of these histories look first, after a few crash points.
const STORIES: [&str; 12] = [
    "stories::retention_does_not_bring_back_a_segment_that_was_replaced",
    "stories::a_segment_that_failed_as_it_got_its_name_does_not_stay_behind",
    "stories::a_segment_that_failed_as_it_was_begun_does_not_hide_records",
    "stories::a_segment_that_was_cut_off_before_its_link_was_durable_is_not_missed",
    "stories::the_note_of_a_cut_stays_as_long_as_what_was_cut_off",
    "stories::what_was_lost_behind_a_clean_end_does_not_come_back",
    "stories::a_ring_that_was_given_up_is_not_taken_for_the_one_that_followed",
    "stories::a_log_that_is_opened_on_a_full_disk_knows_what_is_stale",
    "stories::small_records_are_accepted_after_one_that_was_larger_than_a_segment",
    "stories::a_clock_that_was_ahead_does_not_keep_segments_for_ever",
    "stories::a_record_larger_than_what_is_staged_is_durable_as_a_whole",
    "stories::what_a_large_batch_leaves_at_a_segments_end_is_room_for_nobody",
];
/// What else looks for mutants, fastest first, and how long it may look.
const CAMPAIGNS: [Campaign; 8] = [
    ("tails::damage_is_called_what_it_is", "PLIMSOLL_EVERY", "7"),
    (
        "tails::a_record_that_is_missing_from_a_log_that_was_closed_is_corruption",
        "PLIMSOLL_EVERY",
        "7",
    ),
    (
        "full::a_disk_that_fills_loses_nothing_and_takes_records_again_once_there_is_room",
        "PLIMSOLL_SEEDS",
        "200",
    ),
    ("nothing_acknowledged_is_lost_to_crashes", "PLIMSOLL_SEEDS", "400"),
    ("nothing_acknowledged_is_lost_to_failing_disks", "PLIMSOLL_SEEDS", "1000"),
    ("faults::an_error_at_any_operation_loses_nothing", "PLIMSOLL_EVERY", "7"),
    ("a_disk_that_lies_may_lose_records_and_never_changes_one", "PLIMSOLL_SEEDS", "400"),
    LAST,
];
/// What nothing else finds, and is rare.
const LAST: Campaign = ("every_moment_of_a_run_may_be_its_last", "PLIMSOLL_POINTS", "200000");

/// With no mutant switched on so many crash points are visited: that is CI's share of them.
const POINTS: &str = "100000";

fn hunt() -> Hunt {
    let points = |count| ("every_moment_of_a_run_may_be_its_last", "PLIMSOLL_POINTS", count);
    let stories = STORIES.map(|story| (story, "PLIMSOLL_SEEDS", "1"));
    let rest = || stories.into_iter().chain(CAMPAIGNS);
    Hunt {
        mutants: "crates/log/mutants",
        crates: &["crates/sync", "crates/simdisk", "crates/log"],
        package: "plimsoll-log",
        programs: &["simulation"],
        campaigns: [points("20000")].into_iter().chain(rest()).collect(),
        healthy: [points(POINTS)].into_iter().chain(rest().filter(|it| *it != LAST)).collect(),
        longest_s: 120,
    }
}

#[test]
fn every_mutant_still_fits() {
    hunt().check(20);
}

#[test]
fn every_mutant_of_the_log_is_found() {
    match env::var("PLIMSOLL_MUTANTS") {
        Ok(wanted) => hunt().look_for(&wanted),
        Err(_) => {
            println!("SKIPPED: `just mutants` builds a copy of the log and looks for each mutant");
        }
    }
}
