//! Tables and biases. Requests are small, and answers may be larger than a message.

use bytes::Bytes;
use tonic::Code;

use crate::calls::{Answers, Calls, Planned, decode};
use crate::error::{Error, Result};
use crate::slot::{Output, Slot};
use crate::tensor::element_bytes;
use crate::v1::absolute_encoding::Encoding as Absolute;
use crate::v1::build_table_request::Encoding;
use crate::v1::{self, Tensor};

/// Approximate bytes of a table's row: 128 channels, cosines and sines, in float32. It only selects the connection for
/// a table.
const ROW_BYTES: usize = 1024;

impl Calls {
    /// Builds a table in one message, or, if it is over a limit, from the parts of a stream. Results go to the slots.
    pub async fn build_table(
        &self,
        request: v1::BuildTableRequest,
        slots: &mut [Slot<'_>],
    ) -> Result<v1::BuildTableResponse> {
        self.until_timeout().build_table_in_time(request, slots).await
    }

    async fn build_table_in_time(
        &self,
        request: v1::BuildTableRequest,
        slots: &mut [Slot<'_>],
    ) -> Result<v1::BuildTableResponse> {
        if let Some(response) = self.by_place("BuildTable", &request, slots).await? {
            return decode(response);
        }
        let guess = usize::try_from(request.rows).unwrap_or(0).saturating_mul(ROW_BYTES);
        let result = self.unary_with("BuildTable", &Planned::whole(&request, slots), slots, guess).await;
        // The error of a too large message has its size.
        let mut size = match &result {
            Err(error) if error.is_too_large() => error.metadata().get("sizeBytes").and_then(|size| size.parse().ok()),
            _ => {
                let table = decode(result?)?;
                check_whole(&request, &table, slots)?;
                return Ok(table);
            }
        };
        let (total, pair) = (rows(&request), is_pair(&request));
        let by_head = spec(&request).is_some_and(|spec| heads(spec) > 0);
        let request = v1::BuildTableStreamRequest { table: Some(request), rows_per_message: 0 };
        // Callers do not know the message `table`.
        let outside = |error: Error| error.outside_of("table");
        let mut answers = self.receive("BuildTableStream", &request).await.map_err(outside)?;
        let mut parts: [Parts; 3] = Default::default();
        let mut table = v1::BuildTableResponse::default();
        while let Some(answer) = answers.next::<v1::BuildTableStreamResponse>().await.map_err(outside)? {
            // At the first rows, because an error of the stream says more than this one.
            if let Some(size) = size.take() {
                check_memory(size)?;
            }
            table.amplitude = answer.amplitude;
            let come = parts.iter().map(|parts| parts.rows(by_head)).max().unwrap_or(0);
            if answer.first_row != come {
                return Err(Error::internal(format!("the table came with rows at {}, not {come}", answer.first_row)));
            }
            for (parts, part) in parts.iter_mut().zip([answer.cos, answer.sin, answer.table]) {
                parts.0.extend(part);
            }
        }
        for (name, parts) in ["cos", "sin", "table"].into_iter().zip(&parts) {
            let (come, total) = (parts.rows(by_head), if pair == (name != "table") { total } else { Some(0) });
            if total.is_some_and(|total| total != come) {
                return Err(Error::internal(format!("the table's {name} came with {come} of {total:?} rows")));
            }
        }
        let [cos, sin, whole] = parts.map(|parts| parts.joined(by_head));
        (table.cos, table.sin, table.table) = (cos?, sin?, whole?);
        for slot in slots {
            let tensor = match slot.name {
                "cos" => &mut table.cos,
                "sin" => &mut table.sin,
                _ => &mut table.table,
            };
            let tensor = tensor.as_mut().ok_or_else(|| Error::internal(format!("a table without {}", slot.name)))?;
            let data = std::mem::take(&mut tensor.data);
            if data.len() != slot.bytes() {
                return Err(slot.misfit(data.len()));
            }
            slot.to().copy_from_slice(&data);
        }
        Ok(table)
    }

    /// Builds a bias as one tensor, [heads, queries, keys].
    pub async fn build_bias(&self, request: &v1::BuildBiasRequest) -> Result<Tensor> {
        let mut tiles = Tiles(self.receive("BuildBias", request).await?);
        let mut matrix = Matrix::new(request);
        while let Some(tile) = tiles.next().await? {
            matrix.check_memory(&tile)?;
            matrix.add(&tile)?;
        }
        matrix.finish()
    }
}

/// The tiles of a bias, in row-major order of the matrix.
pub struct Tiles(pub(crate) Answers);

impl Tiles {
    /// Returns the next tile; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<v1::BuildBiasResponse>> {
        self.0.next().await
    }
}

/// Refuses a result larger than the machine's memory: the process would end for lack of memory.
fn check_memory(size: u128) -> Result<()> {
    let memory = machine_memory();
    if memory.is_none_or(|memory| size <= memory) {
        return Ok(());
    }
    let memory = memory.unwrap_or(0);
    let text =
        format!("the result has {size} bytes, and this machine {memory} of memory; ask for less, or take it in parts");
    Err(Error::new(Code::ResourceExhausted, text))
}

/// Returns the machine's memory in bytes; `None` without /proc/meminfo.
fn machine_memory() -> Option<u128> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u128 =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Returns the outputs of a table: cos and sin, or the single table. Fails if an output is for a tensor that the table
/// lacks, or is known not to fit its tensor.
pub(crate) fn table_slots<'a>(
    request: &v1::BuildTableRequest,
    outputs: impl IntoIterator<Item = Output<'a>>,
) -> Result<Vec<Slot<'a>>> {
    let pair = is_pair(request);
    let fields: &[_] = if pair { &[(13, "cos"), (14, "sin")] } else { &[(15, "table")] };
    let dtype = match request.dtype() {
        v1::Dtype::Unspecified => v1::Dtype::Float32,
        dtype => dtype,
    };
    let mut slots = Vec::new();
    for (index, Output(slot)) in outputs.into_iter().enumerate() {
        let &(field, name) = fields.get(index).ok_or_else(|| {
            let names = if pair { "cos and sin" } else { "one tensor" };
            Error::invalid_field("outputs", format!("has more than {}; this table has {names}", fields.len()))
        })?;
        let mut output = Output(slot.named(field, name));
        output.check(dtype, table_shape(request))?;
        slots.push(output.0);
    }
    Ok(slots)
}

/// Returns whether a table has cos and sin; else it is one tensor.
fn is_pair(request: &v1::BuildTableRequest) -> bool {
    matches!(request.encoding, Some(Encoding::Rope(_))) && request.layout() != v1::TableLayout::Complex
}

/// Fails unless a table in one message has the requested tensors, each with all of its bytes. Tensors for slots are
/// checked while they are read.
fn check_whole(request: &v1::BuildTableRequest, table: &v1::BuildTableResponse, slots: &[Slot<'_>]) -> Result<()> {
    let (pair, shape) = (is_pair(request), table_shape(request));
    for (name, tensor) in [("cos", &table.cos), ("sin", &table.sin), ("table", &table.table)] {
        if pair != (name != "table") || slots.iter().any(|slot| slot.name == name) {
            continue;
        }
        let tensor = tensor.as_ref().ok_or_else(|| Error::internal(format!("the answer has no {name}")))?;
        if !has_bytes(tensor) || shape.as_ref().is_some_and(|shape| *shape != tensor.shape) {
            let (dtype, bytes) = (tensor.dtype().as_str_name(), tensor.data.len());
            let text = format!("the answer's {name} is {dtype} {:?} with {bytes} bytes", tensor.shape);
            return Err(Error::internal(text));
        }
    }
    Ok(())
}

/// Returns whether a tensor has the bytes of its type and shape. Tensors with `values` are not checked.
fn has_bytes(tensor: &Tensor) -> bool {
    let size = element_bytes(tensor.dtype());
    let bytes = tensor.shape.iter().try_fold(size, |bytes, &extent| bytes.checked_mul(usize::try_from(extent).ok()?));
    size > 0 && bytes == Some(if tensor.values.is_empty() { tensor.data.len() } else { tensor.values.len() * size })
}

/// Returns the shape of each tensor of a table; `None` if only the server knows it: for presets, configurations, and
/// requests that it will refuse.
fn table_shape(request: &v1::BuildTableRequest) -> Option<Vec<i64>> {
    let spec = spec(request);
    let width = match request.encoding.as_ref()? {
        Encoding::Rope(_) => match request.layout() {
            v1::TableLayout::Unspecified | v1::TableLayout::Half => i64::from(spec?.rotary_dim / 2),
            _ => i64::from(spec?.rotary_dim),
        },
        Encoding::Absolute(absolute) => match absolute.encoding.as_ref()? {
            Absolute::Sinusoidal(rows) => rows.dim.into(),
            Absolute::SincosGrid(grid) => grid.dim.into(),
            Absolute::Timestep(rows) => rows.dim.into(),
            Absolute::Learned(rows) => *rows.table.as_ref()?.shape.last()?,
            Absolute::FourierFeatures(features) => features.frequencies.as_ref()?.shape.last()?.checked_mul(2)?,
        },
    };
    let complex = spec.is_some() && request.layout() == v1::TableLayout::Complex;
    let row = if complex { vec![width / 2, 2] } else { vec![width] };
    let heads = spec.map(heads).filter(|&heads| heads > 0).map(i64::from);
    let shape: Vec<i64> = heads.into_iter().chain([rows(request)?]).chain(row).collect();
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

fn spec(request: &v1::BuildTableRequest) -> Option<&v1::RopeSpec> {
    match request.encoding.as_ref()? {
        Encoding::Rope(v1::RopeSource { source: Some(v1::rope_source::Source::Spec(spec)), .. }) => Some(spec),
        _ => None,
    }
}

/// Returns the number of heads if explicit frequencies differ by head (every shape then starts with it); else 0.
fn heads(spec: &v1::RopeSpec) -> i32 {
    match &spec.scaling {
        Some(v1::rope_spec::Scaling::ExplicitFrequencies(frequencies)) => frequencies.heads,
        _ => 0,
    }
}

/// Received rows of one of a table's tensors.
#[derive(Default)]
struct Parts(Vec<Tensor>);

impl Parts {
    fn rows(&self, by_head: bool) -> i64 {
        let axis = usize::from(by_head);
        self.0.iter().map(|part| part.shape.get(axis).copied().unwrap_or(0)).fold(0, i64::saturating_add)
    }

    fn joined(self, by_head: bool) -> Result<Option<Tensor>> {
        let misfit = || Error::internal("the table came in parts that do not fit together");
        let Some(first) = self.0.first() else { return Ok(None) };
        let axis = usize::from(by_head);
        let mut whole = Tensor { dtype: first.dtype, shape: first.shape.clone(), ..Default::default() };
        let heads =
            if by_head { usize::try_from(*first.shape.first().ok_or_else(misfit)?).map_err(|_| misfit())? } else { 1 };
        let mut rows = 0_i64;
        for part in &self.0 {
            let fits = part.shape.len() == whole.shape.len()
                && (0..part.shape.len()).all(|i| i == axis || part.shape[i] == whole.shape[i]);
            if !fits || !has_bytes(part) || part.dtype != whole.dtype || heads == 0 || part.data.len() % heads != 0 {
                return Err(misfit());
            }
            rows = rows.checked_add(*part.shape.get(axis).ok_or_else(misfit)?).ok_or_else(misfit)?;
        }
        whole.shape[axis] = rows;
        let mut data = Vec::with_capacity(self.0.iter().map(|part| part.data.len()).sum());
        for head in 0..heads {
            for part in &self.0 {
                let bytes = part.data.len() / heads;
                data.extend_from_slice(&part.data[head * bytes..(head + 1) * bytes]);
            }
        }
        whole.data = data.into();
        Ok(Some(whole))
    }
}

/// A bias that is joined from its tiles.
struct Matrix {
    start: (i64, i64),
    rows: usize,
    columns: usize,
    dtype: v1::Dtype,
    heads: usize,
    data: Vec<u8>,
    /// Number of received elements; tiles do not overlap.
    filled: usize,
}

impl Matrix {
    fn new(request: &v1::BuildBiasRequest) -> Self {
        Self {
            start: (request.query_start, request.key_start),
            rows: usize::try_from(request.query_length).unwrap_or(0),
            columns: usize::try_from(request.key_length).unwrap_or(0),
            dtype: v1::Dtype::Unspecified,
            heads: 0,
            data: Vec::new(),
            filled: 0,
        }
    }

    /// Checks by the first tile, which has the heads and the elements' size.
    fn check_memory(&self, tile: &v1::BuildBiasResponse) -> Result<()> {
        let Some(tensor) = tile.tile.as_ref().filter(|_| self.data.is_empty()) else { return Ok(()) };
        let heads = tensor.shape.first().map_or(0, |&heads| heads.unsigned_abs());
        let element = element_bytes(tensor.dtype()) as u128;
        check_memory(u128::from(heads) * element * self.rows as u128 * self.columns as u128)
    }

    fn add(&mut self, tile: &v1::BuildBiasResponse) -> Result<()> {
        self.place(tile).ok_or_else(|| {
            Error::internal(format!(
                "the bias came with a tile at query {}, key {} that does not fit the request or the first tile",
                tile.query_start, tile.key_start
            ))
        })
    }

    fn place(&mut self, tile: &v1::BuildBiasResponse) -> Option<()> {
        let tensor = tile.tile.as_ref()?;
        let [heads, queries, keys] = tensor.shape.as_slice() else { return None };
        let size = |extent: &i64| usize::try_from(*extent).ok();
        let (heads, queries, keys) = (size(heads)?, size(queries)?, size(keys)?);
        let row = size(&tile.query_start.checked_sub(self.start.0)?)?;
        let column = size(&tile.key_start.checked_sub(self.start.1)?)?;
        let element = element_bytes(tensor.dtype());
        let bytes = heads.checked_mul(queries)?.checked_mul(keys)?.checked_mul(element)?;
        let within = row.checked_add(queries)? <= self.rows && column.checked_add(keys)? <= self.columns;
        if bytes == 0 || bytes != tensor.data.len() || !within {
            return None;
        }
        if self.data.is_empty() {
            (self.heads, self.dtype) = (heads, tensor.dtype());
            let whole = heads.checked_mul(self.rows)?.checked_mul(self.columns)?.checked_mul(element)?;
            self.data = bytemuck::zeroed_vec(whole);
        }
        if heads != self.heads || tensor.dtype() != self.dtype {
            return None;
        }
        let run = keys * element;
        for (index, from) in tensor.data.chunks_exact(run).enumerate() {
            let (head, query) = (index / queries, index % queries);
            let at = ((head * self.rows + row + query) * self.columns + column) * element;
            self.data[at..at + run].copy_from_slice(from);
        }
        self.filled += heads * queries * keys;
        Some(())
    }

    fn finish(self) -> Result<Tensor> {
        if self.filled != self.heads * self.rows * self.columns {
            return Err(Error::internal("the bias came with tiles missing or twice"));
        }
        let shape = vec![self.heads as i64, self.rows as i64, self.columns as i64];
        Ok(Tensor { dtype: self.dtype.into(), shape, data: Bytes::from(self.data), ..Tensor::default() })
    }
}
