//! [`Run`]: keeps mark and witness true while the broker works.
//!
//! **What makes a rest provable.** A mark that is quiesced or clean claims that nothing beyond its
//! ends was acknowledged. Its writer holds that against all acknowledgements, under their lock, and
//! leaves `rests` set there, before the mark is written; an acknowledgement that finds it set has
//! the mark durably running before it leaves. So the claim hangs on no caller's word but one: that
//! the ends are durable. [`Run::busy`] before an append only takes the wait for that sync off the
//! answer.
//!
//! Locks are taken in the order of the fields.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_sync::Dir;

use super::error::{Error, Result};
use super::mark::{Ends, Mark, MarkFile, SHARDS_MAX, State};
use super::starts::Starts;
use super::verdict::{Verdict, verdict};
use super::witness::{Witness, WitnessFile, begun, memory};

/// What a start finds.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The data directory; the caller has its lock.
    pub data: &'a dyn Dir,
    /// A directory on tmpfs of this data directory's own. Without it, or where the system does not
    /// say that it is one, a process crash cannot be told from worse.
    pub memory: Option<&'a dyn Dir>,
    /// What names this run of the system: [`plimsoll_sync::boot_id`]. Without it the same.
    pub boot: Option<u128>,
    /// Drawn at random: the id of the data directory if it is new.
    pub fresh_id: u128,
    /// The time, in ms since 1970.
    pub now_ms: u64,
    /// Drawn at random by this start; not 0.
    pub drawn: u64,
}

/// A run of the broker.
#[derive(Debug)]
pub struct Run {
    incarnation: u64,
    starts: Starts,
    marks: Mutex<Marks>,
    acknowledged: Mutex<Acknowledged>,
    /// Whether the durable mark may say that nothing beyond its ends is acknowledged. Set under
    /// both locks, cleared under that of `marks`.
    rests: AtomicBool,
}

/// The mark, as it is durable.
#[derive(Debug)]
struct Marks {
    file: MarkFile,
    mark: Mark,
}

/// What was acknowledged.
#[derive(Debug)]
struct Acknowledged {
    ends: Ends,
    witness: Option<WitnessFile>,
}

impl Run {
    /// Whether memory knows of a run of this directory that it does not know of itself: it went back to an earlier state, with all that was
    /// durable and all that it votes by. Nothing is changed. To be asked before a run begins, which takes what memory knows for its own.
    ///
    /// # Errors
    /// What the directory knows cannot be read just now.
    pub fn went_back(data: &dyn Dir, in_memory: &dyn Dir) -> Result<bool> {
        let marked = memory(Some(in_memory)).zip(MarkFile::look(data));
        let Some((memory, mark)) = marked else { return Ok(false) };
        let starts = Starts::read(data)?;
        let is_forgotten = |(incarnation, drawn): (u64, Option<u64>)| match drawn {
            Some(drawn) if starts.last() > 0 => {
                incarnation > starts.last() || starts.lack((incarnation, drawn))
            }
            // Of a start that could not note what it drew, or of a version that drew nothing.
            _ => incarnation > mark.incarnation,
        };
        Ok(begun(memory, mark.data).into_iter().any(is_forgotten))
    }

    /// Begins a run, and says what is known of the one before. `ends` are the last indexes, after
    /// their recovery, of all logs whose records are acknowledged before they are durable; the caller
    /// has synced each.
    ///
    /// On return the incarnation is durable, and above all before it. So is a doubt, until
    /// [`Run::fenced`]. Without one the run rests: whatever ends it before it acknowledges anything
    /// leaves no doubt either. Nothing may be appended to those logs, and no message leave, before.
    pub fn begin(start: Start<'_>, ends: &Ends) -> Result<(Self, Verdict)> {
        Self::begin_beside(start, ends, &BTreeSet::new())
    }

    /// The same, where it is known of these shards why their logs may end too early: it is asked what is known of the others.
    pub(crate) fn begin_beside(
        start: Start<'_>,
        ends: &Ends,
        known: &BTreeSet<u32>,
    ) -> Result<(Self, Verdict)> {
        check_count(ends)?;
        let Start { data, boot, now_ms, .. } = start;
        let (memory, boot) = (memory(start.memory), boot.filter(|boot| *boot != 0));
        let found = MarkFile::open(data)?;
        let last = found.as_ref().map(|(_, mark)| mark);
        let witness =
            memory.zip(last).and_then(|(memory, last)| Witness::read(memory, last.incarnation));
        let mut asked = ends.clone();
        for number in known {
            let marked = last.and_then(|mark| mark.ends.get(number));
            let acknowledged = witness.as_ref().and_then(|said| said.acknowledged.get(number));
            asked.extend(marked.max(acknowledged).map(|end| (*number, *end)));
        }
        let verdict = verdict(last, witness.as_ref(), boot, &asked);
        let (state, when_ms, durable) = match &verdict {
            Verdict::NothingLost(_) => (State::Quiesced, now_ms, ends),
            Verdict::MayHaveLost(loss) => (State::Doubtful, loss.since_ms, &loss.guaranteed),
        };
        check_count(durable)?;
        let starts = Starts::read(data)?;
        let incarnation = last.map_or(0, |last| last.incarnation).max(starts.last()) + 1;
        let mark = Mark {
            data: last.map_or(start.fresh_id, |last| last.data),
            incarnation,
            boot,
            state,
            when_ms,
            ends: durable.clone(),
        };
        let witness = memory.zip(boot).map(|(memory, boot)| testify(memory, &mark, boot, ends));
        let acknowledged = Acknowledged { ends: ends.clone(), witness: witness.transpose()? };
        let file = match found {
            Some((mut file, _)) => {
                file.write(&mark)?;
                file
            }
            None => MarkFile::create(data, &mark)?,
        };
        let (starts, drawn) = match starts.clone().add(data, incarnation, start.drawn) {
            Ok(starts) => (starts, Some(start.drawn)),
            // It begins all the same, and is known by its incarnation only.
            Err(Error::Disk(why)) if is_full(&why) => (starts, None),
            Err(why) => return Err(why),
        };
        if let Some(memory) = memory {
            WitnessFile::begins(memory, incarnation, drawn)?;
        }
        let run = Self {
            incarnation,
            starts,
            marks: Mutex::new(Marks { file, mark }),
            acknowledged: Mutex::new(acknowledged),
            rests: AtomicBool::new(state == State::Quiesced),
        };
        Ok((run, verdict))
    }

    /// Which start of this broker it is.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The starts of this directory, this one last; it is not there where there was no room to note it.
    #[must_use]
    pub fn starts(&self) -> &Starts {
        &self.starts
    }

    /// A fence stands in every log that needs one, and the logs are durable up to `ends`: the doubt
    /// is settled. Durable on return. Nothing happens where there was no doubt.
    pub fn fenced(&self, ends: &Ends, now_ms: u64) -> Result<()> {
        self.rewrite(State::Doubtful, ends, now_ms)
    }

    /// The entries of a shard up to this log index are about to be acknowledged, to whomever: no
    /// answer leaves, and nobody is shown them, before this returns. Then a process that dies
    /// leaves it known. Not durable; costs a write to memory where the index rose.
    pub fn acknowledged(&self, shard: u32, index: u64) -> Result<()> {
        loop {
            let mut acknowledged = lock(&self.acknowledged);
            if acknowledged.ends.get(&shard).is_some_and(|last| *last >= index) {
                return Ok(());
            }
            if !self.rests.load(Acquire) {
                return acknowledged.note(shard, index);
            }
            drop(acknowledged);
            self.wake(None)?;
        }
    }

    /// The log of a shard was cut off behind this index, durably: another leader's entries take the place of
    /// what was acknowledged behind it, which counts no more. Durable on return, where a mark knew of more.
    pub fn cut(&self, shard: u32, last: u64) -> Result<()> {
        let mut marks = lock(&self.marks);
        if marks.mark.ends.get(&shard).is_some_and(|end| *end > last) {
            let Mark { state, mut ends, when_ms, .. } = marks.mark.clone();
            ends.insert(shard, last);
            marks.write(state, ends, when_ms)?;
        }
        let mut acknowledged = lock(&self.acknowledged);
        match acknowledged.ends.get(&shard) {
            Some(known) if *known > last => acknowledged.note(shard, last),
            _ => Ok(()),
        }
    }

    /// The logs are durable up to `ends`, with all that was acknowledged before `when_ms`: of a
    /// loss after this it is said that it is since then. Durable on return; acknowledgements do not
    /// wait for it. Nothing happens where there is a doubt, or a rest.
    pub fn synced(&self, ends: &Ends, when_ms: u64) -> Result<()> {
        self.rewrite(State::Running, ends, when_ms)
    }

    /// The logs are durable up to `ends`: says so, durably, if nothing beyond was acknowledged.
    /// Then no crash leaves a doubt, until more is acknowledged. False if more was already, or if
    /// there is a doubt; nothing has changed then.
    pub fn quiesce(&self, ends: &Ends, now_ms: u64) -> Result<bool> {
        self.rest(State::Quiesced, ends, now_ms)
    }

    /// The same for a run that ends: nothing is acknowledged after it.
    pub fn close(&self, ends: &Ends, now_ms: u64) -> Result<bool> {
        self.rest(State::Clean, ends, now_ms)
    }

    /// Whether [`Run::busy`] would wait for the disk.
    #[must_use]
    pub fn rests(&self) -> bool {
        self.rests.load(Acquire)
    }

    /// More is going to be acknowledged. On return the mark is durably running; nothing happens
    /// where it is already.
    pub fn busy(&self, now_ms: u64) -> Result<()> {
        if self.rests.load(Acquire) { self.wake(Some(now_ms)) } else { Ok(()) }
    }

    fn rest(&self, state: State, ends: &Ends, when_ms: u64) -> Result<bool> {
        check_count(ends)?;
        let mut marks = lock(&self.marks);
        if marks.mark.state == State::Doubtful {
            return Ok(false);
        }
        {
            let acknowledged = lock(&self.acknowledged);
            let is_durable =
                |(shard, index): (&u32, &u64)| ends.get(shard).is_some_and(|end| end >= index);
            if !acknowledged.ends.iter().all(is_durable) {
                return Ok(false);
            }
            self.rests.store(true, Release);
        }
        marks.write(state, ends.clone(), when_ms)?;
        Ok(true)
    }

    fn wake(&self, when_ms: Option<u64>) -> Result<()> {
        let mut marks = lock(&self.marks);
        if self.rests.load(Acquire) {
            let Mark { ends, when_ms: rested_ms, .. } = marks.mark.clone();
            marks.write(State::Running, ends, when_ms.unwrap_or(rested_ms))?;
            self.rests.store(false, Release);
        }
        Ok(())
    }

    /// Makes the mark running with these ends, if it is in this state.
    fn rewrite(&self, from: State, ends: &Ends, when_ms: u64) -> Result<()> {
        check_count(ends)?;
        let mut marks = lock(&self.marks);
        if marks.mark.state == from {
            marks.write(State::Running, ends.clone(), when_ms)?;
        }
        Ok(())
    }
}

impl Marks {
    fn write(&mut self, state: State, ends: Ends, when_ms: u64) -> Result<()> {
        let mark = Mark { state, ends, when_ms, ..self.mark };
        self.file.write(&mark)?;
        self.mark = mark;
        Ok(())
    }
}

impl Acknowledged {
    fn note(&mut self, shard: u32, index: u64) -> Result<()> {
        if let Some(witness) = &mut self.witness {
            witness.note(shard, index)?;
        }
        self.ends.insert(shard, index);
        Ok(())
    }
}

/// The witness of a run that begins with these ends: all of them may have been acknowledged before.
fn testify(memory: &dyn Dir, mark: &Mark, boot: u128, ends: &Ends) -> Result<WitnessFile> {
    let Mark { data, incarnation, .. } = *mark;
    let acknowledged = ends.clone();
    WitnessFile::create(memory, &Witness { data, incarnation, boot, acknowledged })
}

fn is_full(why: &plimsoll_sync::Error) -> bool {
    matches!(why.kind(), Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}

fn check_count(ends: &Ends) -> Result<()> {
    let count = ends.len();
    let most = SHARDS_MAX;
    if count > most { Err(Error::TooManyShards { count, most }) } else { Ok(()) }
}

/// A panic of who held it left it as it was.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
