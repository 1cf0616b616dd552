//! [`heavy`]: what a client may have a CPU do for long, on threads of their own and few at a time, so that others are answered
//! meanwhile.

use std::sync::LazyLock;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// At once: half of the CPUs.
static TURNS: LazyLock<Semaphore> = LazyLock::new(|| {
    let cpus = available_parallelism().map_or(1, usize::from);
    Semaphore::new((cpus / 2).max(1))
});

/// Does it elsewhere. `None` if the runtime ends.
pub(super) async fn heavy<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let _turn = TURNS.acquire().await.ok()?;
    spawn_blocking(work).await.ok()
}
