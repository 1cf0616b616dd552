//! [`Recovered`]: the log of a group as it was found, before the engine adds to it.

use std::sync::Arc;

use plimsoll_log::{Ack, Recovery};
use plimsoll_sync::Dir;
use tokio::sync::watch;

use super::apply::Apply;
use super::core::Core;
use super::error::{Error, Result};
use super::group::Group;
use super::options::Options;
use super::place::Place;
use super::state::{Progress, State};
use super::storage::Storage;

/// A group that is open and has not begun. What its log has says what the run before left; the first entry of
/// a leadership hides where that ended.
#[derive(Debug)]
pub struct Recovered {
    node: u64,
    start: Option<Place>,
    storage: Storage,
    recovery: Recovery,
}

impl Recovered {
    /// Opens what is in the directory.
    ///
    /// # Errors
    /// As [`Group::open`], but for [`Error::MembersLost`].
    pub fn open(dir: &Arc<dyn Dir>, options: Options) -> Result<Self> {
        let (node, start) = (options.node, options.start.clone());
        let (storage, recovery) = Storage::open(dir, options)?;
        // What is to be applied is there.
        storage.check_has(start.as_ref().map_or(0, |start| start.index().saturating_add(1)))?;
        Ok(Self { node, start, storage, recovery })
    }

    /// What was found.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Waits until all that was found is durable, and asks for that.
    ///
    /// # Errors
    /// [`Error::Log`].
    pub async fn wait_durable(&self) -> Result<()> {
        let log = &self.storage.log;
        if log.last_index() > log.durable() {
            log.wait(log.last_index(), Ack::Durable)?.await?;
        }
        Ok(())
    }

    /// As [`Group::lacks_room`].
    #[must_use]
    pub fn lacks_room(&self) -> Option<Error> {
        self.storage.lacks_room()
    }

    /// Begins, with a state to apply entries to.
    ///
    /// # Errors
    /// [`Error::MembersLost`], [`Error::Stopped`], [`Error::Thread`].
    pub fn start<S: Apply>(self, state: S) -> Result<Group<S>> {
        let Self { node, start, storage, .. } = self;
        let storage = Arc::new(storage);
        let (sender, progress) = watch::channel(Progress::default());
        let state = State::new(state, start, sender);
        let (core, engine) = Core::start(node, Arc::clone(&storage), state)?;
        Ok(Group { engine, storage, progress, core })
    }
}

impl<S: Apply> Group<S> {
    /// Opens the group in a directory, or founds one there with this node as its only voter. What
    /// the log's files had is durable on return; it is applied once this replica leads again, in a new
    /// term, or follows.
    ///
    /// # Errors
    /// [`Error::IdentityLost`], [`Error::OtherNode`], [`Error::Version`], [`Error::Gap`],
    /// [`Error::NotAnEntry`], [`Error::MembersLost`]: it cannot be used as it is; at most a torn tail of the log was cut
    /// off. [`Error::Log`] as of opening a log.
    pub fn open(dir: &Arc<dyn Dir>, options: Options, state: S) -> Result<(Self, Recovery)> {
        let recovered = Recovered::open(dir, options)?;
        let recovery = recovered.recovery().clone();
        Ok((recovered.start(state)?, recovery))
    }
}
