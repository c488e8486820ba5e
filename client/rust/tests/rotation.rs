mod common;

use common::{Pairing, Server, assert_near, numbers, rotated, widened};
use posenc::{Between, Bshd, Client, Config, Options, ShiftBy, StartAt, Thd, View, v1, view, view_mut};

/// The largest error in float32. A rotated pair is at most 2 sqrt(2) < 2.9 long in these tests. Each of four roundings
/// changes the pair by at most 2^-24 of this length.
const FLOAT32: f64 = 2.9 * 4.0 / (1 << 24) as f64;

fn plain(pairing: Pairing) -> v1::RopeSpec {
    let pairing = if pairing == Pairing::HalfSplit { v1::Pairing::HalfSplit } else { v1::Pairing::Interleaved };
    v1::RopeSpec { pairing: pairing.into(), ..Default::default() }
}

/// Returns a client that sends tensors over 1 MiB as a stream.
fn streaming(server: &Server) -> Client {
    let options = Options { stream_above_bytes: Some(1 << 20), ..Options::default() };
    posenc::connect_with(&server.target, options).unwrap()
}

fn positions(count: usize, start: f64) -> Vec<f64> {
    (0..count).map(|token| start + token as f64).collect()
}

#[tokio::test]
async fn q_and_k_are_rotated_as_the_formula_says() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    for pairing in [Pairing::HalfSplit, Pairing::Interleaved] {
        let rope = client.rope(Config::spec(plain(pairing)).head_dim(64)).await.unwrap();
        let (q, k) = (numbers(20 * 4 * 64), numbers(20 * 2 * 64));
        let shapes = ([1, 20, 4, 64], [1, 20, 2, 64]);
        let (q_out, k_out) = rope.apply(Bshd, StartAt(1000), view!(q, shapes.0), view!(k, shapes.1)).await.unwrap();
        let at = positions(20, 1000.0);
        assert_near(&widened(&q_out), &rotated(&widened(&q), 4, 64, 1e4, pairing, &at), FLOAT32);
        assert_near(&widened(&k_out), &rotated(&widened(&k), 2, 64, 1e4, pairing, &at), FLOAT32);
    }
}

#[tokio::test]
async fn float64_is_rotated_in_float64() {
    let server = Server::start();
    let rope = posenc::connect(&server.target).unwrap();
    let rope = rope.rope(Config::spec(plain(Pairing::HalfSplit)).head_dim(8)).await.unwrap();
    let q = widened(&numbers(4 * 8));
    let (out, ()) = rope.apply(Thd, StartAt(3), view!(q, [4, 1, 8]), ()).await.unwrap();
    // The oracle's angles are at most 6 radians, and rounding changes each angle by at most 2^-51. The oracle's other
    // roundings add at most the same error.
    assert_near(&out, &rotated(&q, 1, 8, 1e4, Pairing::HalfSplit, &positions(4, 3.0)), 2.9 * 16.0 * f64::EPSILON);
}

#[tokio::test]
async fn a_preset_and_a_file_of_the_same_model_rotate_alike() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    let config = r#"{"model_type": "llama", "rope_theta": 500000.0, "head_dim": 64, "num_attention_heads": 4}"#;
    let file = client.rope(Config::file(server.folder.file("config.json", config))).await.unwrap();
    let q = numbers(4 * 64);
    let (out, ()) = file.apply(Thd, StartAt(7), view!(q, [1, 4, 64]), ()).await.unwrap();
    assert_near(&widened(&out), &rotated(&widened(&q), 4, 64, 5e5, Pairing::HalfSplit, &[7.0]), FLOAT32);
    let text = client.rope(Config::json(config)).await.unwrap();
    assert_eq!(text.resolved().content_hash, file.resolved().content_hash);
}

#[cfg(feature = "half")]
#[tokio::test]
async fn sixteen_bits_are_rounded_once_more() {
    use half::{bf16, f16};
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    let rope = client.rope(Config::spec(plain(Pairing::HalfSplit)).head_dim(64)).await.unwrap();
    let q: Vec<bf16> = numbers(5 * 64).into_iter().map(bf16::from_f32).collect();
    let k: Vec<f16> = numbers(5 * 64).into_iter().map(f16::from_f32).collect();
    let (q_out, k_out) = rope.apply(Bshd, StartAt(0), view!(q, [1, 5, 1, 64]), view!(k, [1, 5, 1, 64])).await.unwrap();
    let truth = |x: Vec<f64>| rotated(&x, 1, 64, 1e4, Pairing::HalfSplit, &positions(5, 0.0));
    // Half a step between numbers below 4 is 2^-7 for bfloat16, and 2^-10 for float16.
    let got: Vec<f64> = q_out.iter().map(|x| x.to_f64()).collect();
    assert_near(&got, &truth(q.iter().map(|x| x.to_f64()).collect()), FLOAT32 + 1.0 / 128.0);
    let got: Vec<f64> = k_out.iter().map(|x| x.to_f64()).collect();
    assert_near(&got, &truth(k.iter().map(|x| x.to_f64()).collect()), FLOAT32 + 1.0 / 1024.0);
}

#[tokio::test]
async fn bytes_of_float8_come_back_rotated_and_saturate_as_told() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    // 0.785 rad are about an eighth of a turn, so x cos + x sin is 1.4 x.
    let frequencies = v1::ExplicitFrequencies { values: vec![0.785], ..Default::default() };
    let spec = v1::RopeSpec {
        scaling: Some(v1::rope_spec::Scaling::ExplicitFrequencies(frequencies)),
        ..plain(Pairing::HalfSplit)
    };
    // In E4M3 the largest number is 0x7e, and 0x7f is NaN. 1.4 is rounded to 1.375, which is 0x3b.
    for (dtype, largest, one, turned) in
        [(v1::Dtype::Float8E4m3fn, 0x7e, 0x38, 0x3b), (v1::Dtype::Float8E5m2, 0x7b, 0x3c, 0x3e)]
    {
        let request = |saturation: v1::Saturation| v1::ApplyRopeRequest {
            rope: Some(spec.clone().into()),
            positions: Some(v1::Positions { kind: Some(v1::positions::Kind::Start(1)) }),
            layout: v1::Layout::Bshd.into(),
            saturation: saturation.into(),
            ..Default::default()
        };
        let bytes = [largest, largest, one, one];
        let k = || View::of_bytes(dtype, &bytes, [1, 1, 2, 2]);
        let (_, finite, _) = client.apply_rope(request(v1::Saturation::Finite), (), k()).await.unwrap();
        assert_eq!([finite[1], finite[3]], [largest, turned]);
        let (_, none, _) = client.apply_rope(request(v1::Saturation::None), (), k()).await.unwrap();
        assert_eq!(none[1], largest + 1);
        let error = client.apply_rope(request(v1::Saturation::Unspecified), (), k()).await.unwrap_err();
        assert_eq!(error.field(), Some("saturation"));
    }
}

#[tokio::test]
async fn keys_of_i8_and_bytes_of_blocks_move() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    let rope = client.rope(Config::preset("llama-3.1-8b")).await.unwrap();
    let numbers: Vec<i8> = (-64..64).collect();
    let finite = rope.clone().saturation(v1::Saturation::Finite);
    assert_eq!(finite.reposition(Bshd, ShiftBy(0), view!(numbers, [1, 1, 1, 128])).await.unwrap(), numbers);
    // The blocks have the scale 1.
    let mut block = [0_i8; 34];
    (block[1], block[2]) = (0x3c, 127);
    let head = block.repeat(4);
    let blocks = rope.clone().block_format(v1::BlockFormat::Q80);
    assert_eq!(blocks.reposition(Bshd, ShiftBy(0), view!(head, [1, 1, 1, 136])).await.unwrap(), head);
    let error = rope.reposition(Bshd, ShiftBy(0), view!(numbers, [1, 1, 1, 128])).await.unwrap_err();
    assert_eq!(error.field(), Some("saturation"));
}

#[tokio::test]
async fn results_in_place_and_in_given_memory_are_those_of_new_memory() {
    let server = Server::start();
    for client in [posenc::connect(&server.target).unwrap(), streaming(&server)] {
        let rope = client.rope(Config::preset("llama-3.1-8b")).await.unwrap();
        // q has 12 MiB, which are several chunks. k has 3 MiB, which are one chunk.
        let (q_shape, k_shape) = ([1, 768, 32, 128], [1, 768, 8, 128]);
        let (mut q, mut k) = (numbers(q_shape.iter().product()), numbers(k_shape.iter().product()));
        let (q_new, k_new) = rope.apply(Bshd, StartAt(5), view!(q, q_shape), view!(k, k_shape)).await.unwrap();
        let (mut q_out, mut k_out) = (vec![0.0; q.len()], vec![0.0; k.len()]);
        let (q_view, k_view) = (view!(q, q_shape).write_to(&mut q_out), view!(k, k_shape).write_to(&mut k_out));
        rope.apply(Bshd, StartAt(5), q_view, k_view).await.unwrap();
        assert!(q_out == q_new && k_out == k_new);
        rope.apply(Bshd, StartAt(5), view_mut!(q, q_shape), view_mut!(k, k_shape)).await.unwrap();
        assert!(q == q_new && k == k_new);
    }
}

#[tokio::test]
async fn keys_move_to_where_they_would_have_been_rotated() {
    let server = Server::start();
    for client in [posenc::connect(&server.target).unwrap(), streaming(&server)] {
        let rope = client.rope(Config::spec(plain(Pairing::Interleaved)).head_dim(64)).await.unwrap();
        let shape = [1, 10240, 2, 64];
        let k = numbers(shape.iter().product());
        let truth = rotated(&widened(&k), 2, 64, 1e4, Pairing::Interleaved, &positions(10240, 507.0));
        let (mut old, ()) = rope.apply(Bshd, StartAt(7), view!(k, shape), ()).await.unwrap();
        let moved = rope.reposition(Bshd, ShiftBy(500), view!(old, shape)).await.unwrap();
        // The bound allows ten roundings of float32 for the move, and four for the rotation before the move. The bound
        // also allows an error of 2^-40 in the oracle's angles, which are up to 10747 radians.
        let bound = 2.9 * 14.0 / (1 << 24) as f64 + 2.9 / 1e12;
        assert_near(&widened(&moved), &truth, bound);
        rope.reposition(Bshd, Between(StartAt(7), StartAt(507)), view_mut!(old, shape)).await.unwrap();
        assert!(old == moved);
    }
}

#[cfg(feature = "ndarray")]
#[tokio::test]
async fn arrays_of_any_order_of_memory_are_rotated_alike() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    let rope = client.rope(Config::spec(plain(Pairing::HalfSplit)).head_dim(16)).await.unwrap();
    let q = ndarray::Array3::from_shape_vec((3, 2, 16), numbers(96)).unwrap();
    let (straight, ()) = rope.apply(Thd, StartAt(1), &q, ()).await.unwrap();
    assert_eq!(straight.shape(), [3, 2, 16]);
    let truth = rotated(&widened(&numbers(96)), 2, 16, 1e4, Pairing::HalfSplit, &positions(3, 1.0));
    assert_near(&widened(straight.as_slice().unwrap()), &truth, FLOAT32);
    // `turned` is the same array in another order of memory: channels are the outermost axis in memory.
    let turned = q.view().reversed_axes().as_standard_layout().into_owned().reversed_axes();
    assert!(!turned.is_standard_layout());
    let (other, ()) = rope.apply(Thd, StartAt(1), &turned, ()).await.unwrap();
    assert_eq!(straight, other);
}

#[tokio::test]
async fn a_tensor_without_tokens_comes_back_empty() {
    let server = Server::start();
    let rope = posenc::connect(&server.target).unwrap();
    let rope = rope.rope(Config::spec(plain(Pairing::HalfSplit)).head_dim(16)).await.unwrap();
    let none: [f32; 0] = [];
    let (out, ()) = rope.apply(Thd, StartAt(0), view!(none, [0, 2, 16]), ()).await.unwrap();
    assert!(out.is_empty());
}

#[tokio::test]
async fn many_calls_at_once_do_not_mix() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    let rope = client.rope(Config::spec(plain(Pairing::HalfSplit)).head_dim(64)).await.unwrap();
    let calls: Vec<_> = (0..32_usize)
        .map(|call| {
            let rope = rope.clone();
            // The calls have from 1 KiB to several hundred KiB.
            let tokens = 1 + 100 * (call % 8);
            tokio::spawn(async move {
                let q = numbers(tokens * 4 * 64);
                let (out, ()) = rope.apply(Bshd, StartAt(call as i64), view!(q, [1, tokens, 4, 64]), ()).await.unwrap();
                let at = positions(tokens, call as f64);
                assert_near(&widened(&out), &rotated(&widened(&q), 4, 64, 1e4, Pairing::HalfSplit, &at), FLOAT32);
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
}
