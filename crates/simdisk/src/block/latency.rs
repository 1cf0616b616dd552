//! When a device of some kind would answer: models of latency, and their text.
//!
//! The device does `depth` things at once. A write goes to the cache, in the time of the cache, as long as
//! there is room; otherwise to the medium. A flush waits for all that was asked before, writes out the
//! cache, and takes its fixed time. No clock in here: moments come in and go out as nanoseconds.
//!
//! The figures are of the order that makers and testers publish for such devices, not measurements of
//! one. They are for finding out what a program does on a slow device, not for predicting a fast one.

use std::fmt;
use std::str::FromStr;

/// A device whose latency is imitated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Model {
    /// What it is called.
    pub name: &'static str,
    /// A read from the medium.
    pub read_ns: u64,
    /// A write that the cache takes, or that a protected cache makes durable.
    pub cached_ns: u64,
    /// A write to the medium, elsewhere than where the last one ended.
    pub medium_ns: u64,
    /// A write to the medium that goes on where the last one ended.
    pub sequential_ns: u64,
    /// Transfer of 4 KiB.
    pub page_ns: u64,
    /// A flush, beside writing out what is cached.
    pub flush_ns: u64,
    /// Volatile write cache; none if 0.
    pub cache_bytes: u64,
    /// Things done at once.
    pub depth: usize,
}

/// The models that have names.
const MODELS: [Model; 6] = [
    Model {
        name: "hdd-7200",
        read_ns: 8_300_000,
        cached_ns: 100_000,
        medium_ns: 8_300_000,
        sequential_ns: 30_000,
        page_ns: 25_000,
        flush_ns: 4_000_000,
        cache_bytes: 64 << 20,
        depth: 1,
    },
    // The disk of his article of 2010: an fsync of one write took 40 ms, and writes were quick.
    Model {
        name: "antirez-2010",
        read_ns: 8_300_000,
        cached_ns: 60_000,
        medium_ns: 100_000,
        sequential_ns: 30_000,
        page_ns: 25_000,
        flush_ns: 40_000_000,
        cache_bytes: 16 << 20,
        depth: 1,
    },
    Model {
        name: "sata-consumer",
        read_ns: 100_000,
        cached_ns: 50_000,
        medium_ns: 200_000,
        sequential_ns: 60_000,
        page_ns: 8_000,
        flush_ns: 2_000_000,
        cache_bytes: 32 << 20,
        depth: 4,
    },
    Model {
        name: "nvme-consumer",
        read_ns: 70_000,
        cached_ns: 15_000,
        medium_ns: 100_000,
        sequential_ns: 30_000,
        page_ns: 1_500,
        flush_ns: 1_000_000,
        cache_bytes: 64 << 20,
        depth: 16,
    },
    // Capacitors: the cache is as good as the medium, and a flush has nothing to do.
    Model {
        name: "nvme-plp",
        read_ns: 80_000,
        cached_ns: 12_000,
        medium_ns: 12_000,
        sequential_ns: 12_000,
        page_ns: 1_200,
        flush_ns: 8_000,
        cache_bytes: 0,
        depth: 32,
    },
    // A network away, replicated before it answers.
    Model {
        name: "cloud-volume",
        read_ns: 500_000,
        cached_ns: 700_000,
        medium_ns: 700_000,
        sequential_ns: 700_000,
        page_ns: 16_000,
        flush_ns: 700_000,
        cache_bytes: 0,
        depth: 16,
    },
];

const PAGE: u64 = 4096;
/// The host waits at most so long: more would look like a dead device.
const WAIT_NS_MAX: u64 = 30_000_000_000;

impl Model {
    /// Names of all models.
    pub fn names() -> impl Iterator<Item = &'static str> {
        MODELS.iter().map(|model| model.name)
    }

    /// A device that takes `durable_ns` for a write of 4 KiB and its flush together, and `written_ns`
    /// for such a write without one, as `plimsoll lab` measured them.
    #[must_use]
    pub fn measured(written_ns: u64, durable_ns: u64) -> Self {
        let written_ns = written_ns.min(durable_ns);
        Self {
            name: "measured",
            read_ns: written_ns,
            cached_ns: written_ns,
            medium_ns: written_ns,
            sequential_ns: written_ns,
            page_ns: 0,
            flush_ns: durable_ns - written_ns,
            cache_bytes: u64::MAX,
            depth: 16,
        }
    }

    /// With another write cache.
    #[must_use]
    pub fn with_cache(self, cache_bytes: u64) -> Self {
        Self { cache_bytes, ..self }
    }

    fn transfer_ns(&self, bytes: u64) -> u64 {
        bytes.div_ceil(PAGE).saturating_mul(self.page_ns)
    }
}

impl FromStr for Model {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = MODELS.iter().find(|model| model.name == name).copied();
        found.ok_or_else(|| {
            let names: Vec<_> = Self::names().collect();
            format!("'{name}' is not one of {}", names.join(", "))
        })
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A device at work.
#[derive(Debug, Clone)]
pub struct Latency {
    model: Model,
    /// When each of the things that it does at once is over.
    busy_until_ns: Vec<u64>,
    /// What is in the cache: bytes, and how long it takes to write them out.
    cached_bytes: u64,
    write_out_ns: u64,
    head: u64,
}

impl Latency {
    /// An idle device.
    #[must_use]
    pub fn new(model: Model) -> Self {
        let busy_until_ns = vec![0; model.depth];
        Self { model, busy_until_ns, cached_bytes: 0, write_out_ns: 0, head: u64::MAX }
    }

    /// When a read that arrives now is answered.
    pub fn read(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let takes = self.model.read_ns + self.model.transfer_ns(bytes);
        self.work(now_ns, takes)
    }

    /// When a write that arrives now is answered.
    pub fn write(&mut self, now_ns: u64, byte_offset: u64, bytes: u64) -> u64 {
        let follows = byte_offset == self.head;
        self.head = byte_offset.saturating_add(bytes);
        let seek_ns = if follows { self.model.sequential_ns } else { self.model.medium_ns };
        let medium_ns = seek_ns + self.model.transfer_ns(bytes);
        let fits = self.cached_bytes.saturating_add(bytes) <= self.model.cache_bytes;
        if fits && self.model.cache_bytes > 0 {
            self.cached_bytes += bytes;
            self.write_out_ns = self.write_out_ns.saturating_add(medium_ns);
            return self.work(now_ns, self.model.cached_ns);
        }
        // No room: this much has to be written out first.
        self.work(now_ns, medium_ns)
    }

    /// When a flush that arrives now is answered.
    pub fn flush(&mut self, now_ns: u64) -> u64 {
        let free = self.busy_until_ns.iter().copied().max().unwrap_or_default().max(now_ns);
        let measured = self.model.cache_bytes == u64::MAX;
        let write_out_ns = if measured { 0 } else { self.write_out_ns / self.model.depth as u64 };
        let done = free.saturating_add(write_out_ns).saturating_add(self.model.flush_ns);
        let done = done.min(now_ns.saturating_add(WAIT_NS_MAX));
        (self.cached_bytes, self.write_out_ns) = (0, 0);
        self.busy_until_ns.fill(done);
        done
    }

    fn work(&mut self, now_ns: u64, takes_ns: u64) -> u64 {
        let first = self.busy_until_ns.iter_mut().min().expect("a device does something at once");
        let done = (*first).max(now_ns).saturating_add(takes_ns);
        *first = done.min(now_ns.saturating_add(WAIT_NS_MAX));
        *first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str) -> Latency {
        Latency::new(name.parse().unwrap())
    }

    #[test]
    fn antirez_disk_flushes_one_write_in_forty_milliseconds() {
        let mut disk = device("antirez-2010");
        let written = disk.write(0, 0, 4096);
        assert!(written < 1_000_000, "{written}");
        let flushed = disk.flush(written);
        assert!((40_000_000..41_000_000).contains(&flushed), "{flushed}");
    }

    #[test]
    fn a_flush_waits_for_what_is_cached() {
        let mut disk = device("hdd-7200");
        let mut now = 0;
        for block in 0..10 {
            now = disk.write(now, block * 1_000_000, 4096);
        }
        let took = disk.flush(now) - now;
        assert!(took > 10 * 8_300_000, "ten seeks: {took}");
        let again = disk.flush(now + took) - now - took;
        assert_eq!(again, 4_000_000, "nothing is cached any more");
    }

    #[test]
    fn without_room_in_the_cache_a_write_goes_to_the_medium() {
        let model: Model = "hdd-7200".parse().unwrap();
        let mut disk = Latency::new(model.with_cache(0));
        assert!(disk.write(0, 1 << 20, 4096) > 8_000_000);
    }

    #[test]
    fn a_device_does_so_much_at_once_and_then_queues() {
        let mut disk = device("cloud-volume");
        let one = disk.read(0, 4096);
        let rest: Vec<u64> = (0..15).map(|_| disk.read(0, 4096)).collect();
        assert!(rest.iter().all(|&done| done == one));
        assert_eq!(disk.read(0, 4096), 2 * one);
    }

    #[test]
    fn what_the_lab_measured_is_what_a_write_and_its_flush_take() {
        let mut disk = Latency::new(Model::measured(20_000, 90_000));
        let written = disk.write(0, 0, 4096);
        assert_eq!((written, disk.flush(written)), (20_000, 90_000));
    }

    #[test]
    fn a_wrong_name_is_told_the_right_ones() {
        let wrong = "floppy".parse::<Model>().unwrap_err();
        assert!(Model::names().count() == 6 && Model::names().all(|name| wrong.contains(name)));
    }
}
