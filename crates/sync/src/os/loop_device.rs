//! Loop devices: a file as a block device, so that a filesystem can be mounted on it.
//!
//! Every device is attached with `AUTOCLEAR`: the kernel detaches it when the last user goes, also
//! when that user is killed. Needs root. Linux only.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

const CTL_GET_FREE: libc::Ioctl = 0x4C82;
const CONFIGURE: libc::Ioctl = 0x4C0A;
const FLAG_AUTOCLEAR: u32 = 4;
/// Others ask for a free device at the same moment, and one of us loses.
const ATTEMPTS: u32 = 200;

/// A file attached as `/dev/loopN`; detached when this is dropped and no mount uses it any more.
#[derive(Debug)]
pub struct LoopDevice {
    file: File,
    path: PathBuf,
    number: u32,
}

/// `struct loop_info64` of `linux/loop.h`.
#[repr(C)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    byte_offset: u64,
    byte_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_bytes: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of `linux/loop.h`.
#[repr(C)]
struct Config {
    fd: u32,
    block_bytes: u32,
    info: Info,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Info>() == 232 && size_of::<Config>() == 304);

impl LoopDevice {
    /// Attaches `backing`, from its first byte to its end, to the device of the number `before`, or to any
    /// other if that is not free. `node` says where the device file of a number is, if not in `/dev`. A
    /// sync of the device is an fsync of `backing`.
    ///
    /// Fails with `PermissionDenied` without root, and with `NotFound` where there are no loop devices.
    pub fn attach(
        backing: &File,
        before: Option<u32>,
        node: impl Fn(u32) -> io::Result<PathBuf>,
    ) -> io::Result<Self> {
        let attached = |number: u32| -> io::Result<Self> {
            let path = node(number)?;
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            configure(&file, backing)?;
            Ok(Self { file, path, number })
        };
        if let Some(device) = before.and_then(|number| attached(number).ok()) {
            return Ok(device);
        }
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
        let mut attempt = 0;
        loop {
            match attached(free(&control)?) {
                // Somebody took it between the two calls.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && attempt < ATTEMPTS => {
                    attempt += 1;
                    std::thread::yield_now();
                }
                either => return either,
            }
        }
    }

    /// The device file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its number: the N of `/dev/loopN`.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The file behind the device of this number, by the name that the kernel has for it; `None` if
    /// there is none. Detaching is not always over when the last user has gone. Where the kernel cannot be
    /// asked, an error: then there may be one.
    pub fn backing_name(number: u32) -> io::Result<Option<String>> {
        match std::fs::read_to_string(format!("/sys/block/loop{number}/loop/backing_file")) {
            Ok(name) => Ok(Some(name)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The open device.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }
}

#[expect(unsafe_code, reason = "an ioctl that no crate of ours wraps")]
fn free(control: &File) -> io::Result<u32> {
    // SAFETY: this request takes no argument, and the descriptor is open.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), CTL_GET_FREE) };
    u32::try_from(number).map_err(|_negative| io::Error::last_os_error())
}

#[expect(unsafe_code, reason = "an ioctl that no crate of ours wraps")]
fn configure(device: &File, backing: &File) -> io::Result<()> {
    let fd: RawFd = backing.as_raw_fd();
    let config = Config {
        fd: u32::try_from(fd).map_err(|_negative| io::ErrorKind::InvalidInput)?,
        block_bytes: 0,
        info: Info {
            device: 0,
            inode: 0,
            rdevice: 0,
            byte_offset: 0,
            byte_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_bytes: 0,
            flags: FLAG_AUTOCLEAR,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: the request reads one `loop_config`, which `config` is, and keeps no pointer to it.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE, std::ptr::from_ref(&config)) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
