//! [`Disk`]: what is known of the disk under a replica: whether it has failed, and whether it has room.
//!
//! A write or a sync that fails may be the last that the disk reports: the kernel takes the pages for clean. The
//! log puts what it still has into another file, and a node that is alone goes on with that. Where others vote too,
//! nobody needs a disk that has failed: from then on this replica acknowledges nothing, votes for nobody, and
//! leads no more (see [`super::abdication`]). What the disk still has is decided by the next start, which reads
//! it past the cache.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use plimsoll_log::{Error as LogError, Event, Observer};

use super::error::Error;
use super::watch;

/// What is known of a replica's disk.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// Why nothing is acknowledged any more. It never changes back.
    failed: Latch,
    /// Others vote, so the group can do without this replica.
    is_shared: AtomicBool,
    /// Set while the disk has no room for records, where records are what the group agrees on.
    is_full: OnceLock<Arc<AtomicBool>>,
}

#[derive(Debug)]
struct Latch {
    why: watch::Sender<Option<String>>,
    /// The same without a lock, as each acknowledgement asks for it.
    is_closed: AtomicBool,
}

impl Default for Latch {
    fn default() -> Self {
        Self { why: watch::Sender::new(None), is_closed: AtomicBool::new(false) }
    }
}

impl Disk {
    /// A write or a sync failed. A replica that is the only voter goes on as far as its log does: nobody else could.
    pub(crate) fn fails(&self, why: impl FnOnce() -> String) {
        if !self.is_shared.load(Ordering::SeqCst)
            || self.failed.is_closed.swap(true, Ordering::SeqCst)
        {
            return;
        }
        self.failed.why.send_modify(|known| *known = Some(why()));
    }

    /// Looks whether this is the disk's failure.
    pub(crate) fn see(&self, why: &Error) {
        match why {
            Error::Log(LogError::Disk(why)) | Error::Disk(why) if keeps_nothing(why) => {
                self.fails(|| why.to_string());
            }
            Error::Log(why) => self.look_at(why),
            _ => {}
        }
    }

    /// The same of an error of the log.
    pub(crate) fn look_at(&self, why: &LogError) {
        if let LogError::Stopped { source, .. } = why {
            self.fails(|| source.to_string());
        }
    }

    /// Whether it has failed while others voted too: then nothing is acknowledged.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_closed.load(Ordering::SeqCst)
    }

    /// Why it has failed, if it has.
    pub(crate) fn why(&self) -> Option<String> {
        self.failed.why.borrow().clone()
    }

    /// Told once it has failed.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<String>> {
        self.failed.why.subscribe()
    }

    /// Whether others vote beside this replica.
    pub(crate) fn is_shared(&self, is_shared: bool) {
        self.is_shared.store(is_shared, Ordering::SeqCst);
    }

    /// From here on this says whether the disk has no room for records.
    pub(crate) fn is_full_while(&self, is_full: Arc<AtomicBool>) {
        self.is_full.set(is_full).expect("it is said once");
    }

    /// Whether it has no room for records.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.get().is_some_and(|is_full| is_full.load(Ordering::Relaxed))
    }
}

/// Whether a disk refuses what it is to keep. Not for want of room or of descriptors; and what it cannot read another
/// replica may give.
fn keeps_nothing(why: &plimsoll_sync::Error) -> bool {
    use plimsoll_sync::Error::Io;
    let is_read = matches!(why, Io { operation: "read" | "open" | "list", .. });
    let is_full = matches!(why.kind(), Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded));
    why.kind().is_some() && !is_read && !is_full && !why.is_out_of_descriptors()
}

/// Hears from the log what its disk does.
pub(crate) struct Listener {
    disk: Arc<Disk>,
    /// Who was to be told before.
    next: Option<Arc<dyn Observer>>,
}

impl Listener {
    pub(crate) fn new(disk: &Arc<Disk>, next: Option<Arc<dyn Observer>>) -> Self {
        Self { disk: Arc::clone(disk), next }
    }
}

impl Observer for Listener {
    fn observe(&self, event: Event<'_>) {
        match &event {
            // A disk that is full has not failed.
            Event::FailedOver { segment, was_full: false, .. } => {
                self.disk.fails(|| format!("a write or a sync of {segment} failed"));
            }
            Event::Stopped => self.disk.fails(|| "its log has stopped".to_owned()),
            _ => {}
        }
        if let Some(next) = &self.next {
            next.observe(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED_OVER: Event<'static> =
        Event::FailedOver { segment: "1.log", first_index: 7, was_full: false };

    fn disk() -> (Arc<Disk>, Listener) {
        let disk = Arc::new(Disk::default());
        disk.is_shared(true);
        let listener = Listener::new(&disk, None);
        (disk, listener)
    }

    #[test]
    fn a_segment_that_fails_is_a_disk_that_fails_for_good() {
        let (disk, listener) = disk();
        assert!(!disk.has_failed());
        listener.observe(FAILED_OVER);
        listener.observe(Event::Stopped);
        disk.is_shared(false);
        assert!(disk.has_failed());
        assert_eq!(disk.why().unwrap(), "a write or a sync of 1.log failed");
    }

    #[test]
    fn a_disk_that_is_full_has_not_failed() {
        let (disk, listener) = disk();
        listener.observe(Event::OutOfSpace);
        listener.observe(Event::FailedOver { segment: "1.log", first_index: 7, was_full: true });
        assert!(!disk.has_failed());
        // Once it has room again it may fail as ever: it did not, as that it was full was remembered.
        listener.observe(Event::OutOfSpace);
        listener.observe(FAILED_OVER);
        assert!(disk.has_failed());
    }

    #[test]
    fn who_is_alone_goes_on_as_far_as_its_log_does() {
        let (disk, listener) = disk();
        disk.is_shared(false);
        listener.observe(FAILED_OVER);
        disk.is_shared(true);
        assert!(!disk.has_failed(), "nobody could have done without it then");
    }
}
