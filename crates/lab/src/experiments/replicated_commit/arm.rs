//! Which of the arms one is: the runner runs arms of one type.

use super::producers::Producers;
use super::round_trip::RoundTrip;
use crate::arm_result::ArmResult;
use crate::experiment::Setup;
use crate::runner::{self, Block};
use crate::writer::Writer;

use super::plan::{DISK_SYNC, MEASURE};

/// An arm.
pub(super) enum Arm<'a> {
    DiskSync(Box<Writer>),
    RoundTrip(RoundTrip),
    Producers(Box<Producers<'a>>),
}

impl Arm<'_> {
    pub(super) fn result(&self, blocks: &[Block], setup: &Setup<'_>) -> ArmResult {
        match self {
            Self::DiskSync(writer) => {
                let mut arm =
                    ArmResult { name: DISK_SYNC.to_owned(), ..writer.result(blocks, setup) };
                for summary in &mut arm.summaries {
                    MEASURE.clone_into(&mut summary.measure);
                }
                arm
            }
            Self::RoundTrip(_) => RoundTrip::result(blocks, setup),
            Self::Producers(producers) => producers.result(blocks, setup),
        }
    }

    fn inner(&mut self) -> &mut dyn runner::Arm {
        match self {
            Self::DiskSync(writer) => &mut **writer,
            Self::RoundTrip(round_trip) => round_trip,
            Self::Producers(producers) => &mut **producers,
        }
    }
}

impl runner::Arm for Arm<'_> {
    fn prepare(&mut self) -> plimsoll_sync::Result<()> {
        self.inner().prepare()
    }

    fn run(&mut self, block: &mut Block) -> plimsoll_sync::Result<()> {
        self.inner().run(block)
    }

    fn settle(&mut self) -> plimsoll_sync::Result<()> {
        self.inner().settle()
    }
}
