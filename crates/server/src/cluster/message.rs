//! What replicas of a group say to each other, as bytes.
//!
//! ```text
//!  byte offset  bytes
//!            0      1  version: 1
//!            1      1  kind, see below
//!            2      …  its fields
//!
//!  request             fields
//!  1 append            vote · log id before · log id committed · u32 count · entries
//!  2 vote              vote · last log id · u8 1: the leader asked for it
//!  3 pre-vote          the same
//!  4 re-enter          the vote of whoever asks
//!  5 durable           vote of the leader · its last log id · u64 1 + D, 0 none · u8 1: sync now
//!  6 take over         vote of the leader · id of the node · last log id
//!  7 gone              log id: all up to it is not in the leader's log any more
//!  8 greet             nothing: whoever asks has nothing
//!  9 give              u64 first · u64 behind the last · log id that whoever asks has behind them, or as the last
//!
//!  answer              fields
//!  1 appended          u8 0 · or 1, log id up to which · or 2 conflict · or 3, a higher vote
//!  2 voted             vote · last log id · u8 1: granted
//!  4 re-enter          vote of the leader · its last log id
//!  5 durable           u64 1 + index through which the leader's log is durable here, 0 none ·
//!                      u8 1: this replica votes · 2: its disk has no room for records · 3 both
//!  6 taken             nothing
//!  7 gone              u8 1: all up to there is here · 0: it is not, and this replica must be seeded
//!  8 greet             u8 0: it is not known · 1: this leader does not know it as a voter · 2: it votes
//!  9 given             u64 index of the first · u32 count · entries; none where its log is another, or damaged there
//!  10 let go           u64 index up to which nothing is in the log any more
//!  255 refused         u8 why: 1 it does not vote, 2 it does not lead, 3 it cannot be read,
//!                      4 the engine refused or has stopped, 5 of an incarnation that has ended,
//!                      6 it has nothing, and does not know yet whether it is new, 7 it is of another generation,
//!                      8 its disk has failed, 9 its disk has no room for records
//!
//!  vote                u64 term · u64 node · u8 1: a quorum granted it
//!  log id              u8 0 none, 1 · u64 term · u64 index
//!  entry               u32 bytes · the record of the log, see `record`
//! ```
//!
//! Little-endian, nothing behind it. Payloads are sent and taken as they lie in memory, without a
//! copy, but for small ones.

use bytes::Bytes;
use openraft::EntryPayload;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, VoteRequest, VoteResponse,
};

use super::record;
use super::types::{Entry, LeaderId, LogId, Payload, Types, Vote, log_id};
use crate::cursor::{Cursor, Malformed};

const VERSION: u8 = 1;
const APPEND: u8 = 1;
const VOTE: u8 = 2;
const PRE_VOTE: u8 = 3;
const RE_ENTER: u8 = 4;
const DURABLE: u8 = 5;
const TAKE_OVER: u8 = 6;
const GONE: u8 = 7;
const GREET: u8 = 8;
const GIVE: u8 = 9;
const LET_GO: u8 = 10;
const REFUSED: u8 = 255;

/// A payload below this is copied: a piece of its own costs more.
const PIECE_BYTES_MIN: usize = 1 << 10;

/// What is asked of a replica.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<Types>),
    PreVote(VoteRequest<Types>),
    /// How far must I come, whose vote is this, before I may vote again?
    ReEnter(Vote),
    Durable(AskDurable),
    TakeOver(TransferLeaderRequest<Types>),
    /// All up to this entry is not in my log any more: do you have it?
    Gone(LogId),
    /// I have nothing: do I vote?
    Greet,
    /// These entries of my log are damaged: give them to me, if you have what follows them.
    Give(AskEntries),
}

/// How far is my log durable with you?
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AskDurable {
    /// Of the leader that asks.
    pub(crate) vote: Vote,
    /// The last entry of its log, of its own term.
    pub(crate) last: LogId,
    /// D, as it knows it.
    pub(crate) durable: Option<u64>,
    /// Answer once it is durable, and have it so.
    pub(crate) syncs: bool,
}

/// Which entries are damaged?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AskEntries {
    pub(crate) first: u64,
    /// Behind the last.
    pub(crate) end: u64,
    /// An entry of the log of whoever asks: the last of them, or behind them.
    pub(crate) proof: LogId,
}

/// What a replica answers.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Appended(AppendEntriesResponse<Types>),
    Voted(VoteResponse<Types>),
    /// The leader's vote and the last entry of its log.
    ReEnter(Vote, Option<LogId>),
    /// The entry of the leader's log up to which all is durable here; how this replica is.
    Durable(Option<u64>, Fitness),
    Taken,
    /// Whether all that the leader has let go of is here.
    Gone(bool),
    Greet(Greeting),
    /// Some of the entries that were asked for, from the first on.
    Given(Vec<Entry>),
    /// All up to this entry is not in the log any more.
    LetGo(u64),
    Refused(Refusal),
}

/// What another replica knows of one that has nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// Nothing that counts: it does not lead.
    Unknown = 0,
    /// It leads, and the other does not vote.
    New = 1,
    /// The other votes.
    Votes = 2,
}

/// How a replica is, by what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fitness {
    /// It forgot nothing, or has it again.
    pub(crate) votes: bool,
    /// Its disk has room for records.
    pub(crate) has_room: bool,
}

/// Why a replica does not do what it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("it may have forgotten what it acknowledged, or its log is damaged")]
    DoesNotVote = 1,
    #[error("it does not lead")]
    DoesNotLead = 2,
    #[error("what it was sent cannot be read")]
    Unreadable = 3,
    #[error("its engine has stopped, or refused")]
    Engine = 4,
    #[error("it is of an incarnation that has ended")]
    Ended = 5,
    #[error("it has nothing, and does not know yet whether it is new, or waits for all of it")]
    HasNothing = 6,
    #[error("it is of another generation")]
    OtherGeneration = 7,
    #[error("its disk has failed")]
    DiskFailed = 8,
    #[error("its disk has no room for records")]
    NoRoom = 9,
}

impl Request {
    pub(crate) fn encode(&self) -> Vec<Bytes> {
        let mut to = Pieces::new();
        match self {
            Self::Append(request) => to.append(request),
            Self::Vote(request) => to.vote_request(VOTE, request),
            Self::PreVote(request) => to.vote_request(PRE_VOTE, request),
            Self::ReEnter(vote) => {
                to.kind(RE_ENTER);
                to.vote(vote);
            }
            Self::Durable(AskDurable { vote, last, durable, syncs }) => {
                to.kind(DURABLE);
                to.vote(vote);
                to.log_id(Some(last));
                to.place(*durable);
                to.u8(u8::from(*syncs));
            }
            Self::TakeOver(request) => {
                to.kind(TAKE_OVER);
                to.vote(request.from_leader());
                to.u64(*request.to_node_id());
                to.log_id(request.last_log_id());
            }
            Self::Gone(through) => {
                to.kind(GONE);
                to.log_id(Some(through));
            }
            Self::Greet => to.kind(GREET),
            Self::Give(AskEntries { first, end, proof }) => {
                to.kind(GIVE);
                to.u64(*first);
                to.u64(*end);
                to.log_id(Some(proof));
            }
        }
        to.end()
    }

    pub(crate) fn decode(message: &Bytes) -> Result<Self, Malformed> {
        let mut from = Cursor::new(message, "a request");
        let request = match kind(&mut from)? {
            APPEND => Self::Append(take_append(&mut from, message)?),
            VOTE => Self::Vote(take_vote_request(&mut from)?),
            PRE_VOTE => Self::PreVote(take_vote_request(&mut from)?),
            RE_ENTER => Self::ReEnter(take_vote(&mut from)?),
            DURABLE => Self::Durable(AskDurable {
                vote: take_vote(&mut from)?,
                last: take_log_id(&mut from)?.ok_or(Malformed::Field("a log id", 0))?,
                durable: from.u64()?.checked_sub(1),
                syncs: take_flag(&mut from)?,
            }),
            TAKE_OVER => {
                let vote = take_vote(&mut from)?;
                let (node, last) = (from.u64()?, take_log_id(&mut from)?);
                Self::TakeOver(TransferLeaderRequest::new(vote, node, last))
            }
            GREET => Self::Greet,
            GIVE => Self::Give(AskEntries {
                first: take_index(&mut from)?,
                end: take_index(&mut from)?,
                proof: take_log_id(&mut from)?.ok_or(Malformed::Field("a log id", 0))?,
            }),
            GONE => Self::Gone(take_log_id(&mut from)?.ok_or(Malformed::Field("a log id", 0))?),
            other => return Err(Malformed::Field("the kind of a request", u64::from(other))),
        };
        end(&from, request)
    }
}

impl Answer {
    pub(crate) fn encode(&self) -> Vec<Bytes> {
        let mut to = Pieces::new();
        match self {
            Self::Appended(appended) => {
                to.kind(APPEND);
                match appended {
                    AppendEntriesResponse::Success => to.u8(0),
                    AppendEntriesResponse::PartialSuccess(last) => {
                        to.u8(1);
                        to.log_id(last.as_ref());
                    }
                    AppendEntriesResponse::Conflict => to.u8(2),
                    AppendEntriesResponse::HigherVote(vote) => {
                        to.u8(3);
                        to.vote(vote);
                    }
                }
            }
            Self::Voted(answer) => {
                to.kind(VOTE);
                to.vote(&answer.vote);
                to.log_id(answer.last_log_id.as_ref());
                to.u8(u8::from(answer.vote_granted));
            }
            Self::ReEnter(vote, last) => {
                to.kind(RE_ENTER);
                to.vote(vote);
                to.log_id(last.as_ref());
            }
            Self::Durable(through, Fitness { votes, has_room }) => {
                to.kind(DURABLE);
                to.place(*through);
                to.u8(u8::from(*votes) | u8::from(!*has_room) << 1);
            }
            Self::Taken => to.kind(TAKE_OVER),
            Self::Gone(is_here) => {
                to.kind(GONE);
                to.u8(u8::from(*is_here));
            }
            Self::Greet(greeting) => {
                to.kind(GREET);
                to.u8(*greeting as u8);
            }
            Self::Given(entries) => {
                to.kind(GIVE);
                to.u64(entries.first().map_or(0, |first| first.log_id.index));
                to.entries(entries);
            }
            Self::LetGo(through) => {
                to.kind(LET_GO);
                to.u64(*through);
            }
            Self::Refused(why) => {
                to.kind(REFUSED);
                to.u8(*why as u8);
            }
        }
        to.end()
    }

    pub(crate) fn decode(message: &Bytes) -> Result<Self, Malformed> {
        let mut from = Cursor::new(message, "an answer");
        let answer = match kind(&mut from)? {
            APPEND => Self::Appended(match from.array::<1>()?[0] {
                0 => AppendEntriesResponse::Success,
                1 => AppendEntriesResponse::PartialSuccess(take_log_id(&mut from)?),
                2 => AppendEntriesResponse::Conflict,
                3 => AppendEntriesResponse::HigherVote(take_vote(&mut from)?),
                other => return Err(Malformed::Field("what became of entries", other.into())),
            }),
            VOTE => {
                let (vote, last) = (take_vote(&mut from)?, take_log_id(&mut from)?);
                Self::Voted(VoteResponse::new(vote, last, take_flag(&mut from)?))
            }
            RE_ENTER => Self::ReEnter(take_vote(&mut from)?, take_log_id(&mut from)?),
            DURABLE => {
                let through = from.u64()?.checked_sub(1);
                match from.array::<1>()?[0] {
                    is @ 0..=3 => {
                        let (votes, has_room) = (is & 1 == 1, is & 2 == 0);
                        Self::Durable(through, Fitness { votes, has_room })
                    }
                    other => return Err(Malformed::Field("how a replica is", other.into())),
                }
            }
            TAKE_OVER => Self::Taken,
            GONE => Self::Gone(take_flag(&mut from)?),
            GREET => Self::Greet(match from.array::<1>()?[0] {
                0 => Greeting::Unknown,
                1 => Greeting::New,
                2 => Greeting::Votes,
                other => return Err(Malformed::Field("a greeting", other.into())),
            }),
            GIVE => {
                let first = take_index(&mut from)?;
                let entries = take_entries(&mut from, message, first)?;
                if entries.is_empty() && first > 0 {
                    return Err(Malformed::Field("the index of no entry", first));
                }
                Self::Given(entries)
            }
            LET_GO => Self::LetGo(take_index(&mut from)?),
            REFUSED => Self::Refused(match from.array::<1>()?[0] {
                1 => Refusal::DoesNotVote,
                2 => Refusal::DoesNotLead,
                3 => Refusal::Unreadable,
                4 => Refusal::Engine,
                5 => Refusal::Ended,
                6 => Refusal::HasNothing,
                7 => Refusal::OtherGeneration,
                8 => Refusal::DiskFailed,
                9 => Refusal::NoRoom,
                other => return Err(Malformed::Field("a refusal", other.into())),
            }),
            other => return Err(Malformed::Field("the kind of an answer", u64::from(other))),
        };
        end(&from, answer)
    }
}

/// A message that is being made.
struct Pieces {
    done: Vec<Bytes>,
    open: Vec<u8>,
}

impl Pieces {
    fn new() -> Self {
        Self { done: Vec::new(), open: Vec::with_capacity(128) }
    }

    fn end(mut self) -> Vec<Bytes> {
        if !self.open.is_empty() {
            self.done.push(self.open.into());
        }
        self.done
    }

    fn kind(&mut self, kind: u8) {
        self.open.extend_from_slice(&[VERSION, kind]);
    }

    fn u8(&mut self, value: u8) {
        self.open.push(value);
    }

    fn u32(&mut self, value: u32) {
        self.open.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.open.extend_from_slice(&value.to_le_bytes());
    }

    fn place(&mut self, index: Option<u64>) {
        self.u64(index.map_or(0, |index| index + 1));
    }

    fn vote(&mut self, vote: &Vote) {
        self.u64(vote.leader_id.term);
        self.u64(vote.leader_id.voted_for);
        self.u8(u8::from(vote.committed));
    }

    fn log_id(&mut self, id: Option<&LogId>) {
        self.u8(u8::from(id.is_some()));
        self.u64(id.map_or(0, |id| id.leader_id.term));
        self.u64(id.map_or(0, |id| id.index));
    }

    fn vote_request(&mut self, kind: u8, request: &VoteRequest<Types>) {
        self.kind(kind);
        self.vote(&request.vote);
        self.log_id(request.last_log_id.as_ref());
        self.u8(u8::from(request.leadership_transfer));
    }

    fn append(&mut self, request: &AppendEntriesRequest<Types>) {
        self.kind(APPEND);
        self.vote(&request.vote);
        self.log_id(request.prev_log_id.as_ref());
        self.log_id(request.leader_commit.as_ref());
        self.entries(&request.entries);
    }

    fn entries(&mut self, entries: &[Entry]) {
        self.u32(u32::try_from(entries.len()).expect("entries are bounded"));
        entries.iter().for_each(|entry| self.entry(entry));
    }

    fn entry(&mut self, entry: &Entry) {
        let at = self.open.len();
        self.u32(0);
        let whole = match &entry.payload {
            EntryPayload::Normal(Payload(payload)) if payload.len() >= PIECE_BYTES_MIN => {
                record::encode_head(entry, &mut self.open);
                Some(payload.clone())
            }
            _ => {
                record::encode_more(entry, &mut self.open);
                None
            }
        };
        let bytes = self.open.len() - at - 4 + whole.as_ref().map_or(0, Bytes::len);
        let bytes = u32::try_from(bytes).expect("an entry is bounded");
        self.open[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
        if let Some(payload) = whole {
            self.done.push(std::mem::take(&mut self.open).into());
            self.done.push(payload);
        }
    }
}

fn kind(from: &mut Cursor<'_>) -> Result<u8, Malformed> {
    let [version, kind] = from.array()?;
    if version != VERSION {
        return Err(Malformed::Field("the version of a message", u64::from(version)));
    }
    Ok(kind)
}

fn end<T>(from: &Cursor<'_>, read: T) -> Result<T, Malformed> {
    match from.rest().len() {
        0 => Ok(read),
        more => Err(Malformed::Trailing(more, "a message")),
    }
}

fn take_flag(from: &mut Cursor<'_>) -> Result<bool, Malformed> {
    match from.array::<1>()?[0] {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Malformed::Field("a flag", u64::from(other))),
    }
}

fn take_vote(from: &mut Cursor<'_>) -> Result<Vote, Malformed> {
    let leader_id = LeaderId { term: from.u64()?, voted_for: from.u64()? };
    // A term that has no next would be the last.
    if leader_id.term > u64::MAX / 2 {
        return Err(Malformed::Field("a term", leader_id.term));
    }
    Ok(Vote { leader_id, committed: take_flag(from)? })
}

fn take_log_id(from: &mut Cursor<'_>) -> Result<Option<LogId>, Malformed> {
    let (is_there, term, index) = (take_flag(from)?, from.u64()?, from.u64()?);
    match is_there {
        true if index > u64::MAX / 2 => Err(Malformed::Field("an index", index)),
        true => Ok(Some(log_id(term, index))),
        false if term == 0 && index == 0 => Ok(None),
        false => Err(Malformed::Field("no log id", index)),
    }
}

fn take_vote_request(from: &mut Cursor<'_>) -> Result<VoteRequest<Types>, Malformed> {
    let mut request = VoteRequest::new(take_vote(from)?, take_log_id(from)?);
    request.leadership_transfer = take_flag(from)?;
    Ok(request)
}

fn take_append(
    from: &mut Cursor<'_>,
    message: &Bytes,
) -> Result<AppendEntriesRequest<Types>, Malformed> {
    let vote = take_vote(from)?;
    let (prev_log_id, leader_commit) = (take_log_id(from)?, take_log_id(from)?);
    let first = prev_log_id.as_ref().map_or(0, |before| before.index + 1);
    let entries = take_entries(from, message, first)?;
    Ok(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
}

fn take_index(from: &mut Cursor<'_>) -> Result<u64, Malformed> {
    match from.u64()? {
        index if index > u64::MAX / 2 => Err(Malformed::Field("an index", index)),
        index => Ok(index),
    }
}

fn take_entries(
    from: &mut Cursor<'_>,
    message: &Bytes,
    first: u64,
) -> Result<Vec<Entry>, Malformed> {
    let count = from.count(4 + record::HEAD_BYTES, "the count of entries")?;
    let mut entries = Vec::with_capacity(count);
    for index in first..first + count as u64 {
        let bytes = from.u32()?;
        let record = from.bytes(usize::try_from(bytes).expect("32 bits are an index"))?;
        let entry = record::decode_within(index, record, message);
        entries.push(entry.map_err(|_why| Malformed::Field("an entry", index))?);
    }
    Ok(entries)
}
