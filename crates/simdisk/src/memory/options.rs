//! [`DiskOptions`]: what kind of disk is simulated, under what kind of system.

use plimsoll_sync::System;

/// What kind of disk, under what kind of system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskOptions {
    /// Whose promises the sync methods keep. The system this was compiled for unless set.
    pub system: System,
    /// What survives a crash without what. [`Persistence::Posix`] unless set.
    pub persistence: Persistence,
    /// What the device writes at once. 4096 bytes unless set.
    pub tear: Tear,
    /// What direct buffers, lengths and byte offsets must be a multiple of, a power of two. 512
    /// unless set.
    pub direct_alignment: usize,
    /// How many bytes of blocks there are, in whole pages of 4096; no limit unless set.
    pub capacity_bytes: Option<u64>,
    /// What becomes of bytes that are written where others were. [`Overwriting::InPlace`] unless set.
    pub overwriting: Overwriting,
    /// When it is seen that the disk is full. [`FillsAt::Write`] unless set.
    pub fills_at: FillsAt,
    /// Whether [`plimsoll_sync::File::punch`] gives blocks back. It does unless set.
    pub punches: bool,
    /// How many of the latest operations [`crate::SimDir::history`] knows. 1000 unless set; 0 is fastest.
    pub history_steps: usize,
}

/// What survives a crash without what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Persistence {
    /// Everything by itself: sectors, lengths and names. No more than POSIX promises.
    #[default]
    Posix,
    /// As filesystems with one ordered journal do it (ext4 `data=ordered`, xfs): names and lengths
    /// survive in the order in which they were changed, whatever file they belong to, and any sync that
    /// writes one makes all earlier ones durable. Data in new blocks goes out before the length that
    /// shows it; what is overwritten in old blocks, or punched, waits for its own sync. So a missing
    /// sync of a directory is hidden here, as it is there.
    Journal,
}

/// What becomes of bytes that are written where others were. Only a disk with a capacity tells the
/// difference, and whoever asks [`plimsoll_sync::Dir::overwrite`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overwriting {
    /// They go where the others were (ext4, xfs).
    #[default]
    InPlace,
    /// They go elsewhere (btrfs): what was synced needs as much room again to be overwritten, and has the
    /// room of the old bytes back after the next sync of the file. Blocks that were reserved take their
    /// first bytes, and none after a sync.
    Elsewhere {
        /// Whether [`plimsoll_sync::File::keep_in_place`] is granted. That it was survives a crash once the
        /// file is synced.
        in_place_on_request: bool,
    },
    /// They go where the others were, and the directory says that it is memory (tmpfs). A crash still
    /// leaves what it leaves of any disk: who believes that a power cut takes all of it need not try.
    Memory,
}

/// When it is seen that a disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FillsAt {
    /// A write fails.
    #[default]
    Write,
    /// Writes into the page cache take everything, and the sync of a file fails for which there are no
    /// blocks: delayed allocation without a reservation (network filesystems, thin disks). What is written
    /// past the page cache and what is reserved fails at once.
    Sync,
}

/// The largest piece of a write that never tears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tear {
    /// What drives with physical sectors of 4 KiB promise.
    #[default]
    Bytes4096,
    /// What older drives promise. Real filesystems do not all survive that.
    Bytes512,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self {
            system: System::HERE,
            persistence: Persistence::default(),
            tear: Tear::default(),
            direct_alignment: 512,
            capacity_bytes: None,
            overwriting: Overwriting::default(),
            fills_at: FillsAt::default(),
            punches: true,
            history_steps: 1000,
        }
    }
}
