//! Makes a call: deadline, headers, attempts.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Code;
use tonic::client::GrpcService;

use crate::channels::{Channels, Server};
use crate::error::{Error, Result};
use crate::message::{CHUNK_BYTES, Incoming, Outgoing, RequestBody, Results, unfit};
use crate::options::{CallOptions, Options};
use crate::retry;
use crate::slot::{Memory, Slot, bytes_of};
use crate::token::Bearer;
use crate::v1::{self, Tensor};

/// Deadline of a stream whose only limit is progress. Without a deadline the server would set its default.
const LONGEST_STREAM: Duration = Duration::from_secs(24 * 3600);

/// A longer timeout could overflow the clock.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Longest wait of a failed call for the server's version, for the error's text.
const VERSION_TIMEOUT: Duration = Duration::from_secs(1);

/// The largest message of protobuf.
const MAX_PROTO_BYTES: usize = (1 << 31) - 1;

/// Buffers ready for the connection's task, so that it need not wait for the caller's task.
const BUFFERS_AHEAD: usize = 4;

struct Shared {
    channels: Channels,
    bearer: Option<Bearer>,
    options: Options,
}

/// A client with the options of its calls.
#[derive(Clone)]
pub(crate) struct Calls {
    shared: Arc<Shared>,
    pub options: CallOptions,
    /// End of all requests of a call with its own timeout.
    deadline: Option<Instant>,
}

/// The deadline of a call, and the longest time without progress.
#[derive(Clone, Copy)]
struct Patience {
    deadline: Instant,
    timeout: Duration,
    standstill: Duration,
}

impl Patience {
    /// Waits for a step of the call.
    async fn wait<T>(&self, step: impl Future<Output = Result<T>>) -> Result<T> {
        let until = self.deadline.min(Instant::now() + self.standstill);
        timeout_at(until, step).await.unwrap_or_else(|_| {
            let text = if Instant::now() < self.deadline {
                format!("the stream stood still for {:?}", self.standstill)
            } else {
                format!("no answer within {:?}", self.timeout)
            };
            Err(Error::new(Code::DeadlineExceeded, text))
        })
    }
}

impl Calls {
    pub fn new(target: &str, options: Options) -> Result<Self> {
        let channels = Channels::new(target, &options)?;
        let shared = Shared { channels, bearer: Bearer::of(&options)?, options };
        Ok(Self { shared: Arc::new(shared), options: CallOptions::default(), deadline: None })
    }

    /// Prepares a call that may make several requests: its own timeout bounds all of them together. The client's
    /// timeout bounds each.
    pub fn until_timeout(&self) -> Self {
        let deadline = self.options.timeout.map(|timeout| Instant::now() + timeout.min(LONGEST_TIMEOUT));
        Self { deadline, ..self.clone() }
    }

    fn max_message_bytes(&self) -> usize {
        self.shared.options.max_message_bytes.min(MAX_PROTO_BYTES)
    }

    fn stream_above_bytes(&self) -> usize {
        self.shared.options.stream_above_bytes.unwrap_or(usize::MAX).min(self.max_message_bytes())
    }

    /// Makes a call with one message each way, without tensors in the caller's memory.
    pub async fn unary<M: Message + Default>(&self, method: &'static str, request: &impl Message) -> Result<M> {
        self.tensors(method, request, &mut []).await
    }

    /// Makes a call with one message each way; results go to the slots. Returns the answer without their elements.
    pub async fn tensors<M: Message + Default>(
        &self,
        method: &'static str,
        request: &impl Message,
        slots: &mut [Slot<'_>],
    ) -> Result<M> {
        let calls = self.until_timeout();
        if let Some(answer) = calls.by_place(method, request, slots).await? {
            return decode(answer);
        }
        decode(calls.exchange(method, &Outgoing::unary(request, slots, false), slots, false).await?)
    }

    /// Rotates the slots, by a stream if they are too large for a message. `ids` returns the request's tensors of
    /// positions, in the order in which a stream sends them.
    pub async fn rotate<R: Message + Clone, M: Message + Default>(
        &self,
        [method, stream_method]: [&'static str; 2],
        request: &R,
        ids: impl for<'r> FnOnce(&'r mut R) -> Vec<&'r mut Tensor>,
        slots: &mut [Slot<'_>],
    ) -> Result<M> {
        let calls = self.until_timeout();
        if let Some(answer) = calls.by_place(method, request, slots).await? {
            return decode(answer);
        }
        let outgoing = Outgoing::unary(request, slots, false);
        // The server refuses a tensor that does not fit its shape; in one message it says so of the tensor's field.
        let fits = |slot: &Slot<'_>| bytes_of(slot.tensor.dtype, &slot.tensor.shape) == Some(slot.tensor.bytes);
        let can_stream = slots.iter().any(|slot| slot.tensor.bytes > 0) && slots.iter().all(fits);
        if !can_stream || outgoing.largest <= calls.stream_above_bytes() {
            match calls.exchange(method, &outgoing, slots, false).await {
                // The server's limit may be lower than ours. A message no larger than a chunk would only be refused
                // again.
                Err(error) if can_stream && error.is_too_large() && outgoing.largest > CHUNK_BYTES => {}
                answer => return decode(answer?),
            }
        }
        let mut request = request.clone();
        // Large ids would make the first message too large.
        let large = ids(&mut request).into_iter().filter(|ids| ids.data.len() > CHUNK_BYTES / 2);
        let ids: Vec<Bytes> = large.map(|ids| std::mem::take(&mut ids.data)).collect();
        let mut slots: Vec<_> = slots.iter_mut().map(Slot::again).collect();
        slots.splice(0..0, ids.iter().map(|ids| Slot::of_elements(ids)));
        let outgoing = Outgoing::stream(&request, &slots, calls.max_message_bytes());
        calls.exchange(stream_method, &outgoing, &mut slots, false).await.map(|_| M::default())
    }

    /// Makes a call with places of tensors. Returns `None` if no tensor is in shared memory, or bytes must be sent.
    pub async fn by_place(
        &self,
        method: &'static str,
        request: &impl Message,
        slots: &mut [Slot<'_>],
    ) -> Result<Option<Bytes>> {
        slots.iter().try_for_each(Slot::check_output)?;
        if !slots.iter().any(Slot::is_shared) {
            return Ok(None);
        }
        let outgoing = Outgoing::unary(request, slots, true);
        if outgoing.largest > self.stream_above_bytes() {
            return Ok(None);
        }
        match self.exchange(method, &outgoing, slots, true).await {
            Ok(answer) => Ok(Some(answer)),
            // An older server does not know the fields.
            Err(error)
                if matches!(error.reason_name(), "SHARED_MEMORY_UNAVAILABLE" | "FIELD_UNKNOWN")
                    && matches!(error.code(), Code::Unimplemented | Code::PermissionDenied) =>
            {
                Ok(None)
            }
            Err(error) if error.is_too_large() && !slots.iter().any(Slot::in_shared_place) => Ok(None),
            Err(error) => Err(of_replacing(error, slots)),
        }
    }

    /// Sends messages with the slots' tensors, and receives their results. Returns a unary call's answer without their
    /// elements.
    pub async fn exchange(
        &self,
        method: &'static str,
        outgoing: &Outgoing,
        slots: &mut [Slot<'_>],
        by_place: bool,
    ) -> Result<Bytes> {
        let mut attempts = Attempts::new(self, method, outgoing)?;
        let in_place = slots.iter().any(Slot::in_place);
        let never_again = by_place && slots.iter().any(Slot::in_shared_place);
        loop {
            let mut began = never_again;
            let parts = slots.iter_mut().map(|slot| match by_place && slot.is_shared() {
                true => (None, Memory { from: None, to: None }),
                false => (slot.memory.to.is_some().then_some(&slot.tensor), slot.memory.again()),
            });
            let (tensors, memories): (Vec<_>, Vec<_>) = parts.unzip();
            let (sent, places) = mpsc::unbounded_channel();
            let mut results =
                Results { tensors: tensors.into_iter().flatten().collect(), places, place: Default::default() };
            let once = async {
                let (upload, response) = attempts.begin().await?;
                let send = async move {
                    outgoing.send(memories, &upload, &sent).await;
                    drop((upload, sent));
                    std::future::pending::<()>().await
                };
                let receive = self.receive(response, outgoing, &mut results, &attempts.patience, || began |= in_place);
                tokio::select! {
                    biased;
                    answer = receive => answer,
                    () = send => unreachable!("it waits for the answer"),
                }
            };
            match once.await {
                Ok(answer) => return Ok(answer),
                Err(error) => attempts.failed(error, began).await?,
            }
        }
    }

    /// Receives the answer, or a stream's answers. `begin`: results are written from now on.
    async fn receive(
        &self,
        response: Response,
        outgoing: &Outgoing,
        results: &mut Results<'_>,
        patience: &Patience,
        mut begin: impl FnMut(),
    ) -> Result<Bytes> {
        let mut incoming = patience.wait(response).await?;
        if outgoing.streams {
            let mut left: usize = results.tensors.iter().map(|tensor| tensor.bytes).sum();
            while patience.wait(incoming.next_message()).await?.is_some() {
                begin();
                let (_, bytes) = patience.wait(incoming.read_elements(0, left, results)).await?;
                left = left.checked_sub(bytes).ok_or_else(unfit)?;
            }
            return if left == 0 { Ok(Bytes::new()) } else { Err(unfit()) };
        }
        patience.wait(self.next_message(&mut incoming)).await?.ok_or_else(|| Error::internal("no answer came"))?;
        begin();
        let answer = patience.wait(incoming.read_message(results)).await?;
        match patience.wait(incoming.next_message()).await? {
            None => Ok(answer),
            Some(_) => Err(Error::internal("more than one answer came")),
        }
    }

    /// Begins an answer that is kept in memory.
    async fn next_message(&self, incoming: &mut Incoming) -> Result<Option<()>> {
        let (length, limit) = (incoming.next_message().await?, self.max_message_bytes());
        match length.filter(|length| *length > limit) {
            None => Ok(length.map(drop)),
            Some(length) => Err(Error::new(
                Code::ResourceExhausted,
                format!(
                    "the answer has {length} bytes; this client's limit is {limit}: raise Options::max_message_bytes"
                ),
            )),
        }
    }

    /// Sends `request` and returns its answers, one by one.
    pub async fn answers(&self, method: &'static str, request: &impl Message) -> Result<Answers> {
        let mut outgoing = Outgoing::unary(request, &[], false);
        outgoing.streams = true;
        let mut attempts = Attempts::new(self, method, &outgoing)?;
        loop {
            let once = async {
                let (upload, response) = attempts.begin().await?;
                outgoing.send(Vec::new(), &upload, &mpsc::unbounded_channel().0).await;
                drop(upload);
                let mut incoming = attempts.patience.wait(response).await?;
                let more = attempts.patience.wait(self.next_message(&mut incoming)).await?.is_some();
                Ok((incoming, more))
            };
            match once.await {
                Err(error) => attempts.failed(error, false).await?,
                Ok((incoming, more)) => {
                    let Attempts { patience, request_id, .. } = attempts;
                    return Ok(Answers { calls: self.clone(), incoming, more, patience, request_id });
                }
            }
        }
    }

    fn patience(&self, stream: bool) -> Patience {
        let default = self.shared.options.timeout;
        let timeout = self.options.timeout.unwrap_or(if stream { LONGEST_STREAM } else { default });
        let timeout = timeout.min(LONGEST_TIMEOUT);
        let standstill = if stream && self.options.timeout.is_none() { default } else { LONGEST_TIMEOUT };
        Patience { deadline: self.deadline.unwrap_or_else(|| Instant::now() + timeout), timeout, standstill }
    }
}

/// Returns the error of a call that may have replaced tensors in shared memory.
fn of_replacing(mut error: Error, slots: &[Slot<'_>]) -> Error {
    // The server returns these errors before it writes anything.
    let untouched = [Code::InvalidArgument, Code::NotFound, Code::PermissionDenied, Code::Aborted, Code::Unimplemented];
    let replaced: Vec<_> = slots.iter().filter(|slot| slot.in_shared_place()).map(|slot| slot.tensor.name).collect();
    if !replaced.is_empty() && !untouched.contains(&error.code()) {
        let names = replaced.join(" and ");
        error.0.message += &format!("; {names} may have been rotated by then, in part or whole: write it anew");
    }
    error
}

/// Resolves to the answer as soon as its headers have arrived.
type Response = Pin<Box<dyn Future<Output = Result<Incoming>> + Send>>;

/// Makes a call until it succeeds, fails for good, or has been made as often as the retry policy allows.
struct Attempts<'c> {
    calls: &'c Calls,
    method: &'static str,
    /// Bytes of the largest message, so that the server waits until it has as much memory.
    announced: usize,
    request_id: String,
    patience: Patience,
    server: Option<Arc<Server>>,
    made: u32,
    /// Number of servers that could not be reached since the last counted attempt.
    skipped: usize,
}

impl<'c> Attempts<'c> {
    fn new(calls: &'c Calls, method: &'static str, outgoing: &Outgoing) -> Result<Self> {
        let (bytes, limit) = (outgoing.largest, calls.max_message_bytes());
        if bytes > limit {
            let fact = format!("{bytes} bytes; this client's limit is {limit}");
            let text = format!("request: {fact}: split the batch, or raise Options::max_message_bytes");
            return Err(Error::new(Code::ResourceExhausted, text));
        }
        calls.options.check()?;
        let random = || format!("{:016x}{:016x}", retry::random(), retry::random());
        let request_id = calls.options.request_id.clone().unwrap_or_else(random);
        let patience = calls.patience(outgoing.streams);
        Ok(Self { calls, method, announced: bytes, request_id, patience, server: None, made: 0, skipped: 0 })
    }

    async fn begin(&mut self) -> Result<(mpsc::Sender<Bytes>, Response)> {
        let (server, mut channel) = self.patience.wait(self.calls.shared.channels.next()).await?;
        self.server = Some(server);
        let (upload, body) = mpsc::channel(BUFFERS_AHEAD);
        let request = self.head().body(tonic::body::Body::new(RequestBody(body)));
        let request = request.map_err(|error| Error::invalid_field("metadata", error))?;
        let response = Box::pin(async move {
            let ready = poll_fn(|cx| GrpcService::poll_ready(&mut channel, cx)).await;
            ready.map_err(|error| Error::of_transport(&error))?;
            Incoming::of(channel.call(request).await.map_err(|error| Error::of_transport(&error))?)
        });
        Ok((upload, response))
    }

    fn head(&self) -> http::request::Builder {
        let left = self.patience.deadline.saturating_duration_since(Instant::now());
        // gRPC allows at most eight digits.
        let timeout = match left.as_millis() {
            millis @ 0..=99_999_999 => format!("{millis}m"),
            _ => format!("{}S", left.as_secs().min(99_999_999)),
        };
        let mut head = http::Request::post(format!("/posenc.v1.PositionalEncodingService/{}", self.method))
            .version(http::Version::HTTP_2)
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .header("grpc-timeout", timeout)
            .header("x-request-id", &self.request_id)
            .header("posenc-message-bytes", self.announced);
        if let Some(traceparent) = &self.calls.options.traceparent {
            head = head.header("traceparent", traceparent);
        }
        if let Some(bearer) = &self.calls.shared.bearer {
            head = head.header("authorization", bearer.header());
        }
        head
    }

    /// Waits for the next attempt's time, or returns the error if there is no next attempt. `began`: the call cannot be
    /// made again.
    async fn failed(&mut self, error: Error, began: bool) -> Result<()> {
        if error.code() != Code::Unavailable || began {
            return Err(self.explained(error).await);
        }
        let channels = &self.calls.shared.channels;
        if let Some(server) = self.server.take() {
            server.failed();
        }
        // Another address may have a server: "localhost" has two, and often only one has a listener.
        if error.0.connection && self.skipped + 1 < channels.servers() {
            self.skipped += 1;
            return Ok(());
        }
        (self.made, self.skipped) = (self.made + 1, 0);
        let wait = match error.0.pushback {
            Some(millis) => u64::try_from(millis).ok().map(Duration::from_millis),
            None => Some(retry::backoff(self.made)),
        };
        match wait.filter(|wait| Instant::now() + *wait < self.patience.deadline) {
            Some(wait) if self.made < retry::MAX_ATTEMPTS => sleep(wait).await,
            _ => return Err(self.explained(error).await),
        }
        Ok(())
    }

    /// Adds the request's id, and facts beside the server's text.
    async fn explained(&self, mut error: Error) -> Error {
        let (target, told) = (self.calls.shared.channels.target(), !error.reason_name().is_empty());
        if error.0.connection || error.code() == Code::DeadlineExceeded && !told {
            let fact = if self.patience.timeout.is_zero() { "timeout: is 0; must be above 0" } else { error.message() };
            error.0.message = format!("{target}: {fact}");
        } else if error.code() == Code::Unimplemented && !told {
            // With a reason, the server has already said what it does not know.
            let version = if self.method == "GetServerInfo" { None } else { self.server_version().await };
            let version = version.as_deref().unwrap_or("it does not tell which");
            let client = env!("CARGO_PKG_VERSION");
            let said = if error.0.message.is_empty() { "" } else { "; " };
            error.0.message +=
                &format!("{said}the server at {target} is of another version ({version}) than this client ({client})");
        }
        error.0.request_id = self.request_id.clone();
        error
    }

    /// Asks the server for its version, for the text of an error.
    async fn server_version(&self) -> Option<String> {
        let mut calls = self.calls.clone();
        calls.deadline = Some(self.patience.deadline.min(Instant::now() + VERSION_TIMEOUT));
        let request = v1::GetServerInfoRequest::default();
        let info = Box::pin(calls.unary::<v1::GetServerInfoResponse>("GetServerInfo", &request)).await;
        info.ok().map(|info| info.version)
    }
}

/// Answers of a stream that the server sends.
pub(crate) struct Answers {
    calls: Calls,
    incoming: Incoming,
    more: bool,
    patience: Patience,
    request_id: String,
}

impl Answers {
    /// Returns the next answer; `None` at the end.
    pub async fn next<M: Message + Default>(&mut self) -> Result<Option<M>> {
        let read = async {
            if !self.more {
                return Ok(None);
            }
            let message = self.patience.wait(self.incoming.read_rest()).await?;
            self.more = self.patience.wait(self.calls.next_message(&mut self.incoming)).await?.is_some();
            decode(message).map(Some)
        };
        read.await.map_err(|mut error: Error| {
            error.0.request_id = self.request_id.clone();
            error
        })
    }
}

fn decode<M: Message + Default>(bytes: Bytes) -> Result<M> {
    M::decode(bytes).map_err(|error| Error::internal(format!("the answer: {error}")))
}
