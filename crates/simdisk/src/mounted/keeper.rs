//! A program whose children die with it, however it dies.
//!
//! The program starts itself again as the first process of a new process namespace, and that once more:
//!
//! ```text
//! who was called ──► the first: waits, reaps ──► the second: does the work ──► workloads, checks
//! ```
//!
//! When the first process of a namespace ends, the kernel kills all others in it; when who was called is
//! killed, the first is, too. So whatever is killed, nobody is left who could keep a disk mounted. The
//! first does nothing else, because orphans become its children, and only who has no children of its own
//! to wait for can wait for any.

use std::env;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::parent_id;
use std::process::Command;
use std::sync::OnceLock;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, close};

use super::error::{Error, Result};

/// Tells the processes of the namespace who they are: `first`, or the number of the descriptor in which
/// requests for a cut are counted.
const KEPT: &str = "PLIMSOLL_DISK_KEPT";
const FIRST: &str = "first";
/// From a terminal, which tells all processes at once; see `si_code` in sigaction(2).
const FROM_KERNEL: i32 = 0x80;

/// See [`number_outside`].
static OUTSIDE: OnceLock<u32> = OnceLock::new();
/// See [`cuts_asked`]: a byte for each.
static CUTS: OnceLock<File> = OnceLock::new();

/// Who we are now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The one that does the work.
    Kept,
    /// One that waited: the work is over, with this exit status.
    Waited(u8),
}

/// Call it before any thread is started, and return at once when it is [`Role::Waited`].
pub fn enter() -> Result<Role> {
    if let Ok(kept) = env::var(KEPT) {
        match kept.parse() {
            _ if kept == FIRST && std::process::id() == 1 => return first().map(Role::Waited),
            Ok(cuts) if std::process::id() == 2 && parent_id() == 1 => return work(cuts),
            // Inherited by a workload.
            _ => {}
        }
    }
    let failed = |errno: nix::Error| Error::Unavailable {
        what: "a process namespace",
        reason: format!(
            "{}; it needs root (CAP_SYS_ADMIN): try sudo, and `plimsoll disk doctor`",
            errno.desc()
        ),
    };
    unshare(CloneFlags::CLONE_NEWPID).map_err(failed)?;
    let caught = catch()?;
    let first = start_again(FIRST)?;
    wait(first, &caught, &|_| false).map(Role::Waited)
}

/// The number of this process, as others outside of the namespace know it.
#[must_use]
pub fn number_outside() -> u32 {
    OUTSIDE.get().copied().unwrap_or_else(std::process::id)
}

/// How often SIGUSR1 was sent, to who was called or to the first process of the namespace.
#[must_use]
pub fn cuts_asked() -> u64 {
    CUTS.get().and_then(|cuts| cuts.metadata().ok()).map_or(0, |cuts| cuts.len())
}

/// What those who wait hear of.
fn signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGCHLD]
        .into_iter()
        .collect()
}

/// To be called before there is a child, so that no signal is missed.
fn catch() -> Result<SignalFd> {
    let failed = |errno: nix::Error| Error::io("wait for", "signals")(errno.into());
    signals().thread_block().map_err(failed)?;
    SignalFd::new(&signals()).map_err(failed)
}

fn start_again(role: &str) -> Result<Pid> {
    let program = env::current_exe().map_err(Error::io("find", "our own program"))?;
    let mut command = Command::new(&program);
    command.args(env::args_os().skip(1)).env(KEPT, role);
    let child = command.spawn().map_err(Error::io("start", &program))?;
    Ok(Pid::from_raw(i32::try_from(child.id()).expect("process numbers are positive")))
}

/// Waits for a child, and reaps all others. Signals go to it, unless they are `taken`.
fn wait(child: Pid, caught: &SignalFd, taken: &dyn Fn(Signal) -> bool) -> Result<u8> {
    loop {
        let signal = match caught.read_signal() {
            Ok(Some(signal)) => signal,
            Ok(None) | Err(nix::Error::EINTR) => continue,
            Err(errno) => return Err(Error::io("wait for", "signals")(errno.into())),
        };
        let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
        match Signal::try_from(number) {
            Ok(Signal::SIGCHLD) => {
                if let Some(code) = reap(child) {
                    return Ok(code);
                }
            }
            Ok(known) if taken(known) => {}
            // A terminal told the child, too. Anybody else told only us.
            Ok(known) if signal.ssi_code != FROM_KERNEL => {
                let _gone = kill(child, known);
            }
            _ => {}
        }
    }
}

/// Takes in whoever has ended. The status of `child`, if it was among them.
fn reap(child: Pid) -> Option<u8> {
    loop {
        let (ended, code) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(ended, code)) => (ended, code),
            Ok(WaitStatus::Signaled(ended, signal, _)) => (ended, 128 + signal as i32),
            Ok(WaitStatus::StillAlive) | Err(nix::Error::ECHILD) => return None,
            _ => continue,
        };
        if ended == child {
            return Some(u8::try_from(code).unwrap_or(u8::MAX));
        }
    }
}

fn first() -> Result<u8> {
    let failed = |errno: nix::Error| Error::io("set up", "the process namespace")(errno.into());
    set_pdeathsig(Signal::SIGKILL).map_err(failed)?;
    let caught = catch()?;
    // Inherited, on purpose: a file that only the second knows, too.
    let cuts = File::from(memfd_create("plimsoll-cuts", MFdFlags::empty()).map_err(failed)?);
    let second = start_again(&cuts.as_raw_fd().to_string())?;
    wait(second, &caught, &|signal| signal == Signal::SIGUSR1 && (&cuts).write_all(b".").is_ok())
}

fn work(cuts: RawFd) -> Result<Role> {
    let failed = |errno: nix::Error| Error::io("set up", "the process namespace")(errno.into());
    set_pdeathsig(Signal::SIGKILL).map_err(failed)?;
    // Who waited blocked them, and that is inherited.
    signals().thread_unblock().map_err(failed)?;
    // As long as /proc is the outer one.
    if let Some(number) = read_number_outside() {
        OUTSIDE.get_or_init(|| number);
    }
    // A descriptor that our own children do not inherit.
    let path = format!("/proc/self/fd/{cuts}");
    let file = File::open(&path).map_err(Error::io("open", &path))?;
    CUTS.get_or_init(|| file);
    close(cuts).map_err(failed)?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(failed)?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(failed)?;
    // So that children find themselves in /proc. Where it is refused, they find their outer numbers.
    let _refused = mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none);
    Ok(Role::Kept)
}

/// `NSpid` has a number for each namespace that it is seen from, the outermost first.
fn read_number_outside() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().next()?.parse().ok()
}
