//! From the outcome of a race to the result of its arm. Pure.

use std::collections::BTreeMap;

use plimsoll_sync::{Promise, System};

use super::plan::{Rival, arm_name, rates};
use super::race::{self, Outcome, Target};
use crate::arm_result::{ArmResult, Machine, PerOperation};
use crate::experiment::Setup;
use crate::layout::Layout;
use crate::runner::Block;
use crate::summary::Summary;
use crate::units;
use crate::verdict::{self, Asked};

/// If fewer syncs than this held a write up, it was chance.
const HELD_TELLS: usize = 3;

/// An arm and what its writes and syncs did to each other.
pub(super) struct Found {
    pub(super) target: Target,
    pub(super) layout: Layout,
    pub(super) syncs: usize,
    pub(super) held: usize,
    pub(super) overlapped: usize,
    pub(super) slow_writes: usize,
    pub(super) arm: ArmResult,
}

impl Found {
    pub(super) fn of(
        rival: Rival,
        layout: Layout,
        outcome: Outcome,
        blocks: usize,
        setup: &Setup<'_>,
    ) -> Self {
        let write_bytes = rates(setup.profile).write_bytes;
        let (elapsed, operations) = (outcome.elapsed, outcome.durable_operations);
        let last = rival.syncs.last();
        let promise = last.and_then(|method| method.promise(System::HERE));
        let promise = promise.unwrap_or(Promise::Nothing);
        let mut warnings =
            verdict::check_noise(&elapsed, setup.environment.cpus, setup.busy_before);
        if operations > 0 {
            // Only where each write syncs itself is it known how much a sync has to write.
            let bytes = if rival.target == Target::EveryWrite { write_bytes } else { 0 };
            let asked = Asked::new(promise, operations, bytes);
            warnings.extend(verdict::check_promise(asked, &elapsed, setup.environment));
        }
        let arm = ArmResult {
            name: arm_name(&rival, layout),
            method: rival.syncs.iter().map(|m| m.name()).collect::<Vec<_>>().join("+"),
            layout: layout.name().to_owned(),
            promise: promise.name().to_owned(),
            payload_bytes: write_bytes,
            blocks,
            durable_operations: operations,
            valid: !warnings.iter().any(|warning| warning.kind.invalidates()),
            per_operation: PerOperation::of(&elapsed, operations),
            values: BTreeMap::from([
                ("syncs".to_owned(), units::ratio(outcome.syncs as u64, 1)),
                ("syncs_that_held_a_write".to_owned(), units::ratio(outcome.held as u64, 1)),
            ]),
            machine: Machine::during(&elapsed),
            attribution: None,
            series: Some(outcome.series),
            warnings,
            summaries: outcome.summaries,
        };
        let Outcome { syncs, held, overlapped, slow_writes, .. } = outcome;
        Self { target: rival.target, layout, syncs, held, overlapped, slow_writes, arm }
    }

    /// The share of syncs that held a write up; zero if so few did that it may be chance.
    pub(super) fn held_share(&self) -> f64 {
        if self.held < HELD_TELLS { 0.0 } else { units::ratio(self.held as u64, self.syncs as u64) }
    }

    pub(super) fn slowest_beside_a_sync(&self) -> Option<u64> {
        self.arm.summaries[race::OVERLAPPED].max_ns
    }
}

/// How long a write takes on this layout when nobody syncs: the median of the control. Where the
/// control does not run, it is the lowest median of writes that met no sync.
pub(super) fn usual_ns(rivals: &[(Rival, Layout)], blocks: &[Vec<Block>], layout: Layout) -> u64 {
    let medians = |control: bool| {
        let arms = rivals.iter().zip(blocks).filter(move |((rival, of), _)| {
            *of == layout && (rival.target == Target::Nothing) == control
        });
        arms.filter_map(|(_, blocks)| Summary::of("", blocks, race::FREE).p50_ns)
    };
    medians(true).next().or_else(|| medians(false).min()).unwrap_or(0)
}
