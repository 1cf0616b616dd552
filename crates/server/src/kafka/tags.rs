//! [`Tags`]: the fields that a message may have beside those that its version has.

use bytes::Bytes;

use super::wire::{Layout, Wire, Writer};

/// The fields of a struct that stand behind the others, each with a number and a length, so that who
/// does not know one passes over it. One that says nothing is left out.
#[derive(Debug)]
pub(super) struct Tags {
    pub(super) fields: Vec<(u32, Bytes)>,
    layout: Layout,
}

impl Tags {
    /// None yet.
    pub(super) const fn of(layout: Layout) -> Self {
        Self { fields: Vec::new(), layout }
    }

    /// Has this field, if it says something.
    pub(super) fn note<T: Wire + PartialEq>(&mut self, tag: u32, field: &T, absent: &T) {
        if field != absent {
            let mut to = Writer::new(self.layout);
            field.write(&mut to);
            self.fields.push((tag, to.into_bytes()));
        }
    }

    /// The field with this tag, if it says something.
    #[cfg(test)]
    pub(super) fn value(&self, tag: Option<u32>) -> Option<&(u32, Bytes)> {
        self.fields.iter().find(|(of, _)| Some(*of) == tag)
    }
}
