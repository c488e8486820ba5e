//! Tables and biases. Requests are small, and answers may be larger than a message: they then come in parts.

use tonic::Code;

use crate::calls::{Answers, Calls};
use crate::error::{Error, Result};
use crate::slot::{Output, Slot, bytes_of};
use crate::tensor::element_bytes;
use crate::v1::absolute_encoding::Encoding as Absolute;
use crate::v1::build_table_request::Encoding;
use crate::v1::rope_spec::Scaling;
use crate::v1::{self, Dtype, Tensor};

impl Calls {
    /// Builds a table in one message, or, if it is over a limit, from the parts of a stream. Outputs are the memory of
    /// cos and sin, or of the single table.
    pub async fn build_table<'a>(
        &self,
        request: v1::BuildTableRequest,
        outputs: impl IntoIterator<Item = Output<'a>>,
    ) -> Result<v1::BuildTableResponse> {
        let mut slots = slots(&request, outputs)?;
        let placed: Vec<_> = slots.iter().map(|slot| slot.tensor.name).collect();
        let names: &[_] = if is_pair(&request) { &["cos", "sin"] } else { &["table"] };
        let calls = self.until_timeout();
        match calls.tensors("BuildTable", &request, &mut slots).await {
            Err(error) if error.is_too_large() => {}
            answer => return check_whole(names, &placed, answer?),
        }
        // Rows are the last axis but one, or but two if a row holds complex numbers.
        let axes_from_rows = if is_complex(&request) { 3 } else { 2 };
        let request = v1::BuildTableStreamRequest { table: Some(request), rows_per_message: 0 };
        // The caller's request is the stream's field `table`.
        let named = |error: Error| error.without("table");
        let mut answers = calls.answers("BuildTableStream", &request).await.map_err(named)?;
        let (mut shape, mut amplitude) = (Vec::new(), 0.0);
        let mut wholes: [Option<Whole<'_>>; 3] = Default::default();
        while let Some(answer) = answers.next::<v1::BuildTableStreamResponse>().await.map_err(named)? {
            amplitude = answer.amplitude;
            if !answer.whole_shape.is_empty() {
                shape = answer.whole_shape;
            }
            let mut at = vec![0; shape.len()];
            *shape.len().checked_sub(axes_from_rows).map(|axis| &mut at[axis]).ok_or_else(misfit)? = answer.first_row;
            let parts = [("cos", answer.cos), ("sin", answer.sin), ("table", answer.table)];
            for (whole, (name, part)) in wholes.iter_mut().zip(parts) {
                let Some(part) = part else { continue };
                if whole.is_none() {
                    let slot = slots.iter().position(|slot| slot.tensor.name == name);
                    *whole = Some(Whole::new(part.dtype(), &shape, slot.map(|index| slots.swap_remove(index)))?);
                }
                whole.as_mut().and_then(|whole| whole.put(&part, &at)).ok_or_else(misfit)?;
            }
        }
        let [cos, sin, table] = wholes.map(|whole| whole.map(Whole::finish).transpose());
        let table = v1::BuildTableResponse { amplitude, cos: cos?, sin: sin?, table: table? };
        check_whole(names, &placed, table)
    }
}

/// Fails unless a table has the tensors of these names, each with all of its bytes. The bytes of placed tensors
/// were checked when they came.
fn check_whole(names: &[&str], placed: &[&str], table: v1::BuildTableResponse) -> Result<v1::BuildTableResponse> {
    for (name, tensor) in [("cos", &table.cos), ("sin", &table.sin), ("table", &table.table)] {
        let is_whole = |tensor: &Tensor| {
            placed.contains(&name) || bytes_of(tensor.dtype(), &tensor.shape) == Some(tensor.data.len())
        };
        if names.contains(&name) && !tensor.as_ref().is_some_and(is_whole) {
            return Err(Error::internal(format!("the answer's {name} is missing, or lacks bytes")));
        }
    }
    Ok(table)
}

/// The tiles of a bias, in row-major order of the matrix.
pub struct Tiles {
    answers: Answers,
    /// Position of the first query and the first key.
    start: [i64; 2],
}

impl Tiles {
    pub(crate) async fn of(calls: &Calls, request: &v1::BuildBiasRequest) -> Result<Self> {
        let answers = calls.answers("BuildBias", request).await?;
        Ok(Self { answers, start: [request.query_start, request.key_start] })
    }

    /// Returns the next tile; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<v1::BuildBiasResponse>> {
        self.answers.next().await
    }

    pub(crate) async fn joined(mut self) -> Result<Tensor> {
        let mut whole: Option<Whole<'_>> = None;
        while let Some(answer) = self.next().await? {
            let tile = answer.tile.unwrap_or_default();
            if whole.is_none() {
                whole = Some(Whole::new(tile.dtype(), &answer.whole_shape, None)?);
            }
            let [query, key] = self.start;
            let at = [0, answer.query_start.wrapping_sub(query), answer.key_start.wrapping_sub(key)];
            whole.as_mut().and_then(|whole| whole.put(&tile, &at)).ok_or_else(misfit)?;
        }
        whole.ok_or_else(misfit)?.finish()
    }
}

/// A tensor that is joined from parts, in the caller's memory or its own.
struct Whole<'a> {
    head: Tensor,
    own: Vec<u8>,
    lent: Option<&'a mut [u8]>,
    /// Number of received bytes; parts do not overlap.
    filled: usize,
}

impl<'a> Whole<'a> {
    fn new(dtype: Dtype, shape: &[i64], slot: Option<Slot<'a>>) -> Result<Self> {
        let head = Tensor { dtype: dtype.into(), shape: shape.to_vec(), ..Tensor::default() };
        let bytes = bytes_of(dtype, shape).ok_or_else(misfit)?;
        let mut whole = Self { head, own: Vec::new(), lent: None, filled: 0 };
        if let Some(slot) = slot {
            slot.tensor.check_bytes(bytes)?;
            slot.tensor.check_answer(&whole.head)?;
            whole.lent = slot.memory.to;
        } else {
            let memory = bytemuck::allocation::try_zeroed_vec(bytes);
            whole.own = memory.map_err(|()| {
                let text = format!("no memory for the result's {bytes} bytes; ask for less, or take it in parts");
                Error::new(Code::ResourceExhausted, text)
            })?;
        }
        Ok(whole)
    }

    fn memory(&mut self) -> &mut [u8] {
        self.lent.as_deref_mut().unwrap_or(&mut self.own)
    }

    /// Copies a part to its place, whose first element has the indices `at`. Returns `None` if it does not fit.
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
            // Index of the run's first element in the part, and its byte in the whole, from the last axis to the first.
            let (mut index, mut begin, mut stride) = (index * run / element, 0, element);
            for axis in (0..shape.len()).rev() {
                let extent = part.shape[axis] as usize;
                begin += (at[axis] as usize + index % extent) * stride;
                index /= extent;
                stride *= shape[axis] as usize;
            }
            self.memory()[begin..begin + run].copy_from_slice(from);
        }
        self.filled += part.data.len();
        Some(())
    }

    fn finish(mut self) -> Result<Tensor> {
        if self.filled != self.memory().len() {
            return Err(Error::internal("the result came with parts missing or twice"));
        }
        Ok(Tensor { data: self.own.into(), ..self.head })
    }
}

fn misfit() -> Error {
    Error::internal("the result came in parts that do not fit together")
}

/// Returns the slots of a table's outputs: cos and sin, or the single table. Fails if an output is for a tensor that
/// the table lacks, or is known not to fit its tensor.
fn slots<'a>(request: &v1::BuildTableRequest, outputs: impl IntoIterator<Item = Output<'a>>) -> Result<Vec<Slot<'a>>> {
    let is_pair = is_pair(request);
    let fields: &[_] = if is_pair { &[(13, 8, "cos"), (14, 9, "sin")] } else { &[(15, 10, "table")] };
    let dtype = if request.dtype() == Dtype::Unspecified { Dtype::Float32 } else { request.dtype() };
    let mut slots = Vec::new();
    for (index, Output(slot)) in outputs.into_iter().enumerate() {
        let &(field, output_field, name) = fields.get(index).ok_or_else(|| {
            let names = if is_pair { "cos and sin" } else { "one tensor" };
            Error::invalid_field("outputs", format!("has more than {}; this table has {names}", fields.len()))
        })?;
        let mut slot = slot.named(field, output_field, name);
        slot.check_result(dtype, shape(request).as_deref())?;
        slots.push(slot);
    }
    Ok(slots)
}

/// Returns whether a table has cos and sin; else it is one tensor.
fn is_pair(request: &v1::BuildTableRequest) -> bool {
    matches!(request.encoding, Some(Encoding::Rope(_))) && !is_complex(request)
}

fn is_complex(request: &v1::BuildTableRequest) -> bool {
    matches!(request.encoding, Some(Encoding::Rope(_))) && request.layout() == v1::TableLayout::Complex
}

/// Returns the shape of each tensor of a table; `None` if only the server knows it: for presets, configurations, and
/// requests that it will refuse.
fn shape(request: &v1::BuildTableRequest) -> Option<Vec<i64>> {
    let mut shape = vec![rows(request)?];
    match request.encoding.as_ref()? {
        Encoding::Rope(v1::RopeSource { source: Some(v1::rope_source::Source::Spec(spec)), .. }) => {
            // If explicit frequencies differ by head, every shape starts with the heads.
            if let Some(Scaling::ExplicitFrequencies(frequencies)) = &spec.scaling
                && frequencies.heads > 0
            {
                shape.insert(0, frequencies.heads.into());
            }
            let width = i64::from(spec.rotary_dim);
            match request.layout() {
                v1::TableLayout::Unspecified | v1::TableLayout::Half => shape.push(width / 2),
                v1::TableLayout::Complex => shape.extend([width / 2, 2]),
                _ => shape.push(width),
            }
        }
        Encoding::Rope(_) => return None,
        Encoding::Absolute(absolute) => shape.push(match absolute.encoding.as_ref()? {
            Absolute::Sinusoidal(rows) => rows.dim.into(),
            Absolute::SincosGrid(grid) => grid.dim.into(),
            Absolute::Timestep(rows) => rows.dim.into(),
            Absolute::Learned(rows) => *rows.table.as_ref()?.shape.last()?,
            Absolute::FourierFeatures(features) => features.frequencies.as_ref()?.shape.last()?.checked_mul(2)?,
        }),
    }
    shape.iter().all(|&extent| extent > 0).then_some(shape)
}

/// Returns a request's number of rows.
fn rows(request: &v1::BuildTableRequest) -> Option<i64> {
    let kind = request.positions.as_ref().and_then(|positions| positions.kind.as_ref());
    match (kind, &request.encoding) {
        // The last extent of ids counts tokens; the others are axes.
        (Some(v1::positions::Kind::Ids(ids)), _) => ids.shape.last().copied(),
        (Some(v1::positions::Kind::Packed(packed)), _) => packed.cu_seqlens.last().copied(),
        // A grid has a row for every cell, after the rows of special tokens.
        (_, Some(Encoding::Absolute(v1::AbsoluteEncoding { encoding: Some(Absolute::SincosGrid(grid)) }))) => {
            let cells = grid.extents.iter().try_fold(1_i64, |cells, &extent| cells.checked_mul(extent.into()))?;
            cells.checked_add(grid.leading_zero_rows.into())
        }
        _ => Some(request.rows),
    }
}
