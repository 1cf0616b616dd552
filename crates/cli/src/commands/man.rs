//! `plimsoll man`: a page for every command, made from what `--help` says.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::args::Args;
use crate::exit::Exit;
use crate::output;

pub(crate) fn run(dir: &Path) -> Result<Exit> {
    fs::create_dir_all(dir)
        .with_context(|| format!("the directory {} cannot be made", dir.display()))?;
    let mut command = Args::command();
    command.build();
    let pages = write_pages(&command, dir)?;
    output::news(&format!("{pages} pages in {}", dir.display()));
    Ok(Exit::Ok)
}

/// Pages of the command and of those below it; how many.
fn write_pages(command: &Command, dir: &Path) -> Result<usize> {
    let source = concat!("plimsoll ", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command.clone()).source(source).manual("Plimsoll");
    let path = dir.join(page.get_filename());
    let mut roff = Vec::new();
    page.render(&mut roff)?;
    fs::write(&path, roff).with_context(|| format!("{} cannot be written", path.display()))?;
    let mut pages = 1;
    // `help` says what the pages say.
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        pages += write_pages(below, dir)?;
    }
    Ok(pages)
}
