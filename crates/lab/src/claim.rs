//! What an article claims, and whether it holds here.
//!
//! Invariant: no verdict comes from arms that were not left in peace. Then it is not known here, and
//! why, and what to do, is said.

use serde::{Deserialize, Serialize};

use crate::arm_result::ArmResult;
use crate::verdict;

/// An article whose claims are held against a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Article {
    /// By antirez, 2011.
    DifferentThread = 1,
    /// By Chris Mason, 2011.
    TortureProgram = 2,
    /// By tang-hi.
    Costly = 3,
    /// "Wait Before You Sync".
    Wait = 4,
    /// On macOS, 2024.
    MacOs = 5,
}

/// A claim of an article, beside what was found here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The article, by its number.
    pub article: u32,
    /// Its title. Results that are older than this field have the number only.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub title: String,
    /// What it claims: `a write waits for a sync in another thread`.
    pub claim: String,
    /// The time that it claims, if that can be drawn beside ours.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub claimed_ns: Option<u64>,
    /// What was found here: `11 of 12 syncs held a write up (fsync, same descriptor/append)`.
    pub here: String,
    /// Whether it holds.
    pub verdict: Holds,
    /// If that is not known: why not, and what to do.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unknown_because: Option<String>,
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
    /// What was measured does not tell.
    Undecided,
}

impl Article {
    const ALL: [Self; 5] =
        [Self::DifferentThread, Self::TortureProgram, Self::Costly, Self::Wait, Self::MacOs];

    /// What its author calls it.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::DifferentThread => "fsync() on a different thread: apparently a useless trick",
            Self::TortureProgram => "buffered writeback torture program",
            Self::Costly => "fsync is Costly, But Don't Avoid It",
            Self::Wait => "Wait Before You Sync",
            Self::MacOs => "fsync may not be enough to guarantee data durability on Mac OS",
        }
    }
}

impl Claim {
    /// What `article` claims, what was found `here`, and the verdict on it.
    #[must_use]
    pub fn new(article: Article, claim: String, here: String, verdict: Holds) -> Self {
        Self {
            article: article as u32,
            title: article.title().to_owned(),
            claim,
            claimed_ns: None,
            here,
            verdict,
            unknown_because: None,
        }
    }

    /// The same, not known here `because` of something that says what to do; if there is nothing, as it
    /// is. The first reason stays.
    #[must_use]
    pub(crate) fn unless(mut self, because: Option<String>) -> Self {
        if let Some(because) = because.filter(|_| self.unknown_because.is_none()) {
            self.verdict = Holds::Undecided;
            self.unknown_because = Some(because);
        }
        self
    }

    /// The same, not known here if any of `arms`, from which it was found, was not left in peace.
    #[must_use]
    pub(crate) fn of_arms(self, arms: &[&ArmResult]) -> Self {
        self.unless(verdict::disturbed(arms))
    }

    /// In a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        let Self { claim, here, .. } = self;
        format!("{} claims that {claim}; here {here}: {}.", self.who(), self.verdict_in_words())
    }

    /// The article by its title, in quotation marks.
    #[must_use]
    pub fn who(&self) -> String {
        let of_number = |article: &Article| *article as u32 == self.article;
        let known = Article::ALL.iter().find(|article| of_number(article));
        match (self.title.as_str(), known) {
            ("", Some(article)) => format!("\"{}\"", article.title()),
            ("", None) => "An article".to_owned(),
            (title, _) => format!("\"{title}\""),
        }
    }

    /// `does not hold here`
    #[must_use]
    pub fn verdict_in_words(&self) -> String {
        match (self.verdict, &self.unknown_because) {
            (Holds::Undecided, Some(because)) => format!("not known here, because {because}"),
            (verdict, _) => verdict.in_words().to_owned(),
        }
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
            Self::Undecided => "not known here",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;
    use crate::warning::{Kind, Warning};

    fn claim() -> Claim {
        let (claim, here) = ("a sync costs 2 ms".to_owned(), "20 µs".to_owned());
        Claim::new(Article::Costly, claim, here, Holds::DoesNotHold)
    }

    #[test]
    fn an_article_is_named_by_its_title() {
        let whole = "\"fsync is Costly, But Don't Avoid It\" claims that a sync costs 2 ms; here 20 µs: \
                     does not hold here.";
        assert_eq!(claim().in_words(), whole);
        let older = Claim { title: String::new(), ..claim() };
        assert_eq!(older.in_words(), whole, "results without titles have numbers");
        let unknown = Claim { article: 99, ..older };
        assert!(unknown.in_words().starts_with("An article claims"), "{}", unknown.in_words());
    }

    #[test]
    fn arms_of_a_busy_machine_give_no_verdict() {
        let mut arm = ArmResult::of_summary("fsync/clean", Summary::default());
        assert_eq!(claim().of_arms(&[&arm]), claim());
        arm.warnings.push(Warning::new(Kind::Noisy, "waited 66 %"));
        let said = claim().of_arms(&[&arm]).in_words();
        let end = "here 20 µs: not known here, because fsync/clean was measured on a busy machine: stop \
                   what else runs, and measure again.";
        assert!(said.ends_with(end), "{said}");
    }
}
