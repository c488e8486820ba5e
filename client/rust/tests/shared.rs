//! Tensors in shared memory. The results equal the formula, and the results of the same calls with bytes.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Pairing, Sharing, assert_near, numbers, rotated, widened};
use posenc::{Bshd, Code, Config, Dtype, RegionOptions, SharedTensor, ShiftBy, StartAt, v1, view};

/// The largest error in float32. A rotated pair is at most 2 sqrt(2) < 2.9 long in these tests. Each of four roundings
/// changes the pair by at most 2^-24 of this length.
const FLOAT32: f64 = 2.9 * 4.0 / (1 << 24) as f64;
const SHAPE: [usize; 4] = [1, 5, 2, 64];

fn spec() -> v1::RopeSpec {
    v1::RopeSpec { pairing: v1::Pairing::HalfSplit.into(), ..Default::default() }
}

fn truth(x: &[f32], start: f64) -> Vec<f64> {
    let at: Vec<f64> = (0..5).map(|token| start + f64::from(token)).collect();
    rotated(&widened(x), 2, 64, 1e4, Pairing::HalfSplit, &at)
}

fn fill(tensor: &mut SharedTensor<f32>) -> Vec<f32> {
    let values = numbers(tensor.len());
    tensor.copy_from_slice(&values);
    values
}

#[tokio::test]
async fn tensors_are_rotated_where_they_lie() {
    let sharing = Sharing::start();
    let client = sharing.client();
    let rope = client.rope(Config::spec(spec()).head_dim(64)).await.unwrap();
    let region = client.shared_region(2 * 5 * 2 * 64 * 4).await.unwrap();
    let (mut q, mut k) = (region.tensor::<f32>(SHAPE).unwrap(), region.tensor::<f32>(SHAPE).unwrap());
    let (x, _) = (fill(&mut q), fill(&mut k));
    assert!(region.name().starts_with(&sharing.prefix));
    rope.apply(Bshd, StartAt(1000), &mut q, &mut k).await.unwrap();
    assert_near(&widened(&q), &truth(&x, 1000.0), FLOAT32);
    assert_eq!(q[..], k[..]);
    rope.reposition(Bshd, ShiftBy(-1000), &mut k).await.unwrap();
    assert_near(&widened(&k), &truth(&x, 0.0), 2.0 * FLOAT32);
}

#[tokio::test]
async fn a_result_may_go_to_another_tensor_and_others_may_stand_beside_it() {
    let sharing = Sharing::start();
    let client = sharing.client();
    let rope = client.rope(Config::spec(spec()).head_dim(64)).await.unwrap();
    let region = client.shared_region(8192).await.unwrap();
    let (mut q, mut out) = (region.tensor::<f32>(SHAPE).unwrap(), region.tensor::<f32>(SHAPE).unwrap());
    let x = fill(&mut q);
    let ((), k) = rope.apply(Bshd, StartAt(7), q.write_to(&mut out), view!(x, SHAPE)).await.unwrap();
    assert_eq!((&q[..], &out[..]), (&x[..], &k[..]));
    assert_near(&widened(&out), &truth(&x, 7.0), FLOAT32);
    let mut small = region.tensor::<f32>([16]).unwrap();
    let error = rope.apply(Bshd, StartAt(7), q.write_to(&mut small), ()).await.unwrap_err();
    assert_eq!((error.code(), error.field()), (Code::InvalidArgument, Some("q_output")));
    let mut cos = region.tensor::<f32>([4, 8]).unwrap();
    let mut sin = vec![0.0_f32; 32];
    let narrow = client.rope(Config::spec(spec()).head_dim(16)).await.unwrap();
    let error = narrow.table_into(4, &mut cos, &mut sin).await.err();
    assert!(error.is_none(), "{error:?}");
}

#[tokio::test]
async fn bytes_are_elements_of_any_type() {
    let sharing = Sharing::start();
    let client = sharing.client();
    let rope = client.rope(Config::spec(spec()).head_dim(4)).await.unwrap();
    let region = client.shared_region(64).await.unwrap();
    let mut k = region.tensor_of_bytes(Dtype::Float8E4m3fn, [1, 1, 1, 4]).unwrap();
    k.copy_from_slice(&[0x38; 4]);
    assert_eq!(rope.apply(Bshd, StartAt(0), (), &mut k).await.unwrap_err().field(), Some("saturation"));
    rope.saturation(v1::Saturation::Finite).apply(Bshd, StartAt(0), (), &mut k).await.unwrap();
    assert_eq!(k[..], [0x38; 4]);
}

#[tokio::test]
async fn where_the_server_shares_nothing_the_same_code_sends_bytes() {
    let sharing = Sharing::start();
    let client = posenc::connect(&sharing.server.target).unwrap();
    let rope = client.rope(Config::spec(spec()).head_dim(64)).await.unwrap();
    let region = client.shared_region(4096).await.unwrap();
    let mut q = region.tensor::<f32>(SHAPE).unwrap();
    let x = fill(&mut q);
    assert_eq!((region.name(), sharing.files()), ("", vec![]));
    rope.apply(Bshd, StartAt(7), &mut q, ()).await.unwrap();
    assert_near(&widened(&q), &truth(&x, 7.0), FLOAT32);
}

/// Starts a proxy before a server's socket. The proxy forwards all bytes, but ends a connection if a call on this
/// connection names shared memory. Returns the proxy's address and the number of ended connections.
async fn breaking(sharing: &Sharing) -> (String, Arc<AtomicUsize>) {
    let path = sharing.server.folder.0.join("breaking");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let (to, name) = (sharing.socket.strip_prefix("unix:").unwrap().to_owned(), sharing.prefix.clone());
    let broken = Arc::new(AtomicUsize::new(0));
    let count = broken.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (to, name, count) = (to.clone(), name.clone(), count.clone());
            tokio::spawn(async move {
                let server = tokio::net::UnixStream::connect(to).await.unwrap();
                let (mut block, mut told) = (vec![0; 65536], vec![0; 65536]);
                loop {
                    tokio::select! {
                        ready = client.readable() => {
                            ready.unwrap();
                            let read = match client.try_read(&mut block) { Ok(0) => return, Ok(n) => n, Err(_) => continue };
                            if block[..read].windows(name.len()).any(|bytes| bytes == name.as_bytes()) {
                                count.fetch_add(1, Ordering::SeqCst);
                                return;
                            }
                            server.writable().await.unwrap();
                            assert_eq!(server.try_write(&block[..read]).unwrap(), read);
                        }
                        ready = server.readable() => {
                            ready.unwrap();
                            let read = match server.try_read(&mut told) { Ok(0) => return, Ok(n) => n, Err(_) => continue };
                            client.writable().await.unwrap();
                            assert_eq!(client.try_write(&told[..read]).unwrap(), read);
                        }
                    }
                }
            });
        }
    });
    (format!("unix:{}", path.display()), broken)
}

#[tokio::test]
async fn a_call_in_place_is_sent_once_and_its_error_says_what_to_do() {
    let sharing = Sharing::start();
    let (target, broken) = breaking(&sharing).await;
    let client = posenc::connect(target).unwrap();
    let rope = client.rope(Config::spec(spec()).head_dim(64)).await.unwrap();
    let region = client.shared_region(8192).await.unwrap();
    let (mut q, mut out) = (region.tensor::<f32>(SHAPE).unwrap(), region.tensor::<f32>(SHAPE).unwrap());
    fill(&mut q);
    let error = rope.apply(Bshd, StartAt(7), &mut q, ()).await.unwrap_err();
    assert_eq!((error.code(), broken.load(Ordering::SeqCst)), (Code::Unavailable, 1), "{error}");
    assert!(error.message().contains("q may have been rotated by then, in part or whole: write it anew"), "{error}");
    let error = rope.apply(Bshd, StartAt(7), q.write_to(&mut out), ()).await.unwrap_err();
    assert_eq!((error.code(), broken.load(Ordering::SeqCst)), (Code::Unavailable, 5), "{error}");
    assert!(!error.message().contains("anew"), "{error}");
}

#[tokio::test]
async fn a_file_goes_with_its_region_and_the_last_of_its_tensors() {
    let sharing = Sharing::start();
    let client = sharing.client();
    let options = RegionOptions { name: Some(format!("{}named", sharing.prefix)), ..Default::default() };
    let region = client.shared_region_with(10000, options.clone()).await.unwrap();
    let file = std::fs::metadata(format!("/dev/shm/{}", region.name())).unwrap();
    assert_eq!((file.len(), file.permissions().mode() & 0o777), (10000, 0o600));
    let error = client.shared_region_with(8, options).await.unwrap_err();
    assert_eq!((error.code(), error.field()), (Code::InvalidArgument, Some("name")));
    let mut tensor = region.tensor::<f32>([8]).unwrap();
    drop(region);
    tensor[7] = 1.0;
    assert_eq!(sharing.files().len(), 1);
    drop(tensor);
    assert!(sharing.files().is_empty());
}

// Files with the directory's group let containers of different users share a Kubernetes volume with an fsGroup.
#[tokio::test]
async fn a_directory_that_gives_its_group_gets_files_of_the_group() {
    let sharing = Sharing::start();
    let client = sharing.client();
    let directory = std::env::temp_dir().join(format!("{}group", sharing.prefix));
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o2770)).unwrap();
    let options = RegionOptions { directory: Some(directory.clone()), ..Default::default() };
    let region = client.shared_region_with(10000, options).await.unwrap();
    let file = std::fs::metadata(directory.join(region.name())).unwrap();
    assert_eq!((file.len(), file.permissions().mode() & 0o777), (10000, 0o660));
    drop(region);
    std::fs::remove_dir(directory).unwrap();
}

#[tokio::test]
async fn what_cannot_be_is_an_error_that_names_the_field() {
    let sharing = Sharing::start();
    let client = sharing.client();
    let prefix = &sharing.prefix;
    let named = |name: String| RegionOptions { name: Some(name), ..Default::default() };
    let elsewhere = RegionOptions { directory: Some(PathBuf::from("/nowhere")), ..Default::default() };
    for (bytes, options, field) in [
        (0, RegionOptions::default(), "bytes"),
        (usize::MAX, RegionOptions::default(), "bytes"),
        (1 << 50, RegionOptions::default(), "bytes"),
        (8, named("x".into()), "name"),
        (8, named(String::new()), "name"),
        (8, named("..".into()), "name"),
        (8, named(format!("{prefix}/../x")), "name"),
        (8, named(format!("{prefix}{}", "x".repeat(255))), "directory"),
        (8, elsewhere, "directory"),
    ] {
        let error = client.shared_region_with(bytes, options).await.unwrap_err();
        assert_eq!((error.code(), error.field()), (Code::InvalidArgument, Some(field)), "{error}");
    }
    let region = client.shared_region(100).await.unwrap();
    for shape in [&[26][..], &[1 << 40, 1 << 40]] {
        assert_eq!(region.tensor::<f32>(shape).unwrap_err().field(), Some("shape"));
    }
    assert_eq!(region.tensor::<u8>([1]).unwrap_err().field(), Some("dtype"));
    assert_eq!(region.tensor_of_bytes(Dtype::Unspecified, [1]).unwrap_err().field(), Some("dtype"));
    assert!(region.tensor::<f32>([1 << 40, 0]).unwrap().is_empty());
    region.tensor::<f32>([1]).unwrap();
    region.tensor::<f32>([9]).unwrap();
    let error = region.tensor::<f32>([1]).unwrap_err();
    assert!(error.message().contains("100 of the region's 100 bytes are taken"), "{error}");
}
