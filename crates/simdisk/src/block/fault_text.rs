//! A fault as a line: what it is about, what the device does, and when.
//!
//! ```text
//! flush EIO nth=3                     the third flush fails
//! flush dropped sticky                no flush does anything, and all say that they did
//! write ENOSPC sticky range=1MiB..    the device is full from there on
//! write lost has=COMMIT               the first write that holds these bytes is not stored
//! write misdirected nth=7             the seventh is stored a few sectors further on
//! write flip chance=1%                of a hundred, one is stored with one bit wrong
//! read unreadable range=64KiB..68KiB  unreadable until written again
//! read EIO times=2 after=loaded       two reads fail, once the workload has said `loaded`
//! ```

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use super::event::Errno;
use super::fault::{Fault, FaultKind, Operation};
use super::size::parse_bytes;
use crate::armed::Times;

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let on = match words.next() {
            Some("read") => Operation::Read,
            Some("write") => Operation::Write,
            Some("flush") => Operation::Flush,
            Some("discard") => Operation::Discard,
            _ => return Err("a fault begins with read, write, flush or discard".to_owned()),
        };
        let kind = kind(on, words.next().unwrap_or_default())?;
        let mut fault = Self {
            on,
            kind,
            nth: 1,
            times: Times::Count(1),
            chance: None,
            range: 0..u64::MAX,
            has: Vec::new(),
            after: None,
        };
        let mut said = Vec::new();
        for word in words {
            let key = word.split_once('=').map_or(word, |(key, _)| key);
            // Whatever says how often, once.
            let often = ["once", "sticky", "times", "chance"];
            let key = if often.contains(&key) { "times" } else { key };
            if said.contains(&key) {
                return Err(format!("'{word}': {key} is said twice"));
            }
            said.push(key);
            match word.split_once('=') {
                None if word == "once" => fault.times = Times::Count(1),
                None if word == "sticky" => fault.times = Times::Sticky,
                Some(("nth", number)) => fault.nth = count("nth", number)?,
                Some(("times", number)) => fault.times = Times::Count(count("times", number)?),
                Some(("chance", share)) => {
                    (fault.times, fault.chance) = (Times::Sticky, Some(chance(share)?));
                }
                Some(("range", _)) if on == Operation::Flush => {
                    return Err("a flush has no range: it is about the whole disk".to_owned());
                }
                Some(("range", range)) => fault.range = parse_range(range)?,
                Some(("has", pattern)) if on == Operation::Write => {
                    fault.has = parse_pattern(pattern)?;
                }
                Some(("has", _)) => return Err("only a write has a payload".to_owned()),
                Some(("after", mark)) => fault.after = Some(mark.to_owned()),
                _ => {
                    let known = "nth=, times=, once, sticky, chance=, range=, has= or after=";
                    return Err(format!("'{word}' is not {known}"));
                }
            }
        }
        if kind == FaultKind::Unreadable {
            if fault.range.end == u64::MAX {
                return Err("unreadable needs range=START..END".to_owned());
            }
            if let Some(key) = said.iter().find(|&&key| key != "range") {
                return Err(format!(
                    "unreadable is what a place is, not a request: it knows range=, and not {key}"
                ));
            }
        }
        Ok(fault)
    }
}

fn kind(on: Operation, word: &str) -> Result<FaultKind, String> {
    if let Some(errno) = Errno::ALL.into_iter().find(|errno| errno.name() == word) {
        return Ok(FaultKind::Fail(errno));
    }
    match (on, word) {
        (Operation::Write | Operation::Discard, "lost") => Ok(FaultKind::LostWrite),
        (Operation::Flush, "dropped") => Ok(FaultKind::DropFlush),
        (Operation::Write, "misdirected") => Ok(FaultKind::Misdirect),
        (Operation::Write | Operation::Read, "flip") => Ok(FaultKind::Flip),
        (Operation::Read, "unreadable") => Ok(FaultKind::Unreadable),
        _ => Err(format!(
            "'{word}' is not EIO, ENOSPC, ETIMEDOUT{}",
            match on {
                Operation::Read => ", flip or unreadable",
                Operation::Write => ", lost, misdirected or flip",
                Operation::Flush => " or dropped",
                Operation::Discard => " or lost",
            }
        )),
    }
}

fn count(name: &str, text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{name} is not a number from 1 on")),
    }
}

fn chance(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    match percent {
        Some(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("chance is not from 0% to 100%".to_owned()),
    }
}

/// `1MiB..2MiB`; either end may be left out.
fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("range: '{text}' is not like 64KiB..1MiB");
    let (start, end) = text.split_once("..").ok_or_else(wrong)?;
    let start = if start.is_empty() { 0 } else { parse_bytes(start).ok_or_else(wrong)? };
    let end = if end.is_empty() { u64::MAX } else { parse_bytes(end).ok_or_else(wrong)? };
    if start < end { Ok(start..end) } else { Err(wrong()) }
}

/// Text, or `0x` and hexadecimal digits.
fn parse_pattern(text: &str) -> Result<Vec<u8>, String> {
    let Some(digits) = text.strip_prefix("0x") else {
        return if text.is_empty() {
            Err("has= needs what to look for".to_owned())
        } else {
            Ok(text.as_bytes().to_vec())
        };
    };
    let wrong = || format!("has: '{text}' is not 0x and pairs of hexadecimal digits");
    if digits.is_empty() || digits.len() % 2 != 0 || !digits.is_ascii() {
        return Err(wrong());
    }
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_no| wrong());
    (0..digits.len()).step_by(2).map(byte).collect()
}

impl fmt::Display for Fault {
    /// What can be parsed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = match self.on {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Discard => "discard",
        };
        let kind = match self.kind {
            FaultKind::Fail(errno) => errno.name(),
            FaultKind::LostWrite => "lost",
            FaultKind::DropFlush => "dropped",
            FaultKind::Misdirect => "misdirected",
            FaultKind::Flip => "flip",
            FaultKind::Unreadable => "unreadable",
        };
        write!(f, "{on} {kind}")?;
        if self.nth > 1 {
            write!(f, " nth={}", self.nth)?;
        }
        match (self.times, self.chance) {
            (_, Some(chance)) => write!(f, " chance={}%", chance * 100.0)?,
            (Times::Count(1), None) => {}
            (Times::Count(times), None) => write!(f, " times={times}")?,
            (Times::Sticky, None) => f.write_str(" sticky")?,
        }
        match self.range {
            Range { start: 0, end: u64::MAX } => {}
            Range { start, end: u64::MAX } => write!(f, " range={start}..")?,
            Range { start, end } => write!(f, " range={start}..{end}")?,
        }
        if !self.has.is_empty() {
            f.write_str(" has=0x")?;
            self.has.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        self.after.as_ref().map_or(Ok(()), |mark| write!(f, " after={mark}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_fault_reads_back_as_it_is_said() {
        for line in [
            "flush EIO nth=3",
            "flush dropped sticky",
            "write ENOSPC sticky range=1048576..",
            "write lost has=0x434f4d4d4954",
            "write misdirected nth=7",
            "write flip chance=1%",
            "read unreadable range=65536..69632",
            "read ETIMEDOUT times=2 after=loaded",
            "discard lost",
        ] {
            let fault: Fault = line.parse().unwrap();
            assert_eq!(fault.to_string(), line);
        }
        assert_eq!("write EIO range=1MiB..2MiB".parse::<Fault>().unwrap().range, 1 << 20..2 << 20);
    }

    #[test]
    fn a_wrong_fault_says_what_is_possible() {
        let wrong = |line: &str| line.parse::<Fault>().unwrap_err();
        assert!(wrong("sync EIO").contains("flush"));
        assert!(wrong("flush lost").contains("dropped"));
        assert!(wrong("read lost").contains("unreadable"));
        assert!(wrong("write EIO soon").contains("nth="));
        assert!(wrong("write EIO nth=0").contains("from 1 on"));
        assert!(wrong("write EIO range=8..4").contains("64KiB..1MiB"));
        assert!(wrong("read unreadable").contains("range="));
        assert!(wrong("flush EIO has=x").contains("payload"));
        assert!(wrong("write EIO has=0xabc").contains("pairs"));
        assert!(wrong("write EIO chance=2").contains("100%"));
        assert!(wrong("write EIO nth=2 nth=3").contains("twice"));
        assert!(wrong("write EIO sticky times=3").contains("twice"));
    }

    #[test]
    fn what_a_fault_would_ignore_is_refused() {
        let wrong = |line: &str| line.parse::<Fault>().unwrap_err();
        assert!(wrong("flush EIO range=0..4096").contains("whole disk"));
        for ignored in ["nth=2", "times=3", "once", "sticky", "chance=1%", "after=loaded"] {
            let line = format!("read unreadable range=0..4096 {ignored}");
            assert!(wrong(&line).contains("not a request"), "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_fault_panic(text in "(write|read|flush) .{0,60}") {
            let _either: Result<Fault, String> = text.parse();
        }
    }
}
