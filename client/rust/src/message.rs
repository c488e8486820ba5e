//! Messages with tensors, without a copy of the tensors: prost encodes the bytes before and between them, and their
//! elements stay in place.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{WireType, decode_key, encode_key, encode_varint, encoded_len_varint};

use crate::error::{Error, Result};
use crate::exchange::{Incoming, Upload};
use crate::slot::Slot;
use crate::v1::{Dtype, Tensor};

/// gRPC's prefix of a message: a flag and the length.
const PREFIX_BYTES: usize = 5;

/// The largest message of protobuf.
pub(crate) const MAX_PROTO_BYTES: usize = (1 << 31) - 1;

/// Field number of Tensor.data.
const DATA: u32 = 15;

/// Size of the buffers for sent elements: they stay in a core's cache until they are sent.
const BUFFER_BYTES: usize = 256 << 10;

enum Piece {
    Encoded(Bytes),
    /// The elements of a slot.
    Elements(usize),
}

/// A message to send: encoded except for the elements of its tensors.
pub(crate) struct Outgoing {
    pieces: Vec<Piece>,
    pub message_bytes: usize,
}

impl Outgoing {
    /// Makes a message of `message` and these tensors, whose fields `message` does not have.
    pub fn new(message: &impl Message, tensors: &[Shaped]) -> Self {
        let mut encoded = BytesMut::new();
        encoded.put_bytes(0, PREFIX_BYTES);
        append(message, &mut encoded);
        let mut pieces = Vec::new();
        let mut sent_bytes = 0;
        for (index, tensor) in tensors.iter().enumerate() {
            let head = Tensor { dtype: tensor.dtype.into(), shape: tensor.shape.clone(), ..Default::default() };
            let bytes = tensor.bytes;
            let data_bytes = if bytes > 0 { 1 + encoded_len_varint(bytes as u64) + bytes } else { 0 };
            encode_key(tensor.field, WireType::LengthDelimited, &mut encoded);
            encode_varint((head.encoded_len() + data_bytes) as u64, &mut encoded);
            append(&head, &mut encoded);
            if bytes > 0 {
                encode_key(DATA, WireType::LengthDelimited, &mut encoded);
                encode_varint(bytes as u64, &mut encoded);
                sent_bytes += encoded.len() + bytes;
                pieces.extend([Piece::Encoded(encoded.split().freeze()), Piece::Elements(index)]);
            }
        }
        sent_bytes += encoded.len();
        pieces.push(Piece::Encoded(encoded.freeze()));
        let message_bytes = sent_bytes - PREFIX_BYTES;
        if let Piece::Encoded(first) = &mut pieces[0] {
            let mut bytes = BytesMut::from(std::mem::take(first));
            // Messages over 4 GiB are refused before they are sent.
            bytes[1..PREFIX_BYTES].copy_from_slice(&(message_bytes as u32).to_be_bytes());
            *first = bytes.freeze();
        }
        Self { pieces, message_bytes }
    }

    /// Sends the message with the elements of `slots`. Returns false if the server has stopped reading.
    pub async fn send(&self, slots: &[Slot<'_>], buffers: &mut Buffers, upload: &Upload) -> bool {
        for piece in &self.pieces {
            match piece {
                Piece::Encoded(bytes) if bytes.is_empty() => {}
                Piece::Encoded(bytes) => match upload.room().await {
                    Some(room) => room.send(bytes.clone()),
                    None => return false,
                },
                &Piece::Elements(index) => {
                    for elements in slots[index].from().chunks(BUFFER_BYTES) {
                        let Some(room) = upload.room().await else { return false };
                        room.send(buffers.copy(elements));
                    }
                }
            }
        }
        true
    }
}

/// The fields of a tensor before its elements.
pub(crate) struct Shaped {
    pub field: u32,
    pub dtype: Dtype,
    pub shape: Vec<i64>,
    pub bytes: usize,
}

fn append(message: &impl Message, to: &mut BytesMut) {
    message.encode(to).expect("a buffer that grows takes everything");
}

/// Buffers that are reused after the connection has released them.
#[derive(Default)]
pub(crate) struct Buffers(VecDeque<Bytes>);

impl Buffers {
    fn copy(&mut self, elements: &[u8]) -> Bytes {
        let free = match self.0.front() {
            Some(oldest) if oldest.is_unique() => self.0.pop_front().and_then(|buffer| buffer.try_into_mut().ok()),
            _ => None,
        };
        let mut buffer = free.unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(elements);
        let buffer = buffer.freeze();
        self.0.push_back(buffer.clone());
        buffer
    }
}

/// Reads a message of `left` bytes: writes elements to the slots, and returns everything else.
pub(crate) async fn read_message(incoming: &mut Incoming, mut left: usize, slots: &mut [Slot<'_>]) -> Result<Bytes> {
    let mut rest = Vec::new();
    if slots.is_empty() {
        rest.resize(left, 0);
        incoming.read(&mut rest).await?;
        return Ok(rest.into());
    }
    while left > 0 {
        let (field, wire_type) = read_key(incoming, &mut left).await?;
        match slots.iter_mut().find(|slot| slot.field == field && slot.has_result()) {
            Some(slot) if wire_type == WireType::LengthDelimited => {
                let length = read_length(incoming, &mut left).await?;
                left -= length;
                let head = read_tensor(incoming, length, slot).await?;
                encode_key(field, wire_type, &mut rest);
                encode_varint(head.len() as u64, &mut rest);
                rest.extend_from_slice(&head);
            }
            _ => copy_field(incoming, &mut left, field, wire_type, &mut rest).await?,
        }
    }
    match slots.iter().find(|slot| slot.has_result() && !slot.filled && slot.bytes() > 0) {
        Some(slot) => Err(Error::internal(format!("the answer came without {}", slot.name))),
        None => Ok(rest.into()),
    }
}

/// Reads a tensor of `left` bytes; returns it without its elements.
async fn read_tensor(incoming: &mut Incoming, mut left: usize, slot: &mut Slot<'_>) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    while left > 0 {
        let (field, wire_type) = read_key(incoming, &mut left).await?;
        if field != DATA || wire_type != WireType::LengthDelimited {
            copy_field(incoming, &mut left, field, wire_type, &mut head).await?;
            continue;
        }
        let length = read_length(incoming, &mut left).await?;
        if length != slot.to().len() {
            return Err(slot.misfit(length));
        }
        incoming.read(slot.to()).await?;
        slot.filled = true;
        left -= length;
    }
    slot.check_answer(&Tensor::decode(&head[..]).map_err(|_| malformed())?)?;
    Ok(head)
}

async fn copy_field(
    incoming: &mut Incoming,
    left: &mut usize,
    field: u32,
    wire_type: WireType,
    rest: &mut Vec<u8>,
) -> Result<()> {
    encode_key(field, wire_type, rest);
    let length = match wire_type {
        WireType::Varint => {
            encode_varint(read_varint(incoming, left).await?, rest);
            return Ok(());
        }
        WireType::SixtyFourBit => 8,
        WireType::ThirtyTwoBit => 4,
        WireType::LengthDelimited => {
            let length = read_length(incoming, left).await?;
            encode_varint(length as u64, rest);
            length
        }
        _ => return Err(malformed()),
    };
    let begin = rest.len();
    rest.resize(begin + length, 0);
    incoming.read(&mut rest[begin..]).await?;
    *left = left.checked_sub(length).ok_or_else(malformed)?;
    Ok(())
}

async fn read_key(incoming: &mut Incoming, left: &mut usize) -> Result<(u32, WireType)> {
    let mut key = Vec::new();
    encode_varint(read_varint(incoming, left).await?, &mut key);
    decode_key(&mut key.as_slice()).map_err(|_| malformed())
}

/// Returns the length of a field, which must not exceed the remaining bytes.
async fn read_length(incoming: &mut Incoming, left: &mut usize) -> Result<usize> {
    let length = read_varint(incoming, left).await?;
    usize::try_from(length).ok().filter(|length| length <= left).ok_or_else(malformed)
}

async fn read_varint(incoming: &mut Incoming, left: &mut usize) -> Result<u64> {
    let mut value = 0;
    // 64 bits are at most ten groups of seven.
    for group in 0..10 {
        *left = left.checked_sub(1).ok_or_else(malformed)?;
        let mut byte = [0];
        incoming.read(&mut byte).await?;
        value |= u64::from(byte[0] & 0x7f) << (7 * group);
        if byte[0] & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(malformed())
}

fn malformed() -> Error {
    Error::internal("the answer is no protobuf message")
}
