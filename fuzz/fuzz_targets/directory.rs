//! A real log of four segments, some of it cut, and what was done to its files; among them files that
//! are nothing but bytes.
#![no_main]

use std::sync::{Arc, OnceLock};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use plimsoll_fuzz::{disk, judge, options, put};
use plimsoll_log::{Ack, Log};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Access, Crash, Dir};

#[derive(Debug, Arbitrary)]
enum Harm {
    Flip { file: u8, at: u16, by: u8 },
    Overwrite { file: u8, at: u16, bytes: Vec<u8> },
    Shorten { file: u8, len: u16 },
    Remove { file: u8 },
    Rename { file: u8, to: u64 },
    Swap { file: u8, with: u8 },
    Copy { file: u8, to: u64 },
    Splice { from: u8, to: u8, at: u16, bytes: u16 },
    Add { name: u64, bytes: Vec<u8> },
    Named { name: String, bytes: Vec<u8> },
}

fn real() -> &'static SimDir {
    static REAL: OnceLock<SimDir> = OnceLock::new();
    REAL.get_or_init(|| {
        let dir = disk();
        let (log, _) = Log::open_in(Arc::clone(&dir) as Arc<dyn Dir>, options()).unwrap();
        for generation in 0..4_u64 {
            for number in 0..6_u64 {
                let records: Vec<_> = (0..number % 3 + 1)
                    .map(|r| vec![r as u8; (number * 20 + r) as usize])
                    .collect();
                log.append_batch_with(&records, Ack::Durable).unwrap();
            }
            if generation < 3 {
                log.truncate_after(log.last_index() - generation).unwrap();
                log.truncate_after(log.last_index() - 1).unwrap();
            }
        }
        log.close().unwrap();
        dir.crash(Crash::Process, 0)
    })
}

fn bytes_of(dir: &SimDir, name: &str) -> Vec<u8> {
    let file = dir.open(name, Access::default()).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fuzz_target!(|harms: Vec<Harm>| {
    let dir = real().crash(Crash::Process, 0);
    for harm in harms.into_iter().take(8) {
        let mut names = dir.list().unwrap();
        names.retain(|name| name.ends_with(".seg"));
        let pick = |file: u8| names.get(usize::from(file) % names.len().max(1)).cloned();
        // What is used of these files lies at their beginning.
        let near = |at: u16| u64::from(at % 8192);
        let segment = |name: u64| format!("{name:020}.seg");
        let open = |name: &str| dir.open(name, Access::default()).unwrap();
        match harm {
            Harm::Flip { file, at, by } => {
                let Some(name) = pick(file) else { continue };
                let mut byte = [0];
                open(&name).read_at(&mut byte, near(at)).unwrap();
                open(&name).write_at(&[byte[0] ^ by], near(at)).unwrap();
            }
            Harm::Overwrite { file, at, bytes } => {
                let Some(name) = pick(file) else { continue };
                open(&name).write_at(&bytes, near(at)).unwrap();
            }
            Harm::Shorten { file, len } => {
                let Some(name) = pick(file) else { continue };
                open(&name).truncate(near(len)).unwrap();
            }
            Harm::Remove { file } => {
                let Some(name) = pick(file) else { continue };
                dir.remove(&name).unwrap();
            }
            Harm::Rename { file, to } => {
                let Some(name) = pick(file) else { continue };
                dir.rename(&name, &segment(to)).unwrap();
            }
            Harm::Swap { file, with } => {
                let (Some(one), Some(two)) = (pick(file), pick(with)) else { continue };
                if one != two {
                    dir.rename(&one, "swap").unwrap();
                    dir.rename(&two, &one).unwrap();
                    dir.rename("swap", &two).unwrap();
                }
            }
            Harm::Copy { file, to } => {
                let Some(name) = pick(file) else { continue };
                put(&dir, &segment(to), &bytes_of(&dir, &name));
            }
            Harm::Splice { from, to, at, bytes } => {
                let (Some(from), Some(to)) = (pick(from), pick(to)) else { continue };
                let source = bytes_of(&dir, &from);
                let start = (near(at) as usize).min(source.len());
                let end = (start + usize::from(bytes)).min(source.len());
                open(&to).write_at(&source[start..end], start as u64).unwrap();
            }
            Harm::Add { name, bytes } => put(&dir, &segment(name), &bytes),
            // It is refused, whatever it holds.
            Harm::Named { name, .. } if name == "second" => {}
            Harm::Named { name, bytes } => put(&dir, &name, &bytes),
        }
    }
    judge(&Arc::new(dir));
});
