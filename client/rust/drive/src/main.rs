//! What `client/rust/run` needs of the client beside its tests; no part of the published crate.

mod bench;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match arguments.as_slice() {
            ["bench", target, case] => bench::run(target, case).await,
            _ => Err("usage: posenc-drive bench TARGET CASE".into()),
        }
    })
}
