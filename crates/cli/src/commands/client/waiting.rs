//! [`Waiting`]: says that an acknowledgement is long in coming, while it is waited for.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::TIMEOUT;
use crate::interrupt::interrupted;
use crate::output;

/// So long nothing is said.
const SILENT: Duration = Duration::from_secs(3);
/// How soon it is seen that somebody wants to stop.
const LOOK: Duration = Duration::from_millis(200);

/// Who says it: begun with the first batch, and told of each that is sent and acknowledged.
#[derive(Debug, Default)]
pub(super) struct Waiting(Option<Sender<Option<String>>>);

/// A batch that is waited for.
pub(super) struct Batch(Option<Sender<Option<String>>>);

impl Waiting {
    /// A batch is waited for as long as what is returned is there.
    pub(super) fn begins(&mut self, topic: &str, partition: i32) -> Batch {
        if self.0.is_none() {
            let (sender, batches) = channel();
            let says = move || {
                while let Ok(batch) = batches.recv() {
                    let Some(batch) = batch else { continue };
                    let (mut waited, mut was_asked) = (Duration::ZERO, false);
                    while let Err(RecvTimeoutError::Timeout) = batches.recv_timeout(LOOK) {
                        waited += LOOK;
                        if waited == SILENT {
                            output::news(&format!(
                                "nobody acknowledges {batch} yet: it is given up after {} s or so; `plimsoll cluster status`, or `plimsoll broker status`, \
                                 says whether its shard is led, /health of its leader why that takes nothing; or min.insync.replicas of its topic asks for more brokers than are in sync",
                                TIMEOUT.as_secs()
                            ));
                        }
                        if interrupted() && !was_asked {
                            was_asked = true;
                            output::news(&format!(
                                "stopping once it is known whether {batch} is there; once more ends at once, and it stays unknown"
                            ));
                        }
                    }
                }
            };
            // Where there is no thread nothing is said.
            let begun = thread::Builder::new().name("waiting".to_owned()).spawn(says);
            self.0 = begun.ok().map(|_says| sender);
        }
        let sender = self.0.clone();
        if let Some(sender) = &sender {
            sender.send(Some(format!("a batch for partition {partition} of {topic}"))).ok();
        }
        Batch(sender)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(sender) = &self.0 {
            sender.send(None).ok();
        }
    }
}
