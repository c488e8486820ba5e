//! Measures the time and the memory of a call, from the request to the result.

use std::time::{Duration, Instant};

use posenc::{Bshd, Options, StartAt, v1, view};

use crate::Outcome;

/// Duration of the unmeasured first calls. All clients without a just-in-time compiler have the same duration.
const WARM_UP: Duration = Duration::from_secs(2);

pub async fn run(target: &str, case: &str) -> Outcome {
    let (tokens, calls) = match case {
        "unary64" => (4096, 5),
        "unary1" => (64, 5),
        // This case shows the peak memory of the program itself.
        "token1" => (1, 5),
        "stream256" => (16384, 2),
        _ => return Err(format!("{case}: is no case; must be unary64, unary1, stream256 or token1").into()),
    };
    // The case stream256 sends tensors over 1 MiB as a stream.
    let stream_above_bytes = (case == "stream256").then_some(1 << 20);
    let client = posenc::connect_with(target, Options { stream_above_bytes, ..Options::default() })?;
    let shape = [1, tokens, 32, 128];
    let q = vec![1.0_f32; shape.iter().product()];
    let mut out = vec![0.0_f32; q.len()];
    let request = v1::ApplyRopeRequest {
        rope: Some(v1::RopeSpec { pairing: v1::Pairing::HalfSplit.into(), ..Default::default() }.into()),
        positions: Some(StartAt(0).into()),
        layout: Bshd.into(),
        ..Default::default()
    };
    let begin = Instant::now();
    let (mut took, mut seconds) = (Vec::new(), Vec::new());
    while seconds.len() < calls {
        let start = Instant::now();
        client.apply_rope(request.clone(), view!(q, shape).write_to(&mut out), ()).await?;
        let elapsed = start.elapsed().as_secs_f64();
        took.push(elapsed);
        if start - begin >= WARM_UP {
            seconds.push(elapsed);
        }
    }
    seconds.sort_by(f64::total_cmp);
    println!(
        r#"{{"client":"rust","case":"{case}","seconds":{:.6},"first_seconds":{:.6},"peak_bytes":{},"tensor_bytes":{}}}"#,
        seconds[seconds.len() / 2],
        took[0],
        peak_bytes()?,
        q.len() * size_of::<f32>(),
    );
    Ok(())
}

/// Returns the peak memory of this process.
fn peak_bytes() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib << 10)
}
