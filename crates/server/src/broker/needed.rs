//! [`why_needed`]: why a shard would not go on at once without a node that is about to be stopped. Pure.

use std::collections::BTreeSet;

/// Why a shard would not go on at once without a node.
#[derive(Debug)]
pub(super) struct Needed {
    pub(super) why: String,
    /// Whether that may pass though nobody who is about to be stopped has come back.
    pub(super) may_pass: bool,
}

/// Why a shard with these voters would not go on at once without one of them, if it would not: by which of them have what was
/// committed a moment ago, as its leader says, and which are about to be stopped as well. One that never could is no reason.
pub(super) fn why_needed(
    own: u64,
    voters: &[u64],
    leader: Option<u64>,
    level: Option<&BTreeSet<u64>>,
    goes: &BTreeSet<u64>,
) -> Option<Needed> {
    let others: Vec<u64> = voters.iter().copied().filter(|voter| *voter != own).collect();
    let needed = others.len().min(voters.len() / 2 + 1);
    if needed == 0 || others.len() == voters.len() {
        return None;
    }
    let Some(level) = level else {
        let why = leader.map_or("nobody leads it".to_owned(), |leader| {
            format!("node {leader}, which leads it, does not say yet who is level")
        });
        return Some(Needed { why, may_pass: true });
    };
    let lags = |voter: &u64| match (goes.contains(voter), level.contains(voter)) {
        (true, _) => Some(format!(
            "node {voter} is about to be stopped as well: have it back first, or stay (`plimsoll cluster drain --undo`)"
        )),
        (false, false) => Some(format!(
            "node {voter} is not level: it lacks what was committed a moment ago, is in doubt, or does not answer"
        )),
        (false, true) => None,
    };
    let whys: Vec<String> = others.iter().filter_map(lags).collect();
    let may_pass = others.iter().any(|voter| !goes.contains(voter) && !level.contains(voter));
    (others.len() - whys.len() < needed).then(|| Needed { why: whys.join("; "), may_pass })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that had just been started lacked what the others had let go of, and the next was said to be ready to be stopped:
    /// nobody could acknowledge anything then.
    #[test]
    fn a_node_is_needed_while_those_that_stay_and_are_level_are_too_few() {
        let level = |level: &[u64]| level.iter().copied().collect::<BTreeSet<u64>>();
        let needed = |voters: &[u64], is_level: &[u64], goes: &[u64]| {
            why_needed(1, voters, Some(2), Some(&level(is_level)), &level(goes))
        };
        let why = |voters: &[u64], is_level: &[u64], goes: &[u64]| {
            needed(voters, is_level, goes).map(|needed| needed.why)
        };
        let unled = |voters: &[u64], leader| {
            why_needed(1, voters, leader, None, &level(&[])).map(|needed| needed.why)
        };
        assert_eq!(why(&[1, 2, 3], &[1, 2, 3], &[]), None);
        let lags = why(&[1, 2, 3], &[1, 2], &[]).unwrap();
        assert!(lags.starts_with("node 3 is not level: "), "{lags}");
        // What only an operator changes is not waited for to the end.
        let may_pass = |is_level, goes| needed(&[1, 2, 3], is_level, goes).unwrap().may_pass;
        assert!(may_pass(&[1, 2], &[]) && !may_pass(&[1, 2, 3], &[3]) && may_pass(&[1, 3], &[3]));
        let goes = why(&[1, 2, 3], &[1, 2, 3], &[3]).unwrap();
        assert!(goes.starts_with("node 3 is about to be stopped as well"), "{goes}");
        assert_eq!(why(&[1, 2, 3, 4, 5], &[1, 2, 3, 4], &[]), None, "three of five go on");
        assert!(why(&[1, 2, 3, 4, 5], &[1, 2, 3], &[]).is_some());
        // Without a majority there never is one: whoever stops such a node knows that.
        assert_eq!(why(&[1, 2], &[1, 2], &[]), None);
        assert!(why(&[1, 2], &[1], &[]).is_some());
        assert_eq!((why(&[1], &[1], &[]), unled(&[1], None)), (None, None));
        // Who has no vote is missed by nobody.
        assert_eq!((why(&[2, 3], &[2], &[]), unled(&[2, 3], None)), (None, None));
        let unknown = unled(&[1, 2, 3], Some(2)).unwrap();
        assert_eq!(unknown, "node 2, which leads it, does not say yet who is level");
        assert!(unled(&[1, 2, 3], None).is_some());
    }
}
