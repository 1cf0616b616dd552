//! Values of more than one field that no table makes: [`Gathered`] bytes, and a [`Uuid`].

use bytes::Bytes;

use super::wire::{Layout, Malformed, Reader, Wire, Writer};

/// Bytes that lie in several places and are one value on the wire, such as the batches of a fetch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gathered(pub Vec<Bytes>);

impl Gathered {
    /// How many bytes that is.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }
}

impl Wire for Gathered {
    fn least_bytes(layout: Layout) -> usize {
        Bytes::least_bytes(layout)
    }

    /// One piece; none if there are no bytes, or null.
    fn read(from: &mut Reader) -> Result<Self, Malformed> {
        let bytes = Option::<Bytes>::read(from)?.unwrap_or_default();
        Ok(Self(if bytes.is_empty() { Vec::new() } else { vec![bytes] }))
    }

    fn write(&self, to: &mut Writer) {
        to.count(Some(self.bytes()));
        for piece in &self.0 {
            to.splice(piece.clone());
        }
    }
}

/// Names a topic for as long as it lives; all zeros where it is not said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// None is said.
    pub const ZERO: Self = Self([0; 16]);
}

impl Wire for Uuid {
    fn least_bytes(_: Layout) -> usize {
        size_of::<Self>()
    }

    fn read(from: &mut Reader) -> Result<Self, Malformed> {
        from.array().map(Self)
    }

    fn write(&self, to: &mut Writer) {
        to.copy(&self.0);
    }
}
