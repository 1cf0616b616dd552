//! The disk with what happens to it: every operation is numbered, may meet a fault and is recorded.
//!
//! Invariant: once the machine is down nothing changes any more, so that `crash` finds the disk as
//! it was at that moment.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::directory::DirId;
use super::disk::Disk;
use super::fault::{FaultKind, Faults, Operation};
use super::history::{History, Step};
use super::watcher::Watcher;

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) disk: Disk,
    pub(crate) faults: Faults,
    pub(crate) history: History,
    /// The directories whose lock somebody holds.
    pub(crate) locks: BTreeSet<DirId>,
    /// How many operations there were.
    pub(crate) operations: u64,
    pub(crate) stop_at: Option<u64>,
    pub(crate) is_down: bool,
    pub(crate) watcher: Watcher,
}

/// What a fault makes of an operation that it does not simply forbid.
#[derive(Debug)]
pub(crate) enum Twist {
    None,
    /// It fails with this. What it leaves is drawn with the seed.
    Fail {
        error: io::Error,
        seed: u64,
    },
    /// So many bytes go in.
    Short(u64),
    /// It says that it worked.
    Lie,
}

impl Machine {
    /// A machine that nothing has happened to, with this disk.
    pub(crate) fn new(disk: Disk, history: History) -> Self {
        Self {
            disk,
            history,
            faults: Faults::default(),
            locks: BTreeSet::new(),
            operations: 0,
            stop_at: None,
            is_down: false,
            watcher: Watcher::default(),
        }
    }

    /// One operation: counted, twisted if a fault says so, recorded.
    pub(crate) fn step<T>(
        &mut self,
        operation: Operation,
        name: &str,
        detail: impl fmt::Display,
        act: impl FnOnce(&mut Disk, Twist) -> io::Result<T>,
    ) -> io::Result<T> {
        self.check_up()?;
        let number = self.operations;
        self.operations += 1;
        self.watcher.look(&self.disk, number, operation, name);
        let met = self.faults.meet(operation, name);
        // Not the same each time that a fault happens.
        let seed = met.map_or(0, |(_, seed)| seed.wrapping_add(number));
        let mut fault = met.map(|(kind, _)| kind);
        if self.stop_at.is_some_and(|stop_at| number >= stop_at) {
            fault = Some(FaultKind::PowerOff);
        }
        let outcome = match fault {
            Some(FaultKind::PowerOff) => {
                self.is_down = true;
                Err(down())
            }
            None => act(&mut self.disk, Twist::None),
            Some(FaultKind::Fail(kind)) => {
                act(&mut self.disk, Twist::Fail { error: kind.into(), seed })
            }
            Some(FaultKind::FailRaw(code)) => {
                let error = io::Error::from_raw_os_error(code);
                act(&mut self.disk, Twist::Fail { error, seed })
            }
            Some(FaultKind::ShortWrite { bytes }) => act(&mut self.disk, Twist::Short(bytes)),
            Some(FaultKind::LostWrite | FaultKind::DropFlush) => act(&mut self.disk, Twist::Lie),
        };
        if self.history.is_kept() {
            self.history.add(Step {
                number,
                operation,
                name: name.to_owned(),
                detail: detail.to_string(),
                fault,
                error: outcome.as_ref().err().map(io::Error::kind),
            });
        }
        outcome
    }

    /// An operation that a fault can only forbid.
    pub(crate) fn plain_step<T>(
        &mut self,
        operation: Operation,
        name: &str,
        detail: impl fmt::Display,
        act: impl FnOnce(&mut Disk) -> io::Result<T>,
    ) -> io::Result<T> {
        self.step(operation, name, detail, |disk, twist| match twist {
            Twist::Fail { error, .. } => Err(error),
            Twist::None | Twist::Short(_) | Twist::Lie => act(disk),
        })
    }

    pub(crate) fn check_up(&self) -> io::Result<()> {
        if self.is_down { Err(down()) } else { Ok(()) }
    }
}

fn down() -> io::Error {
    io::Error::other("the machine is down")
}

/// The one machine that a directory and all handles of its files share.
#[derive(Debug, Clone)]
pub(crate) struct Shared(Arc<Mutex<Machine>>);

impl Shared {
    pub(crate) fn new(machine: Machine) -> Self {
        Self(Arc::new(Mutex::new(machine)))
    }

    /// A panic while this was held is a bug of ours; it must not hide behind a second one.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
