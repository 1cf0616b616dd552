//! `plimsoll lab compare`: runs of two states side by side, and an exit status for CI.

use std::path::Path;

use anyhow::Result;
use plimsoll_lab::compare::compare;
use plimsoll_lab::report::changes;
use plimsoll_lab::report::text::Style;
use plimsoll_lab::result;

use crate::exit::Exit;
use crate::output;

pub(crate) fn run(old: &Path, new: &Path, fail_over: Option<f64>, json: bool) -> Result<Exit> {
    let comparison = compare(&result::load_runs(old)?, &result::load_runs(new)?, fail_over)?;
    if json {
        output::answer(&format!("{}\n", serde_json::to_string_pretty(&comparison)?))?;
    } else {
        let style = Style { colour: output::colour(), details: false, columns: output::columns() };
        output::answer(&changes::render(&comparison, style))?;
    }
    let failed = comparison.failed().next().is_some();
    Ok(if failed { Exit::CheckFailed } else { Exit::Ok })
}
