//! Bugs that are planted in a copy of the broker, each of which its simulation or a story must find
//! (`crates/log/tests/shared/planted.rs`, `crates/server/mutants`).
//!
//! `just broker-mutants` looks for all of them, `PLIMSOLL_MUTANTS=no-fence` for some. Otherwise only their
//! texts are looked for.
#![expect(clippy::print_stdout, reason = "it prints a table")]
#![expect(clippy::disallowed_methods, reason = "it waits for a process, and may have to kill it")]

#[path = "../../log/tests/shared/planted.rs"]
mod planted;

use std::env;

use planted::Hunt;

fn hunt() -> Hunt {
    let story = |name| (name, "PLIMSOLL_SEEDS", "1");
    let lives = |seeds| ("what_a_broker_said_holds_whatever_ends_it", "PLIMSOLL_SEEDS", seeds);
    let replicas = |seeds| ("what_a_quorum_has_stays_whoever_forgets", "PLIMSOLL_SEEDS", seeds);
    Hunt {
        mutants: "crates/server/mutants",
        crates: &["crates/sync", "crates/simdisk", "crates/log", "crates/server"],
        package: "plimsoll-server",
        programs: &["simulation", "shard", "chapter", "broker", "replicas"],
        campaigns: vec![
            story("stories::what_was_deleted_stays_so_though_less_expires_later"),
            story("stories::what_is_deleted_while_a_chapter_waits_is_in_it"),
            story("stories::an_entry_that_acts_on_a_partition_must_be_durable"),
            story("stories::a_run_that_is_in_the_place_of_another_is_refused"),
            ("model::chapters_keep_the_promises", "PLIMSOLL_SEEDS", "20"),
            story("crashes::after_a_crash_at_any_moment_all_is_as_before_or_after"),
            story("flipped::a_flipped_byte_of_a_chapter_is_an_error_and_never_other_bytes"),
            story("flipped::a_damaged_file_is_left_and_the_others_are_merged"),
            story("backup::what_was_deleted_stays_deleted"),
            story("backup::a_backup_that_is_killed_at_any_moment_is_the_old_one_or_the_new_one"),
            story("backup::only_what_lacks_is_copied_and_what_is_gone_is_dropped"),
            story("backup::a_backup_beside_everything_else_is_what_was_there_at_some_moment"),
            story("stories::d_does_not_go_back_when_a_sole_voter_gets_company"),
            replicas("120"),
            lives("200"),
        ],
        healthy: vec![replicas("20"), lives("30")],
        longest_s: 600,
    }
}

#[test]
fn every_mutant_still_fits() {
    hunt().check(60);
}

#[test]
fn every_mutant_of_the_broker_is_found() {
    match env::var("PLIMSOLL_MUTANTS") {
        Ok(wanted) => hunt().look_for(&wanted),
        Err(_) => {
            println!(
                "SKIPPED: `just broker-mutants` builds a copy of the broker and looks for each mutant"
            );
        }
    }
}
