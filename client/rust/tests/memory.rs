//! Tensors and results in the caller's memory, shared or not. The results equal the results of calls with tensors in
//! messages. No other memory is written.

mod common;

use common::{Sharing, numbers};
use posenc::{Client, Code, Config, SharedRegion, StartAt, View, v1, view, view_mut};
use v1::absolute_encoding::Encoding as Absolute;
use v1::build_table_request::Encoding;

fn of_rope(spec: v1::RopeSpec) -> v1::BuildTableRequest {
    v1::BuildTableRequest {
        encoding: Some(Encoding::Rope(spec.into())),
        positions: Some(StartAt(3).into()),
        rows: 5,
        ..Default::default()
    }
}

fn of_absolute(encoding: Absolute) -> v1::BuildTableRequest {
    let encoding = v1::AbsoluteEncoding { encoding: Some(encoding) };
    v1::BuildTableRequest {
        encoding: Some(Encoding::Absolute(encoding)),
        positions: Some(StartAt(1).into()),
        rows: 2,
        ..Default::default()
    }
}

fn spec(rotary_dim: i32) -> v1::RopeSpec {
    v1::RopeSpec { pairing: v1::Pairing::HalfSplit.into(), rotary_dim, ..Default::default() }
}

/// Returns requests for tables of every kind.
fn tables() -> Vec<v1::BuildTableRequest> {
    let in_layout = |layout: v1::TableLayout, dtype: v1::Dtype| v1::BuildTableRequest {
        layout: layout.into(),
        dtype: dtype.into(),
        ..of_rope(spec(8))
    };
    let values = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let by_head = v1::ExplicitFrequencies { values, heads: 3, axes: 0 };
    let by_head = v1::RopeSpec { scaling: Some(v1::rope_spec::Scaling::ExplicitFrequencies(by_head)), ..spec(4) };
    let ids = View::new(&[9_i64, 2, 4], [3]).to_tensor();
    let packed = v1::PackedSequences { cu_seqlens: vec![0, 2, 5], ..Default::default() };
    let packed = v1::Positions { kind: Some(v1::positions::Kind::Packed(packed)) };
    let grid = v1::SincosGrid { dim: 8, extents: vec![2, 3], leading_zero_rows: 1, ..Default::default() };
    let order = v1::SinusoidalOrder::SinCos.into();
    let rows: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let learned = v1::LearnedTable { table: Some(view!(rows, [4, 3]).to_tensor()), ..Default::default() };
    let frequencies = Some(View::new(&[0.5_f32, 2.0, 1.0], [1, 3]).to_tensor());
    vec![
        of_rope(spec(8)),
        in_layout(v1::TableLayout::Duplicated, v1::Dtype::Float16),
        in_layout(v1::TableLayout::PairRepeated, v1::Dtype::Bfloat16),
        in_layout(v1::TableLayout::Complex, v1::Dtype::Float64),
        of_rope(by_head),
        v1::BuildTableRequest { positions: Some(ids.into()), rows: 0, ..of_rope(spec(8)) },
        v1::BuildTableRequest { positions: Some(packed), rows: 0, ..of_rope(spec(8)) },
        v1::BuildTableRequest { positions: None, rows: 0, ..of_absolute(Absolute::SincosGrid(grid)) },
        of_absolute(Absolute::Sinusoidal(v1::Sinusoidal { dim: 7, order, ..Default::default() })),
        of_absolute(Absolute::Timestep(v1::Timestep { dim: 6, ..Default::default() })),
        of_absolute(Absolute::Learned(learned)),
        of_absolute(Absolute::FourierFeatures(v1::FourierFeatures { frequencies, ..Default::default() })),
    ]
}

/// Returns the tensors of a table.
fn tensors(table: v1::BuildTableResponse) -> Vec<v1::Tensor> {
    [table.cos, table.sin, table.table].into_iter().flatten().collect()
}

#[tokio::test]
async fn tables_of_every_kind_go_to_their_places() {
    let sharing = Sharing::start();
    let client = sharing.client();
    for request in tables() {
        let wire = client.build_table(request.clone()).await.unwrap();
        let amplitude = wire.amplitude;
        let wire = tensors(wire);
        let region = client.shared_region(8192).await.unwrap();
        let (mut places, mut behind) = (Vec::new(), Vec::new());
        for tensor in &wire {
            let shape: Vec<_> = tensor.shape.iter().map(|&extent| extent as usize).collect();
            places.push(region.tensor_of_bytes(tensor.dtype(), shape).unwrap());
            behind.push(region.tensor::<i32>([16]).unwrap());
        }
        behind.iter_mut().for_each(|tensor| tensor.fill(7));
        let outputs = places.iter_mut().map(posenc::Slot::from);
        let said = client.build_table_into(request.clone(), outputs).await.unwrap();
        assert_eq!(said.amplitude, amplitude);
        for ((said, wire), place) in tensors(said).iter().zip(&wire).zip(&places) {
            assert_eq!((said.dtype, &said.shape, &place[..]), (wire.dtype, &wire.shape, &wire.data[..]), "{request:?}");
            let shared = said.shared.as_ref().expect("the server wrote it to its place");
            assert_eq!(shared.name, region.name());
        }
        assert!(behind.iter().all(|tensor| tensor.iter().all(|&element| element == 7)), "{request:?}");
    }
}

/// Builds a table in a region. Returns cosines, sines, and whether the server wrote to shared memory.
async fn pair(client: &Client, region: &SharedRegion, rope: v1::RopeSource, rows: usize) -> (Vec<f32>, Vec<f32>, bool) {
    let (mut cos, mut sin) = (region.tensor([rows, 64]).unwrap(), region.tensor([rows, 64]).unwrap());
    let request = v1::BuildTableRequest {
        encoding: Some(Encoding::Rope(rope)),
        rows: rows as i64,
        positions: Some(StartAt(0).into()),
        ..Default::default()
    };
    let said = client.build_table_into(request, [(&mut cos).into(), (&mut sin).into()]).await.unwrap();
    (cos.to_vec(), sin.to_vec(), said.cos.unwrap().shared.is_some())
}

#[tokio::test]
async fn a_table_in_shared_memory_is_no_large_answer() {
    let sharing = Sharing::with(&["--max-response-bytes", "4KiB"]);
    let client = sharing.client();
    for rope in [spec(128).into(), v1::rope_source::Source::Preset("llama-2-7b".into()).into()] {
        let resolve = v1::ResolveRopeRequest { rope: Some(rope), ..Default::default() };
        let rope = resolve.rope.clone().unwrap();
        let resolved = client.resolve_rope(resolve).await.unwrap().spec.unwrap();
        let want = client.rope(Config::spec(resolved)).await.unwrap().table(300).await.unwrap();
        let region = client.shared_region(2 * 300 * 256).await.unwrap();
        let (cos, sin, shared) = pair(&client, &region, rope, 300).await;
        assert!((cos, sin) == want && shared);
    }
}

#[tokio::test]
async fn a_table_goes_to_slices_too() {
    let sharing = Sharing::start();
    let client = sharing.client();
    let rope = client.rope(Config::preset("llama-2-7b")).await.unwrap();
    let want = rope.table(3).await.unwrap();
    let (mut cos, mut sin) = (vec![0_f32; 3 * 64], vec![0_f32; 3 * 64]);
    rope.table_into(3, &mut cos, &mut sin[..]).await.unwrap();
    assert_eq!((cos.clone(), sin.clone()), want);
    // The server shares no memory with the client `remote`, so the table comes as bytes.
    let region = client.shared_region(2 * 3 * 256).await.unwrap();
    let (mut a, mut b) = (region.tensor::<f32>([3, 64]).unwrap(), region.tensor::<f32>([3, 64]).unwrap());
    let remote = posenc::connect(&sharing.server.target).unwrap();
    remote.rope(Config::preset("llama-2-7b")).await.unwrap().table_into(3, &mut a, &mut b).await.unwrap();
    assert_eq!((a.to_vec(), b.to_vec()), want);

    let mut small = vec![0_f32; 64];
    let mut halves = vec![0_i32; 3 * 64];
    let error = rope.table_into(3, &mut cos, &mut small).await.unwrap_err();
    assert_eq!(error.to_string(), "INVALID_ARGUMENT: sin_output: has 256 bytes; must have 768");
    let error = rope.table_into(3, &mut halves, &mut sin).await.unwrap_err();
    assert_eq!(error.to_string(), "INVALID_ARGUMENT: cos_output: is DTYPE_INT32; must be DTYPE_FLOAT32");
    let request = v1::BuildTableRequest {
        encoding: Some(Encoding::Rope(v1::rope_source::Source::Preset("llama-2-7b".into()).into())),
        ..of_rope(spec(8))
    };
    let error = client.build_table_into(request.clone(), [(&mut small).into()]).await.unwrap_err();
    assert_eq!((error.code(), error.field()), (Code::InvalidArgument, Some("cos_output")), "{error}");
    let outputs = [(&mut cos).into(), (&mut sin).into(), (&mut small).into()];
    let error = client.build_table_into(request, outputs).await.unwrap_err();
    assert_eq!((error.code(), error.field()), (Code::InvalidArgument, Some("outputs")), "{error}");
}

#[tokio::test]
async fn embeddings_are_encoded_where_they_lie() {
    let sharing = Sharing::start();
    let client = sharing.client();
    let x = numbers(5 * 8);
    let order = v1::SinusoidalOrder::Interleaved.into();
    let sinusoidal = Absolute::Sinusoidal(v1::Sinusoidal { dim: 8, order, ..Default::default() });
    let request = v1::AddEncodingRequest {
        encoding: Some(v1::AbsoluteEncoding { encoding: Some(sinusoidal) }),
        positions: Some(StartAt(3).into()),
        ..Default::default()
    };
    let whole = v1::AddEncodingRequest { x: Some(view!(x, [5, 8]).to_tensor()), ..request.clone() };
    let want: Vec<f32> = client.add_encoding(whole, ()).await.unwrap().1.x.unwrap().to_vec().unwrap();
    let (sum, _) = client.add_encoding(request.clone(), view!(x, [5, 8])).await.unwrap();
    assert_eq!(sum, want);
    let mut own = x.clone();
    client.add_encoding(request.clone(), view_mut!(own, [5, 8])).await.unwrap();
    assert_eq!(own, want);
    let region = client.shared_region(4096).await.unwrap();
    let (mut held, mut out) = (region.tensor::<f32>([5, 8]).unwrap(), region.tensor::<f32>([5, 8]).unwrap());
    held.copy_from_slice(&x);
    let (_, said) = client.add_encoding(request.clone(), held.write_to(&mut out)).await.unwrap();
    assert!(said.x.unwrap().shared.is_some());
    assert_eq!((&held[..], &out[..]), (&x[..], &want[..]));
    client.add_encoding(request.clone(), &mut held).await.unwrap();
    assert_eq!(held[..], want[..]);
    let wide = v1::AddEncodingRequest { combination: v1::Combination::Concatenate.into(), ..request };
    let error = client.add_encoding(wide, &mut held).await.unwrap_err();
    assert_eq!((error.code(), error.field()), (Code::InvalidArgument, Some("x")));
    assert_eq!(held[..], want[..]);
}

#[tokio::test]
async fn scores_go_to_their_place_from_tensors_anywhere() {
    let sharing = Sharing::start();
    let client = sharing.client();
    let (q, k) = (numbers(2 * 3 * 4 * 8), numbers(2 * 3 * 5 * 8));
    let key_table = Some(view!(vec![0.5_f32; 3 * 8], [3, 8]).to_tensor());
    let shaw = v1::relative_score::Score::Shaw(v1::ShawScore { key_table, ..Default::default() });
    let request =
        v1::ScoreRelativeRequest { score: Some(v1::RelativeScore { score: Some(shaw) }), ..Default::default() };
    let (q, k) = (view!(q, [2, 3, 4, 8]), view!(k, [2, 3, 5, 8]));
    let whole = v1::ScoreRelativeRequest { q: Some(q.to_tensor()), k: Some(k.to_tensor()), ..request.clone() };
    let want: Vec<f32> = client.score_relative(whole).await.unwrap().scores.unwrap().to_vec().unwrap();
    let mut own = vec![0_f32; 2 * 3 * 4 * 5];
    client.score_relative_into(request.clone(), q.clone(), k.clone(), &mut own).await.unwrap();
    assert_eq!(own, want);

    let region = client.shared_region(8192).await.unwrap();
    let mut held = region.tensor::<f32>([2, 3, 4, 8]).unwrap();
    held.copy_from_slice(&numbers(2 * 3 * 4 * 8));
    let mut scores = region.tensor::<f32>([2, 3, 4, 5]).unwrap();
    let said = client.score_relative_into(request.clone(), &held, k.clone(), &mut scores).await.unwrap();
    assert!(said.scores.unwrap().shared.is_some());
    assert_eq!(scores[..], want[..]);
    let remote = posenc::connect(&sharing.server.target).unwrap();
    scores.fill(0.0);
    remote.score_relative_into(request.clone(), &held, k.clone(), &mut scores).await.unwrap();
    assert_eq!(scores[..], want[..]);
    own.fill(0.0);
    client.score_relative_into(request.clone(), &held, k.clone(), &mut own).await.unwrap();
    assert_eq!(own, want);

    let mut small = region.tensor::<f32>([2, 3]).unwrap();
    let error = client.score_relative_into(request.clone(), &held, k.clone(), &mut small).await.unwrap_err();
    assert_eq!(error.to_string(), "INVALID_ARGUMENT: scores_output: has 24 bytes; must have 480");
    let wide = v1::ScoreRelativeRequest { dtype: v1::Dtype::Float64.into(), ..request };
    let error = client.score_relative_into(wide, &held, k, &mut scores).await.unwrap_err();
    assert_eq!(error.to_string(), "INVALID_ARGUMENT: scores_output: is DTYPE_FLOAT32; must be DTYPE_FLOAT64");
}

#[tokio::test]
async fn weights_are_converted_to_another_place_and_never_in_place() {
    let sharing = Sharing::start();
    let client = sharing.client();
    let weight = numbers(2 * 8 * 3);
    let request = v1::ConvertPairingRequest {
        old_pairing: v1::Pairing::Interleaved.into(),
        new_pairing: v1::Pairing::HalfSplit.into(),
        heads: 2,
        ..Default::default()
    };
    // Channel 2i of a head becomes channel i, and channel 2i + 1 becomes channel i + 4.
    let row = |to: usize| 8 * (to / 8) + 2 * (to % 4) + to % 8 / 4;
    let want: Vec<f32> = (0..16).flat_map(|to| weight[3 * row(to)..3 * row(to) + 3].to_vec()).collect();
    let (converted, _) = client.convert_pairing(request.clone(), view!(weight, [16, 3])).await.unwrap();
    assert_eq!(converted, want);
    let region = client.shared_region(4096).await.unwrap();
    let (mut held, mut out) = (region.tensor::<f32>([16, 3]).unwrap(), region.tensor::<f32>([16, 3]).unwrap());
    held.copy_from_slice(&weight);
    let (_, said) = client.convert_pairing(request.clone(), held.write_to(&mut out)).await.unwrap();
    assert!(said.weight.unwrap().shared.is_some());
    assert_eq!(out[..], want[..]);
    let error = client.convert_pairing(request, &mut held).await.unwrap_err();
    assert_eq!((error.code(), error.field()), (Code::InvalidArgument, Some("weight_output")), "{error}");
    assert_eq!(held[..], weight[..]);
}
