//! Parses a target's text.

use std::net::IpAddr;

use http::uri::Authority;

use crate::error::{Error, Result};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Place {
    /// Host and port, one or several.
    Hosts(Vec<Authority>),
    /// A unix socket's path.
    Unix(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// The caller's text, for errors.
    pub text: String,
    pub place: Place,
    /// `https://` asks for TLS.
    pub https: bool,
}

impl Target {
    pub fn parse(text: &str) -> Result<Self> {
        let place = match text.strip_prefix("unix:").map(|path| path.strip_prefix("//").unwrap_or(path)) {
            Some("") => None,
            Some(path) => Some(Place::Unix(path.to_owned())),
            None => hosts(text).map(Place::Hosts),
        };
        let fact = format!("{text:?} is no target; must be host:port or unix:/path");
        let place = place.ok_or_else(|| Error::invalid_field("target", fact))?;
        Ok(Self { text: text.to_owned(), place, https: text.starts_with("https://") })
    }

    /// Returns whether the text shows that nothing leaves this machine.
    pub fn is_local(&self) -> bool {
        let is_loopback = |name: &str| name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        match &self.place {
            Place::Unix(_) => true,
            Place::Hosts(hosts) => hosts.iter().map(host_name).all(|name| name == "localhost" || is_loopback(name)),
        }
    }
}

/// Returns a host without its port and brackets.
pub(crate) fn host_name(host: &Authority) -> &str {
    host.host().trim_start_matches('[').trim_end_matches(']')
}

fn hosts(text: &str) -> Option<Vec<Authority>> {
    let schemes = ["http://", "https://", "dns:///", "dns:", "ipv4:", "ipv6:"];
    let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text).trim_end_matches('/');
    let is_whole = |host: &Authority| !host.host().is_empty() && host.port_u16().is_some();
    rest.split(',').map(|host| host.parse().ok().filter(is_whole)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_host_means_the_same() {
        for text in ["h:1", "http://h:1", "http://h:1/", "https://h:1", "dns:///h:1", "dns:h:1"] {
            let host = Authority::from_static("h:1");
            assert_eq!(Target::parse(text).unwrap().place, Place::Hosts(vec![host]), "{text}");
        }
        for text in ["unix:/a/b", "unix:///a/b"] {
            assert_eq!(Target::parse(text).unwrap().place, Place::Unix("/a/b".into()), "{text}");
        }
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
