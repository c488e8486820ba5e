//! Reads responses with tensors without a copy of a whole message. Elements go from the received frames directly to the
//! memory of their results, and everything else becomes a message for prost. tonic's codecs would first gather a whole
//! message in a buffer.

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body_util::BodyExt;
use prost::Message;
use prost::encoding::{WireType, decode_varint};
use tonic::Code;
use tonic::body::Body;

use crate::client::Patience;
use crate::error::{Error, Result};
use crate::outgoing::{DATA, PREFIX_BYTES};
use crate::slot::Slot;
use crate::v1::Tensor;

/// The bytes of a response, read in the pieces in which they arrive.
pub(crate) struct Incoming {
    body: Body,
    piece: Bytes,
    trailers: Option<HeaderMap>,
    /// Number of bytes of the current message that are not read yet.
    left: usize,
    /// Maximum size of a message in bytes.
    limit: usize,
    patience: Patience,
}

impl Incoming {
    /// Waits for the answer's headers.
    pub async fn of<F>(response: F, limit: usize, patience: Patience) -> Result<Self>
    where
        F: Future<Output = std::result::Result<http::Response<Body>, tonic::transport::Error>>,
    {
        let response = async { response.await.map_err(|error| Error::of_transport(&error)) };
        let (head, body) = patience.wait(response).await?.into_parts();
        // If an answer has no message, its headers are also its trailers.
        if let Some(error) = Error::of_trailers(&head.headers) {
            return Err(error);
        }
        if head.status != http::StatusCode::OK {
            return Err(Error::of_http(head.status));
        }
        let trailers = head.headers.contains_key("grpc-status").then_some(head.headers);
        Ok(Self { body, piece: Bytes::new(), trailers, left: 0, limit, patience })
    }

    /// Waits for bytes. Returns false at the end of the response.
    async fn wait(&mut self) -> Result<bool> {
        while self.piece.is_empty() {
            let frame = async { self.body.frame().await.transpose().map_err(|status| Error::of_transport(&status)) };
            let Some(frame) = self.patience.wait(frame).await? else { return Ok(false) };
            match frame.into_data() {
                Ok(data) => self.piece = data,
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
        Ok(true)
    }

    /// Begins the next message. Returns false if the call has succeeded and there are no more messages.
    pub async fn next_message(&mut self) -> Result<bool> {
        if !self.wait().await? {
            let broken = || Error::of_transport(&Error::internal("the answer broke off"));
            return Error::of_trailers(self.trailers.as_ref().ok_or_else(broken)?).map_or(Ok(false), Err);
        }
        self.left = PREFIX_BYTES;
        let mut prefix = Vec::new();
        self.copy(PREFIX_BYTES, &mut prefix).await?;
        self.left = (&prefix[1..]).get_u32() as usize;
        if self.left > self.limit {
            let fact = format!("the answer has {} bytes; this client's limit is {}", self.left, self.limit);
            return Err(Error::new(Code::ResourceExhausted, format!("{fact}: raise Options::max_message_bytes")));
        }
        Ok(true)
    }

    /// Reads the next bytes of the message: at least one byte, and at most `most`.
    async fn next(&mut self, most: usize) -> Result<Bytes> {
        if !self.wait().await? {
            // If the server itself ended the call, the trailers have the reason.
            let told = self.trailers.as_ref().and_then(Error::of_trailers);
            return Err(told.unwrap_or_else(|| Error::internal("the answer ends within a message")));
        }
        let next = self.piece.split_to(most.min(self.piece.len()));
        self.left = self.left.checked_sub(next.len()).ok_or_else(malformed)?;
        Ok(next)
    }

    /// Reads this number of bytes of the message, and appends them to `rest`.
    async fn copy(&mut self, bytes: usize, rest: &mut Vec<u8>) -> Result<()> {
        let end = rest.len() + bytes;
        while rest.len() < end {
            rest.extend_from_slice(&self.next(end - rest.len()).await?);
        }
        Ok(())
    }

    /// Reads the message. Copies the elements of results to their slots, and returns everything else.
    pub async fn read_message(&mut self, slots: &[&Slot<'_>]) -> Result<Bytes> {
        let (mut rest, mut slots) = (Vec::new(), slots.iter().peekable());
        while self.left > 0
            && let Some(&&slot) = slots.peek()
        {
            let Some(length) = self.find(slot.field.0, &mut rest).await? else { continue };
            slots.next();
            let mut bytes = 0;
            let head = self.read_elements(self.left - length, &[slot], &mut bytes).await?;
            slot.check_answer(&Tensor::decode(&head[..]).map_err(|_| malformed())?, bytes)?;
            prost::encoding::bytes::encode(slot.field.0, &head, &mut rest);
        }
        self.copy(self.left, &mut rest).await?;
        match slots.find(|slot| slot.bytes > 0) {
            Some(slot) => Err(Error::internal(format!("the answer came without {}", slot.field.2))),
            None => Ok(rest.into()),
        }
    }

    /// Reads fields until `end` bytes of the message are left. Writes elements to the slots after the first `done`
    /// bytes, which were written before. Adds all bytes of elements to `done`, but does not write elements beyond the
    /// end of the slots. Returns the other fields.
    pub async fn read_elements(&mut self, end: usize, slots: &[&Slot<'_>], done: &mut usize) -> Result<Vec<u8>> {
        let mut rest = Vec::new();
        while self.left > end {
            let mut length = self.find(DATA, &mut rest).await?.unwrap_or(0);
            while length > 0 {
                let bytes = self.next(length).await?;
                write(slots, *done, &bytes);
                (length, *done) = (length - bytes.len(), *done + bytes.len());
            }
        }
        Ok(rest)
    }

    /// Reads the key of the next field. If the field is `wanted`, returns the length of its value. Otherwise copies the
    /// whole field to `rest`.
    async fn find(&mut self, wanted: u32, rest: &mut Vec<u8>) -> Result<Option<usize>> {
        let begin = rest.len();
        let key = self.varint(rest).await?;
        let wire_type = WireType::try_from(key & 7).map_err(|_| malformed())?;
        let length = match wire_type {
            WireType::LengthDelimited => self.varint(rest).await?,
            WireType::Varint => self.varint(rest).await.map(|_| 0)?,
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            _ => return Err(malformed()),
        };
        let length = usize::try_from(length).ok().filter(|length| *length <= self.left).ok_or_else(malformed)?;
        if key >> 3 == u64::from(wanted) && wire_type == WireType::LengthDelimited {
            rest.truncate(begin);
            return Ok(Some(length));
        }
        self.copy(length, rest).await?;
        Ok(None)
    }

    /// Reads a number, and also appends its bytes to `rest`.
    async fn varint(&mut self, rest: &mut Vec<u8>) -> Result<u64> {
        let begin = rest.len();
        // 64 bits are at most ten groups of seven bits.
        while rest.len() < begin + 10 {
            self.copy(1, rest).await?;
            if rest.last() < Some(&0x80) {
                break;
            }
        }
        decode_varint(&mut &rest[begin..]).map_err(|_| malformed())
    }
}

/// Writes bytes to slots that are filled one after the other. `at` is the offset of the first byte in all slots
/// together.
fn write(slots: &[&Slot<'_>], mut at: usize, mut bytes: &[u8]) {
    for slot in slots {
        match slot.bytes.checked_sub(at) {
            Some(room) => {
                let (now, later) = bytes.split_at(room.min(bytes.len()));
                slot.write(at, now);
                (at, bytes) = (0, later);
            }
            None => at -= slot.bytes,
        }
    }
}

fn malformed() -> Error {
    Error::internal("the answer is no protobuf message")
}
