//! [`Held`]: what a log has for as long as it is open, the lock of its directory and who does its work; and
//! how it ends.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use plimsoll_sync::Lock;

use crate::append::gate::Gate;
use crate::append::waiters::is_calling;
use crate::commit::Commit;
use crate::commit::threads::Threads;
use crate::commit::writer::Turn;
use crate::crew::shared::Shared;
use crate::crew::task::Task;
use crate::error::Result;
use crate::shim::thread;

/// What a log has for as long as it is open.
#[derive(Debug)]
pub(crate) struct Held {
    workers: Workers,
    lock: Lock,
}

/// Who does the work.
#[derive(Debug)]
enum Workers {
    /// Whoever drives the log.
    None,
    Threads(Threads),
    Crew(Vec<Arc<Task>>, Arc<Shared>),
}

impl Held {
    /// Starts who does the work: the log's own threads, those of a crew, or nobody.
    pub(crate) fn start(
        commit: &Arc<Commit>,
        lock: Lock,
        threads: bool,
        crew: Option<Arc<Shared>>,
    ) -> Result<Self> {
        let workers = match crew {
            _ if !threads => Workers::None,
            None => Workers::Threads(Threads::start(commit)?),
            Some(crew) => {
                let tasks = crew.pool.adopt(commit);
                crew.budget.enter(Arc::<Commit>::downgrade(commit));
                Workers::Crew(tasks, crew)
            }
        };
        Ok(Self { workers, lock })
    }

    /// Ends the log as a crash would, but for what can still be written.
    pub(crate) fn abandon(self, commit: &Arc<Commit>) {
        if commit.intake.check_owner().is_err() {
            // The threads are those of another process.
            std::mem::forget(self.workers);
            return;
        }
        if !is_calling() {
            return self.write_and_end(commit);
        }
        // This thread is in the middle of the log's work, and cannot wait for its end.
        let (commit, held) = (Arc::clone(commit), ManuallyDrop::new(self));
        let end = move || ManuallyDrop::into_inner(held).write_and_end(&commit);
        if let Err(error) = thread::Builder::new().name("log-end".to_owned()).spawn(end) {
            tracing::error!(%error, "the log stays open until its process ends");
        }
    }

    fn write_and_end(self, commit: &Commit) {
        if commit.intake.gate() < Gate::Stopped {
            let mut writer = commit.role();
            while matches!(writer.turn(commit), Ok(Turn::Worked)) {}
        }
        self.end(commit);
    }

    /// Ends the log: what is not done by now is not done.
    pub(crate) fn end(self, commit: &Commit) {
        let Self { workers, lock } = self;
        commit.intake.close();
        // Whoever still waits for a record may be playing the writer, and shall not once another opens.
        drop(commit.role());
        match workers {
            Workers::None => {}
            Workers::Threads(mut threads) => threads.join(commit),
            Workers::Crew(tasks, crew) => {
                tasks.iter().for_each(Task::join);
                drop(crew);
            }
        }
        commit.files.stock.clear();
        drop(lock);
    }
}
