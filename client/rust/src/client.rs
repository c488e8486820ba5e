//! The client: one method for each RPC.

use crate::calls::{Calls, decode};
use crate::error::{Error, Result};
use crate::options::{CallOptions, Options};
use crate::rope::{Config, Rope};
use crate::shared::{RegionOptions, SharedRegion};
use crate::slot::{Heads, Input, Output, Slot};
use crate::table::{Tiles, table_slots};
use crate::v1::{self, Dtype};

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
        self.calls.unary("GetServerInfo", &v1::GetServerInfoRequest::default(), 0).await
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
        self.calls.unary("ResolveRope", &request, 0).await
    }

    /// Returns wavelengths, long-term decay and similarity between positions.
    pub async fn analyze_rope(&self, request: v1::AnalyzeRopeRequest) -> Result<v1::AnalyzeRopeResponse> {
        self.calls.unary("AnalyzeRope", &request, 0).await
    }

    /// Returns which descriptions of a checkpoint, and which of their readers, disagree, from which distance on, and
    /// which key fixes it.
    pub async fn diagnose_rope(&self, request: v1::DiagnoseRopeRequest) -> Result<v1::DiagnoseRopeResponse> {
        self.calls.unary("DiagnoseRope", &request, 0).await
    }

    /// Builds position ids for batches that are packed, padded, split over devices, or mix text and images.
    pub async fn build_positions(&self, request: v1::BuildPositionsRequest) -> Result<v1::BuildPositionsResponse> {
        self.calls.unary("BuildPositions", &request, 0).await
    }

    /// Builds rows of a table of any length: cosines and sines, or an absolute encoding. A table over a limit comes as
    /// a stream.
    pub async fn build_table(&self, request: v1::BuildTableRequest) -> Result<v1::BuildTableResponse> {
        self.calls.build_table(request, &mut []).await
    }

    /// Builds a table in the caller's memory: cos and sin, or the single table. The answer has their types and shapes.
    /// The server writes to outputs in a region if the request shows the table's size. For a preset or a configuration
    /// the table comes as bytes; [`rope`](Self::rope) resolves these.
    pub async fn build_table_into<'a>(
        &self,
        request: v1::BuildTableRequest,
        outputs: impl IntoIterator<Item = Output<'a>>,
    ) -> Result<v1::BuildTableResponse> {
        let mut slots = table_slots(&request, outputs)?;
        self.calls.build_table(request, &mut slots).await
    }

    /// Builds an attention bias for a range of queries and keys, as one tensor [heads, queries, keys].
    pub async fn build_bias(&self, request: v1::BuildBiasRequest) -> Result<v1::Tensor> {
        self.calls.build_bias(&request).await
    }

    /// Builds a bias tile by tile.
    pub async fn build_bias_tiles(&self, request: v1::BuildBiasRequest) -> Result<Tiles> {
        Ok(Tiles(self.calls.receive("BuildBias", &request).await?))
    }

    /// Rotates `q` and `k`, and tensors in the request itself, which come back in the answer.
    pub async fn apply_rope<Q: Heads, K: Heads>(
        &self,
        request: v1::ApplyRopeRequest,
        mut q: Q,
        mut k: K,
    ) -> Result<(Q::Output, K::Output, v1::ApplyRopeResponse)> {
        let (mut q_memory, mut k_memory) = (q.memory(), k.memory());
        let q_slot = q.slot(&mut q_memory).map(|slot| slot.named(14, "q"));
        let k_slot = k.slot(&mut k_memory).map(|slot| slot.named(15, "k"));
        given_once("q", q_slot.is_some(), &request.q)?;
        given_once("k", k_slot.is_some(), &request.k)?;
        let mut slots: Vec<Slot<'_>> = q_slot.into_iter().chain(k_slot).collect();
        let response = self.calls.rotate(&request, &mut slots).await?;
        drop(slots);
        Ok((q.output(q_memory), k.output(k_memory), response))
    }

    /// Moves rotated keys to other positions, or from one rotary encoding to another, in one rotation.
    pub async fn reposition<K: Heads>(
        &self,
        request: v1::RepositionRequest,
        mut k: K,
    ) -> Result<(K::Output, v1::RepositionResponse)> {
        let mut memory = k.memory();
        let mut slots: Vec<Slot<'_>> = k.slot(&mut memory).map(|slot| slot.named(15, "k")).into_iter().collect();
        given_once("k", !slots.is_empty(), &request.k)?;
        let response = self.calls.rotate(&request, &mut slots).await?;
        drop(slots);
        Ok((k.output(memory), response))
    }

    /// Combines embeddings with an absolute encoding: `x`, or with `()` the request's own x, whose result comes back in
    /// the answer. A concatenation, which is larger than x, also comes back in the answer.
    pub async fn add_encoding<X: Heads>(
        &self,
        request: v1::AddEncodingRequest,
        mut x: X,
    ) -> Result<(X::Output, v1::AddEncodingResponse)> {
        let mut memory = x.memory();
        let slot = x.slot(&mut memory).map(|slot| slot.named(15, "x"));
        given_once("x", slot.is_some(), &request.x)?;
        if slot.is_some() && request.combination() == v1::Combination::Concatenate {
            let fact = "a concatenation is larger; leave x in the request, and it comes back in the answer";
            return Err(Error::invalid_field("x", fact));
        }
        let mut slots: Vec<Slot<'_>> = slot.into_iter().collect();
        let response = decode(self.calls.tensors("AddEncoding", &request, &mut slots).await?)?;
        drop(slots);
        Ok((x.output(memory), response))
    }

    /// Computes attention scores of encodings that act inside attention: q [B, H, Sq, D] and k [B, H, Sk, D] give [B,
    /// H, Sq, Sk], not divided by sqrt(D).
    pub async fn score_relative(&self, request: v1::ScoreRelativeRequest) -> Result<v1::ScoreRelativeResponse> {
        self.calls.unary("ScoreRelative", &request, 0).await
    }

    /// Computes scores of tensors in the caller's memory.
    pub async fn score_relative_into<'a>(
        &self,
        request: v1::ScoreRelativeRequest,
        q: impl Into<Input<'a>>,
        k: impl Into<Input<'a>>,
        scores: impl Into<Output<'a>>,
    ) -> Result<v1::ScoreRelativeResponse> {
        given_once("q", true, &request.q)?;
        given_once("k", true, &request.k)?;
        let (q, k) = (q.into().0.named(14, "q"), k.into().0.named(15, "k"));
        let mut scores = Output(scores.into().0.named(15, "scores"));
        let dtype = match request.dtype() {
            Dtype::Unspecified if q.dtype == Dtype::Float64 => Dtype::Float64,
            Dtype::Unspecified => Dtype::Float32,
            dtype => dtype,
        };
        scores.check(dtype, score_shape(&q.shape, &k.shape))?;
        decode(self.calls.tensors("ScoreRelative", &request, &mut [q, k, scores.0]).await?)
    }

    /// Reorders the rows of a projection's weight or bias, [heads * head_dim, ...], so that a checkpoint for one pairing
    /// works with the other. With `()` the request has the weight, and the answer has the result.
    pub async fn convert_pairing<W: Heads>(
        &self,
        request: v1::ConvertPairingRequest,
        mut weight: W,
    ) -> Result<(W::Output, v1::ConvertPairingResponse)> {
        let mut memory = weight.memory();
        let slot = weight.slot(&mut memory).map(|slot| slot.named(15, "weight"));
        given_once("weight", slot.is_some(), &request.weight)?;
        let mut slots: Vec<Slot<'_>> = slot.into_iter().collect();
        let response = decode(self.calls.tensors("ConvertPairing", &request, &mut slots).await?)?;
        drop(slots);
        Ok((weight.output(memory), response))
    }
}

/// Returns the shape [B, H, Sq, Sk], or `None` for other shapes.
fn score_shape(q: &[i64], k: &[i64]) -> Option<[i64; 4]> {
    let (&[batch, heads, queries, _], &[_, _, keys, _]) = (q, k) else { return None };
    Some([batch, heads, queries, keys])
}

/// Fails if a tensor is both an argument and in the request: on the wire the two would become one.
fn given_once(field: &str, beside: bool, in_request: &Option<v1::Tensor>) -> Result<()> {
    if beside && in_request.is_some() {
        return Err(Error::invalid_field(field, "is in the request and beside it; must be given once"));
    }
    Ok(())
}
