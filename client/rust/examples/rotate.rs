//! Rotates four tokens with 32 heads of 128 channels each: `cargo run --example rotate -- localhost:50051`.

use posenc::{Bshd, Config, StartAt, view};

#[tokio::main]
async fn main() -> posenc::Result<()> {
    let target = std::env::args().nth(1).unwrap_or_else(|| "localhost:50051".to_owned());
    let rope = posenc::connect(target)?.rope(Config::preset("llama-3.1-8b")).await?;
    let q = vec![1.0_f32; 4 * 32 * 128];
    let (rotated, ()) = rope.apply(Bshd, StartAt(1000), view!(q, [1, 4, 32, 128]), ()).await?;
    println!("{} elements, rotated; the first is {}", rotated.len(), rotated[0]);
    Ok(())
}
