//! posenc::local() starts a server for a client. After the client is dropped, no server, folder or memory is left.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Folder, numbers};
use posenc::{Bshd, Client, Code, Config, StartAt, view};

/// The name of the ignored test that another test runs in a process of its own.
const HOLDS: &str = "holds_a_server_until_it_is_killed";

fn folders() -> Vec<PathBuf> {
    let paths = fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.to_string_lossy().contains("posenc-local-")).collect()
}

/// Returns the ids of the processes that serve in a folder.
fn servers_at(folder: &Path) -> Vec<i32> {
    let flag = format!("--ready-file={}/ready", folder.display());
    let serves = |id: &i32| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default(); // the process may have ended
        line.split(|byte| *byte == 0).any(|argument| argument == flag.as_bytes())
    };
    let names = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).filter(serves).collect()
}

/// Starts a server. Returns the client and the server's folder: the new folder whose server is a child of this process.
async fn started(flags: &[&str]) -> (Client, PathBuf) {
    let before = folders();
    let client = posenc::local(flags).await.unwrap();
    let is_own = |server: &i32| {
        let status = fs::read_to_string(format!("/proc/{server}/status")).unwrap_or_default();
        status.lines().any(|line| line == format!("PPid:\t{}", std::process::id()))
    };
    let mut new = folders().into_iter().filter(|folder| !before.contains(folder));
    let folder = new.find(|folder| servers_at(folder).iter().any(is_own));
    (client, folder.expect("a folder with a server"))
}

async fn rotates(client: &Client) {
    let rope = client.rope(Config::preset("llama-3.1-8b")).await.unwrap();
    let q = numbers(2 * 128);
    let (out, ()) = rope.apply(Bshd, StartAt(0), view!(q, [1, 2, 1, 128]), ()).await.unwrap();
    // Heads at position 0 are not rotated; heads at later positions are.
    assert!(out[..128] == q[..128] && out[128..] != q[128..]);
}

fn make_old(folder: &Path) {
    let time = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    fs::File::open(folder).unwrap().set_times(time).unwrap();
}

#[tokio::test]
#[ignore = "the next test runs it in a process of its own"]
async fn holds_a_server_until_it_is_killed() {
    let (client, folder) = started(&[]).await;
    rotates(&client).await;
    println!("folder {}", folder.display());
    tokio::time::sleep(Duration::from_secs(60)).await;
}

/// Sets POSENCD to a program, and returns the text of the error of posenc::local().
async fn refused(program: Option<&str>, flags: &[&str]) -> String {
    let folder = Folder::new();
    let file = folder.0.join("posencd");
    if let Some(text) = program {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(if text.is_empty() { 0o644 } else { 0o755 })).unwrap();
    }
    // No other test of this process changes environment variables.
    unsafe { std::env::set_var("POSENCD", &file) };
    let error = posenc::local(flags).await.err().expect("an error");
    assert_eq!(error.code(), Code::Unavailable);
    error.message().to_owned()
}

/// This is one test, because environment variables belong to the whole process.
#[tokio::test]
async fn a_local_server_is_private_ends_with_its_client_and_names_what_is_wrong() {
    let posencd = std::env::var("POSENCD").expect("POSENCD: must name the server's binary");
    unsafe {
        std::env::set_var("POSENC_TOKEN_FILE", "/nonexistent"); // meant for other servers
        std::env::set_var("HOME", "/proc"); // nothing is written there
    }
    let (client, folder) = started(&["--threads=1", "--drain-timeout=2s"]).await;
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    rotates(&client).await;
    assert!(!client.shared_region(1 << 20).await.unwrap().name().is_empty());
    let (other, its_folder) = started(&[]).await;
    drop(client.clone());
    rotates(&client).await;
    drop(client);
    assert!(servers_at(&folder).is_empty() && !folder.exists());
    rotates(&other).await;

    // A process that is killed leaves no server. The next start removes the killed process's folder, but no folder that
    // is in use.
    let mut program = Command::new(std::env::current_exe().unwrap())
        .args([HOLDS, "--exact", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let line = lines.map_while(Result::ok).find_map(|line| Some(line.split_once("folder ")?.1.to_owned()));
    let left = PathBuf::from(line.expect("a folder"));
    assert_eq!(servers_at(&left).len(), 1);
    program.kill().unwrap();
    program.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !servers_at(&left).is_empty() {
        assert!(Instant::now() < deadline, "the server outlives its parent");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    make_old(&left);
    make_old(&its_folder);
    drop(started(&[]).await);
    assert!(!left.exists());
    rotates(&other).await;

    // If the server was killed, the error says so.
    let killed = Command::new("sh").args(["-c", &format!("kill -9 {}", servers_at(&its_folder)[0])]).status();
    assert!(killed.unwrap().success());
    let error = other.rope(Config::preset("llama-3.1-8b")).await.err().unwrap();
    let end = "posencd was killed by signal 9; call posenc::local() again";
    assert!(error.code() == Code::Unavailable && error.message().ends_with(end), "{error}");
    drop(other);

    let before = folders();
    let elf = format!("\x7fELF{}", "\0".repeat(60));
    let newer = "#!/bin/sh\necho \"libc.so.6: version 'GLIBC_2.99' not found\" >&2\nexit 1\n";
    for (program, texts) in [
        (None, ["No such file or directory", "; POSENCD must name the server's program"]),
        // A file system that is mounted noexec gives the same error.
        (Some(""), ["Permission denied", "it must be executable, on a file system that is not mounted noexec"]),
        (Some("#!/lib/ld-musl-x86_64.so.1\n"), ["No such file", "needs glibc, which musl"]),
        (Some(&*elf), ["Exec format error", "is it a program for this machine"]),
        (Some(newer), ["ended with code 1: libc.so.6: version 'GLIBC_2.99'", "this system's C library is too old"]),
        (Some("#!/bin/sh\nkill -9 $$\n"), ["posenc::local(): ", "was killed by signal 9"]),
    ] {
        let said = refused(program, &[]).await;
        assert!(texts.iter().all(|text| said.contains(text)), "{said}");
    }
    let said = refused(Some(&format!("#!/bin/sh\nexec {posencd} \"$@\"\n")), &["--threads=-1"]).await;
    assert!(said.contains("ended with code 2: ") && said.contains("--threads"), "{said}");
    unsafe {
        std::env::remove_var("POSENCD");
        std::env::set_var("PATH", "");
    }
    let error = posenc::local(&[]).await.err().unwrap();
    assert!(error.message().contains("there is no posencd: pip install posenc-server=="), "{error}");
    // The failed starts left no folder. A start may remove folders that killed processes left, so
    // `before` may have more.
    assert!(folders().iter().all(|folder| before.contains(folder)));
}
