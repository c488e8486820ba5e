//! A client, and how it makes a call: deadline, headers, attempts.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http_body_util::StreamBody;
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::body::Body;
use tonic::transport::Channel;
use tower::ServiceExt;
use tower::util::Oneshot;

use crate::channels::{Address, Channels};
use crate::error::{Error, Result};
use crate::incoming::Incoming;
use crate::local::LocalServer;
use crate::options::{CallOptions, Options};
use crate::outgoing::{CHUNK_BYTES, Outgoing, Piece};
use crate::retry;
use crate::slot::Slot;
use crate::token::Bearer;
use crate::v1::{self, Tensor};

/// Deadline of a stream that is limited only by the time without progress. Without a deadline, the server would set its
/// own deadline.
const LONGEST_STREAM: Duration = Duration::from_secs(24 * 3600);

/// The longest timeout. A longer timeout could overflow the clock.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// The time for which a failed call waits for the server's version, which becomes a part of the error's text.
const VERSION_TIMEOUT: Duration = Duration::from_secs(1);

/// The largest message of protobuf.
const MAX_PROTO_BYTES: usize = (1 << 31) - 1;

/// Number of buffers that are ready for the connection's task, so that this task need not wait for the caller's task.
const BUFFERS_AHEAD: usize = 4;

struct Shared {
    channels: Channels,
    bearer: Option<Bearer>,
    options: Options,
    /// The server that this process started for the client. The server ends after the connections.
    local: Option<LocalServer>,
}

/// A client of a target's server or servers.
/// A client is cheap to clone: clones share the connections. Any number of tasks may use a client. A call that is
/// dropped also ends on the server. Calls with [`v1`] messages take tensors in the messages.
/// [`apply_rope`](Self::apply_rope) and [`reposition`](Self::reposition) also take tensors in the caller's memory.
/// Tensors in that memory are sent without a copy of a whole tensor, and as a stream of chunks if they are too large
/// for a message.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    options: CallOptions,
    /// The deadline of all requests of a call that has its own timeout.
    deadline: Option<Instant>,
}

/// The deadline of a call, and its longest time without progress.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    deadline: Instant,
    timeout: Duration,
    standstill: Duration,
}

impl Patience {
    /// Waits for a step of the call, until the deadline or the longest time without progress is over.
    pub async fn wait<T>(&self, step: impl Future<Output = Result<T>>) -> Result<T> {
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

/// Makes a client of the server at `target`: `localhost:50051`, `dns:///posenc:50051`, `unix:/run/posenc`, optionally
/// after `http://` or `https://`. Connections are made at the first call, which fails if no server answers.
/// Fails with INVALID_ARGUMENT if the target is invalid.
pub fn connect(target: impl AsRef<str>) -> Result<Client> {
    connect_with(target, Options::default())
}

/// Makes a client with options. Fails with INVALID_ARGUMENT if the target, TLS or the token cannot be used.
pub fn connect_with(target: impl AsRef<str>, options: Options) -> Result<Client> {
    client_of(target.as_ref(), options, None)
}

/// Makes a client; `local` is the target's server if this process started it.
pub(crate) fn client_of(target: &str, mut options: Options, local: Option<LocalServer>) -> Result<Client> {
    options.max_message_bytes = options.max_message_bytes.min(MAX_PROTO_BYTES);
    let channels = Channels::new(target, &options)?;
    let shared = Shared { channels, bearer: Bearer::of(&options)?, options, local };
    Ok(Client { shared: Arc::new(shared), options: CallOptions::default(), deadline: None })
}

impl Client {
    /// Makes a client from the environment; see [`Options::from_env`].
    pub fn from_env() -> Result<Self> {
        let (target, options) = Options::from_env()?;
        connect_with(target, options)
    }

    /// Returns a client with the same connections, and these options for every call.
    pub fn with(&self, options: CallOptions) -> Self {
        Self { options, ..self.clone() }
    }

    /// Prepares a call that may make several requests. The call's own timeout limits all requests together. The
    /// client's timeout limits each request.
    pub(crate) fn until_timeout(&self) -> Self {
        let deadline = self.options.timeout.map(|timeout| Instant::now() + timeout.min(LONGEST_TIMEOUT));
        Self { deadline: self.deadline.or(deadline), ..self.clone() }
    }

    /// Makes a unary call. The elements of results go to the slots. Returns the answer without these elements.
    pub(crate) async fn unary<M: Message + Default>(
        &self,
        method: &'static str,
        request: &impl Message,
        slots: &mut [Slot<'_>],
    ) -> Result<M> {
        decode(self.until_timeout().message(method, request, slots, self.shared.options.max_message_bytes).await?)
    }

    /// Rotates the slots. Uses a stream if the tensors are too large for a message. `ids` returns the tensors of
    /// position ids in the request, in the order in which a stream sends them.
    pub(crate) async fn rotate<R: Message, M: Message + Default>(
        &self,
        [method, stream_method]: [&'static str; 2],
        mut request: R,
        ids: fn(&mut R) -> Vec<&mut Tensor>,
        mut slots: Vec<Slot<'_>>,
    ) -> Result<M> {
        let (client, max_message_bytes) = (self.until_timeout(), self.shared.options.max_message_bytes);
        // A tensor that does not fit its shape is sent in one message, because the server's error then names the field.
        let can_stream = slots.iter().any(|slot| slot.bytes > 0) && slots.iter().all(Slot::is_whole);
        let above = self.shared.options.stream_above_bytes.filter(|_| can_stream).unwrap_or(usize::MAX);
        match client.message(method, &request, &mut slots, above.min(max_message_bytes)).await {
            // The server's limit may be lower than this client's.
            Err(error) if error.is_too_large() && can_stream && !slots.iter().any(Slot::is_shared) => {}
            answer => return decode(answer?),
        }
        // Large ids would make the first message too large.
        let large = ids(&mut request).into_iter().filter(|ids| ids.data.len() > CHUNK_BYTES / 2);
        let ids = large.map(|ids| Slot::of_ids(std::mem::take(&mut ids.data)));
        let slots: Vec<_> = ids.chain(slots).collect();
        let outgoing = Outgoing::stream(&request, &slots, max_message_bytes);
        client.exchange(stream_method, &outgoing, &slots, max_message_bytes).await.map(|_| M::default())
    }

    /// Makes a unary call whose messages have at most `limit` bytes. If the server does not map the slots' memory, the
    /// call sends the bytes of the slots, and the slots no longer have places.
    async fn message(
        &self,
        method: &'static str,
        request: &impl Message,
        slots: &mut [Slot<'_>],
        limit: usize,
    ) -> Result<Bytes> {
        slots.iter().try_for_each(|slot| slot.check_result(slot.dtype, slot.bytes))?;
        let sent = self.exchange(method, &Outgoing::unary(request, slots), slots, limit).await;
        let Some(error) = sent.as_ref().err().filter(|_| slots.iter().any(Slot::is_shared)) else { return sent };
        let was_sent = !error.request_id().is_empty();
        let is_too_large = error.is_too_large() && !(was_sent && slots.iter().any(Slot::in_shared_place));
        if !is_too_large && !error.refuses_places() {
            return sent.map_err(|error| of_replacing(error, slots));
        }
        slots.iter_mut().for_each(|slot| (slot.place, slot.output_place) = (None, None));
        self.exchange(method, &Outgoing::unary(request, slots), slots, limit).await
    }

    /// Sends the tensors of the slots, and writes the results to the slots. Returns the answer of a unary call without
    /// the elements of the results.
    async fn exchange(
        &self,
        method: &'static str,
        outgoing: &Outgoing,
        slots: &[Slot<'_>],
        limit: usize,
    ) -> Result<Bytes> {
        let mut attempts = Attempts::new(self, method, outgoing, limit)?;
        loop {
            let mut began = false;
            let once = async {
                let (upload, response) = attempts.begin().await?;
                let mut receive = pin!(attempts.receive(response, slots, &mut began));
                tokio::select! {
                    biased;
                    answer = &mut receive => answer,
                    _ = outgoing.send(slots, upload) => receive.await,
                }
            };
            match once.await {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    let is_last = |slot: &Slot<'_>| slot.in_shared_place() || slot.is_replaced() && began;
                    attempts.failed(error, slots.iter().any(is_last)).await?;
                }
            }
        }
    }

    /// Sends `request` and returns its answers, one by one.
    pub(crate) async fn answers<M>(&self, method: &'static str, request: &impl Message) -> Result<Answers<M>> {
        let limit = self.shared.options.max_message_bytes;
        let mut outgoing = Outgoing::unary(request, &[]);
        outgoing.streams = true;
        let mut attempts = Attempts::new(self, method, &outgoing, limit)?;
        loop {
            let once = async {
                let (upload, response) = attempts.begin().await?;
                // If sending fails, the receiver gets the call's error.
                let _ = outgoing.send(&[], upload).await;
                Incoming::of(response, limit, attempts.patience).await
            };
            match once.await.map_err(Error::of_table) {
                Err(error) => attempts.failed(error, false).await?,
                Ok(incoming) => return Ok(Answers { incoming, request_id: attempts.request_id, kind: PhantomData }),
            }
        }
    }

    /// Asks the server for its version, for the text of an error.
    async fn server_version(&self, deadline: Instant) -> Option<String> {
        let client = Self { deadline: Some(deadline.min(Instant::now() + VERSION_TIMEOUT)), ..self.clone() };
        let request = v1::GetServerInfoRequest::default();
        let info = Box::pin(client.unary::<v1::GetServerInfoResponse>("GetServerInfo", &request, &mut []));
        info.await.ok().map(|info| info.version)
    }
}

/// Adds to the text of an error the names of tensors in shared memory that the call may have replaced.
fn of_replacing(mut error: Error, slots: &[Slot<'_>]) -> Error {
    // With these codes, except ABORTED, the server has written nothing. The text of an ABORTED error already says what
    // to do.
    let untouched = [Code::InvalidArgument, Code::NotFound, Code::PermissionDenied, Code::Aborted, Code::Unimplemented];
    let replaced = slots.iter().filter(|slot| slot.in_shared_place()).map(|slot| slot.field.2);
    let names = replaced.collect::<Vec<_>>().join(" and ");
    if !names.is_empty() && !untouched.contains(&error.code()) {
        error.0.message += &format!("; {names} may have been rotated by then, in part or whole: write it anew");
    }
    error
}

type Response = Oneshot<Channel, http::Request<Body>>;

/// Makes a call until it succeeds, fails with an error that is not retried, or has used all attempts of the retry
/// policy.
struct Attempts<'c> {
    client: &'c Client,
    method: &'static str,
    outgoing: &'c Outgoing,
    request_id: String,
    patience: Patience,
    server: Option<Address>,
    made: u32,
    /// Number of servers that could not be reached since the last counted attempt.
    skipped: usize,
}

impl<'c> Attempts<'c> {
    fn new(client: &'c Client, method: &'static str, outgoing: &'c Outgoing, limit: usize) -> Result<Self> {
        let bytes = outgoing.largest;
        if bytes > limit {
            let fact = format!("request: {bytes} bytes; this client's limit is {limit}");
            let text = format!("{fact}: split the batch, or raise Options::max_message_bytes");
            return Err(Error::new(Code::ResourceExhausted, text));
        }
        let random = || format!("{:016x}{:016x}", retry::random(), retry::random());
        let request_id = client.options.request_id.clone().unwrap_or_else(random);
        let (default, own) = (client.shared.options.timeout, client.options.timeout);
        let timeout = own.unwrap_or(if outgoing.streams { LONGEST_STREAM } else { default }).min(LONGEST_TIMEOUT);
        let standstill = if outgoing.streams && own.is_none() { default } else { LONGEST_TIMEOUT };
        let deadline = client.deadline.unwrap_or_else(|| Instant::now() + timeout);
        let patience = Patience { deadline, timeout, standstill };
        Ok(Self { client, method, outgoing, request_id, patience, server: None, made: 0, skipped: 0 })
    }

    async fn begin(&mut self) -> Result<(mpsc::Sender<Piece>, Response)> {
        let (upload, body) = mpsc::channel(BUFFERS_AHEAD);
        let request = self.request(Body::new(StreamBody::new(ReceiverStream::new(body)))).await?;
        let (server, channel) = self.patience.wait(self.client.shared.channels.next()).await?;
        self.server = Some(server);
        Ok((upload, channel.oneshot(request)))
    }

    /// Receives the answer of a unary call, or all answers of a stream. Sets `began` before it writes results.
    async fn receive(&self, response: Response, slots: &[Slot<'_>], began: &mut bool) -> Result<Bytes> {
        let slots: Vec<_> = slots.iter().filter(|slot| slot.is_result()).collect();
        // The messages of a stream are not kept, so they need no limit.
        let limit = if self.outgoing.streams { usize::MAX } else { self.client.shared.options.max_message_bytes };
        let mut incoming = Incoming::of(response, limit, self.patience).await?;
        // A stream is complete after this number of bytes, a unary call after this number of messages.
        let wanted = if self.outgoing.streams { slots.iter().map(|slot| slot.bytes).sum() } else { 1 };
        let (mut answer, mut done) = (Bytes::new(), 0);
        while done <= wanted && incoming.next_message().await? {
            *began = true;
            if self.outgoing.streams {
                incoming.read_elements(0, &slots, &mut done).await?;
            } else {
                answer = incoming.read_message(&slots).await?;
                done += 1;
            }
        }
        if done == wanted { Ok(answer) } else { Err(Error::internal("the server's answer does not fit the tensors")) }
    }

    async fn request(&self, body: Body) -> Result<http::Request<Body>> {
        let left = self.patience.deadline.saturating_duration_since(Instant::now());
        // gRPC allows at most eight digits in a timeout.
        let timeout = match left.as_millis() {
            millis @ 0..=99_999_999 => format!("{millis}m"),
            _ => format!("{}S", left.as_secs()),
        };
        let mut head = http::Request::post(format!("/posenc.v1.PositionalEncodingService/{}", self.method))
            .version(http::Version::HTTP_2)
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .header("grpc-timeout", timeout)
            .header("x-request-id", visible("request_id", &self.request_id)?)
            // The server waits until it has this much memory for the call.
            .header("posenc-message-bytes", self.outgoing.largest);
        if let Some(traceparent) = &self.client.options.traceparent {
            head = head.header("traceparent", visible("traceparent", traceparent)?);
        }
        if let Some(bearer) = &self.client.shared.bearer {
            head = head.header("authorization", bearer.header().await);
        }
        head.body(body).map_err(|error| Error::invalid_field("metadata", error))
    }

    /// Waits until the next attempt may start. Returns the error if there is no next attempt. `is_last`: the call must
    /// not be sent again.
    async fn failed(&mut self, error: Error, is_last: bool) -> Result<()> {
        if error.code() != Code::Unavailable || is_last {
            return Err(self.explained(error).await);
        }
        let servers = match self.server.take() {
            Some(server) => self.client.shared.channels.failed(server).await,
            None => 0,
        };
        // Another address may have a server. "localhost" has two addresses, and often only one of them has a server.
        if error.0.connection && self.skipped + 1 < servers {
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

    /// Adds the request's id to the error. If the connection failed, or the deadline passed and the server gave no
    /// reason, the text also gets the target, and a remedy if there is one. For UNIMPLEMENTED without a reason, the
    /// text gets the target and the versions of server and client.
    async fn explained(&self, mut error: Error) -> Error {
        let (target, told) = (&self.client.shared.channels.target.text, !error.reason_name().is_empty());
        if error.0.connection || error.code() == Code::DeadlineExceeded && !told {
            let remedy = match &self.client.shared.local {
                Some(server) if error.0.connection => server.why_gone().await,
                _ if error.0.connection => "; is the server there, does it speak TLS or plaintext as this client \
                                            does, and do both trust the certificates?"
                    .to_owned(),
                _ if self.patience.timeout.is_zero() => "; timeout: is 0; must be above 0".to_owned(),
                _ => "; the timeout is over: is the server there, or must the timeout be longer?".to_owned(),
            };
            error.0.message = format!("{target}: {}{remedy}", error.message());
        } else if error.code() == Code::Unimplemented && !told {
            // If the error has a reason, the server's text already names what the server does not know.
            let is_info = self.method == "GetServerInfo";
            let version = if is_info { None } else { self.client.server_version(self.patience.deadline).await };
            let version = version.as_deref().unwrap_or("it does not tell which");
            let client = env!("CARGO_PKG_VERSION");
            let said = if error.0.message.is_empty() { "" } else { "; " };
            error.0.message +=
                &format!("{said}the server at {target} is of another version ({version}) than this client ({client})");
        }
        error.0.request_id = self.request_id.clone();
        error
    }
}

/// Returns the value of a header. Refuses characters that a header must not have.
fn visible(option: &str, text: &str) -> Result<HeaderValue> {
    let is_visible = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let value = HeaderValue::from_str(text).ok().filter(|_| is_visible);
    value.ok_or_else(|| Error::invalid_field(option, "must be of visible ASCII characters"))
}

/// The answers of a stream, in the order in which the server sends them.
pub struct Answers<M> {
    incoming: Incoming,
    request_id: String,
    kind: PhantomData<fn() -> M>,
}

impl<M: Message + Default> Answers<M> {
    /// Returns the next answer, or `None` at the end.
    pub async fn next(&mut self) -> Result<Option<M>> {
        let read = async {
            match self.incoming.next_message().await? {
                true => decode(self.incoming.read_message(&[]).await?).map(Some),
                false => Ok(None),
            }
        };
        read.await.map_err(|error: Error| {
            let mut error = error.of_table();
            error.0.request_id = self.request_id.clone();
            error
        })
    }
}

fn decode<M: Message + Default>(bytes: Bytes) -> Result<M> {
    M::decode(bytes).map_err(|error| Error::internal(format!("the answer: {error}")))
}
