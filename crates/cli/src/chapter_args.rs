//! What can be typed after `plimsoll chapter`.

use std::path::PathBuf;

use clap::{ArgGroup, Subcommand};
use plimsoll_server::shard::TopicId;

/// What to do with chapters.
#[derive(Debug, Subcommand)]
pub(crate) enum ChapterCommand {
    /// List the files of chapters, and how much of them lives
    #[command(after_help = "Examples:
  plimsoll chapter list /var/lib/plimsoll
  plimsoll chapter list DIR --runs                 which partitions, which offsets
  plimsoll chapter list DIR --json | jq '.shards[].settled'

A run is one partition's records of one chapter. It lives until the newest snapshot of its shard says that it
is deleted.

Exit status: 0 ok; 1 a file is missing or does not say what it holds; 2 it cannot run.")]
    List(ListArgs),
    /// Read everything that lives, and say what is bad
    #[command(after_help = "Examples:
  plimsoll chapter verify DIR && echo good
  plimsoll chapter verify DIR/chapters-2/00000001.chapter
  plimsoll chapter verify DIR --json | jq '.damaged[]'

Each block and each run is held against its hash, and each batch against its own CRC-32C. In a directory
what is deleted is passed over; in a single file all of it is read, and what is deleted may read as damaged.

Exit status: 0 good, or there is nothing to read, which is said; 1 something is damaged or missing; 2 it
cannot run; 130 interrupted (143 by SIGTERM).")]
    Verify(VerifyArgs),
    /// Print what a file says of itself: header, footer, runs, blocks
    #[command(after_help = "Examples:
  plimsoll chapter dump DIR/chapters-2/00000001.chapter
  plimsoll chapter dump FILE --blocks | less
  plimsoll chapter dump FILE --json | jq 'select(.part == \"run\")'

Batches are not read: `plimsoll chapter verify` does that.

Exit status: 0 ok; 1 the file does not say what it holds; 2 there is no such file.")]
    Dump(DumpArgs),
    /// Print the records of a partition, oldest first
    #[command(
        override_usage = "plimsoll chapter cat [OPTIONS] <DIR|FILE> --topic <NAME> --partition <N>
       plimsoll chapter cat [OPTIONS] <DIR|FILE> --topic-id <ID> --partition <N>",
        after_help = "Examples:
  plimsoll chapter cat DIR --topic orders --partition 0
  plimsoll chapter cat DIR --topic orders --partition 0 --from 1000 --json
  plimsoll chapter cat FILE --topic-id ID --partition 0

What is younger than the last chapter is in the log of its shard, and is not printed. In a directory neither
is what is deleted. `plimsoll chapter list DIR --runs` shows topics, their ids, and offsets.

Exit status: 0 ok; 1 something is damaged (what comes before it is printed); 2 no such partition or offset;
130 interrupted (143 by SIGTERM)."
    )]
    Cat(CatArgs),
}

/// What to list.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Data directory of a broker
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// List the runs too: topics, partitions, offsets
    #[arg(long)]
    pub(crate) runs: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to verify.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// Data directory of a broker, or one file
    #[arg(value_name = "DIR|FILE")]
    pub(crate) path: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to dump.
#[derive(Debug, clap::Args)]
pub(crate) struct DumpArgs {
    /// A file of chapters
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print the blocks of each run
    #[arg(long)]
    pub(crate) blocks: bool,
    /// Print a JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which records.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("which").required(true).args(["topic", "topic_id"]))]
pub(crate) struct CatArgs {
    /// Data directory of a broker, or one file
    #[arg(value_name = "DIR|FILE")]
    pub(crate) path: PathBuf,
    /// The topic, by its name
    #[arg(long, value_name = "NAME")]
    pub(crate) topic: Option<String>,
    /// The topic, by its id: 32 hexadecimal digits
    #[arg(long, value_name = "ID", value_parser = topic_id)]
    pub(crate) topic_id: Option<TopicId>,
    /// The partition
    #[arg(long, value_name = "N")]
    pub(crate) partition: u32,
    /// First record [default: the oldest]
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) from: Option<i64>,
    /// Print a JSON object a record: offset, timestamp, headers, key, value
    #[arg(long)]
    pub(crate) json: bool,
}

/// 32 hexadecimal digits.
fn topic_id(text: &str) -> Result<TopicId, String> {
    let is_hex = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let id = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
    let id = id.ok_or("32 hexadecimal digits, as `plimsoll chapter list DIR --runs` shows")?;
    // The first digits are the first bytes.
    let mut bytes = id.to_le_bytes();
    bytes.reverse();
    Ok(TopicId(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_its_bytes_in_the_order_of_its_digits() {
        let id = topic_id("00112233445566778899aabbccddeeFF").unwrap();
        let bytes: Vec<u8> = (0..16).map(|digit| digit * 0x11).collect();
        assert_eq!(id.0[..], bytes[..]);
        for wrong in ["", "1", "+0112233445566778899aabbccddeeff", "é0112233445566778899aabbccddee"]
        {
            assert!(topic_id(wrong).is_err(), "{wrong}");
        }
    }
}
