//! Which files a check names, and how they look now: what a changed check found is another answer.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// More words than this are not looked up.
const WORDS_MAX: usize = 256;

/// Each file that a line for the shell names, with its length and when it changed; programs are looked for
/// in PATH. What those files read in turn is not known.
pub(super) fn of(line: &str) -> Vec<String> {
    let separates = |c: char| c.is_whitespace() || "'\"`;&|<>()=".contains(c);
    let words = line.split(separates).filter(|word| !word.is_empty()).take(WORDS_MAX);
    // {dir} is another each time, and what the shell puts in is not known here.
    let words = words.filter(|word| !word.contains(['{', '$', '*']));
    let files: BTreeSet<String> = words.filter_map(file).collect();
    files.into_iter().collect()
}

fn file(word: &str) -> Option<String> {
    let in_path = || {
        let path = env::var_os("PATH").filter(|_| !word.contains('/'))?;
        env::split_paths(&path).map(|dir| dir.join(word)).find(|file| file.is_file())
    };
    let path = Some(PathBuf::from(word)).filter(|path| path.is_file()).or_else(in_path)?;
    look(&path)
}

fn look(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    let bytes = metadata.len();
    Some(format!("{}: {bytes} bytes, changed at {} ns", path.display(), changed.as_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_was_edited_looks_different() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("verify");
        fs::write(&script, "exit 0").unwrap();
        let line = format!("'{}' {{dir}} && test 1 -gt 0", script.display());
        let before = of(&line);
        assert!(before.iter().any(|file| file.contains("verify: 6 bytes")), "{before:?}");
        assert!(before.iter().any(|file| file.contains("/test: ")), "{before:?}");
        assert_eq!(of(&line), before);
        fs::write(&script, "exit 10").unwrap();
        assert_ne!(of(&line), before);
        assert!(of("no-such-program {dir}/log $HOME /").is_empty());
    }
}
