//! Which request fails or is lied about, and how, named after what the device does.
//!
//! A rule is a line: what it is about, what the device does, and when.
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

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::event::Errno;

/// What a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// Discards.
    Discard,
}

/// What the device does instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// It answers with an error and stores nothing.
    Fail(Errno),
    /// It says that it is done, and did nothing: a lost write, a dropped flush.
    Lie,
    /// It stores the bytes a few sectors away from where they belong. Writes only.
    Misdirect,
    /// One bit is wrong: of what is stored, or of what a read returns.
    Flip,
    /// Reads of the range fail until it is written again. Reads only.
    Unreadable,
}

/// How often a rule applies to requests that match it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Times {
    /// So often.
    Count(u64),
    /// Every time.
    Sticky,
    /// With this probability, from 0 to 1.
    Chance(f64),
}

/// What happens to which request.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// What it is about.
    pub on: On,
    /// What the device does.
    pub act: Act,
    /// Applies from the nth request on that matches, counted from 1.
    nth: u64,
    times: Times,
    /// Only requests that touch these bytes of the disk; all of it for a flush.
    range: Range<u64>,
    /// Only writes that hold these bytes.
    has: Vec<u8>,
    /// Only when the workload has said this.
    after: Option<String>,
}

/// Rules that are in force, with what they have seen.
#[derive(Debug, Clone)]
pub struct Rules {
    rules: Vec<Armed>,
    rng: Pcg64Mcg,
}

#[derive(Debug, Clone)]
struct Armed {
    rule: Rule,
    is_awake: bool,
    matched: u64,
    applied: u64,
}

impl Rules {
    /// These rules, with a seed for what is left to chance: which bit, which sector, whether at all.
    #[must_use]
    pub fn new(rules: Vec<Rule>, seed: u64) -> Self {
        let arm =
            |rule: Rule| Armed { is_awake: rule.after.is_none(), rule, matched: 0, applied: 0 };
        let rules = rules.into_iter().map(arm).collect();
        Self { rules, rng: Pcg64Mcg::seed_from_u64(seed) }
    }

    /// What the device does to a request, if not what it should. The first rule that applies counts,
    /// but all count what they see.
    pub(crate) fn act(&mut self, on: On, touched: &Range<u64>, payload: &[u8]) -> Option<Act> {
        let mut act = None;
        for armed in &mut self.rules {
            if armed.is_awake && armed.rule.matches(on, touched, payload) {
                armed.matched += 1;
                let rule = &armed.rule;
                let in_time = armed.matched >= rule.nth
                    && match rule.times {
                        Times::Count(times) => armed.applied < times,
                        Times::Sticky => true,
                        Times::Chance(chance) => self.rng.random_bool(chance),
                    };
                if in_time && act.is_none() {
                    armed.applied += 1;
                    act = Some(rule.act);
                }
            }
        }
        act
    }

    /// The workload said something.
    pub(crate) fn mark(&mut self, text: &str) {
        for armed in &mut self.rules {
            armed.is_awake |= armed.rule.after.as_deref() == Some(text);
        }
    }

    /// How often each rule applied.
    pub fn applied(&self) -> impl Iterator<Item = (&Rule, u64)> {
        self.rules.iter().map(|armed| (&armed.rule, armed.applied))
    }

    pub(crate) fn unreadable(&self) -> impl Iterator<Item = Range<u64>> {
        let of = |armed: &Armed| armed.rule.act == Act::Unreadable;
        self.rules.iter().filter(move |armed| of(armed)).map(|armed| armed.rule.range.clone())
    }

    /// Below `below`, by the seed.
    pub(crate) fn draw(&mut self, below: usize) -> usize {
        self.rng.random_range(0..below)
    }
}

impl Rule {
    /// Whether the device says other than what it did or has. One that answers with an error does not lie.
    #[must_use]
    pub const fn lies(&self) -> bool {
        !matches!(self.act, Act::Fail(_))
    }

    fn matches(&self, on: On, touched: &Range<u64>, payload: &[u8]) -> bool {
        let in_range =
            on == On::Flush || (touched.start < self.range.end && self.range.start < touched.end);
        let has =
            self.has.is_empty() || payload.windows(self.has.len()).any(|window| window == self.has);
        self.on == on && self.act != Act::Unreadable && in_range && has
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let on = match words.next() {
            Some("read") => On::Read,
            Some("write") => On::Write,
            Some("flush") => On::Flush,
            Some("discard") => On::Discard,
            _ => return Err("a rule begins with read, write, flush or discard".to_owned()),
        };
        let act = act(on, words.next().unwrap_or_default())?;
        let mut rule = Self {
            on,
            act,
            nth: 1,
            times: Times::Count(1),
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
                None if word == "once" => rule.times = Times::Count(1),
                None if word == "sticky" => rule.times = Times::Sticky,
                Some(("nth", number)) => rule.nth = count("nth", number)?,
                Some(("times", number)) => rule.times = Times::Count(count("times", number)?),
                Some(("chance", share)) => rule.times = Times::Chance(chance(share)?),
                Some(("range", _)) if on == On::Flush => {
                    return Err("a flush has no range: it is about the whole disk".to_owned());
                }
                Some(("range", range)) => rule.range = parse_range(range)?,
                Some(("has", pattern)) if on == On::Write => rule.has = parse_pattern(pattern)?,
                Some(("has", _)) => return Err("only a write has a payload".to_owned()),
                Some(("after", mark)) => rule.after = Some(mark.to_owned()),
                _ => {
                    let known = "nth=, times=, once, sticky, chance=, range=, has= or after=";
                    return Err(format!("'{word}' is not {known}"));
                }
            }
        }
        if act == Act::Unreadable {
            if rule.range.end == u64::MAX {
                return Err("unreadable needs range=START..END".to_owned());
            }
            if let Some(key) = said.iter().find(|&&key| key != "range") {
                return Err(format!(
                    "unreadable is what a place is, not a request: it knows range=, and not {key}"
                ));
            }
        }
        Ok(rule)
    }
}

fn act(on: On, word: &str) -> Result<Act, String> {
    if let Some(errno) = Errno::ALL.into_iter().find(|errno| errno.name() == word) {
        return Ok(Act::Fail(errno));
    }
    match (on, word) {
        (On::Write | On::Discard, "lost") | (On::Flush, "dropped") => Ok(Act::Lie),
        (On::Write, "misdirected") => Ok(Act::Misdirect),
        (On::Write | On::Read, "flip") => Ok(Act::Flip),
        (On::Read, "unreadable") => Ok(Act::Unreadable),
        _ => Err(format!(
            "'{word}' is not EIO, ENOSPC, ETIMEDOUT{}",
            match on {
                On::Read => ", flip or unreadable",
                On::Write => ", lost, misdirected or flip",
                On::Flush => " or dropped",
                On::Discard => " or lost",
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

/// `4096`, `64KiB`, `1MiB`, `2GiB`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("B", 0), ("", 0)];
    let (number, shift) =
        units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))?;
    number.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
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

impl fmt::Display for Rule {
    /// What can be parsed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = match self.on {
            On::Read => "read",
            On::Write => "write",
            On::Flush => "flush",
            On::Discard => "discard",
        };
        let act = match self.act {
            Act::Fail(errno) => errno.name(),
            Act::Lie if self.on == On::Flush => "dropped",
            Act::Lie => "lost",
            Act::Misdirect => "misdirected",
            Act::Flip => "flip",
            Act::Unreadable => "unreadable",
        };
        write!(f, "{on} {act}")?;
        if self.nth > 1 {
            write!(f, " nth={}", self.nth)?;
        }
        match self.times {
            Times::Count(1) => {}
            Times::Count(times) => write!(f, " times={times}")?,
            Times::Sticky => f.write_str(" sticky")?,
            Times::Chance(chance) => write!(f, " chance={}%", chance * 100.0)?,
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

    fn rules(lines: &[&str]) -> Rules {
        Rules::new(lines.iter().map(|line| line.parse().unwrap()).collect(), 1)
    }

    #[test]
    fn a_rule_counts_what_it_matches_and_nothing_else() {
        let mut rules = rules(&["write EIO nth=2 times=2 range=4KiB..8KiB"]);
        let mut at = |start: u64| rules.act(On::Write, &(start..start + 4096), &[]).is_some();
        assert!(!at(4096));
        assert!(!at(8192), "beyond the range");
        assert!(at(4096) && at(0x1800), "the second and third that touch it");
        assert!(!at(4096));
        assert!(rules.act(On::Read, &(4096..8192), &[]).is_none());
    }

    #[test]
    fn a_pattern_tells_data_from_journal() {
        let mut rules = rules(&["write lost sticky has=DATA"]);
        assert_eq!(rules.act(On::Write, &(0..8), b"..DATA.."), Some(Act::Lie));
        assert_eq!(rules.act(On::Write, &(0..8), b"..JRNL.."), None);
    }

    #[test]
    fn a_rule_sleeps_until_its_mark() {
        let mut rules = rules(&["flush dropped sticky after=loaded"]);
        assert_eq!(rules.act(On::Flush, &(0..0), &[]), None);
        rules.mark("other");
        assert_eq!(rules.act(On::Flush, &(0..0), &[]), None);
        rules.mark("loaded");
        assert_eq!(rules.act(On::Flush, &(0..0), &[]), Some(Act::Lie));
    }

    #[test]
    fn a_rule_reads_back_as_it_is_said() {
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
            let rule: Rule = line.parse().unwrap();
            assert_eq!(rule.to_string(), line);
        }
        assert_eq!("write EIO range=1MiB..2MiB".parse::<Rule>().unwrap().range, 1 << 20..2 << 20);
    }

    #[test]
    fn a_wrong_rule_says_what_is_possible() {
        let wrong = |line: &str| line.parse::<Rule>().unwrap_err();
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
    fn what_a_rule_would_ignore_is_refused() {
        let wrong = |line: &str| line.parse::<Rule>().unwrap_err();
        assert!(wrong("flush EIO range=0..4096").contains("whole disk"));
        for ignored in ["nth=2", "times=3", "once", "sticky", "chance=1%", "after=loaded"] {
            let line = format!("read unreadable range=0..4096 {ignored}");
            assert!(wrong(&line).contains("not a request"), "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_rule_panic(text in "(write|read|flush) .{0,60}") {
            let _either: Result<Rule, String> = text.parse();
        }
    }
}
