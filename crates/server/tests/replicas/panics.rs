//! Panics of the engine's tasks, which nobody else hears of.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Notes panics of this thread from here on.
pub(crate) fn listen() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            tell(info);
            PANICS.with_borrow_mut(|panics| panics.push(info.to_string()));
        }));
    });
    PANICS.take();
}

/// # Panics
/// If a task did.
pub(crate) fn none() {
    let panics = PANICS.take();
    assert!(panics.is_empty(), "a task panicked: {panics:#?}");
}
