//! [`Shared`]: what the logs of a crew have in common.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_sync::Dir;

use super::budget::Budget;
use super::pool::Pool;
use crate::error::Result;
use crate::files::opened::Recent;
use crate::files::place::{Known, Place};
use crate::files::spares::Sizes;
use crate::shim::{Mutex, lock};

/// Size of the first segment of a log in a crew.
const FIRST_SEGMENT_BYTES: u64 = 256 << 10;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) pool: Pool,
    pub(crate) budget: Arc<Budget>,
    /// Segments that readers had open last.
    pub(crate) recent: Arc<Recent>,
    /// What was found out of each device.
    devices: Mutex<HashMap<(u64, bool), Known>>,
}

impl Shared {
    pub(super) fn new(pool: Pool, budget: Budget) -> Self {
        Self { pool, budget: Arc::new(budget), recent: Arc::default(), devices: Mutex::default() }
    }

    /// How segments of a log begin.
    pub(crate) fn sizes(full: u64) -> Sizes {
        Sizes { first: FIRST_SEGMENT_BYTES.min(full), full }
    }

    /// What works in a directory, found out once for each device.
    pub(crate) fn place(&self, dir: Arc<dyn Dir>, direct: bool) -> Result<Place> {
        let Some(device) = dir.device() else { return Place::probe(dir, direct) };
        let known = lock(&self.devices).get(&(device, direct)).copied();
        if let Some(known) = known {
            return Ok(Place::known(dir, known));
        }
        let place = Place::probe(dir, direct)?;
        lock(&self.devices).insert((device, direct), place.what_works());
        Ok(place)
    }
}
