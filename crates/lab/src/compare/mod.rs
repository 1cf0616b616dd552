//! What changed between an old and a new state of a disk, of each of which there are one or more
//! runs. Pure.
//!
//! * Experiments are paired by name, their arms by name, and the measures of an arm by name.
//! * Two medians differ if *runs* say so: what a measure does from one run to the next on an
//!   unchanged disk is the yardstick (`yardstick.rs`), and the change is held against it by Student's
//!   t. Blocks of one run know nothing of that: where the files landed, what the neighbours did.
//! * And if *blocks* say so: the Mann–Whitney test over the block medians of all runs of a side.
//! * Of a hundred comparisons five look different by chance, so the p values (the larger of the two)
//!   of all comparisons together are corrected (Benjamini and Hochberg).
//! * What counts is only what goes beyond 5 %, and beyond what all measures did together.
//! * An invalid arm is not compared. One that was measured on a busy machine is, and a change of it
//!   is undecided: it never fails a check.
//! * Tails are compared by whether the intervals of p99 overlap. These are optimistic, because slow
//!   samples come in groups: a hint, and nothing fails by it.

pub(crate) mod comparison;
pub(crate) mod conditions;
mod judge;
mod pairing;
mod student;
pub(crate) mod together;
pub(crate) mod yardstick;

pub use comparison::{CannotCompare, Comparison, Row, Run, Runs, Sides, Tail, Verdict};
pub use judge::compare;
