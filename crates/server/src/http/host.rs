//! [`Hosts`]: the names that a request may call this machine by.
//!
//! A name that somebody else owns can be made to point here (DNS rebinding), and a browser would then let
//! a page of theirs read the answers. An address, `localhost` and the name that clients are told cannot.

use std::net::IpAddr;

/// The names that are answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Hosts {
    /// What clients are told to connect to.
    pub(super) advertised: Option<String>,
}

impl Hosts {
    /// Whether a `Host` header, with a port or without, names this machine.
    pub(super) fn allow(&self, header: &str) -> bool {
        let Some(host) = without_port(header) else { return false };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_ours = |name: &str| name.eq_ignore_ascii_case(host);
        bare.parse::<IpAddr>().is_ok()
            || is_ours("localhost")
            || self.advertised.as_deref().is_some_and(is_ours)
    }
}

/// `None` if the port is none.
fn without_port(header: &str) -> Option<&str> {
    let split =
        header.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
    let Some((host, port)) = split else { return Some(header) };
    port.parse::<u16>().is_ok().then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_nobody_else_can_own_are_answered() {
        let hosts = Hosts { advertised: Some("broker.example".to_owned()) };
        for ours in [
            "127.0.0.1",
            "127.0.0.1:9093",
            "[::1]:9093",
            "[::1]",
            "::1",
            "localhost",
            "LocalHost:9093",
            "broker.example:9093",
            "Broker.Example",
        ] {
            assert!(hosts.allow(ours), "{ours}");
            let is_name = ours.to_ascii_lowercase().starts_with("broker");
            assert_eq!(Hosts::default().allow(ours), !is_name, "{ours}");
        }
        for theirs in [
            "",
            ":9093",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:9093",
            "localhost:port",
            "localhost:99999",
            "[localhost]",
            "127.0.0.1@evil.example",
        ] {
            assert!(!hosts.allow(theirs), "{theirs}");
        }
    }
}
