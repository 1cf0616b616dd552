//! `plimsoll disk doctor`: what works here, by trying.

use anyhow::Result;
use plimsoll_simdisk::{Tier, TierState};
use serde_json::json;

use crate::exit::Exit;
use crate::output;

pub(super) fn run(json: bool) -> Result<Exit> {
    let mut tiers = vec![Tier::available(
        "in-process",
        "the simulated disk in memory needs nothing; `cargo test` uses it",
    )];
    tiers.extend(super::tiers());
    let required = std::env::var("PLIMSOLL_REQUIRE").unwrap_or_default();
    let required = required.split(',').any(|tier| tier == "realfs");
    if json {
        let all: Vec<_> = tiers.iter().map(of).collect();
        output::text(&format!("{}\n", serde_json::to_string_pretty(&all)?))?;
    } else {
        for tier in &tiers {
            output::answer(&line(tier))?;
        }
    }
    if !json && tiers.iter().any(|tier| tier.needs_root) {
        output::news(
            "root: only root can mount these, and so record, explore, replay, shrink, cycle and run; mark and \
             doctor need nobody.",
        );
    }
    let skipped = tiers.iter().filter(|tier| !tier.is_available()).count();
    if skipped > 0 {
        output::news(&format!(
            "{skipped} of {} tiers are skipped: they prove nothing here.",
            tiers.len()
        ));
    }
    Ok(if required && skipped > 0 { Exit::CheckFailed } else { Exit::Ok })
}

fn line(tier: &Tier) -> String {
    let (word, why, colour) = match &tier.state {
        TierState::Available(seen) => ("AVAILABLE", seen, 32),
        TierState::Skipped(reason) => ("SKIPPED", reason, 33),
    };
    let shown = format!("{word:<9}");
    let shown = if output::colour() { format!("\x1b[{colour}m{shown}\x1b[0m") } else { shown };
    let who = if tier.needs_root { "root" } else { "" };
    format!("{:<12} {shown}  {who:<4}  {why}\n", tier.name)
}

fn of(tier: &Tier) -> serde_json::Value {
    let (name, needs_root) = (&tier.name, tier.needs_root);
    match &tier.state {
        TierState::Available(seen) => {
            json!({ "tier": name, "state": "available", "needs_root": needs_root, "seen": seen })
        }
        TierState::Skipped(reason) => {
            json!({ "tier": name, "state": "skipped", "needs_root": needs_root, "reason": reason })
        }
    }
}
