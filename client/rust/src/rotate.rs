//! ApplyRope and Reposition, in one message, or, if the tensors are too large, in chunks through a stream.

use prost::Message;

use crate::calls::{Calls, MESSAGE_OVERHEAD, Planned, decode};
use crate::cut::{Places, cut_tensor};
use crate::error::{Error, Result};
use crate::message::{Outgoing, Shaped};
use crate::sharing::Shares;
use crate::slot::Slot;
use crate::v1;

/// The common part of both. Requests and messages of streams have the same fields.
pub(crate) trait Rotation: Shares + Clone + Default + 'static {
    const METHOD: &'static str;
    const STREAM: &'static str;
    type Response: Message + Default;
    type Places: Places;
    fn layout(&self) -> v1::Layout;
    fn rope(&self) -> Option<&v1::RopeSource>;
    fn places(&self) -> &Self::Places;
    fn set_places(&mut self, places: Self::Places);
}

impl Rotation for v1::ApplyRopeRequest {
    const METHOD: &'static str = "ApplyRope";
    const STREAM: &'static str = "ApplyRopeStream";
    type Response = v1::ApplyRopeResponse;
    type Places = Option<v1::Positions>;
    fn layout(&self) -> v1::Layout {
        Self::layout(self)
    }
    fn rope(&self) -> Option<&v1::RopeSource> {
        self.rope.as_ref()
    }
    fn places(&self) -> &Self::Places {
        &self.positions
    }
    fn set_places(&mut self, places: Self::Places) {
        self.positions = places;
    }
}

impl Rotation for v1::RepositionRequest {
    const METHOD: &'static str = "Reposition";
    const STREAM: &'static str = "RepositionStream";
    type Response = v1::RepositionResponse;
    type Places = Option<v1::Movement>;
    fn layout(&self) -> v1::Layout {
        Self::layout(self)
    }
    fn rope(&self) -> Option<&v1::RopeSource> {
        self.old_rope.as_ref()
    }
    fn places(&self) -> &Self::Places {
        &self.movement
    }
    fn set_places(&mut self, places: Self::Places) {
        self.movement = places;
    }
}

fn spec(rope: Option<&v1::RopeSource>) -> Option<&v1::RopeSpec> {
    match rope?.source.as_ref()? {
        v1::rope_source::Source::Spec(spec) => Some(spec),
        _ => None,
    }
}

fn explicit(spec: &v1::RopeSpec) -> Option<&v1::ExplicitFrequencies> {
    match spec.scaling.as_ref()? {
        v1::rope_spec::Scaling::ExplicitFrequencies(frequencies) => Some(frequencies),
        _ => None,
    }
}

impl Calls {
    /// Rotates the slots; results go to the slots' memory. Tensors in the request's own fields come back in the answer.
    pub async fn rotate<R: Rotation>(&self, request: &R, slots: &mut [Slot<'_>]) -> Result<R::Response> {
        self.until_timeout().rotate_in_time(request, slots).await
    }

    async fn rotate_in_time<R: Rotation>(&self, request: &R, slots: &mut [Slot<'_>]) -> Result<R::Response> {
        slots.iter().try_for_each(Slot::check_output)?;
        if let Some(response) = self.by_place(R::METHOD, request, slots).await? {
            return decode(response);
        }
        let message = Planned::whole(request, slots);
        let bytes = message.outgoing.message_bytes;
        let can_cut = slots.iter().any(|slot| !slot.from().is_empty());
        if can_cut && bytes > self.stream_above_bytes() {
            match self.rotate_in_chunks(request, slots).await {
                // Nothing was sent. In one message the server sees the misfit, and reports it with a reason.
                Err(error) if error.is_own_finding() && bytes <= self.max_message_bytes() => {}
                result => return result.map(|()| R::Response::default()),
            }
        }
        let expected: usize = slots.iter().map(|slot| slot.from().len()).sum();
        let result = self.unary_with(R::METHOD, &message, slots, expected).await;
        // The server's limit may be lower than ours. A message no larger than a chunk would only be refused again. If
        // the server does not tell the size of chunks, the first error says more.
        match result {
            Err(error) if can_cut && error.is_too_large() => match self.chunk_bytes().await {
                Ok(chunk) if bytes > chunk => {}
                _ => return Err(error),
            },
            result => return decode(result?),
        }
        self.rotate_in_chunks(request, slots).await?;
        Ok(R::Response::default())
    }

    /// Cuts each tensor separately and in order: q and k may have different numbers of heads, so equal amounts of
    /// memory hold different tokens.
    pub async fn rotate_in_chunks<R: Rotation>(&self, request: &R, slots: &mut [Slot<'_>]) -> Result<()> {
        slots.iter().try_for_each(Slot::check_output)?;
        let layout = request.layout();
        let whole_heads = spec(request.rope()).and_then(explicit).is_some_and(|frequencies| frequencies.heads > 0);
        let chunk_bytes = self.chunk_bytes().await?;
        let mut cuts = Vec::new();
        for slot in slots.iter().filter(|slot| !slot.from().is_empty()) {
            cuts.push(cut_tensor(slot, layout, whole_heads, chunk_bytes)?);
        }
        let need_axes = cuts.iter().any(|(extents, _)| request.places().need_axes(layout, *extents));
        let several_axes = need_axes && self.has_several_axes(request.rope()).await?;

        let mut messages = Vec::new();
        let with_bytes = slots.iter().enumerate().filter(|(_, slot)| !slot.from().is_empty());
        for ((index, slot), (extents, parts)) in with_bytes.zip(&cuts) {
            for part in parts {
                if part.bytes + MESSAGE_OVERHEAD > self.max_message_bytes() {
                    let limit = self.max_message_bytes();
                    let fact = format!(
                        "{} bytes cannot be cut into smaller messages; this client's limit is {limit}: raise \
                         Options::max_message_bytes",
                        part.bytes
                    );
                    return Err(Error::invalid_field(slot.name, fact).with_code(tonic::Code::ResourceExhausted));
                }
                // Only the first message has the settings.
                let mut settings = if messages.is_empty() { request.clone() } else { R::default() };
                settings.set_places(request.places().cut(layout, *extents, several_axes, part)?);
                let tensor =
                    Shaped { field: slot.field, dtype: slot.dtype, shape: part.shape.clone(), bytes: part.bytes };
                let outgoing = Outgoing::new(&settings, &[tensor]);
                messages.push(Planned { outgoing, takes: vec![(index, part.bytes)] });
            }
        }
        self.stream(R::STREAM, &messages, slots).await
    }

    async fn has_several_axes(&self, rope: Option<&v1::RopeSource>) -> Result<bool> {
        let resolved;
        let spec = match spec(rope) {
            Some(spec) => spec,
            None => {
                let request = v1::ResolveRopeRequest { rope: rope.cloned(), ..Default::default() };
                let response: v1::ResolveRopeResponse = self.unary("ResolveRope", &request, 0).await?;
                resolved = response.spec.unwrap_or_default();
                &resolved
            }
        };
        let sections = spec.axes.as_ref().map_or(0, |axes| axes.sections.len());
        Ok(sections > 1 || explicit(spec).is_some_and(|frequencies| frequencies.axes > 1))
    }
}
