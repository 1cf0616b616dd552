//! From the results of the arms to sentences, and to verdicts on what the article claims. Pure.

use super::plan::{DISK_SYNC, RECORD_BYTES, ROUND_TRIP, SYNC_BEHIND, Way, arm_name, writers};
use crate::arm_result::{ArmResult, busy_mark_of};
use crate::claim::{Article, Claim, Holds};
use crate::experiment::Profile;
use crate::units;
use crate::warning::busy_stamp;

/// With syncs on the way, so many times fewer acknowledgements are a cap.
const CAPPED: f64 = 2.0;
/// So many times fewer are none.
const ALIKE: f64 = 1.1;

pub(super) fn answer(arms: &[ArmResult], profile: Profile) -> (Vec<String>, Vec<Claim>) {
    let most = *writers(profile).last().expect("some write");
    let mut answer: Vec<String> = [alone(arms), floors(arms), together(arms, most), behind(arms)]
        .into_iter()
        .flatten()
        .collect();
    let claims: Vec<Claim> =
        [sooner(arms, profile), capped(arms, most)].into_iter().flatten().collect();
    answer.extend(claims.iter().map(Claim::in_words));
    (answer, claims)
}

/// What an acknowledgement takes, for a line of a screen.
pub(super) fn in_short(arms: &[ArmResult]) -> Option<String> {
    let ways = [Way::OneDisk, Way::QuorumMemory, Way::QuorumDisks].map(|way| find(arms, way, 1));
    let [Some(disk), Some(memory), Some(disks)] = ways else { return None };
    Some(format!(
        "acknowledged by one disk in {}, by a quorum's memory in {}, by its disks in {}{}",
        units::time(disk.p50_ns()?),
        units::time(memory.p50_ns()?),
        units::time(disks.p50_ns()?),
        busy_mark_of(&[disk, memory, disks])
    ))
}

/// The valid arm of a way.
fn find(arms: &[ArmResult], way: Way, writers: usize) -> Option<&ArmResult> {
    named(arms, &arm_name(way, writers))
}

fn named<'a>(arms: &'a [ArmResult], name: &str) -> Option<&'a ArmResult> {
    arms.iter().find(|arm| arm.name == name && arm.valid && arm.p50_ns().is_some())
}

const fn in_words(way: Way) -> &'static str {
    match way {
        Way::OneMemory => "from one broker's memory",
        Way::OneDisk => "from one broker's disk",
        Way::QuorumMemory => "from a quorum's memory",
        Way::QuorumDisks => "from a quorum's disks",
    }
}

fn alone(arms: &[ArmResult]) -> Option<String> {
    let took: Vec<(Way, &ArmResult)> =
        Way::ALL.into_iter().filter_map(|way| Some((way, find(arms, way, 1)?))).collect();
    let said: Vec<String> = took
        .iter()
        .filter_map(|(way, arm)| Some(format!("{} in {}", in_words(*way), median_and_tail(arm)?)))
        .collect();
    let is_noisy = took.iter().any(|(_, arm)| arm.is_noisy());
    (!said.is_empty()).then(|| {
        format!(
            "One writer's record of {RECORD_BYTES} B is acknowledged {}{}.",
            said.join(", "),
            busy_stamp(is_noisy)
        )
    })
}

/// `120 µs (p99 300 µs)`
fn median_and_tail(arm: &ArmResult) -> Option<String> {
    let p50 = units::time(arm.p50_ns()?);
    let p99 = arm.summaries.first()?.p99_ns;
    Some(p99.map_or_else(|| p50.clone(), |p99| format!("{p50} (p99 {})", units::time(p99))))
}

fn floors(arms: &[ArmResult]) -> Option<String> {
    let (sync, trip) = (named(arms, DISK_SYNC)?, named(arms, ROUND_TRIP)?);
    Some(format!(
        "Under that: a sync of this disk takes {} without a broker, a round trip over the loopback of this \
         machine {}{}; between machines it takes longer.",
        units::time(sync.p50_ns()?),
        units::time(trip.p50_ns()?),
        busy_stamp(sync.is_noisy() || trip.is_noisy())
    ))
}

fn together(arms: &[ArmResult], writers: usize) -> Option<String> {
    let took: Vec<(Way, &ArmResult)> =
        Way::ALL.into_iter().filter_map(|way| Some((way, find(arms, way, writers)?))).collect();
    let said: Vec<String> = took
        .iter()
        .filter_map(|(way, arm)| {
            let rate = units::figure(per_s(arm)?);
            Some(format!("{} {rate}/s, each in {}", in_words(*way), median_and_tail(arm)?))
        })
        .collect();
    let is_noisy = took.iter().any(|(_, arm)| arm.is_noisy());
    (!said.is_empty()).then(|| {
        let said = said.join("; ");
        format!("{writers} writers are acknowledged {said}{}.", busy_stamp(is_noisy))
    })
}

/// What syncing behind leaves unsynced.
fn behind(arms: &[ArmResult]) -> Option<String> {
    let unsynced = |arm: &ArmResult| arm.values.get("unsynced_bytes").copied();
    let of_quorum = arms.iter().filter(|arm| arm.valid && arm.name.starts_with("quorum-memory/"));
    let most = of_quorum.filter_map(unsynced).max_by(f64::total_cmp)?;
    Some(format!(
        "Synced behind every {} ms, up to {} were acknowledged by a quorum's memory and not synced yet, as far \
         as was seen.",
        SYNC_BEHIND.as_millis(),
        units::quantity("unsynced_bytes", most).1
    ))
}

fn per_s(arm: &ArmResult) -> Option<f64> {
    arm.values.get("acknowledged_per_s").copied()
}

/// A quorum's memory against one disk's sync.
fn sooner(arms: &[ArmResult], profile: Profile) -> Option<Claim> {
    let pair = |&writers: &usize| {
        let pair = (find(arms, Way::QuorumMemory, writers)?, find(arms, Way::OneDisk, writers)?);
        Some((writers, pair.0, pair.1))
    };
    let pairs: Vec<_> = writers(profile).iter().filter_map(pair).collect();
    let said: Vec<String> = pairs
        .iter()
        .filter_map(|(writers, memory, disk)| {
            let (memory, disk) = (units::time(memory.p50_ns()?), units::time(disk.p50_ns()?));
            let writers =
                if *writers == 1 { "1 writer".to_owned() } else { format!("{writers} writers") };
            Some(format!("{memory} where one disk's sync took {disk} ({writers})"))
        })
        .collect();
    // Sooner, not sooner, or as far as the blocks tell the same.
    let is_sooner = |memory: &ArmResult, disk: &ArmResult| {
        let differs = memory.summaries[0].differs_from(&disk.summaries[0])?;
        Some(differs && memory.p50_ns() < disk.p50_ns())
    };
    let known: Option<Vec<bool>> =
        pairs.iter().map(|(_, memory, disk)| is_sooner(memory, disk)).collect();
    let verdict = match known.as_deref() {
        None | Some([]) => Holds::Undecided,
        Some(all) if all.iter().all(|sooner| *sooner) => Holds::Holds,
        Some(all) if all.iter().any(|sooner| *sooner) => Holds::InPart,
        Some(_) => Holds::DoesNotHold,
    };
    let of: Vec<&ArmResult> = pairs.iter().flat_map(|(_, memory, disk)| [*memory, *disk]).collect();
    (!pairs.is_empty()).then(|| {
        let claim =
            "a write that is kept by replication need not wait for a sync, and is quicker without";
        let here = format!("a quorum's memory took {}", said.join(", and "));
        let claim = Claim::new(Article::Wait, claim.to_owned(), here, verdict).of_arms(&of);
        claim.unless(known.is_none().then(too_few))
    })
}

/// A quorum's memory against its disks, with many writers.
fn capped(arms: &[ArmResult], writers: usize) -> Option<Claim> {
    let memory = find(arms, Way::QuorumMemory, writers)?;
    let disks = find(arms, Way::QuorumDisks, writers)?;
    let (from_memory, from_disks) = (per_s(memory)?, per_s(disks)?);
    let factor = from_memory / from_disks.max(f64::EPSILON);
    let differs = memory.summaries[0].differs_from(&disks.summaries[0]);
    let verdict = match differs {
        None => Holds::Undecided,
        Some(true) if factor >= CAPPED => Holds::Holds,
        Some(true) if factor >= ALIKE => Holds::InPart,
        Some(_) => Holds::DoesNotHold,
    };
    let claim = "a small sync on the path of every write caps what a database takes";
    let here = format!(
        "{writers} writers get {} acknowledgements/s from a quorum's memory and {} from its disks, which \
         share syncs ({factor:.1} times)",
        units::figure(from_memory),
        units::figure(from_disks)
    );
    let claim =
        Claim::new(Article::Wait, claim.to_owned(), here, verdict).of_arms(&[memory, disks]);
    Some(claim.unless(differs.is_none().then(too_few)))
}

fn too_few() -> String {
    "there are too few blocks to compare: give it a longer --budget".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Block;
    use crate::summary::Summary;
    use crate::warning::{Kind, Warning};

    /// Twelve blocks around a time, with as many writers as the name says.
    fn arm(name: &str, ns: u64) -> ArmResult {
        let blocks: Vec<Block> =
            (0..12).map(|n| Block::from_samples(vec![vec![ns + n; 100]])).collect();
        let mut arm = ArmResult::of_summary(name, Summary::of("time", &blocks, 0));
        let writers: f64 = name.rsplit('/').next().unwrap().parse().unwrap_or(1.0);
        arm.values.insert("acknowledged_per_s".to_owned(), writers * 1e9 / units::ratio(ns, 1));
        arm
    }

    fn arms(quorum_memory: [u64; 2], quorum_disks: u64) -> Vec<ArmResult> {
        vec![
            arm("disk-sync", 80_000),
            arm("round-trip", 20_000),
            arm("one-disk/1", 150_000),
            arm("one-disk/64", 2_000_000),
            arm("quorum-memory/1", quorum_memory[0]),
            arm("quorum-memory/64", quorum_memory[1]),
            arm("quorum-disks/1", 400_000),
            arm("quorum-disks/64", quorum_disks),
        ]
    }

    fn verdicts(arms: &[ArmResult]) -> Vec<Holds> {
        answer(arms, Profile::Quick).1.iter().map(|claim| claim.verdict).collect()
    }

    #[test]
    fn what_the_article_claims_holds_where_memory_is_sooner_and_takes_twice_as_much() {
        let holds = arms([100_000, 1_000_000], 3_000_000);
        assert_eq!(verdicts(&holds), [Holds::Holds, Holds::Holds]);
        let (said, _) = answer(&holds, Profile::Quick);
        assert!(
            said[0].contains(
                "from one broker's disk in 150 µs (p99 150 µs), from a quorum's memory in 100 µs"
            ),
            "{said:?}"
        );
        assert!(
            said[1].contains("takes 80.0 µs without a broker") && said[1].contains("20.0 µs"),
            "{said:?}"
        );
        assert!(
            said[2].starts_with("64 writers are acknowledged from one broker's disk 32000/s"),
            "{said:?}"
        );
        let short = in_short(&holds).unwrap();
        assert_eq!(
            short,
            "acknowledged by one disk in 150 µs, by a quorum's memory in 100 µs, by its disks in 400 µs"
        );
    }

    #[test]
    fn memory_that_is_sooner_for_some_writers_only_holds_in_part_and_for_none_not() {
        assert_eq!(
            verdicts(&arms([200_000, 1_000_000], 1_500_000)),
            [Holds::InPart, Holds::InPart]
        );
        let slow = arms([200_000, 2_500_000], 2_500_000);
        assert_eq!(verdicts(&slow), [Holds::DoesNotHold, Holds::DoesNotHold]);
    }

    #[test]
    fn nothing_is_decided_on_a_busy_machine_or_from_few_blocks() {
        let mut busy = arms([100_000, 1_000_000], 3_000_000);
        busy[4].warnings.push(Warning::new(Kind::Noisy, "others used a CPU"));
        assert_eq!(
            verdicts(&busy),
            [Holds::Undecided, Holds::Holds],
            "the other rests on calm arms"
        );
        assert!(in_short(&busy).unwrap().ends_with(" ?"));
        let mut few = arms([100_000, 1_000_000], 3_000_000);
        few[5].summaries[0].block_p50_ns.truncate(2);
        let (said, claims) = answer(&few, Profile::Quick);
        assert!(claims.iter().all(|claim| claim.verdict == Holds::Undecided), "{claims:?}");
        assert!(said.iter().any(|said| said.contains("too few blocks")), "{said:?}");
    }

    #[test]
    fn arms_that_are_missing_or_invalid_say_nothing() {
        assert_eq!(answer(&[], Profile::Quick), (Vec::new(), Vec::new()));
        let mut invalid = arms([100_000, 1_000_000], 3_000_000);
        for arm in &mut invalid {
            arm.valid = arm.name.starts_with("quorum-memory");
        }
        let (said, claims) = answer(&invalid, Profile::Quick);
        assert!(claims.is_empty() && in_short(&invalid).is_none(), "{claims:?}");
        assert!(said.iter().all(|said| !said.contains("disk")), "{said:?}");
    }
}
