//! Article 2's writer: 4 KiB here and there in a large file, buffered, until it is killed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

const FILE_BYTES: u64 = 8 << 30;

pub(crate) fn write(path: &Path) -> Result<ExitCode> {
    let file = File::create(path)?;
    let block = [7; 4096];
    let mut random = Pcg64Mcg::seed_from_u64(2);
    loop {
        file.write_all_at(&block, random.random_range(0..FILE_BYTES / 4096) * 4096)?;
    }
}
