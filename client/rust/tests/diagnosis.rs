//! Differences between two encodings, and between the readers of one encoding.

mod common;

use common::Server;
use posenc::{Code, v1};

// One key under two names: transformers reads rope_type, mlx-lm reads type.
const TWO_TYPES: &str = r#"{"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "rope_theta": 500000.0,
    "max_position_embeddings": 131072, "rope_scaling":
    {"rope_type": "yarn", "type": "linear", "factor": 4.0, "original_max_position_embeddings": 32768}}"#;

fn config(text: &str) -> v1::ModelDescription {
    v1::ModelDescription { kind: v1::DescriptionKind::Config.into(), text: text.into(), ..Default::default() }
}

#[tokio::test]
async fn a_configuration_that_readers_take_differently_is_diagnosed() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    let readers = vec!["hf".into(), "mlx".into()];
    let request =
        v1::DiagnoseRopeRequest { inputs: vec![config(TWO_TYPES)], readers, length: 4096, ..Default::default() };
    let answer = client.diagnose_rope(request).await.unwrap();
    assert_eq!((answer.length, answer.summary.unwrap().error), (4096, 1));
    let finding = &answer.findings[0];
    assert_eq!((finding.id.as_str(), finding.severity()), ("config.type-conflict", v1::Severity::Error));
    assert!(!finding.fix.is_empty());
    assert_eq!((finding.readers.len(), finding.readers[0].name.as_str()), (1, "mlx-lm"));
    // 0.1 ln(4) + 1 is YaRN's attention factor (arXiv:2309.00071). A linear scaling has no attention factor.
    let ratio = finding.readers[0].amplitude_ratio * (0.1 * 4_f64.ln() + 1.0);
    assert!((ratio - 1.0).abs() < 1e-15, "{ratio}");
}

#[tokio::test]
async fn a_diagnosis_names_what_it_cannot_take() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    let nobody = vec!["nobody".into()];
    let kindless = v1::ModelDescription { text: TWO_TYPES.into(), ..Default::default() };
    for (inputs, readers, field) in [
        (vec![], vec![], "inputs"),
        (vec![kindless], vec![], "inputs[0].kind"),
        (vec![config(TWO_TYPES)], nobody, "readers[0]"),
    ] {
        let request = v1::DiagnoseRopeRequest { inputs, readers, ..Default::default() };
        let error = client.diagnose_rope(request).await.unwrap_err();
        assert_eq!((error.code(), error.field()), (Code::InvalidArgument, Some(field)), "{error}");
    }
    // Mistakes in a description do not make the call fail: the answer reports them.
    let request = v1::DiagnoseRopeRequest { inputs: vec![config("{"), config(TWO_TYPES)], ..Default::default() };
    let reports = client.diagnose_rope(request).await.unwrap().inputs;
    assert_eq!(reports.iter().map(|report| report.unreadable.is_empty()).collect::<Vec<_>>(), [false, true]);
}

#[tokio::test]
async fn what_is_left_of_a_score_under_another_encoding_is_the_formula() {
    let server = Server::start();
    let client = posenc::connect(&server.target).unwrap();
    let base = |theta: f64| v1::RopeSpec {
        pairing: v1::Pairing::HalfSplit.into(),
        rotary_dim: 8,
        rope_theta: Some(theta),
        ..Default::default()
    };
    let (rope, compare_with) = (Some(base(1e4).into()), Some(base(5e5).into()));
    // kept(r) = mean over pairs of cos(r |w - w'|), with w = theta^(-i/4).
    let apart = |pair: i32| 1e4_f64.powf(-f64::from(pair) / 4.0) - 5e5_f64.powf(-f64::from(pair) / 4.0);
    let kept: Vec<f64> =
        (0..=40).map(|r| (0..4).map(|pair| (f64::from(r) * apart(pair)).cos()).sum::<f64>() / 4.0).collect();
    let request = v1::AnalyzeRopeRequest {
        rope: rope.clone(),
        compare_with: compare_with.clone(),
        max_distance: 40,
        ..Default::default()
    };
    common::assert_near(&client.analyze_rope(request).await.unwrap().kept, &kept, 1e-14);
    let request = v1::ResolveRopeRequest { rope: rope.clone(), compare_with, length: 40, ..Default::default() };
    let difference = client.resolve_rope(request).await.unwrap().difference.unwrap();
    common::assert_near(&[difference.kept_at_length], &kept[40..], 1e-14);
    let first = kept.iter().position(|&kept| kept < 0.9).unwrap();
    assert_eq!((difference.length, difference.first_distance), (40, first as i64));
    let error =
        client.resolve_rope(v1::ResolveRopeRequest { rope, length: 40, ..Default::default() }).await.unwrap_err();
    assert_eq!((error.code(), error.field()), (Code::InvalidArgument, Some("length")));
}
