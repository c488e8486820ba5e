//! Tensors: views of the caller's memory, and results.

use bytemuck::Pod;
use bytes::Bytes;
use tonic::Code;

use crate::error::{Error, Result};
use crate::slot::Slot;
use crate::v1::{Dtype, Tensor};

// Elements in messages are little-endian, and the client sends memory unchanged.
#[cfg(target_endian = "big")]
compile_error!("posenc: the client runs on little-endian machines only");

/// A type of elements that tensors may have in memory: `f32`, `f64`, `i8`, `i32`, `i64`; with the feature `half` also
/// `half::f16` and `half::bf16`. `u8` means the bytes of elements of any type.
///
/// Only this crate implements this trait.
pub trait Element: Pod + Send + Sync {
    /// The dtype of the elements. `None` for bytes, whose dtype is given separately.
    const DTYPE: Option<Dtype>;
}

macro_rules! element {
    ($($element:ty: $dtype:expr,)*) => { $(impl Element for $element { const DTYPE: Option<Dtype> = $dtype; })* };
}
element! {
    f32: Some(Dtype::Float32),
    f64: Some(Dtype::Float64),
    i8: Some(Dtype::Int8),
    i32: Some(Dtype::Int32),
    i64: Some(Dtype::Int64),
    u8: None,
}
#[cfg(feature = "half")]
element! {
    half::f16: Some(Dtype::Float16),
    half::bf16: Some(Dtype::Bfloat16),
}

/// A tensor in the caller's memory: row-major, without gaps. [`view!`](crate::view) makes one.
#[derive(Clone, Debug)]
pub struct View<'a, T> {
    pub(crate) elements: &'a [T],
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<i64>,
}

impl<'a, T: Element> View<'a, T> {
    /// Makes a view, without checks. If the number of elements does not fit the shape, a call with this view fails,
    /// and its error has both sizes.
    pub fn new(elements: &'a [T], shape: impl AsRef<[usize]>) -> Self {
        Self { elements, dtype: T::DTYPE.unwrap_or_default(), shape: extents(shape.as_ref()) }
    }

    /// Makes a slot whose result is written to `out`, which must have the length of this tensor.
    pub fn write_to(self, out: &'a mut [T]) -> Slot<'a> {
        let (from, to) = (bytemuck::cast_slice(self.elements), bytemuck::cast_slice_mut(out));
        Slot::new(self.dtype, self.shape, Some(from), Some(to))
    }

    /// Returns the tensor as a message, with a copy of the elements.
    pub fn to_tensor(&self) -> Tensor {
        let data = Bytes::copy_from_slice(bytemuck::cast_slice(self.elements));
        Tensor { dtype: self.dtype.into(), shape: self.shape.clone(), data, ..Tensor::default() }
    }
}

impl<'a> View<'a, u8> {
    /// Views elements of any type as little-endian bytes. Results are bytes, too.
    pub fn of_bytes(dtype: Dtype, bytes: &'a [u8], shape: impl AsRef<[usize]>) -> Self {
        Self { dtype, ..Self::new(bytes, shape) }
    }
}

/// `view!(q, [1, 1024, 32, 128])` is a [`View`](crate::View) of a Vec, an array or a slice.
#[macro_export]
macro_rules! view {
    ($elements:expr, $shape:expr) => {
        $crate::View::new(&$elements[..], $shape)
    };
}

/// `view_mut!(q, [1, 1024, 32, 128])` is a [`Slot`](crate::Slot) for `q`, which is replaced by the result.
#[macro_export]
macro_rules! view_mut {
    ($elements:expr, $shape:expr) => {
        $crate::Slot::in_place(&mut $elements[..], $shape)
    };
}

/// Returns a shape in the form of messages. An extent that does not fit an i64 becomes i64::MAX, because no slice is
/// that long.
pub(crate) fn extents(shape: &[usize]) -> Vec<i64> {
    shape.iter().map(|&extent| i64::try_from(extent).unwrap_or(i64::MAX)).collect()
}

impl Tensor {
    /// Copies the elements. Fails with INVALID_ARGUMENT if the elements have another type.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE.is_some_and(|dtype| dtype != self.dtype()) {
            let (dtype, wanted) = (self.dtype().as_str_name(), std::any::type_name::<T>());
            return Err(Error::new(Code::InvalidArgument, format!("the tensor's elements are {dtype}, not {wanted}")));
        }
        if !self.data.len().is_multiple_of(size_of::<T>()) {
            return Err(Error::internal(format!("a tensor of {} bytes", self.data.len())));
        }
        Ok(bytemuck::allocation::pod_collect_to_vec(&self.data))
    }
}

/// Returns the size of one element in bytes, or 0 for an unknown type.
pub(crate) fn element_bytes(dtype: Dtype) -> usize {
    match dtype {
        Dtype::Unspecified => 0,
        Dtype::Float8E4m3fn | Dtype::Float8E5m2 | Dtype::Int8 => 1,
        Dtype::Float16 | Dtype::Bfloat16 => 2,
        Dtype::Float32 | Dtype::Int32 => 4,
        Dtype::Float64 | Dtype::Int64 => 8,
    }
}

/// Returns the size of a tensor in bytes, or `None` if no memory is that large.
pub(crate) fn bytes_of(dtype: Dtype, shape: &[i64]) -> Option<usize> {
    shape.iter().try_fold(element_bytes(dtype), |bytes, &extent| bytes.checked_mul(usize::try_from(extent).ok()?))
}
