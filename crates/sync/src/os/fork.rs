//! [`Process`]: who opened something. A fork copies its memory, and none of its threads; its files are
//! those of the process that goes on.

#[cfg(all(unix, not(miri)))]
use std::sync::Once;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// How many forks lie between the process that asked first and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// A process, known again without a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    forks: u64,
}

impl Process {
    /// This one.
    #[must_use]
    pub fn this() -> Self {
        count_forks();
        Self { forks: FORKS.load(Relaxed) }
    }

    /// Whether it is still this one: false in a child that fork(3) made since. One load. A child that a
    /// program makes by a bare system call is not told from its parent, nor one where there is no fork.
    #[must_use]
    pub fn is_this(self) -> bool {
        self.forks == FORKS.load(Relaxed)
    }
}

#[cfg(all(unix, not(miri)))]
fn count_forks() {
    type Handler = Option<extern "C" fn()>;
    #[expect(unsafe_code, reason = "as in pthread.h; the libc crate lacks it for Linux")]
    unsafe extern "C" {
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> libc::c_int;
    }
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Relaxed);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which any thread may do at any time, and lives as
        // long as the program; a library that is unloaded takes its handlers along. Where there is no
        // memory for one more handler, forks are not noticed.
        #[expect(unsafe_code, reason = "pthread_atfork(3)")]
        unsafe {
            pthread_atfork(None, None, Some(in_child));
        }
    });
}

#[cfg(not(all(unix, not(miri))))]
fn count_forks() {}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_is_another_process_and_its_parent_stays_the_same() {
        let this = Process::this();
        assert!(this.is_this());
        // SAFETY: the child does nothing but compare two numbers and end.
        #[expect(unsafe_code, reason = "fork(2)")]
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: it ends without running what the test harness would run at its end.
            #[expect(unsafe_code, reason = "_exit(2)")]
            unsafe {
                libc::_exit(i32::from(this.is_this()))
            }
        }
        let mut status = -1;
        // SAFETY: `status` is ours for the call.
        #[expect(unsafe_code, reason = "waitpid(2)")]
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, status), (child, 0), "it took itself for its parent");
        assert!(this.is_this());
    }
}
