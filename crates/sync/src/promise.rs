//! What survives: the classes of promise that a sync can make.
//!
//! Methods are only ever compared within one class. A method that hands bytes to a drive's volatile
//! cache is faster than one that empties that cache for the same reason that not locking the door
//! is faster than locking it.

use std::fmt;
use std::str::FromStr;

/// What a write has been promised when a sync method returns.
///
/// Deliberately without an order: [`Promise::Ordering`] and [`Promise::Device`] promise different
/// things, and neither is a weaker [`Promise::Media`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Promise {
    /// The bytes are with the kernel, or will be. A system crash may lose them.
    Nothing,
    /// The bytes went to the device, which will not let later bytes overtake them on their way to
    /// the medium. When they get there is not said.
    Ordering,
    /// The bytes went to the device, which may keep them in a volatile cache. Only bytes in blocks
    /// that were already allocated can be found again after a system crash.
    Device,
    /// The device was asked to empty its volatile cache and said that it did.
    Media,
}

/// Something that happens to a running system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Crash {
    /// The process dies, the kernel lives.
    Process,
    /// The kernel dies or is reset, the device keeps its power.
    System,
    /// Power is lost: volatile caches are gone.
    PowerCut,
}

impl Promise {
    /// Every class, in the order in which reports print them.
    pub const ALL: [Self; 4] = [Self::Media, Self::Ordering, Self::Device, Self::Nothing];

    /// Whether a write with this promise survives `crash` on a device that keeps its word.
    #[must_use]
    pub const fn survives(self, crash: Crash) -> bool {
        match crash {
            Crash::Process => true,
            Crash::System => !matches!(self, Self::Nothing),
            Crash::PowerCut => matches!(self, Self::Media),
        }
    }

    /// The class in words, as reports and results print it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Ordering => "ordering only",
            Self::Device => "handed to the device",
            Self::Media => "on stable media",
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Promise {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|promise| promise.name() == name)
            .ok_or_else(|| format!("unknown promise class '{name}'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stable_media_survives_a_power_cut() {
        let survivors: Vec<_> =
            Promise::ALL.into_iter().filter(|p| p.survives(Crash::PowerCut)).collect();
        assert_eq!(survivors, [Promise::Media]);
    }

    #[test]
    fn a_process_crash_loses_nothing_that_the_kernel_has() {
        assert!(Promise::ALL.into_iter().all(|p| p.survives(Crash::Process)));
    }

    #[test]
    fn every_class_is_read_back_from_its_name() {
        for promise in Promise::ALL {
            assert_eq!(promise.name().parse(), Ok(promise));
        }
    }
}
