//! What the server builds: tables and biases. Requests are small, and answers may be larger than a message.

use bytes::Bytes;

use crate::calls::{Answers, Calls};
use crate::error::{Error, Result};
use crate::tensor::element_bytes;
use crate::v1::{self, Tensor};

/// About the bytes of a table's row: 128 channels, cosines and sines, in float32. It decides only over which connection
/// a table comes.
const ROW_BYTES: usize = 1024;

impl Calls {
    /// A table in one message, or, if it is over a limit, as a stream that is put together.
    pub async fn build_table(&self, request: v1::BuildTableRequest) -> Result<v1::BuildTableResponse> {
        let guess = usize::try_from(request.rows).unwrap_or(0).saturating_mul(ROW_BYTES);
        let result = self.unary("BuildTable", &request, guess).await;
        if !matches!(&result, Err(error) if error.is_too_large()) {
            return result;
        }
        let by_head = by_head(&request);
        let request = v1::BuildTableStreamRequest { table: Some(request), rows_per_message: 0 };
        let mut answers = self.receive("BuildTableStream", &request).await?;
        let mut parts: [Parts; 3] = Default::default();
        let mut table = v1::BuildTableResponse::default();
        while let Some(answer) = answers.next::<v1::BuildTableStreamResponse>().await? {
            table.amplitude = answer.amplitude;
            for (parts, part) in parts.iter_mut().zip([answer.cos, answer.sin, answer.table]) {
                parts.0.extend(part);
            }
        }
        let [cos, sin, rows] = parts.map(|parts| parts.joined(by_head));
        (table.cos, table.sin, table.table) = (cos?, sin?, rows?);
        Ok(table)
    }

    /// A bias as one tensor, [heads, queries, keys].
    pub async fn build_bias(&self, request: &v1::BuildBiasRequest) -> Result<Tensor> {
        let mut tiles = Tiles(self.receive("BuildBias", request).await?);
        let mut matrix = Matrix::new(request);
        while let Some(tile) = tiles.next().await? {
            matrix.add(&tile)?;
        }
        matrix.finish()
    }
}

/// The tiles of a bias, in row-major order of the matrix.
pub struct Tiles(pub(crate) Answers);

impl Tiles {
    /// The next tile; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<v1::BuildBiasResponse>> {
        self.0.next().await
    }
}

/// If explicit frequencies differ by head, every shape starts with the heads.
fn by_head(request: &v1::BuildTableRequest) -> bool {
    use v1::build_table_request::Encoding::Rope;
    use v1::rope_source::Source::Spec;
    use v1::rope_spec::Scaling::ExplicitFrequencies;
    let Some(Rope(v1::RopeSource { source: Some(Spec(spec)), .. })) = &request.encoding else { return false };
    matches!(&spec.scaling, Some(ExplicitFrequencies(frequencies)) if frequencies.heads > 0)
}

/// Rows of one of a table's tensors, as they came.
#[derive(Default)]
struct Parts(Vec<Tensor>);

impl Parts {
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
            if !fits || part.dtype != whole.dtype || heads == 0 || part.data.len() % heads != 0 {
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

/// A bias that is put together of its tiles.
struct Matrix {
    start: (i64, i64),
    rows: usize,
    columns: usize,
    dtype: v1::Dtype,
    heads: usize,
    data: Vec<u8>,
    /// Elements that have come; tiles do not overlap.
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
