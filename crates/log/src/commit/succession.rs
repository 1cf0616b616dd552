//! One segment follows another: the order of steps on which durability rests.
//!
//! | | follows | what is durable before it has its name |
//! | --- | --- | --- |
//! | [`Step::First`] | nothing: the log is new | itself |
//! | [`Step::Rotate`] | a full segment | nothing: the next sync covers both |
//! | [`Step::Cut`] | a record in the middle of what there is: a truncation, a segment that failed, a torn tail | itself, then the note that stale segments may be there |
//!
//! Always in this order: the link is staged; what goes into the segment from the ring; write; sync; note;
//! rename; the list of segments. So at every moment the directory holds all that was acknowledged, and
//! what was replaced is told from it: a cut has a generation of its own.

use crate::error::Result;
use crate::files::Files;
use crate::files::place::Spare;
use crate::segment::active::Active;
use crate::segment::format::Frame;
use crate::segment::handle::Previous;
use crate::segment::link::Link;

/// What a segment follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    First,
    Rotate,
    Cut,
}

/// Where a segment begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beginning {
    pub(crate) first_index: u64,
    pub(crate) previous: Option<Previous>,
    pub(crate) generation: u64,
    /// Records up to this one are durable now.
    pub(crate) durable: u64,
}

/// A segment that is about to follow: nothing but its header is written.
#[derive(Debug)]
pub(crate) struct Successor {
    pub(crate) active: Active,
    spare_name: String,
    step: Step,
}

impl Successor {
    /// Stages what every segment begins with.
    pub(crate) fn stage(
        files: &Files,
        spare: Spare,
        step: Step,
        beginning: Beginning,
        staging_bytes: usize,
    ) -> Self {
        let Beginning { first_index, previous, generation, durable } = beginning;
        let link = Link {
            first_index,
            ordinal: previous.map_or(0, |previous| previous.ordinal + 1),
            generation,
            previous_salt: previous.map_or(0, |previous| previous.salt),
            previous_end: previous.map_or(0, |previous| previous.end),
            previous_first_index: previous.map_or(0, |previous| previous.first_index),
            durable: durable.min(first_index - 1),
            unix_ns: files.clock.unix_ns(),
        };
        let mut active = Active::begin(spare.file, spare.header, link, staging_bytes);
        if step != Step::Rotate {
            // The link may be lost, and with it the word of what the segment cut off.
            active.stage_frame(Frame::mark(link.durable, generation), &[]);
        }
        Self { active, spare_name: spare.name, step }
    }

    /// Removes the file, which is of no use any more.
    pub(crate) fn discard(&self, files: &Files) {
        files.dir().remove(&self.spare_name).ok();
    }

    /// Writes what is staged, and makes it the log's newest segment. Where that fails nothing has
    /// changed, or the file is stale.
    pub(crate) fn enter(self, files: &Files) -> Result<Active> {
        let spare_name = self.spare_name.clone();
        self.try_enter(files).inspect_err(|_| {
            // It is of no use, and its room is needed. Under its new name it is stale.
            files.dir().remove(&spare_name).ok();
        })
    }

    fn try_enter(self, files: &Files) -> Result<Active> {
        let Self { mut active, spare_name, step } = self;
        if step == Step::Rotate {
            active.write(None)?;
        } else {
            active.write_end()?;
        }
        active.publish_end();
        if step != Step::Rotate {
            active.segment.file.sync(files.place.method.call)?;
        }
        let first_index = active.segment.link.first_index;
        if let Some(file) = files.enter(&spare_name, first_index, step == Step::Cut)? {
            active.named(file);
        }
        active.loose = step == Step::Rotate;
        Ok(active)
    }
}
