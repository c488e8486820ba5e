//! Connects to a target's servers, and chooses a server for each call.
//! tonic balances by load and never retries. This code follows the service config instead: calls go to the addresses in
//! turn, and an address that failed is skipped for a while.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http::uri::Authority;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use crate::error::{Error, Result};
use crate::options::{Options, TlsOptions};
use crate::retry;
use crate::target::{Target, host_name};

/// The number of bytes that a server may send before the client acknowledges them. Answers are processed when they
/// arrive, so a large window needs little memory. A small window would make servers wait.
const WINDOW_BYTES: u32 = 16 << 20;

/// Size in bytes of the largest HTTP/2 frame. Larger frames need fewer system calls. With HTTP/2's default of 16 KiB,
/// 64 MiB would be 4096 frames.
const FRAME_BYTES: u32 = 1 << 20;

/// The timeout for an address that does not answer, as in gRPC's own implementations.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// The shortest time between two resolutions of a name. In Kubernetes, the addresses of a name may be cached for 5 s.
const RESOLVE_AGAIN: Duration = Duration::from_secs(5);

/// `None` means the unix socket.
pub(crate) type Address = Option<SocketAddr>;

#[derive(Clone)]
struct Server {
    address: Address,
    /// The connections, which calls use in turn. A connection is made at its first call.
    channels: Vec<Channel>,
    /// Until this time, calls prefer other servers.
    down_until: Option<Instant>,
}

pub(crate) struct Channels {
    pub target: Target,
    /// One endpoint for each of the target's hosts.
    endpoints: Vec<Endpoint>,
    connections: usize,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    servers: Vec<Server>,
    resolved: Option<Instant>,
    turn: usize,
}

impl Channels {
    pub fn new(target: &str, options: &Options) -> Result<Self> {
        let target = Target::parse(target)?;
        let tls = options.tls.clone().or_else(|| target.https.then(TlsOptions::default));
        for (option, is_set) in [("token", options.token.is_some()), ("token_file", options.token_file.is_some())] {
            if is_set && tls.is_none() && !target.is_local() {
                let fact = format!("would be sent in the clear to {}; must have TLS", target.text);
                return Err(Error::invalid_field(option, fact));
            }
        }
        let endpoint = |host: &Option<Authority>| endpoint(&target.text, host.as_ref(), tls.as_ref());
        let endpoints = target.hosts.iter().map(endpoint).collect::<Result<_>>()?;
        Ok(Self { target, endpoints, connections: options.connections.max(1), known: Mutex::default() })
    }

    /// Returns the next server in turn, and one of its connections.
    pub async fn next(&self) -> Result<(Address, Channel)> {
        let mut known = self.known.lock().await;
        let now = Instant::now();
        // If a server is down, the name may have other addresses now.
        let is_down = || known.servers.iter().any(|server| server.down_until > Some(now));
        if known.resolved.is_none_or(|when| when + RESOLVE_AGAIN < now && is_down()) {
            known.servers = self.resolve(&known.servers).await?;
            known.resolved = Some(now);
        }
        let (turn, count) = (known.turn, known.servers.len());
        known.turn += 1;
        let in_turn = (0..count).map(|i| &known.servers[(turn + i) % count]);
        // If all servers are down, takes the server that has been down longest.
        let server = in_turn.min_by_key(|server| server.down_until.filter(|until| *until > now));
        let server = server.ok_or_else(|| Error::new(Code::Unavailable, "the name has no address"))?;
        Ok((server.address, server.channels[turn / count % self.connections].clone()))
    }

    /// Notes that the server at `address` failed, so that calls prefer other servers for a while. Returns the number of
    /// servers.
    pub async fn failed(&self, address: Address) -> usize {
        let mut known = self.known.lock().await;
        for server in known.servers.iter_mut().filter(|server| server.address == address) {
            server.down_until = Some(Instant::now() + retry::MAX_BACKOFF);
        }
        known.servers.len()
    }

    /// Returns the servers of all addresses. Keeps the connections to addresses that are already known.
    async fn resolve(&self, known: &[Server]) -> Result<Vec<Server>> {
        let mut servers = Vec::new();
        for (host, endpoint) in self.target.hosts.iter().zip(&self.endpoints) {
            let addresses = match host {
                None => vec![None],
                Some(host) => {
                    let addresses = tokio::net::lookup_host(host.as_str()).await;
                    addresses.map_err(|error| Error::of_transport(&error))?.map(Some).collect()
                }
            };
            for address in addresses {
                let connect = |_| match address {
                    None => endpoint.connect_lazy(),
                    Some(address) => endpoint.connect_with_connector_lazy(service_fn(move |_| connect(address))),
                };
                let channels = || (0..self.connections).map(connect).collect();
                let kept = known.iter().find(|old| old.address == address).cloned();
                servers.push(kept.unwrap_or_else(|| Server { address, channels: channels(), down_until: None }));
            }
        }
        Ok(servers)
    }
}

/// Connects to one of a name's addresses.
async fn connect(address: SocketAddr) -> io::Result<TokioIo<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    // Turns off Nagle's algorithm, so that a small write does not wait for acknowledgements of earlier writes.
    stream.set_nodelay(true)?;
    Ok(TokioIo::new(stream))
}

/// Makes the endpoint of a host. Without a host, the target is a unix socket.
fn endpoint(target: &str, host: Option<&Authority>, tls: Option<&TlsOptions>) -> Result<Endpoint> {
    let wrong = |error: tonic::transport::Error| Error::invalid_field("target", Error::of_transport(&error).message());
    let scheme = if tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(host.map_or(target.to_owned(), |host| format!("{scheme}://{host}")))
        .and_then(|endpoint| endpoint.user_agent(concat!("posenc-rust/", env!("CARGO_PKG_VERSION"))))
        .map_err(wrong)?
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES);
    match tls {
        None => Ok(endpoint),
        Some(tls) => with_tls(endpoint, tls, host.map_or("localhost", host_name)),
    }
}

#[cfg(not(feature = "tls"))]
fn with_tls(_: Endpoint, _: &TlsOptions, _: &str) -> Result<Endpoint> {
    Err(Error::invalid_field("tls", "this program was built without the crate's feature `tls`"))
}

#[cfg(feature = "tls")]
fn with_tls(endpoint: Endpoint, tls: &TlsOptions, host: &str) -> Result<Endpoint> {
    use tonic::transport::{Certificate, ClientTlsConfig, Identity};
    let read = |option: &str, path: &Option<std::path::PathBuf>| {
        let missing = || Error::invalid_field(option, "is missing; certificate and key come together");
        let path = path.as_ref().ok_or_else(missing)?;
        let text = std::fs::read_to_string(path);
        text.map_err(|error| Error::invalid_field(option, format!("{}: {error}", path.display())))
    };
    let mut config = ClientTlsConfig::new().domain_name(tls.server_name.as_deref().unwrap_or(host));
    config = match &tls.ca_file {
        None => config.with_native_roots(),
        Some(path) => {
            let text = read("tls.ca_file", &tls.ca_file)?;
            if !text.contains("-----BEGIN CERTIFICATE-----") {
                let fact = format!("{}: holds no certificate; must be PEM", path.display());
                return Err(Error::invalid_field("tls.ca_file", fact));
            }
            config.ca_certificate(Certificate::from_pem(text))
        }
    };
    if tls.cert_file.is_some() || tls.key_file.is_some() {
        let (cert, key) = (read("tls.cert_file", &tls.cert_file)?, read("tls.key_file", &tls.key_file)?);
        config = config.identity(Identity::from_pem(cert, key));
    }
    endpoint.tls_config(config).map_err(|error| Error::invalid_field("tls", Error::of_transport(&error).message()))
}
