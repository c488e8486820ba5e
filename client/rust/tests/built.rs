//! Tables and biases.

mod common;

use common::{Server, assert_near, widened};
use posenc::{Config, Options, StartAt, v1};

#[tokio::test]
async fn a_table_has_the_cosines_and_sines_of_the_formula() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    let spec = v1::RopeSpec { pairing: v1::Pairing::HalfSplit.into(), rotary_dim: 8, ..Default::default() };
    let (cos, sin) = client.rope(Config::spec(spec)).await.unwrap().table(100).await.unwrap();
    let angle = |index: usize| (index / 4) as f64 * 1e4_f64.powf(-2.0 * (index % 4) as f64 / 8.0);
    let truth = |f: fn(f64) -> f64| (0..400).map(|index| f(angle(index))).collect::<Vec<_>>();
    // The bound is half a step of float32 below 1, plus 2^-45 for the rounding of the oracle's angle.
    assert_near(&widened(&cos), &truth(f64::cos), 0.5f64.powi(25) + 0.5f64.powi(45));
    assert_near(&widened(&sin), &truth(f64::sin), 0.5f64.powi(25) + 0.5f64.powi(45));
}

#[tokio::test]
async fn a_resolved_encoding_keeps_the_length_of_the_sequence() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    let scaling = v1::DynamicNtkScaling { factor: 2.0, max_position_embeddings: 64 };
    let spec = v1::RopeSpec {
        pairing: v1::Pairing::HalfSplit.into(),
        rotary_dim: 8,
        scaling: Some(v1::rope_spec::Scaling::DynamicNtk(scaling)),
        ..Default::default()
    };
    let mut config = Config::spec(spec);
    config.source.sequence_length = Some(256);
    let (cos, _) = client.rope(config).await.unwrap().table(2).await.unwrap();
    // The base is rope_theta * (factor * L / max_position_embeddings - (factor - 1))^(d / (d - 2)).
    let base = 1e4 * 7f64.powf(8.0 / 6.0);
    let truth: Vec<f64> = (0..4).map(|pair| base.powf(-2.0 * pair as f64 / 8.0).cos()).collect();
    assert_near(&widened(&cos[4..]), &truth, 0.5f64.powi(25) + 0.5f64.powi(45));
}

#[tokio::test]
async fn a_table_over_the_limit_is_put_together_from_a_stream() {
    let server = Server::start();
    // The larger table has 16 MiB of cosines and 16 MiB of sines.
    let small = Options { max_message_bytes: 6 << 20, ..Options::default() };
    let limited = posenc::connect_with(&server.target, small).unwrap();
    let whole = posenc::connect(&server.target).unwrap();
    let heads: Vec<f64> = (0..2 * 64).map(|i| 1.0 / (1 + i) as f64).collect();
    let by_head = v1::ExplicitFrequencies { values: heads, heads: 2, axes: 0 };
    let spec = v1::RopeSpec {
        pairing: v1::Pairing::HalfSplit.into(),
        rotary_dim: 128,
        scaling: Some(v1::rope_spec::Scaling::ExplicitFrequencies(by_head)),
        ..Default::default()
    };
    let plain = v1::RopeSpec { scaling: None, ..spec.clone() };
    for spec in [spec, plain] {
        let request = v1::BuildTableRequest {
            encoding: Some(v1::build_table_request::Encoding::Rope(spec.into())),
            positions: Some(StartAt(-5).into()),
            rows: 32768,
            ..Default::default()
        };
        let error = limited.resolve_rope(Default::default()).await.unwrap_err();
        assert_eq!(error.code_name(), "INVALID_ARGUMENT");
        let (one, many) = (whole.build_table(request.clone()).await, limited.build_table(request).await);
        let (one, many) = (one.unwrap(), many.unwrap());
        assert!(one.cos.is_some() && one == many);
    }
}

#[tokio::test]
async fn a_bias_is_put_together_from_its_tiles() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    let alibi = v1::Alibi { heads: 4, ..Default::default() };
    let request = v1::BuildBiasRequest {
        bias: Some(v1::Bias { bias: Some(v1::bias::Bias::Alibi(alibi)) }),
        query_start: 100,
        query_length: 70,
        key_length: 170,
        query_tile: 32,
        key_tile: 48,
        ..Default::default()
    };
    let bias = client.build_bias(request.clone()).await.unwrap();
    assert_eq!(bias.shape, [4, 70, 170]);
    let mut truth = Vec::new();
    for head in 1..=4 {
        // The bias is -slope |i - j| with the slopes 2^(-8 h / heads), which is exact in float32.
        let slope = 2_f64.powi(-8 * head / 4);
        truth.extend((0..70 * 170).map(|index| -slope * f64::abs((100 + index / 170) as f64 - (index % 170) as f64)));
    }
    assert_near(&widened(&bias.to_vec().unwrap()), &truth, 0.0);

    let mut tiles = client.build_bias_tiles(request).await.unwrap();
    let mut seen = Vec::new();
    while let Some(tile) = tiles.next().await.unwrap() {
        seen.push((tile.query_start, tile.key_start));
    }
    let expected: Vec<_> = (0..3).flat_map(|row| (0..4).map(move |column| (100 + 32 * row, 48 * column))).collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn the_part_that_is_asked_for_is_resolved() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    let model = r#"{"model_type": "qwen2_vl", "vision_config": {"embed_dim": 1280, "num_heads": 16}}"#;
    let mut config = Config::json(model);
    config.source.set_part(v1::ModelPart::Vision);
    let rope = client.rope(config).await.unwrap();
    assert_eq!(rope.resolved().head_dim, 80);
}

#[tokio::test]
async fn a_resolved_rope_says_what_it_is() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    let rope = client.rope(Config::preset("llama-3.1-8b")).await.unwrap();
    assert_eq!(rope.resolved().head_dim, 128);
    assert_eq!(rope.spec().rope_theta, Some(500000.0));
    assert!(matches!(rope.spec().scaling, Some(v1::rope_spec::Scaling::Llama3(_))));
}
