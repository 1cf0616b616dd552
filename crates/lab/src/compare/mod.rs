//! What changed between an old and a new state of a disk, with one or more runs of each. Pure.
//!
//! * Experiments are paired by name, their arms by name, and the measures of an arm by name.
//! * Two medians differ only if *runs* say so: how far a measure moves from one run to the next on
//!   an unchanged disk is the yardstick (`yardstick.rs`), and Student's t holds the change against
//!   it. Blocks of one run do not show such moves, which come of where files landed and what
//!   neighbours did.
//! * *Blocks* must say so, too: by the Mann–Whitney test over the block medians of all runs of a
//!   side.
//! * Of a hundred comparisons five look different by chance, so the p values (the larger of the
//!   two) of all comparisons together are corrected (Benjamini and Hochberg).
//! * Only a change beyond 5 %, and beyond what all measures did together, counts.
//! * An invalid arm is not compared. An arm that was measured on a busy machine is, but its change
//!   is undecided: it never fails a check.
//! * Tails are compared by whether the intervals of p99 overlap. These are optimistic, because slow
//!   samples come in groups. So they are a hint, and fail no check.

mod comparison;
mod conditions;
mod judge;
mod pairing;
mod student;
mod together;
mod yardstick;

pub use comparison::{CannotCompare, Comparison, Row, Run, Runs, Sides, Tail, Verdict};
pub use conditions::Condition;
pub use judge::compare;
pub(crate) use together::TOGETHER_MAX;
pub use yardstick::{Source, Yardstick};
