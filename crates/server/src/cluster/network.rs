//! [`Nobody`]: the network of a cluster of one. It has nobody to talk to, and says so: above all it
//! grants no pre-vote, which the engine's own default would.

use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use openraft::{AnyError, BasicNode, OptionalSend, RaftNetworkFactory, RaftNetworkV2};

use super::types::{Types, Vote};

/// No other node can be reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nobody;

fn unreachable() -> Unreachable<Types> {
    Unreachable::new(&AnyError::error("a cluster of one has nobody to talk to"))
}

impl RaftNetworkFactory<Types> for Nobody {
    type Network = Self;

    async fn new_client(&mut self, _: u64, _: &BasicNode) -> Self {
        Self
    }
}

impl RaftNetworkV2<Types> for Nobody {
    type SnapshotData = ();

    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        Err(unreachable().into())
    }

    async fn vote(
        &mut self,
        _: VoteRequest<Types>,
        _: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(unreachable().into())
    }

    async fn pre_vote(
        &mut self,
        _: VoteRequest<Types>,
        _: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _: Vote,
        _: SnapshotOf<Types, ()>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        Err(unreachable().into())
    }
}
