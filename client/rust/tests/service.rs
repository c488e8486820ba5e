//! Errors, deadlines, servers that come and go, TLS and tokens.

mod common;

use std::time::Duration;

use common::{Folder, Server, certificate, numbers};
use posenc::{Bshd, CallOptions, Client, Code, Config, Layout, Options, Reason, StartAt, TlsOptions, v1, view};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

fn with(target: &str, options: Options) -> Client {
    posenc::connect_with(target, options).unwrap()
}

#[tokio::test]
async fn an_error_has_the_servers_reason_field_and_remedy() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    let call = CallOptions { request_id: Some("request-7".into()), ..Default::default() };
    let error = client.with(call).rope(Config::preset("llama-3.1-8B")).await.err().unwrap();
    assert_eq!((error.code(), error.code_name().as_str()), (Code::NotFound, "NOT_FOUND"));
    assert_eq!((error.reason(), error.reason_name()), (Some(Reason::PresetUnknown), "PRESET_UNKNOWN"));
    assert_eq!(error.field(), Some("rope.preset"));
    assert_eq!(error.metadata()["preset"], "llama-3.1-8B");
    assert_eq!(error.request_id(), "request-7");
    assert!(error.to_string().contains("llama-3.1-8b"), "{error}");
    let other = client.rope(Config::preset("nobody")).await.err().unwrap();
    assert_eq!(other.request_id().len(), 32);
}

#[tokio::test]
async fn a_tensor_that_is_not_as_large_as_its_shape_is_the_servers_to_refuse() {
    let server = Server::start();
    let rope = posenc::connect(&server.target).unwrap().rope(Config::preset("llama-3.1-8b")).await.unwrap();
    let q = numbers(128);
    let error = rope.apply(Bshd, StartAt(0), view!(q, [1, 2, 1, 128]), ()).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::TensorSizeMismatch));
    let mut short = vec![0.0; 64];
    let error = rope.apply(Bshd, StartAt(0), view!(q, [1, 1, 1, 128]).write_to(&mut short), ()).await.unwrap_err();
    assert!(error.message().starts_with("q_output: has 256 bytes; must have 512"), "{error}");
}

#[tokio::test]
async fn an_answer_over_the_clients_limit_says_which_option_to_raise() {
    let server = Server::start();
    let client = with(&server.target, Options { max_message_bytes: 64, ..Options::default() });
    let error = client.get_server_info().await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert!(error.message().contains("max_message_bytes"), "{error}");
}

#[tokio::test]
async fn tensors_over_the_servers_limit_go_as_a_stream() {
    let server = Server::with(&["--max-request-bytes", "6MiB"]);
    let rope = posenc::connect(&server.target).unwrap().rope(Config::preset("llama-3.1-8b")).await.unwrap();
    let q = numbers(1024 * 32 * 128);
    let (out, ()) = rope.apply(Bshd, StartAt(0), view!(q, [1, 1024, 32, 128]), ()).await.unwrap();
    // Position 0 is not rotated; later positions are rotated.
    assert!(out[..4096] == q[..4096] && out[4096..8192] != q[4096..8192]);
}

#[tokio::test]
async fn a_server_that_is_away_is_tried_four_times_and_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let attempts = tokio::spawn(async move {
        let mut attempts = 0;
        while attempts < 4 {
            // Closes each connection immediately.
            drop(listener.accept().await.unwrap());
            attempts += 1;
        }
        listener
    });
    let error = posenc::connect(&target).unwrap().get_server_info().await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.to_string().contains(&target), "{error}");
    let listener = attempts.await.unwrap();
    let more = tokio::time::timeout(Duration::from_millis(1), listener.accept()).await;
    assert!(more.is_err(), "a fifth attempt");
}

/// Starts a server that accepts connections and never answers. Returns its task and its address.
async fn silent_server() -> (JoinHandle<()>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let silent = tokio::spawn(async move {
        let mut connections = Vec::new();
        while connections.len() < 8 {
            connections.push(listener.accept().await.unwrap());
        }
    });
    (silent, target)
}

#[tokio::test]
async fn a_server_that_does_not_answer_ends_the_call_at_its_deadline() {
    let (silent, target) = silent_server().await;
    let client = with(&target, Options { timeout: Duration::from_millis(200), ..Options::default() });
    let error = client.get_server_info().await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert!(error.to_string().contains(&target), "{error}");
    // The timeout limits only the time of a stream without progress.
    let error = client.build_bias(v1::BuildBiasRequest::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    let streaming = Options { stream_above_bytes: Some(0), timeout: Duration::from_millis(200), ..Options::default() };
    let request = v1::ApplyRopeRequest { layout: Layout::Thd.into(), ..Default::default() };
    let error = with(&target, streaming).apply_rope(request, view!([0_f32; 8], [1, 1, 8]), ()).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert!(error.to_string().contains("stood still"), "{error}");
    silent.abort();
}

#[tokio::test]
async fn calls_go_round_all_servers_and_past_those_that_have_gone() {
    let (mut first, second) = (Server::start(), Server::with(&["--max-request-bytes", "6MiB"]));
    let client = posenc::connect(format!("{},{}", first.target, second.target)).unwrap();
    let mut limits = Vec::new();
    for _ in 0..4 {
        limits.push(client.get_server_info().await.unwrap().limits.unwrap().max_request_bytes);
    }
    assert_eq!((limits[0], limits[1]), (limits[2], limits[3]));
    assert_ne!(limits[0], limits[1]);
    first.stop();
    for _ in 0..4 {
        let info = client.get_server_info().await.unwrap();
        assert_eq!(info.limits.unwrap().max_request_bytes, 6 << 20);
    }
}

#[tokio::test]
async fn a_unix_socket_is_a_target() {
    let folder = Folder::new();
    let target = format!("unix:{}/socket", folder.0.display());
    let _server = Server::at(&target, &[], folder);
    assert!(!posenc::connect(target).unwrap().get_server_info().await.unwrap().version.is_empty());
}

#[tokio::test]
async fn localhost_is_found_though_only_one_of_its_addresses_is_listened_at() {
    let server = Server::start();
    let port = server.target.rsplit(':').next().unwrap();
    for scheme in ["", "http://", "dns:///"] {
        let client = posenc::connect(format!("{scheme}localhost:{port}")).unwrap();
        client.get_server_info().await.unwrap();
        client.get_server_info().await.unwrap();
    }
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn a_token_is_shown_over_tls_to_a_server_that_is_trusted() {
    let folder = Folder::new();
    let (cert, key) = certificate(&folder.0);
    let tokens = folder.file("tokens", "tester good-token\nformer old-token expires=2020-01-01T00:00:00Z\n");
    let flags = ["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let flags = [&flags[..], &["--token-file", tokens.to_str().unwrap()]].concat();
    let server = Server::with(&flags);
    let target = format!("https://localhost:{}", server.target.rsplit(':').next().unwrap());
    let tls = TlsOptions { ca_file: Some(cert), ..Default::default() };
    let shown =
        |token: Option<&str>| Options { tls: Some(tls.clone()), token: token.map(str::to_owned), ..Options::default() };
    with(&target, shown(Some("good-token"))).get_server_info().await.unwrap();
    for (token, cause) in [(None, "missing"), (Some("bad"), "invalid"), (Some("old-token"), "expired")] {
        let error = with(&target, shown(token)).get_server_info().await.unwrap_err();
        assert_eq!((error.code(), error.reason()), (Code::Unauthenticated, Some(Reason::Unauthenticated)));
        assert_eq!(error.metadata()["cause"], cause);
    }
    // The system does not trust the server's certificate.
    let error = with(&target, Options::default()).get_server_info().await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.to_string().contains("certificate"), "{error}");
    // The token may also come from a file.
    let mut options = shown(None);
    options.token_file = Some(server.folder.file("token", "good-token\n"));
    let rope = with(&target, options).rope(Config::preset("llama-3.1-8b")).await.unwrap();
    let q = numbers(512 * 32 * 128);
    let (out, ()) = rope.apply(Bshd, StartAt(0), view!(q, [1, 512, 32, 128]), ()).await.unwrap();
    assert!(out[..4096] == q[..4096]);
}

#[tokio::test]
async fn a_token_never_goes_in_the_clear_to_another_machine() {
    let options = Options { token: Some("secret".into()), ..Options::default() };
    let error = posenc::connect_with("posenc.example:50051", options.clone()).err().unwrap();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().starts_with("token: "), "{error}");
    assert!(posenc::connect_with("localhost:50051", options).is_ok());
}

/// Starts a fake server that answers each ApplyRope late, with RESOURCE_EXHAUSTED. The server sends the method and the
/// timeout of every call to `told`. Returns its address.
async fn late_server(told: tokio::sync::mpsc::UnboundedSender<(String, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let told = told.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(socket).await.unwrap();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
                    let timeout = request.headers()["grpc-timeout"].to_str().unwrap().to_owned();
                    let (status, late) = if method == "ApplyRope" { (8, 1) } else { (13, 0) };
                    told.send((method, timeout)).unwrap();
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_secs(late)).await;
                        let response = http::Response::builder().header("content-type", "application/grpc");
                        let response = response.header("grpc-status", status).body(()).unwrap();
                        respond.send_response(response, true).unwrap();
                    });
                }
            });
        }
    });
    target
}

/// Parses a timeout in the form of gRPC's header: a number and a unit.
fn timeout_of(header: &str) -> Duration {
    let (number, unit) = header.split_at(header.len() - 1);
    let nanos = match unit {
        "S" => 1_000_000_000,
        "m" => 1_000_000,
        "u" => 1000,
        "n" => 1,
        _ => panic!("{header}"),
    };
    Duration::from_nanos(number.parse::<u64>().unwrap() * nanos)
}

#[tokio::test]
async fn a_timeout_is_that_of_all_requests_of_a_call() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let client = posenc::connect(late_server(tell).await).unwrap();
    let client = client.with(CallOptions { timeout: Some(Duration::from_secs(8)), ..Default::default() });
    let request = v1::ApplyRopeRequest { layout: Layout::Bshd.into(), ..Default::default() };
    // After the server has refused the tensor as too large, the client sends the tensor as a stream.
    let error = client.apply_rope(request, view!(numbers(1 << 20), [1, 1024, 8, 128]), ()).await.unwrap_err();
    assert_eq!(error.code(), Code::Internal, "{error}");
    let mut next = async || told.recv().await.unwrap();
    assert_eq!(next().await.0, "ApplyRope");
    let (method, left) = next().await;
    assert_eq!(method, "ApplyRopeStream");
    assert!(timeout_of(&left) < Duration::from_millis(7500), "the second request had {left} of 8 s");
}
