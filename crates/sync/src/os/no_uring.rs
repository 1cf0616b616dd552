//! `io_uring` where there is none: a ring that can never be made.

use std::io;

use super::requests::{Done, Write};
use crate::method::Chain;

#[derive(Debug)]
pub(super) enum Ring {}

impl Ring {
    pub(super) fn new(_: u32) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "it is Linux's"))
    }

    pub(super) fn write_sync(&mut self, _: &[Write<'_>], _: Chain) -> Done {
        match *self {}
    }
}
