//! Requests with tensors, without a copy of the tensors: prost encodes the bytes before and between them, and their
//! elements stay in place. tonic's codecs encode a whole message into a buffer. Here the caller's task copies elements
//! to small buffers:
//!
//! ```text
//!   caller's memory --copy--> buffers of 256 KiB --> HTTP/2, socket
//! ```

use std::convert::Infallible;
use std::ops::Range;

use bytes::Bytes;
use http_body::Frame;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::SendError;

use crate::slot::Slot;
use crate::v1::Tensor;

/// gRPC's prefix of a message: a flag and the length.
pub(crate) const PREFIX_BYTES: usize = 5;

/// Number of the field with elements, in tensors and in messages of streams. Its key has one byte.
pub(crate) const DATA: u32 = 15;

/// Size of the buffers for sent elements: they stay in a core's cache until they are sent.
const BUFFER_BYTES: usize = 256 << 10;

/// Elements of a stream's message, as the server recommends: with key and length the message fits gRPC's 4 MiB. It is a
/// multiple of nearly every head, which lets the server rotate in place.
pub(crate) const CHUNK_BYTES: usize = (4 << 20) - (64 << 10);

/// Bytes of a stream's message beside its elements: key and length.
const CHUNK_HEAD_BYTES: usize = 5;

/// A piece of a request's body.
pub(crate) type Piece = Result<Frame<Bytes>, Infallible>;

/// The messages of a call, encoded except for the elements of their tensors.
#[derive(Default)]
pub(crate) struct Outgoing {
    encoded: Vec<u8>,
    /// Elements: the offset in `encoded` at which they are sent, the index of their slot, and their bytes in it.
    elements: Vec<(usize, usize, Range<usize>)>,
    /// Bytes of the largest message.
    pub largest: usize,
    pub streams: bool,
}

impl Outgoing {
    /// Makes one message of `request` and the slots' tensors, whose fields `request` does not have. Tensors in shared
    /// memory are named, not sent.
    pub fn unary(request: &impl Message, slots: &[Slot<'_>]) -> Self {
        let mut this = Self::default();
        let begin = this.begin();
        request.encode_raw(&mut this.encoded);
        for (index, slot) in slots.iter().enumerate() {
            let (number, output, _) = slot.field;
            if !slot.received {
                let head = Tensor { shared: slot.place.clone(), ..slot.head() };
                let sent = if slot.place.is_some() { 0 } else { slot.bytes };
                let data = if sent > 0 { 1 + encoded_len_varint(sent as u64) + sent } else { 0 };
                encode_key(number, WireType::LengthDelimited, &mut this.encoded);
                encode_varint((head.encoded_len() + data) as u64, &mut this.encoded);
                head.encode_raw(&mut this.encoded);
                this.data(index, 0..sent);
            }
            if let Some(place) = &slot.output_place {
                prost::encoding::message::encode(output, place, &mut this.encoded);
            }
        }
        this.end(begin);
        this
    }

    /// Makes a stream: a message that describes the call, and messages of the slots' elements, which end anywhere.
    pub fn stream(request: &impl Message, slots: &[Slot<'_>], max_message_bytes: usize) -> Self {
        let mut this = Self { streams: true, ..Self::default() };
        let begin = this.begin();
        let mut call = request.encode_to_vec();
        for slot in slots.iter().filter(|slot| slot.field.0 > 0) {
            prost::encoding::message::encode(slot.field.0, &slot.head(), &mut call);
        }
        prost::encoding::bytes::encode(1, &call, &mut this.encoded);
        this.end(begin);
        // No element has more than eight bytes.
        let chunk = CHUNK_BYTES.min(max_message_bytes.saturating_sub(CHUNK_HEAD_BYTES) / 8 * 8).max(8);
        for (index, slot) in slots.iter().enumerate() {
            for done in (0..slot.bytes).step_by(chunk) {
                let begin = this.begin();
                this.data(index, done..slot.bytes.min(done + chunk));
                this.end(begin);
            }
        }
        this
    }

    fn data(&mut self, slot: usize, bytes: Range<usize>) {
        if !bytes.is_empty() {
            encode_key(DATA, WireType::LengthDelimited, &mut self.encoded);
            encode_varint(bytes.len() as u64, &mut self.encoded);
            self.elements.push((self.encoded.len(), slot, bytes));
        }
    }

    /// Begins a message. Returns its offset.
    fn begin(&mut self) -> usize {
        self.encoded.extend([0; PREFIX_BYTES]);
        self.encoded.len()
    }

    /// Ends the message that begins at an offset: writes its length before it.
    fn end(&mut self, begin: usize) {
        let elements = self.elements.iter().rev().take_while(|(at, ..)| *at > begin).map(|(.., bytes)| bytes.len());
        let bytes = self.encoded.len() - begin + elements.sum::<usize>();
        // Messages over 4 GiB are refused before they are sent.
        self.encoded[begin - 4..begin].copy_from_slice(&(bytes as u32).to_be_bytes());
        self.largest = self.largest.max(bytes);
    }

    /// Sends the messages. Ends early if the server has stopped reading.
    pub async fn send(&self, slots: &[Slot<'_>], upload: Sender<Piece>) -> Result<(), SendError<Piece>> {
        let (mut encoded, mut sent) = (Bytes::copy_from_slice(&self.encoded), 0);
        for (at, slot, bytes) in &self.elements {
            upload.send(Ok(Frame::data(encoded.split_to(at - sent)))).await?;
            sent = *at;
            for begin in bytes.clone().step_by(BUFFER_BYTES) {
                let elements = slots[*slot].read(begin..bytes.end.min(begin + BUFFER_BYTES));
                upload.send(Ok(Frame::data(elements))).await?;
            }
        }
        if encoded.is_empty() { Ok(()) } else { upload.send(Ok(Frame::data(encoded))).await }
    }
}
