//! One method for each RPC.

use crate::client::Client;
use crate::error::{Error, Result};
use crate::shared::{RegionOptions, SharedRegion};
use crate::slot::{Field, Heads, Slot};
use crate::table::{Tiles, joined};
use crate::tensor::bytes_of;
use crate::v1::{self, Dtype, movement, positions};

impl Client {
    /// Returns version, instruction set, limits, presets and dtypes of the server.
    pub async fn get_server_info(&self) -> Result<v1::GetServerInfoResponse> {
        self.unary("GetServerInfo", &v1::GetServerInfoRequest::default(), &mut []).await
    }

    /// Makes a region: memory of `bytes` bytes that a server on this host also maps. Calls send only the places of
    /// tensors in the region. If the server shares no memory with this client, calls send the bytes. A call that
    /// replaces a tensor in the region is sent only once, without retries. If the text of an error says that a tensor
    /// may have been rotated, write the tensor again.
    pub async fn shared_region(&self, bytes: usize) -> Result<SharedRegion> {
        self.shared_region_with(bytes, RegionOptions::default()).await
    }

    /// Makes a region with options.
    pub async fn shared_region_with(&self, bytes: usize, options: RegionOptions) -> Result<SharedRegion> {
        SharedRegion::new(bytes, self.get_server_info().await?.shared_memory, options)
    }

    /// Converts a preset, a config.json or a specification to exact frequencies, and lists the assumptions.
    pub async fn resolve_rope(&self, request: v1::ResolveRopeRequest) -> Result<v1::ResolveRopeResponse> {
        self.unary("ResolveRope", &request, &mut []).await
    }

    /// Returns wavelengths, long-term decay and similarity between positions.
    pub async fn analyze_rope(&self, request: v1::AnalyzeRopeRequest) -> Result<v1::AnalyzeRopeResponse> {
        self.unary("AnalyzeRope", &request, &mut []).await
    }

    /// Returns which descriptions of a checkpoint disagree, and which readers read a description differently. Also
    /// returns the distance from which they disagree, and the key that fixes the disagreement.
    pub async fn diagnose_rope(&self, request: v1::DiagnoseRopeRequest) -> Result<v1::DiagnoseRopeResponse> {
        self.unary("DiagnoseRope", &request, &mut []).await
    }

    /// Builds position ids for batches that are packed, padded or split over devices, or that mix text and images.
    pub async fn build_positions(&self, request: v1::BuildPositionsRequest) -> Result<v1::BuildPositionsResponse> {
        self.unary("BuildPositions", &request, &mut []).await
    }

    /// Builds rows of a table of any length: cosines and sines, or an absolute encoding. A table over a limit comes as
    /// a stream.
    pub async fn build_table(&self, request: v1::BuildTableRequest) -> Result<v1::BuildTableResponse> {
        self.build_table_into(request, []).await
    }

    /// Builds an attention bias for a range of queries and keys, as one tensor [heads, queries, keys].
    pub async fn build_bias(&self, request: v1::BuildBiasRequest) -> Result<v1::Tensor> {
        let start = [request.query_start, request.key_start];
        joined(self.build_bias_tiles(request).await?, start).await
    }

    /// Builds a bias tile by tile.
    pub async fn build_bias_tiles(&self, request: v1::BuildBiasRequest) -> Result<Tiles> {
        self.answers("BuildBias", &request).await
    }

    /// Rotates `q` and `k`. Tensors in the request are also rotated; their results are in the answer.
    pub async fn apply_rope<Q: Heads, K: Heads>(
        &self,
        request: v1::ApplyRopeRequest,
        mut q: Q,
        mut k: K,
    ) -> Result<(Q::Output, K::Output, v1::ApplyRopeResponse)> {
        let (mut q_out, mut k_out) = (q.output(), k.output());
        let mut slots = slots((14, 7, "q"), &request.q, q.slot(&mut q_out))?;
        slots.extend(self::slots((15, 8, "k"), &request.k, k.slot(&mut k_out))?);
        let methods = ["ApplyRope", "ApplyRopeStream"];
        let response =
            self.rotate(methods, request, |r| ids(r.positions.as_mut()).into_iter().collect(), slots).await?;
        Ok((q_out, k_out, response))
    }

    /// Moves rotated keys to other positions, or from one rotary encoding to another, in one rotation.
    pub async fn reposition<K: Heads>(
        &self,
        request: v1::RepositionRequest,
        mut k: K,
    ) -> Result<(K::Output, v1::RepositionResponse)> {
        let mut out = k.output();
        let slots = slots((15, 6, "k"), &request.k, k.slot(&mut out))?;
        let response = self.rotate(["Reposition", "RepositionStream"], request, moved_ids, slots).await?;
        Ok((out, response))
    }

    /// Combines the embeddings `x` with an absolute encoding. If `x` is `()`, the request contains x, and the answer
    /// contains the result. A concatenation needs this form, because its result is larger than x.
    pub async fn add_encoding<X: Heads>(
        &self,
        request: v1::AddEncodingRequest,
        mut x: X,
    ) -> Result<(X::Output, v1::AddEncodingResponse)> {
        let mut out = x.output();
        let mut slots = slots((15, 5, "x"), &request.x, x.slot(&mut out))?;
        if !slots.is_empty() && request.combination() == v1::Combination::Concatenate {
            let fact = "a concatenation is larger; leave x in the request, and it comes back in the answer";
            return Err(Error::invalid_field("x", fact));
        }
        let response = self.unary("AddEncoding", &request, &mut slots).await?;
        Ok((out, response))
    }

    /// Computes the attention scores [B, H, Sq, Sk] of an encoding that acts inside attention, from q [B, H, Sq, D] and
    /// k [B, H, Sk, D]. The scores are not divided by sqrt(D).
    pub async fn score_relative(&self, request: v1::ScoreRelativeRequest) -> Result<v1::ScoreRelativeResponse> {
        self.unary("ScoreRelative", &request, &mut []).await
    }

    /// Computes the scores of q and k in the caller's memory, and writes them to `scores`.
    pub async fn score_relative_into<'a>(
        &self,
        request: v1::ScoreRelativeRequest,
        q: impl Into<Slot<'a>>,
        k: impl Into<Slot<'a>>,
        scores: impl Into<Slot<'a>>,
    ) -> Result<v1::ScoreRelativeResponse> {
        let mut slots = slots((14, 0, "q"), &request.q, Some(q.into()))?;
        slots.extend(self::slots((15, 0, "k"), &request.k, Some(k.into()))?);
        let scores = scores.into().of_result((15, 5, "scores"));
        // The server writes all scores, even if the place in shared memory is smaller. So the client checks the size.
        // If q or k does not have four axes, the server refuses the request.
        if let [&[batch, heads, queries, _], &[.., keys, _]] = [0, 1].map(|index| &slots[index].shape[..]) {
            let dtype = match request.dtype() {
                Dtype::Unspecified if slots[0].dtype == Dtype::Float64 => Dtype::Float64,
                Dtype::Unspecified => Dtype::Float32,
                dtype => dtype,
            };
            let bytes = bytes_of(dtype, &[batch, heads, queries, keys]).unwrap_or(usize::MAX);
            scores.check_result(dtype, bytes)?;
        }
        slots.push(scores);
        self.unary("ScoreRelative", &request, &mut slots).await
    }

    /// Reorders the rows of a projection's weight or bias, [heads * head_dim, ...], so that a checkpoint for one
    /// pairing works with the other. If `weight` is `()`, the request contains the weight, and the answer contains the
    /// result.
    pub async fn convert_pairing<W: Heads>(
        &self,
        request: v1::ConvertPairingRequest,
        mut weight: W,
    ) -> Result<(W::Output, v1::ConvertPairingResponse)> {
        let mut out = weight.output();
        let mut slots = slots((15, 6, "weight"), &request.weight, weight.slot(&mut out))?;
        let response = self.unary("ConvertPairing", &request, &mut slots).await?;
        Ok((out, response))
    }
}

/// Returns the tensor of position ids, which a stream may send as bytes.
fn ids(positions: Option<&mut v1::Positions>) -> Option<&mut v1::Tensor> {
    match positions?.kind.as_mut()? {
        positions::Kind::Ids(ids) => Some(ids),
        _ => None,
    }
}

fn moved_ids(request: &mut v1::RepositionRequest) -> Vec<&mut v1::Tensor> {
    let Some(movement) = &mut request.movement else { return Vec::new() };
    let target = match &mut movement.target {
        Some(movement::Target::Shifts(shifts)) => Some(shifts),
        Some(movement::Target::NewPositions(new)) => ids(Some(new)),
        _ => None,
    };
    ids(movement.old_positions.as_mut()).into_iter().chain(target).collect()
}

/// Returns the slot of an argument, or nothing if the argument is `()`. Fails if the request contains the tensor, too,
/// because the server would merge the two tensors.
fn slots<'a>(field: Field, in_request: &Option<v1::Tensor>, slot: Option<Slot<'a>>) -> Result<Vec<Slot<'a>>> {
    match (slot, in_request) {
        (Some(_), Some(_)) => Err(Error::invalid_field(field.2, "is in the request and beside it; must be given once")),
        (slot, _) => Ok(slot.map(|slot| slot.named(field)).into_iter().collect()),
    }
}
