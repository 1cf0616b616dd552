//! `plimsoll topic`, `group`, `produce` and `consume`: what a broker is asked, one command a file.

pub(crate) mod consume;
pub(crate) mod group;
mod partitioner;
pub(crate) mod produce;
mod promise;
mod start;
pub(crate) mod topic;
mod topic_move;
mod waiting;

use std::time::Duration;

use anyhow::{Context as _, Error as Wrong, Result};
use plimsoll_server::client::{Cluster, Error};
use serde_json::Value;

use crate::client_args::Asked;
use crate::output;

/// How long a broker is waited for.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a broker may take over what it is asked, so that it answers in time that it could not.
const BROKER_TIMEOUT_MS: i32 = 20_000;

impl Asked {
    /// The cluster of the brokers that were named: of the first that can be reached.
    fn open(&self) -> Result<Cluster> {
        let mut named = self.broker.split(',').map(str::trim).filter(|addr| !addr.is_empty());
        let first = named.next().context("--broker names none")?;
        let opened = named.fold(Cluster::open(first, TIMEOUT), |opened, next| match opened {
            Err(Error::Unreachable { .. }) => Cluster::open(next, TIMEOUT),
            opened => opened,
        });
        opened.map_err(|error| match error {
            Error::Unreachable { source, .. } => Wrong::new(source).context(format!(
                "no broker can be reached at {}; --broker says where one is",
                self.broker
            )),
            error => error.into(),
        })
    }

    /// Prints the answer: JSON or text, as was asked for.
    fn answer(&self, json: &Value, text: &str) -> Result<()> {
        match self.json {
            true => output::text(&format!("{json}\n"))?,
            false => output::text(text)?,
        }
        Ok(())
    }
}

/// Rows of the same number of cells, each column as wide as its widest.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// The cells of a head.
pub(crate) fn head<const N: usize>(cells: [&str; N]) -> [String; N] {
    cells.map(str::to_owned)
}

/// What is not there.
fn dash(number: Option<impl ToString>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_as_wide_as_it_must_be() {
        let rows = [head(["a", "bb", ""]), head(["äöü", "c", "d"]), head(["", "", ""])];
        assert_eq!(table(&rows), "a    bb\näöü  c   d\n\n");
    }
}
