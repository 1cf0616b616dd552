//! [`Lender`]: what other nodes are given to read: files of shards, and nothing else.

use std::io::ErrorKind;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use plimsoll_sync::{Dir, SyncMethod};
use tokio::task::spawn_blocking;

use super::message::{Answer, NAME_BYTES_MAX, Request};
use crate::broker::{Door, Scrubs, layout};
use crate::peer::Peer;

/// Reads the directory of this node for others.
#[derive(Debug)]
pub(super) struct Lender {
    pub(super) dir: Arc<dyn Dir>,
    /// Who reads again what looked damaged to others.
    pub(super) scrubs: Weak<Scrubs>,
}

impl Door for Lender {
    fn answer(&self, from: Peer, request: &Bytes) -> BoxFuture<'static, Vec<Bytes>> {
        let (dir, request) = (Arc::clone(&self.dir), Request::decode(request));
        let scrubs = self.scrubs.clone();
        async move {
            let answer = match request {
                Ok(Request::Doubt { shard }) => {
                    let scrubs = scrubs.upgrade().filter(|_| layout::GIVEN.contains(&shard));
                    let doubted = scrubs.map(|scrubs| scrubs.doubt_log(shard));
                    Ok(doubted.map_or(Answer::NotGiven, |()| Answer::Doubted))
                }
                // It waits for the disk.
                Ok(request) => spawn_blocking(move || answer(&*dir, &request)).await,
                Err(why) => {
                    tracing::error!(from = from.node, %why, "a request for files cannot be read");
                    Ok(Answer::NotGiven)
                }
            };
            vec![answer.unwrap_or(Answer::Failed).encode().into()]
        }
        .boxed()
    }
}

/// The answer to a request.
pub(super) fn answer(root: &dyn Dir, request: &Request) -> Answer {
    let answered = match request {
        Request::List { dir } if is_given(dir, None) => {
            in_dir(root, dir, |dir| {
                let mut names = dir.list()?;
                // Others are nobody's.
                names.retain(|name| name.len() <= NAME_BYTES_MAX);
                Ok(Answer::List(names))
            })
        }
        Request::Length { dir, file } if is_given(dir, Some(file)) => in_dir(root, dir, |dir| {
            let file = dir.open(file, SyncMethod::ORDINARY.access())?;
            file.len().map(Answer::Length)
        }),
        Request::Read { dir, file, at, bytes } if is_given(dir, Some(file)) => {
            in_dir(root, dir, |dir| {
                let file = dir.open(file, SyncMethod::ORDINARY.access())?;
                let mut read = vec![0; *bytes];
                let length = file.read_at(&mut read, *at)?;
                read.truncate(length);
                Ok(Answer::Read(read))
            })
        }
        _ => return Answer::NotGiven,
    };
    match answered {
        Ok(answer) => answer,
        Err(why) if why.kind() == Some(ErrorKind::NotFound) => Answer::NotThere,
        Err(why) => {
            tracing::error!(%why, "what another node lacks cannot be read");
            Answer::Failed
        }
    }
}

fn in_dir(
    root: &dyn Dir,
    name: &str,
    read: impl FnOnce(&dyn Dir) -> plimsoll_sync::Result<Answer>,
) -> plimsoll_sync::Result<Answer> {
    if name.is_empty() { read(root) } else { read(&*root.open_dir(name)?) }
}

/// Whether a directory, or a file in it, is a shard's.
fn is_given(dir: &str, file: Option<&str>) -> bool {
    let is_plain =
        |name: &str| !name.is_empty() && !name.contains(['/', '\\', '\0']) && name != "..";
    match (dir, file) {
        ("", Some(file)) => layout::GIVEN.iter().any(|number| layout::state(*number) == file),
        (dir, file) => {
            let of = |number: &u32| [layout::shard(*number), layout::chapters(*number)];
            layout::GIVEN.iter().flat_map(of).any(|name| name == dir) && file.is_none_or(is_plain)
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_simdisk::SimDir;

    use super::*;

    fn read(dir: &str, file: &str) -> Request {
        Request::Read { dir: dir.to_owned(), file: file.to_owned(), at: 1, bytes: 2 }
    }

    #[test]
    fn files_of_shards_are_given_and_nothing_else() {
        let root = SimDir::new();
        let shard = root.create_dir("shard-2").unwrap();
        let write = |dir: &dyn Dir, name: &str| {
            let file = dir.create(name, SyncMethod::ORDINARY.access()).unwrap();
            file.write_at(b"bytes", 0).unwrap();
        };
        write(&*shard, "identity");
        write(&*shard, &"n".repeat(NAME_BYTES_MAX + 1));
        ["state-2", "run", "cluster"].into_iter().for_each(|name| write(&root, name));
        for (dir, file) in [("shard-2", "identity"), ("", "state-2")] {
            assert_eq!(answer(&root, &read(dir, file)), Answer::Read(b"yt".to_vec()));
            let length = Request::Length { dir: dir.to_owned(), file: file.to_owned() };
            assert_eq!(answer(&root, &length), Answer::Length(5));
        }
        let names = Answer::List(vec!["identity".to_owned()]);
        assert_eq!(answer(&root, &Request::List { dir: "shard-2".to_owned() }), names);
        assert_eq!(answer(&root, &read("shard-2", "another")), Answer::NotThere);
        for (dir, file) in [
            ("", "run"),
            ("", "cluster"),
            ("shard-2", "../run"),
            ("shard-0", "identity"),
            (".", "run"),
        ] {
            assert_eq!(answer(&root, &read(dir, file)), Answer::NotGiven, "{dir}/{file}");
        }
        assert_eq!(answer(&root, &Request::List { dir: String::new() }), Answer::NotGiven);
    }
}
