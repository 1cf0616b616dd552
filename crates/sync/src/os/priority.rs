//! [`step_back`]: which threads go first where CPUs are short.

/// From here on this thread lets others go first where CPUs are short: for work that nobody waits for, or that takes
/// long anyway. On Linux a nice value is a thread's own (setpriority(2), "C library/kernel differences"); elsewhere
/// nothing happens.
pub fn step_back() {
    #[cfg(target_os = "linux")]
    {
        const NICE: i32 = 10;
        // One that must not goes on as it was.
        rustix::process::setpriority_process(None, NICE).ok();
    }
}
