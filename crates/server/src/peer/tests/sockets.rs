//! Nodes that talk over loopback.

use std::net::TcpListener;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;

use super::{Node, SILENCE, options, pair, pair_with, patient, peer, until};
use crate::peer::{Answer, Error, Limits, Options, Peers, Priority, Reason, Refusal};

const URGENT: Priority = Priority::Urgent;

fn text(text: &str) -> Vec<Bytes> {
    vec![Bytes::copy_from_slice(text.as_bytes())]
}

#[tokio::test]
async fn either_side_asks_over_the_one_connection_of_a_pair() {
    let (one, two) = pair().await;
    let request = vec![Bytes::from_static(b"by "), Bytes::from_static(b"pieces")];
    for priority in Priority::ALL {
        let answer = one.peers.ask(2, priority, 9, request.clone()).await;
        let body = Bytes::from_static(b"by piecesby pieces");
        assert_eq!(answer, Ok(Answer { from: peer(2, 1), body: body.clone() }));
        let answer = two.peers.ask(1, priority, 9, request.clone()).await;
        assert_eq!(answer, Ok(Answer { from: peer(1, 1), body }));
    }
    let asked = two.echo.asked.lock().unwrap().clone();
    let expected = (peer(1, 1), 9, Bytes::from_static(b"by pieces"));
    assert_eq!(asked, [expected.clone(), expected]);
    for node in [&one, &two] {
        assert_eq!(node.counters().connections, 2, "one for each priority");
    }
    assert_eq!(*two.echo.connected.lock().unwrap(), vec![(peer(1, 1), Bytes::from("I am 1")); 2]);
    let [known] = &one.peers.connected()[..] else { panic!("one other node") };
    assert_eq!((known.peer, &known.hello[..]), (peer(2, 1), &b"I am 2"[..]));
}

#[tokio::test]
async fn messages_of_all_shards_that_wait_go_out_in_one_frame() {
    let (one, two) = pair().await;
    let asks = (0..500).map(|shard| one.peers.ask(2, URGENT, shard, text(&format!("of {shard}"))));
    // All of them wait before anything is polled.
    let asks: Vec<_> = asks.collect();
    for (shard, answer) in join_all(asks).await.into_iter().enumerate() {
        assert_eq!(answer.unwrap().body, format!("of {shard}of {shard}"));
    }
    let (ours, theirs) = (one.counters(), two.counters());
    assert_eq!((ours.messages_sent, ours.frames_sent), (500, 1));
    assert_eq!((theirs.messages_received, theirs.frames_received), (500, 1));
    assert_eq!(theirs.messages_sent, 500);
    assert!(theirs.frames_sent < 20, "{} frames of answers", theirs.frames_sent);
    assert_eq!((ours.sent_bytes, ours.received_bytes), (theirs.received_bytes, theirs.sent_bytes));
    let shards =
        two.echo.asked.lock().unwrap().iter().map(|(_, shard, _)| *shard).collect::<Vec<_>>();
    assert!(
        shards.into_iter().eq(0..500),
        "they are handled in the order in which they were asked"
    );
}

#[tokio::test]
async fn a_large_request_and_its_answer_arrive() {
    let (one, _two) = pair().await;
    let body: Vec<Bytes> = (0..40).map(|byte| Bytes::from(vec![byte; 200_000])).collect();
    let answer = one.peers.ask(2, Priority::Bulk, 1, body.clone()).await.unwrap().body;
    let body = body.concat();
    assert!(answer[..body.len()] == body && answer[body.len()..] == body);
}

#[tokio::test]
async fn a_request_larger_than_the_peer_takes_is_not_sent() {
    let limits = Limits { frame_bytes: 1000, ..patient() };
    let (one, two) = pair_with(options(1, 1), Options { limits, ..options(2, 1) }).await;
    let ask = |bytes| one.peers.ask(2, URGENT, 1, vec![Bytes::from(vec![0; bytes])]);
    assert_eq!(ask(901).await, Err(Error::TooLarge { node: 2, bytes: 901, most: 900 }));
    assert_eq!(ask(900).await.unwrap().body.len(), 1800);
    assert_eq!(one.counters().messages_sent, 1);
    // The other way the answer is what does not fit.
    let answer = two.peers.ask(1, URGENT, 1, vec![Bytes::from(vec![0; 600])]).await;
    assert_eq!(answer, Err(Error::Refused { node: 1, why: Refusal::TooLarge }));
}

#[tokio::test]
async fn who_is_not_connected_is_not_waited_for() {
    let one = Node::start(options(1, 1));
    assert_eq!(one.peers.ask(2, URGENT, 1, text("")).await, Err(Error::Unreachable { node: 2 }));
    assert_eq!(one.peers.ask(1, URGENT, 1, text("")).await, Err(Error::Unreachable { node: 1 }));
}

#[tokio::test]
async fn asks_fail_at_once_when_their_connection_dies_and_are_not_sent_again() {
    let (one, two) = pair().await;
    let asks =
        [1, 2].map(|shard| tokio::spawn(one.peers.ask(2, URGENT, shard, vec![SILENCE.into()])));
    until(|| two.echo.asked.lock().unwrap().len() == 2).await;
    let (address, before) = (two.address, Arc::clone(&two.echo));
    two.peers.close().await;
    for ask in asks {
        assert_eq!(ask.await.unwrap(), Err(Error::Gone { node: 2 }));
    }
    let two = Node::at(TcpListener::bind(address).unwrap(), options(2, 2));
    two.knows(&[(1, one.address)]);
    one.meets(&[peer(2, 2)]).await;
    assert_eq!(one.peers.ask(2, URGENT, 3, text("again")).await.unwrap().from, peer(2, 2));
    let shards = |node: &super::Echo| {
        node.asked.lock().unwrap().iter().map(|(_, shard, _)| *shard).collect::<Vec<_>>()
    };
    assert_eq!((shards(&before), shards(&two.echo)), (vec![1, 2], vec![3]));
}

#[tokio::test]
async fn a_node_whose_process_has_ended_is_seen_to_be_gone_by_either_side() {
    for ends_first in [true, false] {
        let (one, two) = pair().await;
        let (stays, ends) = if ends_first { (two, one) } else { (one, two) };
        let ended = if ends_first { peer(1, 1) } else { peer(2, 1) };
        ends.peers.close().await;
        until(|| !stays.echo.gone.lock().unwrap().is_empty()).await;
        assert_eq!(stays.echo.gone.lock().unwrap()[0], ended);
    }
}

#[tokio::test]
async fn a_node_that_only_let_go_of_its_connections_is_not_gone() {
    let (one, two) = pair().await;
    // It hears nobody, and is heard by nobody; its process is there.
    two.knows(&[]);
    until(|| one.peers.connected().is_empty()).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(one.echo.gone.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_node_that_starts_again_at_its_address_is_dialled_again() {
    let (one, mut two) = pair().await;
    for incarnation in 2..5 {
        let address = two.address;
        two.peers.close().await;
        two = Node::at(TcpListener::bind(address).unwrap(), options(2, incarnation));
        two.knows(&[(1, one.address)]);
        one.meets(&[peer(2, incarnation)]).await;
        two.meets(&[peer(1, 1)]).await;
        assert_eq!(one.peers.ask(2, URGENT, 1, text("")).await.unwrap().from, peer(2, incarnation));
    }
}

#[tokio::test]
async fn a_node_that_dials_comes_again_when_it_starts_again() {
    let (one, two) = pair().await;
    let ask = tokio::spawn(two.peers.ask(1, URGENT, 1, vec![SILENCE.into()]));
    until(|| one.echo.asked.lock().unwrap().len() == 1).await;
    one.peers.close().await;
    assert_eq!(ask.await.unwrap(), Err(Error::Gone { node: 1 }));
    let one = Node::start(options(1, 2));
    one.knows(&[(2, two.address)]);
    two.meets(&[peer(1, 2)]).await;
    assert_eq!(two.peers.ask(1, URGENT, 1, text("")).await.unwrap().from, peer(1, 2));
}

/// The old process lives on: its connections end although it does not.
#[tokio::test]
async fn a_later_incarnation_ends_the_connections_of_the_one_before_it() {
    let (old, two) = pair().await;
    let asks = Priority::ALL.map(|p| tokio::spawn(two.peers.ask(1, p, 1, vec![SILENCE.into()])));
    until(|| old.echo.asked.lock().unwrap().len() == 2).await;
    let new = Node::start(options(1, 2));
    new.knows(&[(2, two.address)]);
    for ask in asks {
        assert_eq!(ask.await.unwrap(), Err(Error::Gone { node: 1 }));
    }
    two.meets(&[peer(1, 2)]).await;
    // It dials again, and is told why not.
    until(|| old.counters().refused(Reason::OldIncarnation) > 2).await;
    assert!(two.counters().refused(Reason::OldIncarnation) > 2);
    assert!(old.peers.is_outdated() && !two.peers.is_outdated(), "it is told so, and nobody else");
    assert_eq!(two.peers.connected()[0].peer, peer(1, 2));
    assert_eq!(old.peers.connected(), []);
    assert_eq!(two.peers.ask(1, URGENT, 1, text("")).await.unwrap().from, peer(1, 2));
}

/// The same where the old one is dialled.
#[tokio::test]
async fn an_old_incarnation_that_is_dialled_is_refused() {
    let (one, two) = pair().await;
    let new = Node::start(options(2, 2));
    new.knows(&[(1, one.address)]);
    one.knows(&[(2, new.address)]);
    one.meets(&[peer(2, 2)]).await;
    one.knows(&[(2, two.address)]);
    until(|| two.counters().refused(Reason::OldIncarnation) > 0).await;
    assert!(one.counters().refused(Reason::OldIncarnation) > 0);
    assert!(two.peers.is_outdated() && !one.peers.is_outdated());
    assert_eq!(one.peers.connected(), []);
}

#[tokio::test]
async fn a_foreign_cluster_is_refused_and_counted_on_both_sides() {
    let one = Node::start(options(1, 1));
    let two = Node::start(Options { cluster: 8, ..options(2, 1) });
    one.knows(&[(2, two.address)]);
    two.knows(&[(1, one.address)]);
    until(|| one.counters().refused(Reason::ForeignCluster) > 1).await;
    assert!(two.counters().refused(Reason::ForeignCluster) > 1);
    assert_eq!((one.counters().connections, two.counters().connections), (0, 0));
    assert_eq!(*two.echo.connected.lock().unwrap(), []);
}

#[tokio::test]
async fn another_node_at_an_address_is_refused() {
    let one = Node::start(options(1, 1));
    let two = Node::start(options(2, 1));
    two.knows(&[(1, one.address)]);
    one.knows(&[(3, two.address)]);
    until(|| one.counters().refused(Reason::WrongNode) > 1).await;
    one.knows(&[(5, one.address)]);
    until(|| one.counters().refused(Reason::Ourselves) > 1).await;
    assert_eq!((one.counters().connections, two.counters().connections), (0, 0));
}

#[tokio::test]
async fn who_is_not_known_is_refused_until_it_is() {
    let one = Node::start(options(1, 1));
    let two = Node::start(options(2, 1));
    one.knows(&[(2, two.address)]);
    until(|| two.counters().refused(Reason::Unknown) > 1).await;
    two.knows(&[(1, one.address)]);
    two.meets(&[peer(1, 1)]).await;
    two.knows(&[]);
    assert_eq!(two.peers.connected(), []);
    until(|| one.peers.connected().is_empty()).await;
}

#[tokio::test]
async fn a_node_that_moves_is_dialled_where_it_is_now() {
    let (one, two) = pair().await;
    let ask = tokio::spawn(one.peers.ask(2, URGENT, 1, vec![SILENCE.into()]));
    until(|| !two.echo.asked.lock().unwrap().is_empty()).await;
    let there = Node::start(options(2, 1));
    there.knows(&[(1, one.address)]);
    one.knows(&[(2, two.address)]);
    assert_eq!(one.peers.connected().len(), 1, "what stays where it was stays connected");
    one.knows(&[(2, there.address)]);
    assert_eq!(ask.await.unwrap(), Err(Error::Gone { node: 2 }));
    one.meets(&[peer(2, 1)]).await;
    one.peers.ask(2, URGENT, 4, text("")).await.unwrap();
    assert_eq!(there.echo.asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_node_whose_handler_fails_says_so() {
    let (one, _two) = pair().await;
    let answer = one.peers.ask(2, URGENT, 1, text("panic")).await;
    assert_eq!(answer, Err(Error::Refused { node: 2, why: Refusal::Failed }));
    one.peers.ask(2, URGENT, 1, text("")).await.unwrap();
}

#[tokio::test]
async fn what_a_node_has_under_way_with_us_is_bounded_over_all_its_connections() {
    let limits = Limits { under_way: 3, ..patient() };
    let (one, two) = pair_with(options(1, 1), Options { limits, ..options(2, 1) }).await;
    let silence = || one.peers.ask(2, URGENT, 1, vec![SILENCE.into()]);
    let waiting: Vec<_> = (0..3).map(|_| tokio::spawn(silence())).collect();
    until(|| two.echo.asked.lock().unwrap().len() == 3).await;
    let busy = Err(Error::Refused { node: 2, why: Refusal::Busy });
    assert_eq!(silence().await, busy);
    // It goes and comes again: what it left behind is still being handled.
    let address = one.address;
    one.peers.close().await;
    for ask in waiting {
        assert_eq!(ask.await.unwrap(), Err(Error::Gone { node: 2 }));
    }
    let one = Node::at(TcpListener::bind(address).unwrap(), options(1, 2));
    one.knows(&[(2, two.address)]);
    one.meets(&[peer(2, 1)]).await;
    assert_eq!(one.peers.ask(2, URGENT, 1, text("")).await, busy);
    assert_eq!(two.counters().turned_away, 2);
    assert_eq!(two.echo.asked.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn an_ask_that_nobody_waits_for_any_more_takes_no_room() {
    let limits = Limits { under_way: 3, ..patient() };
    let (one, two) = pair_with(Options { limits, ..options(1, 1) }, options(2, 1)).await;
    for _ in 0..10 {
        let ask = one.peers.ask(2, URGENT, 1, vec![SILENCE.into()]);
        assert_eq!(ask.now_or_never(), None);
        one.peers.ask(2, URGENT, 1, text("")).await.unwrap();
    }
    assert_eq!(two.echo.asked.lock().unwrap().len(), 20, "they were sent all the same");
}

/// Over a network without a loss a ping comes before anybody is given up.
#[tokio::test]
async fn a_connection_on_which_nothing_is_asked_is_kept_alive() {
    let limits = Limits { ping: std::time::Duration::from_millis(1), ..patient() };
    let (one, two) = pair_with(Options { limits, ..options(1, 1) }, options(2, 1)).await;
    let heard = two.peers.connected()[0].heard;
    until(|| two.counters().frames_received > 3).await;
    assert!(two.peers.connected()[0].heard > heard);
    assert_eq!((two.counters().messages_received, one.counters().messages_sent), (0, 0));
    assert_eq!(two.counters().connections, 2);
}

/// The listener's queue takes the connection, and nobody answers.
#[tokio::test]
async fn a_node_that_does_not_shake_hands_is_given_up_and_dialled_again() {
    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let limits = Limits { handshake: std::time::Duration::from_millis(5), ..patient() };
    let one = Node::start(Options { limits, ..options(1, 1) });
    one.knows(&[(2, deaf.local_addr().unwrap())]);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(deaf.accept().await.unwrap());
    }
    assert_eq!(one.peers.connected(), []);
}

#[tokio::test]
async fn closing_gives_the_address_back_and_ends_what_is_asked() {
    let (one, two) = pair().await;
    let ask = tokio::spawn(one.peers.ask(2, URGENT, 1, vec![SILENCE.into()]));
    until(|| two.echo.asked.lock().unwrap().len() == 1).await;
    one.peers.close().await;
    assert_eq!(ask.await.unwrap(), Err(Error::Gone { node: 2 }));
    TcpListener::bind(one.address).unwrap();
    let (echo, address) = (Arc::downgrade(&two.echo), two.address);
    drop(two.echo);
    two.peers.close().await;
    assert!(echo.upgrade().is_none(), "nobody holds the handler any more");
    TcpListener::bind(address).unwrap();
}

#[tokio::test]
async fn what_cannot_be_told_or_sent_is_refused_at_the_start() {
    let start = |options| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let handler = Arc::new(super::Echo::default());
        Peers::start(listener, options, handler, &tokio::runtime::Handle::current()).map(drop)
    };
    let hello = |bytes| Options { hello: vec![0; bytes].into(), ..options(1, 1) };
    start(hello(4096)).unwrap();
    assert_eq!(start(hello(4097)).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    let limits = Limits { frame_bytes: 100, ..patient() };
    start(Options { limits, ..options(1, 1) }).unwrap_err();
}
