//! The log for C and C++. `include/plimsoll.h` is the documentation for users; it is made of this
//! crate's comments by cbindgen, so types and functions are described for C.
//!
//! ```text
//!  C ──► entry: the functions ──► handle: a log that may be closed, a reader ──► plimsoll-log
//!              boundary: pointers, panics
//!              code, options, report: values that cross
//! ```
//!
//! **Invariant:** no panic leaves an entry. **Invariant:** only `boundary.rs` and `entry/` have unsafe
//! code. **Invariant:** what comes from C is numbers and bytes until it has been checked, never an enum
//! or a bool.

pub(crate) mod boundary;
pub mod code;
pub mod entry;
pub mod handle;
pub mod options;
pub mod report;
