//! What the consensus engine notes its statistics in. They are kept nowhere: nobody asks for them here.
//!
//! It takes the place of the library of the same name (`[patch.crates-io]` in the workspace's `Cargo.toml`), which at its first
//! use makes the tables of all sixteen precisions that it knows, 25 MiB of a broker's memory, and the engine uses one of them
//! (decision 0043). It has what the engine names, and nothing else.

use std::fmt;
use std::marker::PhantomData;

/// How often which value was noted: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Histogram<T = ()>(PhantomData<T>);

impl<T> Histogram<T> {
    /// One in which nothing was noted.
    #[must_use]
    pub const fn new() -> Self {
        Self(PhantomData)
    }

    /// Notes nothing.
    pub const fn record(&mut self, _value: u64) {}

    /// Notes nothing, so often.
    pub const fn record_n(&mut self, _value: u64, _count: u64) {}

    /// Of no samples at all.
    #[must_use]
    pub const fn percentile_stats(&self) -> PercentileStats {
        PercentileStats { samples: 0, p50: 0, p90: 0, p99: 0, p99_9: 0 }
    }
}

impl<T> Default for Histogram<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// What would be said of values that were noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PercentileStats {
    /// How many there were.
    pub samples: u64,
    /// The median.
    pub p50: u64,
    /// Of ten, nine are at most this.
    pub p90: u64,
    /// Of a hundred, 99.
    pub p99: u64,
    /// Of a thousand, 999.
    pub p99_9: u64,
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no statistics are kept")
    }
}

/// What would be drawn of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct AsciiChart;

impl AsciiChart {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }

    /// The same.
    #[must_use]
    pub fn add<T>(self, _name: &str, _of: Histogram<T>) -> Self {
        self
    }
}

impl fmt::Display for AsciiChart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no statistics are kept")
    }
}
