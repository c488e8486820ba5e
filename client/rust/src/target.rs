//! Parses a target's text.

use std::net::IpAddr;

use http::uri::Authority;

use crate::error::{Error, Result};

pub(crate) struct Target {
    /// The caller's text, for errors.
    pub text: String,
    /// Host and port of each server. `None` is the unix socket that the text names.
    pub hosts: Vec<Option<Authority>>,
    /// Whether the text begins with `https://`, which requires TLS.
    pub https: bool,
}

impl Target {
    pub fn parse(text: &str) -> Result<Self> {
        let hosts = match text.strip_prefix("unix:") {
            Some("" | "//") => None,
            Some(_) => Some(vec![None]),
            None => hosts(text),
        };
        let fact = format!("{text:?} is no target; must be host:port or unix:/path");
        let hosts = hosts.ok_or_else(|| Error::invalid_field("target", fact))?;
        Ok(Self { text: text.to_owned(), hosts, https: text.starts_with("https://") })
    }

    /// Returns whether all servers are on this machine, according to the text.
    pub fn is_local(&self) -> bool {
        let is_loopback = |name: &str| name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        self.hosts.iter().flatten().map(host_name).all(|name| name == "localhost" || is_loopback(name))
    }
}

/// Returns a host without its port and brackets.
pub(crate) fn host_name(host: &Authority) -> &str {
    host.host().trim_start_matches('[').trim_end_matches(']')
}

fn hosts(text: &str) -> Option<Vec<Option<Authority>>> {
    let schemes = ["http://", "https://", "dns:///", "dns:", "ipv4:", "ipv6:"];
    let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text).trim_end_matches('/');
    let is_whole = |host: &Authority| !host.host().is_empty() && host.port_u16().is_some();
    rest.split(',').map(|host| host.parse().ok().filter(is_whole).map(Some)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_host_means_the_same() {
        for text in ["h:1", "http://h:1", "http://h:1/", "https://h:1", "dns:///h:1", "dns:h:1"] {
            assert_eq!(Target::parse(text).unwrap().hosts, [Some(Authority::from_static("h:1"))], "{text}");
        }
        assert_eq!(Target::parse("unix:/a/b").unwrap().hosts, [None]);
    }

    #[test]
    fn a_target_without_port_is_refused() {
        for text in ["", "h", "http://h", "[::1]", "h:x", ":1", "dns://resolver/h:1", "unix:", "unix://"] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_loopback_and_unix_sockets_are_local() {
        for text in ["localhost:1", "127.0.0.2:1", "[::1]:1", "unix:/a", "dns:///localhost:1"] {
            assert!(Target::parse(text).unwrap().is_local(), "{text}");
        }
        for text in ["posenc:1", "10.0.0.1:1", "127.0.0.1.example:1", "127.0.0.1:1,10.0.0.1:1"] {
            assert!(!Target::parse(text).unwrap().is_local(), "{text}");
        }
    }
}
