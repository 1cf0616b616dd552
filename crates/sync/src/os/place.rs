//! Where a directory lives: the room that is left, and the device below it.

use std::io;
use std::path::Path;

/// Room on a filesystem, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Its size.
    pub total_bytes: u64,
    /// What this user may still write.
    pub free_bytes: u64,
}

/// Room on the filesystem that holds `path`, where the system can say.
#[cfg(unix)]
pub fn space(path: &Path) -> io::Result<Space> {
    let stat = rustix::fs::statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(Space { total_bytes: bytes(stat.f_blocks), free_bytes: bytes(stat.f_bavail) })
}

/// Room on the filesystem that holds `path`, where the system can say.
#[cfg(not(unix))]
pub fn space(_: &Path) -> io::Result<Space> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Major and minor number of the device that the filesystem of `path` names as its own. Major 0 is
/// no device: tmpfs, overlay, btrfs, network filesystems.
#[cfg(target_os = "linux")]
pub fn device_number(path: &Path) -> io::Result<(u32, u32)> {
    let device = rustix::fs::stat(path)?.st_dev;
    Ok((rustix::fs::major(device), rustix::fs::minor(device)))
}

/// Major and minor number of the device that the filesystem of `path` names as its own.
#[cfg(not(target_os = "linux"))]
pub fn device_number(_: &Path) -> io::Result<(u32, u32)> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Asks for the finest wake-ups that this thread can have: Linux otherwise rounds sleeps up by
/// 50 µs. Does nothing elsewhere, or where it is refused: then wake-ups are late, which whoever
/// measures sees.
#[cfg(target_os = "linux")]
pub fn finest_timer() {
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).ok();
}

/// Asks for the finest wake-ups that this thread can have. Does nothing on this system.
#[cfg(not(target_os = "linux"))]
pub fn finest_timer() {}

/// Time that this thread has run on a CPU, where the system can say. Exact at the moment of asking,
/// unlike what a scheduler publishes now and then.
#[cfg(unix)]
#[must_use]
pub fn thread_cpu_time() -> Option<std::time::Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, ns) = (u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
    Some(std::time::Duration::new(seconds, ns))
}

/// Time that this thread has run on a CPU, where the system can say.
#[cfg(not(unix))]
#[must_use]
pub fn thread_cpu_time() -> Option<std::time::Duration> {
    None
}
