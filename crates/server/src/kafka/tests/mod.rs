//! The codec held against bytes that are written down, against a library, and against strangers.

mod batch;
mod clients;
mod golden;
mod hostile;
mod negotiation;
mod oracle;
mod page;
mod records;
pub(super) mod sample;

use bytes::Bytes;

use super::band::Api;

/// Each API in each version that is served.
fn served() -> impl Iterator<Item = (Api, i16)> {
    Api::ALL.iter().flat_map(|api| api.served().map(|version| (*api, version)))
}

fn joined(pieces: &[Bytes]) -> Bytes {
    pieces.concat().into()
}
