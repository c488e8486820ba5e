//! Rotates q with only generated code: cargo run -- localhost:50051

use std::time::Duration;

use prost::Message;

pub mod v1 {
    tonic::include_proto!("posenc.v1");
}

use v1::positional_encoding_service_client::PositionalEncodingServiceClient;
use v1::{positions, rope_source, ApplyRopeRequest, Dtype, Layout, Positions, RopeSource, Tensor};

/// The server's default limit; tonic's is 4 MiB, and longer answers are
/// OUT_OF_RANGE.
const LIMIT: usize = 512 << 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let target = std::env::args().nth(1).ok_or("usage: rotate ADDRESS")?;
    let mut posenc = PositionalEncodingServiceClient::connect(format!("http://{target}"))
        .await?
        .max_decoding_message_size(LIMIT)
        .max_encoding_message_size(LIMIT);

    let elements = 1024 * 32 * 128; // 16 MiB
    let message = ApplyRopeRequest {
        rope: Some(RopeSource {
            source: Some(rope_source::Source::Preset("llama-3.1-8b".into())),
            ..Default::default()
        }),
        positions: Some(Positions { kind: Some(positions::Kind::Start(0)) }),
        layout: Layout::Bshd as i32,
        q: Some(Tensor {
            dtype: Dtype::Float32 as i32,
            shape: vec![1, 1024, 32, 128],
            data: 1f32.to_le_bytes().repeat(elements).into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let bytes = message.encoded_len();
    let mut request = tonic::Request::new(message);
    request.set_timeout(Duration::from_secs(30));
    request.metadata_mut().insert("posenc-message-bytes", bytes.to_string().parse()?);
    let answer = posenc.apply_rope(request).await?.into_inner();
    let data = answer.q.ok_or("no q")?.data;
    let at = |index: usize| f32::from_le_bytes(data[4 * index..4 * index + 4].try_into().unwrap());
    println!("{} bytes, rotated; at position 0 {}, at position 1 {:.6}", data.len(), at(0), at(32 * 128));
    Ok(())
}
