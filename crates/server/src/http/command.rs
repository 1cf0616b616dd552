//! [`Command`]: what an operator has a cluster do, `POST /cluster/<verb>?key=value`.
//!
//! A page of another site can have a browser send a `POST`, but not with a header of its own choosing, unless
//! it was asked first and said yes; nobody here does. So a command needs [`HEADER`].

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::HeaderMap;
use serde::Serialize;

use super::reply::Reply;
use super::wrong::Wrong;
use crate::broker::{Drained, Joined, Node};

/// The header that a command has, and what it says.
const HEADER: (&str, &str) = ("x-plimsoll", "operator");

/// A verb, and what it was told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Have shards go on, most of whose replicas forgot.
    Recover {
        /// Of what the operator was shown of each.
        digests: Vec<String>,
        /// Say what would be done, and do nothing.
        is_rehearsal: bool,
    },
    /// Have a node lead a shard.
    Move { shard: u32, to: u64 },
    /// Have a node come that is found there; under a number that none had, if none is said.
    Join { node: Option<u64>, address: String },
    /// Have a node go.
    Remove { node: u64 },
    /// Have the node that is asked hand over all that it leads, so that it can be stopped.
    Drain {
        /// It is not to be stopped after all.
        is_undone: bool,
    },
    /// Have every node read all its chapters again, at so many bytes a second; as fast as it can where none are said.
    Scrub { rate: Option<NonZeroU64> },
    /// End the scrub of this number.
    StopScrub(u64),
}

impl Command {
    pub(super) fn of(path: &str, query: Option<&str>) -> Result<Self, Wrong> {
        let no_verb = || Wrong::Path(format!("there is nothing to be done at {path:?}"));
        let verb = path.strip_prefix("/cluster/").ok_or_else(no_verb)?;
        let mut told = Told::of(query.unwrap_or_default())?;
        let command = match verb {
            "recover" => Self::Recover {
                digests: {
                    let said =
                        told.need::<String>("digest", "what `plimsoll cluster status` shows")?;
                    said.split(',').map(str::to_owned).collect()
                },
                is_rehearsal: told.take("dry_run", "true or false")?.unwrap_or(false),
            },
            "move" => Self::Move {
                shard: told.need("shard", "the number of a shard")?,
                to: told.need("to", "the number of a node")?,
            },
            "join" => Self::Join {
                node: told.take("node", "the number of a node")?,
                address: told.need("address", "HOST:PORT, where the others find it")?,
            },
            "remove" => Self::Remove { node: told.need("node", "the number of a node")? },
            "drain" => {
                Self::Drain { is_undone: told.take("undo", "true or false")?.unwrap_or(false) }
            }
            "scrub" => match told.take::<Hex>("stop", "the number that a scrub was given")? {
                Some(Hex(scrub)) => Self::StopScrub(scrub),
                None => Self::Scrub { rate: told.take("rate", "bytes a second, from 1 on")? },
            },
            _ => return Err(no_verb()),
        };
        told.end()?;
        Ok(command)
    }

    /// Does it, and says what became of it.
    pub(super) async fn run(self, node: &Arc<Node>) -> Reply {
        match self {
            Self::Recover { digests, is_rehearsal } => {
                match node.recovery.recover(&digests, is_rehearsal).await {
                    Ok(goes_on) => Reply::json(StatusCode::OK, &goes_on),
                    Err(why) => Reply::problem(StatusCode::CONFLICT, &why.to_string()),
                }
            }
            Self::Move { shard, to } => match node.leaders.move_to(shard, to).await {
                Ok(()) => Reply::json(StatusCode::OK, &Moved { shard, leader: to }),
                Err(why) => Reply::problem(StatusCode::CONFLICT, &why.to_string()),
            },
            Self::Join { node: number, address } => {
                match node.registrar.join(number, &address).await {
                    Ok(Joined { node: number, members }) => {
                        let cluster = node.cluster_id();
                        let named = Named { node: number, cluster, members };
                        Reply::json(StatusCode::OK, &named)
                    }
                    Err(why) => Reply::problem(StatusCode::CONFLICT, &why.to_string()),
                }
            }
            Self::Remove { node: number } => match node.registrar.remove(number).await {
                Ok(()) => Reply::json(StatusCode::OK, &Removed { node: number }),
                Err(why) => Reply::problem(StatusCode::CONFLICT, &why.to_string()),
            },
            Self::Drain { is_undone: true } => {
                node.leaders.stay();
                Reply::json(StatusCode::OK, &Drained::default())
            }
            Self::Drain { is_undone: false } => Reply::json(StatusCode::OK, &node.drain().await),
            Self::Scrub { rate } => Reply::json(StatusCode::OK, &node.scrubs.begin(rate).await),
            Self::StopScrub(scrub) => Reply::json(StatusCode::OK, &node.scrubs.stop(scrub).await),
        }
    }
}

/// The number of a scrub, as it is told: 16 hexadecimal digits, and not 0.
struct Hex(u64);

impl FromStr for Hex {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_hex = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok().filter(|number| is_hex && *number != 0);
        number.map(Self).ok_or(())
    }
}

/// Who leads now.
#[derive(Debug, Serialize)]
struct Moved {
    shard: u32,
    leader: u64,
}

/// A node that may come, and what it is to be told.
#[derive(Debug, Serialize)]
struct Named<'a> {
    node: u64,
    cluster: &'a str,
    members: BTreeMap<u64, String>,
}

/// A node that goes.
#[derive(Debug, Serialize)]
struct Removed {
    node: u64,
}

/// Whether a request says that an operator's tool sent it.
pub(super) fn is_operators(headers: &HeaderMap) -> bool {
    let (name, value) = HEADER;
    headers.get(name).is_some_and(|said| said == value)
}

/// What a command was told, each thing once.
struct Told<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Told<'a> {
    fn of(query: &'a str) -> Result<Self, Wrong> {
        let mut told = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let wrong = |why: &str| Wrong::Query(format!("{pair:?} is wrong: {why}"));
            let (key, value) = pair.split_once('=').ok_or_else(|| wrong("it is no key=value"))?;
            if told.insert(key, value).is_some() {
                return Err(wrong("it is said twice"));
            }
        }
        Ok(Self(told))
    }

    /// What was said under a key, if anything was.
    fn take<T: FromStr>(&mut self, key: &str, wanted: &str) -> Result<Option<T>, Wrong> {
        let said = self.0.remove(key).map(|said| {
            let wrong = |_| Wrong::Query(format!("\"{key}={said}\" is wrong: {wanted}"));
            said.parse().map_err(wrong)
        });
        said.transpose()
    }

    fn need<T: FromStr>(&mut self, key: &str, wanted: &str) -> Result<T, Wrong> {
        let missing = || Wrong::Query(format!("{key}= is missing: {wanted}"));
        self.take(key, wanted)?.ok_or_else(missing)
    }

    /// Whoever says more must not be told that it was heard.
    fn end(self) -> Result<(), Wrong> {
        match self.0.first_key_value() {
            Some((key, _)) => Err(Wrong::Query(format!("it takes no {key:?}"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_is_told_what_it_needs_once_and_nothing_else() {
        let of = |query| Command::of("/cluster/recover", Some(query));
        let recover = |digests: &[&str], is_rehearsal| {
            let digests = digests.iter().map(|digest| (*digest).to_owned()).collect();
            Ok(Command::Recover { digests, is_rehearsal })
        };
        assert_eq!(of("digest=abc"), recover(&["abc"], false));
        assert_eq!(of("dry_run=true&digest=abc,def&"), recover(&["abc", "def"], true));
        for nonsense in [
            "",
            "dry_run=true",
            "digest=abc&digest=abc",
            "digest=abc&dry_run=1",
            "digest=abc&more=1",
            "digest",
        ] {
            assert!(matches!(of(nonsense), Err(Wrong::Query(_))), "{nonsense}");
        }
        let of = Command::of("/cluster/move", Some("shard=2&to=3"));
        assert_eq!(of, Ok(Command::Move { shard: 2, to: 3 }));
        assert!(Command::of("/cluster/move", Some("shard=2")).is_err());
        let of = |query| Command::of("/cluster/join", Some(query));
        let join = |node| Command::Join { node, address: "d:9094".to_owned() };
        assert_eq!(of("address=d:9094"), Ok(join(None)));
        assert_eq!(of("node=4&address=d:9094"), Ok(join(Some(4))));
        assert!(of("node=4").is_err());
        let of = Command::of("/cluster/remove", Some("node=3"));
        assert_eq!(of, Ok(Command::Remove { node: 3 }));
        let of = |query| Command::of("/cluster/drain", query);
        assert_eq!(of(None), Ok(Command::Drain { is_undone: false }));
        assert_eq!(of(Some("undo=true")), Ok(Command::Drain { is_undone: true }));
        let of = |query| Command::of("/cluster/scrub", query);
        assert_eq!(of(None), Ok(Command::Scrub { rate: None }));
        assert_eq!(of(Some("rate=5")), Ok(Command::Scrub { rate: NonZeroU64::new(5) }));
        assert_eq!(of(Some("stop=00000000000000ff")), Ok(Command::StopScrub(255)));
        for nonsense in ["rate=0", "rate=fast", "stop=ff", "stop=0000000000000000", "stop="] {
            assert!(matches!(of(Some(nonsense)), Err(Wrong::Query(_))), "{nonsense}");
        }
        assert!(of(Some("stop=00000000000000ff&rate=5")).is_err());
        for nothing in ["/", "/cluster", "/cluster/", "/cluster/recover/", "/cluster/Recover"] {
            assert!(matches!(Command::of(nothing, None), Err(Wrong::Path(_))), "{nothing}");
        }
    }
}
