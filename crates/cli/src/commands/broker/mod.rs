//! `plimsoll broker`: what an operator asks of a broker, and of a place for one.

mod doctor;
mod scrub;
mod status;

use anyhow::Result;

use crate::broker_args::BrokerCommand;
use crate::exit::Exit;

pub(crate) fn run(command: BrokerCommand) -> Result<Exit> {
    match command {
        BrokerCommand::Status { http, json } => status::run(&http, json),
        BrokerCommand::Doctor { dir, memory, json } => doctor::run(&dir, &memory, json),
        BrokerCommand::Scrub(args) => scrub::run(&args),
    }
}
