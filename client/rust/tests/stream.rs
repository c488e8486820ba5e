//! A stream gives the same bytes as one message, even if its messages end at other elements. Bytes that do not fit are
//! an error.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use common::{Folder, Server, numbers};
use posenc::{Bhsd, Bshd, Client, Code, Dtype, Layout, Options, Sbhd, StartAt, Thd, View, v1, view, view_mut};
use prost::Message;
use tokio::net::TcpListener;

/// Pseudo-random numbers, which are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        // Knuth's linear congruential generator.
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}

/// Returns a client that sends all tensors as streams. A message has at most `max_message_bytes` bytes.
fn streaming(target: &str, max_message_bytes: usize) -> Client {
    let options = Options { stream_above_bytes: Some(0), max_message_bytes, ..Options::default() };
    posenc::connect_with(target, options).unwrap()
}

fn spec() -> v1::RopeSpec {
    v1::RopeSpec { pairing: v1::Pairing::HalfSplit.into(), ..Default::default() }
}

fn ids(shape: &[usize]) -> v1::Tensor {
    let ids: Vec<i64> = (0..shape.iter().product::<usize>() as i64).map(|id| id * 7 % 1001).collect();
    View::new(&ids, shape).to_tensor()
}

#[tokio::test]
async fn rotations_cut_at_random_places_give_the_bytes_of_one_message() {
    let server = Server::start();
    let whole = posenc::connect(&server.target).unwrap();
    let sectioned = v1::rotary_axes::Assignment::Sectioned.into();
    let axes = v1::RotaryAxes { assignment: sectioned, sections: vec![8, 12, 12], ..Default::default() };
    let axes = v1::RopeSpec { axes: Some(axes), ..spec() };
    let starts = v1::positions::Kind::Starts(v1::SequenceStarts { values: vec![5, -3] });
    let packed =
        v1::positions::Kind::Packed(v1::PackedSequences { cu_seqlens: vec![0, 70, 71, 300], starts: vec![9, 0, 2] });
    let (starts, packed) = (v1::Positions { kind: Some(starts) }, v1::Positions { kind: Some(packed) });
    let cases: [(Layout, Dtype, &[usize], v1::Positions, v1::RopeSpec); 10] = [
        (Bshd, Dtype::Float32, &[2, 150, 8, 64], starts.clone(), spec()),
        (Bshd, Dtype::Float64, &[2, 150, 8, 64], ids(&[2, 150]).into(), spec()),
        (Bhsd, Dtype::Float32, &[2, 8, 150, 64], ids(&[150]).into(), spec()),
        (Bhsd, Dtype::Float16, &[2, 1, 1200, 64], StartAt(11).into(), spec()),
        (Sbhd, Dtype::Bfloat16, &[150, 2, 8, 64], starts, spec()),
        (Thd, Dtype::Float32, &[300, 8, 64], packed, spec()),
        (Thd, Dtype::Float8E4m3fn, &[300, 8, 64], ids(&[300]).into(), spec()),
        (Bhsd, Dtype::Float8E5m2, &[2, 8, 150, 64], ids(&[150]).into(), spec()),
        (Bshd, Dtype::Float32, &[2, 150, 8, 64], ids(&[3, 2, 150]).into(), axes.clone()),
        (Bhsd, Dtype::Float32, &[2, 8, 150, 64], ids(&[3, 150]).into(), axes),
    ];
    let mut random = Random(45);
    for (layout, dtype, shape, positions, spec) in cases {
        let is_float8 = matches!(dtype, Dtype::Float8E4m3fn | Dtype::Float8E5m2);
        let saturation = if is_float8 { v1::Saturation::Finite } else { v1::Saturation::Unspecified };
        let request = v1::ApplyRopeRequest {
            rope: Some(spec.into()),
            positions: Some(positions),
            layout: layout.into(),
            saturation: saturation.into(),
            ..Default::default()
        };
        let element = match dtype {
            Dtype::Float64 => 8,
            Dtype::Float32 => 4,
            Dtype::Float16 | Dtype::Bfloat16 => 2,
            _ => 1,
        };
        // The bytes are random and below 0x3f. Such bytes are small numbers in every type, and never NaN.
        let x: Vec<u8> = (0..shape.iter().product::<usize>() * element).map(|_| random.below(0x3f) as u8).collect();
        let q = || View::of_bytes(dtype, &x, shape);
        let (one, also_one, _) = whole.apply_rope(request.clone(), q(), q()).await.unwrap();
        assert!(one != x && one == also_one, "{layout:?} {shape:?}");
        for _ in 0..3 {
            let most = request.encoded_len() + 64 + random.below(40_000);
            let client = streaming(&server.target, most);
            let (many, also_many, _) = client.apply_rope(request.clone(), q(), q()).await.unwrap();
            assert!(one == many && one == also_many, "{layout:?} {shape:?} in messages of {most}");
            let mut own = x.clone();
            client.apply_rope(request.clone(), View::of_bytes(dtype, &x, shape).write_to(&mut own), ()).await.unwrap();
            assert!(one == own, "{layout:?} {shape:?} in messages of {most}");
        }
    }
}

#[tokio::test]
async fn large_positions_go_before_the_tensors() {
    let server = Server::start();
    let whole = posenc::connect(&server.target).unwrap();
    let stream = streaming(&server.target, 4 << 20);
    // Each tensor of ids has 2.4 MB, which is too large for the first message of a stream.
    let shape = [300_000, 1, 8];
    let x = numbers(shape.iter().product());
    let apply = v1::ApplyRopeRequest {
        rope: Some(spec().into()),
        positions: Some(ids(&[300_000]).into()),
        layout: Thd.into(),
        ..Default::default()
    };
    let (one, ..) = whole.apply_rope(apply.clone(), view!(x, shape), ()).await.unwrap();
    let mut many = x.clone();
    stream.apply_rope(apply, view_mut!(many, shape), ()).await.unwrap();
    assert!(one == many);
    let targets = [
        v1::movement::Target::Shifts(ids(&[300_000])),
        v1::movement::Target::NewPositions(ids(&[300_000]).into()),
        v1::movement::Target::Shift(5),
    ];
    for target in targets {
        let movement = v1::Movement { old_positions: Some(ids(&[300_000]).into()), target: Some(target) };
        let request = v1::RepositionRequest {
            old_rope: Some(spec().into()),
            movement: Some(movement),
            layout: Thd.into(),
            ..Default::default()
        };
        let (one, _) = whole.reposition(request.clone(), view!(x, shape)).await.unwrap();
        let (many, _) = stream.reposition(request, view!(x, shape)).await.unwrap();
        assert!(one == many);
    }
}

/// A server whose metrics show how much memory its calls claim.
struct Watched {
    server: Server,
    admin: PathBuf,
}

impl Watched {
    fn start() -> Self {
        let folder = Folder::new();
        let admin = folder.0.join("admin");
        let server = Server::at("127.0.0.1:0", &["--admin", &format!("unix:{}", admin.display())], folder);
        Self { server, admin }
    }

    /// Waits until no call is in progress and no byte is claimed.
    async fn assert_holds_nothing(&self) {
        let mut held = Vec::new();
        for _ in 0..1000 {
            let mut admin = UnixStream::connect(&self.admin).unwrap();
            admin.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
            let mut metrics = String::new();
            admin.read_to_string(&mut metrics).unwrap();
            let is_held = |line: &&str| {
                line.starts_with("posenc_claimed_bytes ") || line.starts_with("posenc_calls_in_progress ")
            };
            held = metrics.lines().filter(is_held).map(str::to_owned).collect();
            if held.len() == 2 && held.iter().all(|line| line.ends_with(" 0")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the server holds {held:?}");
    }
}

#[tokio::test]
async fn a_stream_that_is_dropped_in_the_middle_leaves_client_and_server_in_order() {
    let watched = Watched::start();
    let client = streaming(&watched.server.target, 4 << 20);
    let request = v1::ApplyRopeRequest {
        rope: Some(spec().into()),
        positions: Some(StartAt(0).into()),
        layout: Bshd.into(),
        ..Default::default()
    };
    let shape = [1, 8192, 32, 64];
    let q = numbers(shape.iter().product());
    for micros in [1, 100, 1000, 10_000] {
        let call = client.apply_rope(request.clone(), view!(q, shape), ());
        let _ = tokio::time::timeout(Duration::from_micros(micros), call).await;
    }
    watched.assert_holds_nothing().await;
    let small = [1, 4, 32, 64];
    let (out, ..) = client.apply_rope(request, view!(q[..4 * 32 * 64], small), ()).await.unwrap();
    assert!(out[..2048] == q[..2048] && out[2048..] != q[2048..8192]);
}

/// How the client ends a stream that the test makes by hand.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    HalfClose,
    /// The client sends no more messages, and does not end its side of the stream.
    Stall,
    /// The client does not read the answers.
    NeverRead,
}

/// Makes a call with these messages. Returns code, reason and field of the call's status, or `None` if the stream was
/// reset.
async fn by_hand(target: &str, messages: &[v1::ApplyRopeStreamRequest], end: End) -> Option<(Code, String, String)> {
    let socket = tokio::net::TcpStream::connect(target).await.unwrap();
    let (mut connection, task) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(task);
    let head = http::Request::post(format!("http://{target}/posenc.v1.PositionalEncodingService/ApplyRopeStream"))
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .header("posenc-message-bytes", messages.iter().map(Message::encoded_len).max().unwrap_or(0))
        .header("grpc-timeout", if end == End::HalfClose { "60S" } else { "500m" });
    let (response, mut upload) = connection.send_request(head.body(()).unwrap(), false).unwrap();
    for message in messages {
        let framed = [&[0][..], &(message.encoded_len() as u32).to_be_bytes(), &message.encode_to_vec()].concat();
        // Sending fails if the server has ended the call.
        let _ = upload.send_data(framed.into(), false);
    }
    if end == End::HalfClose {
        let _ = upload.send_data(Default::default(), true);
    }
    let (head, mut body) = response.await.ok()?.into_parts();
    if end == End::NeverRead {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    while let Some(piece) = body.data().await {
        body.flow_control().release_capacity(piece.ok()?.len()).unwrap();
    }
    let trailers = body.trailers().await.ok()?.unwrap_or(head.headers);
    let status = tonic::Status::from_header_map(&trailers)?;
    let info = tonic_types::StatusExt::get_details_error_info(&status);
    let (reason, field) = info.map(|mut info| (info.reason, info.metadata.remove("field"))).unwrap_or_default();
    Some((status.code(), reason, field.unwrap_or_default()))
}

#[tokio::test]
async fn a_stream_that_breaks_the_contract_has_its_status_and_leaves_nothing() {
    let q = |shape: Vec<i64>| v1::Tensor { dtype: Dtype::Float32.into(), shape, ..Default::default() };
    let call = |shape| v1::ApplyRopeRequest {
        rope: Some(spec().into()),
        positions: Some(StartAt(5).into()),
        layout: Bshd.into(),
        q: Some(q(shape)),
        ..Default::default()
    };
    let describe = |shape| v1::ApplyRopeStreamRequest { call: Some(call(shape)), ..Default::default() };
    let bytes = |count| v1::ApplyRopeStreamRequest { data: vec![0; count].into(), ..Default::default() };
    // `first` describes a tensor of 16 bytes.
    let first = || describe(vec![1, 2, 1, 2]);
    let large = vec![describe(vec![1, 8192, 16, 64])].into_iter().chain((0..8).map(|_| bytes(4 << 20))).collect();
    let (wrong, late) = (Code::InvalidArgument, Code::DeadlineExceeded);
    let cases = [
        ("all bytes", vec![first(), bytes(16)], End::HalfClose, Code::Ok, "", ""),
        ("too few bytes", vec![first(), bytes(12)], End::HalfClose, wrong, "TENSOR_SIZE_MISMATCH", "data"),
        ("too many bytes", vec![first(), bytes(16), bytes(4)], End::HalfClose, wrong, "TENSOR_SIZE_MISMATCH", "data"),
        ("a cut in an element", vec![first(), bytes(6), bytes(10)], End::HalfClose, wrong, "FIELD_INVALID", "data"),
        ("a second description", vec![first(), first()], End::HalfClose, wrong, "FIELD_INVALID", "call"),
        ("no description", vec![bytes(16)], End::HalfClose, wrong, "FIELD_REQUIRED", "call"),
        ("no message", vec![], End::HalfClose, wrong, "FIELD_REQUIRED", ""),
        ("a sender that stalls", vec![first(), bytes(8)], End::Stall, late, "", ""),
        ("a reader that never reads", large, End::NeverRead, late, "", ""),
    ];
    let watched = Watched::start();
    for (what, messages, end, code, reason, field) in cases {
        let status = by_hand(&watched.server.target, &messages, end).await;
        let reason = if reason.is_empty() { String::new() } else { format!("ERROR_REASON_{reason}") };
        // At the deadline, the server may also reset the stream while answers are unread.
        let reset = status.is_none() && code == late;
        assert!(reset || status == Some((code, reason, field.to_owned())), "{what}: {status:?}");
        watched.assert_holds_nothing().await;
    }
}

/// Starts a fake server that answers a call with the first bytes of a tensor, and then nothing more. The server reads
/// the messages of the call only if `reads` is true. Returns its address.
async fn stalling(reads: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(socket).await.unwrap();
        let mut held = Vec::new();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let response = http::Response::builder().header("content-type", "application/grpc").body(()).unwrap();
            let mut answers = respond.send_response(response, false).unwrap();
            let message = v1::ApplyRopeStreamResponse { data: vec![0; 8192].into() }.encode_to_vec();
            let framed = [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat();
            answers.send_data(framed.into(), false).unwrap();
            let mut body = request.into_body();
            if reads {
                let reader = tokio::spawn(async move {
                    while let Some(Ok(piece)) = body.data().await {
                        body.flow_control().release_capacity(piece.len()).unwrap();
                    }
                    std::future::pending::<()>().await
                });
                held.push((answers, Ok(reader)));
            } else {
                held.push((answers, Err(body)));
            }
        }
    });
    target
}

#[tokio::test]
async fn a_server_that_stalls_or_never_reads_ends_the_stream() {
    for reads in [true, false] {
        let options =
            Options { stream_above_bytes: Some(0), timeout: Duration::from_millis(300), ..Options::default() };
        let client = posenc::connect_with(stalling(reads).await, options).unwrap();
        // The tensor is larger than the windows of HTTP/2 and the buffers of the sockets together.
        let shape = [1, 4096, 16, 64];
        let mut q = numbers(shape.iter().product());
        let sent = client.apply_rope(v1::ApplyRopeRequest::default(), view_mut!(q, shape), ()).await;
        let error = sent.unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
        assert!(error.message().contains("the stream stood still for 300ms"), "{error}");
    }
}

/// Starts a fake server that reads a whole stream. `answer` gets the stream's data, and returns the data of each
/// answer. Returns the server's address.
async fn answering(answer: impl Fn(Vec<u8>) -> Vec<Vec<u8>> + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(socket).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                // The client makes no other call before the stream.
                assert!(request.uri().path().ends_with("/ApplyRopeStream"), "{}", request.uri());
                let announced: usize = request.headers()["posenc-message-bytes"].to_str().unwrap().parse().unwrap();
                let (mut body, mut bytes) = (request.into_body(), Vec::new());
                while let Some(piece) = body.data().await {
                    let piece = piece.unwrap();
                    body.flow_control().release_capacity(piece.len()).unwrap();
                    bytes.extend_from_slice(&piece);
                }
                let (mut data, mut index, mut rest) = (Vec::new(), 0, &bytes[..]);
                while let Some((prefix, more)) = rest.split_at_checked(5) {
                    let length = u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize;
                    assert!(length <= announced, "a message of {length} bytes; {announced} were announced");
                    let message = v1::ApplyRopeStreamRequest::decode(&more[..length]).unwrap();
                    assert_eq!(message.call.is_some(), index == 0, "message {index}");
                    data.extend_from_slice(&message.data);
                    (index, rest) = (index + 1, &more[length..]);
                }
                let response = http::Response::builder().header("content-type", "application/grpc").body(()).unwrap();
                let mut stream = respond.send_response(response, false).unwrap();
                for data in answer(data) {
                    let message = v1::ApplyRopeStreamResponse { data: data.into() }.encode_to_vec();
                    let mut framed = vec![0];
                    framed.extend((message.len() as u32).to_be_bytes());
                    framed.extend(message);
                    stream.send_data(framed.into(), false).unwrap();
                }
                stream.send_trailers([("grpc-status".parse().unwrap(), "0".parse().unwrap())].into_iter().collect())
            });
        }
    });
    target
}

#[tokio::test]
async fn answers_cut_at_random_places_fill_both_tensors() {
    let cut = |data: Vec<u8>| {
        let (mut random, mut rest, mut messages) = (Random(9), &data[..], Vec::new());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(random.below(700)));
            messages.push(now.to_vec());
            rest = later;
        }
        messages
    };
    for most in [2000, 9000, 4 << 20] {
        let client = streaming(&answering(cut).await, most);
        let (mut q, mut k) = (numbers(4096), numbers(2048));
        let (q_was, k_was) = (q.clone(), k.clone());
        let (q_out, k_out, _) = client
            .apply_rope(v1::ApplyRopeRequest::default(), view!(q, [1, 16, 4, 64]), view!(k, [1, 16, 2, 64]))
            .await
            .unwrap();
        assert!(q_out == q && k_out == k);
        let (q_view, k_view) = (view_mut!(q, [1, 16, 4, 64]), view_mut!(k, [1, 16, 2, 64]));
        client.apply_rope(v1::ApplyRopeRequest::default(), q_view, k_view).await.unwrap();
        assert!(q == q_was && k == k_was);
    }
}

#[tokio::test]
async fn answers_that_do_not_fit_the_tensor_are_errors() {
    type Answer = fn(Vec<u8>) -> Vec<Vec<u8>>;
    let cases: [(&str, Answer); 4] = [
        ("none", |_| Vec::new()),
        ("a byte too few", |data| vec![data[1..].to_vec()]),
        ("a byte too many", |data| vec![data, vec![0]]),
        ("twice", |data| vec![[data.clone(), data].concat()]),
    ];
    for (what, answer) in cases {
        let client = streaming(&answering(answer).await, 4 << 20);
        let q = numbers(4096);
        let sent = client.apply_rope(v1::ApplyRopeRequest::default(), view!(q, [1, 16, 4, 64]), ()).await;
        let error = sent.expect_err(what);
        assert_eq!(error.code(), Code::Internal, "{what}: {error}");
        assert!(error.message().contains("does not fit"), "{what}: {error}");
    }
}
