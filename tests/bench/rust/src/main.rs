//! ApplyRope as one would write it with tonic: a baseline of the benchmark.
//! float32, half-split pairs, BSHD, positions from a start; nothing else.
//!
//! posenc-bench-tonic UNIX_PATH READY_FILE

mod v1 {
    tonic::include_proto!("posenc.v1");
}

use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{server::TcpIncoming, Server};
use tonic::{Request, Response, Status};
use v1::positional_encoding_service_server as service;

/// Rotates `data` in place: rows of `heads` heads of `dim` channels, the first row
/// at position `start`.
fn rotate(data: &mut [u8], heads: usize, dim: usize, start: i64, theta: f64) {
    let half = dim / 2;
    let frequencies: Vec<f64> =
        (0..half).map(|i| theta.powf(-2.0 * i as f64 / dim as f64)).collect();
    let mut turns = vec![(0f32, 0f32); half];
    for (row, token) in data.chunks_exact_mut(heads * dim * 4).enumerate() {
        for (turn, w) in turns.iter_mut().zip(&frequencies) {
            let (sin, cos) = ((start + row as i64) as f64 * w).sin_cos();
            *turn = (cos as f32, sin as f32);
        }
        for head in token.chunks_exact_mut(dim * 4) {
            let (xs, ys) = head.split_at_mut(half * 4);
            let pairs = xs.chunks_exact_mut(4).zip(ys.chunks_exact_mut(4));
            for ((x, y), (cos, sin)) in pairs.zip(&turns) {
                let a = f32::from_le_bytes(x.try_into().unwrap());
                let b = f32::from_le_bytes(y.try_into().unwrap());
                x.copy_from_slice(&(a * cos - b * sin).to_le_bytes());
                y.copy_from_slice(&(a * sin + b * cos).to_le_bytes());
            }
        }
    }
}

fn apply(mut request: v1::ApplyRopeRequest) -> Option<v1::ApplyRopeResponse> {
    let mut q = request.q.take()?;
    let v1::rope_source::Source::Spec(spec) = request.rope?.source? else {
        return None;
    };
    let v1::positions::Kind::Start(start) = request.positions?.kind? else {
        return None;
    };
    let &[_, _, heads, dim] = q.shape.as_slice() else { return None };
    if q.dtype() != v1::Dtype::Float32 || spec.pairing() != v1::Pairing::HalfSplit {
        return None;
    }
    let theta = spec.rope_theta.unwrap_or(10000.0);
    rotate(&mut q.data, heads as usize, dim as usize, start, theta);
    Some(v1::ApplyRopeResponse { q: Some(q), k: None })
}

struct Baseline;

#[tonic::async_trait]
impl service::PositionalEncodingService for Baseline {
    async fn apply_rope(
        &self,
        request: Request<v1::ApplyRopeRequest>,
    ) -> Result<Response<v1::ApplyRopeResponse>, Status> {
        apply(request.into_inner())
            .map(Response::new)
            .ok_or_else(|| Status::unimplemented("not the benchmark's call"))
    }
}

// The process has one core, so more threads would not help.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, ready] = arguments.as_slice() else {
        return Err("usage: posenc-bench-tonic UNIX_PATH READY_FILE".into());
    };
    // Windows larger than any message, so that none waits for an update.
    const WINDOW: u32 = 256 << 20;
    let builder = || {
        let service = service::PositionalEncodingServiceServer::new(Baseline)
            .max_decoding_message_size(1 << 30)
            .max_encoding_message_size(1 << 30);
        Server::builder()
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_frame_size(1 << 20)
            .add_service(service)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let tcp = TcpIncoming::from(listener).with_nodelay(Some(true));
    let unix = UnixListenerStream::new(UnixListener::bind(path)?);
    std::fs::write(format!("{ready}.new"), format!("{address}\nunix:{path}\n"))?;
    std::fs::rename(format!("{ready}.new"), ready)?;
    tokio::try_join!(
        builder().serve_with_incoming(tcp),
        builder().serve_with_incoming(unix)
    )?;
    Ok(())
}
