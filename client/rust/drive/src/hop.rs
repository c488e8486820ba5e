//! Reads bfloat16 keys from a file, repositions them, and writes them to another file. A test runs this program to pass
//! a cache through the clients of all languages.

use half::bf16;
use posenc::{Bshd, ShiftBy, View, v1};

use crate::Outcome;

const SHAPE: [usize; 4] = [1, 16, 2, 64];

pub async fn run(target: &str, input: &str, output: &str, shift: i64) -> Outcome {
    let bytes = std::fs::read(input)?;
    let k: Vec<bf16> = bytes.chunks_exact(2).map(|pair| bf16::from_le_bytes([pair[0], pair[1]])).collect();
    let request = v1::RepositionRequest {
        old_rope: Some(v1::RopeSpec { pairing: v1::Pairing::HalfSplit.into(), ..Default::default() }.into()),
        movement: Some(ShiftBy(shift).into()),
        layout: Bshd.into(),
        ..Default::default()
    };
    let (moved, _) = posenc::connect(target)?.reposition(request, View::new(&k, SHAPE)).await?;
    std::fs::write(output, moved.iter().flat_map(|element| element.to_le_bytes()).collect::<Vec<u8>>())?;
    Ok(())
}
