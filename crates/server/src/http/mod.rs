//! What an operator sees: health, metrics, topics, and a page, over HTTP on an address of its own.
//!
//! A `GET` changes nothing, but that a wait may ask for a sync; a `POST` is a command of an operator. Nobody has
//! to say who they are, so it is served as the broker is: to this machine only, unless others are wanted. A page
//! of somewhere else that a browser shows can neither read it under another name (`host.rs`) nor command it.
//!
//! | file | what |
//! | --- | --- |
//! | `server.rs` | [`Http`]: takes connections, reads requests within bounds |
//! | `lobby.rs` | [`Lobby`]: who is answered while the broker opens or closes |
//! | `host.rs` | which names a browser may know it by |
//! | `route.rs` | what is asked for: pure |
//! | `command.rs` | what an operator has the cluster do |
//! | `wrong.rs` | why a request asks for nothing that there is |
//! | `view.rs` | what is looked at: the node, its counters, and the last minutes |
//! | `answer.rs` | what each route shows of it |
//! | `reply.rs` | an answer, and how a problem is said |
//! | `health.rs` | is it well: `/health`, `/ready` |
//! | `metrics.rs` | all figures for Prometheus: `/metrics` |
//! | `history.rs` | the last minutes, a look a second |
//! | `page.rs` | the status page: `/` |
//! | `mark.rs` | the ship: how deep what is at risk lets her lie |
//! | `units.rs` | numbers as people read them |

mod answer;
mod command;
mod health;
mod history;
mod host;
mod lobby;
mod mark;
mod metrics;
mod page;
mod reply;
mod route;
mod server;
mod units;
mod view;
mod wrong;

pub use self::lobby::{Absence, Lobby};
pub use self::server::Http;
