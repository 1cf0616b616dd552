//! Runs trials: rounds of cells, the arms of a cell in seeded random order, each trial in a process and a
//! directory of its own, saved when it is done. Drops nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io::{IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use plimsoll_lab::counters::Counters;
use plimsoll_lab::environment::Environment;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use crate::arms::{self, Arm, Program};
use crate::conditions::{Conditions, Probe, counting};
use crate::result::{Saved, Trial};
use crate::task::{Answer, Beside, Cell, Task};
use crate::{Run, plan};

/// A trial that takes longer is stuck.
const STUCK: Duration = Duration::from_secs(150);
/// How long the random writer runs before an engine opens.
const TORTURE_AHEAD: Duration = Duration::from_millis(1500);
/// What slows the syncs of every arm alike, whatever it is written in.
const SLOW_SYNC: [&str; 8] = [
    "--seccomp-bpf",
    "-f",
    "-qqq",
    "-e",
    "trace=fsync,fdatasync,sync_file_range,msync,syncfs",
    "-e",
    "inject=fsync,fdatasync,sync_file_range,msync,syncfs:delay_exit=100000",
    "-o/dev/null",
];

/// Where trials run, and what they run with.
pub(crate) struct Bench {
    pub(crate) scratch: Scratch,
    go: Option<PathBuf>,
    stop: Arc<AtomicBool>,
}

/// A directory of ours; gone when dropped.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// A process; killed, with all that it started, when dropped, unless it ended well.
struct Running {
    child: Child,
    ended_well: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended_well {
            return; // its number may be somebody else's by now
        }
        let group = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
        self.child.wait().ok();
    }
}

impl Bench {
    pub(crate) fn open(run: &Run) -> Result<Self> {
        fs::create_dir_all(&run.dir)?;
        let scratch = Scratch(run.dir.canonicalize()?);
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        ctrlc::set_handler(move || asked.store(true, Ordering::SeqCst))?;
        let go = run.go.canonicalize().ok();
        Ok(Self { scratch, go, stop })
    }

    /// Why an arm cannot be measured here, if it cannot.
    pub(crate) fn misses(&self, arm: &Arm) -> Option<&'static str> {
        let found = |program: &str| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|dir| dir.join(program).exists())
        };
        match (arm.program, arm.name) {
            (Program::Go, _) if self.go.is_none() => {
                Some("its Go program was not built (bench/run does)")
            }
            (_, "redis") if !found("redis-server") => Some("redis-server is not installed"),
            (_, "rocksdb") if cfg!(not(feature = "rocksdb")) => {
                Some("built without the feature rocksdb")
            }
            _ => None,
        }
    }

    /// One trial's answer. `around` is what the worker runs under.
    pub(crate) fn trial(&self, arm: &Arm, task: &Task, around: &[&str]) -> Result<Answer> {
        fs::remove_dir_all(&task.dir).ok();
        fs::create_dir_all(&task.dir)?;
        let answered = self.answer(arm, task, around);
        fs::remove_dir_all(&task.dir)
            .with_context(|| format!("cannot remove {}", task.dir.display()))?;
        fs::remove_file(&task.answer).ok();
        answered
    }

    fn answer(&self, arm: &Arm, task: &Task, around: &[&str]) -> Result<Answer> {
        let _torture = (task.cell.beside == Beside::Torture)
            .then(|| torture(&self.scratch.0.join("torture")))
            .transpose()?;
        let own = std::env::current_exe()?;
        let text = serde_json::to_string(task)?;
        let mut worker: Vec<PathBuf> = around.iter().map(PathBuf::from).collect();
        match (arm.program, &self.go) {
            (Program::Go, Some(go)) => worker.extend([go.clone(), text.into()]),
            (Program::Go, None) => bail!("there is no Go program"),
            (Program::Rust, _) => worker.extend([own, "work".into(), text.into()]),
        }
        let mut command = Command::new(&worker[0]);
        command
            .args(&worker[1..])
            .env("WALRUS_DATA_DIR", &task.dir)
            .env("WALRUS_QUIET", "1")
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child =
            command.spawn().with_context(|| format!("cannot run {}", worker[0].display()))?;
        let mut running = Running { child, ended_well: false };
        let mut stderr = running.child.stderr.take().expect("asked for");
        let said = thread::spawn(move || {
            let mut said = String::new();
            std::io::Read::read_to_string(&mut stderr, &mut said).ok();
            said
        });
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = running.child.try_wait()? {
                break status;
            }
            if self.stop.load(Ordering::SeqCst) {
                bail!("interrupted");
            }
            if begun.elapsed() > STUCK {
                bail!("no answer after {STUCK:?}");
            }
            thread::sleep(Duration::from_millis(3));
        };
        running.ended_well = status.success();
        drop(running); // with a server that a worker which failed has left
        if !status.success() {
            let said = said.join().unwrap_or_default();
            bail!("{status}: {}", said.lines().last().unwrap_or("(said nothing)"));
        }
        Ok(serde_json::from_slice(&fs::read(&task.answer).context("no answer")?)?)
    }

    pub(crate) fn task(&self, arm: &Arm, cell: &Cell) -> Task {
        Task {
            arm: arm.name.to_owned(),
            cell: cell.clone(),
            dir: self.scratch.0.join("log"),
            answer: self.scratch.0.join("answer.json"),
            seconds: 0.0,
            rate: 0,
            bytes_max: 0,
        }
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

fn torture(file: &Path) -> Result<Tortured> {
    let child = Command::new(std::env::current_exe()?)
        .args(["torture".as_ref(), file.as_os_str()])
        .process_group(0)
        .stdout(Stdio::null())
        .spawn()?;
    let running = Running { child, ended_well: false };
    thread::sleep(TORTURE_AHEAD);
    Ok(Tortured { file: file.to_owned(), _running: running })
}

/// The random writer; its file is removed with it, and so are the pages that wait to be written.
struct Tortured {
    file: PathBuf,
    _running: Running,
}

impl Drop for Tortured {
    fn drop(&mut self) {
        fs::remove_file(&self.file).ok();
    }
}

/// A trial to be made.
struct Due {
    round: u32,
    cell: Cell,
    arm: &'static Arm,
}

/// Everything that was asked for, in its order.
fn due(run: &Run) -> Vec<Due> {
    let mut random = Pcg64Mcg::seed_from_u64(run.seed);
    let mut all = Vec::new();
    let most = plan::cells().iter().map(|cell| plan::rounds(cell, run.rounds)).max();
    for round in 0..most.unwrap_or(0) {
        for cell in plan::cells() {
            let mut arms: Vec<_> = arms::of(&cell).collect();
            arms.shuffle(&mut random);
            let name = cell.name();
            let wanted = run.only.is_empty() || run.only.iter().any(|part| name.contains(part));
            if !wanted || round >= plan::rounds(&cell, run.rounds) {
                continue;
            }
            let asked =
                |arm: &&Arm| run.arms.is_empty() || run.arms.iter().any(|name| name == arm.name);
            all.extend(arms.into_iter().filter(asked).map(|arm| Due {
                round,
                cell: cell.clone(),
                arm,
            }));
        }
    }
    all
}

pub(crate) fn run(run: &Run) -> Result<ExitCode> {
    let begun = Instant::now();
    let bench = Bench::open(run)?;
    let mut saved = Saved::open(&run.out, &bench.scratch.0, run.seed, run.quick)?;
    let mut due = due(run);
    due.retain(|due| match bench.misses(due.arm) {
        Some(why) => {
            saved.missing.insert(due.arm.name.to_owned(), why.to_owned());
            false
        }
        None => !saved.has(due.round, &due.cell, due.arm.name),
    });
    for (arm, why) in &saved.missing {
        eprintln!("left out: {arm}: {why}");
    }
    let counters = Counters::new(Environment::of(&bench.scratch.0).1);
    let mut probe = Probe::new(&bench.scratch.0)?;
    let mut progress = Progress::new(due.len());
    let mut failed = BTreeMap::new();
    for (done, due) in due.iter().enumerate() {
        if run.limit().is_some_and(|limit| begun.elapsed() + progress.longest(due) > limit) {
            progress.end(&format!("{done} trials done, {} left", progress.all - done));
            return Ok(ExitCode::from(3));
        }
        progress.show(done, due);
        let trial = measure(&bench, &counters, &mut probe, due, run.quick)?;
        if bench.stopped() {
            progress
                .end("stopped; what was measured is saved, the same command goes on from there");
            return Ok(ExitCode::from(130));
        }
        if let Some(why) = &trial.failed {
            failed.insert(format!("{} {}", due.cell.name(), due.arm.name), why.clone());
        }
        saved.trials.push(trial);
        saved.save(&run.out)?;
        progress.took(due);
    }
    progress.end(&format!("{} trials done, none left", due.len()));
    for (what, why) in &failed {
        eprintln!("failed: {what}: {why}");
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(
    bench: &Bench,
    counters: &Counters,
    probe: &mut Probe,
    due: &Due,
    quick: bool,
) -> Result<Trial> {
    // What others left behind on this filesystem is not ours to write.
    rustix::fs::syncfs(fs::File::open(&bench.scratch.0)?)?;
    let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let before = probe.flush_us()?;
    let task = plan::sized(&due.cell, quick, bench.task(due.arm, &due.cell));
    let mut around: Vec<&str> = Vec::new();
    if arms::slowed(&due.cell) {
        around.push("strace");
        around.extend(SLOW_SYNC);
    }
    let (answer, conditions) = counting(counters, || bench.trial(due.arm, &task, &around));
    let conditions =
        Conditions { flush_us_before: before, flush_us_after: probe.flush_us()?, ..conditions };
    let failed = answer.as_ref().err().map(|error| format!("{error:#}"));
    let (round, cell) = (due.round, due.cell.clone());
    Ok(Trial {
        round,
        cell,
        arm: due.arm.name.to_owned(),
        at,
        conditions,
        failed,
        answer: answer.ok(),
    })
}

/// What is being done, and how long it will take, on stderr.
struct Progress {
    all: usize,
    begun: Instant,
    since: Instant,
    /// The longest trial of a kind of cell so far: so that a slice does not overrun.
    longest: BTreeMap<String, Duration>,
    line: bool,
}

impl Progress {
    fn new(all: usize) -> Self {
        let now = Instant::now();
        let line = std::io::stderr().is_terminal();
        Self { all, begun: now, since: now, longest: BTreeMap::new(), line }
    }

    fn kind(due: &Due) -> String {
        format!("{:?}{:?}", due.cell.kind, due.cell.level)
    }

    fn longest(&self, due: &Due) -> Duration {
        self.longest.get(&Self::kind(due)).copied().unwrap_or(Duration::from_secs(5))
    }

    fn show(&mut self, done: usize, due: &Due) {
        self.since = Instant::now();
        if !self.line && !done.is_multiple_of(20) {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let left =
            self.begun.elapsed().as_secs_f64() / done.max(1) as f64 * (self.all - done) as f64;
        let left = if done < 5 { String::new() } else { format!(", about {left:.0} s left") };
        let text = format!(
            "{}/{} round {} {} {}{left}",
            done + 1,
            self.all,
            due.round + 1,
            due.cell.name(),
            due.arm.name
        );
        if self.line {
            eprint!("\r\x1b[K{text}");
            std::io::stderr().flush().ok();
        } else {
            eprintln!("{text}");
        }
    }

    fn took(&mut self, due: &Due) {
        let took = self.since.elapsed();
        let longest = self.longest.entry(Self::kind(due)).or_insert(took);
        *longest = took.max(*longest);
    }

    fn end(&self, text: &str) {
        eprintln!("{}{text}", if self.line { "\r\x1b[K" } else { "" });
    }
}
