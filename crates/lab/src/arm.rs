//! From the blocks of an arm to its result, for every arm whose blocks consist of samples and
//! counts.

use std::collections::BTreeMap;

use plimsoll_sync::{Promise, SyncMethod};

use crate::arm_result::{ArmResult, Machine, PerOperation};
use crate::attribution::Attribution;
use crate::counters::Elapsed;
use crate::experiment::Setup;
use crate::layout::Layout;
use crate::runner::Block;
use crate::summary::Summary;
use crate::verdict::{self, Asked};

/// What is known of an arm before it is measured.
#[derive(Debug, Clone)]
pub(crate) struct Identity<'a> {
    /// Its name, unique in the experiment.
    pub name: String,
    /// How it syncs.
    pub method: SyncMethod,
    /// How its file is laid out.
    pub layout: Layout,
    /// What its operations were promised.
    pub promise: Promise,
    /// Bytes of one operation.
    pub payload_bytes: u64,
    /// What was measured, in the order of the lists of a block.
    pub measures: &'a [&'a str],
}

impl Identity<'_> {
    /// The result of the arm, from its `blocks`. It is invalid if the counts of the device
    /// contradict what so many operations `asked` of it; if that cannot be said, they are not
    /// checked. The attribution is that of a closed loop in one thread.
    #[must_use]
    pub(crate) fn result(
        self,
        blocks: &[Block],
        asked: impl FnOnce(u64) -> Option<Asked>,
        setup: &Setup<'_>,
    ) -> ArmResult {
        let elapsed = Elapsed::sum(blocks.iter().map(|block| &block.elapsed));
        let operations: u64 = blocks.iter().map(|block| block.durable_operations).sum();
        let mut warnings =
            verdict::check_noise(&elapsed, setup.environment.cpus, setup.busy_before);
        if let Some(asked) = asked(operations) {
            warnings.extend(verdict::check_promise(asked, &elapsed, setup.environment));
        }
        let summary = |(number, measure): (usize, &&str)| Summary::of(measure, blocks, number);
        ArmResult {
            name: self.name,
            method: self.method.name().to_owned(),
            layout: self.layout.name().to_owned(),
            promise: self.promise.name().to_owned(),
            payload_bytes: self.payload_bytes,
            blocks: blocks.len(),
            durable_operations: operations,
            valid: !warnings.iter().any(|warning| warning.kind.invalidates()),
            summaries: self.measures.iter().enumerate().map(summary).collect(),
            per_operation: PerOperation::of(&elapsed, operations),
            values: BTreeMap::new(),
            machine: Machine::during(&elapsed),
            attribution: Attribution::of(&elapsed, operations),
            series: None,
            warnings,
        }
    }
}
