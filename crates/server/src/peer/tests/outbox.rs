//! What waits for a connection, and what goes out together.

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::peer::error::Refusal;
use crate::peer::frame::Kind;
use crate::peer::outbox::{Batch, Bounds, Message, NotAsked, Outbox, Overrun, TOGETHER_BYTES};

const BOUNDS: Bounds = Bounds { waiting_bytes: 8 << 20, under_way: 100, frame_bytes: 4 << 20 };

fn ask(outbox: &mut Outbox, bytes: usize) -> Result<u64, NotAsked> {
    // The asker waits no more, which is nothing to the outbox.
    outbox.ask(1, vec![Bytes::from(vec![0; bytes])], oneshot::channel().0)
}

fn answer(outbox: &mut Outbox, call: u64, bytes: usize) -> Result<(), Overrun> {
    let body = vec![Bytes::from(vec![0; bytes])];
    outbox.answer(Message { kind: Kind::Answer, shard: 1, call, body })
}

fn what(batch: &Batch) -> Vec<(Kind, u64)> {
    batch.messages.iter().map(|message| (message.kind, message.call)).collect()
}

#[test]
fn all_that_waits_goes_together_and_answers_go_first() {
    let mut outbox = Outbox::new(BOUNDS);
    ask(&mut outbox, 10).unwrap();
    ask(&mut outbox, 0).unwrap();
    answer(&mut outbox, 9, 10).unwrap();
    let batch = outbox.take();
    assert_eq!(what(&batch), [(Kind::Answer, 9), (Kind::Request, 1), (Kind::Request, 2)]);
    assert_eq!(what(&outbox.take()), []);
}

#[test]
fn a_large_message_goes_alone_and_a_frame_is_no_larger_than_the_peer_takes() {
    let mut outbox = Outbox::new(BOUNDS);
    for bytes in [1, 2 * TOGETHER_BYTES, TOGETHER_BYTES, 1] {
        ask(&mut outbox, bytes).unwrap();
    }
    let calls = std::iter::repeat_with(|| outbox.take().messages)
        .map(|messages| messages.iter().map(|message| message.call).collect::<Vec<_>>())
        .take_while(|calls| !calls.is_empty());
    assert_eq!(calls.collect::<Vec<_>>(), [vec![1], vec![2], vec![3], vec![4]]);
}

#[test]
fn requests_go_out_however_many_answers_there_are() {
    let mut outbox = Outbox::new(BOUNDS);
    ask(&mut outbox, 1).unwrap();
    for call in 10..13 {
        answer(&mut outbox, call, TOGETHER_BYTES).unwrap();
    }
    assert_eq!(what(&outbox.take()), [(Kind::Answer, 10)]);
    assert_eq!(what(&outbox.take()), [(Kind::Request, 1)]);
    assert_eq!(what(&outbox.take()), [(Kind::Answer, 11)]);
}

#[test]
fn what_waits_is_bounded_until_it_is_written() {
    let bounds = Bounds { waiting_bytes: 1000, ..BOUNDS };
    let mut outbox = Outbox::new(bounds);
    ask(&mut outbox, 5000).expect("one alone is taken");
    assert_eq!(ask(&mut outbox, 1), Err(NotAsked::Busy));
    let batch = outbox.take();
    assert_eq!(ask(&mut outbox, 1), Err(NotAsked::Busy), "it is being written");
    outbox.written(&batch);
    let taken = std::iter::repeat_with(|| ask(&mut outbox, 0)).take_while(Result::is_ok).count();
    assert!((1..10).contains(&taken), "an empty message costs memory too, and {taken} are taken");
}

#[test]
fn asks_that_wait_for_answers_are_bounded() {
    let mut outbox = Outbox::new(BOUNDS);
    for _ in 0..100 {
        let call = ask(&mut outbox, 0).unwrap();
        assert_eq!(call, outbox.take().messages[0].call);
    }
    assert_eq!(ask(&mut outbox, 0), Err(NotAsked::Busy));
    assert!(outbox.asker(50).is_some());
    assert!(outbox.asker(50).is_none(), "an answer is handed up once");
    ask(&mut outbox, 0).unwrap();
}

#[test]
fn who_takes_no_answers_is_refused_and_then_let_go() {
    let bounds = Bounds { waiting_bytes: 1000, ..BOUNDS };
    let mut outbox = Outbox::new(bounds);
    answer(&mut outbox, 1, 900).unwrap();
    answer(&mut outbox, 2, 900).unwrap();
    let expected = [(Kind::Answer, 1), (Kind::Refused(Refusal::Busy), 2)];
    assert_eq!(what(&outbox.take()), expected);
    let most = 1 << 20;
    let taken = (0..most).take_while(|call| answer(&mut outbox, *call, 900).is_ok()).count();
    assert!(taken < 20_000, "{taken} refusals wait");
}

#[test]
fn an_answer_that_is_too_large_for_its_asker_is_a_refusal() {
    let mut outbox = Outbox::new(BOUNDS);
    let most = outbox.most();
    answer(&mut outbox, 1, most).unwrap();
    assert_eq!(what(&outbox.take()), [(Kind::Answer, 1)]);
    answer(&mut outbox, 2, most + 1).unwrap();
    assert_eq!(what(&outbox.take()), [(Kind::Refused(Refusal::TooLarge), 2)]);
}

#[test]
fn nothing_is_asked_of_what_has_ended() {
    let mut outbox = Outbox::new(BOUNDS);
    let (asker, mut answer) = oneshot::channel();
    outbox.ask(1, Vec::new(), asker).unwrap();
    drop(outbox.end());
    assert_eq!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    assert_eq!(ask(&mut outbox, 0), Err(NotAsked::Ended));
    assert_eq!(what(&outbox.take()), []);
}
