//! [`Runtime`]: tokio, with randomness that a test may fix.
//!
//! The engine draws its election timeouts. Everything else that it does follows from messages, from
//! what its store answers and from the clock, so with the draws fixed, on one thread and with a clock
//! of its own, a run can be repeated.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use openraft::{AsyncRuntime, OptionalSend};
use openraft_rt_tokio::TokioRuntime as Tokio;
use rand_core::TryRng;

use super::watch::Watch;
use crate::random;

thread_local! {
    static STATE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Fixes what engines draw on this thread from here on.
pub fn draw_from(seed: u64) {
    STATE.set(Some(seed));
}

/// Draws of this thread.
#[derive(Debug)]
pub(crate) struct Draws;

impl Draws {
    /// SplitMix64, of Steele, Lea and Flood (OOPSLA 2014).
    fn next() -> u64 {
        let state = STATE.get().unwrap_or_else(|| {
            let drawn = u128::from_le_bytes(random::bytes());
            u64::try_from(drawn >> 64).expect("it has 64 bits")
        });
        let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        STATE.set(Some(state));
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl TryRng for Draws {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((Self::next() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(Self::next())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&Self::next().to_le_bytes()[..piece.len()]);
        }
        Ok(())
    }
}

/// The engine's runtime.
#[derive(Debug)]
pub(crate) struct Runtime(Tokio);

impl AsyncRuntime for Runtime {
    type JoinError = <Tokio as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <Tokio as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <Tokio as AsyncRuntime>::Sleep;
    type Instant = <Tokio as AsyncRuntime>::Instant;
    type TimeoutError = <Tokio as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <Tokio as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = Draws;
    type Mpsc = <Tokio as AsyncRuntime>::Mpsc;
    type Watch = Watch;
    type Oneshot = <Tokio as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <Tokio as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        Tokio::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        Tokio::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        Tokio::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        Tokio::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        Tokio::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        Tokio::is_panic(join_error)
    }

    fn thread_rng() -> Draws {
        Draws
    }

    fn new(threads: usize) -> Self {
        Self(Tokio::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}
