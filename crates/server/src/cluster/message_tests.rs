//! Whether messages are the bytes that they are said to be, and what other bytes do.
//!
//! `PLIMSOLL_WRITE_GOLDEN=1` writes `testdata/messages-v1` anew: only for a new version.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::entry::RaftEntry;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, EntryPayload};
use proptest::prelude::*;

use super::message::{Answer, AskDurable, AskEntries, Fitness, Greeting, Refusal, Request};
use super::types::{Entry, LogId, Members, Payload, Vote, log_id};

/// Each message with its length before it, as it has been written since version 1.
const GOLDEN: &str = "src/cluster/testdata/messages-v1";

fn members() -> Members {
    let joint = vec![BTreeSet::from([1, 2]), BTreeSet::from([2, 3])];
    let node = |id: u64| (id, BasicNode::new(format!("broker-{id}:9093")));
    Members::new(joint, BTreeMap::from([1, 2, 3].map(node))).unwrap()
}

fn append(term: u64, before: Option<u64>, payloads: Vec<Option<Vec<u8>>>) -> Request {
    let first = before.map_or(0, |before| before + 1);
    let entry = |(index, payload): (u64, Option<Vec<u8>>)| {
        let payload = match payload {
            Some(bytes) if bytes == b"members" => EntryPayload::Membership(members()),
            Some(bytes) => EntryPayload::Normal(Payload(bytes.into())),
            None => EntryPayload::Blank,
        };
        Entry::new(log_id(term, index), payload)
    };
    Request::Append(AppendEntriesRequest {
        vote: Vote::new_committed(term, 2),
        prev_log_id: before.map(|before| log_id(term, before)),
        leader_commit: before.map(|before| log_id(term, before / 2)),
        entries: (first..).zip(payloads).map(entry).collect(),
    })
}

fn vote_request(
    vote: Vote,
    last: Option<LogId>,
    is_asked_for: bool,
) -> VoteRequest<super::types::Types> {
    let mut request = VoteRequest::new(vote, last);
    request.leadership_transfer = is_asked_for;
    request
}

fn blank(term: u64, index: u64) -> Entry {
    Entry::new_blank(log_id(term, index))
}

fn requests() -> Vec<Request> {
    let (vote, last) = (Vote::new(7, 2), Some(log_id(6, 41)));
    let leader = Vote::new_committed(7, 2);
    let durable = |durable, syncs| {
        Request::Durable(AskDurable { vote: leader, last: log_id(7, 42), durable, syncs })
    };
    vec![
        append(7, None, vec![Some(b"members".to_vec()), None, Some(b"small".to_vec())]),
        append(7, Some(41), vec![Some(vec![5; 1200]), Some(Vec::new()), Some(vec![6; 1024])]),
        append(7, Some(41), Vec::new()),
        Request::Vote(vote_request(vote, None, false)),
        Request::Vote(vote_request(vote, last, true)),
        Request::PreVote(vote_request(vote, last, false)),
        Request::ReEnter(vote),
        durable(None, false),
        durable(Some(0), true),
        Request::TakeOver(TransferLeaderRequest::new(leader, 3, last)),
        Request::Gone(log_id(6, 41)),
        Request::Greet,
        Request::Give(AskEntries { first: 40, end: 42, proof: log_id(6, 43) }),
    ]
}

fn answers() -> Vec<Answer> {
    let (vote, last) = (Vote::new(7, 2), Some(log_id(6, 41)));
    let refused = [
        Refusal::DoesNotVote,
        Refusal::DoesNotLead,
        Refusal::Unreadable,
        Refusal::Engine,
        Refusal::Ended,
        Refusal::HasNothing,
        Refusal::DiskFailed,
        Refusal::NoRoom,
    ];
    let mut answers = vec![
        Answer::Appended(AppendEntriesResponse::Success),
        Answer::Appended(AppendEntriesResponse::PartialSuccess(last)),
        Answer::Appended(AppendEntriesResponse::PartialSuccess(None)),
        Answer::Appended(AppendEntriesResponse::Conflict),
        Answer::Appended(AppendEntriesResponse::HigherVote(vote)),
        Answer::Voted(VoteResponse::new(vote, last, true)),
        Answer::Voted(VoteResponse::new(vote, None, false)),
        Answer::ReEnter(Vote::new_committed(7, 2), last),
        Answer::Durable(None, Fitness { votes: false, has_room: true }),
        Answer::Durable(Some(0), Fitness { votes: true, has_room: true }),
        Answer::Durable(Some(9), Fitness { votes: true, has_room: false }),
        Answer::Taken,
        Answer::Gone(false),
        Answer::Gone(true),
        Answer::Greet(Greeting::Unknown),
        Answer::Greet(Greeting::New),
        Answer::Greet(Greeting::Votes),
        Answer::Given(Vec::new()),
        Answer::Given(vec![blank(6, 40), blank(6, 41)]),
        Answer::LetGo(77),
    ];
    answers.extend(refused.map(Answer::Refused));
    answers
}

fn whole(pieces: &[Bytes]) -> Bytes {
    pieces.concat().into()
}

/// Nothing of a request or of an answer is the other's.
fn again(message: &Bytes, is_request: bool) -> Option<Bytes> {
    match is_request {
        true => Some(whole(&Request::decode(message).ok()?.encode())),
        false => Some(whole(&Answer::decode(message).ok()?.encode())),
    }
}

fn samples() -> Vec<(bool, Bytes)> {
    let requests = requests().into_iter().map(|request| (true, whole(&request.encode())));
    let answers = answers().into_iter().map(|answer| (false, whole(&answer.encode())));
    requests.chain(answers).collect()
}

#[test]
fn messages_are_written_as_version_1_has_them() {
    let mut now = Vec::new();
    for (_, message) in samples() {
        now.extend_from_slice(&u32::try_from(message.len()).unwrap().to_le_bytes());
        now.extend_from_slice(&message);
    }
    if std::env::var_os("PLIMSOLL_WRITE_GOLDEN").is_some() {
        std::fs::write(GOLDEN, &now).unwrap();
    }
    assert!(std::fs::read(GOLDEN).unwrap() == now, "another version");
}

#[test]
fn every_kind_of_message_comes_back_as_it_was() {
    for (is_request, message) in samples() {
        assert_eq!(again(&message, is_request).as_ref(), Some(&message));
        assert!(again(&message.slice(..message.len() - 1), is_request).is_none(), "cut short");
        let longer = Bytes::from([&message[..], &[0]].concat());
        assert!(again(&longer, is_request).is_none(), "longer");
    }
}

#[test]
fn payloads_that_were_received_share_the_memory_of_their_message() {
    for request in requests() {
        let message = whole(&request.encode());
        let Ok(Request::Append(append)) = Request::decode(&message) else { continue };
        let within = message.as_ptr_range();
        for entry in append.entries {
            if let EntryPayload::Normal(Payload(payload)) = entry.payload {
                let is_within = within.contains(&payload.as_ptr());
                assert!(is_within || payload.is_empty(), "{} bytes are a copy", payload.len());
            }
        }
    }
}

#[test]
fn large_payloads_are_sent_as_they_lie_in_memory() {
    let payload = Bytes::from(vec![5; 1 << 10]);
    let entry = Entry::new(log_id(7, 0), EntryPayload::Normal(Payload(payload.clone())));
    let request = Request::Append(AppendEntriesRequest {
        vote: Vote::new_committed(7, 2),
        prev_log_id: None,
        leader_commit: None,
        entries: vec![entry],
    });
    let is_it = |piece: &Bytes| piece.as_ptr() == payload.as_ptr();
    assert!(request.encode().iter().any(is_it));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        kind in prop_oneof![1_u8..8, Just(255)],
        body in prop::collection::vec(prop_oneof![Just(0), Just(1), any::<u8>()], 0..120),
        is_request in any::<bool>(),
    ) {
        let message = Bytes::from([&[1, kind][..], &body].concat());
        if let Some(again) = again(&message, is_request) {
            prop_assert_eq!(again, message);
        }
    }

    #[test]
    fn a_message_that_was_changed_is_refused_or_is_that_other_message(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let samples = samples();
        let (is_request, message) = which.get(&samples);
        let mut changed = message.to_vec();
        let at = at.index(changed.len());
        changed[at] = byte;
        let changed = Bytes::from(changed);
        if let Some(again) = again(&changed, *is_request) {
            prop_assert_eq!(again, changed);
        }
    }

    #[test]
    fn an_append_comes_back_as_it_was(
        term in 0_u64..1 << 40,
        before in prop::option::of(0_u64..1 << 40),
        payloads in prop::collection::vec(
            prop::option::of(prop::collection::vec(any::<u8>(), 0..3000)), 0..8),
    ) {
        let message = whole(&append(term, before, payloads.clone()).encode());
        let Request::Append(read) = Request::decode(&message).unwrap() else { panic!() };
        let read = read.entries.iter().map(|entry| match &entry.payload {
            EntryPayload::Normal(Payload(payload)) => Some(payload.to_vec()),
            EntryPayload::Blank | EntryPayload::Membership(_) => None,
        });
        prop_assert_eq!(read.collect::<Vec<_>>(), payloads);
        prop_assert_eq!(again(&message, true), Some(message));
    }
}
