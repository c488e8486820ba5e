//! Calls whose tensors or results lie in shared memory.

use bytes::Bytes;
use prost::Message;

use crate::calls::{Calls, Planned};
use crate::error::Result;
use crate::slot::Slot;
use crate::v1::{self, SharedMemory, Tensor};

/// A request whose tensors or results may be in shared memory.
pub(crate) trait Shares: Message + Clone {
    /// Sets the tensor called `name`, or its result's place, or both.
    fn set_shared(&mut self, name: &str, tensor: Option<Tensor>, result: Option<SharedMemory>);
}

macro_rules! shares {
    ($($request:ident { $($name:literal: $($field:ident)?, $($output:ident)?;)* })*) => { $(
        impl Shares for v1::$request {
            #[allow(unused_variables)]
            fn set_shared(&mut self, name: &str, tensor: Option<Tensor>, result: Option<SharedMemory>) {
                match name {
                    $($name => { $(self.$field = tensor;)? $(self.$output = result;)? })*
                    _ => unreachable!("a tensor called {name}"),
                }
            }
        }
    )* };
}
shares! {
    ApplyRopeRequest { "q": q, q_output; "k": k, k_output; }
    RepositionRequest { "k": k, k_output; }
    AddEncodingRequest { "x": x, x_output; }
    ConvertPairingRequest { "weight": weight, weight_output; }
    ScoreRelativeRequest { "q": q, ; "k": k, ; "scores": , scores_output; }
    BuildTableRequest { "cos": , cos_output; "sin": , sin_output; "table": , table_output; }
}

impl Calls {
    /// Makes a call with places of tensors. Returns `None` if no tensor is in shared memory, or bytes must be sent.
    pub async fn by_place<R: Shares>(
        &self,
        method: &str,
        request: &R,
        slots: &mut [Slot<'_>],
    ) -> Result<Option<Bytes>> {
        if slots.iter().all(|slot| slot.shared.is_none()) {
            return Ok(None);
        }
        let replaced: Vec<_> = slots.iter().filter(|slot| slot.in_shared_place()).map(|slot| slot.name).collect();
        let mut request = request.clone();
        for slot in slots.iter() {
            let Some(places) = slot.shared.clone() else { continue };
            let (dtype, shape) = (slot.dtype.into(), slot.shape.clone());
            let tensor = places.tensor.map(|place| Tensor { dtype, shape, shared: Some(place), ..Default::default() });
            request.set_shared(slot.name, tensor, places.result);
        }
        let mut sent: Vec<_> = slots.iter_mut().filter(|slot| slot.shared.is_none()).map(Slot::again).collect();
        let message = Planned::whole(&request, &sent);
        if message.outgoing.message_bytes > self.stream_above_bytes() {
            return Ok(None);
        }
        let result = if replaced.is_empty() {
            self.unary_with(method, &message, &mut sent, 0).await
        } else {
            self.unary_once(method, &message, &mut sent).await
        };
        match result {
            Ok(response) => Ok(Some(response)),
            Err(error) if error.wants_bytes() => Ok(None),
            Err(error) if replaced.is_empty() && error.is_too_large() => Ok(None),
            Err(error) if replaced.is_empty() => Err(error),
            Err(error) => Err(error.of_replacing(&replaced.join(" and "))),
        }
    }

    /// Makes a call with tensors in the caller's memory, in one message each way.
    pub async fn tensors<R: Shares>(&self, method: &str, request: &R, slots: &mut [Slot<'_>]) -> Result<Bytes> {
        slots.iter().try_for_each(Slot::check_output)?;
        let calls = self.until_timeout();
        if let Some(response) = calls.by_place(method, request, slots).await? {
            return Ok(response);
        }
        let message = Planned::whole(request, slots);
        let expected: usize = slots.iter().map(Slot::bytes).sum();
        calls.unary_with(method, &message, slots, expected).await
    }
}
