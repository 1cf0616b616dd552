//! [`LogCopy`]: the log of a group, copied into another directory while a node may be adding to it.
//!
//! Entries are read as files have them, each checked, and appended to a log of its own. So the copy says nothing of
//! itself that does not hold: what it calls durable is durable there, and no ring is named in it. It begins at an index
//! that the caller chose, and goes on where it ended as often as it is asked to: what the log lets go of meanwhile, behind
//! what is copied, does not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::sync::Arc;

use openraft::entry::RaftEntry;
use openraft::{BasicNode, EntryPayload};
use plimsoll_log::{Ack, Log, Options, Policy, SegmentState, View};
use plimsoll_sync::{Dir, SyncMethod};
use twox_hash::XxHash3_64;

use super::error::{Error, Result};
use super::identity::{self, IDENTITY};
use super::place::Place;
use super::record::{self, from_log, to_log};
use super::slot::Identity;
use super::types::{Entry, Members, Payload, Vote, log_id};
use crate::whole;

/// How often an identity that is being written is read.
const READS_MAX: u32 = 100;
/// What the copy of a log is opened with.
const RING_BYTES: u64 = 8 << 20;
const RING_BYTES_MAX: u64 = 512 << 20;
/// Of a copy as long as `LONG_BYTES` segments are larger: where one ends the disk is waited for.
const SEGMENT_BYTES: (u64, u64) = (4 << 20, 8 << 20);
const LONG_BYTES: u64 = 32 << 20;
/// More than the head of a frame.
const FRAME_ROOM: u64 = 4096;

impl Identity {
    /// The identity in a directory that a node may have open, if there is one. Changes nothing.
    pub fn look(dir: &dyn Dir) -> Result<Option<Self>> {
        let mut reads_left = READS_MAX;
        loop {
            let file = match dir.open(IDENTITY, SyncMethod::ORDINARY.access()) {
                Ok(file) => file,
                Err(why) if why.kind() == Some(std::io::ErrorKind::NotFound) => return Ok(None),
                Err(why) => return Err(why.into()),
            };
            match identity::read(&*file) {
                // One slot may be half written while it is read, and then the other.
                Err(Error::IdentityLost { .. }) if reads_left > 0 => reads_left -= 1,
                read => return read.map(|(_, identity, _)| Some(identity)),
            }
        }
    }

    /// Writes it into a directory that has none. Durable on return, in both slots.
    pub(crate) fn write(&self, dir: &dyn Dir) -> Result<()> {
        whole::create(dir, IDENTITY, |file| identity::write(file, 1, self))?;
        Ok(())
    }

    /// Says of the replica of another node that its log is a copy of this one's. What that voted stays, unless this one
    /// knows a later term: of that it follows the leader, or none if there is none. Durable on return, in both slots.
    pub fn hand_on(&self, dir: &dyn Dir, node: u64) -> Result<()> {
        let term = |vote: Option<Vote>| vote.map(|vote| vote.leader_id.term);
        let known = self.vote.map(|vote| match vote.committed {
            true => vote,
            false => Vote::new(vote.leader_id.term, node),
        });
        identity::IdentityFile::open(dir, node, true)?.save(|own| {
            own.purged = self.purged;
            own.generation = own.generation.max(self.generation);
            if term(known) > term(own.vote) {
                own.vote = known;
            }
        })
    }

    /// The first index that the log still has to have.
    pub(crate) fn needs_from(&self) -> u64 {
        self.purged.as_ref().map_or(1, |purged| to_log(purged.index) + 1)
    }
}

/// The last record that the files of a log have, be it durable or not; 0 if there is none.
pub(crate) fn end_of(dir: &Arc<dyn Dir>) -> Result<u64> {
    let mut end = 0;
    for segment in View::of(Arc::clone(dir))?.outline()? {
        match segment.state {
            SegmentState::Corrupt(why) => {
                return Err(plimsoll_log::Error::Corrupt(Box::new(why)).into());
            }
            SegmentState::Stale => {}
            _ => end = end.max(segment.last_index),
        }
    }
    Ok(end)
}

/// The log of a group that is being copied.
pub(crate) struct LogCopy {
    from: Arc<dyn Dir>,
    to: Arc<dyn Dir>,
    /// Always there, but while it is opened with a larger ring.
    log: Option<Log>,
    ring_bytes: u64,
    segment_bytes: u64,
    first: u64,
    last: u64,
    bytes: u64,
    hash: XxHash3_64,
    /// The term of its last entry; 0: it has none.
    term: u64,
    /// Who votes by its last entry that says so.
    members: Option<Members>,
}

/// Who votes by a log that was copied, and in which term it ends.
#[derive(Debug, Default)]
pub(crate) struct Voters {
    term: u64,
    members: Option<Members>,
}

/// What was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Where the log begins.
    pub(crate) first: u64,
    /// Its last record; one less than the first if it has none.
    pub(crate) last: u64,
    /// Bytes of its records.
    pub(crate) bytes: u64,
    /// Of all records, with their indexes.
    pub(crate) hash: u64,
}

impl LogCopy {
    /// Begins a copy with the record `first`, in a directory that has no log.
    pub(crate) fn begin(from: Arc<dyn Dir>, to: Arc<dyn Dir>, first: u64) -> Result<Self> {
        let (ring_bytes, segment_bytes) = (RING_BYTES, SEGMENT_BYTES.0);
        let log = Some(open(&to, first, ring_bytes, segment_bytes)?);
        let (last, hash) = (first - 1, XxHash3_64::new());
        let (bytes, term, members) = (0, 0, None);
        Ok(Self {
            from,
            to,
            log,
            ring_bytes,
            segment_bytes,
            first,
            last,
            bytes,
            hash,
            term,
            members,
        })
    }

    /// The last record that is copied.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Copies what follows, up to this record, or to where the files end by now; `see` is shown what each entry carries and
    /// how long its record is, and says whether to go on. Not durable on return.
    ///
    /// # Errors
    /// [`Error::Log`] with `OutOfRange`: the log has let go of what is next. [`Error::NotAnEntry`], or corruption: the log
    /// that is copied is damaged.
    pub(crate) fn catch_up(
        &mut self,
        end: u64,
        mut see: impl FnMut(Option<&[u8]>, u64) -> bool,
    ) -> Result<()> {
        if self.last >= end {
            return Ok(());
        }
        let mut reader = View::of(Arc::clone(&self.from))?.read_from(self.last + 1)?;
        while self.last < end {
            let Some(found) = reader.next_record()? else { break };
            let (index, bytes) = (found.index, found.payload.len() as u64);
            let entry = record::decode(index - 1, found.payload)
                .map_err(|source| Error::NotAnEntry { index: index - 1, source })?;
            self.term = entry.log_id.leader_id.term;
            let payload = match entry.payload {
                EntryPayload::Normal(Payload(payload)) => Some(payload),
                EntryPayload::Membership(members) => {
                    self.members = Some(members);
                    None
                }
                EntryPayload::Blank => None,
            };
            self.make_room(bytes)?;
            let appended = self.log().append_with(found.payload, Ack::Buffered)?;
            assert_eq!(appended, index, "a copy has the indexes of its log");
            for part in [&index.to_le_bytes()[..], &bytes.to_le_bytes(), found.payload] {
                self.hash.write(part);
            }
            self.last = index;
            self.bytes += bytes;
            if !see(payload.as_deref(), bytes) {
                break;
            }
        }
        Ok(())
    }

    /// The term of its last entry; 0: it has none.
    pub(crate) fn term(&self) -> u64 {
        self.term
    }

    /// Who votes by what is copied, and in which term that ends.
    pub(crate) fn voters(&self) -> Voters {
        Voters { term: self.term, members: self.members.clone() }
    }

    /// Ends the log in order. It is durable on return.
    pub(crate) fn finish(self) -> Result<Copied> {
        let Self { log, first, last, bytes, hash, .. } = self;
        log.expect("it is there").close()?;
        Ok(Copied { first, last, bytes, hash: hash.finish() })
    }

    fn log(&self) -> &Log {
        self.log.as_ref().expect("it is there")
    }

    /// Opens the copy with a larger ring, where a record of so many bytes needs one, and with larger segments, where it is long.
    fn make_room(&mut self, bytes: u64) -> Result<()> {
        let (mut ring_bytes, mut segment_bytes) = (self.ring_bytes, self.segment_bytes);
        if bytes > self.log().max_record_bytes() && ring_bytes < RING_BYTES_MAX {
            // A record may have half of the ring.
            let wanted = (2 * (bytes + FRAME_ROOM)).next_power_of_two();
            ring_bytes = wanted.clamp(2 * ring_bytes, RING_BYTES_MAX);
        }
        if self.bytes >= LONG_BYTES {
            segment_bytes = SEGMENT_BYTES.1;
        }
        if (ring_bytes, segment_bytes) == (self.ring_bytes, self.segment_bytes) {
            return Ok(());
        }
        (self.ring_bytes, self.segment_bytes) = (ring_bytes, segment_bytes);
        if let Some(log) = self.log.take() {
            log.close()?;
        }
        self.log = Some(open(&self.to, self.first, ring_bytes, segment_bytes)?);
        Ok(())
    }
}

impl Identity {
    /// Whether the replica of a node is a cluster by itself: nobody else votes, or is to.
    pub(crate) fn is_alone(&self, node: u64, voters: &Voters, place: Option<&Place>) -> bool {
        let members = voters.members.as_ref().or(place.map(|place| place.members.membership()));
        // Where nothing says who votes it has not begun.
        self.node == node
            && members.is_none_or(|members| members.nodes().map(|(id, _)| *id).eq([node]))
    }

    /// Has a replica that was copied, and nobody uses, go on as the only one of its group, of this node: an entry behind its
    /// log says so, in a term that nobody has voted in. Durable on return, but for the identity, which is changed.
    pub(crate) fn go_on_alone(
        &mut self,
        node: u64,
        voters: &Voters,
        place: Option<&Place>,
        dir: &Arc<dyn Dir>,
        copied: Copied,
    ) -> Result<()> {
        let terms = [
            self.vote.map(|vote| vote.leader_id.term),
            self.purged.map(|purged| purged.leader_id.term),
            place.map(|place| place.applied.leader_id.term),
        ];
        let term = terms.into_iter().flatten().fold(voters.term, u64::max) + 1;
        let alone = BTreeMap::from([(node, BasicNode::new(""))]);
        let members = Members::new(vec![BTreeSet::from([node])], alone);
        let members = members.expect("a voter is a node");
        let index = from_log(copied.last + 1).expect("it comes behind another, or is the first");
        let entry = Entry::new(log_id(term, index), EntryPayload::Membership(members));
        let mut bytes = Vec::new();
        record::encode(&entry, &mut bytes);
        let log = open(dir, copied.first, RING_BYTES, SEGMENT_BYTES.0)?;
        let appended = log.append_with(&bytes, Ack::Buffered)?;
        assert_eq!(appended, copied.last + 1, "it comes behind what was copied");
        log.close()?;
        (self.node, self.vote) = (node, Some(Vote::new(term, node)));
        Ok(())
    }
}

fn open(dir: &Arc<dyn Dir>, first_index: u64, ring_bytes: u64, segment_bytes: u64) -> Result<Log> {
    let options = Options {
        // Nobody waits for a record of it: it is durable at its end.
        policy: Policy::Never,
        segment_bytes,
        ring_bytes,
        first_index,
        // What is full is synced, and the next made ready, while more is read: three times as fast.
        threads: true,
        ..Options::default()
    };
    Ok(Log::open_in(Arc::clone(dir), options)?.0)
}
