//! Generates the contract's code. PROTO is its folder (default: three folders
//! up).

use std::{env, path::PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-env-changed=PROTO");
    let proto = PathBuf::from(env::var("PROTO").unwrap_or("../../../proto".into()));
    tonic_prost_build::configure()
        .build_server(false)
        // Without this prost copies every tensor into a Vec<u8>.
        .bytes(".")
        .compile_protos(&[proto.join("posenc/v1/service.proto")], &[proto])?;
    Ok(())
}
