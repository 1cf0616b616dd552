//! Kinds of tests, and whether each can run here. A tier that is skipped has not passed.

/// One kind of test, and whether it can run here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tier {
    /// Its name.
    pub name: String,
    /// Whether it works.
    pub state: TierState,
    /// Whether it works for nobody but root.
    pub needs_root: bool,
}

/// Whether something works here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TierState {
    /// It was tried and works; with what was seen.
    Available(String),
    /// It cannot run, and why.
    Skipped(String),
}

impl Tier {
    /// One that works.
    #[must_use]
    pub fn available(name: &str, seen: impl Into<String>) -> Self {
        Self { name: name.to_owned(), state: TierState::Available(seen.into()), needs_root: false }
    }

    /// One that cannot run.
    #[must_use]
    pub fn skipped(name: &str, reason: impl Into<String>) -> Self {
        Self { name: name.to_owned(), state: TierState::Skipped(reason.into()), needs_root: false }
    }

    /// One that works for nobody but root.
    #[must_use]
    pub fn as_root(self) -> Self {
        Self { needs_root: true, ..self }
    }

    /// Whether it works.
    #[must_use]
    pub const fn is_available(&self) -> bool {
        matches!(self.state, TierState::Available(_))
    }
}
