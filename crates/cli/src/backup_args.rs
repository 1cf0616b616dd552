//! What can be typed after `plimsoll backup` and `plimsoll restore`.

use std::path::PathBuf;

/// What to back up, and where to.
#[derive(Debug, clap::Args)]
pub(crate) struct BackupArgs {
    /// Data directory of a broker, which may be running
    #[arg(value_name = "SOURCE")]
    pub(crate) source: PathBuf,
    /// Directory of the backup: not there, empty, or a backup of the same broker
    #[arg(value_name = "DEST")]
    pub(crate) dest: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to restore, and where to.
#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// Directory of the backup
    #[arg(value_name = "BACKUP")]
    pub(crate) backup: PathBuf,
    /// Directory for the broker: not there, or empty
    #[arg(value_name = "DEST")]
    pub(crate) dest: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
