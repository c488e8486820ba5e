//! Every mistake gives the same error type, with its code and its field.

mod common;

use std::fmt::Debug;
use std::time::Duration;

use common::{Folder, Server, numbers};
use posenc::{
    Bshd, CallOptions, Client, Code, Config, Dtype, Error, Layout, Options, StartAt, TlsOptions, View, v1, view,
};

/// Collects all failures, so that one run shows all of them.
#[derive(Default)]
struct Table(Vec<String>);

impl Table {
    fn expect<T>(&mut self, what: &str, result: Result<T, Error>, code: Code, field: Option<&str>, text: &str) {
        let Err(error) = result else {
            return self.0.push(format!("{what}: no error"));
        };
        let as_said = error.code() == code && error.field() == field && error.message().contains(text);
        // The text must name the field and fit a screen.
        let readable = field.is_none_or(|field| error.message().contains(field)) && error.message().len() < 700;
        if !as_said || !readable {
            self.0.push(format!("{what}: {error}; field {:?}", error.field()));
        }
    }

    fn end(self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n"));
    }
}

fn request() -> v1::ApplyRopeRequest {
    let spec = v1::RopeSpec { pairing: v1::Pairing::HalfSplit.into(), ..Default::default() };
    v1::ApplyRopeRequest {
        rope: Some(spec.into()),
        positions: Some(StartAt(0).into()),
        layout: Layout::Bshd.into(),
        ..Default::default()
    }
}

fn ids(values: &[f64]) -> Option<v1::Positions> {
    Some(view!(values, [values.len()]).to_tensor().into())
}

#[tokio::test]
async fn of_a_tensor() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    let q = numbers(64);
    let mut table = Table::default();
    let invalid = Code::InvalidArgument;
    for (what, shape, field) in [
        ("a channel too many", &[1, 2, 2, 17][..], "q.data"),
        ("a channel too few", &[1, 2, 2, 15], "q.data"),
        ("three axes", &[2, 2, 16], "q.shape"),
        ("no axis", &[], "q.data"),
        ("an empty shape with elements", &[0, 2, 2, 16], "q.data"),
        ("more than any memory", &[1 << 40, 1 << 40, 1 << 40, 16], "q.shape"),
        ("more than an int64", &[usize::MAX, 2, 2, 16], "q.shape"),
    ] {
        table.expect(what, client.apply_rope(request(), view!(q, shape), ()).await, invalid, Some(field), "");
    }
    let shape = [1, 2, 2, 16];
    let bytes = vec![0; 256];
    let mut of = async |what: &str, dtype: Dtype, field: &str, code: Code| {
        let heads = View::of_bytes(dtype, &bytes, shape);
        table.expect(what, client.apply_rope(request(), heads, ()).await, code, Some(field), "");
    };
    of("no dtype", Dtype::Unspecified, "q.dtype", invalid).await;
    of("integers", Dtype::Int32, "q.dtype", invalid).await;
    of("a dtype of another size", Dtype::Float64, "q.data", invalid).await;
    of("FP8 without saturation", Dtype::Float8E5m2, "q.data", invalid).await;
    let elements = [1_i64; 64];
    table.expect(
        "int64 elements",
        client.apply_rope(request(), view!(elements, shape), ()).await,
        invalid,
        Some("q.dtype"),
        "",
    );
    table.expect("no tensor", client.apply_rope(request(), (), ()).await, invalid, Some("q"), "");
    let mut short = vec![0.0; 63];
    let sent = client.apply_rope(request(), view!(q, shape).write_to(&mut short), ()).await;
    table.expect("an output that is too small", sent, invalid, Some("q_output"), "has 252 bytes; must have 256");
    let others = numbers(32);
    let sent = client.apply_rope(request(), view!(q, shape), view!(others, [1, 1, 2, 16])).await;
    table.expect("k of other tokens", sent, invalid, Some("k.shape"), "");
    table.expect(
        "a tensor of floats as halves",
        view!(q, shape).to_tensor().to_vec::<f64>(),
        invalid,
        None,
        "DTYPE_FLOAT32",
    );
    // An empty tensor is not a mistake.
    client.apply_rope(request(), View::<f32>::new(&[], [0, 2, 2, 16]), ()).await.unwrap();
    let twice = v1::ApplyRopeRequest { q: Some(view!(q, [1, 2, 2, 16]).to_tensor()), ..request() };
    let sent = client.apply_rope(twice, view!(q, [1, 2, 2, 16]), ()).await;
    table.expect("a tensor twice", sent, invalid, Some("q"), "given once");
    let hurried = client.with(CallOptions { timeout: Some(Duration::ZERO), ..Default::default() });
    let sent = hurried.apply_rope(request(), view!(q, [1, 2, 2, 16]), ()).await;
    table.expect("no time", sent, Code::DeadlineExceeded, None, "timeout: is 0; must be above 0");
    table.end();
}

#[tokio::test]
async fn of_the_settings_of_a_call() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    let q = numbers(64);
    let mut table = Table::default();
    let cases: Vec<(&str, v1::ApplyRopeRequest, Code, &str, &str)> = vec![
        ("no layout", v1::ApplyRopeRequest { layout: 0, ..request() }, Code::InvalidArgument, "layout", ""),
        (
            "a layout of the future",
            v1::ApplyRopeRequest { layout: 99, ..request() },
            Code::Unimplemented,
            "layout",
            "layout: value 99",
        ),
        ("no positions", v1::ApplyRopeRequest { positions: None, ..request() }, Code::InvalidArgument, "positions", ""),
        (
            "a position that is none",
            v1::ApplyRopeRequest { positions: ids(&[0.0, f64::NAN]), ..request() },
            Code::OutOfRange,
            "positions.ids",
            "nan",
        ),
        (
            "an infinite position",
            v1::ApplyRopeRequest { positions: ids(&[0.0, f64::INFINITY]), ..request() },
            Code::OutOfRange,
            "positions.ids",
            "inf",
        ),
        (
            "too many positions",
            v1::ApplyRopeRequest { positions: ids(&[0.0, 1.0, 2.0]), ..request() },
            Code::InvalidArgument,
            "positions.ids.shape",
            "",
        ),
        (
            "a position past 2^31",
            v1::ApplyRopeRequest { positions: Some(StartAt(1 << 40).into()), ..request() },
            Code::OutOfRange,
            "positions.start",
            "",
        ),
        ("no rope", v1::ApplyRopeRequest { rope: None, ..request() }, Code::InvalidArgument, "rope", ""),
        (
            "an empty rope",
            v1::ApplyRopeRequest { rope: Some(v1::RopeSource::default()), ..request() },
            Code::InvalidArgument,
            "rope",
            "",
        ),
    ];
    for (what, request, code, field, text) in cases {
        let sent = client.apply_rope(request, view!(q, [1, 2, 2, 16]), ()).await;
        table.expect(what, sent, code, Some(field), text);
    }
    let mut config = async |what: &str, config: Config, code: Code, field: &str, text: &str| {
        table.expect(what, client.rope(config).await.map(drop), code, Some(field), text);
    };
    config("a preset of nobody", Config::preset("nobody"), Code::NotFound, "rope.preset", "nobody").await;
    config("text that is no JSON", Config::json("{"), Code::InvalidArgument, "rope.config_json", "").await;
    config("no text", Config::json(""), Code::InvalidArgument, "rope.config_json", "").await;
    config(
        "a file that is not there",
        Config::file("/nonexistent/config.json"),
        Code::InvalidArgument,
        "config.json",
        "/nonexistent",
    )
    .await;
    config("a folder", Config::file("/"), Code::InvalidArgument, "config.json", "directory").await;
    let odd = v1::RopeSpec { rotary_dim: 15, pairing: v1::Pairing::HalfSplit.into(), ..Default::default() };
    config("an odd width", Config::spec(odd), Code::InvalidArgument, "rope.spec.rotary_dim", "").await;
    table.end();
}

#[tokio::test]
async fn of_the_options_of_a_call() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    let mut table = Table::default();
    let with = |options: CallOptions| client.with(options);
    let late = |timeout: Duration| CallOptions { timeout: Some(timeout), ..Default::default() };
    for timeout in [Duration::ZERO, Duration::from_nanos(1)] {
        table.expect(
            "a deadline that is over",
            with(late(timeout)).get_server_info().await,
            Code::DeadlineExceeded,
            None,
            &server.target,
        );
    }
    for text in ["two\nlines", "\u{fc}\u{7}"] {
        let named = CallOptions { request_id: Some(text.into()), ..Default::default() };
        table.expect(
            "a request id that no header takes",
            with(named).get_server_info().await,
            Code::InvalidArgument,
            Some("request_id"),
            "visible",
        );
        let traced = CallOptions { traceparent: Some(text.into()), ..Default::default() };
        table.expect(
            "a trace that no header takes",
            with(traced).get_server_info().await,
            Code::InvalidArgument,
            Some("traceparent"),
            "visible",
        );
    }
    with(late(Duration::MAX)).get_server_info().await.unwrap();
    let bias = v1::BuildBiasRequest::default();
    table.expect("an empty bias", client.build_bias(bias).await, Code::InvalidArgument, Some("bias"), "");
    let rows = |rows| v1::BuildTableRequest {
        encoding: Some(v1::build_table_request::Encoding::Rope(request().rope.unwrap())),
        positions: Some(StartAt(0).into()),
        rows,
        ..Default::default()
    };
    table.expect(
        "a table of negative length",
        client.build_table(rows(-1)).await,
        Code::InvalidArgument,
        Some("rows"),
        "",
    );
    table.expect(
        "an empty table's request",
        client.build_table(v1::BuildTableRequest::default()).await,
        Code::InvalidArgument,
        Some("rope"),
        "",
    );
    table.end();
}

async fn dialled(target: &str, options: Options) -> Result<impl Debug, Error> {
    posenc::connect_with(target, Options { timeout: Duration::from_secs(20), ..options })?.get_server_info().await
}

#[tokio::test]
async fn of_the_connection() {
    let server = Server::start();
    let folder = Folder::new();
    let mut table = Table::default();
    for target in
        ["", "h", "h:x", "h:65536", "dns:///h:99999", "[::1]:70000", "h:-1", "foo:///h:1", "unix:", "h:1/path", "a b:1"]
    {
        table.expect(target, dialled(target, Options::default()).await, Code::InvalidArgument, Some("target"), target);
    }
    let gone = format!("unix:{}/nobody", folder.0.display());
    for target in ["127.0.0.1:1", "nobody.invalid:1", &gone] {
        let error = dialled(target, Options::default()).await.map_err(|error| {
            assert!(error.message().contains("; is the server there, does it speak TLS"), "{error}");
            error
        });
        table.expect(target, error, Code::Unavailable, None, target);
    }
    let tls = |tls: TlsOptions| Options { tls: Some(tls), ..Options::default() };
    let (empty, binary) = (folder.file("empty", ""), folder.0.join("binary"));
    std::fs::write(&binary, b"a\x01\xff").unwrap();
    let away = Some(folder.0.join("away"));
    let cases = [
        ("tls.ca_file", tls(TlsOptions { ca_file: away.clone(), ..Default::default() }), "away"),
        ("tls.ca_file", tls(TlsOptions { ca_file: Some(folder.0.clone()), ..Default::default() }), "directory"),
        ("tls.ca_file", tls(TlsOptions { ca_file: Some(empty.clone()), ..Default::default() }), "no certificate"),
        ("tls.key_file", tls(TlsOptions { cert_file: Some(empty.clone()), ..Default::default() }), "together"),
        ("tls.cert_file", tls(TlsOptions { key_file: Some(empty.clone()), ..Default::default() }), "together"),
        ("token_file", Options { token_file: away, ..Options::default() }, "away"),
        ("token_file", Options { token_file: Some(folder.0.clone()), ..Options::default() }, "directory"),
        ("token_file", Options { token_file: Some(empty), ..Options::default() }, "one token"),
        ("token_file", Options { token_file: Some(binary), ..Options::default() }, ""),
        ("token", Options { token: Some(String::new()), ..Options::default() }, "one token"),
        ("token", Options { token: Some("two\nlines".into()), ..Options::default() }, "one token"),
        (
            "token_file",
            Options { token: Some("t".into()), token_file: Some("x".into()), ..Options::default() },
            "excludes token",
        ),
    ];
    for (field, options, text) in cases {
        table.expect(field, dialled(&server.target, options).await, Code::InvalidArgument, Some(field), text);
    }
    let options = Options { max_message_bytes: 10, ..Options::default() };
    let client = posenc::connect_with(&server.target, options).unwrap();
    let q = numbers(64);
    let sent = client.apply_rope(request(), view!(q, [1, 2, 2, 16]), ()).await;
    table.expect("a tensor over the client's limit", sent, Code::ResourceExhausted, None, "max_message_bytes");
    table.end();
}

#[tokio::test]
async fn of_a_stream() {
    let server = Server::start();
    let options = Options { stream_above_bytes: Some(1), ..Options::default() };
    let client: Client = posenc::connect_with(&server.target, options).unwrap();
    let q = numbers(64);
    let mut table = Table::default();
    let shape = [1, 2, 2, 16];
    // The server's errors are the same as in calls without a stream.
    let invalid = Code::InvalidArgument;
    let cases = [
        (
            "too many positions",
            v1::ApplyRopeRequest { positions: ids(&[0.0, 1.0, 2.0]), ..request() },
            invalid,
            "positions.ids.shape",
        ),
        ("no layout", v1::ApplyRopeRequest { layout: 0, ..request() }, invalid, "layout"),
        ("a layout of the future", v1::ApplyRopeRequest { layout: 99, ..request() }, Code::Unimplemented, "layout"),
        ("no rope", v1::ApplyRopeRequest { rope: None, ..request() }, invalid, "rope"),
        (
            "a position that is none",
            v1::ApplyRopeRequest { positions: ids(&[0.0, f64::NAN]), ..request() },
            Code::OutOfRange,
            "positions.ids",
        ),
    ];
    for (what, request, code, field) in cases {
        table.expect(what, client.apply_rope(request, view!(q, shape), ()).await, code, Some(field), "");
    }
    for (what, shape, field) in [
        ("a head too many", &[1, 2, 3, 16][..], "q.data"),
        ("a head too few", &[1, 2, 1, 16], "q.data"),
        ("three axes", &[2, 2, 16], "q.shape"),
        ("more than any memory", &[usize::MAX, 2, 2, 16], "q.shape"),
    ] {
        table.expect(what, client.apply_rope(request(), view!(q, shape), ()).await, invalid, Some(field), "");
    }
    let rope = client.rope(Config::preset("llama-3.1-8b")).await.unwrap();
    rope.apply(Bshd, StartAt(0), view!(numbers(256), [1, 1, 2, 128]), ()).await.unwrap();
    table.end();
}
