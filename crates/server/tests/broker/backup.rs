//! A backup of a broker that runs, or does not, and what comes back of it.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use plimsoll_server::backup::{Error, Look, Progress, Report, backup, restore};
use plimsoll_server::broker::Options;
use plimsoll_server::chapter::{self, Filled, Survey};
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_simdisk::{DiskOptions, Fault, FaultKind, Operation, SimDir};
use plimsoll_sync::{Access, Crash, Dir};

use super::chapters::{chapters_of, keyed};
use super::{Broker, UNCOMMITTED};

const NOW: u64 = 1_795_000_000_000;
const SHARED: u32 = 2;

fn dir(disk: &Arc<SimDir>) -> Arc<dyn Dir> {
    Arc::clone(disk) as _
}

fn take(from: &Arc<SimDir>, to: &Arc<SimDir>) -> Result<Report, Error> {
    backup(&dir(from), &dir(to), NOW, &mut |_| true)
}

fn put(from: &Arc<SimDir>) -> Result<Arc<SimDir>, Error> {
    let to = Arc::new(SimDir::new());
    restore(&dir(from), &dir(&to), &mut |_| true).map(|_| to)
}

/// What was done with the runs of the shard of records that are not waited for.
fn runs(report: &Report) -> Filled {
    report.shards.iter().find(|shard| shard.number == SHARED).unwrap().runs
}

/// Runs that somebody could read: opening, chapter, hash, whether they were compacted.
fn live(survey: &Survey) -> BTreeSet<String> {
    let opened = survey.files.iter().map(|found| found.opened.as_ref().unwrap());
    let live = opened.flat_map(|opened| {
        let live = opened.runs.iter().filter(|run| !opened.is_deleted(run, None));
        live.map(|run| {
            assert_eq!(opened.chapter.verify(run).unwrap(), run.bytes);
            format!("{} {} {:x} {}", run.opening, run.chapter, run.hash, run.compacted)
        })
    });
    live.collect()
}

fn of_broker(disk: &Arc<SimDir>) -> BTreeSet<String> {
    live(&Survey::of(&*disk.open_dir("chapters-2").unwrap(), SHARED).unwrap())
}

fn of_backup(disk: &Arc<SimDir>) -> BTreeSet<String> {
    let look = Look::open(&dir(disk)).unwrap();
    live(&look.survey(SHARED).unwrap())
}

/// Every directory and file below, with its bytes.
fn tree(disk: &Arc<SimDir>) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let shards = (0..4).flat_map(|n| [format!("shard-{n}"), format!("chapters-{n}")]);
    for name in [String::new()].into_iter().chain(shards) {
        let dir = if name.is_empty() { Some(dir(disk)) } else { disk.open_dir(&name).ok() };
        let Some(dir) = dir else { continue };
        for file in dir.list().unwrap() {
            let opened = dir.open(&file, Access::default()).unwrap();
            let mut bytes = vec![0; usize::try_from(opened.len().unwrap()).unwrap()];
            opened.read_at(&mut bytes, 0).unwrap();
            all.push((format!("{name}/{file}"), bytes));
        }
    }
    all
}

fn flip(disk: &Arc<SimDir>, in_dir: &str, name: &str, at: u64) {
    let file = disk.open_dir(in_dir).unwrap().open(name, Access::default()).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, at).unwrap();
    file.write_at(&[byte[0] ^ 1], at).unwrap();
}

/// A broker with chapters, and more in its log: topics `orders` and `notes`, group `g`.
fn filled(disk: &Arc<SimDir>) -> Broker {
    let mut broker = Broker::open(disk, chapters_of(1500));
    for topic in ["orders", "notes"] {
        broker.create(topic, &[]);
    }
    broker.create("ledger", &[("flush.messages", "1")]);
    for number in 0..60 {
        broker.produced(["orders", "notes"][number % 5 % 2], &format!("{number}"));
    }
    broker.produced("ledger", "paid");
    broker.commit("orders", 7);
    broker.until_settled(3);
    broker
}

#[test]
fn what_was_backed_up_of_a_broker_that_runs_or_has_ended_comes_back() {
    for ends in [false, true] {
        let disk = Arc::new(SimDir::new());
        let mut broker = filled(&disk);
        let all = ["orders", "notes", "ledger"].map(|topic| broker.consume(topic, UNCOMMITTED));
        let broker = if ends { broker.close_and_forget() } else { Some(broker) };
        let before = tree(&disk);
        let kept = Arc::new(SimDir::new());
        let report = take(&disk, &kept).unwrap();
        assert!(runs(&report).copied_runs >= 6 && runs(&report).kept_runs == 0, "{report:?}");
        assert!(report.shards.iter().all(|shard| shard.last_index > 0), "{report:?}");
        if ends {
            assert!(tree(&disk) == before, "it is only read");
        }
        assert_eq!(of_backup(&kept), of_broker(&disk));
        drop(broker);
        let restored = put(&Arc::new(kept.power_cut(1))).unwrap();
        let restored = Arc::new(restored.power_cut(2));
        assert!(!restored.list().unwrap().contains(&"run".to_owned()), "no mark of a run");
        let mut broker = Broker::open(&restored, chapters_of(1500));
        let found = ["orders", "notes", "ledger"].map(|topic| broker.consume(topic, UNCOMMITTED));
        assert_eq!(found, all);
        assert_eq!(broker.committed("orders"), 7);
        let verdict = broker.node.verdict().to_owned();
        assert!(verdict.starts_with("records may be lost"), "{verdict}");
        broker.close();
    }
}

impl Broker {
    fn close_and_forget(self) -> Option<Self> {
        self.close();
        None
    }
}

/// What may have been given away beyond the backup has offsets of its own.
#[test]
fn offsets_behind_a_backup_name_no_second_record() {
    let disk = Arc::new(SimDir::new());
    let mut broker = filled(&disk);
    let kept = Arc::new(SimDir::new());
    take(&disk, &kept).unwrap();
    let last = broker.consume("orders", UNCOMMITTED).last().unwrap().0;
    let beyond: Vec<i64> = (0..20).map(|_| broker.produced("orders", "beyond")).collect();
    broker.close();
    let mut broker = Broker::open(&put(&kept).unwrap(), chapters_of(1500));
    assert_eq!(broker.consume("orders", UNCOMMITTED).last().unwrap().0, last);
    let next = broker.produced("orders", "next");
    assert!(next > *beyond.last().unwrap(), "{next} after {beyond:?}");
    broker.close();
}

#[test]
fn only_what_lacks_is_copied_and_what_is_gone_is_dropped() {
    let disk = Arc::new(SimDir::new());
    let mut broker = filled(&disk);
    let kept = Arc::new(SimDir::new());
    let first = runs(&take(&disk, &kept).unwrap());
    let again = runs(&take(&disk, &kept).unwrap());
    assert_eq!((again.copied_runs, again.kept_runs), (0, first.copied_runs));
    // Runs go of files that stay.
    let before = of_backup(&kept);
    broker.trim("notes", 10);
    broker.until("runs are let go of", |_| !before.is_subset(&of_broker(&disk)));
    let trimmed = runs(&take(&disk, &kept).unwrap());
    assert!(trimmed.dropped_runs > 0, "{trimmed:?}");
    assert_eq!(of_backup(&kept), of_broker(&disk));
    // More chapters come; runs of one topic go, and files are merged.
    let settled = broker.chapters().settled;
    for number in 0..40 {
        broker.produced("notes", &format!("later {number}"));
    }
    broker.until_settled(settled + 2);
    broker.delete("orders");
    broker.until("files are merged", |broker| {
        let chapters = broker.chapters();
        chapters.files < usize::try_from(chapters.settled).unwrap()
    });
    let third = runs(&take(&disk, &kept).unwrap());
    assert!(third.dropped_runs >= 3, "{third:?}");
    assert!(third.copied_runs >= 2 && third.kept_runs >= 1, "{third:?}");
    assert_eq!(of_backup(&kept), of_broker(&disk));
    let files = kept.open_dir("chapters-2").unwrap().list().unwrap();
    let look = Look::open(&dir(&kept)).unwrap();
    let named: Vec<String> =
        look.survey(SHARED).unwrap().manifest.files.iter().map(|f| f.name()).collect();
    assert_eq!(files, named, "what nobody names is gone");
    let expected = broker.consume("notes", UNCOMMITTED);
    broker.close();
    let mut broker = Broker::open(&put(&kept).unwrap(), chapters_of(1500));
    assert_eq!(broker.consume("notes", UNCOMMITTED), expected);
    let fetched = broker.fetch("orders", 0, UNCOMMITTED);
    assert_eq!(fetched.error_code, ErrorCode::UnknownTopicOrPartition);
    broker.close();
}

/// Records that were deleted, expired or compacted before a backup do not come back with it.
#[test]
fn what_was_deleted_stays_deleted() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, chapters_of(1500));
    broker.create("orders", &[]);
    broker.create("table", &[("cleanup.policy", "compact")]);
    let kept = Arc::new(SimDir::new());
    for number in 0..60 {
        broker.produced("orders", &format!("{number}"));
        let key = format!("key {}", number % 3);
        let records = [(&*key, Some("value"))];
        broker.produce_bytes("table", keyed(&records, Compression::None));
    }
    broker.until_settled(3);
    take(&disk, &kept).unwrap();
    let before = of_backup(&kept);
    broker.trim("orders", 30);
    for number in 0..60 {
        let key = format!("key {}", number % 3);
        broker.produce_bytes("table", keyed(&[(&*key, Some("later"))], Compression::None));
    }
    broker.until("the table is compacted", |broker| broker.keyed("table").len() < 60);
    broker.until("runs are let go of", |_| !before.is_subset(&of_broker(&disk)));
    // It goes on being compacted: what is taken has no more than there was before.
    let (orders, table) = (broker.consume("orders", UNCOMMITTED), broker.keyed("table"));
    take(&disk, &kept).unwrap();
    assert_eq!(orders.first().unwrap().0, 30);
    broker.close();
    let restored = put(&kept).unwrap();
    assert!(before.difference(&of_broker(&restored)).count() > 0);
    let mut broker = Broker::open(&restored, chapters_of(1500));
    assert_eq!(broker.consume("orders", UNCOMMITTED), orders);
    assert_eq!(broker.fetch("orders", 29, UNCOMMITTED).error_code, ErrorCode::OffsetOutOfRange);
    assert!(broker.keyed("table").len() <= table.len(), "older records of a key came back");
    broker.close();
}

/// Backups are taken one after the other while records come, chapters settle, files are merged, records and topics are deleted.
#[test]
fn a_backup_beside_everything_else_is_what_was_there_at_some_moment() {
    let history = DiskOptions { history_steps: 0, ..DiskOptions::default() };
    let disk = Arc::new(SimDir::with(history));
    let mut broker = Broker::open(&disk, chapters_of(3000));
    broker.create("orders", &[]);
    let value = "value ".repeat(20);
    broker.produced("orders", "0");
    broker.create("paid", &[("flush.messages", "1")]);
    let acknowledged = Arc::new(Mutex::new(1));
    let ends = Arc::new(AtomicBool::new(false));
    let backups = {
        let (disk, acknowledged, ends) =
            (Arc::clone(&disk), Arc::clone(&acknowledged), Arc::clone(&ends));
        thread::spawn(move || {
            let kept = Arc::new(SimDir::with(history));
            let mut restored = Vec::new();
            while !ends.load(Ordering::Relaxed) || restored.len() < 3 {
                let before: i64 = *acknowledged.lock().unwrap();
                take(&disk, &kept).unwrap();
                restored.push((before, put(&kept).unwrap()));
            }
            restored
        })
    };
    for number in 1..1500_i64 {
        broker.produced("orders", &format!("{number} {value}"));
        *acknowledged.lock().unwrap() = number + 1;
        if number % 3 == 0 {
            let offset = broker.produced("paid", "paid");
            broker.commit("paid", offset + 1);
        }
        if number % 100 == 0 {
            broker.trim("orders", number - 80);
            let name = format!("passing {number}");
            let name = name.replace(' ', "-");
            broker.create(&name, &[]);
            (0..5).for_each(|_| assert!(broker.produced(&name, &value) >= 0));
            broker.delete(&name);
        }
    }
    ends.store(true, Ordering::Relaxed);
    let restored = backups.join().unwrap();
    broker.close();
    println!("{} backups", restored.len());
    let step = (restored.len() / 8).max(1);
    for (before, restored) in restored.into_iter().rev().step_by(step) {
        let mut broker = Broker::open(&restored, chapters_of(3000));
        let orders = broker.consume("orders", UNCOMMITTED);
        // Nothing is in memory alone: what was acknowledged was with the kernel.
        let last = orders.last().unwrap().0;
        assert!(last + 1 >= before, "{last} and {before}");
        let first = orders.first().unwrap().0;
        assert!(orders.iter().map(|(offset, _)| *offset).eq(first..=last), "{first} to {last}");
        assert!(
            orders
                .iter()
                .all(|(offset, value)| value.split(' ').next() == Some(&offset.to_string()))
        );
        // What a group had read by then is there.
        let end = broker.consume("paid", UNCOMMITTED).last().map_or(0, |(last, _)| last + 1);
        assert!(broker.committed("paid") <= end, "{} and {end}", broker.committed("paid"));
        broker.close();
    }
}

#[test]
fn a_flipped_byte_of_a_run_is_named_and_does_not_come_into_the_backup() {
    let disk = Arc::new(SimDir::new());
    let broker = filled(&disk);
    let survey = Survey::of(&*disk.open_dir("chapters-2").unwrap(), SHARED).unwrap();
    let opened = survey.files[0].opened.as_ref().unwrap();
    let (name, run) = (opened.chapter.name().to_owned(), opened.runs[0]);
    broker.close();
    let kept = Arc::new(SimDir::new());
    let at = run.place + run.bytes / 2;
    flip(&disk, "chapters-2", &name, at);
    let why = take(&disk, &kept).unwrap_err();
    let Error::Chapters { number: SHARED, why: chapter::Error::Run { file, opening, .. } } = &why
    else {
        panic!("{why}");
    };
    assert_eq!((file, opening), (&name, &run.opening));
    assert!(matches!(put(&kept), Err(Error::Unfinished)), "nothing is whole yet");
    flip(&disk, "chapters-2", &name, at);
    take(&disk, &kept).unwrap();
    let good = of_backup(&kept);
    // What the backup has it does not read again.
    flip(&disk, "chapters-2", &name, at);
    take(&disk, &kept).unwrap();
    assert_eq!(of_backup(&kept), good);
    put(&kept).unwrap();
}

/// Whatever is damaged in a backup, nothing of it comes back.
#[test]
fn a_backup_that_is_damaged_is_not_restored() {
    let disk = Arc::new(SimDir::new());
    filled(&disk).close();
    let kept = Arc::new(SimDir::new());
    take(&disk, &kept).unwrap();
    put(&kept).unwrap();
    let look = Look::open(&dir(&kept)).unwrap();
    let survey = look.survey(SHARED).unwrap();
    let opened = survey.files[0].opened.as_ref().unwrap();
    let run = opened.runs[0];
    let segment = |shard: &str| {
        let dir = look.rest().open_dir(shard).unwrap();
        dir.list().unwrap().into_iter().find(|name| name.ends_with(".seg")).unwrap()
    };
    let in_rest = |path: &str| format!("rest-1{path}");
    let places = [
        (String::from("chapters-2"), opened.chapter.name().to_owned(), run.place + 3),
        (in_rest("/chapters-2"), "manifest".to_owned(), 20),
        (in_rest("/shard-2"), "identity".to_owned(), 33),
        (in_rest(""), "state-2".to_owned(), 40),
        (in_rest("/shard-0"), segment("shard-0"), 4200),
        (in_rest("/shard-2"), segment("shard-2"), 4200),
        (String::new(), "backup".to_owned(), 80),
    ];
    for (path, name, at) in places {
        let mut of: Arc<dyn Dir> = dir(&kept);
        for part in path.split('/').filter(|part| !part.is_empty()) {
            of = of.open_dir(part).unwrap();
        }
        let flip = || {
            let file = of.open(&name, Access::default()).unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, at).unwrap();
            file.write_at(&[byte[0] ^ 1], at).unwrap();
        };
        flip();
        let why = put(&kept).map(drop).expect_err(&format!("{path}/{name}"));
        println!("{path}/{name}: {why}");
        flip();
    }
    put(&kept).unwrap();
}

/// Wherever a backup ends, there is the one that was, or the new one; or it says that it is not finished. The next goes on.
#[test]
fn a_backup_that_is_killed_at_any_moment_is_the_old_one_or_the_new_one() {
    let disk = Arc::new(SimDir::new());
    let mut broker = filled(&disk);
    let first = of_broker(&disk);
    let kept = Arc::new(SimDir::new());
    for is_new in [true, false] {
        if !is_new {
            broker.trim("notes", i64::MAX);
            let settled = broker.chapters().settled;
            for number in 0..40 {
                broker.produced("orders", &format!("later {number}"));
            }
            broker.until_settled(settled + 1);
            broker.until("runs go", |_| !first.is_subset(&of_broker(&disk)));
        }
        let left = Arc::new(Mutex::new(Vec::new()));
        let leaves = Arc::clone(&left);
        kept.watch(move |moment| {
            let mut left = leaves.lock().unwrap();
            let what = format!("before {} {} {}", moment.number, moment.operation, moment.name);
            if matches!(moment.operation, Operation::Read | Operation::List | Operation::Open) {
                return;
            }
            left.push((what.clone(), moment.crash(Crash::Process, 0)));
            left.push((what, moment.crash(Crash::PowerCut, moment.number)));
        });
        take(&disk, &kept).unwrap();
        kept.watch(|_| {});
        let now = of_backup(&kept);
        let left = std::mem::take(&mut *left.lock().unwrap());
        assert!(left.len() > 100, "{}", left.len());
        let (mut old, mut new, mut unfinished) = (0, 0, 0);
        for (nth, (what, left)) in left.into_iter().enumerate() {
            let left = Arc::new(left);
            match put(&left) {
                Ok(restored) if of_broker(&restored) == now => new += 1,
                Ok(restored) => {
                    assert_eq!(of_broker(&restored), first, "{what}");
                    assert!(!is_new, "{what}");
                    old += 1;
                }
                Err(Error::Unfinished | Error::NotABackup) if is_new => unfinished += 1,
                Err(why) => panic!("{what}: {why}"),
            }
            if nth % 29 == 0 {
                take(&disk, &left).unwrap_or_else(|why| panic!("{what}: {why}"));
                assert_eq!(of_backup(&left), of_broker(&disk), "{what}");
            }
        }
        println!("{old} old, {new} new, {unfinished} unfinished");
        assert!(new > 0 && (if is_new { unfinished } else { old }) > 0);
    }
    broker.close();
}

#[test]
fn whoever_stops_a_backup_keeps_what_was_copied() {
    let disk = Arc::new(SimDir::new());
    filled(&disk).close();
    let kept = Arc::new(SimDir::new());
    let mut runs_read = 0;
    let stopped = backup(&dir(&disk), &dir(&kept), NOW, &mut |progress| {
        runs_read += u64::from(matches!(progress, Progress::Runs(_)));
        !matches!(progress, Progress::Log(_))
    });
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
    assert!(matches!(put(&kept), Err(Error::Unfinished)));
    let report = take(&disk, &kept).unwrap();
    assert!(runs_read > 0 && runs(&report).copied_runs == 0, "{report:?}");
}

/// A restore that was killed is no broker, at any moment.
#[test]
fn a_restore_that_is_killed_is_no_broker() {
    let disk = Arc::new(SimDir::new());
    let mut broker = filled(&disk);
    let orders = broker.consume("orders", UNCOMMITTED);
    broker.close();
    let kept = Arc::new(SimDir::new());
    take(&disk, &kept).unwrap();
    let to = Arc::new(SimDir::new());
    let left = Arc::new(Mutex::new(Vec::new()));
    let leaves = Arc::clone(&left);
    to.watch(move |moment| {
        if moment.number % 5 == 0 {
            leaves.lock().unwrap().push(moment.crash(Crash::PowerCut, moment.number));
        }
    });
    restore(&dir(&kept), &dir(&to), &mut |_| true).unwrap();
    let left = std::mem::take(&mut *left.lock().unwrap());
    assert!(left.len() > 20);
    for left in left {
        let left = Arc::new(left);
        let names = left.list().unwrap();
        // Nothing is there yet.
        if names.is_empty() || names == ["cluster.new"] {
            continue;
        }
        // It was finished, and nobody was told yet.
        if let Ok(mut broker) = Broker::start(&left, Options::default()) {
            assert_eq!(broker.consume("orders", UNCOMMITTED), orders);
            assert!(names.contains(&"restored".to_owned()));
            broker.close();
            continue;
        }
        assert!(matches!(
            restore(&dir(&kept), &dir(&left), &mut |_| true),
            Err(Error::NotEmpty { .. })
        ));
    }
}

#[test]
fn a_backup_takes_no_place_that_is_anothers() {
    let disk = Arc::new(SimDir::new());
    filled(&disk).close();
    let other = Arc::new(SimDir::new());
    filled(&other).close();
    let kept = Arc::new(SimDir::new());
    take(&disk, &kept).unwrap();
    assert!(matches!(take(&other, &kept), Err(Error::OtherBroker { .. })));
    assert!(matches!(take(&disk, &other), Err(Error::NotEmpty { .. })));
    assert!(matches!(take(&Arc::new(SimDir::new()), &kept), Err(Error::NotABroker { .. })));
    assert!(matches!(take(&kept, &Arc::new(SimDir::new())), Err(Error::NotABroker { .. })));
    assert!(matches!(put(&disk), Err(Error::NotABackup)));
    let full = restore(&dir(&kept), &dir(&other), &mut |_| true);
    assert!(matches!(full, Err(Error::NotEmpty { .. })));
}

/// A disk that is full, or fails, takes nothing of the backup that was.
#[test]
fn a_disk_that_fails_under_a_backup_leaves_the_one_before() {
    let disk = Arc::new(SimDir::new());
    let mut broker = filled(&disk);
    let first = Arc::new(SimDir::new());
    take(&disk, &first).unwrap();
    let before = of_backup(&first);
    let settled = broker.chapters().settled;
    for number in 0..40 {
        broker.produced("orders", &format!("later {number}"));
    }
    broker.until_settled(settled + 2);
    broker.close();
    let mut failed = 0;
    for on in [Operation::Create, Operation::Write, Operation::Sync, Operation::Rename] {
        for nth in [1, 2, 5, 11] {
            let kept = Arc::new(first.crash(Crash::Process, 0));
            let full = FaultKind::Fail(ErrorKind::StorageFull);
            kept.inject(Fault::new(on, full).nth(nth));
            let Err(why) = take(&disk, &kept) else { continue };
            println!("{on} {nth}: {why}");
            failed += 1;
            let kept = Arc::new(kept.power_cut(nth));
            assert_eq!(of_broker(&put(&kept).unwrap()), before);
            take(&disk, &kept).unwrap();
            assert_eq!(of_broker(&put(&kept).unwrap()), of_broker(&disk));
        }
    }
    assert!(failed > 8, "{failed}");
}
