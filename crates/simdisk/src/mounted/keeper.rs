//! A program whose children die with it, however it dies.
//!
//! The program starts itself again as the first process of a new process namespace, and waits. When the
//! first process of a namespace ends, the kernel kills all others in it; when the one that waits is
//! killed, the first is, too. So whatever is killed, nobody is left who could keep a disk mounted.

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::OnceLock;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::error::{Error, Result};

/// Tells the first process of the namespace who it is.
const KEPT: &str = "PLIMSOLL_DISK_KEPT";
/// From a terminal, which tells all processes at once; see `si_code` in sigaction(2).
const FROM_KERNEL: i32 = 0x80;

/// See [`number_outside`].
static OUTSIDE: OnceLock<u32> = OnceLock::new();

/// Who we are now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The one that does the work.
    Kept,
    /// The one that waited: the work is over, with this exit status.
    Waited(u8),
}

/// Call it before any thread is started, and return at once when it is [`Role::Waited`].
pub fn enter() -> Result<Role> {
    if env::var_os(KEPT).is_some() && std::process::id() == 1 {
        return kept();
    }
    let signals = signals();
    let failed = |errno: nix::Error| Error::Unavailable {
        what: "a process namespace",
        reason: format!("{errno}; it needs root (CAP_SYS_ADMIN)"),
    };
    let waits = |errno: nix::Error| Error::io("wait for", "signals")(errno.into());
    unshare(CloneFlags::CLONE_NEWPID).map_err(failed)?;
    // Before there is a child, so that no signal is missed.
    signals.thread_block().map_err(waits)?;
    let caught = SignalFd::new(&signals).map_err(waits)?;
    let program = env::current_exe().map_err(Error::io("find", "our own program"))?;
    let mut child = Command::new(&program)
        .args(env::args_os().skip(1))
        .env(KEPT, "1")
        .spawn()
        .map_err(Error::io("start", &program))?;
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("process numbers are positive"));
    loop {
        let signal = match caught.read_signal() {
            Ok(Some(signal)) => signal,
            Ok(None) | Err(nix::Error::EINTR) => continue,
            Err(errno) => return Err(waits(errno)),
        };
        let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
        match Signal::try_from(number) {
            Ok(Signal::SIGCHLD) => {
                let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
                if matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive)) {
                    continue;
                }
                let status = child.wait().map_err(Error::io("wait for", &program))?;
                let code = status.code().or(status.signal().map(|signal| 128 + signal));
                let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
                return Ok(Role::Waited(code));
            }
            // A terminal told the child, too. Anybody else told only us.
            Ok(known) if signal.ssi_code != FROM_KERNEL => {
                let _gone = kill(pid, known);
            }
            _ => {}
        }
    }
}

/// What the one that waits hears of.
fn signals() -> SigSet {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGCHLD] {
        signals.add(signal);
    }
    signals
}

fn kept() -> Result<Role> {
    let failed = |errno: nix::Error| Error::io("set up", "the process namespace")(errno.into());
    set_pdeathsig(Signal::SIGKILL).map_err(failed)?;
    // Who waited blocked them, and that is inherited.
    signals().thread_unblock().map_err(failed)?;
    // As long as /proc is the outer one.
    if let Some(number) = read_number_outside() {
        OUTSIDE.get_or_init(|| number);
    }
    unshare(CloneFlags::CLONE_NEWNS).map_err(failed)?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(failed)?;
    // So that children find themselves in /proc. Where it is refused, they find their outer numbers.
    let _refused = mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none);
    Ok(Role::Kept)
}

/// The number of this process, as others outside of the namespace know it.
#[must_use]
pub fn number_outside() -> u32 {
    OUTSIDE.get().copied().unwrap_or_else(std::process::id)
}

/// `NSpid` has a number for each namespace that it is seen from, the outermost first.
fn read_number_outside() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().next()?.parse().ok()
}
