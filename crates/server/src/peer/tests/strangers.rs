//! What comes over a socket from somebody who does not play by the rules.

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::format::frame;
use super::{CLUSTER, Node, SILENCE, options, patient, peer, until};
use crate::peer::frame::{self, Kind, Lane, Message, VERSIONS};
use crate::peer::greeting::{self, Greeting, HEAD_BYTES};
use crate::peer::listen::HANDSHAKES_MAX;
use crate::peer::{Error, Limits, Options, Priority, Reason};

/// Node 1 in its first incarnation, written by hand.
struct Stranger {
    stream: TcpStream,
    out: Lane,
    /// What it said to be let in.
    said: Vec<Vec<u8>>,
}

/// Node 2, which knows of a node 1.
fn node(limits: Limits) -> Node {
    let node = Node::start(Options { limits, ..options(2, 1) });
    node.knows(&[(1, "127.0.0.1:1".parse().unwrap())]);
    node
}

fn introduction() -> Greeting {
    Greeting {
        kind: greeting::Kind::Dialler,
        priority: Priority::Urgent,
        versions: VERSIONS,
        reason: 0,
        cluster: CLUSTER,
        from: peer(1, 1),
        to: 2,
        nonce: [1; 16],
        frame_bytes: 1 << 20,
        hello: Bytes::new(),
    }
}

async fn read(stream: &mut TcpStream, seed: u64) -> Greeting {
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await.unwrap();
    let mut bytes = head.to_vec();
    bytes.resize(greeting::announced(&head).unwrap(), 0);
    stream.read_exact(&mut bytes[HEAD_BYTES..]).await.unwrap();
    Greeting::decode(&bytes, seed).unwrap()
}

impl Stranger {
    /// Shakes hands, and waits until it is let in.
    async fn meets(node: &Node) -> Self {
        Self::meets_for(node, Priority::Urgent, 1).await
    }

    async fn meets_for(node: &Node, priority: Priority, incarnation: u64) -> Self {
        let mut stream = TcpStream::connect(node.address).await.unwrap();
        let said = Greeting { priority, from: peer(1, incarnation), ..introduction() };
        stream.write_all(&said.encode(0)).await.unwrap();
        let heard = read(&mut stream, greeting::seed(&[said.nonce])).await;
        let seed = greeting::seed(&[said.nonce, heard.nonce]);
        let agreed = Greeting { kind: greeting::Kind::Verdict, ..introduction() };
        stream.write_all(&agreed.encode(seed)).await.unwrap();
        let connections = node.counters().connections;
        until(|| node.counters().connections > connections).await;
        let (from, to) = (said.from, heard.from);
        let out = Lane { version: 1, cluster: CLUSTER, from, to, seed };
        Self { stream, out, said: vec![said.encode(0), agreed.encode(seed)] }
    }

    /// A frame with a request.
    fn request(&self, sequence: u64, body: &[u8]) -> Bytes {
        let body = vec![Bytes::copy_from_slice(body)];
        let message = Message { kind: Kind::Request, shard: 1, call: sequence, body };
        frame(&self.out, sequence, &[message])
    }

    async fn says(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Waits until the node has closed the connection.
    async fn waits_for_the_end(mut self) {
        // A reset is an end as well.
        self.stream.read_to_end(&mut Vec::new()).await.ok();
    }
}

#[tokio::test]
async fn a_frame_that_is_replayed_ends_the_connection() {
    let node = node(patient());
    let mut stranger = Stranger::meets(&node).await;
    let ask = tokio::spawn(node.peers.ask(1, Priority::Urgent, 1, vec![SILENCE.into()]));
    for sequence in [1, 2] {
        let request = stranger.request(sequence, b"once");
        stranger.says(&request).await;
    }
    until(|| node.echo.asked.lock().unwrap().len() == 2).await;
    let request = stranger.request(2, b"once");
    stranger.says(&request).await;
    stranger.waits_for_the_end().await;
    assert_eq!(ask.await.unwrap(), Err(Error::Gone { node: 1 }));
    assert_eq!(node.counters().refused(Reason::Replayed), 1);
    assert_eq!(node.echo.asked.lock().unwrap().len(), 2, "it is not handled twice");
}

#[tokio::test]
async fn a_frame_behind_one_that_is_missing_ends_the_connection() {
    let node = node(patient());
    let mut stranger = Stranger::meets(&node).await;
    let request = stranger.request(2, b"");
    stranger.says(&request).await;
    stranger.waits_for_the_end().await;
    assert_eq!(node.counters().refused(Reason::Replayed), 1);
    assert_eq!(*node.echo.asked.lock().unwrap(), []);
}

#[tokio::test]
async fn a_frame_of_an_earlier_connection_does_not_fit() {
    let node = node(patient());
    let earlier = Stranger::meets(&node).await;
    let request = earlier.request(1, b"");
    let mut stranger = Stranger::meets(&node).await;
    stranger.says(&request).await;
    stranger.waits_for_the_end().await;
    assert_eq!(node.counters().refused(Reason::Damaged), 1);
    assert_eq!(*node.echo.asked.lock().unwrap(), []);
}

/// Once it would have ended the connection of who said it first.
#[tokio::test]
async fn a_handshake_that_somebody_recorded_lets_nobody_in() {
    let node = node(patient());
    let mut stranger = Stranger::meets(&node).await;
    let mut again = TcpStream::connect(node.address).await.unwrap();
    for said in &stranger.said {
        again.write_all(said).await.unwrap();
    }
    again.read_to_end(&mut Vec::new()).await.ok();
    assert_eq!(node.counters().refused(Reason::Damaged), 1);
    assert_eq!(node.counters().connections, 1);
    let request = stranger.request(1, b"still here");
    stranger.says(&request).await;
    until(|| node.echo.asked.lock().unwrap().len() == 1).await;
}

#[tokio::test]
async fn the_next_connection_of_a_node_takes_the_place_of_the_one_before() {
    let node = node(patient());
    let first = Stranger::meets(&node).await;
    let ask = tokio::spawn(node.peers.ask(1, Priority::Urgent, 1, vec![SILENCE.into()]));
    until(|| node.counters().messages_sent == 1).await;
    let _second = Stranger::meets(&node).await;
    assert_eq!(ask.await.unwrap(), Err(Error::Gone { node: 1 }));
    first.waits_for_the_end().await;
    assert_eq!(node.peers.connected().len(), 1);
}

/// Also those that the later one has not made anew yet.
#[tokio::test]
async fn one_connection_of_a_later_incarnation_ends_all_of_the_one_before() {
    let node = node(patient());
    let mut urgent = Stranger::meets(&node).await;
    let bulk = Stranger::meets_for(&node, Priority::Bulk, 1).await;
    let ask = tokio::spawn(node.peers.ask(1, Priority::Bulk, 1, vec![]));
    until(|| node.counters().messages_sent == 1).await;
    let _later = Stranger::meets_for(&node, Priority::Urgent, 2).await;
    assert_eq!(ask.await.unwrap(), Err(Error::Gone { node: 1 }));
    let [known] = &node.peers.connected()[..] else { panic!("one other node") };
    assert_eq!((known.peer, &known.priorities[..]), (peer(1, 2), &[Priority::Urgent][..]));
    // What it still says is not heard.
    let request = urgent.request(1, b"vote");
    urgent.stream.write_all(&request).await.ok();
    urgent.waits_for_the_end().await;
    bulk.waits_for_the_end().await;
    assert_eq!(*node.echo.asked.lock().unwrap(), []);
}

#[tokio::test]
async fn a_frame_that_is_too_long_is_refused_by_its_head() {
    let limits = Limits { frame_bytes: 1000, ..patient() };
    let node = node(limits);
    let mut stranger = Stranger::meets(&node).await;
    let request = stranger.request(1, &[0; 901]);
    assert_eq!(request.len(), 1001);
    stranger.says(&request[..16]).await;
    stranger.waits_for_the_end().await;
    assert_eq!(node.counters().refused(Reason::Oversized), 1);
}

#[tokio::test]
async fn bytes_that_are_no_frame_end_the_connection() {
    let node = node(patient());
    let mut stranger = Stranger::meets(&node).await;
    let mut request = stranger.request(1, b"vote").to_vec();
    request[95] ^= 1;
    stranger.says(&request).await;
    stranger.waits_for_the_end().await;
    assert_eq!(node.counters().refused(Reason::Damaged), 1);
    assert_eq!(*node.echo.asked.lock().unwrap(), []);
    assert_eq!(node.peers.connected(), []);
}

#[tokio::test]
async fn bytes_that_are_no_greeting_are_refused() {
    let node = node(patient());
    let mut stream = TcpStream::connect(node.address).await.unwrap();
    stream.write_all(&[b'G'; 200]).await.unwrap();
    stream.read_to_end(&mut Vec::new()).await.ok();
    until(|| node.counters().refused(Reason::Damaged) == 1).await;
}

#[tokio::test]
async fn a_version_that_is_not_shared_is_refused_with_the_reason() {
    let node = node(patient());
    let mut stream = TcpStream::connect(node.address).await.unwrap();
    let said = Greeting { versions: (2, 5), ..introduction() };
    stream.write_all(&said.encode(0)).await.unwrap();
    let verdict = read(&mut stream, greeting::seed(&[said.nonce])).await;
    assert_eq!((verdict.kind, verdict.reason), (greeting::Kind::Verdict, Reason::Version as u16));
    assert_eq!(verdict.versions, VERSIONS, "it is told which there are");
    until(|| node.counters().refused(Reason::Version) == 1).await;
    let said = Greeting { versions: (0, 5), ..introduction() };
    let mut stream = TcpStream::connect(node.address).await.unwrap();
    stream.write_all(&said.encode(0)).await.unwrap();
    assert_eq!(read(&mut stream, greeting::seed(&[said.nonce])).await.reason, 0);
}

#[tokio::test]
async fn a_node_that_is_dialled_and_shares_no_version_is_refused_by_the_dialler_and_told_why() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let node = Node::start(Options { limits: patient(), ..options(1, 1) });
    node.knows(&[(2, listener.local_addr().unwrap())]);
    let (mut stream, _) = listener.accept().await.unwrap();
    let heard = read(&mut stream, 0).await;
    let newer = Greeting {
        kind: greeting::Kind::Dialled,
        priority: heard.priority,
        versions: (VERSIONS.1 + 1, VERSIONS.1 + 4),
        from: peer(2, 1),
        to: 1,
        nonce: [2; 16],
        ..introduction()
    };
    let bytes = newer.encode(greeting::seed(&[heard.nonce]));
    stream.write_all(&bytes).await.unwrap();
    let verdict = read(&mut stream, greeting::seed(&[heard.nonce, newer.nonce])).await;
    assert_eq!((verdict.kind, verdict.reason), (greeting::Kind::Verdict, Reason::Version as u16));
    until(|| node.counters().refused(Reason::Version) == 1).await;
    assert_eq!(node.counters().connections, 0);
    assert!(Reason::Version.to_string().contains("too old for the other"));
}

/// It takes nothing: what the system holds for it fills up, then what we hold, and then asks fail.
#[tokio::test]
async fn a_node_that_stopped_is_busy_and_does_not_fill_memory() {
    let limits = Limits { waiting_bytes: 4 << 20, under_way: 100_000, ..patient() };
    let node = node(limits);
    let mut stranger = Stranger::meets(&node).await;
    let body = Bytes::from(vec![0; 100_000]);
    let mut waiting = Vec::new();
    let busy = loop {
        let mut ask = Box::pin(node.peers.ask(1, Priority::Bulk, 1, vec![body.clone()]));
        assert_eq!((&mut ask).now_or_never(), Some(Err(Error::Unreachable { node: 1 })));
        let mut ask = Box::pin(node.peers.ask(1, Priority::Urgent, 1, vec![body.clone()]));
        match (&mut ask).now_or_never() {
            None => waiting.push(ask),
            Some(answer) => break answer,
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(busy, Err(Error::Busy { node: 1 }));
    assert_eq!(node.counters().busy, 1);
    let asked = waiting.len() as u64;
    let ours = asked - node.counters().messages_sent;
    assert!(ours * 100_000 <= 4 << 20, "{ours} messages wait");
    // It goes on, and so do we.
    let mut received = BytesMut::new();
    let mut found = 0;
    let lane = stranger.out;
    let lane = Lane { from: lane.to, to: lane.from, ..lane };
    for sequence in 1.. {
        while frame::announced(&received, 2 << 20)
            .unwrap()
            .is_none_or(|length| received.len() < length)
        {
            stranger.stream.read_buf(&mut received).await.unwrap();
        }
        let length = frame::announced(&received, 2 << 20).unwrap().unwrap();
        let whole = received.split_to(length).freeze();
        found += frame::decode(&whole, &lane, sequence).unwrap().len() as u64;
        if found == asked {
            break;
        }
    }
    let ask = node.peers.ask(1, Priority::Urgent, 1, vec![body]);
    assert_eq!(ask.now_or_never(), None, "it is taken again");
    stranger.stream.shutdown().await.unwrap();
    for ask in waiting {
        assert_eq!(ask.await, Err(Error::Gone { node: 1 }));
    }
}

#[tokio::test]
async fn a_node_that_takes_nothing_is_given_up() {
    let limits = Limits { write: std::time::Duration::from_millis(20), ..patient() };
    let node = node(limits);
    let stranger = Stranger::meets(&node).await;
    let body = Bytes::from(vec![0; 1 << 19]);
    let asks = (0..40).map(|_| node.peers.ask(1, Priority::Urgent, 1, vec![body.clone()]));
    for answer in join_all(asks.collect::<Vec<_>>()).await {
        assert_eq!(answer, Err(Error::Gone { node: 1 }));
    }
    drop(stranger);
}

#[tokio::test]
async fn a_node_of_which_nothing_is_heard_is_given_up() {
    let limits = Limits { silence: std::time::Duration::from_millis(20), ..patient() };
    let node = node(limits);
    let stranger = Stranger::meets(&node).await;
    stranger.waits_for_the_end().await;
    until(|| node.peers.connected().is_empty()).await;
}

#[tokio::test]
async fn urgent_requests_do_not_wait_behind_bulk() {
    let node = node(patient());
    let _stopped = Stranger::meets_for(&node, Priority::Bulk, 1).await;
    let mut stranger = Stranger::meets(&node).await;
    let body = Bytes::from(vec![0; 1 << 19]);
    let ask = || Box::pin(node.peers.ask(1, Priority::Bulk, 1, vec![body.clone()]));
    let mut waiting = Vec::new();
    while node.counters().busy == 0 {
        waiting.push(ask());
        tokio::task::yield_now().await;
    }
    let _urgent = node.peers.ask(1, Priority::Urgent, 1, vec![Bytes::from("vote")]);
    let mut frame = [0; frame::LEAST_FRAME_BYTES + 3];
    stranger.stream.read_exact(&mut frame).await.unwrap();
    assert_eq!(&frame[92..96], b"vote");
}

#[tokio::test]
async fn an_answer_that_nobody_waits_for_changes_nothing() {
    let node = node(patient());
    let mut stranger = Stranger::meets(&node).await;
    let answer = |call, body| Message { kind: Kind::Answer, shard: 1, call, body: vec![body] };
    let ask = tokio::spawn(node.peers.ask(1, Priority::Urgent, 1, vec![]));
    until(|| node.counters().messages_sent == 1).await;
    let (first, second) = (Bytes::from("first"), Bytes::from("second"));
    let all = [answer(99, second.clone()), answer(1, first.clone()), answer(1, second)];
    let all = frame(&stranger.out, 1, &all);
    stranger.says(&all).await;
    assert_eq!(ask.await.unwrap().unwrap().body, first);
    let request = stranger.request(2, b"");
    stranger.says(&request).await;
    until(|| node.echo.asked.lock().unwrap().len() == 1).await;
}

#[tokio::test]
async fn connections_that_do_not_shake_hands_are_bounded() {
    let node = node(patient());
    let mut silent = Vec::new();
    for _ in 0..HANDSHAKES_MAX + 3 {
        silent.push(TcpStream::connect(node.address).await.unwrap());
    }
    until(|| node.counters().refused(Reason::TooMany) == 3).await;
    drop(silent);
    Stranger::meets(&node).await;
}
