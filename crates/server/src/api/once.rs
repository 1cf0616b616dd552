//! [`once`]: what a request says twice is answered once.
//!
//! Few bytes ask for many: a name for all partitions of a topic, or all settings. Said a million times in one
//! request they would have an answer without bound.

use std::collections::HashSet;
use std::hash::Hash;

/// All, in their order, of those with equal keys the first.
pub(super) fn once<T, Key: Eq + Hash>(
    said: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> Key,
) -> Vec<T> {
    let mut seen = HashSet::new();
    said.into_iter().filter(|one| seen.insert(key(one))).collect()
}
