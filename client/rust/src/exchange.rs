//! One gRPC call over a connection: it sends the request's bytes piece by piece while it waits for the answer.
//! tonic's own codec would hold a message in one buffer, and copy it in and out. Here the caller's task copies its
//! tensor into small buffers that it reuses, and copies received bytes directly to their place:
//!
//! ```text
//!   caller's memory --copy--> buffers of 256 KiB --> HTTP/2, socket
//!   caller's memory <--copy-- received frames    <-- HTTP/2, socket
//! ```

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body as _, Frame};
use tokio::sync::mpsc;
use tonic::transport::Channel;
use tower_service::Service;

use crate::error::{Error, Result};

/// Buffers ready for the connection's task, so that it need not wait for the caller's task.
const BUFFERS_AHEAD: usize = 4;

struct RequestBody(mpsc::Receiver<Bytes>);

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// The request's bytes that the caller has provided so far.
pub(crate) struct Upload(mpsc::Sender<Bytes>);

impl Upload {
    /// Waits until another buffer may be sent. `None`: the server has stopped reading, and its answer says why.
    pub async fn room(&self) -> Option<mpsc::Permit<'_, Bytes>> {
        self.0.reserve().await.ok()
    }
}

/// Resolves to the answer as soon as its headers have arrived.
pub(crate) type Response = Pin<Box<dyn Future<Output = Result<Incoming>> + Send>>;

/// Starts a call.
pub(crate) fn start(
    mut channel: Channel,
    head: http::request::Builder,
    max_message_bytes: usize,
) -> Result<(Upload, Response)> {
    let (upload, body) = mpsc::channel(BUFFERS_AHEAD);
    let request = head
        .body(tonic::body::Body::new(RequestBody(body)))
        .map_err(|error| Error::invalid_field("metadata", error))?;
    let response = Box::pin(async move {
        let ready = poll_fn(|cx| Service::poll_ready(&mut channel, cx)).await;
        ready.map_err(|error| Error::of_transport(&error))?;
        let response = channel.call(request).await.map_err(|error| Error::of_transport(&error))?;
        Incoming::of(response, max_message_bytes)
    });
    Ok((Upload(upload), response))
}

/// The bytes of a response, in the pieces that arrive.
pub(crate) struct Incoming {
    body: tonic::body::Body,
    piece: Bytes,
    trailers: Option<HeaderMap>,
    max_message_bytes: usize,
}

impl Incoming {
    fn of(response: http::Response<tonic::body::Body>, max_message_bytes: usize) -> Result<Self> {
        let (head, body) = response.into_parts();
        // An answer without a message has its trailers in its headers.
        if let Some(error) = Error::of_trailers(&head.headers) {
            return Err(error);
        }
        if head.status != http::StatusCode::OK {
            return Err(Error::of_http(head.status));
        }
        let trailers = head.headers.contains_key("grpc-status").then_some(head.headers);
        Ok(Self { body, piece: Bytes::new(), trailers, max_message_bytes })
    }

    /// Waits for bytes; false at the end.
    async fn fill(&mut self) -> Result<bool> {
        while self.piece.is_empty() {
            let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await;
            let Some(frame) = frame else { return Ok(false) };
            match frame.map_err(|status| Error::of_transport(&status))?.into_data() {
                Ok(data) => self.piece = data,
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
        Ok(true)
    }

    /// Returns the length of the next message; `None` if the call has succeeded.
    pub async fn next_message(&mut self) -> Result<Option<usize>> {
        if !self.fill().await? {
            let Some(trailers) = &self.trailers else {
                return Err(Error::of_transport(&Error::internal("the answer broke off")));
            };
            return Error::of_trailers(trailers).map_or(Ok(None), Err);
        }
        let mut prefix = [0; 5];
        self.read(&mut prefix).await?;
        let [compressed, length @ ..] = prefix;
        if compressed != 0 {
            return Err(Error::internal("the answer is compressed, which nobody asked for"));
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > self.max_message_bytes {
            return Err(Error::new(
                tonic::Code::ResourceExhausted,
                format!(
                    "the answer has {length} bytes; this client's limit is {}: raise Options::max_message_bytes",
                    self.max_message_bytes
                ),
            ));
        }
        Ok(Some(length))
    }

    pub async fn read(&mut self, mut into: &mut [u8]) -> Result<()> {
        while !into.is_empty() {
            if !self.fill().await? {
                // If the server ended the call itself, the trailers say why.
                let told = self.trailers.as_ref().and_then(Error::of_trailers);
                return Err(told.unwrap_or_else(|| Error::internal("the answer ends within a message")));
            }
            let count = into.len().min(self.piece.len());
            let (now, later) = into.split_at_mut(count);
            self.piece.copy_to_slice(now);
            into = later;
        }
        Ok(())
    }
}
