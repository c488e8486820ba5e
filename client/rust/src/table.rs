//! Tables and biases. Their requests are small. Answers that are larger than a message come in parts.

use tonic::Code;

use crate::client::{Answers, Client};
use crate::error::{Error, Result};
use crate::slot::Slot;
use crate::tensor::{bytes_of, element_bytes};
use crate::v1::build_table_request::Encoding;
use crate::v1::{self, Dtype, Tensor};

impl Client {
    /// Builds a table in the caller's memory. `outputs` are the memory for cos and sin, or for the single table. The
    /// answer has the types and shapes of these tensors. The server itself writes to outputs in a region. A table over
    /// a limit comes as a stream.
    pub async fn build_table_into<'a>(
        &self,
        request: v1::BuildTableRequest,
        outputs: impl IntoIterator<Item = Slot<'a>>,
    ) -> Result<v1::BuildTableResponse> {
        let is_rope = matches!(request.encoding, Some(Encoding::Rope(_)));
        let is_complex = is_rope && request.layout() == v1::TableLayout::Complex;
        let pair = [(13, 8, "cos"), (14, 9, "sin")];
        let fields = if is_rope && !is_complex { &pair[..] } else { &[(15, 10, "table")] };
        let mut outputs = outputs.into_iter();
        let mut slots: Vec<_> =
            fields.iter().zip(&mut outputs).map(|(field, output)| output.of_result(*field)).collect();
        if outputs.next().is_some() {
            return Err(Error::invalid_field("outputs", format!("has more than {}, as the table", fields.len())));
        }
        let client = self.until_timeout();
        if slots.iter().any(Slot::is_shared) {
            client.check_places(&request, &slots).await?;
        }
        let lent = slots.len();
        match client.unary("BuildTable", &request, &mut slots).await {
            Err(error) if error.is_too_large() => {}
            Err(error) => return Err(error),
            Ok(table) => return check_whole(table, fields.len(), lent),
        }
        // Rows are the second axis from the end, or the third in a complex table.
        let axes_from_rows = if is_complex { 3 } else { 2 };
        let stream = v1::BuildTableStreamRequest { table: Some(request), rows_per_message: 0 };
        let mut answers = client.answers::<v1::BuildTableStreamResponse>("BuildTableStream", &stream).await?;
        let (mut shape, mut amplitude) = (Vec::new(), 0.0);
        let mut wholes = [const { None }; 3];
        while let Some(answer) = answers.next().await? {
            if !answer.whole_shape.is_empty() {
                (shape, amplitude) = (answer.whole_shape, answer.amplitude);
            }
            let mut at = vec![0; shape.len()];
            *shape.len().checked_sub(axes_from_rows).map(|axis| &mut at[axis]).ok_or_else(misfit)? = answer.first_row;
            for (whole, part) in wholes.iter_mut().zip([answer.cos, answer.sin, answer.table]) {
                let Some(part) = part else { continue };
                let whole = match whole {
                    Some(whole) => whole,
                    None => {
                        whole.insert(Whole::new(part.dtype(), &shape, (!slots.is_empty()).then(|| slots.remove(0)))?)
                    }
                };
                whole.put(&part, &at).ok_or_else(misfit)?;
            }
        }
        let [cos, sin, table] = wholes.map(|whole| whole.map(Whole::finish).transpose());
        check_whole(v1::BuildTableResponse { amplitude, cos: cos?, sin: sin?, table: table? }, fields.len(), lent)
    }

    /// Fails if the table does not fit its outputs. Without this check, the server would write the whole table even to
    /// a smaller place.
    async fn check_places(&self, request: &v1::BuildTableRequest, slots: &[Slot<'_>]) -> Result<()> {
        let stream = v1::BuildTableStreamRequest { table: Some(request.clone()), rows_per_message: 1 };
        let mut answers = self.answers::<v1::BuildTableStreamResponse>("BuildTableStream", &stream).await?;
        let first = answers.next().await?.ok_or_else(misfit)?;
        let part = first.cos.or(first.table).ok_or_else(misfit)?;
        let bytes = bytes_of(part.dtype(), &first.whole_shape).ok_or_else(misfit)?;
        slots.iter().try_for_each(|slot| slot.check_result(part.dtype(), bytes))
    }
}

/// Fails if a table does not have this number of tensors, or if a tensor does not have as many bytes as its shape
/// requires. The first `lent` tensors are in the caller's memory; their bytes were checked when they arrived.
fn check_whole(table: v1::BuildTableResponse, tensors: usize, lent: usize) -> Result<v1::BuildTableResponse> {
    let has_bytes = |tensor: &Tensor| bytes_of(tensor.dtype(), &tensor.shape) == Some(tensor.data.len());
    let all = [&table.cos, &table.sin, &table.table].into_iter().flatten().enumerate();
    let whole = all.filter(|(index, tensor)| *index < lent || has_bytes(tensor)).count();
    if whole == tensors { Ok(table) } else { Err(misfit()) }
}

/// The tiles of a bias, in row-major order.
pub type Tiles = Answers<v1::BuildBiasResponse>;

/// Joins the tiles of a bias. The bias's first query and first key have the positions `[query, key]`.
pub(crate) async fn joined(mut tiles: Tiles, [query, key]: [i64; 2]) -> Result<Tensor> {
    let mut whole: Option<Whole<'_>> = None;
    while let Some(answer) = tiles.next().await? {
        let tile = answer.tile.unwrap_or_default();
        let at = [0, answer.query_start.wrapping_sub(query), answer.key_start.wrapping_sub(key)];
        if whole.is_none() {
            whole = Some(Whole::new(tile.dtype(), &answer.whole_shape, None)?);
        }
        whole.as_mut().and_then(|whole| whole.put(&tile, &at)).ok_or_else(misfit)?;
    }
    whole.ok_or_else(misfit)?.finish()
}

/// A tensor that is joined from parts, in the caller's memory or in new memory.
struct Whole<'a> {
    head: Tensor,
    own: Vec<u8>,
    lent: Option<Slot<'a>>,
    /// Number of missing bytes; parts do not overlap.
    left: usize,
}

impl<'a> Whole<'a> {
    fn new(dtype: Dtype, shape: &[i64], lent: Option<Slot<'a>>) -> Result<Self> {
        let head = Tensor { dtype: dtype.into(), shape: shape.to_vec(), ..Tensor::default() };
        let bytes = bytes_of(dtype, shape).ok_or_else(misfit)?;
        if let Some(slot) = &lent {
            slot.check_result(dtype, bytes)?;
        }
        let own = bytemuck::allocation::try_zeroed_vec(if lent.is_some() { 0 } else { bytes }).map_err(|()| {
            let text = format!("no memory for the result's {bytes} bytes; ask for less, or take it in parts");
            Error::new(Code::ResourceExhausted, text)
        })?;
        Ok(Self { head, own, lent, left: bytes })
    }

    /// Copies a part into the tensor. The part's first element gets the indices `at`. Returns `None` if the part does
    /// not fit.
    fn put(&mut self, part: &Tensor, at: &[i64]) -> Option<()> {
        let shape = self.head.shape.clone();
        let within = |((at, part), whole): ((&i64, &i64), &i64)| *at >= 0 && at.checked_add(*part) <= Some(*whole);
        let fits = part.shape.len() == shape.len() && at.iter().zip(&part.shape).zip(&shape).all(within);
        let element = element_bytes(part.dtype());
        let run = usize::try_from(*part.shape.last()?).ok()? * element;
        let whole = part.data.len() == bytes_of(part.dtype(), &part.shape)? && part.dtype() == self.head.dtype();
        if !fits || !whole || run == 0 {
            return None;
        }
        for (index, from) in part.data.chunks_exact(run).enumerate() {
            // Computes the offset in the whole tensor at which the run begins. The loop goes from the last axis to the
            // first.
            let (mut index, mut begin, mut stride) = (index * run / element, 0, element);
            for axis in (0..shape.len()).rev() {
                let extent = part.shape[axis] as usize;
                begin += (at[axis] as usize + index % extent) * stride;
                index /= extent;
                stride *= shape[axis] as usize;
            }
            match &self.lent {
                Some(slot) => slot.write(begin, from),
                None => self.own[begin..begin + run].copy_from_slice(from),
            }
        }
        self.left = self.left.checked_sub(part.data.len())?;
        Some(())
    }

    fn finish(self) -> Result<Tensor> {
        if self.left > 0 { Err(misfit()) } else { Ok(Tensor { data: self.own.into(), ..self.head }) }
    }
}

/// Returns the error for a result with missing, wrong or overlapping parts.
fn misfit() -> Error {
    Error::internal("the answer's tensors are missing, lack bytes, or do not fit together")
}
