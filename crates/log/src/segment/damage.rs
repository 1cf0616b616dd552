//! [`Damage`]: why bytes are not what they should be.

/// Why bytes are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Damage {
    /// The file is shorter than its header, or than it says.
    #[error("the file ends too early")]
    Short,
    /// No segment of ours begins so.
    #[error("no segment begins so (wrong magic)")]
    Magic,
    /// A version that this program does not know.
    #[error("format version {0} is not known here")]
    Version(u32),
    /// The checksum of the header is wrong.
    #[error("the checksum of the segment's header is wrong")]
    HeaderChecksum,
    /// A field of the header that cannot be.
    #[error("the segment's header names an impossible size")]
    HeaderField,
    /// A kind that does not exist.
    #[error("no frame has kind {0}")]
    FrameKind(u8),
    /// It would not fit in the segment.
    #[error("a frame of {0} bytes does not fit in the rest of the segment")]
    FrameLength(u32),
    /// The checksum of a frame is wrong.
    #[error("the checksum of the frame is wrong")]
    FrameChecksum,
    /// A valid frame whose payload or index cannot be.
    #[error("a {0} frame with impossible content")]
    Content(&'static str),
    /// A record whose index does not follow its predecessor's.
    #[error("a record whose index is not the next one")]
    Order,
    /// A valid segment of another log.
    #[error("the segment belongs to another log")]
    Foreign,
    /// A segment that should be there is not.
    #[error("a segment is missing")]
    Missing,
    /// Nothing was written where records should be.
    #[error("nothing is written where a record should be")]
    Empty,
    /// A batch whose last records are missing.
    #[error("a batch is incomplete")]
    Batch,
    /// A number that no log reaches.
    #[error("no log has a record {0}")]
    Index(u64),
}
