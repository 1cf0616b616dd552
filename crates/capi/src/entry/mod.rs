//! The functions of the header, by what is asked. What C passes and wants is taken and given in
//! [`boundary`](crate::boundary); here is what each function does with it.
//!
//! A handle that may be NULL is an `Option` of a reference or of a box, which is what C passes. What the
//! header asks of C (a pointer is to what it says, a handle is not used after it was freed) is what these
//! types ask.
#![expect(unsafe_code, reason = "the boundary to C")]
#![expect(clippy::missing_safety_doc, reason = "what a caller promises is said in the header")]

pub mod append;
pub mod crew;
pub mod cut;
pub mod library;
pub mod log;
pub mod read;
pub mod wait;
