//! Options of clients and calls.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, Result};

/// Options of TLS. The files are PEM files, which are read when the client is made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TlsOptions {
    /// Certificate authorities that the client trusts. `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// The client's own certificate, followed by its issuers, for servers that require one.
    pub cert_file: Option<PathBuf>,
    /// The certificate's key, without a passphrase.
    pub key_file: Option<PathBuf>,
    /// The name that the server's certificate must have. `None`: the target's host name.
    pub server_name: Option<String>,
}

/// Options of a client. The clients of all languages have the same default timeout and largest message.
#[derive(Clone, Debug)]
pub struct Options {
    /// Default deadline of a unary call. For a stream: the longest time without progress.
    pub timeout: Duration,
    /// Maximum size of a message in bytes, in both directions. The default equals the server's default. If the server's
    /// limits are raised, raise this limit, too.
    pub max_message_bytes: usize,
    /// Size in bytes above which `apply_rope` and `reposition` use a stream instead of one message. `None`:
    /// max_message_bytes.
    pub stream_above_bytes: Option<usize>,
    /// Number of connections to each server. Calls use the connections in turn. One connection uses at most one core,
    /// so more connections are faster for many large calls at once.
    pub connections: usize,
    /// Options of TLS. `None`: plaintext, unless the target begins with `https://`.
    pub tls: Option<TlsOptions>,
    /// The bearer token of every call. A token is never sent to another machine without TLS.
    pub token: Option<String>,
    /// A file that contains only the token. The file is read again when it changes.
    pub token_file: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            max_message_bytes: 512 << 20,
            stream_above_bytes: None,
            connections: 1,
            tls: None,
            token: None,
            token_file: None,
        }
    }
}

impl Options {
    /// Returns target and options from the environment: POSENC_SERVER (default localhost:50051), POSENC_TLS=1,
    /// POSENC_TLS_CA, POSENC_TLS_CERT, POSENC_TLS_KEY, POSENC_TLS_SERVER_NAME, POSENC_TOKEN, POSENC_TOKEN_FILE.
    pub fn from_env() -> Result<(String, Self)> {
        Self::from_variables(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<(String, Self)> {
        let tls = TlsOptions {
            ca_file: get("POSENC_TLS_CA").map(PathBuf::from),
            cert_file: get("POSENC_TLS_CERT").map(PathBuf::from),
            key_file: get("POSENC_TLS_KEY").map(PathBuf::from),
            server_name: get("POSENC_TLS_SERVER_NAME"),
        };
        let is_named = tls != TlsOptions::default();
        let with_tls = match get("POSENC_TLS").as_deref() {
            None => is_named,
            Some("1" | "true") => true,
            Some("0" | "false") if !is_named => false,
            Some(other) => {
                let fact = format!("is {other:?}; must be 1, or 0 without POSENC_TLS_*");
                return Err(Error::invalid_field("POSENC_TLS", fact));
            }
        };
        let options = Self {
            tls: with_tls.then_some(tls),
            token: get("POSENC_TOKEN"),
            token_file: get("POSENC_TOKEN_FILE").map(PathBuf::from),
            ..Self::default()
        };
        Ok((get("POSENC_SERVER").unwrap_or_else(|| "localhost:50051".to_owned()), options))
    }
}

/// Options of single calls; see [`Client::with`](crate::Client::with).
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// Deadline of the whole call, also of a stream. `None`: the client's timeout.
    pub timeout: Option<Duration>,
    /// The call's id in the server's log. `None`: a random id.
    pub request_id: Option<String>,
    /// The caller's W3C trace context.
    pub traceparent: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<(String, Options)> {
        Options::from_variables(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn an_empty_environment_means_the_local_server_without_tls() {
        let (target, options) = from(&[]).unwrap();
        assert_eq!(target, "localhost:50051");
        assert!(options.tls.is_none());
    }

    #[test]
    fn a_ca_file_alone_asks_for_tls() {
        let (_, options) = from(&[("POSENC_TLS_CA", "/ca.pem")]).unwrap();
        assert_eq!(options.tls.unwrap().ca_file, Some(PathBuf::from("/ca.pem")));
    }

    #[test]
    fn tls_off_beside_tls_files_is_refused() {
        let error = from(&[("POSENC_TLS", "0"), ("POSENC_TLS_CA", "/ca.pem")]).unwrap_err();
        assert!(error.message().starts_with("POSENC_TLS"), "{error}");
    }
}
