//! [`Lobby`]: who is answered while there is no node: it opens, or closes. Whoever finds nobody at an address takes the
//! broker for dead, and may kill what only reads what it has.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::StatusCode;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::reply::Reply;
use super::server::{Http, take, talk};

/// What there is instead of a node.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Absence {
    /// What its directory has is being read.
    Opening,
    /// It ends, or is to open again.
    Closing,
}

/// What is answered, whatever is asked.
#[derive(Debug, Serialize)]
struct Answer {
    status: Absence,
    error: &'static str,
}

/// Answers everybody that the broker is there and not open, until it is dropped.
#[derive(Debug)]
pub struct Lobby {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Lobby {
    /// Answers at this address, on a thread of its own.
    ///
    /// # Errors
    /// There can be no thread, or nobody can listen there.
    pub fn open(at: &Http, absence: Absence) -> io::Result<Self> {
        let (stop, stopping) = watch::channel(false);
        let at = at.listener.try_clone()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _on = runtime.enter();
            TcpListener::from_std(at)?
        };
        let answer =
            move |stream| talk(stream, stopping.clone(), move |_| async move { said(absence) });
        // The broker waits for it, and for nobody's half a request.
        let answering = take(listener, stop.subscribe(), Duration::ZERO, answer);
        let thread = std::thread::Builder::new().name("lobby".to_owned());
        let thread = thread.spawn(move || runtime.block_on(answering))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Lobby {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic there was printed there.
            drop(thread.join());
        }
    }
}

fn said(absence: Absence) -> Reply {
    let error = match absence {
        Absence::Opening => "the broker opens: what it has is being read; ask again in a moment",
        Absence::Closing => "the broker closes",
    };
    Reply::json(StatusCode::SERVICE_UNAVAILABLE, &Answer { status: absence, error })
}
