//! Runs of a broker against what it really acknowledged, over histories drawn from a seed.
//!
//! Logs are files of entries that are written and now and then synced. Lives end by a dying
//! process, a power cut, a volume that is detached, memory that is lost, or in order; between any
//! two operations of the disk, a start's own too; and on some disks a write tears. Starts die
//! before they write a fence.
//!
//! The promises: once anything acknowledged is gone a start says that it may be, and goes on saying
//! so until a fence is durable; what is guaranteed was synced and is there; and a run that ended in
//! order, or was idle, or whose process alone died, is not suspected.
//!
//! `PLIMSOLL_SEEDS=100000`, or `PLIMSOLL_SEED=7` for one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_server::run::{Ends, How, Loss, Run, Start, Verdict};
use plimsoll_simdisk::{DiskOptions, SimDir, Tear};
use plimsoll_sync::{Crash, Dir, File, SyncMethod};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

const ENTRY_BYTES: u64 = 8;

#[test]
fn nothing_acknowledged_is_lost_in_silence() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let one = number("PLIMSOLL_SEED");
    let seeds: Range<u64> = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("PLIMSOLL_SEEDS").unwrap_or(400),
    };
    let mut total = Seen::default();
    for seed in seeds.clone() {
        let seen = std::panic::catch_unwind(|| World::new(seed).live());
        let seen = seen.unwrap_or_else(|_| panic!("PLIMSOLL_SEED={seed} replays it"));
        for (what, times) in seen {
            *total.entry(what).or_default() += times;
        }
    }
    println!("seeds {seeds:?}: {total:#?}");
    // What tests nothing has not passed.
    let wanted = [
        "new",
        "clean",
        "quiesced",
        "process crash",
        "gone",
        "suspected",
        "repeated",
        "NoMark",
        "Unsettled",
        "LostDurable",
        "LostAcknowledged",
        "went back",
        "OtherBoot",
        "NoWitness",
    ];
    for what in wanted.into_iter().filter(|_| one.is_none()) {
        // A disk that keeps its word loses nothing durable, and the mark goes with nobody.
        let never = ["NoMark", "LostDurable"].contains(&what);
        assert_eq!(total.contains_key(what), !never, "{what}");
    }
}

/// What histories met.
type Seen = BTreeMap<String, u64>;

/// How a life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Process,
    PowerCut,
    /// Power is cut from the disk alone.
    Detached,
    /// The disk and the system stay; what was in memory does not.
    MemoryLost,
    /// An earlier copy of the directory is put in its place.
    WentBack,
}

struct World {
    rng: Pcg64Mcg,
    options: DiskOptions,
    data: SimDir,
    memory: SimDir,
    boot: u128,
    now_ms: u64,
    /// What was acknowledged, and no fence has given up.
    acknowledged: Ends,
    /// Whether something of that is gone, and nobody was told.
    is_gone: bool,
    /// A start found a doubt, and was not told of a fence.
    is_doubtful: bool,
    /// All that was acknowledged is durable, and the mark says so.
    rests: bool,
    /// The directory as a run that rested had left it.
    copy: Option<SimDir>,
    /// A run began since that memory knows of.
    is_witnessed: bool,
    /// It was put back, and no start has come by since: a power cut before would take what memory knows.
    went_back: bool,
    /// Since the last start that was whole, nothing but processes died.
    is_unharmed: bool,
    seen: Seen,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let tear = if rng.random_ratio(1, 4) { Tear::Bytes512 } else { Tear::Bytes4096 };
        let options = DiskOptions { tear, history_steps: 0, ..DiskOptions::default() };
        Self {
            rng,
            options,
            data: SimDir::with(options),
            memory: super::memory(),
            boot: 1,
            now_ms: 1,
            acknowledged: Ends::new(),
            is_gone: false,
            is_doubtful: false,
            rests: false,
            copy: None,
            is_witnessed: false,
            went_back: false,
            is_unharmed: true,
            seen: Seen::new(),
        }
    }

    fn saw(&mut self, what: impl Into<String>) {
        *self.seen.entry(what.into()).or_default() += 1;
    }

    fn live(mut self) -> Seen {
        for _ in 0..12 {
            // It ends early where the disk is gone, or where nobody lived to write the fence.
            let _ended_early = self.life().is_err();
            self.end();
        }
        self.seen
    }

    fn life(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let mut logs = Logs::recover(&self.data);
        let short = |(shard, index): (&u32, &u64)| logs.end(*shard) < *index;
        self.is_gone |= self.acknowledged.iter().any(short);
        if !self.went_back && self.rng.random_ratio(1, 3) {
            self.data.stop_at(self.data.operations() + self.rng.random_range(0..40));
        }
        let ends = logs.ends();
        let went_back = Run::went_back(&self.data, &self.memory)?;
        assert_eq!(went_back, std::mem::take(&mut self.went_back));
        if went_back {
            // A person has it go on with what it has.
            self.saw("went back");
            (self.memory, self.is_witnessed) = (super::memory(), false);
            (self.acknowledged, self.is_gone) = (ends.clone(), false);
        }
        let start = Start {
            data: &self.data,
            memory: Some(&self.memory),
            boot: Some(self.boot),
            fresh_id: 42,
            now_ms: self.now_ms,
            drawn: self.rng.random::<u64>() | 1,
        };
        let begun = Run::begin(start, &ends);
        if let Ok((_, verdict)) = &begun {
            self.hold(verdict, &ends);
            (self.is_unharmed, self.is_witnessed) = (true, true);
        }
        // A start that failed may have said that it runs.
        self.rests = false;
        let (run, verdict) = begun?;
        if let Verdict::MayHaveLost(loss) = verdict {
            self.is_doubtful = true;
            self.fence(&run, &loss, &mut logs)?;
        }
        for _ in 0..self.rng.random_range(0..20) {
            self.now_ms += 1;
            self.step(&run, &mut logs)?;
        }
        Ok(())
    }

    /// Holds a verdict against what is known here.
    fn hold(&mut self, verdict: &Verdict, ends: &Ends) {
        match verdict {
            Verdict::NothingLost(how) => {
                assert!(!self.is_gone, "acknowledged {:?}, {ends:?}: {how}", self.acknowledged);
                assert!(!self.is_doubtful, "a doubt was forgotten: {how}");
                self.saw(match how {
                    How::New => "new",
                    How::Clean => "clean",
                    How::Quiesced => "quiesced",
                    How::ProcessCrash => "process crash",
                });
            }
            Verdict::MayHaveLost(loss) => {
                let is_whole = self.options.tear == Tear::Bytes4096;
                let is_known = self.is_unharmed || self.rests && is_whole;
                let is_suspect = self.is_gone || self.is_doubtful;
                assert!(is_suspect || !is_known, "nothing is gone: {verdict}");
                if self.is_doubtful {
                    self.saw("repeated");
                }
                self.saw(if self.is_gone { "gone" } else { "suspected" });
                let doubt = format!("{:?}", loss.doubt);
                self.saw(doubt.split('(').next().unwrap());
                self.hold_loss(loss, ends);
            }
        }
    }

    fn hold_loss(&self, loss: &Loss, ends: &Ends) {
        assert!(loss.since_ms < self.now_ms, "{loss:?}");
        for (shard, end) in ends {
            assert!(loss.guaranteed[shard] <= *end, "{loss:?}");
        }
        for (shard, index) in &self.acknowledged {
            let given = loss.given.as_ref().map(|given| given.get(shard).copied().unwrap_or(0));
            assert!(given.is_none_or(|given| given >= *index), "{shard}: {index}, {loss:?}");
        }
    }

    /// Some entries, and the fence; or the process dies before it is told of.
    fn fence(
        &mut self,
        run: &Run,
        loss: &Loss,
        logs: &mut Logs,
    ) -> Result<(), Box<dyn std::error::Error>> {
        for shard in loss.guaranteed.keys() {
            for _ in 0..self.rng.random_range(1..6) {
                logs.append(*shard)?;
            }
        }
        logs.sync()?;
        if self.rng.random_ratio(1, 3) {
            return Err("killed".into());
        }
        self.now_ms += 1;
        // The logs say it from here on; whether the mark does is open until it is durable.
        (self.is_gone, self.is_doubtful, self.is_unharmed) = (false, false, false);
        (self.acknowledged, self.is_witnessed) = (logs.ends(), false);
        run.fenced(&self.acknowledged, self.now_ms)?;
        self.is_unharmed = true;
        // They are shown to whoever asks.
        for (shard, index) in &self.acknowledged {
            run.acknowledged(*shard, *index)?;
        }
        self.is_witnessed = true;
        Ok(())
    }

    fn step(&mut self, run: &Run, logs: &mut Logs) -> Result<(), Box<dyn std::error::Error>> {
        match self.rng.random_range(0..12) {
            0..6 => {
                let shard = self.rng.random_range(0..3);
                if self.rng.random() {
                    // Whoever does not say so is known by its acknowledgement.
                    self.rests = false;
                    run.busy(self.now_ms)?;
                }
                let index = logs.append(shard)?;
                if self.rng.random_ratio(5, 6) {
                    self.rests = false;
                    run.acknowledged(shard, index)?;
                    self.acknowledged.insert(shard, index);
                }
            }
            6 => logs.sync()?,
            7 => {
                logs.sync()?;
                run.synced(&logs.ends(), self.now_ms)?;
            }
            8 | 9 => {
                logs.sync()?;
                self.rests = run.quiesce(&logs.ends(), self.now_ms)?;
                assert!(self.rests);
            }
            // Somebody forgot that there was more to sync: it is refused, or true.
            10 => {
                let durable = logs.durable.clone();
                self.rests = run.quiesce(&durable, self.now_ms)?;
            }
            _ => {
                logs.sync()?;
                self.rests = run.close(&logs.ends(), self.now_ms)?;
                assert!(self.rests);
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        self.now_ms += 10;
        let seed = self.rng.random();
        let ends = [End::Process, End::PowerCut, End::Detached, End::MemoryLost];
        let end = ends[[0, 0, 0, 1, 1, 1, 2, 3][self.rng.random_range(0..8)]];
        let is_known = !self.is_gone && !self.is_doubtful;
        let may_go_back = self.copy.is_some() && self.is_witnessed && is_known;
        let goes_back = may_go_back && self.rng.random_ratio(1, 8);
        let end = if goes_back { End::WentBack } else { end };
        let loses = matches!(end, End::PowerCut | End::Detached);
        let crash = if loses { Crash::PowerCut } else { Crash::Process };
        self.data = self.data.crash(crash, seed);
        if self.rests && !goes_back && self.rng.random_ratio(1, 4) {
            (self.copy, self.is_witnessed) = (Some(self.data.crash(Crash::Process, 0)), false);
        }
        if let Some(copy) = self.copy.take_if(|_| goes_back) {
            (self.data, self.rests, self.went_back) = (copy, false, true);
        }
        match end {
            End::Process | End::Detached | End::WentBack => {
                self.memory = self.memory.crash(Crash::Process, 0);
            }
            End::MemoryLost => (self.memory, self.is_witnessed) = (super::memory(), false),
            End::PowerCut => {
                (self.memory, self.is_witnessed) = (super::memory(), false);
                self.boot += 1;
            }
        }
        self.is_unharmed &= end == End::Process;
    }
}

/// A file for each shard, of entries that are their own index.
struct Logs {
    data: Arc<dyn Dir>,
    files: BTreeMap<u32, (Arc<dyn File>, u64)>,
    durable: Ends,
}

impl Logs {
    /// What is there up to the first entry that is not, durable; the rest is cut off.
    fn recover(data: &SimDir) -> Self {
        let place = data.create_dir("logs").unwrap();
        // Who made a file may have died before its name was durable.
        place.sync().unwrap();
        let mut logs = Self { data: place, files: BTreeMap::new(), durable: Ends::new() };
        for name in logs.data.list().unwrap() {
            let file = logs.data.open(&name, SyncMethod::ORDINARY.access()).unwrap();
            let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
            file.read_at(&mut bytes, 0).unwrap();
            let whole = (1_u64..).zip(bytes.chunks_exact(8));
            let end = whole.take_while(|(index, entry)| index.to_le_bytes() == **entry).count();
            file.truncate(end as u64 * ENTRY_BYTES).unwrap();
            logs.files.insert(name.parse().unwrap(), (file, end as u64));
        }
        logs.sync().unwrap();
        logs
    }

    fn end(&self, shard: u32) -> u64 {
        self.files.get(&shard).map_or(0, |(_, end)| *end)
    }

    fn ends(&self) -> Ends {
        self.files.iter().map(|(shard, (_, end))| (*shard, *end)).collect()
    }

    fn append(&mut self, shard: u32) -> Result<u64, Box<dyn std::error::Error>> {
        if !self.files.contains_key(&shard) {
            let file = self.data.create(&shard.to_string(), SyncMethod::ORDINARY.access())?;
            self.files.insert(shard, (file, 0));
        }
        let (file, end) = self.files.get_mut(&shard).expect("it was just made");
        file.write_at(&(*end + 1).to_le_bytes(), *end * ENTRY_BYTES)?;
        *end += 1;
        Ok(*end)
    }

    fn sync(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        for (shard, (file, end)) in &self.files {
            file.sync(SyncMethod::ORDINARY)?;
            self.durable.insert(*shard, *end);
        }
        Ok(())
    }
}
