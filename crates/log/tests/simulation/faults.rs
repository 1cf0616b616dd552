//! An error at each operation in turn, of each kind, once and for good: nothing is acknowledged that is
//! not there after a power cut, and the log opens again on a disk that works.

use plimsoll_simdisk::{Fault, FaultKind, Operation, Step};

use crate::world::{Tally, World};
use crate::{each_seed, number};

/// What Linux says of a device that fails, is full, or does not answer.
const ERRORS: [(&str, i32); 3] = [("EIO", 5), ("ENOSPC", 28), ("ETIMEDOUT", 110)];
const STEPS: u32 = 60;

/// How much of the disk fails, from the operation on.
#[derive(Debug, Clone, Copy)]
enum Extent {
    Once,
    /// Every later operation of this kind fails too.
    Kind,
    /// Everything fails.
    Disk,
}

#[test]
fn an_error_at_any_operation_loses_nothing() {
    let every = number("PLIMSOLL_EVERY").unwrap_or(41) as usize;
    let only = number("PLIMSOLL_AT").map(|at| at as usize);
    let (mut operations, mut runs) = (0, 0);
    let mut tally = Tally::default();
    let cell = std::cell::RefCell::new((&mut operations, &mut runs, &mut tally));
    each_seed(6, |seed, talks| {
        let (operations, runs, tally) = &mut *cell.borrow_mut();
        let history = World::calm(seed, false).run_calm(STEPS, tally);
        **operations += history.len();
        let all = (0..history.len()).step_by(every);
        for number in only.map_or(all, |at| (at..history.len().min(at + 1)).step_by(1)) {
            for (name, errno) in ERRORS {
                for extent in [Extent::Once, Extent::Kind, Extent::Disk] {
                    **runs += 1;
                    let mut world = World::calm(seed, talks && only.is_some());
                    for fault in faults(&history, number, errno, extent) {
                        world.inject(fault);
                    }
                    let _telling = Telling { step: &history[number], name, extent };
                    world.run_calm(STEPS, tally);
                }
            }
        }
    });
    println!("{operations} operations, one in {every} visited: {runs} runs, {tally:?}");
}

/// The rules that make operation `number` of a history fail.
fn faults(history: &[Step], number: usize, errno: i32, extent: Extent) -> Vec<Fault> {
    let nth = |on: Operation| {
        let before = history[..number].iter().filter(|step| step.operation == on);
        before.count() as u64 + 1
    };
    let rule = |on| Fault::new(on, FaultKind::FailRaw(errno)).nth(nth(on));
    let on = history[number].operation;
    match extent {
        Extent::Once => vec![rule(on)],
        Extent::Kind => vec![rule(on).sticky()],
        Extent::Disk => {
            use Operation::{
                Allocate, Create, List, Lock, Open, Read, Remove, Rename, Sync, SyncDir, Truncate,
                Write,
            };
            let all = [
                Allocate, Create, List, Lock, Open, Read, Remove, Rename, Sync, SyncDir, Truncate,
                Write,
            ];
            all.map(|on| rule(on).sticky()).into()
        }
    }
}

struct Telling<'a> {
    step: &'a Step,
    name: &'static str,
    extent: Extent,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { step, name, extent } = self;
            println!("PLIMSOLL_AT={}: {name} ({extent:?}), {step}", step.number);
        }
    }
}
