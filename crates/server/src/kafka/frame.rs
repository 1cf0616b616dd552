//! A frame: a length, a header and a message; how a connection is cut into them.
//!
//! ```text
//! request   0  length of what follows                    i32
//!           4  key of the API                            i16
//!           6  version                                   i16
//!           8  correlation id, which the answer repeats  i32
//!          12  client id                                 text or null, its length always an i16
//!              tags, where the version is flexible
//!              the message
//!
//! response  0  length of what follows                    i32
//!           4  correlation id                            i32
//!              tags, where the version is flexible, but never of ApiVersions
//!              the message
//! ```

use bytes::{Buf, Bytes, BytesMut};

use super::band::{Api, Request, Response};
use super::error::ErrorCode;
use super::wire::{FRAME_LENGTH_BYTES, Layout, Malformed, Reader, Wire, Writer, frame_length};

/// What stands before a request, and what its answer needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Which API.
    pub api: Api,
    /// In which version the request is, and its answer must be.
    pub version: i16,
    /// What the answer repeats.
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<String>,
}

/// Why a frame is not a request that is served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// ApiVersions in a version above ours. It is answered in layout 0, which every client
    /// understands, with `UnsupportedVersion` and the whole table, and the client asks again.
    #[error("ApiVersions in version {version}")]
    Negotiate {
        /// What was asked for.
        version: i16,
        /// What the answer repeats.
        correlation_id: i32,
    },
    /// Another API, or another version of one. No answer can be understood: the connection ends.
    #[error("API {key} in version {version}, which is not served")]
    Unserved {
        /// The key of the API.
        key: i16,
        /// What was asked for.
        version: i16,
    },
    /// A header that is none. The connection ends.
    #[error("a request without a header")]
    Header(#[source] Malformed),
    /// A message that is not what its header says. The connection ends.
    #[error("{api:?} in version {version}")]
    Message {
        /// Which API.
        api: Api,
        /// In which version.
        version: i16,
        /// Where it goes wrong.
        #[source]
        why: Malformed,
    },
}

/// A frame that is longer than a peer may send, or has a length below zero. The connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {length} bytes, where {max_bytes} are allowed")]
pub struct Oversized {
    /// What it says.
    pub length: i32,
    /// What is allowed.
    pub max_bytes: usize,
}

/// How many bytes the frame has that begins what was received, with its length; `None` while that is not
/// there. A length that is not allowed is refused before anything follows it.
pub fn announced(received: &[u8], max_bytes: usize) -> Result<Option<usize>, Oversized> {
    let Some(length) = frame_length(received) else { return Ok(None) };
    let bytes = usize::try_from(length).ok().filter(|bytes| *bytes <= max_bytes);
    let bytes = bytes.ok_or(Oversized { length, max_bytes })?;
    Ok(Some(FRAME_LENGTH_BYTES + bytes))
}

/// Takes the first frame off what was received, without its length and without copying it; `None`
/// while it is not all there.
///
/// A frame keeps the memory of what was received with it, until neither is used.
pub fn take(received: &mut BytesMut, max_bytes: usize) -> Result<Option<Bytes>, Oversized> {
    let Some(bytes) = announced(received, max_bytes)?.filter(|bytes| *bytes <= received.len())
    else {
        return Ok(None);
    };
    let mut frame = received.split_to(bytes);
    frame.advance(FRAME_LENGTH_BYTES);
    Ok(Some(frame.freeze()))
}

impl Request {
    /// Reads a frame. Records are slices of it. Nothing may stand behind the request, but what a client that many use puts there.
    pub fn decode(frame: Bytes) -> Result<(Header, Self), Refused> {
        let mut from = Reader::new(frame, Layout::PLAIN);
        let header = Header::read(&mut from)?;
        let Header { api, version, .. } = header;
        let malformed = |why| Refused::Message { api, version, why };
        let request = Self::read(api, &mut from).map_err(malformed)?;
        // librdkafka asks for all topics with a list that has three bytes too many: its issue 5049, in 2.16 still.
        if (api, from.left()) != (Api::Metadata, 3) {
            from.finish().map_err(malformed)?;
        }
        Ok((header, request))
    }

    /// The frame with its length, in pieces to be sent one after the other.
    ///
    /// # Panics
    /// If the header is that of another API, or of a version that is not served.
    #[must_use]
    pub fn encode(&self, header: &Header) -> Vec<Bytes> {
        assert_eq!(header.api, self.api(), "the header is that of its request");
        let mut to = Writer::of_a_frame();
        header.write(&mut to);
        self.write(&mut to);
        to.frame()
    }
}

impl Response {
    /// Reads the answer to a request of this API and version, and which one it answers.
    pub fn decode(api: Api, version: i16, frame: Bytes) -> Result<(i32, Self), Malformed> {
        let mut from = Reader::new(frame, Layout::PLAIN);
        let correlation_id = i32::read(&mut from)?;
        from.lay_out(api.layout(version));
        if api != Api::ApiVersions {
            from.skip_tags()?;
        }
        let response = Self::read(api, &mut from)?;
        from.finish()?;
        Ok((correlation_id, response))
    }

    /// The frame with its length, in pieces to be sent one after the other.
    ///
    /// # Panics
    /// If the version is not served.
    #[must_use]
    pub fn encode(&self, version: i16, correlation_id: i32) -> Vec<Bytes> {
        self.encode_noting_errors(version, correlation_id).0
    }

    /// As [`Response::encode`], and the errors that the client is told.
    #[must_use]
    pub(crate) fn encode_noting_errors(
        &self,
        version: i16,
        correlation_id: i32,
    ) -> (Vec<Bytes>, Vec<ErrorCode>) {
        let api = self.api();
        assert!(api.served().contains(&version), "{api:?} is served in {version}");
        let mut to = Writer::of_a_frame();
        correlation_id.write(&mut to);
        to.lay_out(api.layout(version));
        if api != Api::ApiVersions {
            to.no_tags();
        }
        self.write(&mut to);
        let errors = to.take_errors();
        (to.frame(), errors)
    }
}

impl Header {
    /// Reads it, and leaves `from` in the layout of the message.
    fn read(from: &mut Reader) -> Result<Self, Refused> {
        let key = i16::read(from).map_err(Refused::Header)?;
        let version = i16::read(from).map_err(Refused::Header)?;
        let correlation_id = i32::read(from).map_err(Refused::Header)?;
        let api = match Api::with_key(key) {
            Some(api) if api.served().contains(&version) => api,
            Some(Api::ApiVersions) => return Err(Refused::Negotiate { version, correlation_id }),
            _ => return Err(Refused::Unserved { key, version }),
        };
        let client_id = Option::read(from).map_err(Refused::Header)?;
        from.lay_out(api.layout(version));
        from.skip_tags().map_err(Refused::Header)?;
        Ok(Self { api, version, correlation_id, client_id })
    }

    /// Writes it, and leaves `to` in the layout of the message.
    fn write(&self, to: &mut Writer) {
        let Self { api, version, .. } = *self;
        assert!(api.served().contains(&version), "{api:?} is served in {version}");
        api.key().write(to);
        version.write(to);
        self.correlation_id.write(to);
        self.client_id.write(to);
        to.lay_out(api.layout(version));
        to.no_tags();
    }
}
