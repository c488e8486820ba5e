//! Parses a target's text.

use std::net::IpAddr;

use crate::error::{Error, Result};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Place {
    /// `host:port`, one or several; brackets around IPv6 addresses.
    Hosts(Vec<String>),
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
        let wrong = |fact: &str| Error::invalid_field("target", format!("{text:?} {fact}"));
        let target = |place, https| Ok(Self { text: text.to_owned(), place, https });
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() {
                Err(wrong("names no socket"))
            } else {
                target(Place::Unix(path.to_owned()), false)
            };
        }
        let https = text.starts_with("https://");
        let schemes = ["http://", "https://", "dns:///", "dns:", "ipv4:", "ipv6:"];
        let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text).trim_end_matches('/');
        let hosts: Vec<String> = rest.split(',').map(str::to_owned).collect();
        for host in &hosts {
            let port = host.rsplit_once(':').filter(|(name, _)| !name.is_empty() && !host.ends_with(']'));
            let Some((_, port)) = port else { return Err(wrong("has no port; must be host:port or unix:/path")) };
            if host.contains('/') || port.parse::<u16>().is_err() {
                return Err(wrong("is no target; must be host:port or unix:/path"));
            }
        }
        target(Place::Hosts(hosts), https)
    }

    /// Returns whether the text shows that nothing leaves this machine.
    pub fn is_local(&self) -> bool {
        match &self.place {
            Place::Unix(_) => true,
            Place::Hosts(hosts) => hosts.iter().all(|host| {
                let name = host_name(host);
                name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }),
        }
    }
}

/// Returns a host without its port and brackets.
pub(crate) fn host_name(host: &str) -> &str {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_host_means_the_same() {
        for text in ["h:1", "http://h:1", "http://h:1/", "https://h:1", "dns:///h:1", "dns:h:1"] {
            assert_eq!(Target::parse(text).unwrap().place, Place::Hosts(vec!["h:1".into()]), "{text}");
        }
        assert_eq!(Target::parse("unix:/a/b").unwrap().place, Place::Unix("/a/b".into()));
        assert_eq!(Target::parse("unix:///a/b").unwrap().place, Place::Unix("/a/b".into()));
    }

    #[test]
    fn a_target_without_port_is_refused() {
        for text in ["", "h", "http://h", "[::1]", "h:x", ":1", "dns://resolver/h:1", "unix:"] {
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
