//! Cuts tensors of heads, and the positions of their tokens, into parts that go through a stream one by one, each like
//! a separate request.
//! A part is contiguous memory. So a tensor is cut along its outermost dimension, and along inner ones only if one step
//! of the outer is too large:
//!
//! ```text
//!   BSHD, [2, 3, H, D], at most 2 tokens a part
//!
//!     sequence 0            sequence 1
//!     +----+----+----+      +----+----+----+
//!     | t0 | t1 | t2 |      | t0 | t1 | t2 |      memory goes on to the right
//!     +----+----+----+      +----+----+----+
//!      \_ part 0_/ \_1/       \_ part 2_/ \_3/
//! ```
//! Every token is rotated only by its own position, so positions are cut in the same way: part 1 starts at the position
//! of t2.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::slot::Slot;
use crate::tensor::element_bytes;
use crate::v1::{Layout, Movement, PackedSequences, Positions, SequenceStarts, Tensor, movement, positions};

/// Extents of a tensor of heads, independent of the order of its dimensions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Extents {
    pub batch: usize,
    pub tokens: usize,
}

/// A contiguous part of a tensor: these sequences and tokens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub batch: Range<usize>,
    pub tokens: Range<usize>,
    pub shape: Vec<i64>,
    pub bytes: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Axis {
    Batch,
    Token,
    Head,
    Channel,
}

/// Returns the dimensions of a layout, outermost first, and how many of them may be cut. Channels are never cut, and
/// heads only in BHSD, in which a head's tokens are contiguous, unless the frequencies differ by head.
fn axes(layout: Layout, whole_heads: bool) -> (&'static [Axis], usize) {
    use Axis::*;
    match layout {
        Layout::Unspecified => (&[], 0),
        Layout::Bshd => (&[Batch, Token, Head, Channel], 2),
        Layout::Bhsd => (&[Batch, Head, Token, Channel], if whole_heads { 1 } else { 3 }),
        Layout::Sbhd => (&[Token, Batch, Head, Channel], 2),
        Layout::Thd => (&[Token, Head, Channel], 1),
    }
}

fn misfit(what: &str, fact: impl std::fmt::Display) -> Error {
    Error::invalid_field(what, format!("{fact}; the tensor cannot be cut into parts"))
}

/// Cuts a tensor into parts, in the order of memory, of at most `max_bytes` if possible: a token of one head is never
/// cut, and neither are the heads of a token in layouts in which they are contiguous.
pub(crate) fn cut_tensor(
    slot: &Slot<'_>,
    layout: Layout,
    whole_heads: bool,
    max_bytes: usize,
) -> Result<(Extents, Vec<Part>)> {
    let (axes, cuttable) = axes(layout, whole_heads);
    let (shape, bytes) = (&slot.shape, slot.from().len());
    let what = format!("{}.shape", slot.name);
    if axes.is_empty() || shape.len() != axes.len() {
        return Err(misfit(&what, format!("{shape:?} is none of layout {}", layout.as_str_name())));
    }
    // Bytes of one step along each axis.
    let mut steps = vec![0; axes.len()];
    let mut whole = Some(slot.element_bytes());
    for (step, &extent) in steps.iter_mut().zip(shape).rev() {
        *step = whole.unwrap_or(0);
        whole = usize::try_from(extent).ok().and_then(|extent| whole?.checked_mul(extent));
    }
    if whole != Some(bytes) || bytes == 0 {
        return Err(misfit(&what, format!("{shape:?} of {} does not have {bytes} bytes", slot.dtype.as_str_name())));
    }
    let extent_of = |axis| axes.iter().zip(shape).find(|(a, _)| **a == axis).map_or(1, |(_, &extent)| extent as usize);
    let extents = Extents { batch: extent_of(Axis::Batch), tokens: extent_of(Axis::Token) };
    // Cuts along one axis: the outermost whose steps are small enough, or else the last that may be cut.
    let cut = steps.iter().take(cuttable).position(|&step| step <= max_bytes).unwrap_or(cuttable - 1);
    let extent = shape[cut] as usize;
    let run = (max_bytes / steps[cut]).clamp(1, extent);

    let mut parts = Vec::new();
    let outer: usize = shape[..cut].iter().map(|&extent| extent as usize).product();
    for index in 0..outer {
        for begin in (0..extent).step_by(run) {
            let end = (begin + run).min(extent);
            let mut part = Part {
                batch: 0..extents.batch,
                tokens: 0..extents.tokens,
                shape: shape.clone(),
                bytes: (end - begin) * steps[cut],
            };
            let mut left = index;
            for axis in (0..cut).rev() {
                let at = left % shape[axis] as usize;
                left /= shape[axis] as usize;
                part.set(axes[axis], at..at + 1);
            }
            part.set(axes[cut], begin..end);
            part.shape[..cut].fill(1);
            part.shape[cut] = (end - begin) as i64;
            parts.push(part);
        }
    }
    Ok((extents, parts))
}

impl Part {
    fn set(&mut self, axis: Axis, range: Range<usize>) {
        match axis {
            Axis::Batch => self.batch = range,
            Axis::Token => self.tokens = range,
            Axis::Head | Axis::Channel => {}
        }
    }
}

/// Positions of tokens, or values with their shape, which are cut like tensors.
pub(crate) trait Places: Sized {
    /// Returns whether ids may be [B, S] or [axes, S]: only the encoding shows whether it has several axes.
    fn need_axes(&self, layout: Layout, extents: Extents) -> bool;
    /// Returns the positions of a part's tokens. Missing positions stay missing: the server reports them.
    fn cut(&self, layout: Layout, extents: Extents, several_axes: bool, part: &Part) -> Result<Self>;
}

impl<P: Places> Places for Option<P> {
    fn need_axes(&self, layout: Layout, extents: Extents) -> bool {
        self.as_ref().is_some_and(|places| places.need_axes(layout, extents))
    }
    fn cut(&self, layout: Layout, extents: Extents, several_axes: bool, part: &Part) -> Result<Self> {
        self.as_ref().map(|places| places.cut(layout, extents, several_axes, part)).transpose()
    }
}

/// Returns the position `tokens` further on. Saturates: the server refuses such positions, and names them.
fn later(position: i64, tokens: usize) -> i64 {
    position.saturating_add(tokens as i64)
}

impl Places for Positions {
    fn need_axes(&self, layout: Layout, extents: Extents) -> bool {
        matches!(&self.kind, Some(positions::Kind::Ids(ids)) if ids.need_axes(layout, extents))
    }

    fn cut(&self, layout: Layout, extents: Extents, several_axes: bool, part: &Part) -> Result<Self> {
        use positions::Kind;
        let kind = match &self.kind {
            None => None,
            Some(Kind::Start(start)) => Some(Kind::Start(later(*start, part.tokens.start))),
            Some(Kind::Starts(starts)) => {
                if starts.values.len() != extents.batch {
                    let fact = format!("{} of {} sequences", starts.values.len(), extents.batch);
                    return Err(misfit("positions.starts", fact));
                }
                let values = &starts.values[part.batch.clone()];
                let values = values.iter().map(|&start| later(start, part.tokens.start)).collect();
                Some(Kind::Starts(SequenceStarts { values }))
            }
            Some(Kind::Ids(ids)) => Some(Kind::Ids(ids.cut(layout, extents, several_axes, part)?)),
            Some(Kind::Packed(packed)) => Some(Kind::Packed(cut_packed(packed, layout, extents, part)?)),
        };
        Ok(Self { kind })
    }
}

/// Cuts a packed batch between any two tokens. The sequences that a part covers, wholly or partly, become its
/// sequences, each with its own start:
///
/// ```text
///   cu_seqlens  0     4       9        the part: tokens [2, 6)
///               |-----|-------|  -->   cu_seqlens 0 2 4
///                  [   part ]          starts     2 0 (if all started at 0)
/// ```
fn cut_packed(packed: &PackedSequences, layout: Layout, extents: Extents, part: &Part) -> Result<PackedSequences> {
    let ends = &packed.cu_seqlens;
    if layout != Layout::Thd {
        return Err(misfit("positions.packed", "goes with layout THD"));
    }
    if ends.first() != Some(&0) || ends.last() != Some(&(extents.tokens as i64)) || !ends.is_sorted() {
        let fact = format!("are no ascending bounds from 0 to {} tokens", extents.tokens);
        return Err(misfit("positions.packed.cu_seqlens", fact));
    }
    let sequences = ends.len() - 1;
    if !packed.starts.is_empty() && packed.starts.len() != sequences {
        let fact = format!("{} of {sequences} sequences", packed.starts.len());
        return Err(misfit("positions.packed.starts", fact));
    }
    let mut cut = PackedSequences { cu_seqlens: vec![0], starts: Vec::new() };
    for (index, bounds) in ends.windows(2).enumerate() {
        let first = bounds[0] as usize;
        let (begin, end) = (first.max(part.tokens.start), (bounds[1] as usize).min(part.tokens.end));
        if begin < end {
            cut.cu_seqlens.push((end - part.tokens.start) as i64);
            cut.starts.push(later(packed.starts.get(index).copied().unwrap_or(0), begin - first));
        }
    }
    Ok(cut)
}

/// Ids: [S], [B, S], [axes, S] or [axes, B, S]; [T] or [axes, T] if packed. The rank and the first extent show which,
/// except if `need_axes`.
impl Places for Tensor {
    fn need_axes(&self, layout: Layout, extents: Extents) -> bool {
        let batch = extents.batch as i64;
        layout != Layout::Thd && self.shape.len() == 2 && self.shape[0] == batch && batch > 1
    }

    fn cut(&self, layout: Layout, extents: Extents, several_axes: bool, part: &Part) -> Result<Self> {
        let (rank, thd) = (self.shape.len(), layout == Layout::Thd);
        let first = self.shape.first().copied().unwrap_or(0);
        let several_axes =
            several_axes || rank == if thd { 2 } else { 3 } || rank == 2 && !thd && first != extents.batch as i64;
        let several_axes = several_axes && rank > 0;
        let inner = rank - usize::from(several_axes);
        let per_sequence = inner == 2 && !thd;
        let axes = if several_axes { first } else { 1 };
        let batch = if per_sequence { extents.batch } else { 1 };
        let mut expected = Vec::new();
        expected.extend(several_axes.then_some(axes));
        expected.extend(per_sequence.then_some(extents.batch as i64));
        expected.push(extents.tokens as i64);
        let size = element_bytes(self.dtype());
        let count = usize::try_from(axes).ok().and_then(|axes| axes.checked_mul(batch)?.checked_mul(extents.tokens));
        let complete = match self.values.len() {
            0 => size > 0 && count.and_then(|count| count.checked_mul(size)) == Some(self.data.len()),
            values => count == Some(values),
        };
        if self.shape != expected || !complete {
            let fact = format!("ids {:?} are not those of {} x {} tokens", self.shape, extents.batch, extents.tokens);
            return Err(misfit("positions", fact));
        }
        let rows = if per_sequence { part.batch.clone() } else { 0..1 };
        let mut cut = Self { dtype: self.dtype, ..Self::default() };
        cut.shape.extend(several_axes.then_some(axes));
        cut.shape.extend(per_sequence.then_some(rows.len() as i64));
        cut.shape.push(part.tokens.len() as i64);
        let mut data = Vec::new();
        for axis in 0..axes as usize {
            for row in rows.clone() {
                let at = (axis * batch + row) * extents.tokens;
                let (begin, end) = (at + part.tokens.start, at + part.tokens.end);
                match self.values.len() {
                    0 => data.extend_from_slice(&self.data[begin * size..end * size]),
                    _ => cut.values.extend_from_slice(&self.values[begin..end]),
                }
            }
        }
        cut.data = data.into();
        Ok(cut)
    }
}

impl Places for Movement {
    fn need_axes(&self, layout: Layout, extents: Extents) -> bool {
        let target = match &self.target {
            Some(movement::Target::NewPositions(positions)) => positions.need_axes(layout, extents),
            Some(movement::Target::Shifts(shifts)) => shifts.need_axes(layout, extents),
            Some(movement::Target::Shift(_)) | None => false,
        };
        target || self.old_positions.need_axes(layout, extents)
    }

    fn cut(&self, layout: Layout, extents: Extents, several_axes: bool, part: &Part) -> Result<Self> {
        use movement::Target;
        let target = match &self.target {
            None => None,
            Some(Target::Shift(shift)) => Some(Target::Shift(*shift)),
            Some(Target::NewPositions(positions)) => {
                Some(Target::NewPositions(positions.cut(layout, extents, several_axes, part)?))
            }
            Some(Target::Shifts(shifts)) => Some(Target::Shifts(shifts.cut(layout, extents, several_axes, part)?)),
        };
        Ok(Self { old_positions: self.old_positions.cut(layout, extents, several_axes, part)?, target })
    }
}
