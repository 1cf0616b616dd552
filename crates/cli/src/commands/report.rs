//! `plimsoll lab report`: a page of saved results.

use std::path::{Path, PathBuf};

use anyhow::Result;
use plimsoll_lab::experiment::Experiment;
use plimsoll_lab::experiments;
use plimsoll_lab::report::{html, page};
use plimsoll_lab::result;

use crate::exit::Exit;
use crate::output;

pub(crate) fn run(paths: &[PathBuf], output: &Path) -> Result<Exit> {
    page::check_place(output).map_err(plimsoll_lab::Error::from)?;
    let mut results = Vec::new();
    for path in paths {
        results.extend(result::load(path)?);
    }
    // In the order in which they run; those that this version does not know, last.
    results.sort_by_key(|result| {
        let is = |experiment: &&dyn Experiment| experiment.name() == result.experiment;
        experiments::ALL.iter().position(is).unwrap_or(usize::MAX)
    });
    page::save(output, &html::render(&results))?;
    output::news(&format!("page: {}", output.display()));
    Ok(Exit::Ok)
}
