//! Makes connections.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tower_service::Service;

use crate::gather::Gather;

/// gRPC's own timeout for an address that does not answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl Socket for TcpStream {}
impl Socket for UnixStream {}

#[derive(Clone, PartialEq)]
pub(crate) enum Connector {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Connector {
    async fn connect(self) -> io::Result<Box<dyn Socket>> {
        match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                // Small writes must not wait for earlier acknowledgements.
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            Self::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Gather<Box<dyn Socket>>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let connected = tokio::time::timeout(CONNECT_TIMEOUT, connector.connect()).await;
            let socket = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            Ok(TokioIo::new(Gather::new(socket)))
        })
    }
}
