//! Makes a call: deadline, headers, attempts.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Code;

use crate::channels::{Channels, Server};
use crate::error::{Error, Result};
use crate::exchange::{Incoming, Response, Upload, start};
use crate::message::{Buffers, MAX_PROTO_BYTES, Outgoing, read_message};
use crate::options::{CallOptions, Options};
use crate::slot::Slot;
use crate::token::Bearer;
use crate::{retry, v1};

/// Smaller messages gain nothing from a separate connection.
const BULK_BYTES: usize = 64 << 10;

/// Messages of a stream that are sent ahead of their answers: at a time, one is sent, one is computed, one is received
/// and one is processed.
const WINDOW: usize = 4;

/// Deadline of a stream whose only limit is progress. Without a deadline the server would set its default.
const LONGEST_STREAM: Duration = Duration::from_secs(24 * 3600);

/// A longer timeout could overflow the clock.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Default size of a chunk.
const CHUNK_BYTES: usize = (4 << 20) - (64 << 10);

/// Bytes that a message may have beside a chunk: settings, positions, framing.
pub(crate) const MESSAGE_OVERHEAD: usize = 64 << 10;

/// Longest wait of a failed call for the server's version, for the error's text.
const VERSION_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Shared {
    channels: Channels,
    bearer: Option<Bearer>,
    options: Options,
    /// 0: not known yet.
    chunk_bytes: AtomicUsize,
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
    standstill: Option<Duration>,
}

impl Patience {
    /// Waits for a step of the call.
    async fn wait<T>(&self, step: impl Future<Output = T>) -> Result<T> {
        let until = self.standstill.map_or(self.deadline, |time| self.deadline.min(Instant::now() + time));
        timeout_at(until, step).await.map_err(|_| match self.standstill {
            Some(time) if Instant::now() < self.deadline => {
                Error::new(Code::DeadlineExceeded, format!("the stream stood still for {time:?}"))
            }
            _ => Error::new(Code::DeadlineExceeded, format!("no answer within {:?}", self.timeout)),
        })
    }
}

impl Patience {
    /// Waits for the whole of an attempt.
    async fn whole<T>(&self, attempt: impl Future<Output = Result<T>>) -> Result<T> {
        Self { standstill: None, ..*self }.wait(attempt).await?
    }
}

/// The parts of a call that are the same in all attempts.
struct Call<'c> {
    method: &'c str,
    bulk: bool,
    announced: usize,
    request_id: &'c str,
    patience: Patience,
}

/// A message of a call, and for each of its tensors the slot and the number of bytes.
pub(crate) struct Planned {
    pub outgoing: Outgoing,
    pub takes: Vec<(usize, usize)>,
}

impl Planned {
    /// Puts all slots into one message; slots that are not sent come last.
    pub fn whole(message: &impl Message, slots: &[Slot<'_>]) -> Self {
        let tensors: Vec<_> = slots.iter().filter(|slot| slot.is_sent()).map(Slot::shaped).collect();
        let takes = slots.iter().enumerate().map(|(index, slot)| (index, slot.bytes())).collect();
        Self { outgoing: Outgoing::new(message, &tensors), takes }
    }
}

impl Calls {
    pub fn new(target: &str, options: Options) -> Result<Self> {
        let shared = Shared {
            channels: Channels::new(target, &options)?,
            bearer: Bearer::of(&options)?,
            options,
            chunk_bytes: AtomicUsize::new(0),
        };
        Ok(Self { shared: Arc::new(shared), options: CallOptions::default(), deadline: None })
    }

    /// Prepares a call that may make several requests: its own timeout bounds all of them together. The client's
    /// timeout bounds each.
    pub fn until_timeout(&self) -> Self {
        let deadline = self.options.timeout.map(|timeout| Instant::now() + timeout.min(LONGEST_TIMEOUT));
        Self { deadline, ..self.clone() }
    }

    pub fn max_message_bytes(&self) -> usize {
        self.shared.options.max_message_bytes.min(MAX_PROTO_BYTES)
    }

    pub fn stream_above_bytes(&self) -> usize {
        self.shared.options.stream_above_bytes.unwrap_or(usize::MAX).min(self.max_message_bytes())
    }

    /// Makes a call with one message each way, without tensors in the caller's memory. `expected_bytes` is an estimate
    /// of the answer's size.
    pub async fn unary<M: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
        expected_bytes: usize,
    ) -> Result<M> {
        decode(self.unary_with(method, &Planned::whole(request, &[]), &mut [], expected_bytes).await?)
    }

    /// Makes a call with one message each way; results go to the slots. Returns the answer without their elements.
    pub async fn unary_with(
        &self,
        method: &str,
        message: &Planned,
        slots: &mut [Slot<'_>],
        expected_bytes: usize,
    ) -> Result<Bytes> {
        let bulk = message.outgoing.message_bytes.max(expected_bytes) >= BULK_BYTES;
        self.exchange(method, std::slice::from_ref(message), slots, bulk, self.patience(false), false).await
    }

    /// Does the same for a call that must not be sent a second time.
    pub async fn unary_once(&self, method: &str, message: &Planned, slots: &mut [Slot<'_>]) -> Result<Bytes> {
        let bulk = message.outgoing.message_bytes >= BULK_BYTES;
        self.exchange(method, std::slice::from_ref(message), slots, bulk, self.patience(false), true).await
    }

    /// Sends `messages`, and receives one answer for each, in order. Only a few are in flight at a time.
    pub async fn stream(&self, method: &str, messages: &[Planned], slots: &mut [Slot<'_>]) -> Result<()> {
        self.exchange(method, messages, slots, true, self.patience(true), false).await.map(drop)
    }

    /// Sends messages with the slots' tensors; every answer has the results of one message. Returns the last answer
    /// without their elements.
    async fn exchange(
        &self,
        method: &str,
        messages: &[Planned],
        slots: &mut [Slot<'_>],
        bulk: bool,
        patience: Patience,
        never_again: bool,
    ) -> Result<Bytes> {
        let largest = messages.iter().map(|message| message.outgoing.message_bytes).max().unwrap_or(0);
        self.check_bytes(largest)?;
        self.options.check()?;
        let request_id = self.request_id();
        let call = Call { method, bulk, announced: largest, request_id: &request_id, patience };
        let mut attempts = Attempts::new(self, call);
        let result = loop {
            let mut began = false;
            let once = async {
                let (upload, response) = attempts.begin().await?;
                exchange_once(upload, response, messages, slots, patience, &mut began).await
            };
            match patience.whole(once).await {
                Ok(last) => break Ok(last),
                Err(error) => match attempts.failed(error, began || never_again).await {
                    Ok(()) => continue,
                    Err(error) => break Err(error),
                },
            }
        };
        self.explained(method, result, &request_id).await
    }

    /// Sends `request` and returns its answers, one by one.
    pub async fn receive(&self, method: &'static str, request: &impl Message) -> Result<Answers> {
        let outgoing = Outgoing::new(request, &[]);
        self.check_bytes(outgoing.message_bytes)?;
        self.options.check()?;
        let patience = self.patience(true);
        let request_id = self.request_id();
        let call = Call { method, bulk: true, announced: outgoing.message_bytes, request_id: &request_id, patience };
        let mut attempts = Attempts::new(self, call);
        let result = loop {
            let once = async {
                let (upload, response) = attempts.begin().await?;
                outgoing.send(&[], &mut Buffers::default(), &upload).await;
                drop(upload);
                let mut incoming = patience.wait(response).await??;
                let first = patience.wait(incoming.next_message()).await??;
                Ok((incoming, first))
            };
            match patience.whole(once).await {
                Ok(answers) => break Ok(answers),
                Err(error) => match attempts.failed(error, false).await {
                    Ok(()) => continue,
                    Err(error) => break Err(error),
                },
            }
        };
        let (incoming, next) = self.explained(method, result, &request_id).await?;
        Ok(Answers { incoming, next, patience, request_id })
    }

    /// Returns the size of chunks that the server recommends. Fails only if the deadline passes: the stream would wait
    /// for as long again.
    pub async fn chunk_bytes(&self) -> Result<usize> {
        let known = self.shared.chunk_bytes.load(Ordering::Relaxed);
        if known > 0 {
            return Ok(known);
        }
        let info: Result<v1::GetServerInfoResponse> =
            self.unary("GetServerInfo", &v1::GetServerInfoRequest::default(), 0).await;
        if let Err(error) = &info
            && error.code() == Code::DeadlineExceeded
        {
            return info.map(|_| 0);
        }
        let told =
            info.as_ref().ok().and_then(|info| info.limits.as_ref()).map_or(0, |limits| limits.stream_chunk_bytes);
        let bytes = usize::try_from(told).ok().filter(|bytes| *bytes > 0).unwrap_or(CHUNK_BYTES);
        let bytes = bytes.min(self.max_message_bytes().saturating_sub(MESSAGE_OVERHEAD)).max(1);
        // A server that does not answer now may answer the next call.
        if info.is_ok() {
            self.shared.chunk_bytes.store(bytes, Ordering::Relaxed);
        }
        Ok(bytes)
    }

    fn check_bytes(&self, bytes: usize) -> Result<()> {
        let limit = self.max_message_bytes();
        if bytes <= limit {
            return Ok(());
        }
        let text = format!(
            "request: {bytes} bytes; this client's limit is {limit}: split the batch, or raise Options::max_message_bytes"
        );
        Err(Error::new(Code::ResourceExhausted, text))
    }

    fn patience(&self, stream: bool) -> Patience {
        let default = self.shared.options.timeout;
        let timeout = self.options.timeout.unwrap_or(if stream { LONGEST_STREAM } else { default });
        let timeout = timeout.min(LONGEST_TIMEOUT);
        let standstill = (stream && self.options.timeout.is_none()).then_some(default);
        let deadline = self.deadline.unwrap_or_else(|| Instant::now() + timeout);
        Patience { deadline, timeout, standstill }
    }

    fn request_id(&self) -> String {
        let random = || format!("{:016x}{:016x}", retry::random(), retry::random());
        self.options.request_id.clone().unwrap_or_else(random)
    }

    fn head(&self, call: &Call<'_>) -> http::request::Builder {
        let left = call.patience.deadline.saturating_duration_since(Instant::now());
        // gRPC allows at most eight digits.
        let timeout = match left.as_millis() {
            millis @ 0..=99_999_999 => format!("{millis}m"),
            _ => format!("{}S", left.as_secs().min(99_999_999)),
        };
        let mut head = http::Request::post(format!("/posenc.v1.PositionalEncodingService/{}", call.method))
            .version(http::Version::HTTP_2)
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .header("grpc-timeout", timeout)
            .header("x-request-id", call.request_id)
            .header("posenc-message-bytes", call.announced);
        if let Some(traceparent) = &self.options.traceparent {
            head = head.header("traceparent", traceparent);
        }
        if let Some(bearer) = &self.shared.bearer {
            head = head.header("authorization", bearer.header());
        }
        head
    }

    /// Adds the request's id to errors, and facts beside the server's text.
    async fn explained<T>(&self, method: &str, result: Result<T>, request_id: &str) -> Result<T> {
        let mut error = match result {
            Ok(value) => return Ok(value),
            Err(error) => error.with_request_id(request_id),
        };
        let target = self.shared.channels.target();
        if error.is_connection() || error.code() == Code::DeadlineExceeded && error.reason_name().is_empty() {
            let none = self.options.timeout.unwrap_or(self.shared.options.timeout).is_zero();
            let fact = if none { "timeout: is 0; must be above 0" } else { error.message() };
            let text = format!("{target}: {fact}");
            error = error.with_text(text);
        } else if error.code() == Code::Unimplemented && error.reason_name().is_empty() {
            // With a reason, the server has already said what it does not know.
            let version = if method == "GetServerInfo" { None } else { Box::pin(self.server_version()).await };
            let said = error.message();
            let said = if said.is_empty() { String::new() } else { format!("{said}; ") };
            let text = format!(
                "{said}the server at {target} is of another version ({}) than this client ({})",
                version.as_deref().unwrap_or("it does not tell which"),
                env!("CARGO_PKG_VERSION"),
            );
            error = error.with_text(text);
        }
        Err(error)
    }

    async fn server_version(&self) -> Option<String> {
        let options = CallOptions { timeout: Some(VERSION_TIMEOUT), ..self.options.clone() };
        let deadline = self.deadline.map(|deadline| deadline.min(Instant::now() + VERSION_TIMEOUT));
        let calls = Self { shared: self.shared.clone(), options, deadline };
        let info: Result<v1::GetServerInfoResponse> =
            calls.unary("GetServerInfo", &v1::GetServerInfoRequest::default(), 0).await;
        info.ok().map(|info| info.version)
    }
}

/// Makes a call until it succeeds, fails for good, or has been made as often as the retry policy allows.
struct Attempts<'c> {
    calls: &'c Calls,
    call: Call<'c>,
    server: Option<Arc<Server>>,
    made: u32,
    /// Number of servers that could not be reached since the last counted attempt.
    skipped: usize,
}

impl<'c> Attempts<'c> {
    fn new(calls: &'c Calls, call: Call<'c>) -> Self {
        Self { calls, call, server: None, made: 0, skipped: 0 }
    }

    async fn begin(&mut self) -> Result<(Upload, Response)> {
        let (server, channel) = self.calls.shared.channels.next(self.call.bulk).await?;
        self.server = Some(server);
        start(channel, self.calls.head(&self.call), self.calls.max_message_bytes())
    }

    /// Waits for the next attempt's time, or returns the error if there is no next attempt. `began`: the call cannot be
    /// made again.
    async fn failed(&mut self, error: Error, began: bool) -> Result<()> {
        if error.code() != Code::Unavailable || began {
            return Err(error);
        }
        if let Some(server) = self.server.take() {
            server.failed();
        }
        // Another address may have a server: "localhost" has two, and often only one has a listener.
        if error.is_connection() && self.skipped + 1 < self.calls.shared.channels.servers() {
            self.skipped += 1;
            return Ok(());
        }
        (self.made, self.skipped) = (self.made + 1, 0);
        let wait = match error.pushback() {
            Some(millis) => u64::try_from(millis).ok().map(Duration::from_millis),
            None => Some(retry::backoff(self.made)),
        };
        let wait = wait.filter(|wait| Instant::now() + *wait < self.call.patience.deadline);
        match wait {
            Some(wait) if self.made < retry::MAX_ATTEMPTS => sleep(wait).await,
            _ => return Err(error),
        }
        Ok(())
    }
}

/// Sends the messages and receives the answers at the same time.
async fn exchange_once(
    upload: Upload,
    response: Response,
    messages: &[Planned],
    slots: &mut [Slot<'_>],
    patience: Patience,
    began: &mut bool,
) -> Result<Bytes> {
    let in_place = slots.iter().any(Slot::in_place);
    // A sent message's memory passes from the sender to the receiver, so that a result may overwrite its input while
    // later messages are still being read.
    let (sent, mut under_way) = mpsc::channel::<Vec<Slot<'_>>>(WINDOW);
    let mut left: Vec<Slot<'_>> = slots.iter_mut().map(Slot::again).collect();
    let send = async move {
        let mut buffers = Buffers::default();
        for message in messages {
            let Ok(room) = sent.reserve().await else { break };
            let mut parts = Vec::new();
            for &(slot, bytes) in &message.takes {
                parts.push(left[slot].split_off(bytes));
            }
            if !message.outgoing.send(&parts, &mut buffers, &upload).await {
                break;
            }
            room.send(parts);
        }
        drop((upload, sent));
        std::future::pending::<()>().await
    };
    let receive = async {
        let mut incoming = patience.wait(response).await??;
        let (mut answers, mut last) = (0, Bytes::new());
        while let Some(length) = patience.wait(incoming.next_message()).await?? {
            let parts = patience.wait(under_way.recv()).await?;
            let mut parts = parts.ok_or_else(|| Error::internal("more answers than messages"))?;
            *began = *began || in_place;
            last = patience.wait(read_message(&mut incoming, length, &mut parts)).await??;
            answers += 1;
        }
        let lacks = || Error::internal(format!("the call ended with {answers} of {} answers", messages.len()));
        if answers == messages.len() { Ok(last) } else { Err(lacks()) }
    };
    tokio::select! {
        biased;
        result = receive => result,
        () = send => Err(Error::internal("the sender ended the call")),
    }
}

/// Answers of a stream that the server sends.
pub(crate) struct Answers {
    incoming: Incoming,
    /// The next answer's length; `None` at the end.
    next: Option<usize>,
    patience: Patience,
    request_id: String,
}

impl Answers {
    pub async fn next<M: Message + Default>(&mut self) -> Result<Option<M>> {
        let read = async {
            let Some(length) = self.next else { return Ok(None) };
            let message = self.patience.wait(read_message(&mut self.incoming, length, &mut [])).await??;
            self.next = self.patience.wait(self.incoming.next_message()).await??;
            decode(message).map(Some)
        };
        read.await.map_err(|error: Error| error.with_request_id(&self.request_id))
    }
}

pub(crate) fn decode<M: Message + Default>(bytes: Bytes) -> Result<M> {
    M::decode(bytes).map_err(|error| Error::internal(format!("the answer: {error}")))
}
