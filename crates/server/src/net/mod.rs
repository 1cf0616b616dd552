//! Sockets: connections that are taken, read and answered.
//!
//! | file | what |
//! | --- | --- |
//! | `listener.rs` | [`Listener`]: takes connections, until it is told to stop |
//! | `connection.rs` | one connection: frames in, answers out, in their order |
//! | `counters.rs` | what clients ask and are answered, counted for whoever watches |
//! | `held.rs` | for how long a request was held by a bound on memory |
//! | `silence.rs` | for how long nothing has happened on a connection |
//! | `limits.rs` | how much connections may ask for, and how long they may be silent |

mod connection;
mod counters;
mod held;
mod limits;
mod listener;
mod silence;

pub(crate) use self::connection::write_all;
pub use self::counters::{BOUNDS_US, Counters, Latency};
pub use self::limits::Limits;
pub use self::listener::Listener;
