//! What a broker says of itself, asked over HTTP/1.0, which ends with the connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::Deserialize;

/// How long it may take to connect, and between bytes.
const PATIENCE: Duration = Duration::from_secs(5);
/// A broker of a few topics answers with some KiB.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// A broker, as it says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Status {
    /// When it acknowledges what is not to be synced first.
    pub(super) acknowledged: String,
    pub(super) shards: Vec<Shard>,
}

/// One of its shards.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Shard {
    pub(super) number: u32,
    pub(super) leader: Option<u64>,
    pub(super) voters: Vec<u64>,
    pub(super) is_in_doubt: bool,
    /// What it acknowledges is on a majority's disks first, whatever its topics say.
    pub(super) is_guarded: bool,
    pub(super) at_risk_bytes: u64,
}

impl Status {
    /// Bytes that are acknowledged and not synced on this broker's disk.
    pub(super) fn at_risk_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.at_risk_bytes).sum()
    }

    pub(super) fn is_guarded(&self) -> bool {
        self.shards.iter().any(|shard| shard.is_guarded)
    }
}

/// Ok if these brokers are one cluster in which everybody votes and all agree who leads what; otherwise what is
/// missing first.
pub(super) fn whole(statuses: &[Status]) -> Result<(), String> {
    let all: Vec<u64> = (1..=statuses.len() as u64).collect();
    let first = statuses.first().map_or(&[][..], |status| &status.shards[..]);
    for (node, status) in all.iter().zip(statuses) {
        if status.shards.is_empty() || status.shards.len() != first.len() {
            return Err(format!("broker {node} has {} shards", status.shards.len()));
        }
        for (shard, at_first) in status.shards.iter().zip(first) {
            let Shard { number, leader, voters, is_in_doubt, .. } = shard;
            let at = format!("at broker {node} shard {number}");
            if voters != &all || *is_in_doubt {
                let doubt = if *is_in_doubt { ", and is in doubt" } else { "" };
                return Err(format!("{at} has the voters {voters:?}{doubt}"));
            }
            if leader.is_none() || (number, leader) != (&at_first.number, &at_first.leader) {
                let other = at_first.leader;
                return Err(format!("{at} has the leader {leader:?}, at broker 1 {other:?}"));
            }
        }
    }
    Ok(())
}

/// Asks the broker whose operators are answered at `http`.
pub(super) fn ask(http: SocketAddr) -> io::Result<Status> {
    let mut stream = TcpStream::connect_timeout(&http, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET /status HTTP/1.0\r\nHost: {http}\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    parse(&answer)
}

fn parse(answer: &[u8]) -> io::Result<Status> {
    let wrong = || io::Error::new(ErrorKind::InvalidData, "it does not answer as a broker does");
    let text = std::str::from_utf8(answer).map_err(|_not_text| wrong())?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(wrong)?;
    if head.split(' ').nth(1) != Some("200") {
        return Err(wrong());
    }
    serde_json::from_str(body).map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(number: u32, leader: Option<u64>, voters: &[u64]) -> Shard {
        Shard {
            number,
            leader,
            voters: voters.to_vec(),
            is_in_doubt: false,
            is_guarded: false,
            at_risk_bytes: 0,
        }
    }

    fn of(shards: Vec<Shard>) -> Status {
        Status { acknowledged: String::new(), shards }
    }

    #[test]
    fn a_cluster_is_whole_when_all_vote_and_all_agree_who_leads() {
        let all = [1, 2, 3];
        let well = of(vec![shard(0, Some(1), &all), shard(2, Some(3), &all)]);
        let three = |third: Status| [well.clone(), well.clone(), third];
        assert_eq!(whole(&three(well.clone())), Ok(()));
        assert_eq!(whole(&three(of(Vec::new()))).unwrap_err(), "broker 3 has 0 shards");
        for other in [shard(2, Some(2), &all), shard(2, None, &all), shard(2, Some(3), &[1, 2])] {
            let why = whole(&three(of(vec![shard(0, Some(1), &all), other]))).unwrap_err();
            assert!(why.starts_with("at broker 3 shard 2 has "), "{why}");
        }
        let doubted = Shard { is_in_doubt: true, ..shard(2, Some(3), &all) };
        assert!(whole(&three(of(vec![shard(0, Some(1), &all), doubted]))).is_err());
        assert_eq!(whole(&[of(vec![shard(0, Some(1), &[1])])]), Ok(()), "one alone");
    }

    #[test]
    fn what_is_no_status_is_an_error_and_no_panic() {
        let body = r#"{"version":"1","acknowledged":"with the kernel","shards":[{"number":2,"leads":true,
            "leader":1,"voters":[1],"is_in_doubt":false,"is_guarded":true,"at_risk_bytes":7}]}"#;
        let status = parse(format!("HTTP/1.0 200 OK\r\n\r\n{body}").as_bytes()).unwrap();
        assert!(status.is_guarded() && status.at_risk_bytes() == 7);
        let starting = format!("HTTP/1.0 503 no\r\n\r\n{body}");
        for wrong in ["", "HTTP/1.0 200 OK", &starting, "HTTP/1.0 200 OK\r\n\r\n{"] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(parse(b"HTTP/1.0 200 OK\r\n\r\n\xff").is_err());
    }
}
