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

impl Writer {
    /// Ends a struct that has no tags to tell.
    pub(super) fn no_tags(&mut self) {
        self.tags(&Tags::of(self.layout()));
    }

    /// Ends a struct.
    pub(super) fn tags(&mut self, tags: &Tags) {
        if !self.layout().flexible {
            return;
        }
        self.varint(u32::try_from(tags.fields.len()).expect("a struct has few tags"));
        for (tag, value) in &tags.fields {
            self.varint(*tag);
            self.varint(u32::try_from(value.len()).expect("a frame has room for it"));
            self.copy(value);
        }
    }
}
