//! Connections to a target's servers, and the choice of one for a call.
//! tonic balances by load and never retries, so this code follows the service config: calls go to the addresses in
//! turn, and an address that failed is skipped for a while.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use crate::error::{Error, Result};
use crate::options::Options;
use crate::retry;
use crate::socket::Address;
use crate::target::{Place, Target, host_name};

/// The most bytes that an endpoint may send before they are acknowledged. Answers are processed as they arrive, so a
/// large window costs little memory, and a small one would make servers wait.
const WINDOW_BYTES: u32 = 16 << 20;

/// Larger frames need fewer system calls: with HTTP/2's 16 KiB, 64 MiB are 4096 frames.
const FRAME_BYTES: u32 = 1 << 20;

/// gRPC's own timeout for an address that does not answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Kubernetes' names are valid for 5 s.
const RESOLVE_AGAIN: Duration = Duration::from_secs(5);

/// One server.
pub(crate) struct Server {
    address: Address,
    /// Used in turn; each connects at its first call.
    channels: Vec<Channel>,
    down_until: Mutex<Option<Instant>>,
}

impl Server {
    /// Makes calls prefer other servers for a while.
    pub fn failed(&self) {
        *self.down_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + retry::MAX_BACKOFF);
    }

    fn down_until(&self) -> Option<Instant> {
        let until = *self.down_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.filter(|until| *until > Instant::now())
    }
}

pub(crate) struct Channels {
    target: Target,
    options: Options,
    /// One for each of the target's hosts.
    endpoints: Vec<Endpoint>,
    known: Mutex<Known>,
    turn: AtomicUsize,
}

#[derive(Default)]
struct Known {
    servers: Vec<Arc<Server>>,
    resolved: Option<Instant>,
}

impl Channels {
    pub fn new(target: &str, options: &Options) -> Result<Self> {
        let target = Target::parse(target)?;
        let mut options = options.clone();
        if target.https && options.tls.is_none() {
            options.tls = Some(Default::default());
        }
        if options.shows_token() && !target.is_local() {
            let option = if options.token.is_some() { "token" } else { "token_file" };
            let fact = format!("would be sent in the clear to {}; must have TLS", target.text);
            return Err(Error::invalid_field(option, fact));
        }
        // gRPC's name for the server of a unix socket.
        let local = ["localhost".to_owned()];
        let hosts = if let Place::Hosts(hosts) = &target.place { hosts.as_slice() } else { &local };
        let endpoints = hosts.iter().map(|host| endpoint(host, &options)).collect::<Result<_>>()?;
        Ok(Self { target, options, endpoints, known: Mutex::default(), turn: AtomicUsize::new(0) })
    }

    pub fn target(&self) -> &str {
        &self.target.text
    }

    pub fn servers(&self) -> usize {
        self.known().servers.len()
    }

    /// Returns the next server in turn, and one of its connections.
    pub async fn next(&self) -> Result<(Arc<Server>, Channel)> {
        if self.must_resolve() {
            self.resolve().await?;
        }
        let servers = self.known().servers.clone();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let in_turn = || (0..servers.len()).map(|i| &servers[(turn + i) % servers.len()]);
        // If all are down, take the one that has been down longest: None is less than every time.
        let server = in_turn().min_by_key(|server| server.down_until());
        let server = server.ok_or_else(|| Error::new(Code::Unavailable, "the name has no address"))?;
        let channel = &server.channels[turn / servers.len() % server.channels.len()];
        Ok((server.clone(), channel.clone()))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn must_resolve(&self) -> bool {
        let known = self.known();
        // The servers may have been replaced.
        let is_down = || known.servers.iter().any(|server| server.down_until().is_some());
        known.resolved.is_none_or(|when| when.elapsed() > RESOLVE_AGAIN && is_down())
    }

    async fn resolve(&self) -> Result<()> {
        let mut found = Vec::new();
        match &self.target.place {
            Place::Unix(path) => found.push((Address::Unix(path.into()), &self.endpoints[0])),
            Place::Hosts(hosts) => {
                for (host, endpoint) in hosts.iter().zip(&self.endpoints) {
                    let addresses = tokio::net::lookup_host(host).await;
                    for address in addresses.map_err(|error| Error::of_transport(&error))? {
                        if self.options.shows_token() && !address.ip().is_loopback() {
                            return Err(Error::invalid_field("token", format!("{host} is {address}; must have TLS")));
                        }
                        found.push((Address::Tcp(address), endpoint));
                    }
                }
            }
        }
        let mut known = self.known();
        // Connections to addresses that stay are kept.
        let kept = |address: &Address| known.servers.iter().find(|old| old.address == *address).cloned();
        let servers = found
            .into_iter()
            .map(|(address, endpoint)| kept(&address).unwrap_or_else(|| Arc::new(self.server(address, endpoint))));
        *known = Known { servers: servers.collect(), resolved: Some(Instant::now()) };
        Ok(())
    }

    fn server(&self, address: Address, endpoint: &Endpoint) -> Server {
        let channel = |_| {
            let address = address.clone();
            endpoint.connect_with_connector_lazy(service_fn(move |_| address.clone().connect()))
        };
        let channels = (0..self.options.connections.max(1)).map(channel).collect();
        Server { address, channels, down_until: Mutex::new(None) }
    }
}

fn endpoint(host: &str, options: &Options) -> Result<Endpoint> {
    let wrong = |error: tonic::transport::Error| {
        Error::invalid_field("target", format!("{host:?}: {}", Error::of_transport(&error).message()))
    };
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{host}"))
        .map_err(wrong)?
        .user_agent(concat!("posenc-rust/", env!("CARGO_PKG_VERSION")))
        .map_err(wrong)?
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES);
    match &options.tls {
        None => Ok(endpoint),
        Some(tls) => with_tls(endpoint, tls, host_name(host)),
    }
}

#[cfg(not(feature = "tls"))]
fn with_tls(_: Endpoint, _: &crate::options::TlsOptions, _: &str) -> Result<Endpoint> {
    Err(Error::invalid_field("tls", "this program was built without the crate's feature `tls`"))
}

#[cfg(feature = "tls")]
fn with_tls(endpoint: Endpoint, tls: &crate::options::TlsOptions, host: &str) -> Result<Endpoint> {
    use tonic::transport::{Certificate, ClientTlsConfig, Identity};
    let read = |option: &str, path: &std::path::Path| {
        let text = std::fs::read_to_string(path);
        text.map_err(|error| Error::invalid_field(option, format!("{}: {error}", path.display())))
    };
    let mut config = ClientTlsConfig::new().domain_name(tls.server_name.as_deref().unwrap_or(host));
    config = match &tls.ca_file {
        None => config.with_native_roots(),
        Some(path) => {
            let text = read("tls.ca_file", path)?;
            if !text.contains("-----BEGIN CERTIFICATE-----") {
                let fact = format!("{}: holds no certificate; must be PEM", path.display());
                return Err(Error::invalid_field("tls.ca_file", fact));
            }
            config.ca_certificate(Certificate::from_pem(text))
        }
    };
    match (&tls.cert_file, &tls.key_file) {
        (None, None) => {}
        (Some(cert), Some(key)) => {
            config = config.identity(Identity::from_pem(read("tls.cert_file", cert)?, read("tls.key_file", key)?));
        }
        (cert, _) => {
            let missing = if cert.is_none() { "tls.cert_file" } else { "tls.key_file" };
            return Err(Error::invalid_field(missing, "is missing; certificate and key come together"));
        }
    }
    endpoint.tls_config(config).map_err(|error| Error::invalid_field("tls", Error::of_transport(&error).message()))
}
