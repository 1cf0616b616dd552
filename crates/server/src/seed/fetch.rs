//! [`fetch`]: one shard, fetched as a backup is taken: what the files of a shard say of each other is in `backup/mod.rs`.

use std::sync::Arc;

use plimsoll_sync::Dir;

use crate::backup::{Error, Progress, Source, Taken, Tell, looks_damaged, went};
use crate::broker::aside::{Aside, Given};
use crate::broker::seeded::{Stage, clear_but_chapters};
use crate::broker::{GROUPS, layout};
use crate::chapter::{Manifest, Mirror};
use crate::cluster::Needed;

/// How often all but the runs is begun again, where something went before it was read.
const ROUNDS_MAX: u32 = 20;
/// The same, where it looks damaged, as it may while it is written: then another node is asked.
const DAMAGED_MAX: u32 = 1;

/// Fetches a shard from the directory of another node, as far as is needed when the log is begun with. What this node
/// has of it already is read here. On return all of it is durable, and is put in place by the next start. If it
/// fails what was fetched of chapters is found by the next call.
///
/// # Errors
/// [`Error`]: [`Error::NoMore`] where the other node does not have so much; [`Error::NotNow`] where nothing is needed, at the beginning or
/// in the end.
pub fn fetch(
    remote: &Arc<dyn Dir>,
    root: &Arc<dyn Dir>,
    number: u32,
    needs: &dyn Fn() -> Option<Needed>,
    tell: &mut dyn FnMut(Progress) -> bool,
) -> Result<(), Error> {
    let has_chapters = number != GROUPS;
    let given = Given::create(&**root, number)?;
    let mut source = Source::open(remote, number, has_chapters)?;
    let mut mirror = None;
    if has_chapters {
        let of_chapters = Error::of_chapters(number);
        let chapters = root.create_dir(&layout::chapters(number))?;
        source = source.nearer(Arc::clone(&chapters));
        let manifests = given.create_dir(&layout::chapters(number))?;
        // One that cannot be read names nothing.
        let begun = Manifest::look(&*manifests, number).unwrap_or_default();
        let (aside, none) =
            (Arc::new(Aside::of(Arc::clone(&chapters), chapters)), Manifest::default());
        let mut opened = Mirror::open(aside, number, &none, &begun).map_err(of_chapters)?;
        // Most of it first: what comes while it is fetched is little.
        source.fill(&mut opened, &*given, None, tell)?;
        mirror = Some(opened);
    }
    let (mut rounds_left, mut damaged_left) = (ROUNDS_MAX, DAMAGED_MAX);
    let (ends, needed, manifest) = loop {
        let needed = needs().ok_or(Error::NotNow)?;
        match take(&source, &given, mirror.as_mut(), tell) {
            Err(why) if went(&why) && rounds_left > 0 => rounds_left -= 1,
            Err(why) if looks_damaged(&why) && damaged_left > 0 => damaged_left -= 1,
            Err(why) => return Err(why),
            Ok((ends, manifest)) => break (ends, needed, manifest),
        }
    };
    if ends.1 < needed.through || ends < needed.ends {
        return Err(Error::NoMore);
    }
    if let Some((mirror, manifest)) = mirror.as_mut().zip(manifest) {
        mirror.free(&manifest).map_err(Error::of_chapters(number))?;
    }
    needs().ok_or(Error::NotNow)?;
    Ok(Stage::Given.write(&**root, number)?)
}

/// Takes log, snapshot, and the runs that came since, so that they fit together: where the log ends, and the manifest.
fn take(
    source: &Source,
    given: &Arc<dyn Dir>,
    mut mirror: Option<&mut Mirror>,
    tell: Tell<'_>,
) -> Result<((u64, u64), Option<Manifest>), Error> {
    clear_but_chapters(&**given, source.number)?;
    let mut taken = Taken::begin(source.clone(), given, tell)?;
    taken.go_on(mirror.as_deref_mut(), tell)?;
    let ends = taken.ends();
    let (of_head, _, manifest) = taken.finish(mirror.as_deref())?;
    if of_head.state == 0 && of_head.first > 1 {
        // It was cut between the two looks.
        return Err(Error::TooFast { what: "its log lets go of what is not read yet" });
    }
    Ok((ends, manifest))
}
