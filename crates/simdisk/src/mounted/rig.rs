//! One disk, served, attached and mounted, with a workload on it.

use std::fs::{File, OpenOptions};
use std::marker::PhantomData;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use plimsoll_sync::LoopDevice;

use super::error::{Error, Result, chain};
use super::filesystem::Filesystem;
use super::mark_on::{Listener, MarkOn, Refused};
use super::marks::Marks;
use super::namespace::{self, DEVICE, DIR};
use super::prepare::Preparation;
use super::processes::{Ended, Program, Running};
use super::serve::{NAME, Server};
use super::write_back::WriteBack;
use super::{loop_device, mkfs, mount, processes};
use crate::block::{About, Device, Fault, Faults, Keep, Model, Platter, Trace};

/// What disk, and what on it.
#[derive(Debug, Clone)]
pub struct RigOptions {
    /// The filesystem.
    pub filesystem: Filesystem,
    /// How large the disk is. What is not written takes no memory.
    pub disk_bytes: u64,
    /// More arguments for the program that makes the filesystem.
    pub mkfs_args: Vec<String>,
    /// Options of the mount, with commas.
    pub mount_options: String,
    /// What the disk does wrong, once the filesystem is mounted.
    pub faults: Vec<Fault>,
    /// How slow it is, from the mount on; as fast as can be without.
    pub latency: Option<Model>,
    /// Seed of the faults.
    pub seed: u64,
    /// How much is recorded.
    pub keep: Keep,
    /// What may be recorded, in bytes of memory.
    pub trace_bytes_max: u64,
    /// Whether programs on it share our terminal.
    pub interactive: bool,
    /// Whether what programs on it do not sync is written by and by, without a flush.
    pub write_back: bool,
    /// Which lines of what programs on it print are marks.
    pub mark_on: Option<MarkOn>,
}

impl RigOptions {
    /// An honest disk of 512 MiB.
    #[must_use]
    pub fn new(filesystem: Filesystem) -> Self {
        Self {
            filesystem,
            disk_bytes: 512 << 20,
            mkfs_args: Vec::new(),
            mount_options: String::new(),
            faults: Vec::new(),
            latency: None,
            seed: 1,
            keep: Keep::Everything,
            trace_bytes_max: 4 << 30,
            interactive: false,
            write_back: false,
            mark_on: None,
        }
    }
}

/// A mounted disk that records. One at a time in a thread; taken down when dropped.
#[derive(Debug)]
pub struct Rig {
    options: RigOptions,
    server: Server,
    device: Option<LoopDevice>,
    marks: Option<Marks>,
    about: About,
    refused: Refused,
    /// The mount is in the namespace of the thread that made it.
    _here: PhantomData<*const ()>,
}

impl Rig {
    /// Makes a filesystem, mounts it, and begins to record.
    pub fn start(options: RigOptions) -> Result<Self> {
        Self::prepared(options, &Preparation::default(), &|| false)
    }

    /// Makes a filesystem, mounts it, puts on it what it is to begin with, and begins to record. What was
    /// prepared is synced, and durable in each crash state. What it left running is killed.
    pub fn prepared(
        options: RigOptions,
        preparation: &Preparation,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self> {
        preparation.check()?;
        namespace::enter()?;
        let (platter, mkfs) =
            mkfs::make(options.filesystem, options.disk_bytes, &options.mkfs_args)?;
        let mount_options = options.mount_options.clone();
        let mut rig = Self::on(platter, mkfs, options).map_err(|error| match error {
            Error::NotMounted { .. } => Error::Unavailable {
                what: "a new disk",
                reason: format!("{} (options: '{mount_options}')", chain(&error)),
            },
            other => other,
        })?;
        if !preparation.is_empty() {
            preparation.apply(stop)?;
            // Also who is not on the disk at this moment.
            processes::end_strays();
            // Nothing is left in a journal then.
            mount::unmount()?;
            rig.mount()?;
            rig.about.from = preparation.from.as_ref().map(|from| from.display().to_string());
            rig.about.setup.clone_from(&preparation.setup);
        }
        rig.begin()?;
        Ok(rig)
    }

    /// Mounts what is on `platter`, and begins to record. That the kernel refuses is
    /// [`Error::NotMounted`].
    pub fn resume(platter: Platter, options: RigOptions) -> Result<Self> {
        namespace::enter()?;
        let mut rig = Self::on(platter, Vec::new(), options)?;
        rig.begin()?;
        Ok(rig)
    }

    /// Mounted, with no faults, and not recorded.
    fn on(platter: Platter, mkfs: Vec<String>, options: RigOptions) -> Result<Self> {
        let device = Device::new(platter, Faults::new(Vec::new(), 0), options.trace_bytes_max);
        let server = Server::start(device.keeping(Keep::Nothing), options.latency)?;
        let about = About {
            filesystem: options.filesystem.name().to_owned(),
            mkfs,
            mount_options: options.mount_options.clone(),
            faults: options.faults.iter().map(ToString::to_string).collect(),
            latency: options.latency.map(|model| model.to_string()),
            write_back: options.write_back,
            mark_on: options.mark_on.as_ref().map(ToString::to_string),
            seed: options.seed,
            kernel: kernel(),
            plimsoll: env!("CARGO_PKG_VERSION").to_owned(),
            end_only: options.keep != Keep::Everything,
            ..About::default()
        };
        let mut rig = Self {
            options,
            server,
            device: None,
            marks: None,
            about,
            refused: Refused::default(),
            _here: PhantomData,
        };
        let path = Path::new(DEVICE).join(NAME);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(Error::io("open", &path))?;
        let device = loop_device::attach(&file, None)?;
        drop(file);
        rig.device = Some(device);
        rig.mount()?;
        Ok(rig)
    }

    fn mount(&self) -> Result<()> {
        let RigOptions { filesystem, mount_options, .. } = &self.options;
        mount::mount(*filesystem, &self.block_device(), mount_options, false)
    }

    /// What is there now was there before the workload began. From here on the disk may be bad.
    fn begin(&mut self) -> Result<()> {
        sync_filesystem()?;
        let RigOptions { faults, seed, keep, .. } = &self.options;
        let faults = Faults::new(faults.clone(), *seed);
        self.server.shared.device().begin(faults, *keep);
        self.marks = Some(Marks::listen(&self.server.shared)?);
        Ok(())
    }

    /// Where it is mounted, for this thread and the processes that it starts.
    #[must_use]
    pub fn directory(&self) -> &Path {
        Path::new(DIR)
    }

    /// The block device under it.
    #[must_use]
    pub fn block_device(&self) -> PathBuf {
        self.device.as_ref().map_or_else(PathBuf::new, |device| device.path().to_owned())
    }

    /// Says what is about to be acknowledged; see [`Device::mark`].
    pub fn mark(&self, text: &str) -> std::result::Result<(), String> {
        self.server.shared.device().mark(text)
    }

    /// What the last program printed that matched [`RigOptions::mark_on`], and could not be a mark.
    #[must_use]
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    /// Puts other faults in force from now on.
    pub fn set_faults(&self, faults: Vec<Fault>, seed: u64) {
        self.server.shared.device().set_faults(faults, seed);
    }

    /// How many events there were: the point of a power cut now.
    #[must_use]
    pub fn point(&self) -> usize {
        self.server.shared.device().point()
    }

    /// How often each fault happened.
    #[must_use]
    pub fn faults_applied(&self) -> Vec<(String, u64)> {
        let device = self.server.shared.device();
        device.faults().happened().map(|(fault, times)| (fault.to_string(), times)).collect()
    }

    /// Runs a program on the disk until it ends, until `limit` is over, or until `stop` is true; then kills
    /// what is left of it. Returns the point at which it ended, before anything was killed.
    ///
    /// With [`RigOptions::mark_on`] it is the point at which all that it printed was read, if it ended by itself.
    /// With [`Keep::Pending`] that point can be cut at until the next program runs.
    ///
    /// Its environment has `PLIMSOLL_DIR`, `PLIMSOLL_MARK_SOCKET` and `PLIMSOLL_MARK_FD`, and `env`.
    pub fn run(
        &mut self,
        program: &Program,
        env: &[(&str, String)],
        limit: Option<Duration>,
        stop: &dyn Fn() -> bool,
    ) -> Result<(Ended, usize)> {
        let mut command = program.command()?;
        let marks = self.marks.as_ref().expect("it listens as long as it is mounted");
        let (inherited, number) = marks.inherited()?;
        command.env("PLIMSOLL_MARK_SOCKET", marks.path());
        command.env("PLIMSOLL_MARK_FD", number.to_string());
        command.envs(env.iter().map(|(name, value)| (name, value)));
        if !self.options.interactive {
            // stdout is our answer; what it says is news.
            command.stdin(Stdio::null()).stdout(std::io::stderr()).process_group(0);
        }
        let listener = match &self.options.mark_on {
            Some(on) => Some(Listener::of(&mut command, on, &self.server.shared)?),
            None => None,
        };
        self.server.shared.device().hold(false);
        let running = Running::start(command)?;
        drop(inherited);
        let write_back = self.options.write_back.then(|| WriteBack::of(self.directory()));
        self.about.command = program.words().to_vec();
        let shared = Arc::clone(&self.server.shared);
        let mut point = 0;
        let ended = running.wait(limit, &|| stop() || shared.device().is_full(), &mut || {
            let mut device = shared.device();
            device.hold(true);
            point = device.point();
        })?;
        drop(write_back);
        if let Some(listener) = listener {
            self.refused = listener.drain();
            if matches!(ended, Ended::Exited(_) | Ended::Signalled(_)) {
                // What it printed at its end was said before it.
                point = self.point();
            }
        }
        self.check_room()?;
        self.about.ended = match ended {
            Ended::Exited(code) => format!("exit status {code}"),
            Ended::Signalled(signal) => format!("signal {signal}"),
            Ended::TimedOut => "killed after its time".to_owned(),
            Ended::Stopped => "stopped".to_owned(),
        };
        Ok((ended, point))
    }

    /// Has the kernel write all that it still keeps, as it would by and by: data, then what the filesystem
    /// commits, and the flushes that it sends with that. Returns the point after it. What the disk refuses is
    /// in the recording.
    pub fn write_back(&mut self) -> Result<usize> {
        let _refused = sync_filesystem();
        self.check_room()?;
        Ok(self.point())
    }

    /// What was recorded up to a point; the rest never happened.
    #[must_use]
    pub fn trace(&self, point: usize) -> Trace {
        let device = self.server.shared.device();
        let (base, events) = device.recorded();
        let events = events[..point.min(events.len())].to_vec();
        let about = About { recorded_at: rfc3339(SystemTime::now()), ..self.about.clone() };
        Trace { about, base: base.clone(), events, aftermath: Vec::new() }
    }

    /// As [`Rig::trace`], with an aftermath: the filesystem is synced, so that what the workload had left in
    /// memory is sent now. What the disk refuses of that is refused there, too.
    #[must_use]
    pub fn trace_and_aftermath(&self, point: usize) -> Trace {
        let _refused = sync_filesystem();
        let mut trace = self.trace(point);
        let device = self.server.shared.device();
        let (_, events) = device.recorded();
        trace.aftermath = events[trace.events.len()..].to_vec();
        trace
    }

    fn check_room(&self) -> Result<()> {
        let limit_bytes = self.options.trace_bytes_max;
        let is_full = self.server.shared.device().is_full();
        if is_full { Err(Error::TraceFull { limit_bytes }) } else { Ok(()) }
    }

    /// Unmounts, detaches and ends the threads. Processes that still use the disk are killed.
    pub fn stop(mut self) -> Result<()> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<()> {
        self.marks = None;
        let Some(device) = self.device.take() else {
            return self.server.stop().map_err(Error::io("unmount", DEVICE));
        };
        // The filesystem first, while its disk still answers.
        let unmounted = mount::unmount();
        loop_device::detach(device);
        let stopped = self.server.stop().map_err(Error::io("unmount", DEVICE));
        unmounted.and(stopped)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Where it fails the namespace sees to it.
        drop(self.take_down());
    }
}

/// What mounting wrote is on the disk.
fn sync_filesystem() -> Result<()> {
    let dir = File::open(DIR).map_err(Error::io("open", DIR))?;
    nix::unistd::syncfs(&dir).map_err(|errno| Error::io("sync", DIR)(errno.into()))
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_unknown| String::new(), |release| release.trim().to_owned())
}

/// `2026-11-21T14:00:00Z`.
fn rfc3339(time: SystemTime) -> String {
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (since_1970 / 86_400, since_1970 % 86_400);
    // From days to a date as in Howard Hinnant's "chrono-compatible low-level date algorithms".
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}
