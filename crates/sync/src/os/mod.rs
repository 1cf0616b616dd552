//! The real machine: [`OsDir`] and its files over the operating system.
//!
//! One file per system, one shape: `linux`, `apple`, `windows` and `other` each answer the same
//! questions (`open`, `rename`, `remove`, `create_dir`, `entries`, `stranger`, `open_stranger`, `read_at`, `write_at`, `write_flagged`, `call`, `start_write_out`,
//! `reserve`, `punch`, `keep_in_place`, `alignment`, `open_dir`, `open_own_dir`, `open_to_lock`, `sync_dir`).
//! What only some systems have, mappings and `io_uring`, has a file of its own.
//!
//! All `unsafe` of the project is in this folder, and all `cfg(target_os)` but for the constant that
//! names the system.

mod batch;
#[cfg(target_os = "linux")]
mod block_writes;
mod create_all;
mod dir;
mod entry;
mod file;
mod fork;
mod heap;
mod lock;
#[cfg(target_os = "linux")]
mod loop_device;
mod place;
mod priority;
mod regular;
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is no ring to call it"))]
mod requests;

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod sys;
#[cfg(target_vendor = "apple")]
#[path = "apple.rs"]
mod sys;
#[cfg(windows)]
#[path = "windows.rs"]
mod sys;
#[cfg(not(any(target_os = "linux", target_vendor = "apple", windows)))]
#[path = "other.rs"]
mod sys;

#[cfg(unix)]
#[cfg_attr(miri, expect(dead_code, reason = "miri knows no shared mappings"))]
mod map;
#[cfg(unix)]
mod unix;
#[cfg(not(target_os = "linux"))]
#[path = "no_uring.rs"]
mod uring;
#[cfg(target_os = "linux")]
mod uring;
mod words;

mod full_fsync;

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Read,
    Write,
    /// To be written, and it must not be there yet.
    Create,
    /// To be written, and made if it is not there.
    WriteOrCreate,
}

pub use batch::{Batch, BatchWrite, Batched};
#[cfg(target_os = "linux")]
pub use block_writes::BlockWrites;
pub use dir::OsDir;
pub(crate) use dir::Then;
pub use fork::Process;
pub use heap::keep_freed_memory;
#[cfg(target_os = "linux")]
pub use loop_device::LoopDevice;
pub use place::{boot_id, device_number, finest_timer, space, thread_cpu_time};
pub use priority::step_back;
#[cfg(target_os = "linux")]
pub use sys::start_write_out;
pub use words::{Held, Words};
