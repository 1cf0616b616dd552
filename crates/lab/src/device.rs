//! The block devices under a directory, and what the kernel counts of them.
//!
//! Counts are per device, not per file: they include whatever others write there. Reading them
//! needs no privilege: `/sys/block/<device>/stat` is readable by all (kernel,
//! Documentation/block/stat.rst). The kernel counts a flush as a write too, so flushes are taken
//! out of the writes here, and nowhere else.

use std::ffi::OsStr;
use std::fs;
use std::ops::{AddAssign, Sub};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::mount::Mount;

/// The kernel counts in sectors of this size, whatever size the device's own sectors have.
const SECTOR_BYTES: u64 = 512;

/// A whole block device, as sysfs knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    sysfs: PathBuf,
}

/// What a device says of itself, as the kernel passes it on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Kernel name: `vda`, `nvme0n1`.
    pub name: String,
    /// Model, where the device tells one.
    pub model: Option<String>,
    /// `write back` or `write through`: the *kernel's* view, which decides whether it sends
    /// flushes.
    pub write_cache: Option<String>,
    /// Whether single writes can be forced to the medium (FUA). Such writes need no flush, and the
    /// kernel does not count them.
    pub fua: Option<bool>,
    /// The active I/O scheduler.
    pub scheduler: Option<String>,
    /// Whether it is a spinning disk.
    pub rotational: Option<bool>,
    /// Logical sector size in bytes.
    pub logical_block_bytes: Option<u32>,
    /// Physical sector size in bytes.
    pub physical_block_bytes: Option<u32>,
}

/// Requests that a device completed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Writes, without flushes.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Milliseconds that writes spent at the device, summed over all writes.
    pub write_ms: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Milliseconds that flushes spent at the device, summed over all flushes.
    pub flush_ms: u64,
}

impl Device {
    /// The whole devices that hold the filesystem with device number `number`. Where no device has
    /// that number, as with btrfs, the source of the mount decides. Empty if there are none.
    #[must_use]
    pub fn under(number: (u32, u32), mount: &Mount) -> Vec<Self> {
        let mut nodes = Vec::new();
        if number.0 != 0 {
            nodes.push(PathBuf::from(format!("/sys/dev/block/{}:{}", number.0, number.1)));
        } else if let Ok(node) = fs::canonicalize(&mount.source)
            && let Some(name) = node.file_name().filter(|_| node.starts_with("/dev"))
        {
            nodes.push(Path::new("/sys/class/block").join(name));
            if mount.filesystem == "btrfs" {
                nodes.extend(btrfs_siblings(name));
            }
        }
        let mut leaves = Vec::new();
        for node in nodes.iter().filter_map(|path| fs::canonicalize(path).ok()) {
            collect_leaves(&node, &mut leaves);
        }
        leaves.sort();
        leaves.dedup();
        leaves.into_iter().map(|sysfs| Self { sysfs }).collect()
    }

    /// What it says of itself.
    #[must_use]
    pub fn facts(&self) -> DeviceFacts {
        let read = |name: &str| read_line(&self.sysfs.join(name));
        let flag = |name: &str| read(name).map(|value| value == "1");
        let number = |name: &str| read(name).and_then(|value| value.parse().ok());
        DeviceFacts {
            name: self.sysfs.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            model: read("device/model"),
            write_cache: read("queue/write_cache"),
            fua: flag("queue/fua"),
            scheduler: read("queue/scheduler").map(|all| active_scheduler(&all)),
            rotational: flag("queue/rotational"),
            logical_block_bytes: number("queue/logical_block_size"),
            physical_block_bytes: number("queue/physical_block_size"),
        }
    }

    /// What it has completed since it was found, or `None` where the kernel does not count flushes
    /// (before 5.5).
    #[must_use]
    pub fn counts(&self) -> Option<DeviceCounts> {
        parse_counts(&fs::read_to_string(self.sysfs.join("stat")).ok()?)
    }
}

/// All devices of the btrfs filesystem that this one belongs to: its data may be on any of them.
fn btrfs_siblings(device: &OsStr) -> Vec<PathBuf> {
    let filesystems = fs::read_dir("/sys/fs/btrfs").into_iter().flatten().flatten();
    let mut devices = filesystems.map(|filesystem| filesystem.path().join("devices"));
    let ours = devices.find(|devices| devices.join(device).exists());
    let siblings = ours.and_then(|devices| fs::read_dir(devices).ok()).into_iter().flatten();
    siblings.flatten().map(|sibling| sibling.path()).collect()
}

/// Adds the whole disks under a device: a partition leads to its disk, a stacked device (dm, md) to
/// those that it is made of.
fn collect_leaves(sysfs: &Path, leaves: &mut Vec<PathBuf>) {
    if sysfs.join("partition").exists() {
        if let Some(disk) = sysfs.parent() {
            collect_leaves(disk, leaves);
        }
        return;
    }
    let slaves: Vec<_> = fs::read_dir(sysfs.join("slaves"))
        .into_iter()
        .flatten()
        .filter_map(|slave| fs::canonicalize(slave.ok()?.path()).ok())
        .collect();
    if slaves.is_empty() {
        leaves.push(sysfs.to_owned());
    }
    for slave in &slaves {
        collect_leaves(slave, leaves);
    }
}

fn parse_counts(stat: &str) -> Option<DeviceCounts> {
    let fields: Vec<u64> = stat.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let &[
        _,
        _,
        _,
        _,
        writes,
        _,
        write_sectors,
        write_ms,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        flushes,
        flush_ms,
        ..,
    ] = fields.as_slice()
    else {
        return None;
    };
    Some(DeviceCounts {
        writes: writes.saturating_sub(flushes),
        write_bytes: write_sectors.saturating_mul(SECTOR_BYTES),
        write_ms: write_ms.saturating_sub(flush_ms),
        flushes,
        flush_ms,
    })
}

/// The scheduler that is in use: `none [mq-deadline] kyber` has it in brackets.
fn active_scheduler(all: &str) -> String {
    let active = all.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    active.map_or(all, |(active, _)| active).to_owned()
}

fn read_line(path: &Path) -> Option<String> {
    let line = fs::read_to_string(path).ok()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}

impl Sub for DeviceCounts {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            writes: self.writes.saturating_sub(earlier.writes),
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
            write_ms: self.write_ms.saturating_sub(earlier.write_ms),
            flushes: self.flushes.saturating_sub(earlier.flushes),
            flush_ms: self.flush_ms.saturating_sub(earlier.flush_ms),
        }
    }
}

impl AddAssign for DeviceCounts {
    fn add_assign(&mut self, other: Self) {
        self.writes += other.writes;
        self.write_bytes += other.write_bytes;
        self.write_ms += other.write_ms;
        self.flushes += other.flushes;
        self.flush_ms += other.flush_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_are_taken_out_of_the_writes() {
        let stat =
            "25912 4833 1532650 3342 4991 5577 309184 535 0 1856 3990 3171 25 140224 110 238 2";
        let counts = parse_counts(stat).unwrap();
        assert_eq!(counts.writes, 4991 - 238);
        assert_eq!(counts.flushes, 238);
        assert_eq!(counts.write_bytes, 309_184 * 512);
        assert_eq!((counts.write_ms, counts.flush_ms), (533, 2));
    }

    #[test]
    fn a_kernel_that_does_not_count_flushes_gives_no_counts() {
        assert_eq!(parse_counts("1 2 3 4 5 6 7 8 9 10 11"), None);
        assert_eq!(parse_counts(""), None);
        assert_eq!(parse_counts("a b c"), None);
    }

    #[test]
    fn the_scheduler_in_brackets_is_the_active_one() {
        assert_eq!(active_scheduler("none [mq-deadline] kyber bfq"), "mq-deadline");
        assert_eq!(active_scheduler("none"), "none");
    }
}
