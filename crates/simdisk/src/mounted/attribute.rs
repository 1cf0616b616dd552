//! Whose a place on the disk is: which file and where in it, or which part of the filesystem.
//!
//! Files are asked for their extents with `filefrag`, and each filesystem's own program says where its
//! journal or its metadata is. btrfs counts in addresses of its own; its chunk tree translates them.

use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::filesystem::Filesystem;
use super::image::Image;
use super::processes::output;

/// More files and directories than this are not asked.
pub(super) const FILES_MAX: usize = 20_000;
/// At a time.
const FILES_AT_ONCE: usize = 200;

/// Whose a range of the disk is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Where on the disk.
    pub disk: Range<u64>,
    /// The file, from the mounted directory; or a part of the filesystem in words.
    pub name: String,
    /// Where in the file; `None` if it is not a file.
    pub byte_offset: Option<u64>,
}

impl fmt::Display for Owner {
    /// `log/00001.seg at 4096, 8192 bytes`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.disk.end - self.disk.start;
        match self.byte_offset {
            Some(at) => write!(f, "{} at {at}, {bytes} bytes", self.name),
            None => write!(f, "{}, {bytes} bytes", self.name),
        }
    }
}

/// Owners of the ranges of a disk that is mounted.
#[derive(Debug, Clone, Default)]
pub struct Owners {
    /// By where they begin; files before parts of the filesystem.
    extents: Vec<Owner>,
    filesystem: &'static str,
}

impl Owners {
    /// Asks everything that is mounted. What a program cannot tell stays unknown.
    #[must_use]
    pub fn of(image: &Image, filesystem: Filesystem) -> Self {
        let device = image.device().to_string_lossy().into_owned();
        let mut extents = Vec::new();
        let chunks = match filesystem {
            Filesystem::Btrfs => {
                let args = ["inspect-internal", "dump-tree", "-t", "chunk", &device];
                chunks(&output("btrfs", &args).unwrap_or_default())
            }
            _ => Vec::new(),
        };
        let mut files = Vec::new();
        walk(image.directory(), &mut files);
        for some in files.chunks(FILES_AT_ONCE) {
            let names: Vec<String> =
                some.iter().map(|path| path.to_string_lossy().into_owned()).collect();
            let mut args = vec!["-e", "-b512", "-v"];
            args.extend(names.iter().map(String::as_str));
            extents.extend(file_extents(&output("filefrag", &args).unwrap_or_default()));
        }
        if filesystem == Filesystem::Btrfs {
            extents = extents.into_iter().flat_map(|owner| physical(&owner, &chunks)).collect();
        }
        let root = format!("{}/", image.directory().display());
        for owner in &mut extents {
            if let Some(below) = owner.name.strip_prefix(&root) {
                owner.name = below.to_owned();
            }
        }
        extents.extend(match filesystem {
            Filesystem::Ext4 => {
                let of_journal = output("debugfs", &["-R", "stat <8>", &device]);
                ext4_journal(&of_journal.unwrap_or_default())
            }
            Filesystem::Xfs => {
                let fields = "print logstart logblocks blocksize agblocks agblklog";
                let of_log = output("xfs_db", &["-r", "-c", "sb 0", "-c", fields, &device]);
                xfs_log(&of_log.unwrap_or_default()).into_iter().collect()
            }
            Filesystem::Btrfs => chunks.iter().flat_map(Chunk::metadata).collect(),
        });
        Self { extents, filesystem: filesystem.name() }
    }

    /// Whose each part of a range is, in order.
    #[must_use]
    pub fn locate(&self, range: Range<u64>) -> Vec<Owner> {
        let mut found = Vec::new();
        let mut left = vec![range];
        for owner in &self.extents {
            let mut rest = Vec::new();
            for part in left {
                let start = part.start.max(owner.disk.start);
                let end = part.end.min(owner.disk.end);
                if start >= end {
                    rest.push(part);
                    continue;
                }
                let byte_offset = owner.byte_offset.map(|at| at + (start - owner.disk.start));
                found.push(Owner { disk: start..end, name: owner.name.clone(), byte_offset });
                rest.extend(
                    [part.start..start, end..part.end].into_iter().filter(|r| !r.is_empty()),
                );
            }
            left = rest;
        }
        let unknown = |disk| {
            let name = format!("{} metadata", self.filesystem);
            Owner { disk, name, byte_offset: None }
        };
        found.extend(left.into_iter().map(unknown));
        found.sort_by_key(|owner| owner.disk.start);
        found
    }
}

/// Adds all below a directory, as long as there are no more than [`FILES_MAX`].
pub(super) fn walk(dir: &Path, files: &mut Vec<PathBuf>) {
    let Ok(listed) = fs::read_dir(dir) else { return };
    for entry in listed.flatten() {
        if files.len() >= FILES_MAX {
            return;
        }
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            files.push(entry.path());
            walk(&entry.path(), files);
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
}

/// What `filefrag -e -b512 -v` prints.
fn file_extents(text: &str) -> Vec<Owner> {
    let mut extents = Vec::new();
    let mut name = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("File size of ") {
            let end = rest.rfind(" is ").unwrap_or(rest.len());
            rest[..end].clone_into(&mut name);
            continue;
        }
        let mut fields = line.split(':').map(str::trim);
        let numbered = fields.next().is_some_and(|field| field.parse::<u64>().is_ok());
        let (Some(logical), Some(physical)) = (fields.next(), fields.next()) else { continue };
        let (Some(logical), Some(physical)) = (sectors(logical), sectors(physical)) else {
            continue;
        };
        // Extents that are not on the disk yet, or kept in the inode, begin at 0.
        if numbered && physical.start > 0 {
            let byte_offset = Some(logical.start);
            extents.push(Owner { disk: physical, name: name.clone(), byte_offset });
        }
    }
    extents
}

/// `34816.. 34831`, both included, as bytes.
fn sectors(text: &str) -> Option<Range<u64>> {
    let (first, last) = text.split_once("..")?;
    let first: u64 = first.trim().parse().ok()?;
    let last: u64 = last.trim().parse().ok()?;
    Some(first.checked_mul(512)?..last.checked_add(1)?.checked_mul(512)?)
}

/// A piece of btrfs' own address space.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Chunk {
    logical: Range<u64>,
    /// `DATA|single`
    kind: String,
    /// Where its copies are.
    copies: Vec<u64>,
}

impl Chunk {
    fn metadata(&self) -> Vec<Owner> {
        if self.kind.starts_with("DATA|") {
            return Vec::new();
        }
        let bytes = self.logical.end - self.logical.start;
        let name = format!("btrfs {} chunk", self.kind.to_lowercase());
        let at = |&start: &u64| Owner {
            disk: start..start.saturating_add(bytes),
            name: name.clone(),
            byte_offset: None,
        };
        self.copies.iter().map(at).collect()
    }
}

/// What `btrfs inspect-internal dump-tree -t chunk` prints.
fn chunks(text: &str) -> Vec<Chunk> {
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut start = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        match words.first() {
            Some(&"item") => {
                let is_chunk = words.get(4) == Some(&"CHUNK_ITEM");
                let key = words.get(5).and_then(|word| word.trim_end_matches(')').parse().ok());
                start = key.filter(|_| is_chunk);
            }
            Some(&"length") => {
                if let (Some(start), Some(bytes)) = (start.take(), number(1)) {
                    let kind = words.iter().position(|&word| word == "type");
                    let kind = kind.and_then(|at| words.get(at + 1)).unwrap_or(&"");
                    let logical = start..u64::saturating_add(start, bytes);
                    chunks.push(Chunk { logical, kind: (*kind).to_owned(), copies: Vec::new() });
                }
            }
            Some(&"stripe") => {
                if let (Some(chunk), Some(at)) = (chunks.last_mut(), number(5)) {
                    chunk.copies.push(at);
                }
            }
            _ => {}
        }
    }
    chunks
}

fn physical(owner: &Owner, chunks: &[Chunk]) -> Vec<Owner> {
    let inside = |chunk: &&Chunk| chunk.logical.contains(&owner.disk.start);
    let Some(chunk) = chunks.iter().find(inside) else { return Vec::new() };
    let from = owner.disk.start - chunk.logical.start;
    let bytes = owner.disk.end - owner.disk.start;
    let at = |copy: &u64| {
        let start = copy.saturating_add(from);
        Owner { disk: start..start.saturating_add(bytes), ..owner.clone() }
    };
    chunk.copies.iter().map(at).collect()
}

/// Blocks of 4 KiB of inode 8, as debugfs says them: `(0-8191):139265-147456`.
fn ext4_journal(text: &str) -> Vec<Owner> {
    let Some(listed) = text.split("EXTENTS:").nth(1) else { return Vec::new() };
    let mut extents = Vec::new();
    for extent in listed.split(',').filter(|extent| !extent.contains("ETB")) {
        let Some((_, blocks)) = extent.split_once("):") else { continue };
        let (first, last) = blocks.trim().split_once('-').unwrap_or((blocks.trim(), blocks.trim()));
        if let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) {
            let disk = first.saturating_mul(4096)..last.saturating_add(1).saturating_mul(4096);
            extents.push(Owner { disk, name: "ext4 journal".to_owned(), byte_offset: None });
        }
    }
    extents
}

/// Fields of the superblock, as `xfs_db` prints them.
fn xfs_log(text: &str) -> Option<Owner> {
    let field = |name: &str| -> Option<u64> {
        let of =
            |line: &str| line.split_once(" = ").filter(|(field, _)| *field == name)?.1.parse().ok();
        text.lines().find_map(of)
    };
    let (start, blocks, block_bytes) =
        (field("logstart")?, field("logblocks")?, field("blocksize")?);
    let bits = u32::try_from(field("agblklog")?).ok().filter(|&bits| bits < 64)?;
    let group = (start >> bits).checked_mul(field("agblocks")?)?;
    let first = group.checked_add(start & ((1 << bits) - 1))?.checked_mul(block_bytes)?;
    let end = first.checked_add(blocks.checked_mul(block_bytes)?)?;
    Some(Owner { disk: first..end, name: "xfs log".to_owned(), byte_offset: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILEFRAG: &str = "\
Filesystem type is: ef53
File size of /run/plimsoll-disk/fs/a is b is 20480 (40 blocks of 512 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..      15:      26624..     26639:     16:
   1:       16..      39:      30000..     30023:     24:      26640: last,eof
/run/plimsoll-disk/fs/a is b: 2 extents found
File size of /run/plimsoll-disk/fs/new is 10 (8 blocks of 512 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..       7:          0..         7:      8:             last,unknown_loc,delalloc,eof
";

    #[test]
    fn a_place_is_named_by_the_file_that_has_it() {
        let extents = file_extents(FILEFRAG);
        let owners = Owners { extents, filesystem: "ext4" };
        let found = owners.locate(26632 * 512..26648 * 512);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].to_string(), "/run/plimsoll-disk/fs/a is b at 4096, 4096 bytes");
        assert_eq!(found[1].to_string(), "ext4 metadata, 4096 bytes");
        let second = owners.locate(30000 * 512..30001 * 512);
        assert_eq!(second[0].byte_offset, Some(16 * 512));
        assert!(
            owners.extents.iter().all(|owner| !owner.name.contains("new")),
            "not on the disk yet"
        );
    }

    #[test]
    fn btrfs_addresses_are_translated_by_its_chunks() {
        let text = "
	item 1 key (FIRST_CHUNK_TREE CHUNK_ITEM 13631488) itemoff 16105 itemsize 80
		length 8388608 owner 2 stripe_len 65536 type DATA|single
			stripe 0 devid 1 offset 20000768
	item 3 key (FIRST_CHUNK_TREE CHUNK_ITEM 30408704) itemoff 15881 itemsize 112
		length 33554432 owner 2 stripe_len 65536 type METADATA|DUP
			stripe 0 devid 1 offset 38797312
			stripe 1 devid 1 offset 72351744
";
        let chunks = chunks(text);
        assert_eq!(chunks.len(), 2);
        let owner =
            Owner { disk: 13_635_584..13_639_680, name: "a".to_owned(), byte_offset: Some(0) };
        assert_eq!(physical(&owner, &chunks)[0].disk, 20_004_864..20_008_960);
        assert_eq!(chunks[1].metadata().len(), 2);
        assert_eq!(chunks[1].metadata()[0].name, "btrfs metadata|dup chunk");
        assert!(chunks[0].metadata().is_empty());
    }

    #[test]
    fn journals_are_found_where_their_programs_say() {
        let ext4 = ext4_journal("Inode: 8\nEXTENTS:\n(0-8191):139265-147456\n");
        assert_eq!(ext4[0].disk, 139_265 * 4096..147_457 * 4096);
        let fields = "logstart = 65542\nlogblocks = 16384\nblocksize = 4096\nagblocks = 19200\nagblklog = 15\n";
        let xfs = xfs_log(fields).unwrap();
        assert_eq!(xfs.disk.start, (2 * 19_200 + 6) * 4096);
        assert_eq!(xfs_log("agblklog = 99\n"), None);
    }
}
