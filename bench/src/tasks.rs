//! Appenders that are tasks, as a server has them, instead of a thread for each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use plimsoll_log::{Ack, Log};
use tokio::task::JoinSet;

use crate::meter::{Records, histogram, random_pool, record, times};
use crate::task::{Task, Times};

/// Durable appends of all tasks until the time or the bytes are used up.
pub(crate) fn closed_loop(log: &Arc<Log>, task: &Task) -> Result<(u64, Times)> {
    let (bytes, appenders) = (task.cell.record_bytes, task.cell.appenders);
    let most = task.bytes_max / (appenders * bytes) as u64;
    let time = Duration::from_secs_f64(task.seconds);
    let pool = Arc::new(random_pool(bytes));
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let took = runtime.block_on(async {
        let mut all = JoinSet::new();
        for appender in 0..appenders {
            let (log, pool) = (Arc::clone(log), Arc::clone(&pool));
            all.spawn(async move {
                let mut records = Records::new(&pool, bytes, appender);
                one(&log, &mut records, time, most).await
            });
        }
        let mut took = histogram();
        while let Some(one) = all.join_next().await {
            took.add(&one??)?;
        }
        anyhow::Ok(took)
    })?;
    Ok((took.len(), times(&took)))
}

async fn one(
    log: &Log,
    records: &mut Records<'_>,
    time: Duration,
    most: u64,
) -> Result<Histogram<u64>> {
    let mut took = histogram();
    let begun = Instant::now();
    while took.len() < most {
        let start = Instant::now();
        let index = log.append_with(records.next(), Ack::Buffered)?;
        log.wait(index, Ack::Durable)?.await?;
        let end = Instant::now();
        record(&mut took, end - start);
        if end - begun >= time {
            break;
        }
    }
    Ok(took)
}
