//! `plimsoll man`: a page for every command, made from what `--help` says.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::exit::Exit;
use crate::help;
use crate::output;

pub(crate) fn run(dir: &Path) -> Result<Exit> {
    fs::create_dir_all(dir)
        .with_context(|| format!("the directory {} cannot be made", dir.display()))?;
    let mut command = help::command();
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
    render(&page, command, &mut roff)?;
    fs::write(&path, roff).with_context(|| format!("{} cannot be written", path.display()))?;
    let mut pages = 1;
    for below in below(command) {
        pages += write_pages(below, dir)?;
    }
    Ok(pages)
}

/// `help` says what the pages say.
fn below(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| below.get_name() != "help")
}

fn render(page: &Man, command: &Command, out: &mut Vec<u8>) -> io::Result<()> {
    let after = After::of(command);
    page.render_title(out)?;
    // A command that is broken with a hyphen is another command.
    Roff::new().control("nh", []).control("ad", ["l"]).to_writer(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    let mut notes = Roff::new();
    for paragraph in &after.notes {
        notes.control("PP", []).text([roman(paragraph)]);
    }
    notes.to_writer(out)?;
    page.render_options_section(out)?;
    commands(command).to_writer(out)?;
    after.examples().to_writer(out)?;
    if let Some(exit_status) = &after.exit_status {
        let mut section = Roff::new();
        section.control("SH", ["EXIT STATUS"]).text([roman(exit_status)]);
        section.to_writer(out)?;
    }
    page.render_version_section(out)
}

/// The commands below it, as they are typed.
fn commands(command: &Command) -> Roff {
    let mut section = Roff::new();
    for (number, below) in below(command).enumerate() {
        if number == 0 {
            section.control("SH", ["COMMANDS"]);
        }
        let typed = below.get_bin_name().unwrap_or_else(|| below.get_name());
        let page = below.get_display_name().unwrap_or_else(|| below.get_name());
        let about = below.get_about().map(ToString::to_string).unwrap_or_default();
        section.control("TP", []).text([bold(typed)]);
        section.text([roman(format!("{about}. See "))]).text([bold(page), roman("(1).")]);
    }
    section
}

/// What `--help` says after the options.
#[derive(Default)]
struct After {
    /// What is typed, and what is said of it.
    examples: Vec<(String, String)>,
    exit_status: Option<String>,
    /// The other paragraphs.
    notes: Vec<String>,
}

impl After {
    fn of(command: &Command) -> Self {
        let mut after = Self::default();
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let last = after.examples.last_mut();
            if let (Some(said), Some(example)) = (line.strip_prefix(help::REMARK), last) {
                said.clone_into(&mut example.1);
            } else if let Some((typed, said)) = help::example(line) {
                after.examples.push((typed.to_owned(), said.to_owned()));
            } else if let Some(exit_status) = line.strip_prefix("Exit status: ") {
                after.exit_status = Some(exit_status.to_owned());
            } else if !line.starts_with("Example") {
                after.notes.push(line.to_owned());
            }
        }
        after
    }

    fn examples(&self) -> Roff {
        let mut section = Roff::new();
        for (number, (typed, said)) in self.examples.iter().enumerate() {
            if number == 0 {
                section.control("SH", ["EXAMPLES"]);
            }
            section.control("TP", []).text([bold(typed)]);
            if !said.is_empty() {
                section.text([roman(said)]);
            }
        }
        section
    }
}
