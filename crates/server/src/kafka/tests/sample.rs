//! Values drawn with dice, and shown beside their bytes.

use std::fmt::Write as _;

use bytes::Bytes;

use crate::kafka::error::ErrorCode;
use crate::kafka::tags::Tags;
use crate::kafka::value::{Gathered, Uuid};
use crate::kafka::wire::{Layout, Wire, Writer};

/// Bytes that decide what is drawn. When they are used up, all that is drawn is zero, empty or
/// none.
#[derive(Debug)]
pub(in crate::kafka) struct Dice<'a> {
    pub(in crate::kafka) layout: Layout,
    bytes: std::slice::Iter<'a, u8>,
}

impl<'a> Dice<'a> {
    pub(super) fn new(layout: Layout, bytes: &'a [u8]) -> Self {
        Self { layout, bytes: bytes.iter() }
    }

    fn roll(&mut self) -> u8 {
        self.bytes.next().copied().unwrap_or(0)
    }

    fn mostly(&mut self) -> bool {
        !self.roll().is_multiple_of(4)
    }

    fn number<const N: usize>(&mut self) -> [u8; N] {
        match self.roll() % 8 {
            0 => [0; N],
            1 => [0xff; N],
            2 | 3 => std::array::from_fn(|place| if place == 0 { self.roll() } else { 0 }),
            _ => std::array::from_fn(|_| self.roll()),
        }
    }

    fn bytes(&mut self) -> Bytes {
        let length = match self.roll() {
            long @ 250.. => usize::from(long) * 3,
            other => usize::from(other % 7),
        };
        (0..length).map(|_| self.roll()).collect()
    }
}

pub(in crate::kafka) trait Sample: Wire {
    fn sample(dice: &mut Dice<'_>) -> Self;

    /// Its bytes and what they say, a line for each value.
    fn show(&self, name: &str, lines: &mut Lines);
}

#[derive(Debug)]
pub(in crate::kafka) struct Lines {
    pub(in crate::kafka) layout: Layout,
    pub(super) text: String,
    depth: usize,
}

impl Lines {
    pub(super) fn new(layout: Layout) -> Self {
        Self { layout, text: String::new(), depth: 0 }
    }

    pub(super) fn line(&mut self, bytes: &[u8], says: &str) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let indent = 2 * self.depth;
        writeln!(self.text, "{hex:<24} | {:indent$}{says}", "").unwrap();
    }

    /// The fields of a struct follow.
    pub(in crate::kafka) fn begin(&mut self, name: &str) {
        self.line(&[], name);
        self.depth += 1;
    }

    /// They are told.
    pub(in crate::kafka) fn end(&mut self) {
        self.depth -= 1;
    }

    /// How many tags follow.
    pub(in crate::kafka) fn tags(&mut self, tags: &Tags) {
        if self.layout.flexible {
            let count = tags.fields.len();
            self.line(&[u8::try_from(count).unwrap()], &format!("tags: {count}"));
        }
    }

    /// The field with this tag follows.
    pub(in crate::kafka) fn tag(&mut self, (tag, value): &(u32, Bytes)) {
        let length = u32::try_from(value.len()).unwrap();
        let varint = |value: u32| -> Vec<u8> {
            let low = value.to_le_bytes()[0];
            if value < 0x80 { vec![low] } else { vec![low | 0x80, (value >> 7).to_le_bytes()[0]] }
        };
        self.line(&[varint(*tag), varint(length)].concat(), &format!("tag {tag}: {length} bytes"));
    }

    fn value<T: Wire>(&mut self, value: &T, name: &str, says: &str) {
        let bytes = bytes_of(value, self.layout);
        self.line(&bytes, &format!("{name}: {says}"));
    }
}

fn bytes_of<T: Wire>(value: &T, layout: Layout) -> Bytes {
    let mut to = Writer::new(layout);
    value.write(&mut to);
    super::joined(&to.pieces())
}

macro_rules! leaves {
    ($($type:ty: |$dice:ident| $draw:expr;)+) => {$(
        impl Sample for $type {
            fn sample($dice: &mut Dice<'_>) -> Self {
                $draw
            }

            fn show(&self, name: &str, lines: &mut Lines) {
                lines.value(self, name, &format!("{self:?}"));
            }
        }
    )+};
}

leaves! {
    bool: |dice| dice.roll() % 2 == 1;
    i8: |dice| Self::from_le_bytes(dice.number());
    i16: |dice| Self::from_le_bytes(dice.number());
    i32: |dice| Self::from_le_bytes(dice.number());
    i64: |dice| Self::from_le_bytes(dice.number());
    ErrorCode: |dice| i16::from(dice.roll() % 100).into();
    Uuid: |dice| Self(dice.number());
    Bytes: |dice| dice.bytes();
    Option<Bytes>: |dice| dice.mostly().then(|| Bytes::sample(dice));
    String: |dice| dice.bytes().iter().map(|byte| legible(*byte)).collect();
    Option<String>: |dice| dice.mostly().then(|| String::sample(dice));
}

/// A character; above 127 one of two bytes.
fn legible(byte: u8) -> char {
    char::from(if byte.is_ascii_control() { byte % 32 + b'A' } else { byte })
}

impl Sample for Gathered {
    fn sample(dice: &mut Dice<'_>) -> Self {
        let pieces = (0..dice.roll() % 3).map(|_| Bytes::sample(dice));
        Self(pieces.filter(|piece| !piece.is_empty()).collect())
    }

    fn show(&self, name: &str, lines: &mut Lines) {
        lines.value(self, name, &format!("{:?}", super::joined(&self.0)));
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(dice: &mut Dice<'_>) -> Self {
        (0..dice.roll() % 4).map(|_| T::sample(dice)).collect()
    }

    fn show(&self, name: &str, lines: &mut Lines) {
        let items: usize = self.iter().map(|item| bytes_of(item, lines.layout).len()).sum();
        let bytes = bytes_of(self, lines.layout);
        lines.line(&bytes[..bytes.len() - items], &format!("{name}: {} of", self.len()));
        lines.depth += 1;
        for item in self {
            item.show("-", lines);
        }
        lines.depth -= 1;
    }
}

impl<T: Sample> Sample for Option<Vec<T>> {
    fn sample(dice: &mut Dice<'_>) -> Self {
        dice.mostly().then(|| Vec::sample(dice))
    }

    fn show(&self, name: &str, lines: &mut Lines) {
        match self {
            Some(items) => items.show(name, lines),
            None => lines.value(self, name, "none"),
        }
    }
}
