//! `plimsoll chapter dump`: what a file says of itself.

use std::io::Write;

use anyhow::Result;
use plimsoll_server::chapter::{Block, Chapter, Footer, Run, VERSION};
use serde_json::{Value, json};

use super::{hex, names_above, open_file, run_object, span, time};
use crate::chapter_args::DumpArgs;
use crate::exit::Exit;
use crate::output::{self, counted};

/// Blocks that are read at once.
const BLOCKS: u32 = 1024;

pub(super) fn run(args: &DumpArgs) -> Result<Exit> {
    let opened = open_file(&args.file)?;
    let (chapter, names) = (&opened.chapter, names_above(&args.file));
    let mut out = output::stream();
    if args.json {
        writeln!(out, "{}", header_object(chapter))?;
        writeln!(out, "{}", footer_object(chapter.footer()))?;
    } else {
        writeln!(out, "header  version {VERSION}, shard {}", chapter.shard())?;
        writeln!(out, "footer  {}", footer_line(chapter.footer()))?;
    }
    for run in &opened.runs {
        let name = names.of(run.opening.partition.topic);
        match args.json {
            true => writeln!(out, "{}", whole_run_object(run, run_object(run, &names)))?,
            false => writeln!(out, "run     {}", run_line(run, name))?,
        }
        let mut number = 0;
        while args.blocks && number < run.blocks {
            for block in chapter.blocks(run, number, BLOCKS)? {
                match args.json {
                    true => writeln!(out, "{}", block_object(run, number, &block))?,
                    false => writeln!(out, "block   {}", block_line(run, &block))?,
                }
                number += 1;
            }
        }
    }
    out.flush()?;
    Ok(Exit::Ok)
}

fn footer_line(footer: &Footer) -> String {
    format!(
        "chapters {}, log indexes {}, ended {}, {} at {}, {} at {}, {} bytes, hash {:016x}",
        span(footer.first_chapter, footer.last_chapter),
        span(footer.first_index, footer.last_index),
        time(footer.time),
        counted(footer.runs.into(), "run"),
        footer.runs_at,
        counted(footer.blocks, "block"),
        footer.blocks_at,
        footer.file_bytes,
        footer.hash
    )
}

fn run_line(run: &Run, name: Option<&str>) -> String {
    let partition = run.opening.partition;
    let name = name.map_or(String::new(), |name| format!("{name} "));
    format!(
        "topic {name}({}), partition {}, opening {}, chapter {}, offsets {}, {} bytes at {}, {} from number {}, \
         appended {} to {}, max timestamp {}, hash {:016x}",
        hex(partition.topic),
        partition.number,
        run.opening.number,
        run.chapter,
        span(run.base_offset, run.end_offset - 1),
        run.bytes,
        run.place,
        counted(run.blocks.into(), "block"),
        run.first_block,
        time(run.first_time),
        time(run.last_time),
        run.max_timestamp,
        run.hash
    )
}

fn block_line(run: &Run, block: &Block) -> String {
    format!(
        "from offset {}, {}, {} bytes at {}, log index {}, item {}, appended {}, max timestamp {}, hash \
         {:016x}",
        block.base_offset,
        if block.batches == 1 {
            "1 batch".to_owned()
        } else {
            format!("{} batches", block.batches)
        },
        block.bytes,
        run.place.saturating_add(block.place),
        block.index,
        block.item,
        time(block.time),
        block.max_timestamp,
        block.hash
    )
}

fn header_object(chapter: &Chapter) -> Value {
    json!({
        "part": "header",
        "file": chapter.name(),
        "version": VERSION,
        "shard": chapter.shard(),
    })
}

fn footer_object(footer: &Footer) -> Value {
    json!({
        "part": "footer",
        "first_chapter": footer.first_chapter,
        "last_chapter": footer.last_chapter,
        "first_log_index": footer.first_index,
        "last_log_index": footer.last_index,
        "ended_unix_ms": footer.time,
        "runs": footer.runs,
        "runs_byte_offset": footer.runs_at,
        "blocks": footer.blocks,
        "blocks_byte_offset": footer.blocks_at,
        "file_bytes": footer.file_bytes,
        "hash": format!("{:016x}", footer.hash),
    })
}

fn whole_run_object(run: &Run, mut object: Value) -> Value {
    object["part"] = "run".into();
    object["byte_offset"] = run.place.into();
    object["first_block"] = run.first_block.into();
    object["blocks"] = run.blocks.into();
    object["first_unix_ms"] = run.first_time.into();
    object["last_unix_ms"] = run.last_time.into();
    object["max_timestamp"] = run.max_timestamp.into();
    object["hash"] = format!("{:016x}", run.hash).into();
    object
}

fn block_object(run: &Run, number: u32, block: &Block) -> Value {
    json!({
        "part": "block",
        "block": run.first_block + u64::from(number),
        "first_offset": block.base_offset,
        "batches": block.batches,
        "bytes": block.bytes,
        "byte_offset": run.place.saturating_add(block.place),
        "log_index": block.index,
        "item": block.item,
        "unix_ms": block.time,
        "max_timestamp": block.max_timestamp,
        "hash": format!("{:016x}", block.hash),
    })
}
