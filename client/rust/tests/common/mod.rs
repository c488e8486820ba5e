//! Servers for the tests, and the formula that results are compared with.

#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A folder for one test, which is removed at the end of the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        let name = format!("posenc-rust-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running posencd, the program that POSENCD names.
pub struct Server {
    process: Child,
    pub target: String,
    pub folder: Folder,
}

impl Server {
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server on a free port, with these flags.
    pub fn with(flags: &[&str]) -> Self {
        Self::at("127.0.0.1:0", flags, Folder::new())
    }

    pub fn at(listen: &str, flags: &[&str], folder: Folder) -> Self {
        let program = std::env::var("POSENCD").expect("POSENCD: must name the server's binary");
        let ready = folder.0.join("ready");
        let mut process = Command::new(program)
            .args(["--listen", listen, "--ready-file"])
            .arg(&ready)
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("posencd starts");
        // A complete file ends with a newline. A busy machine may need a minute.
        for _ in 0..6000 {
            let address = std::fs::read_to_string(&ready).unwrap_or_default();
            if address.ends_with('\n') {
                let target = address.lines().next().expect("an address").to_owned();
                return Self { process, target, folder };
            }
            assert!(process.try_wait().expect("a process").is_none(), "posencd ended");
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("posencd does not become ready");
    }

    pub fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A server that shares memory with callers on `socket`.
pub struct Sharing {
    pub server: Server,
    pub socket: String,
    pub prefix: String,
}

impl Sharing {
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts the server with these additional flags.
    pub fn with(flags: &[&str]) -> Self {
        let folder = Folder::new();
        let socket = format!("unix:{}/socket", folder.0.display());
        let prefix = format!("{}-", folder.0.file_name().unwrap().to_str().unwrap());
        let shared = format!("/dev/shm/{prefix}");
        let flags = [flags, &["--listen", &socket, "--shared-memory-prefix", &shared]].concat();
        let server = Server::at("127.0.0.1:0", &flags, folder);
        Self { server, socket, prefix }
    }

    pub fn client(&self) -> posenc::Client {
        posenc::connect(&self.socket).unwrap()
    }

    pub fn files(&self) -> Vec<String> {
        let names =
            std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(&self.prefix)).collect()
    }
}

/// Returns pseudo-random numbers from -2 to 2, which are the same in every run.
pub fn numbers(count: usize) -> Vec<f32> {
    let mut state = 1_u64;
    let mut next = || {
        // Knuth's linear congruential generator.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 40) as f32 / (1 << 22) as f32) - 2.0
    };
    (0..count).map(|_| next()).collect()
}

#[derive(Clone, Copy, PartialEq)]
pub enum Pairing {
    HalfSplit,
    Interleaved,
}

/// Rotates x, [tokens, heads, channels], by RoFormer's formula in float64. `position` has one position for each token.
pub fn rotated(x: &[f64], heads: usize, channels: usize, theta: f64, pairing: Pairing, position: &[f64]) -> Vec<f64> {
    let mut out = x.to_vec();
    for (token, &position) in position.iter().enumerate() {
        for head in 0..heads {
            let at = (token * heads + head) * channels;
            for i in 0..channels / 2 {
                let angle = position * theta.powf(-2.0 * i as f64 / channels as f64);
                let (a, b) = match pairing {
                    Pairing::HalfSplit => (at + i, at + i + channels / 2),
                    Pairing::Interleaved => (at + 2 * i, at + 2 * i + 1),
                };
                out[a] = x[a] * angle.cos() - x[b] * angle.sin();
                out[b] = x[a] * angle.sin() + x[b] * angle.cos();
            }
        }
    }
    out
}

pub fn widened(x: &[f32]) -> Vec<f64> {
    x.iter().copied().map(f64::from).collect()
}

/// Fails if an element differs from the truth by more than `bound`.
pub fn assert_near(got: &[f64], truth: &[f64], bound: f64) {
    assert_eq!(got.len(), truth.len());
    for (index, (got, truth)) in got.iter().zip(truth).enumerate() {
        assert!((got - truth).abs() <= bound, "element {index}: {got} is not {truth} to {bound}");
    }
}

/// Makes a self-signed certificate for localhost. Returns the files of the certificate and of its key.
pub fn certificate(folder: &Path) -> (PathBuf, PathBuf) {
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .stderr(Stdio::null())
        .status()
        .expect("openssl");
    assert!(made.success());
    (cert, key)
}
