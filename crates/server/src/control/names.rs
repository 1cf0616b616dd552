//! What a topic may be called: as in Kafka.

/// The longest name.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// A name that no topic can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// It is empty, `.` or `..`.
    #[error("a topic cannot be called \"\", \".\" or \"..\"")]
    Reserved,
    /// It is too long.
    #[error("a topic's name has at most {TOPIC_NAME_BYTES_MAX} bytes, not {0}")]
    TooLong(usize),
    /// It has another character.
    #[error("a topic's name has letters, digits, '.', '_' and '-' of ASCII, not {0:?}")]
    Character(char),
}

/// Whether a topic may be called so (Kafka's `Topic.validate`).
pub fn check_name(name: &str) -> Result<(), InvalidName> {
    if matches!(name, "" | "." | "..") {
        return Err(InvalidName::Reserved);
    }
    if name.len() > TOPIC_NAME_BYTES_MAX {
        return Err(InvalidName::TooLong(name.len()));
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match name.chars().find(|c| !is_allowed(*c)) {
        Some(other) => Err(InvalidName::Character(other)),
        None => Ok(()),
    }
}
