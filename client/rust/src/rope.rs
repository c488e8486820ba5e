//! A model's rotary encoding: its source, and the calls with the resolved encoding.

use std::path::{Path, PathBuf};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::slot::{Heads, Slot};
use crate::v1::{self, movement, positions, rope_source};

/// The source of a rotary encoding: a preset, a model's config.json, or a specification.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file is read when the encoding is resolved.
    file: Option<PathBuf>,
    /// The source in the form of requests. Its fields select the part of the model (text, vision, audio, indexer), the
    /// layer, the length, and the project whose interpretation applies.
    pub source: v1::RopeSource,
}

impl Config {
    /// Reads a config.json of Hugging Face, or Mistral's params.json, on this machine.
    pub fn file(path: impl AsRef<Path>) -> Self {
        Self { file: Some(path.as_ref().to_owned()), source: v1::RopeSource::default() }
    }

    /// Uses the text of a config.json or params.json.
    pub fn json(text: impl Into<String>) -> Self {
        Self { file: None, source: rope_source::Source::ConfigJson(text.into()).into() }
    }

    /// Uses a preset that the server knows, such as `llama-3.1-8b`.
    pub fn preset(name: impl Into<String>) -> Self {
        Self { file: None, source: rope_source::Source::Preset(name.into()).into() }
    }

    /// Uses a specification. An unset `rotary_dim` is `head_dim`.
    pub fn spec(spec: v1::RopeSpec) -> Self {
        Self { file: None, source: spec.into() }
    }

    /// Sets the width of the widest heads in calls. Required if the source does not contain head_dim, or if these heads
    /// are wider than the model's heads (for example if a head holds keys and values, or a latent row).
    pub fn head_dim(mut self, head_dim: i32) -> Self {
        self.source.head_dim = head_dim;
        self
    }

    /// Returns the source for requests. Fails with INVALID_ARGUMENT if a file cannot be read.
    pub async fn to_source(&self) -> Result<v1::RopeSource> {
        let mut rope = self.source.clone();
        if let Some(path) = &self.file {
            let wrong = |error| Error::invalid_field("config.json", format!("{}: {error}", path.display()));
            let text = tokio::fs::read_to_string(path).await.map_err(wrong)?;
            rope.source = Some(rope_source::Source::ConfigJson(text));
        }
        Ok(rope)
    }
}

impl From<rope_source::Source> for v1::RopeSource {
    fn from(source: rope_source::Source) -> Self {
        Self { source: Some(source), ..Self::default() }
    }
}

impl From<v1::RopeSpec> for v1::RopeSource {
    fn from(spec: v1::RopeSpec) -> Self {
        rope_source::Source::Spec(spec).into()
    }
}

/// The position of the first token of every sequence. Token t has this position + t.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StartAt(pub i64);

impl From<StartAt> for v1::Positions {
    fn from(start: StartAt) -> Self {
        Self { kind: Some(positions::Kind::Start(start.0)) }
    }
}

/// A tensor has a position for each token: `[S]` or `[B, S]`. With several position axes, the first dimension counts
/// the axes: `[axes, S]`.
impl From<v1::Tensor> for v1::Positions {
    fn from(ids: v1::Tensor) -> Self {
        Self { kind: Some(positions::Kind::Ids(ids)) }
    }
}

/// The number that is added to every position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShiftBy(pub i64);

impl From<ShiftBy> for v1::Movement {
    fn from(shift: ShiftBy) -> Self {
        Self { old_positions: None, target: Some(movement::Target::Shift(shift.0)) }
    }
}

/// A movement from old positions, the first field, to new positions, the second field.
#[derive(Clone, Debug, PartialEq)]
pub struct Between<A, B>(pub A, pub B);

impl<A: Into<v1::Positions>, B: Into<v1::Positions>> From<Between<A, B>> for v1::Movement {
    fn from(Between(old, new): Between<A, B>) -> Self {
        Self { old_positions: Some(old.into()), target: Some(movement::Target::NewPositions(new.into())) }
    }
}

impl Client {
    /// Resolves a model's rotary encoding once, for many calls.
    pub async fn rope(&self, config: Config) -> Result<Rope> {
        let source = config.to_source().await?;
        let sequence_length = source.sequence_length;
        let request = v1::ResolveRopeRequest { rope: Some(source), ..Default::default() };
        let (client, resolved) = (self.clone(), self.resolve_rope(request).await?);
        let (saturation, block_format) = Default::default();
        Ok(Rope { client, resolved, sequence_length, saturation, block_format })
    }
}

/// A rotary encoding that the server has resolved. All defaults are filled in, and later calls parse no configuration.
#[derive(Clone)]
pub struct Rope {
    client: Client,
    resolved: v1::ResolveRopeResponse,
    sequence_length: Option<i64>,
    saturation: v1::Saturation,
    block_format: v1::BlockFormat,
}

impl Rope {
    /// Returns frequencies, attention factor, assumptions, warnings.
    pub fn resolved(&self) -> &v1::ResolveRopeResponse {
        &self.resolved
    }

    /// Returns the complete specification, which calls send.
    pub fn spec(&self) -> v1::RopeSpec {
        self.resolved.spec.clone().unwrap_or_default()
    }

    /// Sets what happens to results that are larger than the largest number of a type of 8 bits. FP8 and `i8` tensors,
    /// except blocks, require this setting.
    pub fn saturation(mut self, saturation: v1::Saturation) -> Self {
        self.saturation = saturation;
        self
    }

    /// Sets the format of the blocks whose bytes are the keys of [`reposition`](Self::reposition), as `i8`. The last
    /// dimension then counts bytes.
    pub fn block_format(mut self, block_format: v1::BlockFormat) -> Self {
        self.block_format = block_format;
        self
    }

    fn source(&self) -> v1::RopeSource {
        let (sequence_length, head_dim) = (self.sequence_length, self.resolved.head_dim);
        v1::RopeSource { sequence_length, head_dim, ..self.spec().into() }
    }

    /// Rotates q, k or both (`()` means no tensor). The kind of a tensor determines the memory of its result: see
    /// [`Heads`].
    pub async fn apply<Q: Heads, K: Heads>(
        &self,
        layout: v1::Layout,
        positions: impl Into<v1::Positions>,
        q: Q,
        k: K,
    ) -> Result<(Q::Output, K::Output)> {
        let request = v1::ApplyRopeRequest {
            rope: Some(self.source()),
            positions: Some(positions.into()),
            layout: layout.into(),
            saturation: self.saturation.into(),
            ..Default::default()
        };
        let (q, k, _) = self.client.apply_rope(request, q, k).await?;
        Ok((q, k))
    }

    /// Moves rotated keys to other positions. `movement` is [`ShiftBy`], [`Between`], or a [`v1::Movement`].
    pub async fn reposition<K: Heads>(
        &self,
        layout: v1::Layout,
        movement: impl Into<v1::Movement>,
        k: K,
    ) -> Result<K::Output> {
        let request = v1::RepositionRequest {
            old_rope: Some(self.source()),
            movement: Some(movement.into()),
            layout: layout.into(),
            saturation: self.saturation.into(),
            block_format: self.block_format.into(),
            ..Default::default()
        };
        Ok(self.client.reposition(request, k).await?.0)
    }

    /// Builds cosines and sines of positions 0 to `rows` - 1, [rows, rotary_dim / 2] each, in float32.
    pub async fn table(&self, rows: i64) -> Result<(Vec<f32>, Vec<f32>)> {
        let table = self.client.build_table(self.rows(rows)).await?;
        Ok((table.cos.unwrap_or_default().to_vec()?, table.sin.unwrap_or_default().to_vec()?))
    }

    /// Builds the same table in the caller's memory. `cos` and `sin` may be tensors of a region.
    pub async fn table_into<'a>(&self, rows: i64, cos: impl Into<Slot<'a>>, sin: impl Into<Slot<'a>>) -> Result<()> {
        self.client.build_table_into(self.rows(rows), [cos.into(), sin.into()]).await.map(drop)
    }

    fn rows(&self, rows: i64) -> v1::BuildTableRequest {
        v1::BuildTableRequest {
            encoding: Some(v1::build_table_request::Encoding::Rope(self.source())),
            positions: Some(StartAt(0).into()),
            rows,
            ..Default::default()
        }
    }
}
