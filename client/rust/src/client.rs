//! The client: one method for each RPC.

use crate::calls::Calls;
use crate::error::{Error, Result};
use crate::options::{CallOptions, Options};
use crate::rope::{Config, Rope};
use crate::shared::{RegionOptions, SharedRegion};
use crate::slot::{Heads, Input, Output, Slot};
use crate::table::Tiles;
use crate::v1::{self, Dtype, movement, positions};

/// A client of a target's server or servers.
/// It is cheap to copy: copies share the connections, and a client serves any number of tasks. A dropped call ends on
/// the server, too. Calls with [`v1`] messages take tensors in the messages; [`apply_rope`](Self::apply_rope) and
/// [`reposition`](Self::reposition) also take tensors in the caller's memory, which are sent without a copy of the
/// whole, and cut into chunks for a stream if they are too large for a message.
#[derive(Clone)]
pub struct Client {
    calls: Calls,
}

/// Makes a client of the server at `target`: `localhost:50051`, `dns:///posenc:50051`, `unix:/run/posenc`, optionally
/// after `http://` or `https://`. Never waits for the network: if no server answers, the first call fails.
pub async fn connect(target: impl AsRef<str>) -> Result<Client> {
    Client::new(target.as_ref(), Options::default())
}

/// Makes a client with options.
pub async fn connect_with(target: impl AsRef<str>, options: Options) -> Result<Client> {
    Client::new(target.as_ref(), options)
}

impl Client {
    /// Fails with INVALID_ARGUMENT if the target, TLS or the token cannot be used.
    pub fn new(target: &str, options: Options) -> Result<Self> {
        Ok(Self { calls: Calls::new(target, options)? })
    }

    /// Makes a client from the environment; see [`Options::from_env`].
    pub fn from_env() -> Result<Self> {
        let (target, options) = Options::from_env()?;
        Self::new(&target, options)
    }

    /// Returns a client with the same connections, and these options for every call.
    pub fn with(&self, options: CallOptions) -> Self {
        let mut calls = self.calls.clone();
        calls.options = options;
        Self { calls }
    }

    /// Resolves a model's rotary encoding once, for many calls.
    pub async fn rope(&self, config: impl Into<Config>) -> Result<Rope> {
        Rope::resolve(self.clone(), config.into()).await
    }

    /// Returns version, instruction set, limits and everything that the server knows by name.
    pub async fn get_server_info(&self) -> Result<v1::GetServerInfoResponse> {
        self.calls.unary("GetServerInfo", &v1::GetServerInfoRequest::default()).await
    }

    /// Makes memory of this many bytes that a server on this host maps, too: calls with its tensors do not carry their
    /// bytes. If the server shares no memory with this client, calls send the bytes.
    /// A call that replaces a tensor there is sent only once, without retries: after an error that says so, write the
    /// tensor again.
    pub async fn shared_region(&self, bytes: usize) -> Result<SharedRegion> {
        self.shared_region_with(bytes, RegionOptions::default()).await
    }

    /// Makes a region with options.
    pub async fn shared_region_with(&self, bytes: usize, options: RegionOptions) -> Result<SharedRegion> {
        SharedRegion::new(bytes, self.get_server_info().await?.shared_memory, options)
    }

    /// Turns a preset, a config.json or a specification into exact frequencies, and says what was assumed.
    pub async fn resolve_rope(&self, request: v1::ResolveRopeRequest) -> Result<v1::ResolveRopeResponse> {
        self.calls.unary("ResolveRope", &request).await
    }

    /// Returns wavelengths, long-term decay and similarity between positions.
    pub async fn analyze_rope(&self, request: v1::AnalyzeRopeRequest) -> Result<v1::AnalyzeRopeResponse> {
        self.calls.unary("AnalyzeRope", &request).await
    }

    /// Returns which descriptions of a checkpoint, and which of their readers, disagree, from which distance on, and
    /// which key fixes it.
    pub async fn diagnose_rope(&self, request: v1::DiagnoseRopeRequest) -> Result<v1::DiagnoseRopeResponse> {
        self.calls.unary("DiagnoseRope", &request).await
    }

    /// Builds position ids for batches that are packed, padded, split over devices, or mix text and images.
    pub async fn build_positions(&self, request: v1::BuildPositionsRequest) -> Result<v1::BuildPositionsResponse> {
        self.calls.unary("BuildPositions", &request).await
    }

    /// Builds rows of a table of any length: cosines and sines, or an absolute encoding. A table over a limit comes as
    /// a stream.
    pub async fn build_table(&self, request: v1::BuildTableRequest) -> Result<v1::BuildTableResponse> {
        self.build_table_into(request, []).await
    }

    /// Builds a table in the caller's memory: cos and sin, or the single table. The answer has their types and shapes.
    /// The server writes to outputs in a region if the request shows the table's size. For a preset or a configuration
    /// the table comes as bytes; [`rope`](Self::rope) resolves these.
    pub async fn build_table_into<'a>(
        &self,
        request: v1::BuildTableRequest,
        outputs: impl IntoIterator<Item = Output<'a>>,
    ) -> Result<v1::BuildTableResponse> {
        self.calls.build_table(request, outputs).await
    }

    /// Builds an attention bias for a range of queries and keys, as one tensor [heads, queries, keys].
    pub async fn build_bias(&self, request: v1::BuildBiasRequest) -> Result<v1::Tensor> {
        self.build_bias_tiles(request).await?.joined().await
    }

    /// Builds a bias tile by tile.
    pub async fn build_bias_tiles(&self, request: v1::BuildBiasRequest) -> Result<Tiles> {
        Tiles::of(&self.calls, &request).await
    }

    /// Rotates `q` and `k`, and tensors in the request itself, which come back in the answer.
    pub async fn apply_rope<Q: Heads, K: Heads>(
        &self,
        request: v1::ApplyRopeRequest,
        mut q: Q,
        mut k: K,
    ) -> Result<(Q::Output, K::Output, v1::ApplyRopeResponse)> {
        let (mut q_out, mut k_out) = (q.output(), k.output());
        let mut slots = Vec::new();
        add(&mut slots, q.slot(&mut q_out), (14, 7, "q"), &request.q)?;
        add(&mut slots, k.slot(&mut k_out), (15, 8, "k"), &request.k)?;
        let methods = ["ApplyRope", "ApplyRopeStream"];
        let response = self
            .calls
            .rotate(methods, &request, |request| ids(&mut request.positions).into_iter().collect(), &mut slots)
            .await?;
        Ok((q_out, k_out, response))
    }

    /// Moves rotated keys to other positions, or from one rotary encoding to another, in one rotation.
    pub async fn reposition<K: Heads>(
        &self,
        request: v1::RepositionRequest,
        mut k: K,
    ) -> Result<(K::Output, v1::RepositionResponse)> {
        let mut out = k.output();
        let mut slots = Vec::new();
        add(&mut slots, k.slot(&mut out), (15, 6, "k"), &request.k)?;
        let methods = ["Reposition", "RepositionStream"];
        let response = self.calls.rotate(methods, &request, moved_ids, &mut slots).await?;
        Ok((out, response))
    }

    /// Combines embeddings with an absolute encoding: `x`, or with `()` the request's own x, whose result comes back in
    /// the answer. A concatenation, which is larger than x, also comes back in the answer.
    pub async fn add_encoding<X: Heads>(
        &self,
        request: v1::AddEncodingRequest,
        mut x: X,
    ) -> Result<(X::Output, v1::AddEncodingResponse)> {
        let mut out = x.output();
        let mut slots = Vec::new();
        add(&mut slots, x.slot(&mut out), (15, 5, "x"), &request.x)?;
        if !slots.is_empty() && request.combination() == v1::Combination::Concatenate {
            let fact = "a concatenation is larger; leave x in the request, and it comes back in the answer";
            return Err(Error::invalid_field("x", fact));
        }
        let response = self.calls.tensors("AddEncoding", &request, &mut slots).await?;
        Ok((out, response))
    }

    /// Computes attention scores of encodings that act inside attention: q [B, H, Sq, D] and k [B, H, Sk, D] give [B,
    /// H, Sq, Sk], not divided by sqrt(D).
    pub async fn score_relative(&self, request: v1::ScoreRelativeRequest) -> Result<v1::ScoreRelativeResponse> {
        self.calls.unary("ScoreRelative", &request).await
    }

    /// Computes scores of tensors in the caller's memory.
    pub async fn score_relative_into<'a>(
        &self,
        request: v1::ScoreRelativeRequest,
        q: impl Into<Input<'a>>,
        k: impl Into<Input<'a>>,
        scores: impl Into<Output<'a>>,
    ) -> Result<v1::ScoreRelativeResponse> {
        let mut slots = Vec::new();
        add(&mut slots, Some(q.into().0), (14, 0, "q"), &request.q)?;
        add(&mut slots, Some(k.into().0), (15, 0, "k"), &request.k)?;
        let [q, k] = [&slots[0].tensor, &slots[1].tensor];
        let dtype = match request.dtype() {
            Dtype::Unspecified if q.dtype == Dtype::Float64 => Dtype::Float64,
            Dtype::Unspecified => Dtype::Float32,
            dtype => dtype,
        };
        let shape = match (&q.shape[..], &k.shape[..]) {
            (&[batch, heads, queries, _], &[_, _, keys, _]) => Some(vec![batch, heads, queries, keys]),
            _ => None,
        };
        let mut scores = scores.into().0.named(15, 5, "scores");
        scores.check_result(dtype, shape.as_deref())?;
        slots.push(scores);
        self.calls.tensors("ScoreRelative", &request, &mut slots).await
    }

    /// Reorders the rows of a projection's weight or bias, [heads * head_dim, ...], so that a checkpoint for one pairing
    /// works with the other. With `()` the request has the weight, and the answer has the result.
    pub async fn convert_pairing<W: Heads>(
        &self,
        request: v1::ConvertPairingRequest,
        mut weight: W,
    ) -> Result<(W::Output, v1::ConvertPairingResponse)> {
        let mut out = weight.output();
        let mut slots = Vec::new();
        add(&mut slots, weight.slot(&mut out), (15, 6, "weight"), &request.weight)?;
        let response = self.calls.tensors("ConvertPairing", &request, &mut slots).await?;
        Ok((out, response))
    }
}

/// Returns ids with one element for each token, whose bytes a stream may send apart.
fn ids(positions: &mut Option<v1::Positions>) -> Option<&mut v1::Tensor> {
    match positions.as_mut()?.kind.as_mut()? {
        positions::Kind::Ids(ids) => Some(ids),
        _ => None,
    }
}

fn moved_ids(request: &mut v1::RepositionRequest) -> Vec<&mut v1::Tensor> {
    let Some(movement) = &mut request.movement else { return Vec::new() };
    let target = match &mut movement.target {
        Some(movement::Target::Shifts(shifts)) => Some(shifts),
        Some(movement::Target::NewPositions(new)) => match &mut new.kind {
            Some(positions::Kind::Ids(ids)) => Some(ids),
            _ => None,
        },
        _ => None,
    };
    ids(&mut movement.old_positions).into_iter().chain(target).collect()
}

/// Adds an argument's slot. Fails if the request has the tensor, too: on the wire the two would become one.
fn add<'a>(
    slots: &mut Vec<Slot<'a>>,
    slot: Option<Slot<'a>>,
    (field, output_field, name): (u32, u32, &'static str),
    in_request: &Option<v1::Tensor>,
) -> Result<()> {
    if slot.is_some() && in_request.is_some() {
        return Err(Error::invalid_field(name, "is in the request and beside it; must be given once"));
    }
    slots.extend(slot.map(|slot| slot.named(field, output_field, name)));
    Ok(())
}
