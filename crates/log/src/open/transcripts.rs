//! Transcripts of the judge: what a directory holds, in words, and below `----` what is said of it. They
//! are in `testdata/`, to be read.
//!
//! ```text
//! segment 1: number 0, generation 1, calls 0 durable
//!   records to 20, calls 12 durable, then nothing
//! ----
//! ```
//!
//! The first line is the link of a segment, the second what was read of it. `no link`, `of another log`,
//! `damaged` and `short` stand there as they are. Records are of 100 bytes, from byte 4196 on.
//! `PLIMSOLL_WRITE_TRANSCRIPTS=1` writes all verdicts anew: then read the difference.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use super::judge::{Chain, Part, Piece, Reading, Verdict, chain, chain_by_ends, judge};
use crate::error::Corruption;
use crate::segment::damage::Damage;
use crate::segment::head::Head;
use crate::segment::header::Header;
use crate::segment::link::Link;
use crate::segment::scan::{Closed, Scanned, Stop};
use crate::segment::sparse::SparseIndex;

/// What a transcript says of a directory.
#[derive(Debug, Default)]
struct Found {
    pieces: Vec<Piece>,
    closed: Option<Closed>,
    is_cutting: bool,
    accepts_loss: bool,
    /// Every segment is read.
    is_verified: bool,
}

/// The words of a line, which commas divide.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(", ").map(str::trim)
}

fn number(text: &str) -> u64 {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("`{text}` has no number"))
}

fn log_id(text: &str) -> u128 {
    if text.contains("of another log") { 8 } else { 7 }
}

/// Where a record ends.
fn end_of(first_index: u64, last_index: u64) -> u64 {
    4196 + 100 * (last_index + 1 - first_index)
}

impl Found {
    fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            match line.split_once(':').unwrap_or((line, "")) {
                ("cutting", _) => found.is_cutting = true,
                ("the loss is accepted", _) => found.accepts_loss = true,
                ("every segment is read", _) => found.is_verified = true,
                ("closed", said) => found.closed = Some(closed(said)),
                (name, said) if name.starts_with("segment ") => {
                    found.pieces.push(piece(number(name), said));
                }
                (read, _) if read.starts_with("  ") => {
                    let piece = found.pieces.last_mut().expect("what was read is of a segment");
                    piece.scanned = Some(scanned(piece, line));
                }
                _ => panic!("`{line}` means nothing"),
            }
        }
        found
    }

    fn names(&self) -> Vec<u64> {
        self.pieces.iter().map(|piece| piece.first_index).collect()
    }

    fn piece(&self, first_index: u64) -> &Piece {
        let mut pieces = self.pieces.iter();
        pieces.find(|piece| piece.first_index == first_index).expect("only these are known")
    }

    fn reading(&self, first_index: u64, until: Option<u64>) -> Reading {
        let Piece { head, scanned, .. } = self.piece(first_index).clone();
        Reading { first_index, head, until, scanned }
    }

    fn chain_by_ends(&self) -> Option<Chain> {
        let (first, last) = (self.pieces.first()?.head.ok()?, self.pieces.last()?.head.ok()?);
        if self.is_cutting { None } else { chain_by_ends(&self.names(), &first, &last) }
    }

    /// What `open` reads of a chain, or whoever reads all.
    fn readings(&self, chain: &Chain) -> Vec<Reading> {
        if self.is_verified {
            let all = chain.segments.iter();
            return all.map(|&first| self.reading(first, chain.until(first))).collect();
        }
        let mut readings = Vec::new();
        for &first in chain.unsure().iter().rev() {
            let until = if readings.is_empty() { None } else { chain.until(first) };
            let reading = self.reading(first, until);
            let called = reading.scanned.as_ref().map_or(0, |scanned| scanned.durable);
            let is_all = readings.is_empty()
                && chain.wrong.is_empty()
                && reading.head.is_ok_and(|head| head.link.is_some())
                && called + 1 >= first;
            readings.push(reading);
            if is_all {
                break;
            }
        }
        readings.reverse();
        readings
    }

    /// What is said of it.
    fn verdict(&self) -> String {
        let mut said = String::new();
        let by_ends = self.chain_by_ends();
        if by_ends.is_some() {
            said += "two heads are enough\n";
        }
        let mut chain = by_ends.unwrap_or_else(|| chain(self.pieces.clone()));
        tell_chain(&mut said, &chain);
        for wrong in &chain.wrong {
            writeln!(said, "wrong: {}", lost(wrong)).unwrap();
        }
        if !chain.wrong.is_empty() && !self.accepts_loss && !self.is_verified {
            return said + "the log does not open\n";
        }
        if self.accepts_loss {
            chain.give_up_what_is_wrong();
            tell_chain(&mut said, &chain);
        }
        let unbegun = chain.unbegun.iter().filter_map(|&first| self.piece(first).scanned.as_ref());
        let also_durable = unbegun.map(|scanned| scanned.durable).max().unwrap_or(0);
        let readings = self.readings(&chain);
        let verdict = judge(&chain, &readings, self.closed.as_ref(), also_durable);
        tell_verdict(&mut said, &readings, &verdict);
        if verdict.lost.is_some() && !self.accepts_loss && !self.is_verified {
            said += "the log does not open\n";
        }
        said
    }
}

fn piece(first_index: u64, said: &str) -> Piece {
    let header = Header { log_id: log_id(said), salt: first_index, segment_bytes: 1 << 20 };
    let mut link = Link {
        first_index,
        ordinal: 0,
        generation: 0,
        previous_salt: 0,
        previous_end: 0,
        previous_first_index: 0,
        durable: 0,
        unix_ns: 0,
    };
    let (mut has_link, mut damage, mut is_short) = (true, None, false);
    for word in words(said) {
        match word {
            "no link" => has_link = false,
            "short" => is_short = true,
            "damaged" => damage = Some(Damage::HeaderChecksum),
            "of another log" => {}
            _ if word.starts_with("number") => link.ordinal = number(word),
            _ if word.starts_with("generation") => link.generation = number(word),
            _ if word.starts_with("calls") => link.durable = number(word),
            _ if word.starts_with("follows") => link.previous_first_index = number(word),
            _ => panic!("`{word}` is said of no segment"),
        }
    }
    let head = Head { header, link: has_link.then_some(link) };
    Piece { first_index, head: damage.map_or(Ok(head), Err), scanned: None, is_short }
}

fn scanned(piece: &Piece, said: &str) -> Scanned {
    let link = piece.head.ok().and_then(|head| head.link);
    let mut scanned = Scanned {
        last_index: piece.first_index - 1,
        records_end: 0,
        frames_end: 0,
        records: 0,
        durable: link.map_or(0, |link| link.durable),
        generation_bits: None,
        sparse: SparseIndex::default(),
        stop: Stop::Empty,
        more_behind: false,
    };
    for word in words(said) {
        let ends = |damage| Stop::Damaged { byte_offset: 0, damage };
        match word {
            "then a seal" => scanned.stop = Stop::Sealed,
            "then nothing" => scanned.stop = Stop::Empty,
            "then what another follows" => scanned.stop = Stop::Superseded,
            "then damage" => scanned.stop = ends(Damage::FrameChecksum),
            "then half a batch" => scanned.stop = ends(Damage::Batch),
            "and valid frames behind" => scanned.more_behind = true,
            "no records" => {}
            _ if word.starts_with("records to") => scanned.last_index = number(word),
            _ if word.starts_with("calls") => {
                scanned.durable = scanned.durable.max(number(word));
            }
            _ if word.starts_with("of generation") => {
                scanned.generation_bits = Some(u32::try_from(number(word)).unwrap());
            }
            _ => panic!("`{word}` is read of no segment"),
        }
    }
    let end = end_of(piece.first_index, scanned.last_index);
    (scanned.records_end, scanned.frames_end) = (end, end);
    if let Stop::Damaged { byte_offset, .. } = &mut scanned.stop {
        *byte_offset = end;
    }
    scanned
}

/// `with record 20, in segment 1, generation 1`
fn closed(said: &str) -> Closed {
    let field = |name: &str| {
        let word = words(said).find(|word| word.starts_with(name));
        number(word.unwrap_or_else(|| panic!("a note of the end says its {name}")))
    };
    let (last_index, first_index) = (field("with record"), field("in segment"));
    let end = end_of(first_index, last_index);
    Closed {
        log_id: log_id(said),
        generation: field("generation"),
        first_index,
        salt: first_index,
        last_index,
        records_end: end,
        frames_end: end,
        sparse: SparseIndex::default(),
    }
}

fn tell_chain(said: &mut String, chain: &Chain) {
    let mut tell = |what: &str, all: &[u64]| {
        if !all.is_empty() {
            let all: Vec<_> = all.iter().map(u64::to_string).collect();
            writeln!(said, "{what}: {}", all.join(", ")).unwrap();
        }
    };
    tell("segments", &chain.segments);
    tell("stale", &chain.stale);
    tell("never begun", &chain.unbegun);
    let unusable: Vec<_> = chain.unusable.iter().map(|(first, _)| *first).collect();
    tell("unusable", &unusable);
}

fn tell_verdict(said: &mut String, readings: &[Reading], verdict: &Verdict) {
    for (reading, part) in readings.iter().zip(&verdict.parts) {
        let part = match part {
            Part::Whole => "whole".to_owned(),
            Part::End => "whole, and the log ends here".to_owned(),
            Part::Torn { byte_offset, damage } => format!("torn at byte {byte_offset}: {damage}"),
            Part::Corrupt(wrong) => format!("corrupt: {}", lost(wrong)),
            Part::Cut => "behind the end".to_owned(),
        };
        writeln!(said, "segment {}: {part}", reading.first_index).unwrap();
    }
    let Verdict { last_index, durable, previous, resumes, is_clean, .. } = verdict;
    write!(said, "ends with record {last_index}, durable to {durable}; goes on in ").unwrap();
    match previous {
        _ if *resumes => said.push_str("the same segment"),
        Some(previous) => write!(said, "another behind {}", previous.first_index).unwrap(),
        None => said.push_str("another"),
    }
    *said += if *is_clean { "; as it was closed\n" } else { "\n" };
    if let Some(wrong) = &verdict.lost {
        writeln!(said, "lost: {}", lost(wrong)).unwrap();
    }
}

fn lost(wrong: &Corruption) -> String {
    let name = wrong.segment.trim_start_matches('0').trim_end_matches(".seg");
    let segment = if name.is_empty() { String::new() } else { format!("segment {name}, ") };
    let Corruption { byte_offset, damage, records, .. } = wrong;
    let (first, last) = (records.start(), records.end());
    let last = if *last == u64::MAX { "the end".to_owned() } else { last.to_string() };
    format!("records {first} to {last}; {segment}byte {byte_offset}: {damage}")
}

/// A file of transcripts with the verdicts as they are now. An empty line ends each.
fn rewritten(text: &str, path: &Path) -> String {
    let mut cases = Vec::new();
    for case in text.trim().split("\n\n") {
        let (found, _) = case
            .split_once("\n----")
            .unwrap_or_else(|| panic!("{}: `----` is missing in:\n{case}", path.display()));
        let story = |line: &&str| line.starts_with('#');
        assert!(found.lines().next().is_some_and(|line| story(&line)), "a story begins:\n{case}");
        let input: Vec<_> = found.lines().filter(|line| !story(line)).collect();
        let verdict = Found::parse(&input.join("\n")).verdict();
        cases.push(format!("{found}\n----\n{verdict}"));
    }
    cases.join("\n")
}

#[test]
fn the_judge_says_what_its_transcripts_say() {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/open/testdata");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(testdata).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 5, "{paths:?}");
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let now = rewritten(&text, &path);
        if env::var("PLIMSOLL_WRITE_TRANSCRIPTS").is_ok() {
            fs::write(&path, now).unwrap();
            continue;
        }
        for (said, now) in text.split("\n\n").zip(now.split("\n\n")) {
            assert_eq!(said.trim(), now.trim(), "{}", path.display());
        }
        assert_eq!(text, now, "{}", path.display());
    }
}
