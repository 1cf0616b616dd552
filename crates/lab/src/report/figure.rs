//! A chart with what is said beside it.

use maud::Markup;

use super::chart::Paper;

/// A chart that can be drawn on paper of any width, and what is said beside it.
pub(super) struct Figure {
    pub(super) title: String,
    /// What one would see in it, for readers who cannot.
    pub(super) description: String,
    /// How to read it.
    pub(super) note: Markup,
    pub(super) draw: Box<dyn Fn(Paper<'_>) -> Markup>,
}
