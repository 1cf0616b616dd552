//! [`keep_freed_memory`]: what becomes of memory that is freed.

/// From now on the allocator of this process keeps what is freed for whoever asks next, where it can be told to:
/// buffers of up to 32 MiB, and at the end of each of its arenas up to 64 MiB. For programs that use buffers of
/// a MiB again and again: the GNU C library otherwise has each from the system, whose kernel clears it page by
/// page, and gives it back (mallopt(3), `M_MMAP_THRESHOLD` and `M_TRIM_THRESHOLD`). Elsewhere nothing happens.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const LARGEST_KEPT: libc::c_int = 32 << 20;
        const KEPT: libc::c_int = 64 << 20;
        let notes = [(libc::M_MMAP_THRESHOLD, LARGEST_KEPT), (libc::M_TRIM_THRESHOLD, KEPT)];
        for (parameter, bytes) in notes {
            #[expect(unsafe_code, reason = "mallopt")]
            // SAFETY: it notes a number, and may be called at any time, from any thread.
            let is_noted = unsafe { libc::mallopt(parameter, bytes) } == 1;
            if !is_noted {
                return;
            }
        }
    }
}
