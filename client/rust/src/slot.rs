//! A call's tensors and results, in the caller's memory.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::shared::SharedTensor;
use crate::tensor::{Element, View, bytes_of, extents};
use crate::v1::{Dtype, SharedMemory, Tensor};

/// The number of a tensor's field in requests and responses, the number of the request's field for the result's place,
/// and the tensor's name.
pub(crate) type Field = (u32, u32, &'static str);

/// A tensor of a call: its elements, and the memory for its result. The result replaces the tensor
/// ([`view_mut!`](crate::view_mut)) or goes to other memory ([`View::write_to`]). If a call fails, a part of the memory
/// may be replaced.
///
/// A slot of a [`View`] or of a `&`[`SharedTensor`] is only read. A slot of a `&mut` slice, `Vec` or [`SharedTensor`]
/// is memory for a result.
#[derive(Debug)]
pub struct Slot<'a> {
    pub(crate) field: Field,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<i64>,
    pub(crate) bytes: usize,
    /// The tensor's elements. `None`: the elements are in `to`, and the result replaces them.
    from: Option<&'a [u8]>,
    /// Position ids, which a stream sends before the tensors. Position ids have no result.
    ids: Bytes,
    /// Memory for the result. The sender and the receiver of a call share this memory. The server sends results only
    /// for bytes that it has received, so a result replaces only elements that were already sent.
    to: Option<Mutex<&'a mut [u8]>>,
    /// Whether only the response has the tensor. Its shape is then unknown. If the memory is given as bytes, its type
    /// is unknown too.
    pub(crate) received: bool,
    /// The places of the tensor and of its result in shared memory. The two places are equal if the result replaces the
    /// tensor.
    pub(crate) place: Option<SharedMemory>,
    pub(crate) output_place: Option<SharedMemory>,
}

impl<'a> Slot<'a> {
    /// Makes the slot of a tensor that is replaced by its result.
    pub fn in_place<T: Element>(elements: &'a mut [T], shape: impl AsRef<[usize]>) -> Self {
        Self::of_bytes(T::DTYPE.unwrap_or_default(), bytemuck::cast_slice_mut(elements), shape)
    }

    /// Makes the slot of a tensor that is replaced by its result. Its elements have any type, and are passed as
    /// little-endian bytes.
    pub fn of_bytes(dtype: Dtype, bytes: &'a mut [u8], shape: impl AsRef<[usize]>) -> Self {
        Self::new(dtype, extents(shape.as_ref()), None, Some(bytes))
    }

    pub(crate) fn new(dtype: Dtype, shape: Vec<i64>, from: Option<&'a [u8]>, to: Option<&'a mut [u8]>) -> Self {
        let bytes = from.or(to.as_deref()).map_or(0, <[u8]>::len);
        let (to, field, ids) = (to.map(Mutex::new), Field::default(), Bytes::new());
        Self { field, dtype, shape, bytes, from, ids, to, received: false, place: None, output_place: None }
    }

    pub(crate) fn of_ids(ids: Bytes) -> Self {
        Self { bytes: ids.len(), ids, ..Self::new(Dtype::Unspecified, Vec::new(), None, None) }
    }

    pub(crate) fn named(self, field: Field) -> Self {
        Self { field, ..self }
    }

    /// Turns the slot into memory for a result that has no input.
    pub(crate) fn of_result(self, field: Field) -> Self {
        Self { field, place: None, received: true, ..self }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.place.is_some() || self.output_place.is_some()
    }

    /// Returns whether the answer has bytes for the slot.
    pub(crate) fn is_result(&self) -> bool {
        self.to.is_some() && !self.is_shared()
    }

    /// Returns whether received results overwrite the input, so that the call cannot be repeated.
    pub(crate) fn is_replaced(&self) -> bool {
        self.from.is_none() && self.to.is_some() && !self.received
    }

    /// Returns whether the server replaces the tensor in shared memory. Such a call must not be sent twice.
    pub(crate) fn in_shared_place(&self) -> bool {
        self.place.is_some() && self.place == self.output_place
    }

    /// Returns whether the tensor has as many bytes as its shape requires.
    pub(crate) fn is_whole(&self) -> bool {
        bytes_of(self.dtype, &self.shape) == Some(self.bytes)
    }

    /// Returns the message of the tensor without its elements.
    pub(crate) fn head(&self) -> Tensor {
        Tensor { dtype: self.dtype.into(), shape: self.shape.clone(), ..Default::default() }
    }

    /// Copies a range of the tensor's bytes.
    pub(crate) fn read(&self, range: Range<usize>) -> Bytes {
        match (self.from, self.result()) {
            (Some(from), _) => Bytes::copy_from_slice(&from[range]),
            (None, Some(to)) => Bytes::copy_from_slice(&to[range]),
            (None, None) => self.ids.slice(range),
        }
    }

    /// Writes bytes of the result at the offset `at`.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        if let Some(mut to) = self.result() {
            to[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    fn result(&self) -> Option<MutexGuard<'_, &'a mut [u8]>> {
        self.to.as_ref().map(|to| to.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Fails if the result does not have the size of the slot's memory. Also fails if the memory has another type of
    /// elements; memory of bytes takes any type.
    pub(crate) fn check_result(&self, dtype: Dtype, bytes: usize) -> Result<()> {
        let fact = match self.result().map_or(bytes, |to| to.len()) {
            _ if self.dtype != Dtype::Unspecified && self.dtype != dtype => {
                format!("is {}; must be {}", self.dtype.as_str_name(), dtype.as_str_name())
            }
            memory if memory != bytes => format!("has {memory} bytes; must have {bytes}"),
            _ => return Ok(()),
        };
        Err(Error::invalid_field(&format!("{}_output", self.field.2), fact))
    }

    /// Checks a tensor of a response that came with `bytes` bytes.
    pub(crate) fn check_answer(&self, answer: &Tensor, bytes: usize) -> Result<()> {
        if self.received {
            return self.check_result(answer.dtype(), bytes);
        }
        if answer.dtype() == self.dtype && answer.shape == self.shape && bytes == self.bytes {
            return Ok(());
        }
        let text = |dtype: Dtype, shape, bytes| format!("{} {shape:?} of {bytes} bytes", dtype.as_str_name());
        let found = text(answer.dtype(), &answer.shape, bytes);
        let wanted = text(self.dtype, &self.shape, self.bytes);
        Err(Error::internal(format!("the answer's {} is {found}; must be {wanted}", self.field.2)))
    }
}

impl<'a, T: Element> From<View<'a, T>> for Slot<'a> {
    fn from(view: View<'a, T>) -> Self {
        Self::new(view.dtype, view.shape, Some(bytemuck::cast_slice(view.elements)), None)
    }
}

impl<'a, T: Element> From<&'a SharedTensor<T>> for Slot<'a> {
    fn from(tensor: &'a SharedTensor<T>) -> Self {
        let from = Some(bytemuck::cast_slice(tensor));
        Self { place: tensor.place(), ..Self::new(tensor.dtype, tensor.shape.clone(), from, None) }
    }
}

impl<'a, T: Element> From<&'a mut SharedTensor<T>> for Slot<'a> {
    fn from(tensor: &'a mut SharedTensor<T>) -> Self {
        let (dtype, shape, place) = (tensor.dtype, tensor.shape.clone(), tensor.place());
        let to = Some(bytemuck::cast_slice_mut(tensor));
        Self { place: place.clone(), output_place: place, ..Self::new(dtype, shape, None, to) }
    }
}

impl<'a, T: Element> From<&'a mut [T]> for Slot<'a> {
    fn from(elements: &'a mut [T]) -> Self {
        Self::in_place(elements, [])
    }
}

impl<'a, T: Element> From<&'a mut Vec<T>> for Slot<'a> {
    fn from(elements: &'a mut Vec<T>) -> Self {
        Self::in_place(elements, [])
    }
}

/// A call's argument for a tensor. The argument decides where the result goes:
///
/// | argument | result |
/// |---|---|
/// | [`View`] | a new `Vec` |
/// | [`Slot`] | replaces the tensor, or goes to the memory that [`View::write_to`] names |
/// | `&mut` [`SharedTensor`] | replaces the tensor |
/// | `&ndarray::ArrayBase`, with the feature `ndarray` | a new array |
/// | `()` | none, because there is no tensor |
///
/// Only this crate implements this trait.
pub trait Heads: Send {
    /// The type that the call returns for the tensor: a new result, or `()`.
    type Output: Send;
    /// Makes the memory for a result that the call returns.
    #[doc(hidden)]
    fn output(&self) -> Self::Output;
    /// Makes the call's slot for the tensor.
    #[doc(hidden)]
    fn slot<'s>(&'s mut self, output: &'s mut Self::Output) -> Option<Slot<'s>>;
}

impl Heads for () {
    type Output = ();
    fn output(&self) {}
    fn slot<'s>(&'s mut self, (): &'s mut ()) -> Option<Slot<'s>> {
        None
    }
}

impl<T: Element> Heads for View<'_, T> {
    type Output = Vec<T>;
    fn output(&self) -> Vec<T> {
        bytemuck::zeroed_vec(self.elements.len())
    }
    fn slot<'s>(&'s mut self, output: &'s mut Vec<T>) -> Option<Slot<'s>> {
        Some(self.clone().write_to(output))
    }
}

impl Heads for Slot<'_> {
    type Output = ();
    fn output(&self) {}
    fn slot<'s>(&'s mut self, (): &'s mut ()) -> Option<Slot<'s>> {
        let to = self.to.take().and_then(|to| to.into_inner().ok());
        let (place, output_place) = (self.place.take(), self.output_place.take());
        Some(Slot { place, output_place, ..Slot::new(self.dtype, self.shape.clone(), self.from, to) })
    }
}

impl<T: Element> Heads for &mut SharedTensor<T> {
    type Output = ();
    fn output(&self) {}
    fn slot<'s>(&'s mut self, (): &'s mut ()) -> Option<Slot<'s>> {
        Some(Slot::from(&mut **self))
    }
}

/// An array that is not row-major, or has gaps, is copied to the memory of the result, and rotated in this memory.
#[cfg(feature = "ndarray")]
impl<T: Element, S, D> Heads for &ndarray::ArrayBase<S, D>
where
    S: ndarray::Data<Elem = T> + Sync,
    D: ndarray::Dimension,
{
    type Output = ndarray::Array<T, D>;
    fn output(&self) -> Self::Output {
        match self.as_slice() {
            Some(_) => ndarray::Array::from_elem(self.raw_dim(), T::zeroed()),
            None => self.as_standard_layout().into_owned(),
        }
    }
    fn slot<'s>(&'s mut self, output: &'s mut Self::Output) -> Option<Slot<'s>> {
        let to = output.as_slice_mut().map(bytemuck::cast_slice_mut);
        let from = self.as_slice().map(bytemuck::cast_slice);
        Some(Slot::new(T::DTYPE.unwrap_or_default(), extents(self.shape()), from, to))
    }
}
