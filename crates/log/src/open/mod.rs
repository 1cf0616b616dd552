//! Opening a log: what there is is looked at ([`survey`]), judged ([`judge`]), and mended ([`mend`]); its
//! [`ring`] may have more.
//! `docs/recovery.md` goes through every case.

pub(crate) mod judge;
pub(crate) mod mend;
pub(crate) mod ring;
pub(crate) mod survey;
#[cfg(all(test, not(miri), not(shuttle)))]
mod transcripts;
