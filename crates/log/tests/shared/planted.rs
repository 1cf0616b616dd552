//! Mutants: bugs that are planted in a copy of the sources, each of which a simulation must find. A
//! mutant that survives is a hole in the simulation.
//!
//! A file of a [`Hunt`]'s folder says what is planted, in which file, instead of which text: `«»`
//! marks the part that changes where the text around it is needed to find it. Spaces do not matter.
//! All are planted in one copy, in `target/mutants`, and one is switched on at a time, so that the
//! copy is built once; with none switched on it must pass.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use std::{env, thread};

/// What looks for a mutant: the name of a test, and what says how long it may look.
pub(crate) type Campaign = (&'static str, &'static str, &'static str);

/// Where mutants are, and what looks for them.
#[derive(Debug)]
pub(crate) struct Hunt {
    /// The folder of their files.
    pub(crate) mutants: &'static str,
    /// What the simulation is built from; mutants change these.
    pub(crate) crates: &'static [&'static str],
    /// Whose tests look for them.
    pub(crate) package: &'static str,
    /// The programs of these tests: each test is in one of them.
    pub(crate) programs: &'static [&'static str],
    /// What looks for a mutant, fastest first.
    pub(crate) campaigns: Vec<Campaign>,
    /// What must pass with none switched on. The environment may say another limit.
    pub(crate) healthy: Vec<Campaign>,
    /// A mutant may make its program wait for ever: it may have so many seconds of a CPU for a campaign.
    pub(crate) longest_s: u64,
}

/// How many times as long as it may have of a CPU a mutant may take by the clock.
const PATIENCE: u32 = 5;

struct Mutant {
    name: String,
    what: String,
    changes: Vec<Change>,
}

struct Change {
    file: String,
    old: String,
    new: String,
}

/// What one mutant puts in the place of a part of a file.
struct Edit<'a> {
    mutant: &'a str,
    new: &'a str,
}

impl Hunt {
    /// The texts of so many mutants, at least, are where they say.
    pub(crate) fn check(&self, least: usize) {
        let mutants = self.all();
        assert!(mutants.len() >= least, "{} mutants", mutants.len());
        self.planted(&mutants);
    }

    /// Looks for each that is wanted: `all`, or names with commas between them.
    pub(crate) fn look_for(&self, wanted: &str) {
        let all = self.all();
        let tests = self.build(&self.planted(&all));
        let chosen: Vec<&Mutant> = all
            .iter()
            .filter(|mutant| wanted == "all" || wanted.split(',').any(|name| name == mutant.name))
            .collect();
        assert!(!chosen.is_empty(), "no mutant is called {wanted}");
        let begun = Instant::now();
        // For some of them the first campaign is enough: the others run among all tests.
        let healthy = if wanted == "all" { &self.healthy[..] } else { &self.healthy[..1] };
        if let Some(found) = self.hunt(&tests, None, healthy) {
            panic!("with no mutant switched on {} fails: {}", found.campaign, found.why);
        }
        println!(
            "\nWith none switched on {} of {} campaigns pass, in {:.0} s.",
            healthy.len(),
            self.healthy.len(),
            begun.elapsed().as_secs_f64()
        );
        println!("\n| mutant | found by | seed | after seeds | seconds | because |");
        println!("| --- | --- | --- | --- | --- | --- |");
        let next = AtomicUsize::new(0);
        let survivors = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while let Some(mutant) = chosen.get(next.fetch_add(1, SeqCst)) {
                        let name = &mutant.name;
                        match self.hunt(&tests, Some(name), &self.campaigns) {
                            Some(Found { campaign, seed, seeds, seconds, why }) => println!(
                                "| {name} | {campaign} | {seed} | {seeds} | {seconds:.1} | {why} |"
                            ),
                            None => {
                                println!("| {name} | **nobody** | | | | {} |", mutant.what);
                                survivors.lock().unwrap().push(name.clone());
                            }
                        }
                    }
                });
            }
        });
        let survivors = survivors.into_inner().unwrap();
        let found = chosen.len() - survivors.len();
        let seconds = begun.elapsed().as_secs_f64();
        println!("\n{found} of {} mutants found, in {seconds:.0} s.", chosen.len());
        assert!(survivors.is_empty(), "holes in the simulation: {survivors:?} survive");
    }

    fn all(&self) -> Vec<Mutant> {
        let files = fs::read_dir(root().join(self.mutants)).unwrap();
        let mut paths: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| Mutant::read(path)).collect()
    }

    /// The changed files: every mutant behind its switch.
    fn planted(&self, mutants: &[Mutant]) -> BTreeMap<String, String> {
        let mut edits: BTreeMap<&str, BTreeMap<(usize, usize), Vec<Edit<'_>>>> = BTreeMap::new();
        for mutant in mutants {
            for change in &mutant.changes {
                let source = fs::read_to_string(root().join(&change.file)).unwrap();
                let part = change.find(&mutant.name, &source);
                let edit = Edit { mutant: &mutant.name, new: &change.new };
                let of_file = edits.entry(&change.file).or_default();
                of_file.entry((part.start, part.end)).or_default().push(edit);
            }
        }
        let mut files = BTreeMap::new();
        for (file, edits) in edits {
            let mut text = fs::read_to_string(root().join(file)).unwrap();
            let mut before = usize::MAX;
            for (&(start, end), edits) in edits.iter().rev() {
                assert!(end <= before, "in {file} two mutants change parts of the same text");
                before = start;
                let old = &text[start..end];
                let mut switch = String::new();
                for Edit { mutant, new } in edits {
                    write!(switch, "if crate::planted({mutant:?}) {{ {new} }} else ").unwrap();
                }
                write!(switch, "{{ {old} }}").unwrap();
                // An expression stands among others.
                let switch = if old.ends_with(';') { switch } else { format!("({switch})") };
                text.replace_range(start..end, &switch);
            }
            files.insert(file.to_owned(), text);
        }
        for crate_dir in self.crates {
            let file = format!("{crate_dir}/src/lib.rs");
            let text = files
                .remove(&file)
                .unwrap_or_else(|| fs::read_to_string(root().join(&file)).unwrap());
            files.insert(file, text + SWITCH);
        }
        files
    }

    /// Copies what the tests are built from, with the mutants in it, and builds them: which program has which test.
    fn build(&self, planted: &BTreeMap<String, String>) -> BTreeMap<String, PathBuf> {
        let copy = root().join("target/mutants").join(self.package);
        for file in ["Cargo.toml", "Cargo.lock"] {
            write_if_changed(&copy.join(file), &fs::read(root().join(file)).unwrap());
        }
        // The last is named by the workspace itself.
        for crate_dir in self.crates.iter().chain(&["crates/base2histogram"]) {
            copy_tree(Path::new(crate_dir), &copy, planted);
        }
        let built = Command::new(env!("CARGO"))
            .args(["test", "--no-run", "--release", "--offline", "--message-format=json"])
            .args(["-p", self.package])
            .args(self.programs.iter().flat_map(|program| ["--test", *program]))
            // Compiled well they take a minute more, and do nothing in what is built.
            .args(["--config", "profile.release.package.proptest.opt-level=0"])
            .args(["--config", "profile.release.package.regex-syntax.opt-level=0"])
            .current_dir(&copy)
            .env("CARGO_TARGET_DIR", root().join("target/mutants/target"))
            .env("RUSTFLAGS", "-Awarnings")
            // What a release is looked at as a whole for is worth minutes, and finds nothing.
            .env("CARGO_PROFILE_RELEASE_LTO", "false")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(built.status.success(), "the mutants do not compile");
        let messages = String::from_utf8(built.stdout).unwrap();
        let built: Vec<PathBuf> = messages
            .lines()
            .filter_map(|line| {
                let message: serde_json::Value = serde_json::from_str(line).ok()?;
                let name = message["target"]["name"].as_str()?;
                let is_wanted = self.programs.contains(&name);
                is_wanted.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
            })
            .collect();
        assert_eq!(built.len(), self.programs.len(), "cargo names what it built");
        built.iter().flat_map(|program| tests_of(program)).collect()
    }

    /// Runs campaigns until one of them fails.
    fn hunt(
        &self,
        tests: &BTreeMap<String, PathBuf>,
        mutant: Option<&str>,
        campaigns: &[Campaign],
    ) -> Option<Found> {
        campaigns.iter().find_map(|campaign| {
            let program = tests.get(campaign.0);
            let program = program.unwrap_or_else(|| panic!("there is no test {}", campaign.0));
            self.hunt_with(program, mutant, *campaign)
        })
    }

    fn hunt_with(
        &self,
        binary: &Path,
        mutant: Option<&str>,
        (campaign, limit, value): Campaign,
    ) -> Option<Found> {
        let output = tempfile::tempfile().unwrap();
        let mut command = Command::new(binary);
        command
            .args([campaign, "--exact", "--nocapture"])
            .env(limit, value)
            .env("RUST_BACKTRACE", "0");
        command.stdout(output.try_clone().unwrap()).stderr(output.try_clone().unwrap());
        for other in ["PLIMSOLL_MUTANT", "PLIMSOLL_SEED", "PLIMSOLL_FROM"] {
            command.env_remove(other);
        }
        match mutant {
            Some(mutant) => command.env("PLIMSOLL_MUTANT", mutant),
            None => {
                let said = env::var(limit).unwrap_or_else(|_| value.to_owned());
                command.env(limit, said).env("PLIMSOLL_JOBS", "2")
            }
        };
        let begun = Instant::now();
        let mut child = command.spawn().unwrap();
        let ended = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if mutant.is_some() && self.is_stuck(child.id(), begun.elapsed()) => {
                    break None;
                }
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        if ended.is_none() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let mut text = String::new();
        let mut output = output;
        std::io::Seek::rewind(&mut output).unwrap();
        std::io::Read::read_to_string(&mut output, &mut text).unwrap();
        if ended.is_some_and(|status| status.success()) {
            if mutant.is_none() {
                let figures = text.lines().rfind(|line| line.contains('{'));
                println!("{campaign}: {}", figures.unwrap_or("passed"));
            }
            return None;
        }
        let number_after = |word: &str| {
            let rest = text.split(word).nth(1)?;
            Some(rest.chars().take_while(char::is_ascii_digit).collect::<String>())
        };
        let why = text.lines().skip_while(|line| !line.contains("panicked at")).nth(1);
        Some(Found {
            campaign,
            seed: number_after("PLIMSOLL_SEED=").unwrap_or_default(),
            seeds: number_after(", after ").unwrap_or_default(),
            seconds: begun.elapsed().as_secs_f64(),
            why: why.unwrap_or("it does not end").chars().take(90).collect(),
        })
    }

    fn is_stuck(&self, pid: u32, elapsed: Duration) -> bool {
        cpu_seconds(pid) > self.longest_s
            || elapsed > PATIENCE * Duration::from_secs(self.longest_s)
    }
}

impl Mutant {
    fn read(path: &Path) -> Self {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(path).unwrap();
        let mut parts = text.split("\n\n");
        let what = parts.next().unwrap().trim().replace('\n', " ");
        let changes: Vec<_> = parts.map(|part| Change::read(&name, part)).collect();
        assert!(!changes.is_empty(), "{name} changes nothing");
        Self { name, what, changes }
    }
}

impl Change {
    fn read(name: &str, part: &str) -> Self {
        let mut lines = part.lines();
        let mut line = |word: &str| {
            let line = lines.next().unwrap_or_default();
            let rest = line.strip_prefix(word);
            rest.unwrap_or_else(|| panic!("{name}: `{word} …` expected, found `{line}`"))
                .trim()
                .to_owned()
        };
        Self { file: line("in"), old: line("old"), new: line("new") }
    }

    /// Where the text that changes is. It must be there once.
    fn find(&self, name: &str, source: &str) -> Range<usize> {
        let (bytes, places): (Vec<char>, Vec<usize>) = source
            .char_indices()
            .filter(|(_, letter)| !letter.is_whitespace())
            .map(|(at, letter)| (letter, at))
            .unzip();
        let squeezed: Vec<char> =
            self.old.chars().filter(|letter| !letter.is_whitespace()).collect();
        let mark = |mark| squeezed.iter().position(|&letter| letter == mark);
        let marked = mark('«').zip(mark('»')).map(|(from, to)| from..to - 1);
        let wanted: Vec<char> =
            squeezed.iter().copied().filter(|letter| !"«»".contains(*letter)).collect();
        let found: Vec<usize> =
            (0..bytes.len()).filter(|&at| bytes[at..].starts_with(&wanted)).collect();
        let [at] = found[..] else {
            panic!(
                "the mutant {name} must be written anew: its text is {} times in {}:\n{}",
                found.len(),
                self.file,
                self.old
            );
        };
        let part = marked.unwrap_or(0..wanted.len());
        let last = places[at + part.end - 1];
        let end = last + source[last..].chars().next().map_or(0, char::len_utf8);
        places[at + part.start]..end
    }
}

const SWITCH: &str = r#"
/// Whether this mutant is the one that is looked for.
#[allow(dead_code)]
pub(crate) fn planted(name: &str) -> bool {
    static WHICH: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    WHICH.get_or_init(|| std::env::var("PLIMSOLL_MUTANT").ok()).as_deref() == Some(name)
}
"#;

/// How a mutant was found.
struct Found {
    campaign: &'static str,
    seed: String,
    seeds: String,
    seconds: f64,
    why: String,
}

/// The tests of a program.
fn tests_of(program: &Path) -> Vec<(String, PathBuf)> {
    let listed = Command::new(program).arg("--list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let tests = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    tests.map(|test| (test.to_owned(), program.to_owned())).collect()
}

fn copy_tree(from: &Path, copy: &Path, planted: &BTreeMap<String, String>) {
    for entry in fs::read_dir(root().join(from)).unwrap() {
        let entry = entry.unwrap();
        let path = from.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&path, copy, planted);
            continue;
        }
        let bytes = match planted.get(path.to_str().unwrap()) {
            Some(text) => text.clone().into_bytes(),
            None => fs::read(root().join(&path)).unwrap(),
        };
        write_if_changed(&copy.join(&path), &bytes);
    }
}

/// What is as it was needs no new build.
fn write_if_changed(path: &Path, bytes: &[u8]) {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return;
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// What a process has had of the CPUs; 0 where nobody says it.
fn cpu_seconds(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // User and system time, in hundredths, after the name in brackets.
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() / 100
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
