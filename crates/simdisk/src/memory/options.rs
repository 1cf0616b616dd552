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
    /// shows it; what is overwritten in old blocks waits for its own sync. So a missing sync of a
    /// directory is hidden here, as it is there.
    Journal,
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
            history_steps: 1000,
        }
    }
}
