//! The verdict as a table that a person can read.

use plimsoll_server::run::{Loss, Mark, State, Verdict, Witness, verdict};
use plimsoll_server::shard::{Fence, Why};

use super::ends;

fn mark(state: State) -> Mark {
    let ends = ends([(3, 50)]);
    Mark { data: 42, incarnation: 9, boot: Some(7), state, when_ms: 1000, ends }
}

fn witness() -> Witness {
    Witness { data: 42, incarnation: 9, boot: 7, acknowledged: ends([(3, 100)]) }
}

fn loss(verdict: Verdict) -> Loss {
    match verdict {
        Verdict::MayHaveLost(loss) => loss,
        Verdict::NothingLost(how) => panic!("{how}"),
    }
}

#[test]
fn innocence_needs_evidence() {
    use State::{Clean, Doubtful, Quiesced, Running};
    let (same, other, none) = (Some(7), Some(8), None);
    let own = Some(witness());
    let earlier = Some(Witness { incarnation: 8, ..witness() });
    let neighbours = Some(Witness { data: 43, ..witness() });
    let strange = Some(Witness { boot: 8, ..witness() });
    let new = "nothing is lost: the data directory is new";
    let no_mark = "may be lost: there are logs, and no file 'run'";
    let clean = "nothing is lost: the last run ended in order";
    let idle = "nothing is lost: the last run was idle, with all it had acknowledged durable";
    let crash = "nothing is lost: the last run's process died and the system did not";
    let gone = "may be lost: the log of shard 3 ends at 0, and was durable up to 50";
    let short = "may be lost: the log of shard 3 ends at 49, and was durable up to 50";
    let amiss = "may be lost: the log of shard 3 ends at 99, and was acknowledged up to 100";
    let unseen = "not end in order, and nothing in memory says what it had acknowledged";
    let not_its = "not end in order, and what is in memory is of another run";
    let reboot = "not end in order, and the system was started since";
    let no_boot = "not end in order, and the system has no boot id";
    let unsettled = "may be lost: the file 'run' is damaged, or an earlier start found a loss";
    #[rustfmt::skip]
    let table = [
        // the mark says  the witness  boot   the log   what is known
        (None,            &None,       same,  None,      new),
        (None,            &own,        same,  Some(0),   no_mark),
        (None,            &own,        same,  Some(100), no_mark),

        (Some(Clean),     &None,       other, Some(50),  clean),
        (Some(Clean),     &None,       none,  Some(51),  clean),
        (Some(Clean),     &own,        same,  Some(49),  short),
        (Some(Clean),     &own,        same,  None,      gone),

        (Some(Quiesced),  &None,       other, Some(50),  idle),
        (Some(Quiesced),  &None,       none,  Some(99),  idle),
        (Some(Quiesced),  &own,        same,  Some(49),  short),

        (Some(Running),   &own,        same,  Some(100), crash),
        (Some(Running),   &own,        same,  Some(101), crash),
        (Some(Running),   &own,        same,  Some(99),  amiss),
        (Some(Running),   &own,        same,  Some(49),  short),
        (Some(Running),   &None,       same,  Some(100), unseen),
        (Some(Running),   &earlier,    same,  Some(100), not_its),
        (Some(Running),   &neighbours, same,  Some(100), not_its),
        (Some(Running),   &strange,    same,  Some(100), not_its),
        (Some(Running),   &own,        other, Some(100), reboot),
        (Some(Running),   &own,        none,  Some(100), no_boot),

        (Some(Doubtful),  &own,        same,  Some(100), unsettled),
        (Some(Doubtful),  &own,        same,  Some(49),  short),
    ];
    for (row, (state, witness, boot, end, wanted)) in table.into_iter().enumerate() {
        let ends = end.map(|end| (3, end)).into_iter().collect();
        let mark = state.map(mark);
        let found = verdict(mark.as_ref(), witness.as_ref(), boot, &ends).to_string();
        assert!(found.contains(wanted), "row {row}: {found}");
    }
}

#[test]
fn a_loss_names_what_is_guaranteed_what_was_given_and_since_when() {
    let running = mark(State::Running);
    let fence =
        |guaranteed, given| Fence { why: Why::UncleanStart, guaranteed, given, since: 1000 };
    let short = loss(verdict(Some(&running), Some(&witness()), Some(7), &ends([(3, 60), (4, 5)])));
    assert_eq!(short.fence(3), fence(50, Some(100)));
    // The witness knows all that was acknowledged, and nothing of this shard was.
    assert_eq!(short.fence(4), fence(0, Some(0)));
    // What was durable and is not there is not guaranteed.
    let gone = loss(verdict(Some(&running), Some(&witness()), Some(7), &ends([(3, 20)])));
    assert_eq!(gone.fence(3), fence(20, Some(100)));
    let power_cut = loss(verdict(Some(&running), None, Some(8), &ends([(3, 60)])));
    assert_eq!(power_cut.fence(3), fence(50, None));
    // The run that began in doubt does not know what the one before it had acknowledged.
    let doubtful = mark(State::Doubtful);
    let twice = loss(verdict(Some(&doubtful), Some(&witness()), Some(7), &ends([(3, 60)])));
    assert_eq!(twice.fence(3), fence(50, None));
    let nothing = loss(verdict(None, Some(&witness()), Some(7), &ends([(3, 60)])));
    assert_eq!(nothing.fence(3), Fence { since: 0, ..fence(0, None) });
}
