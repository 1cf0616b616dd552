//! [`Route`]: what a request asks for. Pure.

use std::time::Duration;

use super::command::Command;
use super::wrong::Wrong;
use crate::broker::Level;

/// How long a wait takes unless it says.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long it takes at most.
pub(super) const TIMEOUT_MAX: Duration = Duration::from_secs(300);

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The page for people.
    Page,
    Health,
    Ready,
    Metrics,
    /// All that the page shows but topics and groups, for programs.
    Status,
    /// What each node says of each shard.
    Roll,
    /// How each node's scrubs go.
    Scrubs,
    Topics,
    Topic(String),
    Groups,
    Wait(Wait),
    /// Something is to be done: by `POST`, and never by a path that is only looked at.
    Command(Command),
}

/// To be told when a record is so safe.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) topic: String,
    pub(super) number: u32,
    pub(super) offset: i64,
    pub(super) level: Level,
    pub(super) timeout: Duration,
    /// Whether the disk is asked to have it so.
    pub(super) sync: bool,
}

impl Route {
    pub(super) fn of(path: &str, query: Option<&str>) -> Result<Self, Wrong> {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let route = match parts[..] {
            [""] => Self::Page,
            ["health"] => Self::Health,
            ["ready"] => Self::Ready,
            ["metrics"] => Self::Metrics,
            ["status"] => Self::Status,
            ["cluster", "status"] => Self::Roll,
            ["cluster", "scrub"] => Self::Scrubs,
            ["topics"] => Self::Topics,
            ["groups"] => Self::Groups,
            ["topics", name] => Self::Topic(name.to_owned()),
            ["topics", name, number, "wait"] => {
                let no = || Wrong::Query(format!("{number:?} is no number of a partition"));
                let number = number.parse().map_err(|_no_number| no())?;
                return Wait::of(name, number, query.unwrap_or_default()).map(Self::Wait);
            }
            _ => return Err(Wrong::Path(format!("there is nothing at {path:?}"))),
        };
        // Whatever asks for something must not be told something else.
        match query.filter(|query| !query.is_empty()) {
            Some(query) => Err(Wrong::Query(format!("{path} takes no {query:?}"))),
            None => Ok(route),
        }
    }
}

impl Wait {
    fn of(topic: &str, number: u32, query: &str) -> Result<Self, Wrong> {
        let (mut offset, mut level, mut timeout, mut sync) = (None, None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let wrong = |wanted: &str| Wrong::Query(format!("{pair:?} is wrong: {wanted}"));
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let was_said = match key {
                "offset" => {
                    let said = value.parse::<i64>().ok().filter(|offset| *offset >= 0);
                    offset.replace(said.ok_or_else(|| wrong("an offset, from 0"))?).is_some()
                }
                "level" => {
                    let said = match value {
                        "acknowledged" => Level::Acknowledged,
                        "durable" => Level::Durable,
                        _ => return Err(wrong("acknowledged or durable")),
                    };
                    level.replace(said).is_some()
                }
                "timeout_ms" => {
                    let said = value.parse().ok().map(Duration::from_millis);
                    let said = said.filter(|said| *said <= TIMEOUT_MAX);
                    timeout.replace(said.ok_or_else(|| wrong("at most 300000"))?).is_some()
                }
                "sync" => {
                    let said = value.parse::<bool>().ok();
                    sync.replace(said.ok_or_else(|| wrong("true or false"))?).is_some()
                }
                _ => return Err(wrong("offset, level, timeout_ms or sync")),
            };
            if was_said {
                return Err(wrong("it is said twice"));
            }
        }
        let missing = || Wrong::Query("which offset? …/wait?offset=0&level=durable".to_owned());
        Ok(Self {
            topic: topic.to_owned(),
            number,
            offset: offset.ok_or_else(missing)?,
            level: level.unwrap_or(Level::Durable),
            timeout: timeout.unwrap_or(TIMEOUT),
            sync: sync.unwrap_or(false),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_asks_for_one_thing() {
        let of = |path| Route::of(path, None);
        assert_eq!(of("/"), Ok(Route::Page));
        assert_eq!(of("/health"), Ok(Route::Health));
        assert_eq!(of("/cluster/status"), Ok(Route::Roll));
        assert_eq!(of("/cluster/scrub"), Ok(Route::Scrubs));
        assert_eq!(of("/topics/a.b-c_d"), Ok(Route::Topic("a.b-c_d".to_owned())));
        for nothing in ["", "//", "/health/", "/Health", "/topics/a/0", "/topics/a/0/wait/", "/../"]
        {
            assert!(matches!(of(nothing), Err(Wrong::Path(_))), "{nothing}");
        }
        assert!(matches!(Route::of("/topics", Some("a=b")), Err(Wrong::Query(_))));
        assert_eq!(Route::of("/topics", Some("")), Ok(Route::Topics));
    }

    #[test]
    fn a_wait_says_what_it_waits_for() {
        let of = |query| Route::of("/topics/t/7/wait", Some(query));
        let wait = Wait {
            topic: "t".to_owned(),
            number: 7,
            offset: 5,
            level: Level::Durable,
            timeout: TIMEOUT,
            sync: false,
        };
        assert_eq!(of("offset=5"), Ok(Route::Wait(wait)));
        let all = of("offset=5&level=acknowledged&timeout_ms=0&sync=true");
        let Ok(Route::Wait(all)) = all else { panic!("{all:?}") };
        assert_eq!((all.level, all.timeout, all.sync), (Level::Acknowledged, Duration::ZERO, true));
        for nonsense in [
            "",
            "offset=-1",
            "offset=9223372036854775808",
            "offset=x",
            "offset",
            "offset=1&offset=2",
            "offset=1&level=safe",
            "offset=1&timeout_ms=300001",
            "offset=1&timeout_ms=-1",
            "offset=1&sync=yes",
            "offset=1&more=1",
        ] {
            assert!(matches!(of(nonsense), Err(Wrong::Query(_))), "{nonsense}");
        }
        for number in ["x", "-1", "4294967296", ""] {
            let path = format!("/topics/t/{number}/wait");
            assert!(matches!(Route::of(&path, Some("offset=1")), Err(Wrong::Query(_))), "{number}");
        }
    }
}
