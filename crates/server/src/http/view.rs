//! [`View`]: what is looked at.

use std::sync::Arc;

use tokio::sync::watch;

use super::history::History;
use crate::broker::Node;
use crate::net::Counters;

/// A node, seen from outside.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) node: Arc<Node>,
    pub(super) counters: Arc<Counters>,
    pub(super) history: Arc<History>,
    pub(super) stop: watch::Receiver<bool>,
}
