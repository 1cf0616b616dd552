//! A filesystem on a loop device for the time of a test, and how a test says that it was skipped.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Room for the quick profile, with a tenth to spare. Sparse: what is not written costs nothing.
pub(crate) const IMAGE_BYTES: u64 = 1 << 30;
/// A file that was closed may be in use for a moment: by a program that another test begins, until it runs (it has copies of
/// what is open here), and by requests of io_uring that the kernel still puts away.
const BUSY_WITHIN: Duration = Duration::from_secs(30);

/// A filesystem on a loop device, gone when dropped.
pub(crate) struct Mounted {
    #[expect(dead_code, reason = "removed when dropped, after what lies in it is unmounted")]
    pub(crate) scratch: tempfile::TempDir,
    pub(crate) at: PathBuf,
    pub(crate) device: String,
    is_mounted: bool,
    /// What the image lies on, if that was mounted for it.
    pub(crate) below: Option<PathBuf>,
}

impl Mounted {
    pub(crate) fn or_skip(filesystem: &str, mkfs: &[&str], options: &str) -> Option<Self> {
        Self::try_new(filesystem, IMAGE_BYTES, None, mkfs, options).map_err(|why| skip(&why)).ok()
    }

    /// A filesystem of this size.
    pub(crate) fn or_skip_sized(filesystem: &str, bytes: u64) -> Option<Self> {
        Self::try_new(filesystem, bytes, None, &[], "").map_err(|why| skip(&why)).ok()
    }

    /// A filesystem whose image has so little room that writing it fails.
    pub(crate) fn or_skip_within(filesystem: &str, room_bytes: u64) -> Option<Self> {
        Self::try_new(filesystem, IMAGE_BYTES, Some(room_bytes), &[], "")
            .map_err(|why| skip(&why))
            .ok()
    }

    pub(crate) fn try_new(
        filesystem: &str,
        bytes: u64,
        room_bytes: Option<u64>,
        mkfs: &[&str],
        options: &str,
    ) -> Result<Self, String> {
        // In memory where there is some, so that the disk of the machine is not in the counts.
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory } else { Path::new(env!("CARGO_TARGET_TMPDIR")) };
        let scratch = tempfile::Builder::new().prefix("plimsoll-mounted-").tempdir_in(base);
        let scratch = scratch.map_err(|error| error.to_string())?;
        let root = scratch.path().to_owned();
        let at = root.join("mnt");
        let mut mounted =
            Self { scratch, at: at.clone(), device: String::new(), is_mounted: false, below: None };
        for directory in [&root.join("below"), &at] {
            fs::create_dir(directory).map_err(|error| error.to_string())?;
        }
        if let Some(room) = room_bytes {
            let size = format!("size={room}");
            run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", &text(&root.join("below"))])?;
            mounted.below = Some(root.join("below"));
        }
        let image = root.join("below/image");
        let sized = fs::File::create(&image).and_then(|file| file.set_len(bytes));
        sized.map_err(|error| error.to_string())?;
        let force = if filesystem == "ext4" { "-F" } else { "-f" };
        let mut arguments = vec!["-q", force];
        arguments.extend(mkfs);
        let image = text(&image);
        arguments.push(&image);
        run(&format!("mkfs.{filesystem}"), &arguments)?;
        mounted.device = run("losetup", &["--find", "--show", &image])?.trim().to_owned();
        let options = if options.is_empty() { "defaults" } else { options };
        let mount = ["-t", filesystem, "-o", options, &mounted.device, &text(&at)];
        run("mount", &mount)?;
        mounted.is_mounted = true;
        Ok(mounted)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut left = Vec::new();
        if self.is_mounted {
            left.extend(unmount(&self.at).err());
        }
        if !self.device.is_empty() {
            left.extend(run("losetup", &["--detach", &self.device]).err());
        }
        if let Some(below) = &self.below {
            left.extend(unmount(below).err());
        }
        let left = left.join("; ");
        if std::thread::panicking() {
            eprintln!("left behind, if anything: {left}");
        } else {
            assert!(left.is_empty(), "a mounted test leaves something behind: {left}");
        }
    }
}

/// Unmounts what nobody uses any more, or will within a moment.
pub(crate) fn unmount(at: &Path) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        match run("umount", &[&text(at)]) {
            Err(error) if error.contains("busy") && begun.elapsed() < BUSY_WITHIN => {
                std::thread::park_timeout(Duration::from_millis(50));
            }
            other => return other.map(drop),
        }
    }
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("our own paths are text").to_owned()
}

pub(crate) fn skip(why: &str) {
    assert!(
        !std::env::var("PLIMSOLL_REQUIRE").unwrap_or_default().contains("realfs"),
        "PLIMSOLL_REQUIRE=realfs, but a filesystem cannot be mounted: {why}"
    );
    // Past the capture of the test harness, which hides what a passing test prints.
    let said = format!("\nSKIPPED (needs root, loop devices and mkfs): {why}\n");
    std::io::stderr().write_all(said.as_bytes()).ok();
}
