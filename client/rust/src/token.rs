//! The bearer token of calls.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http::HeaderValue;
use tokio::sync::Mutex;

use crate::error::{Error, Result};
use crate::options::Options;

/// The minimum time between two readings of a token's file.
const READ_AGAIN: Duration = Duration::from_secs(1);

pub(crate) struct Bearer {
    path: Option<PathBuf>,
    /// The value of the header `authorization`, and when it was read.
    header: Mutex<(HeaderValue, Instant)>,
}

impl Bearer {
    /// Returns `None` if the options name no token.
    pub fn of(options: &Options) -> Result<Option<Self>> {
        let header = match (&options.token, &options.token_file) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => return Err(Error::invalid_field("token_file", "excludes token")),
            (Some(token), None) => header("token", token)?,
            (None, Some(path)) => read(path)?,
        };
        Ok(Some(Self { path: options.token_file.clone(), header: Mutex::new((header, Instant::now())) }))
    }

    /// Returns the value of the header `authorization`. While the file cannot be read, the old token is used.
    pub async fn header(&self) -> HeaderValue {
        let mut last = self.header.lock().await;
        if let Some(path) = self.path.as_deref().filter(|_| last.1.elapsed() >= READ_AGAIN) {
            let header = read(path).unwrap_or_else(|_| last.0.clone());
            *last = (header, Instant::now());
        }
        last.0.clone()
    }
}

fn read(path: &Path) -> Result<HeaderValue> {
    let text = std::fs::read_to_string(path);
    let wrong = |error| Error::invalid_field("token_file", format!("{}: {error}", path.display()));
    header("token_file", &text.map_err(wrong)?)
}

fn header(option: &str, text: &str) -> Result<HeaderValue> {
    let token = text.trim();
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let header = HeaderValue::try_from(format!("Bearer {token}")).ok().filter(|_| is_token);
    let mut header =
        header.ok_or_else(|| Error::invalid_field(option, "must hold one token, of visible characters"))?;
    header.set_sensitive(true);
    Ok(header)
}
