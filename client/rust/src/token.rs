//! The bearer token of calls.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::error::{Error, Result};
use crate::options::Options;

/// Shortest time between two checks of a token's file.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) struct Bearer {
    path: Option<PathBuf>,
    state: Mutex<State>,
}

struct State {
    header: String,
    looked: Instant,
    changed: Option<SystemTime>,
}

impl Bearer {
    /// Returns `None` if the options name no token.
    pub fn of(options: &Options) -> Result<Option<Self>> {
        let token = match (&options.token, &options.token_file) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => return Err(Error::invalid_field("token_file", "excludes token")),
            (Some(token), None) => check("token", "", token)?,
            (None, Some(path)) => read(path)?,
        };
        let changed = options.token_file.as_deref().and_then(changed);
        let state = State { header: format!("Bearer {token}"), looked: Instant::now(), changed };
        Ok(Some(Self { path: options.token_file.clone(), state: Mutex::new(state) }))
    }

    /// Returns the value of `authorization`. The old token stays in use while a file cannot be read.
    pub fn header(&self) -> String {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = self.path.as_deref().filter(|_| state.looked.elapsed() >= LOOK) {
            state.looked = Instant::now();
            let now = changed(path);
            if now != state.changed {
                state.changed = now;
                if let Ok(token) = read(path) {
                    state.header = format!("Bearer {token}");
                }
            }
        }
        state.header.clone()
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|file| file.modified()).ok()
}

fn read(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::invalid_field("token_file", format!("{}: {error}", path.display())))?;
    check("token_file", &format!("{}: ", path.display()), &text)
}

/// Checks a token's text; `place` is its source, for errors.
fn check(option: &str, place: &str, text: &str) -> Result<String> {
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::invalid_field(option, format!("{place}must hold one token, of visible characters")));
    }
    Ok(token.to_owned())
}
