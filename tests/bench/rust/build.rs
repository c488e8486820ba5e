fn main() {
    let root = "../../../proto";
    tonic_prost_build::configure()
        .build_client(false)
        .generate_default_stubs(true)
        .compile_protos(&[format!("{root}/posenc/v1/service.proto")], &[root.to_string()])
        .expect("protoc");
}
