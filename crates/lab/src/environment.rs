//! What a number depends on: recorded in every result, so that it can be understood elsewhere.
//!
//! Every part may be unknown. An unknown part is absent, never a default.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use serde::{Deserialize, Serialize};

pub use crate::device::{Device, DeviceFacts};
pub use crate::mount::{Kind, Mount};

/// The machine, the filesystem and the device that a result was measured on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of plimsoll.
    pub plimsoll: String,
    /// Operating system and processor architecture.
    pub system: String,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Processor model.
    pub cpu: Option<String>,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Frequency governor of the first CPU.
    pub cpu_governor: Option<String>,
    /// Memory of the machine.
    pub memory_kib: Option<u64>,
    /// Hypervisor or maker of the machine.
    pub virtualisation: Option<String>,
    /// Container runtime, if inside one.
    pub container: Option<String>,
    /// The directory measured.
    pub directory: PathBuf,
    /// Its filesystem.
    pub mount: Option<Mount>,
    /// Size of the filesystem.
    pub total_bytes: Option<u64>,
    /// How much was free when the run began.
    pub free_bytes: Option<u64>,
    /// The devices under it.
    pub devices: Vec<DeviceFacts>,
    /// Limits of dirty memory (`/proc/sys/vm/dirty_*`), as `name=value`.
    pub dirty_limits: Vec<String>,
}

impl Environment {
    /// Finds out what it can about `directory`, which must be absolute and free of links, and which
    /// devices to count on.
    #[must_use]
    pub fn of(directory: &Path) -> (Self, Vec<Device>) {
        // A mount point that is not valid text must not hide the others.
        let mountinfo = fs::read("/proc/self/mountinfo").unwrap_or_default();
        let mount = Mount::of(directory, &String::from_utf8_lossy(&mountinfo));
        let devices = match (&mount, plimsoll_sync::device_number(directory)) {
            (Some(mount), Ok(number)) => Device::under(number, mount),
            _ => Vec::new(),
        };
        let space = plimsoll_sync::space(directory).ok();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let environment = Self {
            plimsoll: env!("CARGO_PKG_VERSION").to_owned(),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            kernel: line("/proc/sys/kernel/osrelease"),
            cpu: field(&cpuinfo, "model name"),
            cpus: thread::available_parallelism().map_or(1, usize::from),
            cpu_governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_kib: field(&meminfo, "MemTotal")
                .and_then(|value| value.trim_end_matches(" kB").parse().ok()),
            virtualisation: virtualisation(&cpuinfo),
            container: container(),
            directory: directory.to_owned(),
            mount,
            total_bytes: space.map(|space| space.total_bytes),
            free_bytes: space.map(|space| space.free_bytes),
            devices: devices.iter().map(Device::facts).collect(),
            dirty_limits: dirty_limits(),
        };
        (environment, devices)
    }

    /// The devices in a few words: `vda (virtio, write back)`.
    #[must_use]
    pub fn devices_in_words(&self) -> String {
        let words = |facts: &DeviceFacts| {
            let about: Vec<&str> = [facts.model.as_deref(), facts.write_cache.as_deref()]
                .into_iter()
                .flatten()
                .collect();
            format!("{} ({})", facts.name, about.join(", "))
        };
        self.devices.iter().map(words).collect::<Vec<_>>().join(", ")
    }
}

fn virtualisation(cpuinfo: &str) -> Option<String> {
    let maker = [line("/sys/class/dmi/id/sys_vendor"), line("/sys/class/dmi/id/product_name")];
    let maker: Vec<String> = maker.into_iter().flatten().collect();
    let virtual_cpu = field(cpuinfo, "flags")
        .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    match (maker.is_empty(), virtual_cpu) {
        (false, true) => Some(format!("virtual: {}", maker.join(" "))),
        (true, true) => Some("virtual: unknown hypervisor".to_owned()),
        (false, false) => Some(maker.join(" ")),
        (true, false) => None,
    }
}

fn container() -> Option<String> {
    if Path::new("/.dockerenv").exists() {
        return Some("docker".to_owned());
    }
    if Path::new("/run/.containerenv").exists() {
        return Some("podman".to_owned());
    }
    let cgroup = fs::read_to_string("/proc/1/cgroup").unwrap_or_default();
    ["kubepods", "docker", "containerd", "lxc"]
        .into_iter()
        .find(|runtime| cgroup.contains(runtime))
        .map(str::to_owned)
}

fn dirty_limits() -> Vec<String> {
    let names = [
        "dirty_ratio",
        "dirty_bytes",
        "dirty_background_ratio",
        "dirty_background_bytes",
        "dirty_expire_centisecs",
        "dirty_writeback_centisecs",
    ];
    let limit = |name: &str| Some(format!("{name}={}", line(&format!("/proc/sys/vm/{name}"))?));
    names.into_iter().filter_map(limit).collect()
}

fn line(path: &str) -> Option<String> {
    let line = fs::read_to_string(path).ok()?.lines().next()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}

/// The value of the first line that reads `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_name() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A: B\nflags\t\t: fpu hypervisor\n";
        assert_eq!(field(cpuinfo, "model name").as_deref(), Some("A: B"));
        assert_eq!(field(cpuinfo, "model"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_is_described() {
        let here = fs::canonicalize(".").unwrap();
        let (environment, _) = Environment::of(&here);
        assert!(environment.cpus > 0 && environment.kernel.is_some());
        assert!(environment.mount.is_some() && environment.free_bytes.is_some());
        assert!(!environment.dirty_limits.is_empty());
    }
}
