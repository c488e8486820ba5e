//! Replays the table of error cases that all clients share.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use ndarray::{Array4, s};
use posenc::{Dtype, Error, Options, StartAt, TlsOptions, View, v1};
use serde_json::Value;

use crate::truth::to_bytes;
use crate::{Outcome, Report};

pub async fn run(table: &Path, environment: &Path) -> Outcome {
    let environment = std::fs::read_to_string(environment)?;
    let environment: HashMap<&str, &str> = environment.lines().filter_map(|line| line.trim().split_once('=')).collect();
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(table)?)?;
    let mut report = Report::default();
    for case in cases {
        let only = case["only"].as_array();
        if only.is_some_and(|only| !only.contains(&"rust".into())) {
            continue;
        }
        let outcome = match call(&case, &environment).await {
            Ok(()) if case["expect"]["code"] == "OK" => Ok(()),
            Ok(()) => Err("succeeded; must fail".to_owned()),
            Err(Failure::Case(text)) => Err(text),
            Err(Failure::Call(error)) => check(&error, &case["expect"]),
        };
        report.line("errors", case["name"].as_str().unwrap_or("?"), outcome);
    }
    report.end()
}

/// A fault of the case, or a failure of the call.
enum Failure {
    Case(String),
    Call(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

async fn call(case: &Value, environment: &HashMap<&str, &str>) -> Result<(), Failure> {
    let of = |key: &str| {
        environment.get(key).map(|value| value.to_string()).ok_or(Failure::Case(format!("{key}: is not set")))
    };
    let given = &case["options"];
    let mut options = Options::default();
    if let Some(seconds) = given["timeout"].as_f64() {
        options.timeout = Duration::from_secs_f64(seconds);
    }
    let ca_file = match given["ca"].as_str() {
        None => None,
        Some(which) => Some(of(if which == "wrong" { "WRONG_CA" } else { "CA" })?.into()),
    };
    if given["tls"].as_bool().unwrap_or(ca_file.is_some()) {
        options.tls = Some(TlsOptions { ca_file, ..Default::default() });
    }
    if let Some(which) = given["token"].as_str() {
        options.token = Some(of(&format!("TOKEN_{}", which.to_uppercase()))?);
    }
    let server = case["server"].as_str().unwrap_or("plain").to_uppercase();
    let client = posenc::connect_with(of(&server)?, options)?;
    match case["call"].as_str() {
        Some("info") => client.get_server_info().await.map(drop)?,
        Some("table") => {
            let request = v1::BuildTableRequest {
                encoding: Some(v1::build_table_request::Encoding::Rope(rope(&case["arguments"]["rope"])?)),
                positions: Some(StartAt(0).into()),
                rows: case["arguments"]["rows"].as_i64().unwrap_or(0),
                ..Default::default()
            };
            client.build_table(request).await.map(drop)?
        }
        // The arguments are in a separate object, or in the case itself.
        Some("rotate") => {
            rotate(&client, if case["arguments"].is_object() { &case["arguments"] } else { case }).await?
        }
        other => return Err(Failure::Case(format!("{other:?}: is no call"))),
    }
    Ok(())
}

async fn rotate(client: &posenc::Client, arguments: &Value) -> Result<(), Failure> {
    let name = |key: &str, prefix: &str, default: &str| {
        format!("{prefix}_{}", arguments[key].as_str().unwrap_or(default).to_uppercase())
    };
    let dtype = Dtype::from_str_name(&name("dtype", "DTYPE", "float32"));
    let dtype = dtype.ok_or(Failure::Case("dtype: is none".into()))?;
    let layout = match &arguments["layout"] {
        Value::Null if arguments.get("layout").is_some() => v1::Layout::Unspecified.into(),
        // A name that this client does not know is sent as an unused number.
        _ => v1::Layout::from_str_name(&name("layout", "LAYOUT", "bshd")).map_or(99, i32::from),
    };
    let shape: Vec<usize> = match arguments["shape"].as_array() {
        None => vec![1, 4, 2, 8],
        Some(shape) => shape.iter().filter_map(|extent| extent.as_u64().map(|extent| extent as usize)).collect(),
    };
    let positions = match arguments["ids"].as_array() {
        None => StartAt(arguments["start"].as_i64().unwrap_or(0)).into(),
        Some(ids) => {
            let values: Vec<f64> = ids.iter().map(|id| id.as_f64().unwrap_or(f64::NAN)).collect();
            View::new(&values, [values.len()]).to_tensor().into()
        }
    };
    let is_null = |key: &str| arguments.get(key).is_some_and(Value::is_null);
    let request = v1::ApplyRopeRequest {
        rope: if is_null("rope") { None } else { Some(rope(&arguments["rope"])?) },
        positions: (!is_null("positions")).then_some(positions),
        layout,
        ..Default::default()
    };
    if is_null("q") {
        client.apply_rope(request, (), ()).await?;
        return Ok(());
    }
    if arguments.get("memory").is_some() {
        return strided(client, request).await;
    }
    let zeros = match arguments["bytes"].as_u64() {
        Some(bytes) => vec![0; bytes as usize],
        None => to_bytes(dtype, &vec![0.0; shape.iter().product()]),
    };
    let q = View::of_bytes(dtype, &zeros, shape);
    if let Some(shape) = arguments["out"]["shape"].as_array() {
        let elements: u64 = shape.iter().filter_map(Value::as_u64).product();
        let mut out = to_bytes(dtype, &vec![0.0; elements as usize]);
        client.apply_rope(request, q.write_to(&mut out), ()).await?;
    } else {
        client.apply_rope(request, q, ()).await?;
    }
    Ok(())
}

/// Checks that an array with gaps gives the same result as an array without gaps.
async fn strided(client: &posenc::Client, request: v1::ApplyRopeRequest) -> Result<(), Failure> {
    let plain =
        Array4::from_shape_fn((1, 4, 2, 8), |(_, token, head, channel)| (token * 16 + head * 8 + channel) as f32);
    let mut wide = Array4::zeros((1, 4, 2, 16));
    wide.slice_mut(s![.., .., .., ..;2]).assign(&plain);
    let apart = wide.slice(s![.., .., .., ..;2]);
    let (wanted, _, _) = client.apply_rope(request.clone(), &plain, ()).await?;
    let (got, _, _) = client.apply_rope(request, &apart, ()).await?;
    if got == wanted { Ok(()) } else { Err(Failure::Case("the result is another".into())) }
}

/// Reads the name of a preset, or a spec with short names of enums.
fn rope(value: &Value) -> Result<v1::RopeSource, Failure> {
    if let Some(preset) = value.as_str().or(value["preset"].as_str()) {
        return Ok(v1::rope_source::Source::Preset(preset.to_owned()).into());
    }
    let pairing = value["pairing"].as_str().unwrap_or(if value.is_null() { "half_split" } else { "unspecified" });
    let pairing = v1::Pairing::from_str_name(&format!("PAIRING_{}", pairing.to_uppercase()));
    let known = ["pairing", "rotary_dim", "rope_theta"];
    if let Some(key) = value.as_object().and_then(|spec| spec.keys().find(|key| !known.contains(&key.as_str()))) {
        return Err(Failure::Case(format!("rope.{key}: is not known here")));
    }
    let spec = v1::RopeSpec {
        pairing: pairing.unwrap_or_default().into(),
        rotary_dim: value["rotary_dim"].as_i64().unwrap_or(0) as i32,
        rope_theta: value["rope_theta"].as_f64(),
        ..Default::default()
    };
    Ok(spec.into())
}

fn check(error: &Error, expect: &Value) -> Result<(), String> {
    let text = error.to_string();
    let codes = expect["code"].as_str().unwrap_or("");
    if !codes.split('|').any(|code| code == error.code_name()) {
        return Err(format!("{}; must be {codes}: {text}", error.code_name()));
    }
    for (key, got) in [("reason", error.reason_name()), ("field", error.field().unwrap_or(""))] {
        if let Some(expected) = expect[key].as_str().filter(|&expected| expected != got) {
            return Err(format!("{key} is {got:?}; must be {expected:?}: {text}"));
        }
    }
    for part in expect["text"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !text.contains(part) {
            return Err(format!("the text lacks {part:?}: {text}"));
        }
    }
    Ok(())
}
