//! Where a directory lives: the room that is left, and the device below it.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::vfs::Space;

/// Room on the filesystem that holds `path`, where the system can say.
#[cfg(unix)]
pub fn space(path: &Path) -> io::Result<Space> {
    Ok(of(&rustix::fs::statvfs(path)?))
}

/// Room on the filesystem that an open directory is on.
#[cfg(unix)]
pub(super) fn space_of(handle: &File) -> io::Result<Space> {
    Ok(of(&rustix::fs::fstatvfs(handle)?))
}

#[cfg(unix)]
fn of(stat: &rustix::fs::StatVfs) -> Space {
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Space { total_bytes: bytes(stat.f_blocks), free_bytes: bytes(stat.f_bavail) }
}

/// Room on the filesystem that holds `path`, where the system can say.
#[cfg(not(unix))]
pub fn space(_: &Path) -> io::Result<Space> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Room on the filesystem that an open directory is on.
#[cfg(not(unix))]
pub(super) fn space_of(_: &File) -> io::Result<Space> {
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

/// What names this run of the system, and no other: what a process left in memory means nothing to
/// the next one. `None` where the system does not say.
#[must_use]
pub fn boot_id() -> Option<u128> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
}

/// What becomes of an overwrite on the filesystem of `file`.
#[cfg(target_os = "linux")]
pub(super) fn overwrite(file: &File) -> crate::Overwrite {
    use crate::Overwrite;
    // From the headers of Linux, `linux/magic.h`, and of OpenZFS and bcachefs.
    const COPY_ON_WRITE: [u64; 5] = [0x9123_683e, 0x2fc1_2fc1, 0xca45_1a4e, 0xf2f5_2010, 0x3434];
    match rustix::fs::fstatfs(file) {
        Ok(stat) if IN_MEMORY.contains(&magic(&stat)) => Overwrite::Memory,
        Ok(stat) if COPY_ON_WRITE.contains(&magic(&stat)) => Overwrite::Elsewhere,
        _ => Overwrite::InPlace,
    }
}

/// What becomes of an overwrite. APFS copies; of others nothing is known here.
#[cfg(not(target_os = "linux"))]
pub(super) fn overwrite(_: &File) -> crate::Overwrite {
    if cfg!(target_vendor = "apple") {
        crate::Overwrite::Elsewhere
    } else {
        crate::Overwrite::InPlace
    }
}

/// tmpfs and ramfs.
#[cfg(target_os = "linux")]
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

#[cfg(target_os = "linux")]
fn magic(stat: &rustix::fs::StatFs) -> u64 {
    // Its type differs between processors; magics have 32 bits.
    #[expect(clippy::cast_sign_loss, reason = "a magic number of 32 bits in a signed field")]
    let magic = stat.f_type as u64;
    magic & 0xffff_ffff
}

/// Whether the filesystem of `file` is memory.
#[cfg(target_os = "linux")]
#[cfg_attr(miri, expect(dead_code, reason = "miri knows no shared mappings"))]
pub(super) fn lives_in_memory(file: &File) -> io::Result<bool> {
    Ok(IN_MEMORY.contains(&magic(&rustix::fs::fstatfs(file)?)))
}

/// Whether the filesystem of `file` is memory. Not known on this system.
#[cfg(all(unix, not(target_os = "linux")))]
pub(super) fn lives_in_memory(_: &File) -> io::Result<bool> {
    Ok(false)
}
