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
    let words = words(line);
    let whole = words.iter().map(|word| word.text.as_str()).take(WORDS_MAX);
    // {dir} is another each time, and what the shell puts in is not known here.
    let parts = parts(line).take(WORDS_MAX).filter(|word| !word.contains(['{', '$', '*']));
    let files: BTreeSet<String> = whole.chain(parts).filter_map(file).collect();
    files.into_iter().collect()
}

/// What of a line may name a file that a [`super::Question`] does not know, because the shell makes something else of it:
/// its first such word. In doubt it is one.
#[must_use]
pub fn unfollowed(line: &str) -> Option<String> {
    let all: Vec<&str> = parts(line).collect();
    if all.len() > WORDS_MAX {
        return Some(format!("more than {WORDS_MAX} words"));
    }
    for (number, &part) in all.iter().enumerate() {
        let there = all.get(number + 1).copied().unwrap_or_default();
        if ["cd", "pushd"].contains(&part) && !is_of_state(there) {
            return Some(format!("{part} {there}"));
        }
    }
    words(line).into_iter().find(|word| !word.is_followed(line)).map(|word| word.text)
}

/// What may be a name on its own, also within quotes.
fn parts(line: &str) -> impl Iterator<Item = &str> {
    let separates = |c: char| c.is_whitespace() || "'\"`;&|<>()=".contains(c);
    line.split(separates).filter(|part| !part.is_empty())
}

/// A word as the shell divides them, without its quotes.
#[derive(Default)]
struct Word {
    text: String,
    is_quoted: bool,
}

fn words(line: &str) -> Vec<Word> {
    let mut words = vec![Word::default()];
    let mut quote = None;
    for c in line.chars() {
        let word = words.last_mut().expect("never empty");
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.text.push(c),
            None if c == '\'' || c == '"' => (quote, word.is_quoted) = (Some(c), true),
            None if c.is_whitespace() || "`;&|<>()".contains(c) => words.push(Word::default()),
            None => word.text.push(c),
        }
    }
    words.retain(|word| !word.text.is_empty());
    words
}

impl Word {
    fn is_followed(&self, line: &str) -> bool {
        // Quotes in quotes are for another shell, which divides words otherwise.
        file(&self.text).is_some()
            || !self.text.contains(['\\', '\'', '"'])
                && parts(&self.text).all(|part| is_of_state(part) || self.has_plain(part, line))
    }

    /// Whether a part of it is not about to become something else.
    fn has_plain(&self, part: &str, line: &str) -> bool {
        let is_lone = part.len() == 1;
        let is_home = part.starts_with('~') && !is_lone;
        let matches = part.replace("$?", "").contains(['*', '?', '[']);
        // A test is a bracket, and a quoted star a product or all columns.
        let is_pattern = matches && !(is_lone && (self.is_quoted || part == "["));
        !is_home && !is_pattern && (!has_variable(part) || is_set_in(part, line))
    }
}

/// Whether it names what is in the crash state, or was said of it.
fn is_of_state(part: &str) -> bool {
    ["{dir}", "$PLIMSOLL_", "${PLIMSOLL_"].iter().any(|start| part.starts_with(start))
}

/// `$?`, `$1` and a `$` on its own are none.
fn has_variable(part: &str) -> bool {
    let begins_name = |rest: &str| {
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
    };
    part.split('$').skip(1).any(begins_name)
}

/// Whether it is a variable, and nothing more, that the line sets: then what it holds is in the line, too.
fn is_set_in(part: &str, line: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = part.strip_prefix('$').unwrap_or_default();
    let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
    let is_variable = !name.is_empty() && name.chars().all(is_name);
    let mut assigned = line.split(|c| !is_name(c) && c != '=');
    is_variable && assigned.any(|word| word.split_once('=').is_some_and(|(set, _)| set == name))
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

    #[test]
    fn what_the_shell_makes_something_else_of_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("my verify");
        fs::write(&script, "exit 0").unwrap();
        let quoted = format!("'{}' {{dir}}", script.display());
        assert!(of(&quoted).iter().any(|file| file.contains("my verify: 6 bytes")));
        assert_eq!(unfollowed(&quoted), None);
        for (line, word) in [
            ("~/verify.py {dir}", "~/verify.py"),
            ("$HOME/verify {dir}", "$HOME/verify"),
            ("\"${CHECKS}\"/verify {dir}", "${CHECKS}/verify"),
            ("d=checks; $d/verify {dir}", "$d/verify"),
            ("cd checks && ./verify {dir}", "cd checks"),
            ("cat check* | sh", "check*"),
            ("my\\ dir/verify {dir}", "my\\"),
            ("sh -c \"'my dir/verify' {dir}\"", "'my dir/verify' {dir}"),
        ] {
            assert_eq!(unfollowed(line).as_deref(), Some(word), "{line}");
        }
        assert!(unfollowed(&"x ".repeat(300)).is_some());
        for line in [
            "./verify {dir} \"$PLIMSOLL_LAST_MARK\"; test $? -eq 0",
            "cd {dir} && sqlite3 db 'select count(*) from t'",
            "n=$(grep -c '^line$' {dir}/log); test \"$n\" -ge \"${PLIMSOLL_LAST_MARK:-0}\" || \
             { echo \"$n lines\"; exit 1; }",
            "[ -s \"$PLIMSOLL_DIR\"/log ]",
        ] {
            assert_eq!(unfollowed(line), None, "{line}");
        }
    }
}
