//! When a replica begins to campaign whose log ends before that which its group goes on with.

use std::sync::{Arc, Weak};

use super::apply::Apply;
use super::standing::Standing;
use super::state::Engine;
use super::storage::Storage;

/// Has a replica campaign once it has been given what a leader must have: before, its log was shorter than that.
pub(super) async fn wait_to_campaign<S: Apply>(
    engine: Engine<S>,
    storage: Weak<Storage>,
    standing: Arc<Standing>,
) {
    let mut told = engine.metrics();
    loop {
        drop(told.borrow_and_update());
        let Some(now) = storage.upgrade() else { return };
        if standing.may_lead(now.tail().last()) {
            // Who has lost some of its log campaigns once that is healed.
            engine.runtime_config().elect(now.is_whole() && !now.disk.has_failed());
            return;
        }
        drop(now);
        if told.changed().await.is_err() {
            return;
        }
    }
}
