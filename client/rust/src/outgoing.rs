//! Encodes requests with tensors, without a copy of a whole tensor. prost encodes only the bytes before and between the
//! tensors. The caller's task copies the elements to small buffers. tonic's codecs would encode the whole message into
//! one buffer.
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

/// The field number of `data`, both in tensors and in the messages of streams. The field's key has one byte.
pub(crate) const DATA: u32 = 15;

/// Size of the buffers for elements, in bytes. A buffer of this size stays in a core's cache until it is sent.
const BUFFER_BYTES: usize = 256 << 10;

/// Size of the elements in a stream's message, in bytes, as the server recommends. With key and length, the message
/// fits gRPC's default limit of 4 MiB. The size is a multiple of nearly every head's size, so that the server can
/// rotate in place.
pub(crate) const CHUNK_BYTES: usize = (4 << 20) - (64 << 10);

/// Size of key and length before the elements of a stream's message, in bytes.
const CHUNK_HEAD_BYTES: usize = 5;

/// The next frame of a request's body.
pub(crate) type Piece = Result<Frame<Bytes>, Infallible>;

/// Encoded bytes of a message, and the elements that follow: the index of a slot, and a range of bytes in the slot.
type Part<B> = (B, usize, Range<usize>);

/// The request messages of a call. Everything except the elements of tensors is encoded.
#[derive(Default)]
pub(crate) struct Outgoing {
    parts: Vec<Part<Bytes>>,
    /// Size of the largest message in bytes.
    pub largest: usize,
    pub streams: bool,
}

impl Outgoing {
    /// Makes one message of `request` and the tensors of the slots; `request` must not contain these tensors. Tensors
    /// in shared memory are sent as places.
    pub fn unary(request: &impl Message, slots: &[Slot<'_>]) -> Self {
        let (mut parts, mut encoded) = (Vec::new(), vec![0; PREFIX_BYTES]);
        request.encode_raw(&mut encoded);
        for (index, slot) in slots.iter().enumerate() {
            let (number, output, _) = slot.field;
            if !slot.received {
                let head = Tensor { shared: slot.place.clone(), ..slot.head() };
                let sent = if slot.place.is_some() { 0 } else { slot.bytes };
                let data = if sent > 0 { 1 + encoded_len_varint(sent as u64) + sent } else { 0 };
                encode_key(number, WireType::LengthDelimited, &mut encoded);
                encode_varint((head.encoded_len() + data) as u64, &mut encoded);
                head.encode_raw(&mut encoded);
                if sent > 0 {
                    parts.push((before_data(encoded, sent), index, 0..sent));
                    encoded = Vec::new();
                }
            }
            if let Some(place) = &slot.output_place {
                prost::encoding::message::encode(output, place, &mut encoded);
            }
        }
        parts.push((encoded, 0, 0..0));
        let mut this = Self::default();
        this.add(parts);
        this
    }

    /// Makes the messages of a stream: first a message that describes the call, then messages with the elements of the
    /// slots. A message can end between any two elements.
    pub fn stream(request: &impl Message, slots: &[Slot<'_>], max_message_bytes: usize) -> Self {
        let mut this = Self { streams: true, ..Self::default() };
        let (mut call, mut first) = (request.encode_to_vec(), vec![0; PREFIX_BYTES]);
        for slot in slots.iter().filter(|slot| slot.field.0 > 0) {
            prost::encoding::message::encode(slot.field.0, &slot.head(), &mut call);
        }
        prost::encoding::bytes::encode(1, &call, &mut first);
        this.add(vec![(first, 0, 0..0)]);
        // If a chunk is a multiple of eight bytes, it ends between two elements.
        let chunk = CHUNK_BYTES.min(max_message_bytes.saturating_sub(CHUNK_HEAD_BYTES) / 8 * 8).max(8);
        for (index, slot) in slots.iter().enumerate() {
            for begin in (0..slot.bytes).step_by(chunk) {
                let elements = begin..slot.bytes.min(begin + chunk);
                this.add(vec![(before_data(vec![0; PREFIX_BYTES], elements.len()), index, elements)]);
            }
        }
        this
    }

    /// Adds a message. Its first PREFIX_BYTES bytes are reserved for gRPC's prefix.
    fn add(&mut self, mut parts: Vec<Part<Vec<u8>>>) {
        let bytes = parts.iter().map(|(bytes, _, elements)| bytes.len() + elements.len()).sum::<usize>() - PREFIX_BYTES;
        // Messages over 4 GiB are refused before they are sent.
        parts[0].0[1..PREFIX_BYTES].copy_from_slice(&(bytes as u32).to_be_bytes());
        self.parts.extend(parts.into_iter().map(|(bytes, slot, elements)| (bytes.into(), slot, elements)));
        self.largest = self.largest.max(bytes);
    }

    /// Sends the messages. Ends early if the server has stopped reading.
    pub async fn send(&self, slots: &[Slot<'_>], upload: Sender<Piece>) -> Result<(), SendError<Piece>> {
        for (bytes, slot, elements) in &self.parts {
            if !bytes.is_empty() {
                upload.send(Ok(Frame::data(bytes.clone()))).await?;
            }
            for begin in elements.clone().step_by(BUFFER_BYTES) {
                let elements = slots[*slot].read(begin..elements.end.min(begin + BUFFER_BYTES));
                upload.send(Ok(Frame::data(elements))).await?;
            }
        }
        Ok(())
    }
}

/// Appends to a message the key and the length of the elements that follow.
fn before_data(mut encoded: Vec<u8>, elements: usize) -> Vec<u8> {
    encode_key(DATA, WireType::LengthDelimited, &mut encoded);
    encode_varint(elements as u64, &mut encoded);
    encoded
}
