//! What a log may be asked for. What nobody can choose well is not here: it is hard-coded or probed.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::segment::format::{BLOCK_BYTES, FRAME_BYTES, INDEX_END};
use crate::stats::Observer;

/// The largest ring: a batch of half of it fits into the largest segment, and so does all of it.
const RING_BYTES_MAX: u64 = 512 << 20;

/// When the log syncs on its own account. Whoever waits for more gets it, under any policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Only when a segment is full, and at [`crate::Log::close`]. A power cut may take everything of
    /// the last segment, and of the one before it while that is being synced.
    ///
    /// A write or a sync that fails stops the log: what the kernel has is not in the ring any more, so it
    /// could not be moved to another file, nor could anything behind it ever be called durable.
    Never,
    /// In the background: a sync is due once a record is as old as `max_age`, or so many bytes as
    /// `max_bytes` are not durable, whichever comes first. More is accepted while it runs. Where the disk
    /// cannot keep up, appends wait: before more than twice `max_bytes` are not durable (a larger record
    /// or batch goes alone), and once a record that is not durable is older than twice `max_age`, for which
    /// one append in 64 looks. What is accepted by then is what a power cut may take.
    Interval {
        /// Age of the oldest record that is not durable.
        max_age: Duration,
        /// Bytes that are not durable, heads of frames (24 bytes a record) included. Three quarters of the
        /// ring are a limit as well.
        max_bytes: u64,
    },
    /// `append` returns when the record is durable; one sync serves everybody who waits.
    Always,
}

/// How far a record must be when an append returns. What survives is said at each; that a device
/// keeps its word is assumed (`plimsoll lab` checks it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ack {
    /// In the ring. Survives nothing, or a crash of the process where the ring is a file
    /// ([`Ring::File`]).
    Buffered,
    /// With the kernel. Survives a crash of the process.
    Written,
    /// Covered by a good sync. Survives crashes and power cuts.
    Durable,
}

/// Where the ring is: what holds records until they are durable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Ring {
    /// In memory of this process, gone with it.
    #[default]
    Memory,
    /// In a file, which must be on tmpfs (like `/dev/shm`): a record survives a crash of the process
    /// from the moment `append` returns, at the speed of memory. One file for one log.
    ///
    /// As nothing is gained by it then, few records under [`Policy::Interval`] go to the kernel only with the
    /// sync that is due for them, unless somebody waits for them. Until then a [`crate::Reader`] does not
    /// see them; a [`crate::Follower`] has them within about 10 ms.
    File(PathBuf),
}

/// Options of a log. The defaults are right for most.
///
/// ```
/// use plimsoll_log::{Options, Policy};
/// let options = Options { policy: Policy::Always, ..Options::default() };
/// assert!(options.check().is_ok());
/// ```
#[derive(Clone)]
pub struct Options {
    /// When the log syncs on its own account; [`Policy::everysec`] unless set.
    pub policy: Policy,
    /// Size of a segment file, a multiple of 4 KiB: 64 MiB unless set. 32 to 128 MiB are sensible;
    /// less is for tests and tiny logs.
    pub segment_bytes: u64,
    /// Bytes of records that may be accepted and not yet durable, a power of two: 32 MiB unless set. The
    /// only memory that a log takes in proportion to anything. The largest record is half of it.
    pub ring_bytes: u64,
    /// Where the ring is.
    pub ring: Ring,
    /// Past the page cache where the filesystem lets us (`O_DIRECT`): on unless set. Measured here,
    /// it makes a durable record cheaper and keeps the log out of writeback.
    pub direct: bool,
    /// Index of the first record of a log that is made: 1 unless set. A log that exists goes on where it
    /// is.
    pub first_index: u64,
    /// Open although durable records are lost: cut the log before the first of them. Whoever sets
    /// this has looked at `plimsoll log verify`.
    pub accept_loss: bool,
    /// Open although durable records are damaged, if the segment's head can be read and behind them a durable record, or the first that is not, or another segment:
    /// they are kept as they are, readers meet them, and whoever has them elsewhere puts them back ([`crate::Log::heal`]). Where the log cannot be
    /// opened so it is an error that names where, or is cut there with [`Options::accept_loss`].
    pub keep_damaged: bool,
    /// Records up to this one were durable, as the caller knows from elsewhere: where one of them cannot be read it is lost, and not a write that was
    /// not finished, though nothing in the log says so (marks of that come some records later). 0 unless set.
    pub durable: u64,
    /// Is told of what the log does.
    pub observer: Option<Arc<dyn Observer>>,
    /// Whether the log runs threads of its own. Without them the caller drives it:
    /// [`crate::Log::drive`].
    pub threads: bool,
    /// What time it is, and where randomness comes from.
    pub clock: Clock,
}

impl Policy {
    /// What Redis calls so, and what its users know: at most a second, or 64 MiB.
    #[must_use]
    pub const fn everysec() -> Self {
        Self::Interval { max_age: Duration::from_secs(1), max_bytes: 64 << 20 }
    }

    /// What suits the disk that a `durability-profile.json` of `plimsoll lab` is about: the bytes and
    /// the time that its knee leaves unsynced, below which more frequent syncs begin to cost.
    pub fn auto(profile: &str) -> Result<Self> {
        let wrong = |what: &str| Error::Options(format!("the durability profile {what}"));
        let profile: serde_json::Value = serde_json::from_str(profile)
            .map_err(|error| wrong(&format!("is no JSON: {error}")))?;
        if profile["format"] != "plimsoll-durability-profile" {
            return Err(wrong("is not one of plimsoll lab"));
        }
        if profile["version"] != 1 {
            return Err(wrong("has a version that is not known here"));
        }
        let knee = |field: &str| profile["knee"][field].as_f64().filter(|value| *value > 0.0);
        let Some(bytes) = knee("at_risk_bytes") else {
            return Err(wrong("has no knee: run the experiment sync-interval"));
        };
        // Under a millisecond threads wake each other more than they work.
        let ms = knee("at_risk_ms").unwrap_or(1000.0).clamp(1.0, 60_000.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let max_bytes = bytes.clamp(4096.0, 1e12) as u64;
        Ok(Self::Interval { max_age: Duration::from_secs_f64(ms / 1000.0), max_bytes })
    }

    /// How far a record is when `append` returns.
    #[must_use]
    pub const fn ack(self) -> Ack {
        match self {
            Self::Never | Self::Interval { .. } => Ack::Buffered,
            Self::Always => Ack::Durable,
        }
    }
}

impl Ack {
    /// The level in a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Written => "written",
            Self::Durable => "durable",
        }
    }
}

impl fmt::Display for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Options {
    /// Says what is wrong with them, if anything.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::Options(what));
        if !(16 * BLOCK_BYTES..=1 << 30).contains(&self.segment_bytes)
            || !self.segment_bytes.is_multiple_of(BLOCK_BYTES)
        {
            return wrong(format!(
                "segment_bytes is {}; it must be a multiple of 4096 from 64 KiB to 1 GiB",
                self.segment_bytes
            ));
        }
        if !(BLOCK_BYTES..=RING_BYTES_MAX).contains(&self.ring_bytes)
            || !self.ring_bytes.is_power_of_two()
        {
            return wrong(format!(
                "ring_bytes is {}; it must be a power of two from 4 KiB to {} MiB",
                self.ring_bytes,
                RING_BYTES_MAX >> 20
            ));
        }
        if let Policy::Interval { max_age, max_bytes } = self.policy
            && (max_age.is_zero() || max_bytes == 0)
        {
            return wrong(
                "an interval of nothing; Policy::Always is what syncs at once".to_owned(),
            );
        }
        if !(1..INDEX_END).contains(&self.first_index) {
            return wrong(format!(
                "first_index is {}; records are counted from 1 to 2^63 - 1",
                self.first_index
            ));
        }
        Ok(())
    }

    /// The largest record that such a log takes by itself. In a crew it may be less:
    /// [`crate::Log::max_record_bytes`].
    #[must_use]
    pub fn max_record_bytes(&self) -> u64 {
        self.max_batch_bytes() - FRAME_BYTES as u64
    }

    /// The most that one append may put into the ring.
    pub(crate) fn max_batch_bytes(&self) -> u64 {
        self.ring_bytes / 2
    }
}

impl Policy {
    /// How many bytes may be accepted and not durable before appends wait.
    pub(crate) fn accepted_bytes_max(self) -> u64 {
        match self {
            Self::Interval { max_bytes, .. } => max_bytes.saturating_mul(2),
            Self::Always | Self::Never => u64::MAX,
        }
    }

    /// How many bytes may be unsynced before a background sync is due.
    pub(crate) fn unsynced_bytes_max(self, ring_bytes: u64) -> Option<u64> {
        match self {
            Self::Interval { max_bytes, .. } => Some(max_bytes.min(ring_bytes / 4 * 3)),
            Self::Always => Some(ring_bytes / 4 * 3),
            Self::Never => None,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::everysec(),
            segment_bytes: 64 << 20,
            ring_bytes: 32 << 20,
            ring: Ring::default(),
            direct: true,
            first_index: 1,
            accept_loss: false,
            keep_damaged: false,
            durable: 0,
            observer: None,
            threads: true,
            clock: Clock::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("policy", &self.policy)
            .field("segment_bytes", &self.segment_bytes)
            .field("ring_bytes", &self.ring_bytes)
            .field("ring", &self.ring)
            .field("direct", &self.direct)
            .field("first_index", &self.first_index)
            .field("accept_loss", &self.accept_loss)
            .field("keep_damaged", &self.keep_damaged)
            .field("durable", &self.durable)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_cannot_be_are_named() {
        let said = |options: Options| options.check().unwrap_err().to_string();
        let odd = Options { segment_bytes: 100_000, ..Options::default() };
        assert!(said(odd).contains("segment_bytes"));
        let odd = Options { ring_bytes: 48 << 20, ..Options::default() };
        assert!(said(odd).contains("power of two"));
        let none = Options { first_index: 0, ..Options::default() };
        assert!(said(none).contains("from 1"));
        let policy = Policy::Interval { max_age: Duration::ZERO, max_bytes: 1 };
        assert!(said(Options { policy, ..Options::default() }).contains("Always"));
    }

    #[test]
    fn auto_takes_the_knee_of_a_profile_and_refuses_what_is_none() {
        let profile = r#"{"format":"plimsoll-durability-profile","version":1,
            "knee":{"arm":"x","at_risk_bytes":262144,"at_risk_ms":7.5}}"#;
        let policy = Policy::auto(profile).unwrap();
        let max_age = Duration::from_micros(7500);
        assert_eq!(policy, Policy::Interval { max_age, max_bytes: 262_144 });
        for wrong in ["", "{}", r#"{"format":"plimsoll-durability-profile","version":2}"#] {
            assert!(matches!(Policy::auto(wrong), Err(Error::Options(_))), "{wrong}");
        }
    }
}
