//! Opening a log: what there is is looked at ([`survey`]), judged ([`judge`]), and mended ([`mend`]); its
//! [`ring`] may have more.
//! `docs/recovery.md` goes through every case.
//!
//! Its words: a *survey* reads the *heads* of all segments. Those that follow each other are the *chain*; what
//! is *wrong* with it is corruption. The end is read: each segment is a *reading*, a *part* of the *verdict*
//! (whole, torn, cut), which says what is *lost* and whether the last one *resumes*. A ring's records are
//! *replayed* if its *token* is the log's.

pub(crate) mod judge;
pub(crate) mod mend;
pub(crate) mod ring;
pub(crate) mod survey;
#[cfg(all(test, not(miri), not(shuttle)))]
mod transcripts;
