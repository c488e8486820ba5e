//! Starts a server for this process, on this machine.

use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::client::{Client, client_of};
use crate::error::{Error, Result};
use crate::options::Options;

const SHARED_MEMORY: &str = "/dev/shm";
const PREFIX: &str = "posenc-local-";
/// posencd starts within 20 ms, but a machine may be busy.
const LONGEST_START: Duration = Duration::from_secs(30);
const LONGEST_DEATH: Duration = Duration::from_millis(500);

/// Starts posencd, and makes a client of it. The server is killed when the last copy of the client is dropped.
///
/// `flags` are additional flags of posencd, such as `--threads=1`. posencd is the file that the environment variable
/// `POSENCD` names, or else the first posencd on `PATH`. The server does not get the variables `POSENC_...`, which are
/// meant for other servers and clients. The server listens on a unix socket in a folder of `/dev/shm` that only this
/// user may enter, and shares memory there ([`Client::shared_region`]).
///
/// Each call starts another server. The server also ends when this process is killed: it reads a pipe that only this
/// process has open, and the kernel closes the pipe when this process ends.
///
/// Fails with UNAVAILABLE if the server cannot be started; the text says what to do.
pub async fn local(flags: &[&str]) -> Result<Client> {
    let posencd = find()?;
    let folder = private_folder(SHARED_MEMORY)?;
    remove_leftovers(folder.path());
    let server = LocalServer { process: Mutex::new(start(&posencd, folder.path(), flags)?), folder };
    server.ready().await?;
    client_of(&format!("unix:{}", server.file("socket").display()), Options::default(), Some(server))
}

/// A posencd process. Dropping this value kills the process and removes its folder.
pub(crate) struct LocalServer {
    process: Mutex<Child>,
    /// A folder with a socket, a log, and the files of regions.
    folder: TempDir,
}

fn failure(fact: impl std::fmt::Display) -> Error {
    Error::new(Code::Unavailable, format!("posenc::local(): {fact}"))
}

fn find() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(named) = set("POSENCD") {
        return Ok(named.into());
    }
    let paths = set("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).map(|folder| folder.join("posencd")).find(|file| file.is_file());
    found.ok_or_else(|| {
        let install = format!("pip install posenc-server=={}", env!("CARGO_PKG_VERSION"));
        let wheels = "the wheel is for Linux on x86_64 or aarch64 with glibc 2.36 or newer";
        failure(format!("there is no posencd: {install} ({wheels}), or name one by POSENCD"))
    })
}

fn private_folder(parent: &str) -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    let made = builder.prefix(PREFIX).permissions(Permissions::from_mode(0o700)).tempdir_in(parent);
    made.map_err(|error| {
        let remedy = "client and server share memory there: mount a tmpfs that this user may write, or use \
                      posenc::connect() with a server that was started by hand";
        failure(format!("{parent}: {error}; {remedy}"))
    })
}

fn start(posencd: &Path, folder: &Path, flags: &[&str]) -> Result<Child> {
    let log = File::create(folder.join("log")).and_then(|log| Ok((log.try_clone()?, log))).map_err(failure)?;
    let at = folder.display();
    let name = |flag: &str| flag.split('=').next().map(str::to_owned);
    let defaults = ["--drain-timeout=1s", "--log-level=warning", "--log-format=text"];
    let mut command = Command::new(posencd);
    command
        .arg0("posencd")
        .args(["--exit-with-stdin", &format!("--listen=unix:{at}/socket")])
        .args([format!("--shared-memory-prefix={at}/"), format!("--ready-file={at}/ready")])
        .args(defaults.iter().filter(|default| flags.iter().all(|flag| name(flag) != name(default))))
        .args(flags)
        // posencd gets its own process group, so that Control-C at a terminal ends only this process.
        .process_group(0)
        .stdin(Stdio::piped());
    for (variable, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("POSENC_")) {
        command.env_remove(variable);
    }
    command.stdout(log.0).stderr(log.1).spawn().map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::PermissionDenied => {
                "it must be executable, on a file system that is not mounted noexec; or name another by POSENCD"
            }
            ErrorKind::NotFound if posencd.exists() => {
                "the file is there, but not its loader: it needs glibc, which musl systems such as Alpine lack"
            }
            ErrorKind::NotFound => "POSENCD must name the server's program, or be unset",
            _ => "is it a program for this machine? Name another by POSENCD",
        };
        failure(format!("{}: {error}; {remedy}", posencd.display()))
    })
}

impl LocalServer {
    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until the server has ended, and returns how it ended. Returns `None` if the time is over or
    /// `is_enough` returns true.
    async fn end_within(&self, time: Duration, is_enough: impl Fn() -> bool) -> Option<String> {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline && !is_enough() {
            if let Some(status) = self.process.lock().ok()?.try_wait().ok()? {
                return Some(self.told(status));
            }
            sleep(Duration::from_millis(1)).await;
        }
        None
    }

    async fn ready(&self) -> Result<()> {
        let is_ready = || self.file("ready").exists();
        match self.end_within(LONGEST_START, is_ready).await {
            Some(end) => Err(failure(end)),
            None if is_ready() => Ok(()),
            None => Err(failure(format!("posencd is not ready after {LONGEST_START:?}: is the machine too busy?"))),
        }
    }

    /// Returns how the server ended, and the end of its log.
    fn told(&self, status: ExitStatus) -> String {
        let how = match (status.signal(), status.code()) {
            (Some(signal), _) => format!("posencd was killed by signal {signal}"),
            (None, code) => format!("posencd ended with code {}", code.unwrap_or_default()),
        };
        let log = fs::read(self.file("log")).unwrap_or_default();
        let said = String::from_utf8_lossy(&log[log.len().saturating_sub(2000)..]).trim().to_owned();
        let too_old =
            "; this system's C library is too old for it: use a newer system, or name another posencd by POSENCD";
        let remedy = if said.contains("GLIBC") { too_old } else { "" };
        if said.is_empty() { how } else { format!("{how}: {said}{remedy}") }
    }

    /// Returns a text that says how the server ended, or an empty text if it still runs after a short wait.
    pub(crate) async fn why_gone(&self) -> String {
        let end = self.end_within(LONGEST_DEATH, || false).await;
        end.map(|end| format!("; {end}; call posenc::local() again")).unwrap_or_default()
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        // No call of this client is running, so the server is killed without a drain.
        if let Ok(process) = self.process.get_mut() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Removes the folders of processes that were killed, and so frees the memory of their regions.
fn remove_leftovers(own: &Path) {
    let user = own.metadata().map(|about| about.uid()).ok();
    for entry in fs::read_dir(SHARED_MEMORY).into_iter().flatten().flatten() {
        let Ok(about) = entry.metadata() else { continue };
        let is_local = entry.file_name().to_string_lossy().starts_with(PREFIX) && about.is_dir();
        // A new folder may belong to a server that is starting.
        let is_old = about.modified().ok().and_then(|time| time.elapsed().ok()).is_some_and(|age| age > LONGEST_START);
        if !is_local || !is_old || user != Some(about.uid()) {
            continue;
        }
        let answer = UnixStream::connect(entry.path().join("socket"));
        if answer.is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_shared_memory_is_told_so() {
        let error = private_folder("/nonexistent").err().unwrap();
        assert!(error.message().contains("/nonexistent: No such file or directory"), "{error}");
        assert!(error.message().contains("mount a tmpfs"), "{error}");
    }
}
