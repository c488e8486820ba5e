//! Replays the conformance vectors through the client.

use std::path::Path;

use posenc::{Client, Error, Options, View, v1};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, ReflectMessage, Value as Field};
use serde_json::Value;

use crate::truth::{Truth, elements, is_within, to_bytes};
use crate::{Outcome, Report};

pub async fn run(target: &str, directory: &Path, descriptors: &Path) -> Outcome {
    let pool = DescriptorPool::decode(std::fs::read(descriptors)?.as_slice())?;
    let client = posenc::connect(target)?;
    let mut files: Vec<_> =
        std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut report = Report::default();
    // Knuth's linear congruential generator gives the same numbers in every run.
    let mut random = 45_u64;
    for path in files {
        let family = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
        for case in cases {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let outcome = replay(target, &client, random, &pool, &case).await;
            report.line(&family, case["name"].as_str().unwrap_or("?"), outcome);
        }
    }
    report.end()
}

async fn replay(target: &str, client: &Client, random: u64, pool: &DescriptorPool, case: &Value) -> Result<(), String> {
    let rpc = case["rpc"].as_str().ok_or("has no rpc")?;
    let descriptor = |kind: &str| {
        let name = format!("posenc.v1.{rpc}{kind}");
        pool.get_message_by_name(&name).ok_or(format!("{name}: is no message"))
    };
    let request = DynamicMessage::deserialize(descriptor("Request")?, &case["request"]);
    let request = request.map_err(|error| format!("request: {error}"))?.encode_to_vec();
    // The first message contains the request without the elements of tensors. The size of the other messages is random.
    let max_message_bytes = request.len() + 64 + (random >> 33) as usize % 4096;
    let options = Options { stream_above_bytes: Some(0), max_message_bytes, ..Options::default() };
    let streams = posenc::connect_with(target, options).map_err(|error| error.to_string())?;
    let answers = call(client, &streams, rpc, &request).await?;
    for answer in answers {
        check(descriptor("Response")?, answer, &case["expect"])?;
    }
    Ok(())
}

type Answer = Result<Vec<u8>, Error>;

/// Returns the serialized answers to a request: one answer for every form in which the client can make the call.
async fn call(client: &Client, streams: &Client, rpc: &str, request: &[u8]) -> Result<Vec<Answer>, String> {
    macro_rules! of {
        ($method:ident) => {
            vec![client.$method(decode(request)?).await.map(|answer| answer.encode_to_vec())]
        };
    }
    Ok(match rpc {
        "ResolveRope" => of!(resolve_rope),
        "AnalyzeRope" => of!(analyze_rope),
        "DiagnoseRope" => of!(diagnose_rope),
        "BuildPositions" => of!(build_positions),
        "BuildTable" => of!(build_table),
        "AddEncoding" => {
            vec![client.add_encoding(decode(request)?, ()).await.map(|(_, answer)| answer.encode_to_vec())]
        }
        "ScoreRelative" => of!(score_relative),
        "ConvertPairing" => {
            vec![client.convert_pairing(decode(request)?, ()).await.map(|(_, answer)| answer.encode_to_vec())]
        }
        "BuildBias" => {
            let tile = client.build_bias(decode(request)?).await;
            let answer = tile.map(|tile| v1::BuildBiasResponse { tile: Some(tile), ..Default::default() });
            vec![answer.map(|answer| answer.encode_to_vec())]
        }
        "ApplyRope" => apply_rope(client, streams, decode(request)?).await,
        "Reposition" => reposition(client, streams, decode(request)?).await,
        _ => return Err(format!("{rpc}: the client has no such call")),
    })
}

fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, String> {
    M::decode(bytes).map_err(|error| error.to_string())
}

/// Makes the call first with tensors in the request. If the tensors' sizes fit their shapes, makes the call again with
/// tensors in the caller's memory, as one message. If the second call succeeds, makes the call as a stream.
async fn apply_rope(client: &Client, streams: &Client, request: v1::ApplyRopeRequest) -> Vec<Answer> {
    let mut answers = vec![client.apply_rope(request.clone(), (), ()).await.map(|(.., answer)| answer.encode_to_vec())];
    let mut rest = request.clone();
    let (q, k) = (Lent::of(rest.q.take()), Lent::of(rest.k.take()));
    for client in [client, streams] {
        let as_views = match (&q, &k) {
            (Some(q), None) if request.k.is_none() => {
                let answer = client.apply_rope(rest.clone(), q.view(), ()).await;
                answer.map(|(out, ..)| v1::ApplyRopeResponse { q: Some(q.tensor(out)), k: None })
            }
            (Some(q), Some(k)) => {
                let answer = client.apply_rope(rest.clone(), q.view(), k.view()).await;
                answer.map(|(q_out, k_out, _)| v1::ApplyRopeResponse {
                    q: Some(q.tensor(q_out)),
                    k: Some(k.tensor(k_out)),
                })
            }
            _ => break,
        };
        let failed = as_views.is_err();
        answers.push(as_views.map(|answer| answer.encode_to_vec()));
        if failed {
            break;
        }
    }
    answers
}

async fn reposition(client: &Client, streams: &Client, mut request: v1::RepositionRequest) -> Vec<Answer> {
    let mut answers = vec![client.reposition(request.clone(), ()).await.map(|(_, answer)| answer.encode_to_vec())];
    let Some(k) = Lent::of(request.k.take()) else { return answers };
    for client in [client, streams] {
        let answer = client.reposition(request.clone(), k.view()).await;
        let failed = answer.is_err();
        answers.push(answer.map(|(out, _)| v1::RepositionResponse { k: Some(k.tensor(out)) }.encode_to_vec()));
        if failed {
            break;
        }
    }
    answers
}

/// A tensor in the caller's memory.
struct Lent {
    head: v1::Tensor,
    bytes: Vec<u8>,
}

impl Lent {
    /// Returns `None` if the number of elements does not fit the shape.
    fn of(tensor: Option<v1::Tensor>) -> Option<Self> {
        let mut head = tensor?;
        let values = std::mem::take(&mut head.values);
        let count = head.shape.iter().try_fold(1_i64, |count, extent| count.checked_mul(*extent))?;
        let whole = usize::try_from(count) == Ok(values.len()) && head.data.is_empty();
        whole.then(|| Self { bytes: to_bytes(head.dtype(), &values), head })
    }

    fn view(&self) -> View<'_, u8> {
        let shape: Vec<usize> = self.head.shape.iter().map(|&extent| extent as usize).collect();
        View::of_bytes(self.head.dtype(), &self.bytes, shape)
    }

    fn tensor(&self, bytes: Vec<u8>) -> v1::Tensor {
        v1::Tensor { data: bytes.into(), ..self.head.clone() }
    }
}

fn check(descriptor: MessageDescriptor, answer: Answer, expect: &Value) -> Result<(), String> {
    match (answer, expect) {
        (Err(error), Value::Object(expected)) => {
            let reason = format!("ERROR_REASON_{}", error.reason_name());
            let got = [&error.code_name(), &reason, error.field().unwrap_or("")];
            let expected = ["code", "reason", "field"].map(|key| expected[key].as_str().unwrap_or(""));
            if got == expected { Ok(()) } else { Err(format!("{got:?}; must be {expected:?}: {error}")) }
        }
        (Err(error), _) => Err(error.to_string()),
        (Ok(_), Value::Object(_)) => Err("succeeded; must fail".into()),
        (Ok(answer), expectations) => {
            let answer = DynamicMessage::decode(descriptor, answer.as_slice()).map_err(|error| error.to_string())?;
            let expectations = expectations.as_array().ok_or("has no expectations")?;
            expectations.iter().try_for_each(|expectation| check_field(&answer, expectation))
        }
    }
}

fn check_field(answer: &DynamicMessage, expectation: &Value) -> Result<(), String> {
    let path = expectation["path"].as_str().ok_or("an expectation without path")?;
    let wrong = |fact: String| Err(format!("{path}: {fact}"));
    let got = Got::at(answer, path)?;
    let shape: Vec<i64> = expectation["shape"].as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
    if got.shape != shape {
        return wrong(format!("has shape {:?}; must be {shape:?}", got.shape));
    }
    if expectation["dtype"].as_str() != got.dtype.map(|dtype| dtype.as_str_name()) {
        return wrong(format!("is {:?}; must be {}", got.dtype, expectation["dtype"]));
    }
    let expected = expectation["values"].as_array().ok_or("an expectation without values")?;
    if let Some(names) = got.names {
        let expected: Vec<_> = expected.iter().filter_map(Value::as_str).collect();
        return if names == expected { Ok(()) } else { wrong(format!("is {names:?}; must be {expected:?}")) };
    }
    if got.numbers.len() != expected.len() {
        return wrong(format!("has {} values; must have {}", got.numbers.len(), expected.len()));
    }
    for (index, (&number, expected)) in got.numbers.iter().zip(expected).enumerate() {
        let truth = Truth::of(expected).ok_or(format!("{expected}: is no number"))?;
        let dtype = got.dtype.unwrap_or(posenc::Dtype::Float64);
        if !is_within(&expectation["bound"], index, dtype, number, truth) {
            return wrong(format!("element {index} is {number:?}; must be {expected}"));
        }
    }
    Ok(())
}

/// The value of one field of an answer.
#[derive(Default)]
struct Got {
    dtype: Option<posenc::Dtype>,
    shape: Vec<i64>,
    numbers: Vec<f64>,
    names: Option<Vec<String>>,
}

impl Got {
    fn text(text: &str) -> Self {
        Self { names: Some(vec![text.to_owned()]), ..Self::default() }
    }

    fn at(answer: &DynamicMessage, path: &str) -> Result<Self, String> {
        let mut message = answer.clone();
        let mut fields = path.split('.').peekable();
        while let Some(name) = fields.next() {
            let field = message.descriptor().get_field_by_json_name(name).ok_or(format!("{path}: no such field"))?;
            let value = message.get_field(&field).into_owned();
            match value {
                Field::Message(inner) if inner.descriptor().name() == "Tensor" && fields.peek().is_none() => {
                    if !message.has_field(&field) {
                        return Err(format!("{path}: is missing"));
                    }
                    let tensor: v1::Tensor = inner.transcode_to().map_err(|error| error.to_string())?;
                    let numbers = match tensor.values.as_slice() {
                        [] => elements(tensor.dtype(), &tensor.data),
                        values => values.to_vec(),
                    };
                    return Ok(Self { dtype: Some(tensor.dtype()), shape: tensor.shape, numbers, names: None });
                }
                Field::Message(inner) => message = inner,
                Field::EnumNumber(number) => {
                    let kind = field.kind();
                    let name = kind.as_enum().and_then(|names| Some(names.get_value(number)?.name().to_owned()));
                    return Ok(Self { names: Some(vec![name.unwrap_or_default()]), ..Self::default() });
                }
                Field::List(values) if fields.peek().is_some() => {
                    let index: usize =
                        fields.next().and_then(|name| name.parse().ok()).ok_or(format!("{path}: no index"))?;
                    match values.get(index).ok_or(format!("{path}: is missing"))? {
                        Field::Message(inner) => message = inner.clone(),
                        Field::String(text) => return Ok(Self::text(text)),
                        _ => return Err(format!("{path}: is no message")),
                    }
                }
                Field::String(text) => return Ok(Self::text(&text)),
                Field::List(values) => {
                    let numbers: Vec<f64> = values.iter().filter_map(number).collect();
                    return Ok(Self { shape: vec![values.len() as i64], numbers, ..Self::default() });
                }
                value => {
                    let number = number(&value).ok_or(format!("{path}: is no number"))?;
                    return Ok(Self { numbers: vec![number], ..Self::default() });
                }
            }
        }
        Err(format!("{path}: is a message"))
    }
}

fn number(value: &Field) -> Option<f64> {
    match value {
        Field::F64(value) => Some(*value),
        Field::I64(value) => Some(*value as f64),
        Field::I32(value) => Some(f64::from(*value)),
        Field::Bool(value) => Some(f64::from(u8::from(*value))),
        _ => None,
    }
}
