//! What happens to one broker, step by step.

use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_server::run::{Doubt, How, Loss, Run, Start, Verdict};
use plimsoll_simdisk::{DiskOptions, SimDir};
use plimsoll_sync::{Access, Allocation, Crash, Dir};

use super::{begin, ends, memory, start};

fn doubt(verdict: &Verdict) -> Doubt {
    match verdict {
        Verdict::MayHaveLost(Loss { doubt, .. }) => *doubt,
        Verdict::NothingLost(how) => panic!("nothing lost: {how}"),
    }
}

#[test]
fn a_volume_that_was_detached_under_a_system_that_goes_on_is_found_out() {
    // The boot id is the same; the second run acknowledged nothing itself.
    let (data, memory) = (SimDir::new(), memory());
    let (run, _) = begin(&data, &memory, &ends([]));
    run.acknowledged(3, 100).unwrap();
    let (_, verdict) = begin(&data, &memory, &ends([(3, 100)]));
    assert_eq!(verdict, Verdict::NothingLost(How::ProcessCrash));
    let (_, verdict) = begin(&data, &memory, &ends([(3, 90)]));
    assert!(matches!(doubt(&verdict), Doubt::LostDurable(_)));
}

/// An earlier copy of the directory, which had ended in order, was believed, though memory knew of the run that came after it.
#[test]
fn a_directory_that_went_back_behind_a_run_of_this_system_is_found_out() {
    let (data, memory) = (SimDir::new(), memory());
    let (run, _) = begin(&data, &memory, &ends([]));
    run.acknowledged(3, 5).unwrap();
    assert!(run.close(&ends([(3, 5)]), 2000).unwrap());
    let copy = data.crash(Crash::Process, 0);
    assert!(!Run::went_back(&data, &memory).unwrap());
    let (run, _) = begin(&data, &memory, &ends([(3, 5)]));
    assert!(
        Run::went_back(&copy, &memory).unwrap(),
        "though nothing was acknowledged: it may have voted"
    );
    assert!(run.close(&ends([(3, 5)]), 3000).unwrap());
    assert!(Run::went_back(&copy, &memory).unwrap() && !Run::went_back(&data, &memory).unwrap());
    let of_another = super::memory();
    drop(begin(&SimDir::new(), &of_another, &ends([])));
    assert!(!Run::went_back(&copy, &of_another).unwrap());
    let disk = SimDir::new();
    assert!(!Run::went_back(&copy, &disk).unwrap(), "a disk is no memory");
}

/// A broker whose disk others had filled to the last block would not start any more.
#[test]
fn a_start_that_has_no_room_for_what_it_drew_begins_and_is_suspected_by_nobody() {
    let capacity_bytes = Some(1 << 20);
    let data = SimDir::with(DiskOptions { capacity_bytes, ..DiskOptions::default() });
    let memory = memory();
    drop(begin(&data, &memory, &ends([])));
    let others = data.create("others", Access::default()).unwrap();
    let free_bytes = data.space().unwrap().free_bytes;
    others.allocate(0, free_bytes, Allocation::Reserved).unwrap();
    let (run, _) = begin(&data, &memory, &ends([]));
    assert_eq!((run.incarnation(), run.starts().newest(9)), (2, &[(1, 9)][..]));
    assert!(!Run::went_back(&data, &memory).unwrap());
    drop((run, others));
    data.remove("others").unwrap();
    data.sync().unwrap();
    let (run, _) = begin(&data, &memory, &ends([]));
    assert_eq!((run.incarnation(), run.starts().newest(9)), (3, &[(1, 9), (3, 9)][..]));
    assert!(!Run::went_back(&data, &memory).unwrap());
}

/// Its witness was there, and the mark was not: nobody had heard of it.
#[test]
fn a_start_that_died_before_its_mark_was_there_is_no_later_run() {
    let mut died = 0;
    for stop in 0..20 {
        let (data, memory) = (SimDir::new(), memory());
        let (run, _) = begin(&data, &memory, &ends([]));
        run.acknowledged(3, 5).unwrap();
        assert!(run.close(&ends([(3, 5)]), 2000).unwrap());
        data.stop_at(data.operations() + stop);
        died += u32::from(Run::begin(start(&data, &memory), &ends([(3, 5)])).is_err());
        for seed in 0..10 {
            let after = data.crash(Crash::PowerCut, seed);
            assert!(!Run::went_back(&after, &memory).unwrap(), "stopped at {stop}");
        }
    }
    assert!(died > 0);
}

/// A start of a broker that had ended in order died before it was ready, and the next one fenced.
#[test]
fn a_run_that_dies_before_it_acknowledges_leaves_no_doubt() {
    let (data, memory) = (SimDir::new(), memory());
    let (run, _) = begin(&data, &memory, &ends([]));
    run.acknowledged(3, 5).unwrap();
    assert!(run.close(&ends([(3, 5)]), 2000).unwrap());
    for boot in [8, 9] {
        let alone = Start { boot: Some(boot), memory: None, ..start(&data, &memory) };
        let (run, verdict) = Run::begin(alone, &ends([(3, 5)])).unwrap();
        assert!(matches!(verdict, Verdict::NothingLost(_)), "{verdict}");
        // What it appends for itself tells nobody anything.
        drop(run);
    }
    let alone = Start { boot: Some(10), memory: None, ..start(&data, &memory) };
    let (run, _) = Run::begin(alone, &ends([(3, 6)])).unwrap();
    run.acknowledged(3, 7).unwrap();
    let (_, verdict) = Run::begin(Start { boot: Some(11), ..alone }, &ends([(3, 7)])).unwrap();
    assert_eq!(doubt(&verdict), Doubt::OtherBoot);
}

#[test]
fn a_log_that_grows_before_its_fence_does_not_hide_what_it_lost() {
    let (data, memory) = (SimDir::new(), memory());
    let (run, _) = begin(&data, &memory, &ends([]));
    run.acknowledged(3, 100).unwrap();
    let (_, verdict) = begin(&data, &memory, &ends([(3, 90)]));
    assert!(matches!(doubt(&verdict), Doubt::LostAcknowledged(_)));
    let (run, verdict) = begin(&data, &memory, &ends([(3, 101)]));
    assert_eq!(doubt(&verdict), Doubt::Unsettled);
    run.fenced(&ends([(3, 102)]), 2000).unwrap();
    let (_, verdict) = begin(&data, &memory, &ends([(3, 102)]));
    assert_eq!(verdict, Verdict::NothingLost(How::ProcessCrash));
}

#[test]
fn what_was_acknowledged_beyond_a_sync_keeps_a_run_from_resting() {
    let (data, memory) = (SimDir::new(), memory());
    let (run, _) = begin(&data, &memory, &ends([]));
    run.acknowledged(3, 5).unwrap();
    assert!(!run.quiesce(&ends([(3, 4)]), 2000).unwrap());
    assert!(!run.close(&ends([]), 2000).unwrap());
    assert!(run.close(&ends([(3, 5)]), 2000).unwrap());
    // Nobody said that it would be busy.
    run.acknowledged(3, 6).unwrap();
    let next = Run::begin(Start { boot: Some(8), ..start(&data, &memory) }, &ends([(3, 5)]));
    assert_eq!(doubt(&next.unwrap().1), Doubt::OtherBoot);
}

#[test]
fn a_loss_is_after_the_last_sync_that_was_told() {
    let (data, memory) = (SimDir::new(), memory());
    let (run, _) = begin(&data, &memory, &ends([]));
    run.acknowledged(3, 50).unwrap();
    run.synced(&ends([(3, 40)]), 2000).unwrap();
    let cut = Start { boot: Some(8), ..start(&data, &memory) };
    let Verdict::MayHaveLost(loss) = Run::begin(cut, &ends([(3, 45)])).unwrap().1 else {
        panic!("the power was cut");
    };
    assert_eq!((loss.since_ms, loss.guaranteed), (2000, ends([(3, 40)])));
}

#[test]
fn without_a_boot_id_or_on_a_disk_no_crash_is_told_from_worse() {
    let (data, memory, disk) = (SimDir::new(), memory(), SimDir::new());
    let on_disk = Start { memory: Some(&disk), ..start(&data, &memory) };
    let alone = Start { memory: None, ..on_disk };
    let nameless = Start { boot: None, ..start(&data, &memory) };
    for (start, wanted) in
        [(on_disk, Doubt::NoWitness), (alone, Doubt::NoWitness), (nameless, Doubt::NoBoot)]
    {
        let (run, _) = Run::begin(start, &ends([])).unwrap();
        run.fenced(&ends([]), 2000).unwrap();
        run.busy(2000).unwrap();
        let (run, verdict) = Run::begin(start, &ends([])).unwrap();
        assert_eq!(doubt(&verdict), wanted);
        run.fenced(&ends([]), 2000).unwrap();
        assert!(run.close(&ends([]), 2000).unwrap());
        assert_eq!(disk.list().unwrap(), Vec::<String>::new());
    }
}

#[test]
fn an_acknowledgement_that_races_with_a_rest_is_never_beyond_a_resting_mark() {
    for seed in 0..50 {
        let (data, memory) = (SimDir::new(), memory());
        let (run, _) = begin(&data, &memory, &ends([]));
        let durable = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for index in 1..40 {
                    run.acknowledged(3, index).unwrap();
                    durable.store(index, Ordering::Release);
                }
            });
            for now in 0..40 {
                let end = durable.load(Ordering::Acquire);
                run.quiesce(&ends([(3, end)]), now).unwrap();
            }
        });
        // Had the run rested below its last acknowledgement this would be called idle.
        let cut = data.crash(Crash::PowerCut, seed);
        let start = Start { data: &cut, boot: Some(8), ..start(&data, &memory) };
        let (_, verdict) = Run::begin(start, &ends([(3, 38)])).unwrap();
        assert!(matches!(verdict, Verdict::MayHaveLost(_)), "{verdict}");
    }
}

/// The first start died after the file had its name and before that was durable. The second wrote
/// into it, and lost it with the power: the third had its incarnation.
#[test]
fn an_incarnation_is_never_used_twice_wherever_the_first_start_dies() {
    for stop in 0..20 {
        let (data, memory) = (SimDir::new(), memory());
        data.stop_at(stop);
        let _is_whole = Run::begin(start(&data, &memory), &ends([])).is_ok();
        let data = data.crash(Crash::Process, 0);
        let second = begin(&data, &memory, &ends([])).0.incarnation();
        for seed in 0..20 {
            let third = begin(&data.power_cut(seed), &memory, &ends([])).0.incarnation();
            assert!(third > second, "{third} after {second}, stopped at {stop}");
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn on_a_real_tmpfs_a_process_that_dies_is_told_from_a_system_that_does() {
    use plimsoll_sync::{OsDir, boot_id};

    let (Ok(shm), boot @ Some(_)) = (tempfile::tempdir_in("/dev/shm"), boot_id()) else {
        println!("SKIPPED: there is no /dev/shm, or no boot id");
        return;
    };
    let disk = tempfile::tempdir().unwrap();
    let (data, memory) = (OsDir::open(disk.path()).unwrap(), OsDir::open(shm.path()).unwrap());
    let start =
        Start { data: &data, memory: Some(&memory), boot, fresh_id: 42, now_ms: 1000, drawn: 9 };
    let (run, verdict) = Run::begin(start, &ends([])).unwrap();
    assert_eq!(verdict, Verdict::NothingLost(How::New));
    run.acknowledged(3, 5).unwrap();
    drop(run);
    let (run, verdict) = Run::begin(start, &ends([(3, 5)])).unwrap();
    assert_eq!(verdict, Verdict::NothingLost(How::ProcessCrash));
    run.acknowledged(3, 7).unwrap();
    drop(run);
    let (_, verdict) = Run::begin(start, &ends([(3, 6)])).unwrap();
    assert!(matches!(doubt(&verdict), Doubt::LostAcknowledged(_)));
}
