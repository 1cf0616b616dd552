//! [`Roster`]: where nodes are, which incarnation of each was seen, and its connections. No I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::intake::Intake;
use super::judge::Reason;
use super::outbox::Remains;
use super::session::Session;
use super::{Peer, Priority};

#[derive(Debug, Default)]
pub(super) struct Roster {
    nodes: BTreeMap<u64, Known>,
}

/// What is known of a node. It stays when its address goes: an old incarnation is refused for ever.
#[derive(Debug, Default)]
struct Known {
    address: Option<String>,
    /// The highest incarnation that connected.
    seen: Option<u64>,
    sessions: [Option<Arc<Session>>; 2],
    intakes: [Arc<Intake>; 2],
}

/// What a change of addresses comes to.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// Nodes that are somewhere else now, or nowhere.
    pub(super) left: Vec<u64>,
    /// Nodes that are somewhere new.
    pub(super) came: Vec<(u64, String)>,
    /// Of connections that ended.
    pub(super) remains: Vec<Remains>,
}

impl Roster {
    /// Replaces what is known of where nodes are, and ends the connections of those that are not there.
    pub(super) fn set_addresses(&mut self, mut addresses: BTreeMap<u64, String>) -> Moved {
        let mut moved = Moved::default();
        for (node, known) in &mut self.nodes {
            let now = addresses.remove(node);
            if known.address == now {
                continue;
            }
            if known.address.is_some() {
                moved.left.push(*node);
                moved.remains.extend(known.end(|_| true));
            }
            moved.came.extend(now.clone().map(|address| (*node, address)));
            known.address = now;
        }
        for (node, address) in addresses {
            moved.came.push((node, address.clone()));
            self.nodes.insert(node, Known { address: Some(address), ..Known::default() });
        }
        moved
    }

    /// Whether this peer may connect.
    pub(super) fn admit(&self, peer: Peer) -> Result<(), Reason> {
        let known = self.nodes.get(&peer.node).filter(|known| known.address.is_some());
        let known = known.ok_or(Reason::Unknown)?;
        match known.seen {
            Some(seen) if seen > peer.incarnation => Err(Reason::OldIncarnation),
            _ => Ok(()),
        }
    }

    /// A connection was agreed on. It takes the place of the one before it, and those of earlier
    /// incarnations end. What is left of these is to be dropped outside of any lock.
    pub(super) fn install(&mut self, session: &Arc<Session>) -> Result<Vec<Remains>, Reason> {
        let peer = session.peer;
        self.admit(peer)?;
        let known = self.nodes.entry(peer.node).or_default();
        known.seen = Some(peer.incarnation);
        let is_before = |other: &Session| {
            other.peer.incarnation < peer.incarnation || other.priority == session.priority
        };
        let remains = known.end(is_before);
        known.sessions[session.priority.place()] = Some(Arc::clone(session));
        Ok(remains)
    }

    /// A connection is no more.
    pub(super) fn remove(&mut self, session: &Arc<Session>) {
        let Some(known) = self.nodes.get_mut(&session.peer.node) else { return };
        known.sessions[session.priority.place()].take_if(|now| Arc::ptr_eq(now, session));
    }

    pub(super) fn session(&self, node: u64, priority: Priority) -> Option<&Arc<Session>> {
        self.nodes.get(&node)?.sessions[priority.place()].as_ref()
    }

    pub(super) fn is_connected(&self, node: u64) -> bool {
        self.nodes.get(&node).is_some_and(Known::is_connected)
    }

    /// Where a node is to be found that is not connected.
    pub(super) fn address_of_absent(&self, node: u64) -> Option<String> {
        self.nodes.get(&node).filter(|known| !known.is_connected())?.address.clone()
    }

    pub(super) fn intake(&self, node: u64, priority: Priority) -> Option<Arc<Intake>> {
        Some(Arc::clone(&self.nodes.get(&node)?.intakes[priority.place()]))
    }

    /// All connections, by node.
    pub(super) fn sessions(&self) -> impl Iterator<Item = &Arc<Session>> {
        self.nodes.values().flat_map(|known| known.sessions.iter().flatten())
    }

    /// Ends all connections.
    pub(super) fn end(&mut self) -> Vec<Remains> {
        self.nodes.values_mut().flat_map(|known| known.end(|_| true)).collect()
    }
}

impl Known {
    fn is_connected(&self) -> bool {
        self.sessions.iter().any(Option::is_some)
    }

    fn end(&mut self, which: impl Fn(&Session) -> bool) -> Vec<Remains> {
        let ended = self.sessions.iter_mut().filter_map(|session| session.take_if(|s| which(s)));
        ended.map(|session| session.end()).collect()
    }
}
