//! What is said of why a state fails, no more than is known: lines of text, and one sentence.

use std::collections::BTreeMap;

use plimsoll_simdisk::mounted::FileChange;

use super::why::{When, Why, Write};
use crate::output::counted;

/// Writes, changes and names that are listed.
const SHOWN_MAX: usize = 8;

impl Why {
    /// For people; each write is said to be `how`: lost, or lacking.
    pub(super) fn text(&self, how: &str) -> String {
        let mut text = String::new();
        let (of_files, of_filesystem): (Vec<&Write>, Vec<&Write>) =
            self.writes.iter().partition(|write| write.is_of_file());
        for write in of_files.iter().take(SHOWN_MAX) {
            let names: Vec<String> = write.owners.iter().map(ToString::to_string).collect();
            let names = names.join("; ").replace('\n', "\\n");
            text += &format!("  {how}: {}: {names}; {}\n", write.what, write.came());
        }
        if of_files.len() > SHOWN_MAX {
            text += &format!("  and {} more (all with --json)\n", of_files.len() - SHOWN_MAX);
        }
        let mut parts: BTreeMap<&str, Vec<&Write>> = BTreeMap::new();
        for write in of_filesystem {
            let name = write.owners.first().map_or("", |owner| owner.name.as_str());
            parts.entry(name).or_default().push(write);
        }
        for (name, writes) in parts {
            let came = writes[writes.len() - 1].came();
            text += &match &writes[..] {
                [write] => format!("  {how}: {}: {name}; {came}\n", write.what),
                writes => format!("  {how}: {} writes: {name}; the last {came}\n", writes.len()),
            };
        }
        for (change, named_by) in self.changes.iter().take(SHOWN_MAX) {
            let named_by = match &named_by[..] {
                [] => String::new(),
                [by, ..] => format!("; {by} names it").replace('\n', "\\n"),
            };
            text += &format!("  with that: {}{named_by}\n", said(change));
        }
        if self.changes.len() > SHOWN_MAX {
            text += &format!("  and {} more changes\n", self.changes.len() - SHOWN_MAX);
        }
        text + &format!("  {}\n", self.sentence())
    }

    /// How many they are; `what` is one of them.
    pub(super) fn count(&self, what: &str) -> String {
        let most = if self.is_fewest { "" } else { "at most " };
        format!("{most}{}", counted(self.writes.len() as u64, what))
    }

    /// What was synced too late, or not by the end of the workload, in one sentence. Whether it would have been
    /// is not known: `--for` ends a workload, and its end that of its children.
    pub(super) fn sentence(&self) -> String {
        let when = self.writes.iter().map(|write| write.when).max();
        let last = self.writes.iter().map(|write| write.arrived).max().unwrap_or_default();
        let (subject, is_many) = self.subject();
        let (were, they) = if is_many { ("were", "they") } else { ("was", "it") };
        let synced = match when {
            _ if !self.disk_kept => {
                "not durable; as the disk failed or lied, whose fault that is is not \
                                     known"
                    .to_owned()
            }
            Some(When::Before(event)) => {
                format!(
                    "made durable by the flush that ended at event {event}, if that is believed"
                )
            }
            Some(When::Flushed(event)) if self.write_back => format!(
                "made durable only by the flush that ended at event {event}; with --writeback, whether the \
                 workload asked for that is not known"
            ),
            Some(When::Flushed(event)) => format!("synced only at event {event}"),
            Some(When::Aftermath) => {
                format!("not synced before the workload ended: {they} came only after that")
            }
            Some(When::Unflushed) | None => format!(
                "not synced before the workload ended: {they} came at event {last}, and no flush until then \
                 covers that"
            ),
        };
        // What came after a promise need not be what was promised: it may have been written over that.
        let came_later = |mark: usize| {
            let is_flushed = matches!(when, Some(When::Flushed(_)));
            is_flushed && self.writes.iter().all(|write| write.arrived > mark)
        };
        let mark = match &self.mark {
            Some((event, text)) if came_later(*event) => format!(
                "'{text}' had been said at event {event}, before any of this came to the disk"
            ),
            Some((event, text)) => format!("'{text}' had been said at event {event}"),
            None => "nothing had been said before the cut".to_owned(),
        };
        format!("{subject} {were} {synced}; {mark}").replace('\n', "\\n")
    }

    /// What is spoken of, and whether that is more than one.
    fn subject(&self) -> (String, bool) {
        let owners = self.writes.iter().flat_map(|write| &write.owners);
        let files = owners.filter(|owner| owner.byte_offset.is_some());
        let mut files: Vec<&str> = files.map(|owner| owner.name.as_str()).collect();
        files.sort_unstable();
        files.dedup();
        if let [file] = files[..]
            && let Some(by) = self.named_by(file)
        {
            return (format!("{by} names {file}, whose bytes"), true);
        }
        if !files.is_empty() {
            return (format!("bytes of {}", some(&files)), true);
        }
        if let [(FileChange { name, before, after }, _)] = &self.changes[..] {
            let by = self.named_by(name).map_or(String::new(), |by| format!(", which {by} names,"));
            let what = match (before, after) {
                (None, _) => "the new name",
                (_, None) => "the removal of",
                _ => "what is new in",
            };
            return (format!("{what} {name}{by}"), false);
        }
        if self.changes.is_empty() {
            return ("what the filesystem wrote".to_owned(), false);
        }
        let names: Vec<&str> =
            self.changes.iter().map(|(change, _)| change.name.as_str()).collect();
        // Which of them the check wants is not known. What somebody refers to is worth saying.
        let referred = self.changes.iter().find_map(|(change, by)| {
            let (by, bytes) = (by.first()?, change.before?);
            Some(format!("{by} names {}, which has {}; ", change.name, counted(bytes, "byte")))
        });
        (format!("{}what differs in {}", referred.unwrap_or_default(), some(&names)), false)
    }

    /// The first file that names another one.
    fn named_by(&self, name: &str) -> Option<&str> {
        let (_, named_by) = self.changes.iter().find(|(change, _)| change.name == name)?;
        named_by.first().map(String::as_str)
    }
}

impl Write {
    fn is_of_file(&self) -> bool {
        self.owners.iter().any(|owner| owner.byte_offset.is_some())
    }

    fn came(&self) -> String {
        let arrived = self.arrived;
        match self.when {
            When::Before(event) | When::Flushed(event) => {
                format!("came at event {arrived}, flushed at event {event}")
            }
            When::Unflushed => {
                format!("came at event {arrived}, not flushed before the workload ended")
            }
            When::Aftermath => "came after the workload".to_owned(),
        }
    }
}

fn some(names: &[&str]) -> String {
    let shown = names[..names.len().min(SHOWN_MAX)].join(", ");
    let more = names.len().saturating_sub(SHOWN_MAX);
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

fn said(change: &FileChange) -> String {
    let name = change.name.replace('\n', "\\n");
    match (change.before, change.after) {
        (None, _) if name.ends_with('/') => format!("{name} is there"),
        (None, bytes) => {
            format!("{name} is there, of {}", counted(bytes.unwrap_or_default(), "byte"))
        }
        (Some(_), None) if name.ends_with('/') => format!("{name} is gone"),
        (Some(bytes), None) => format!("{name} is gone, of {}", counted(bytes, "byte")),
        (Some(before), Some(after)) if before == after => {
            format!("{name} has other bytes, as many as before: {after}")
        }
        (Some(before), Some(after)) => {
            format!("{name} has {}, not {before}", counted(after, "byte"))
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_simdisk::mounted::Owner;

    use super::*;

    fn why(owners: &[(&str, Option<u64>)], when: When, changes: &[(&str, u64, u64)]) -> Why {
        let owner = |&(name, byte_offset): &(&str, Option<u64>)| Owner {
            disk: 0..512,
            name: name.to_owned(),
            byte_offset,
        };
        let owners = owners.iter().map(owner).collect();
        let what = "write 7 at disk byte 0".to_owned();
        let change = |&(name, before, after): &(&str, u64, u64)| {
            let length = |bytes: u64| (bytes != 0).then_some(bytes);
            let (before, after) = (length(before), length(after));
            (FileChange { name: name.to_owned(), before, after }, vec!["CURRENT".to_owned()])
        };
        Why {
            writes: vec![Write { request: 7, what, owners, arrived: 40, when }],
            is_fewest: true,
            changes: changes.iter().map(change).collect(),
            mark: Some((30, "open".to_owned())),
            disk_kept: true,
            write_back: false,
        }
    }

    #[test]
    fn the_sentence_says_no_more_than_is_known() {
        let data = [("MANIFEST-000001", Some(0))];
        let journal = [("ext4 journal", None)];
        let begins = |why: Why, begin: &str| {
            let said = why.sentence();
            assert!(said.starts_with(begin), "{said}");
        };
        let named = why(&data, When::Flushed(44), &[("MANIFEST-000001", 1, 50)]);
        let said = "CURRENT names MANIFEST-000001, whose bytes were synced only at event 44; 'open' had been \
                    said at event 30, before any of this came to the disk";
        assert_eq!(named.sentence(), said);
        let late = Why { mark: Some((41, "open".to_owned())), ..named };
        assert!(
            late.sentence().ends_with("'open' had been said at event 41"),
            "{}",
            late.sentence()
        );
        let unnamed = why(&data, When::Unflushed, &[]);
        begins(
            unnamed,
            "bytes of MANIFEST-000001 were not synced before the workload ended: they came at event 40, and",
        );
        let removed = why(&journal, When::Aftermath, &[("hot", 9, 0)]);
        begins(
            removed,
            "the removal of hot, which CURRENT names, was not synced before the workload ended: it came only after",
        );
        let made = why(&journal, When::Flushed(44), &[("new", 0, 9)]);
        begins(made, "the new name new, which CURRENT names, was synced only at event 44");
        // Which of two changes it is that the check wants is not known.
        let two = why(&journal, When::Flushed(44), &[("a", 1, 2), ("b", 1, 2)]);
        begins(two, "CURRENT names a, which has 1 byte; what differs in a, b was synced only");
        begins(why(&journal, When::Flushed(44), &[]), "what the filesystem wrote was synced only");
        // A disk of which something else is believed had been asked for enough.
        let before = why(&data, When::Before(20), &[]);
        begins(
            before,
            "bytes of MANIFEST-000001 were made durable by the flush that ended at event 20, if",
        );
        // Whoever asks for a sync of a disk that lies is not to blame.
        let lied = Why { disk_kept: false, mark: None, ..why(&data, When::Unflushed, &[]) };
        let said = lied.sentence();
        assert!(!said.contains("synced") && said.contains("is not known"), "{said}");
        assert!(said.ends_with("nothing had been said before the cut"), "{said}");
        // The flush may be the recorder's, and the program one that never syncs.
        let written_back = Why { write_back: true, ..why(&data, When::Flushed(44), &[]) };
        let said = written_back.sentence();
        assert!(
            !said.contains("synced") && said.contains("only by the flush that ended"),
            "{said}"
        );
    }
}
