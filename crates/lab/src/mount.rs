//! Which filesystem holds a directory, from `/proc/self/mountinfo` (proc(5)).

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A mounted filesystem.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Its type: `ext4`, `xfs`, `tmpfs`.
    pub filesystem: String,
    /// Where it is mounted.
    pub mounted_at: PathBuf,
    /// What it is mounted from: a device or a name.
    pub source: String,
    /// Options of the mount and of the filesystem, comma-separated.
    pub options: String,
}

/// Where a filesystem keeps its data, which decides what measuring durability on it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// On a device of this machine.
    Local,
    /// In memory: nothing is durable.
    Memory,
    /// Two filesystems stacked: syncs go to the one that holds the file, but copying a file up is
    /// not part of any sync.
    Overlay,
    /// On another machine, whose promises cannot be checked from here.
    Network,
    /// Served by a process, which may do anything.
    Fuse,
    /// A view into the kernel (procfs, sysfs): no file of it is on any disk.
    Kernel,
}

impl Mount {
    /// The mount that holds `path`, which must be absolute and free of links.
    #[must_use]
    pub fn of(path: &Path, mountinfo: &str) -> Option<Self> {
        mountinfo
            .lines()
            .filter_map(parse_line)
            .filter(|mount| path.starts_with(&mount.mounted_at))
            // Of two mounts at one place the later one hides the earlier.
            .max_by_key(|mount| mount.mounted_at.components().count())
    }

    /// Where a filesystem of this type keeps its data.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.filesystem.as_str() {
            "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs" => Kind::Memory,
            "overlay" | "aufs" | "unionfs" => Kind::Overlay,
            "nfs" | "nfs4" | "cifs" | "smb3" | "smbfs" | "9p" | "virtiofs" | "ceph" | "afs"
            | "lustre" | "gfs2" | "ocfs2" | "beegfs" | "fuse.sshfs" | "fuse.glusterfs"
            | "fuse.s3fs" | "fuse.rclone" => Kind::Network,
            fuse if fuse.starts_with("fuse") => Kind::Fuse,
            "proc" | "sysfs" | "devpts" | "cgroup" | "cgroup2" | "securityfs" | "debugfs"
            | "tracefs" | "configfs" | "efivarfs" | "bpf" | "mqueue" | "pstore" => Kind::Kernel,
            _ => Kind::Local,
        }
    }

    /// Whether an option is set, by name or as `name=value`.
    #[must_use]
    pub fn has_option(&self, option: &str) -> bool {
        self.options.split(',').any(|set| set == option)
    }
}

/// `36 35 98:0 /root /mount/point rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &str) -> Option<Mount> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(4);
    let (mounted_at, options) = (mount.next()?, mount.next()?);
    let mut filesystem = filesystem.split(' ');
    let (kind, source) = (filesystem.next()?, filesystem.next()?);
    let mut all: Vec<&str> = options.split(',').collect();
    for option in filesystem.next().unwrap_or_default().split(',') {
        if !option.is_empty() && !all.contains(&option) {
            all.push(option);
        }
    }
    Some(Mount {
        filesystem: kind.to_owned(),
        mounted_at: PathBuf::from(unescape(mounted_at)),
        source: unescape(source),
        options: all.join(","),
    })
}

/// Undoes the escapes of mountinfo, which writes spaces, tabs, newlines and backslashes as `\040`
/// and the like.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(byte) => {
                plain.push(char::from(byte));
                plain.push_str(&part[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
23 22 0:21 / /proc rw - proc proc rw
30 22 7:1 / /mnt/my\\040disk rw,noatime - xfs /dev/loop1 rw,nobarrier
31 22 0:40 / /mnt/over rw - overlay overlay rw,lowerdir=/a
32 31 0:41 / /mnt/over rw - tmpfs tmpfs rw
garbage
33 22 0:44 / /mnt/ssh rw - fuse.sshfs host:/ rw";

    fn mount_of(path: &str) -> Mount {
        Mount::of(Path::new(path), MOUNTINFO).unwrap()
    }

    #[test]
    fn the_deepest_mount_holds_the_path() {
        assert_eq!(mount_of("/home/me").filesystem, "ext4");
        let xfs = mount_of("/mnt/my disk/db");
        assert_eq!((xfs.filesystem.as_str(), xfs.source.as_str()), ("xfs", "/dev/loop1"));
        assert!(xfs.has_option("nobarrier") && xfs.has_option("noatime"));
        assert!(!xfs.has_option("barrier"));
    }

    #[test]
    fn a_name_that_begins_alike_is_another_directory() {
        assert_eq!(mount_of("/mnt/overt").filesystem, "ext4");
    }

    #[test]
    fn of_two_mounts_at_one_place_the_later_counts() {
        assert_eq!(mount_of("/mnt/over/x").kind(), Kind::Memory);
    }

    #[test]
    fn kinds_tell_memory_network_and_local_apart() {
        assert_eq!(mount_of("/").kind(), Kind::Local);
        assert_eq!(mount_of("/mnt/ssh").kind(), Kind::Network);
        let fuse = Mount { filesystem: "fuse".to_owned(), ..Mount::default() };
        assert_eq!(fuse.kind(), Kind::Fuse);
    }
}
