//! The library itself: which version it is, and the names of its codes.

use std::ffi::{CStr, c_char};

use crate::code::{Code, CodeNumber};

/// The version of the library: "0.1.0". Static.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no NUL"),
        };
    VERSION.as_ptr()
}

/// The name of a code: "PLIMSOLL_LOCKED". Static, never NULL, whatever number it is.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_code_name(code: CodeNumber) -> *const c_char {
    Code::of(code).map_or(c"not a code of Plimsoll", Code::name).as_ptr()
}
