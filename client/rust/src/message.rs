//! Messages with tensors, without a copy of the tensors: prost encodes the bytes before and between them, and their
//! elements stay in place. tonic's codecs hold a whole message in a buffer, and copy it in and out. Here the caller's
//! task copies elements to small buffers that it reuses, and received bytes directly to their place:
//!
//! ```text
//!   caller's memory --copy--> buffers of 256 KiB --> HTTP/2, socket
//!   caller's memory <--copy-- received frames    <-- HTTP/2, socket
//! ```

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as _, Frame};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use tokio::sync::mpsc;

use crate::error::{Error, Result};
use crate::slot::{Described, Memory, Slot};
use crate::v1::Tensor;

/// gRPC's prefix of a message: a flag and the length.
const PREFIX_BYTES: usize = 5;

/// Number of the field with elements, in tensors and in messages of streams. Its key has one byte.
const DATA: u32 = 15;

/// Size of the buffers for sent elements: they stay in a core's cache until they are sent.
const BUFFER_BYTES: usize = 256 << 10;

/// Elements of a stream's message, as the server recommends: with key and length the message fits gRPC's 4 MiB. It is a
/// multiple of nearly every head, which lets the server rotate in place.
pub(crate) const CHUNK_BYTES: usize = (4 << 20) - (64 << 10);

/// Bytes of a stream's message beside its elements: key and length.
const CHUNK_HEAD_BYTES: usize = 5;

/// The messages of a call, encoded except for the elements of their tensors.
#[derive(Default)]
pub(crate) struct Outgoing {
    encoded: BytesMut,
    /// Elements: the offset in `encoded` at which they are sent, the index of their slot, and their number of bytes.
    elements: Vec<(usize, usize, usize)>,
    /// Bytes of the largest message.
    pub largest: usize,
    pub streams: bool,
}

impl Outgoing {
    /// Makes one message of `request` and the slots' tensors, whose fields `request` does not have. `by_place`: tensors
    /// in shared memory are named, not sent.
    pub fn unary(request: &impl Message, slots: &[Slot<'_>], by_place: bool) -> Self {
        let mut this = Self::default();
        let begin = this.begin();
        append(request, &mut this.encoded);
        for (index, slot) in slots.iter().enumerate() {
            let place = slot.place.clone().filter(|_| by_place);
            let sent = if place.is_some() || slot.tensor.received { 0 } else { slot.tensor.bytes };
            if !slot.tensor.received {
                let head = Tensor { shared: place, ..slot.tensor.head() };
                let data = if sent > 0 { 1 + encoded_len_varint(sent as u64) + sent } else { 0 };
                encode_key(slot.tensor.field, WireType::LengthDelimited, &mut this.encoded);
                encode_varint((head.encoded_len() + data) as u64, &mut this.encoded);
                append(&head, &mut this.encoded);
            }
            this.data(index, sent);
            if let Some(place) = slot.output_place.as_ref().filter(|_| by_place) {
                prost::encoding::message::encode(slot.tensor.output_field, place, &mut this.encoded);
            }
        }
        this.end(begin);
        this
    }

    /// Makes a stream: a message that describes the call, and messages of the slots' elements, which end anywhere.
    pub fn stream(request: &impl Message, slots: &[Slot<'_>], max_message_bytes: usize) -> Self {
        let mut this = Self { streams: true, ..Self::default() };
        let begin = this.begin();
        let mut call = BytesMut::new();
        append(request, &mut call);
        for slot in slots.iter().filter(|slot| slot.tensor.field > 0) {
            prost::encoding::message::encode(slot.tensor.field, &slot.tensor.head(), &mut call);
        }
        prost::encoding::bytes::encode(1, &call.freeze(), &mut this.encoded);
        this.end(begin);
        // No element has more than eight bytes.
        let chunk = CHUNK_BYTES.min(max_message_bytes.saturating_sub(CHUNK_HEAD_BYTES) / 8 * 8).max(8);
        for (index, slot) in slots.iter().enumerate() {
            for done in (0..slot.tensor.bytes).step_by(chunk) {
                let begin = this.begin();
                this.data(index, chunk.min(slot.tensor.bytes - done));
                this.end(begin);
            }
        }
        this
    }

    fn data(&mut self, slot: usize, bytes: usize) {
        if bytes > 0 {
            encode_key(DATA, WireType::LengthDelimited, &mut self.encoded);
            encode_varint(bytes as u64, &mut self.encoded);
            self.elements.push((self.encoded.len(), slot, bytes));
        }
    }

    /// Begins a message. Returns its offset.
    fn begin(&mut self) -> usize {
        self.encoded.put_bytes(0, PREFIX_BYTES);
        self.encoded.len()
    }

    /// Ends the message that begins at an offset: writes its length before it.
    fn end(&mut self, begin: usize) {
        let elements = self.elements.iter().rev().take_while(|(at, ..)| *at > begin).map(|(.., bytes)| bytes);
        let bytes = self.encoded.len() - begin + elements.sum::<usize>();
        // Messages over 4 GiB are refused before they are sent.
        self.encoded[begin - 4..begin].copy_from_slice(&(bytes as u32).to_be_bytes());
        self.largest = self.largest.max(bytes);
    }

    /// Sends the messages. The memory of each result goes to `places` when its elements were copied: a result may
    /// replace its tensor while later elements are sent. Ends early if the server has stopped reading.
    pub async fn send<'a>(
        &self,
        mut memories: Vec<Memory<'a>>,
        upload: &mpsc::Sender<Bytes>,
        places: &mpsc::UnboundedSender<&'a mut [u8]>,
    ) {
        let mut encoded = Bytes::copy_from_slice(&self.encoded);
        let (mut buffers, mut sent) = (Buffers::default(), 0);
        for &(at, slot, mut left) in &self.elements {
            let Ok(room) = upload.reserve().await else { return };
            room.send(encoded.split_to(at - sent));
            sent = at;
            while left > 0 {
                let Ok(room) = upload.reserve().await else { return };
                let bytes = left.min(BUFFER_BYTES);
                let (elements, place) = memories[slot].next(bytes, |elements| buffers.copy(elements));
                room.send(elements);
                left -= bytes;
                // The receiver may have ended the call.
                let _ = place.map(|place| places.send(place));
            }
        }
        if !encoded.is_empty() {
            let _ = upload.send(encoded).await;
        }
        // Results without elements before them.
        for place in memories.into_iter().filter_map(|memory| memory.to) {
            let _ = places.send(place);
        }
    }
}

fn append(message: &impl Message, to: &mut BytesMut) {
    message.encode(to).expect("a buffer that grows takes everything");
}

/// Buffers that are reused after the connection has released them.
#[derive(Default)]
struct Buffers(VecDeque<Bytes>);

impl Buffers {
    fn copy(&mut self, elements: &[u8]) -> Bytes {
        let free = self.0.front().is_some_and(Bytes::is_unique).then(|| self.0.pop_front()).flatten();
        let mut buffer = free.and_then(|buffer| buffer.try_into_mut().ok()).unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(elements);
        let buffer = buffer.freeze();
        self.0.push_back(buffer.clone());
        buffer
    }
}

/// A request's bytes, as its sender provides them.
pub(crate) struct RequestBody(pub mpsc::Receiver<Bytes>);

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// A call's results to receive: their descriptions, and their memory in the order in which the sender releases it.
pub(crate) struct Results<'a> {
    pub tensors: VecDeque<&'a Described>,
    pub places: mpsc::UnboundedReceiver<&'a mut [u8]>,
    pub place: &'a mut [u8],
}

impl Results<'_> {
    async fn fill(&mut self, mut length: usize, incoming: &mut Incoming) -> Result<()> {
        while length > 0 {
            if self.place.is_empty() {
                self.place = self.places.recv().await.ok_or_else(unfit)?;
            }
            let bytes = length.min(self.place.len());
            let now = self.place.split_off_mut(..bytes).unwrap_or_default();
            incoming.read(now).await?;
            length -= bytes;
        }
        Ok(())
    }
}

/// The bytes of a response, in the pieces that arrive.
pub(crate) struct Incoming {
    body: tonic::body::Body,
    piece: Bytes,
    trailers: Option<HeaderMap>,
    /// Bytes of the current message that are not read yet.
    left: usize,
}

impl Incoming {
    pub fn of(response: http::Response<tonic::body::Body>) -> Result<Self> {
        let (head, body) = response.into_parts();
        // An answer without a message has its trailers in its headers.
        if let Some(error) = Error::of_trailers(&head.headers) {
            return Err(error);
        }
        if head.status != http::StatusCode::OK {
            return Err(Error::of_http(head.status));
        }
        let trailers = head.headers.contains_key("grpc-status").then_some(head.headers);
        Ok(Self { body, piece: Bytes::new(), trailers, left: 0 })
    }

    /// Waits for bytes; false at the end.
    async fn wait(&mut self) -> Result<bool> {
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

    /// Begins the next message, and returns its length; `None` if the call has succeeded.
    pub async fn next_message(&mut self) -> Result<Option<usize>> {
        if !self.wait().await? {
            let Some(trailers) = &self.trailers else {
                return Err(Error::of_transport(&Error::internal("the answer broke off")));
            };
            return Error::of_trailers(trailers).map_or(Ok(None), Err);
        }
        let mut prefix = [0; PREFIX_BYTES];
        self.left = PREFIX_BYTES;
        self.read(&mut prefix).await?;
        let [compressed, length @ ..] = prefix;
        if compressed != 0 {
            return Err(Error::internal("the answer is compressed, which nobody asked for"));
        }
        self.left = u32::from_be_bytes(length) as usize;
        Ok(Some(self.left))
    }

    /// Reads bytes of the message.
    async fn read(&mut self, mut into: &mut [u8]) -> Result<()> {
        self.left = self.left.checked_sub(into.len()).ok_or_else(malformed)?;
        while !into.is_empty() {
            if !self.wait().await? {
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

    /// Reads the rest of the message.
    pub async fn read_rest(&mut self) -> Result<Bytes> {
        let mut rest = vec![0; self.left];
        self.read(&mut rest).await?;
        Ok(rest.into())
    }

    /// Reads the message: copies the results' elements to their places, and returns everything else.
    pub async fn read_message(&mut self, results: &mut Results<'_>) -> Result<Bytes> {
        if results.tensors.is_empty() {
            return self.read_rest().await;
        }
        let mut rest = Vec::new();
        while self.left > 0 {
            let (field, wire_type) = self.read_key().await?;
            match results.tensors.front().copied() {
                Some(tensor) if tensor.field == field && wire_type == WireType::LengthDelimited => {
                    results.tensors.pop_front();
                    let head = self.read_tensor(tensor, results).await?;
                    encode_key(field, wire_type, &mut rest);
                    encode_varint(head.len() as u64, &mut rest);
                    rest.extend_from_slice(&head);
                }
                _ => self.copy_field(field, wire_type, &mut rest).await?,
            }
        }
        match results.tensors.iter().find(|tensor| tensor.bytes > 0) {
            Some(tensor) => Err(Error::internal(format!("the answer came without {}", tensor.name))),
            None => Ok(rest.into()),
        }
    }

    /// Reads a tensor; returns it without its elements.
    async fn read_tensor(&mut self, tensor: &Described, results: &mut Results<'_>) -> Result<Vec<u8>> {
        let length = self.read_length().await?;
        let (head, filled) = self.read_elements(self.left - length, tensor.bytes, results).await?;
        tensor.check_bytes(filled)?;
        tensor.check_answer(&Tensor::decode(&head[..]).map_err(|_| malformed())?)?;
        Ok(head)
    }

    /// Reads fields until `end` bytes of the message are left: copies at most `room` bytes of elements to the results'
    /// places. Returns the other fields, and the elements' number of bytes.
    pub async fn read_elements(
        &mut self,
        end: usize,
        room: usize,
        results: &mut Results<'_>,
    ) -> Result<(Vec<u8>, usize)> {
        let (mut rest, mut bytes) = (Vec::new(), 0);
        while self.left > end {
            let (field, wire_type) = self.read_key().await?;
            if field != DATA || wire_type != WireType::LengthDelimited {
                self.copy_field(field, wire_type, &mut rest).await?;
                continue;
            }
            let length = self.read_length().await?;
            bytes += length;
            if bytes > room {
                break;
            }
            results.fill(length, self).await?;
        }
        Ok((rest, bytes))
    }

    async fn copy_field(&mut self, field: u32, wire_type: WireType, rest: &mut Vec<u8>) -> Result<()> {
        encode_key(field, wire_type, rest);
        let length = match wire_type {
            WireType::Varint => {
                encode_varint(self.read_varint().await?, rest);
                return Ok(());
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => {
                let length = self.read_length().await?;
                encode_varint(length as u64, rest);
                length
            }
            _ => return Err(malformed()),
        };
        let begin = rest.len();
        rest.resize(begin + length, 0);
        self.read(&mut rest[begin..]).await
    }

    async fn read_key(&mut self) -> Result<(u32, WireType)> {
        let key = self.read_varint().await?;
        let wire_type = WireType::try_from(key & 7).map_err(|_| malformed())?;
        Ok(((key >> 3) as u32, wire_type))
    }

    /// Returns the length of a field, which must not exceed the rest of the message.
    async fn read_length(&mut self) -> Result<usize> {
        let length = self.read_varint().await?;
        usize::try_from(length).ok().filter(|length| *length <= self.left).ok_or_else(malformed)
    }

    async fn read_varint(&mut self) -> Result<u64> {
        let mut value = 0;
        // 64 bits are at most ten groups of seven.
        for group in 0..10 {
            let mut byte = [0];
            self.read(&mut byte).await?;
            value |= u64::from(byte[0] & 0x7f) << (7 * group);
            if byte[0] & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(malformed())
    }
}

fn malformed() -> Error {
    Error::internal("the answer is no protobuf message")
}

/// Returns the error of a stream whose answers have more or fewer bytes than its tensors.
pub(crate) fn unfit() -> Error {
    Error::internal("the server's answer does not fit the tensors")
}
