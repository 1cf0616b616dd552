//! Looks at a disk that a power cut may leave: mounted as the command says, and unmounted again.

use plimsoll_simdisk::block::{Platter, Trace};
use plimsoll_simdisk::mounted::{Error, Image, Situation, Verdict};

use super::options;
use crate::disk_args::ShrinkArgs;
use crate::interrupt;

/// What is seen on a disk, or why the kernel does not mount it.
pub(super) fn on<T>(
    args: &ShrinkArgs,
    trace: &Trace,
    platter: &Platter,
    see: impl FnOnce(&Image) -> Result<T, Error>,
) -> Result<Result<T, String>, Error> {
    let image = match Image::of_trace(trace, platter, &args.view.mount_options, false) {
        Ok(image) => image,
        Err(Error::NotMounted { source, .. }) => return Ok(Err(source.to_string())),
        Err(error) => return Err(error),
    };
    let seen = see(&image)?;
    image.unmount()?;
    Ok(Ok(seen))
}

/// What the check says of a disk.
pub(super) fn judged(
    args: &ShrinkArgs,
    trace: &Trace,
    platter: &Platter,
    situation: &Situation<'_>,
) -> Result<Verdict, Error> {
    let check =
        |_: &Image| options::check(&args.check).run_again(situation, &interrupt::interrupted);
    Ok(on(args, trace, platter, check)?.unwrap_or_else(Verdict::NotMounted))
}
