//! Options of a mount: which are passed to the kernel, and as what.
//!
//! A trace may come from anybody, and its options go to mount(2) as root. So only those are passed that are
//! known to concern nothing but the disk itself: none that names another device or a file (`logdev`,
//! `journal_path`, `device`), and none that stops the kernel (`errors=panic`). Device files and set-user-ID
//! programs on such a disk mean nothing.

use nix::mount::MsFlags;

use super::error::{Error, Result};
use super::filesystem::Filesystem;

/// Those of ext4, from Documentation/admin-guide/ext4.rst of Linux.
const EXT4: &str = "acl auto_da_alloc barrier block_validity bsddf bsdgroups commit data data_err delalloc \
    dioread_lock dioread_nolock discard errors grpid grpquota i_version init_itable inode_readahead_blks \
    journal_async_commit journal_checksum journal_ioprio max_batch_time max_dir_size_kb mb_optimize_scan \
    min_batch_time minixdf no_mbcache no_prefetch_block_bitmaps noacl noauto_da_alloc nobarrier \
    noblock_validity nodelalloc nodiscard nodioread_nolock nogrpid noinit_itable nojournal_checksum noload \
    nombcache noquota norecovery nouser_xattr orlov prefetch_block_bitmaps prjquota quota resgid resuid sb \
    stripe sysvgroups user_xattr usrquota";
/// Those of xfs, from Documentation/admin-guide/xfs.rst.
const XFS: &str = "allocsize attr2 bsdgroups discard filestreams gqnoenforce gquota grpid grpquota ikeep \
    inode32 inode64 largeio logbsize logbufs noalign noattr2 nodiscard nogrpid noikeep nolargeio noquota \
    norecovery nouuid pqnoenforce pquota prjquota qnoenforce quota sunit swalloc swidth sysvgroups \
    uqnoenforce uquota usrquota wsync";
/// Those of btrfs, from its manual btrfs(5).
const BTRFS: &str = "acl autodefrag barrier clear_cache commit compress compress-force datacow datasum \
    discard enospc_debug fatal_errors flushoncommit max_inline metadata_ratio noacl noautodefrag nobarrier \
    nodatacow nodatasum nodiscard noenospc_debug noflushoncommit nologreplay norecovery nospace_cache \
    nossd nossd_spread notreelog rescan_uuid_tree rescue skip_balance space_cache ssd ssd_spread subvol \
    subvolid thread_pool treelog usebackuproot user_subvol_rm_allowed";

/// What mount(2) is given.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MountOptions {
    pub(super) flags: MsFlags,
    /// What the filesystem itself reads, with commas.
    pub(super) data: String,
}

impl MountOptions {
    /// Reads options with commas. `own` are the filesystem's that are always there.
    pub(super) fn parse(filesystem: Filesystem, own: &str, text: &str) -> Result<Self> {
        let mut flags = MsFlags::MS_NOATIME;
        let mut data: Vec<&str> = own.split(',').filter(|option| !option.is_empty()).collect();
        for option in text.split(',').filter(|option| !option.is_empty()) {
            match flag(option) {
                Some(flag) => flags |= flag,
                None if option == "atime" => flags -= MsFlags::MS_NOATIME,
                None => {
                    allowed(filesystem, option)?;
                    data.push(option);
                }
            }
        }
        flags |= MsFlags::MS_NODEV | MsFlags::MS_NOSUID;
        Ok(Self { flags, data: data.join(",") })
    }
}

fn allowed(filesystem: Filesystem, option: &str) -> Result<()> {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    let known = match filesystem {
        Filesystem::Ext4 => EXT4,
        Filesystem::Xfs => XFS,
        Filesystem::Btrfs => BTRFS,
    };
    let reason = match (name, value) {
        ("errors" | "fatal_errors", "panic") => "it stops the kernel",
        _ if known.split_whitespace().any(|known| known == name) => return Ok(()),
        _ => "it is none that is known to concern only the disk itself",
    };
    Err(Error::MountOption { option: option.to_owned(), filesystem, reason })
}

/// What mount(2) wants as a flag.
fn flag(option: &str) -> Option<MsFlags> {
    Some(match option {
        "ro" => MsFlags::MS_RDONLY,
        "sync" => MsFlags::MS_SYNCHRONOUS,
        "dirsync" => MsFlags::MS_DIRSYNC,
        "noatime" => MsFlags::MS_NOATIME,
        "relatime" => MsFlags::MS_RELATIME,
        "strictatime" => MsFlags::MS_STRICTATIME,
        "lazytime" => MsFlags::MS_LAZYTIME,
        "nodev" => MsFlags::MS_NODEV,
        "noexec" => MsFlags::MS_NOEXEC,
        "nosuid" => MsFlags::MS_NOSUID,
        "rw" => MsFlags::empty(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_reaches_beyond_the_disk_is_refused() {
        let refused = |filesystem, option: &str| {
            let error = MountOptions::parse(filesystem, "", &format!("noatime,{option}"));
            error.unwrap_err().to_string()
        };
        for (filesystem, option) in [
            (Filesystem::Ext4, "journal_path=/dev/sda1"),
            (Filesystem::Ext4, "journal_dev=0x801"),
            (Filesystem::Ext4, "errors=panic"),
            (Filesystem::Xfs, "logdev=/dev/sda1"),
            (Filesystem::Xfs, "rtdev=/dev/sda1"),
            (Filesystem::Btrfs, "device=/dev/sda1"),
            (Filesystem::Btrfs, "fatal_errors=panic"),
            (Filesystem::Btrfs, "dev"),
            (Filesystem::Ext4, "suid"),
        ] {
            let said = refused(filesystem, option);
            assert!(
                said.contains(&format!("'{option}'")) && said.contains(filesystem.name()),
                "{said}"
            );
        }
    }

    #[test]
    fn device_files_and_set_user_id_mean_nothing_whatever_is_asked_for() {
        let plain = MountOptions::parse(Filesystem::Ext4, "noinit_itable", "").unwrap();
        let always = MsFlags::MS_NODEV | MsFlags::MS_NOSUID;
        assert_eq!(plain.flags, always | MsFlags::MS_NOATIME);
        assert_eq!(plain.data, "noinit_itable");
        let options = "atime,,ro,barrier=0,data=journal,errors=remount-ro";
        let many = MountOptions::parse(Filesystem::Ext4, "noinit_itable", options).unwrap();
        assert_eq!(many.flags, always | MsFlags::MS_RDONLY);
        assert_eq!(many.data, "noinit_itable,barrier=0,data=journal,errors=remount-ro");
    }
}
