//! What "unsupported" means, and when `F_FULLFSYNC` may fall back to fsync. Pure, so that it is
//! tested on every system.

use std::io;

use crate::Promise;

/// Calls `full`, and `fsync` in its place only where the filesystem says that there is no such
/// call. Any other failure is final: fsync after a failed flush would hide it.
#[cfg_attr(not(any(test, target_vendor = "apple")), expect(dead_code, reason = "Apple's call"))]
pub(super) fn full_fsync(
    full: impl FnOnce() -> io::Result<()>,
    fsync: impl FnOnce() -> io::Result<()>,
) -> io::Result<Promise> {
    match full() {
        Ok(()) => Ok(Promise::Media),
        Err(error) if says_unsupported(&error) => fsync().map(|()| Promise::Device),
        Err(error) => Err(error),
    }
}

/// Whether an error says that the call does not exist here, rather than that it failed.
#[cfg(unix)]
pub(super) fn says_unsupported(error: &io::Error) -> bool {
    let says = [libc::ENOTSUP, libc::EOPNOTSUPP, libc::ENOTTY, libc::ENOSYS];
    error.raw_os_error().is_some_and(|code| says.contains(&code))
        || error.kind() == io::ErrorKind::Unsupported
}

/// Whether an error says that the call does not exist here, rather than that it failed.
#[cfg(not(unix))]
pub(super) fn says_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
}

/// Whether it was we who refused, because there is no such call here. What a system says of a sync,
/// even "unsupported", may come from the device, and then the sync has failed.
pub(super) fn is_ours(error: &io::Error) -> bool {
    error.raw_os_error().is_none() && error.kind() == io::ErrorKind::Unsupported
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn fails(code: i32) -> impl FnOnce() -> io::Result<()> {
        move || Err(io::Error::from_raw_os_error(code))
    }

    #[test]
    fn keeps_its_promise_where_it_is_supported() {
        let kept = full_fsync(|| Ok(()), || panic!("fsync must not be called"));
        assert_eq!(kept.unwrap(), Promise::Media);
    }

    #[test]
    fn falls_back_where_unsupported_and_admits_the_weaker_promise() {
        for code in [libc::ENOTSUP, libc::ENOTTY] {
            assert_eq!(full_fsync(fails(code), || Ok(())).unwrap(), Promise::Device);
        }
    }

    #[test]
    fn never_falls_back_from_a_failed_flush() {
        for code in [libc::EIO, libc::ENOSPC, libc::EINVAL, libc::EBADF] {
            let error = full_fsync(fails(code), || panic!("fsync would hide the failure"));
            assert_eq!(error.unwrap_err().raw_os_error(), Some(code));
        }
    }

    /// A device that does not know a flush answers EOPNOTSUPP, and the latch once stayed open for it.
    #[test]
    fn a_sync_that_a_device_calls_unsupported_has_failed() {
        for code in [libc::EOPNOTSUPP, libc::ENOTTY, libc::ENOSYS, libc::EIO] {
            assert!(!is_ours(&io::Error::from_raw_os_error(code)), "{code}");
        }
        assert!(is_ours(&io::ErrorKind::Unsupported.into()));
    }

    #[test]
    fn a_failed_fallback_is_a_failure() {
        let error = full_fsync(fails(libc::ENOTSUP), fails(libc::EIO)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }
}
