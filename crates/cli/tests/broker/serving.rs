//! A broker that runs, and the program beside it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tempfile::TempDir;

/// How long a command may take, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(120);

/// The program, whatever the environment of the tests says.
pub(crate) fn plimsoll(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PLIMSOLL_")) {
        command.env_remove(name);
    }
    command.args(args);
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A broker on free ports. It ends with the test.
pub(crate) struct Broker {
    child: Child,
    /// Where clients are served.
    pub(crate) addr: String,
    /// Where operators are answered.
    pub(crate) http: String,
    /// What it has said since.
    news: Arc<Mutex<String>>,
    /// Its data, where the test does not look into it.
    dir: Option<TempDir>,
}

impl Broker {
    /// With its data in a directory of its own.
    pub(crate) fn fresh() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("plimsoll.toml");
        // Who joins an empty group does not wait for others.
        fs::write(&config, "[groups]\ninitial-rebalance-delay = \"0s\"\n").unwrap();
        let config = ["--config", config.to_str().unwrap()];
        let mut broker = Self::serve(&dir.path().join("data"), &config);
        broker.dir = Some(dir);
        broker
    }

    pub(crate) fn start(dir: &Path) -> Self {
        Self::serve(dir, &[])
    }

    /// With more options.
    pub(crate) fn serve(dir: &Path, more: &[&str]) -> Self {
        Self::member(dir, "127.0.0.1:0", more)
    }

    /// Where clients find it there.
    pub(crate) fn member(dir: &Path, listen: &str, more: &[&str]) -> Self {
        Self::by(plimsoll(&["serve", "--dir"]), dir, listen, more)
    }

    /// The same; its disk can be made to [fail](Self::fail_disk) later.
    #[cfg(target_os = "linux")]
    pub(crate) fn limited(dir: &Path, listen: &str, more: &[&str]) -> Self {
        let mut serve = Command::new("env");
        // A limit that is met is an error, as of a disk, and not the end of the process.
        serve.args(["--ignore-signal=XFSZ", env!("CARGO_BIN_EXE_plimsoll"), "serve", "--dir"]);
        Self::by(serve, dir, listen, more)
    }

    fn by(mut serve: Command, dir: &Path, listen: &str, more: &[&str]) -> Self {
        let anywhere = ["--listen", listen, "--http", "127.0.0.1:0", "--memory", "none"];
        let mut child =
            serve.arg(dir).args(anywhere).args(more).stderr(Stdio::piped()).spawn().unwrap();
        let mut news = BufReader::new(child.stderr.take().unwrap());
        let mut lines = String::new();
        let mut said = |before: &str| loop {
            let mut line = String::new();
            let has_more = news.read_line(&mut line).unwrap() > 0;
            assert!(has_more, "it ended before it said {before:?}: {lines}");
            lines += &line;
            if let Some((_, behind)) = line.trim_end().split_once(before) {
                break behind.trim_end_matches('/').split(',').next().unwrap().to_owned();
            }
        };
        let (addr, http) = (said("serves Kafka's clients on "), said("http://"));
        // It goes on saying things.
        let heard = Arc::new(Mutex::new(lines));
        let hears = Arc::clone(&heard);
        std::thread::spawn(move || {
            for line in news.lines().map_while(Result::ok) {
                *hears.lock().unwrap() += &(line + "\n");
            }
        });
        Self { child, addr, http, news: heard, dir: None }
    }

    /// From here on each of its writes to a file fails. It was started as [limited](Self::limited).
    #[cfg(target_os = "linux")]
    pub(crate) fn fail_disk(&self) {
        let pid = self.child.id().to_string();
        let limited = Command::new("prlimit").args(["--pid", &pid, "--fsize=1"]).status();
        assert!(limited.unwrap().success());
    }

    /// What it has said.
    pub(crate) fn news(&self) -> String {
        self.news.lock().unwrap().clone()
    }

    /// Runs the program with this broker.
    pub(crate) fn run(&self, line: &str, input: &str) -> Output {
        let mut asking = plimsoll(&line.split(' ').collect::<Vec<_>>())
            .env("PLIMSOLL_BROKER", &self.addr)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Who refuses does not read.
        asking.stdin.take().unwrap().write_all(input.as_bytes()).ok();
        let pid = asking.id().to_string();
        let (ended, ends) = mpsc::channel();
        std::thread::spawn(move || ended.send(asking.wait_with_output().unwrap()));
        ends.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            Command::new("kill").args(["-KILL", &pid]).status().ok();
            panic!("plimsoll {line} has not ended after {PATIENCE:?}");
        })
    }

    /// Its answer, where it succeeds.
    pub(crate) fn ok(&self, line: &str) -> String {
        let output = self.run(line, "");
        assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap()?.code()
    }

    /// Asks it to stop; its exit status.
    pub(crate) fn stop(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
