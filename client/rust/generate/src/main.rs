//! `posenc-generate PROTO SERVICE_CONFIG OUT DESCRIPTORS` writes Rust code into the folder OUT: the messages of the
//! `.proto` files in PROTO, and the retry policy of SERVICE_CONFIG as constants. Users of the client then need neither
//! protoc nor a JSON parser. The file DESCRIPTORS gets the FileDescriptorSet of the `.proto` files.

use std::error::Error;
use std::{env, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [proto, service_config, out, descriptors] = arguments.as_slice() else {
        return Err("usage: posenc-generate PROTO SERVICE_CONFIG OUT DESCRIPTORS".into());
    };
    fs::create_dir_all(out)?;
    prost_build::Config::new()
        // With the type Bytes, received tensors are views of the message, without a copy.
        .bytes(["."])
        .file_descriptor_set_path(descriptors)
        .out_dir(out)
        .compile_protos(&[proto.join("posenc/v1/service.proto"), proto.join("posenc/v1/errors.proto")], &[proto])?;
    fs::write(out.join("retry_policy.rs"), retry_policy(&fs::read_to_string(service_config)?)?)?;
    Ok(())
}

/// Returns the retry policy of the first method config as Rust code.
fn retry_policy(service_config: &str) -> Result<String, Box<dyn Error>> {
    let config: serde_json::Value = serde_json::from_str(service_config)?;
    let policy = &config["methodConfig"][0]["retryPolicy"];
    let codes = &policy["retryableStatusCodes"];
    if codes != &serde_json::json!(["UNAVAILABLE"]) {
        return Err(format!("the client retries UNAVAILABLE alone; the service config says {codes}").into());
    }
    let number = |key: &str| policy[key].as_f64().ok_or(format!("retryPolicy.{key}: is no number"));
    let seconds = |key: &str| -> Result<f64, Box<dyn Error>> {
        let text = policy[key].as_str().and_then(|text| text.strip_suffix('s'));
        Ok(text.ok_or(format!("retryPolicy.{key}: is no duration"))?.parse()?)
    };
    Ok(format!(
        "pub const MAX_ATTEMPTS: u32 = {};\n\
         pub const INITIAL_BACKOFF: Duration = Duration::from_millis({});\n\
         pub const MAX_BACKOFF: Duration = Duration::from_millis({});\n\
         pub const BACKOFF_MULTIPLIER: f64 = {:?};\n",
        number("maxAttempts")?,
        (seconds("initialBackoff")? * 1000.0).round(),
        (seconds("maxBackoff")? * 1000.0).round(),
        number("backoffMultiplier")?,
    ))
}
