//! The directory for results: made before anything is measured, so that a run of minutes does not
//! end without a place for its results.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_sync::{Dir, OsDir};

use crate::durability_profile;
use crate::report::html;
use crate::scratch::CannotRun;

/// A directory for results. If it was made for this run and nothing was saved in it, it is removed
/// when this is dropped.
#[derive(Debug)]
pub(crate) struct ResultsDir {
    path: PathBuf,
    /// The directories that had to be made, the outermost first.
    made: Vec<PathBuf>,
}

impl ResultsDir {
    /// Makes the directory, with its parents, and checks that files of these `names`, and those that are
    /// made of all results, can be made in it. What is there already stays: nothing is overwritten.
    pub(crate) fn create(path: &Path, names: &[String]) -> Result<Self, CannotRun> {
        let what = "cannot write results to";
        let refuse = |reason| CannotRun { what, directory: path.to_owned(), reason };
        let mut results = Self { path: path.to_owned(), made: Vec::new() };
        results.make().map_err(|error| refuse(format!("{error}; pass another with --out")))?;
        let names = names.iter().map(String::as_str).chain([durability_profile::FILE, html::FILE]);
        // A link that leads nowhere is there as well.
        match names.into_iter().find(|name| path.join(name).symlink_metadata().is_ok()) {
            Some(taken) => Err(refuse(format!(
                "it has a {taken} already, and nothing is overwritten; pass another with --out"
            ))),
            None => Ok(results),
        }
    }

    /// Where it is.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn make(&mut self) -> io::Result<()> {
        let parents = self.path.ancestors().filter(|path| !path.as_os_str().is_empty());
        let mut missing: Vec<PathBuf> =
            parents.take_while(|path| !path.exists()).map(Path::to_owned).collect();
        missing.reverse();
        for path in missing {
            fs::create_dir(&path)?;
            // A result is durable only if every directory on the way to it is.
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            OsDir::open(parent.unwrap_or(Path::new("."))).and_then(|dir| dir.sync()).map_err(
                |error| io::Error::new(error.kind().unwrap_or(io::ErrorKind::Other), error),
            )?;
            self.made.push(path);
        }
        let trial = self.path.join(format!(".plimsoll-trial-{}", std::process::id()));
        fs::File::create_new(&trial)?;
        fs::remove_file(&trial)
    }
}

impl Drop for ResultsDir {
    fn drop(&mut self) {
        // Removing fails, as it should, where something was saved.
        for path in self.made.iter().rev() {
            fs::remove_dir(path).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_made_for_nothing_is_removed_again() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("plimsoll-results/today");
        drop(ResultsDir::create(&path, &[]).unwrap());
        assert!(fs::read_dir(tmp.path()).unwrap().next().is_none());
    }

    #[test]
    fn a_directory_with_results_stays() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("a/b");
        let results = ResultsDir::create(&path, &[]).unwrap();
        fs::write(results.path().join("sync-cost.json"), "{}").unwrap();
        drop(results);
        assert!(path.join("sync-cost.json").exists());
    }

    #[test]
    fn a_place_where_no_file_can_be_made_is_refused_before_the_run() {
        let tmp = tempfile::tempdir().unwrap();
        fs::write(tmp.path().join("file"), "").unwrap();
        let refused = ResultsDir::create(&tmp.path().join("file/out"), &[]).unwrap_err();
        assert!(refused.to_string().contains("--out"), "{refused}");
    }

    #[test]
    fn results_of_another_run_are_not_overwritten() {
        // The last two were overwritten.
        for taken in ["sync-cost.json", "report.html", "durability-profile.json"] {
            let tmp = tempfile::tempdir().unwrap();
            fs::write(tmp.path().join(taken), "precious").unwrap();
            let names = ["sync-cost.json".to_owned()];
            let refused = ResultsDir::create(tmp.path(), &names).unwrap_err().to_string();
            assert!(refused.contains(taken) && refused.contains("--out"), "{refused}");
            assert_eq!(fs::read(tmp.path().join(taken)).unwrap(), b"precious");
        }
    }
}
