//! [`Code`] and [`Failure`]: what went wrong, as a number that stays and in words.

use std::any::Any;
use std::error::Error as _;
use std::ffi::c_char;
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use plimsoll_log::Error;
use plimsoll_sync::Error as DiskError;

/// cbindgen:rename-all=prefix:PLIMSOLL_
/// What a call says. The numbers never change; later versions may have more of them.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "named as in C")]
pub enum Code {
    /// It was done.
    OK = 0,
    /// The next record is not there yet, in the time that was given. Not an error: ask again.
    AT_END = 1,
    /// The ring is full: the disk is behind. Nothing was accepted; try later.
    WOULD_BLOCK = 2,
    /// It did not happen in time. It still may.
    TIMED_OUT = 3,
    /// No such record: not yet appended, or gone by retention.
    OUT_OF_RANGE = 4,
    /// The record was cut off by plimsoll_truncate_after while somebody waited for it.
    TRUNCATED = 5,
    /// More than a log with these options takes at once (half of its ring). Nothing was accepted.
    TOO_LARGE = 6,
    /// No room on the disk for another segment. Nothing was accepted; what was accepted before has its
    /// room. Free some, or truncate, and go on.
    OUT_OF_SPACE = 7,
    /// The log was closed.
    CLOSED = 8,
    /// Somebody else has the log open: `holder` says which process, if that is known.
    LOCKED = 9,
    /// The disk, or the system, refused. Nothing was accepted, and a log that is open goes on.
    DISK = 10,
    /// A write or a sync failed, and so did every way around it. Nothing more is accepted; records
    /// after `index` may be lost. Reads go on. Close, mend the disk, open again.
    STOPPED = 11,
    /// Durable bytes have changed, or are gone. Nothing was cut; the text names file and records.
    CORRUPT = 12,
    /// An argument or an option that cannot be. The text says which.
    INVALID = 13,
    /// There are no more indexes: only a log that was made to look so gets there.
    EXHAUSTED = 14,
    /// Another thread is in a call with this reader.
    BUSY = 15,
    /// A bug in Plimsoll. The text is worth reporting; close the log, and open it again.
    BUG = 16,
    /// An error that this version of the header has no name for. The text says what.
    OTHER = 17,
    /// Another version of Plimsoll wrote this log; the text says which. Nothing was changed. Use that
    /// one, or a newer.
    VERSION = 18,
}

/// A code as C passes it: any number.
pub(crate) type CodeNumber = i32;

/// Why a call failed. Yours: nothing in it needs to be freed, and its size never changes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Failure {
    /// What the call returned.
    pub code: Code,
    /// errno of the system call that failed, or 0.
    pub os_error: i32,
    /// PLIMSOLL_LOCKED: the process that has the log, or 0.
    pub holder: u32,
    /// 0.
    pub reserved: u32,
    /// PLIMSOLL_STOPPED: the last durable record. PLIMSOLL_OUT_OF_SPACE: the last that was accepted.
    /// PLIMSOLL_OUT_OF_RANGE, _TIMED_OUT, _TRUNCATED: the record. PLIMSOLL_CORRUPT: the first that is
    /// lost. Otherwise 0.
    pub index: u64,
    /// What happened and why, in English, in UTF-8, ended by NUL.
    pub text: [c_char; 1000],
}

/// Why a call is refused, before it is known whether the caller wants to know.
#[derive(Debug)]
pub(crate) enum Refusal {
    Log(Error),
    AtEnd,
    Busy,
    TooLarge(String),
    Invalid(String),
    Bug(String),
}

/// What entries do inside.
pub(crate) type Result<T> = std::result::Result<T, Refusal>;

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Log(error)
    }
}

impl From<DiskError> for Refusal {
    fn from(error: DiskError) -> Self {
        Self::Log(error.into())
    }
}

impl Code {
    /// All of them, by number.
    const ALL: [Self; 19] = [
        Self::OK,
        Self::AT_END,
        Self::WOULD_BLOCK,
        Self::TIMED_OUT,
        Self::OUT_OF_RANGE,
        Self::TRUNCATED,
        Self::TOO_LARGE,
        Self::OUT_OF_SPACE,
        Self::CLOSED,
        Self::LOCKED,
        Self::DISK,
        Self::STOPPED,
        Self::CORRUPT,
        Self::INVALID,
        Self::EXHAUSTED,
        Self::BUSY,
        Self::BUG,
        Self::OTHER,
        Self::VERSION,
    ];

    pub(crate) fn of(number: CodeNumber) -> Option<Self> {
        usize::try_from(number).ok().and_then(|number| Self::ALL.get(number).copied())
    }

    pub(crate) const fn name(self) -> &'static std::ffi::CStr {
        match self {
            Self::OK => c"PLIMSOLL_OK",
            Self::AT_END => c"PLIMSOLL_AT_END",
            Self::WOULD_BLOCK => c"PLIMSOLL_WOULD_BLOCK",
            Self::TIMED_OUT => c"PLIMSOLL_TIMED_OUT",
            Self::OUT_OF_RANGE => c"PLIMSOLL_OUT_OF_RANGE",
            Self::TRUNCATED => c"PLIMSOLL_TRUNCATED",
            Self::TOO_LARGE => c"PLIMSOLL_TOO_LARGE",
            Self::OUT_OF_SPACE => c"PLIMSOLL_OUT_OF_SPACE",
            Self::CLOSED => c"PLIMSOLL_CLOSED",
            Self::LOCKED => c"PLIMSOLL_LOCKED",
            Self::DISK => c"PLIMSOLL_DISK",
            Self::STOPPED => c"PLIMSOLL_STOPPED",
            Self::CORRUPT => c"PLIMSOLL_CORRUPT",
            Self::INVALID => c"PLIMSOLL_INVALID",
            Self::EXHAUSTED => c"PLIMSOLL_EXHAUSTED",
            Self::BUSY => c"PLIMSOLL_BUSY",
            Self::BUG => c"PLIMSOLL_BUG",
            Self::OTHER => c"PLIMSOLL_OTHER",
            Self::VERSION => c"PLIMSOLL_VERSION",
        }
    }
}

impl Refusal {
    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }

    /// What a panic said. A payload of no known kind is leaked: dropping it may panic again.
    pub(crate) fn bug(panic: Box<dyn Any + Send>) -> Self {
        let said = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
            (Some(said), _) => (*said).to_owned(),
            (None, Some(said)) => said.clone(),
            (None, None) => {
                std::mem::forget(panic);
                "something that says nothing".to_owned()
            }
        };
        Self::Bug(said)
    }

    pub(crate) const fn code(&self) -> Code {
        match self {
            Self::AtEnd => Code::AT_END,
            Self::Busy => Code::BUSY,
            Self::TooLarge(_) => Code::TOO_LARGE,
            Self::Invalid(_) => Code::INVALID,
            Self::Bug(_) => Code::BUG,
            Self::Log(error) => match error {
                Error::Disk(DiskError::Locked { .. }) => Code::LOCKED,
                Error::Disk(_) => Code::DISK,
                Error::Stopped { .. } => Code::STOPPED,
                Error::Closed => Code::CLOSED,
                Error::OutOfSpace { .. } => Code::OUT_OF_SPACE,
                Error::WouldBlock { .. } => Code::WOULD_BLOCK,
                Error::TooLarge { .. } => Code::TOO_LARGE,
                Error::Exhausted { .. } => Code::EXHAUSTED,
                Error::TimedOut { .. } => Code::TIMED_OUT,
                Error::OutOfRange { .. } => Code::OUT_OF_RANGE,
                Error::Truncated { .. } => Code::TRUNCATED,
                Error::Corrupt(_) => Code::CORRUPT,
                Error::Options(_) | Error::Forked => Code::INVALID,
                Error::Version { .. } => Code::VERSION,
                _ => Code::OTHER,
            },
        }
    }

    const fn index(&self) -> u64 {
        let Self::Log(error) = self else { return 0 };
        match error {
            Error::Stopped { durable, .. } => *durable,
            Error::OutOfSpace { last_index } | Error::Exhausted { last_index } => *last_index,
            Error::TimedOut { index, .. }
            | Error::OutOfRange { index, .. }
            | Error::Truncated { index } => *index,
            Error::Corrupt(corruption) => *corruption.records.start(),
            _ => 0,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::AtEnd => "the next record is not there yet".to_owned(),
            Self::Busy => "another thread is in a call with this reader".to_owned(),
            Self::TooLarge(what) | Self::Invalid(what) => what.clone(),
            Self::Bug(said) => format!("a bug in Plimsoll, please report it: {said}"),
            Self::Log(error) => {
                let mut text = error.to_string();
                let mut source = error.source();
                while let Some(cause) = source {
                    write!(text, ": {cause}").expect("memory takes all");
                    source = cause.source();
                }
                text
            }
        }
    }

    /// What the system said, if it was asked.
    fn os_error(&self) -> i32 {
        let Self::Log(error) = self else { return 0 };
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(error) = cause {
            let shared = error.downcast_ref::<Arc<io::Error>>().map(|shared| &**shared);
            let said = error.downcast_ref::<io::Error>().or(shared);
            if let Some(number) = said.and_then(io::Error::raw_os_error) {
                return number;
            }
            cause = error.source();
        }
        0
    }

    /// All of it, as C takes it.
    pub(crate) fn report(&self) -> Failure {
        let holder = match self {
            Self::Log(Error::Disk(DiskError::Locked { holder, .. })) => holder.unwrap_or(0),
            _ => 0,
        };
        Failure {
            code: self.code(),
            os_error: self.os_error(),
            holder,
            reserved: 0,
            index: self.index(),
            text: text(&self.text()),
        }
    }
}

/// Text as C takes it: as much as has room, ended by NUL, no character cut in two.
pub(crate) fn text<const N: usize>(said: &str) -> [c_char; N] {
    let mut end = said.len().min(N - 1);
    while !said.is_char_boundary(end) {
        end -= 1;
    }
    let mut text = [0; N];
    for (to, from) in text.iter_mut().zip(said[..end].bytes()) {
        // A NUL inside would end it.
        *to = c_char::from_le_bytes([if from == 0 { b'?' } else { from }]);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn said(text: &[c_char]) -> String {
        let bytes = text.iter().take_while(|byte| **byte != 0).map(|byte| byte.to_le_bytes()[0]);
        String::from_utf8(bytes.collect()).unwrap()
    }

    #[test]
    fn numbers_names_and_codes_agree() {
        for (number, code) in (0..).zip(Code::ALL) {
            assert_eq!(code as i32, number);
            assert_eq!(Code::of(number), Some(code));
            assert_eq!(code.name().to_str().unwrap(), format!("PLIMSOLL_{code:?}"));
        }
        assert_eq!(Code::of(-1), None);
        assert_eq!(Code::of(19), None);
    }

    #[test]
    fn a_failure_says_all_that_is_known() {
        let source = io::Error::from_raw_os_error(5);
        let error = DiskError::io("fdatasync", "/d/1.seg", source);
        let stopped = Error::Stopped { durable: 7, source: Arc::new(error.into()) };
        let failure = Refusal::Log(stopped).report();
        assert_eq!((failure.code, failure.os_error, failure.index), (Code::STOPPED, 5, 7));
        let text = said(&failure.text);
        assert!(text.contains("records after 7 may be lost"), "{text}");
        assert!(text.contains("fdatasync /d/1.seg"), "{text}");
        let locked = DiskError::Locked { path: PathBuf::from("lock"), holder: Some(4321) };
        let failure = Refusal::from(locked).report();
        assert_eq!((failure.code, failure.holder), (Code::LOCKED, 4321));
        assert!(said(&failure.text).contains("process 4321"));
    }

    #[test]
    fn text_that_is_too_long_ends_at_a_character() {
        assert_eq!(said(&text::<6>("äöü")), "äö");
        assert_eq!(said(&text::<7>("äöü")), "äöü");
        assert_eq!(said(&text::<4>("a\0b")), "a?b");
    }

    #[test]
    fn the_struct_of_a_failure_has_its_size_for_ever() {
        assert_eq!(size_of::<Failure>(), 1024);
    }
}
