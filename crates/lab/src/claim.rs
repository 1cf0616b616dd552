//! What an article claims, and whether it holds here.

use serde::{Deserialize, Serialize};

/// A claim of an article, beside what was found here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The article, by its number.
    pub article: u32,
    /// What it claims: `a write waits for a sync in another thread`.
    pub claim: String,
    /// The time that it claims, if that can be drawn beside ours.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub claimed_ns: Option<u64>,
    /// What was found here: `0 % of syncs held a write up`.
    pub here: String,
    /// Whether it holds.
    pub verdict: Holds,
}

/// Whether a claim holds here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Holds {
    /// As claimed.
    Holds,
    /// The effect is there, but smaller, or only sometimes.
    InPart,
    /// The effect is not there.
    DoesNotHold,
    /// Too little was measured to say.
    Undecided,
}

impl Claim {
    /// In a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        let Self { article, claim, here, verdict, .. } = self;
        format!("Article {article} claims that {claim}; here {here}: {}.", verdict.in_words())
    }
}

impl Holds {
    /// `does not hold here`
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Holds => "holds here",
            Self::InPart => "holds here in part",
            Self::DoesNotHold => "does not hold here",
            Self::Undecided => "not decided here",
        }
    }
}
