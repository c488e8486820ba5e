//! A call's tensors and results, in the caller's memory.

use crate::error::{Error, Result};
use crate::shared::{SharedTensor, SharedTo};
use crate::tensor::{Element, View, ViewMut, ViewTo, element_bytes};
use crate::v1::{Dtype, SharedMemory, Tensor};

/// The description of a tensor in a message.
#[derive(Clone)]
pub struct Described {
    /// Number of the tensor's field, which is the same in requests and responses.
    pub(crate) field: u32,
    /// Number of the field for the result's place.
    pub(crate) output_field: u32,
    pub(crate) name: &'static str,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<i64>,
    /// Bytes of the result, or of the tensor if it has none.
    pub(crate) bytes: usize,
    /// Whether the tensor is only of the response.
    pub(crate) received: bool,
}

/// Elements to send, and memory for the result. With memory alone, the result replaces the elements there, or there are
/// none: see [`Described::received`].
pub struct Memory<'a> {
    pub(crate) from: Option<&'a [u8]>,
    pub(crate) to: Option<&'a mut [u8]>,
}

/// A tensor of a call.
pub struct Slot<'a> {
    pub(crate) tensor: Described,
    pub(crate) memory: Memory<'a>,
    /// Places of tensor and result in shared memory; the same place if the result replaces the tensor.
    pub(crate) place: Option<SharedMemory>,
    pub(crate) output_place: Option<SharedMemory>,
    /// Shape of the result's memory, if it has one of its own.
    output_shape: Option<Vec<i64>>,
}

impl<'a> Memory<'a> {
    /// Borrows the memory for one attempt of a call.
    pub(crate) fn again(&mut self) -> Memory<'_> {
        Memory { from: self.from, to: self.to.as_deref_mut() }
    }

    /// Takes the next bytes: copies the elements, and hands over the memory of their result. So a result may replace
    /// elements only after they were copied.
    pub(crate) fn next<T>(&mut self, bytes: usize, copy: impl FnOnce(&[u8]) -> T) -> (T, Option<&'a mut [u8]>) {
        let to = self.to.as_mut().and_then(|to| to.split_off_mut(..bytes));
        let from = self.from.as_mut().and_then(|from| from.split_off(..bytes));
        (copy(from.or(to.as_deref()).unwrap_or_default()), to)
    }
}

impl Described {
    /// Returns the message of the tensor without its elements.
    pub(crate) fn head(&self) -> Tensor {
        Tensor { dtype: self.dtype.into(), shape: self.shape.clone(), ..Default::default() }
    }

    /// Returns an error that names the contract's field for the result's place.
    fn wrong_output(&self, fact: String) -> Error {
        Error::invalid_field(&format!("{}_output", self.name), fact)
    }

    fn other_shape(&self, found: &[i64], wanted: &[i64]) -> Error {
        self.wrong_output(format!("has shape {found:?}; must have {wanted:?}"))
    }

    /// Fails if a result has another size than its memory.
    pub(crate) fn check_bytes(&self, bytes: usize) -> Result<()> {
        match self.bytes {
            own if own == bytes => Ok(()),
            // Only the answer shows the size.
            own if self.received => Err(self.wrong_output(format!("has {own} bytes; the result has {bytes}"))),
            own => Err(Error::internal(format!("the answer's {} has {bytes} bytes; must have {own}", self.name))),
        }
    }

    /// Checks type and shape of a response's tensor.
    pub(crate) fn check_answer(&self, answer: &Tensor) -> Result<()> {
        let dtype = self.dtype == Dtype::Unspecified || answer.dtype() == self.dtype;
        if dtype && (self.shape.is_empty() || answer.shape == self.shape) {
            return Ok(());
        }
        let (dtype, wanted) = (answer.dtype().as_str_name(), self.dtype.as_str_name());
        let text =
            format!("the answer's {} is {dtype} {:?}; must be {wanted} {:?}", self.name, answer.shape, self.shape);
        Err(Error::internal(text))
    }
}

impl<'a> Slot<'a> {
    fn new(dtype: Dtype, shape: &[i64], from: Option<&'a [u8]>, to: Option<&'a mut [u8]>) -> Self {
        let bytes = from.or(to.as_deref()).map_or(0, <[u8]>::len);
        let tensor =
            Described { field: 0, output_field: 0, name: "", dtype, shape: shape.to_vec(), bytes, received: false };
        Self { tensor, memory: Memory { from, to }, place: None, output_place: None, output_shape: None }
    }

    fn received(dtype: Dtype, shape: &[i64], to: &'a mut [u8]) -> Self {
        let mut slot = Self::new(dtype, shape, None, Some(to));
        slot.tensor.received = true;
        slot
    }

    /// Returns elements for a stream's `data`.
    pub(crate) fn of_elements(from: &'a [u8]) -> Self {
        Self::new(Dtype::Unspecified, &[], Some(from), None)
    }

    pub(crate) fn named(mut self, field: u32, output_field: u32, name: &'static str) -> Self {
        (self.tensor.field, self.tensor.output_field, self.tensor.name) = (field, output_field, name);
        self
    }

    /// Borrows the slot for another form of its call, which sends bytes.
    pub(crate) fn again(&mut self) -> Slot<'_> {
        Slot {
            tensor: self.tensor.clone(),
            memory: self.memory.again(),
            place: None,
            output_place: None,
            output_shape: None,
        }
    }

    /// Returns whether results overwrite the input, so that the call cannot be repeated.
    pub(crate) fn in_place(&self) -> bool {
        self.memory.from.is_none() && !self.tensor.received
    }

    /// Returns whether the result replaces the tensor in shared memory: such a call must not be sent twice.
    pub(crate) fn in_shared_place(&self) -> bool {
        self.place.is_some() && self.place == self.output_place
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.place.is_some() || self.output_place.is_some()
    }

    /// Fails unless memory for the result has the tensor's size, and its shape if it has one.
    pub(crate) fn check_output(&self) -> Result<()> {
        if let Some(shape) = self.output_shape.as_ref().filter(|&shape| *shape != self.tensor.shape) {
            return Err(self.tensor.other_shape(shape, &self.tensor.shape));
        }
        let (Some(from), Some(to)) = (&self.memory.from, &self.memory.to) else { return Ok(()) };
        if from.len() == to.len() {
            return Ok(());
        }
        Err(self.tensor.wrong_output(format!("has {} bytes; must have {}, as the tensor", to.len(), from.len())))
    }

    /// Fails if the result is known to have another type, shape or size. A result of unknown size comes as bytes,
    /// because the server would write the whole result to a place.
    pub(crate) fn check_result(&mut self, dtype: Dtype, shape: Option<&[i64]>) -> Result<()> {
        let tensor = &self.tensor;
        if tensor.dtype != Dtype::Unspecified && tensor.dtype != dtype {
            let fact = format!("is {}; must be {}", tensor.dtype.as_str_name(), dtype.as_str_name());
            return Err(tensor.wrong_output(fact));
        }
        let Some(shape) = shape else {
            self.output_place = None;
            return Ok(());
        };
        // Memory without a shape fits any shape.
        if !tensor.shape.is_empty() && tensor.shape != shape {
            return Err(tensor.other_shape(&tensor.shape, shape));
        }
        tensor.check_bytes(bytes_of(dtype, shape).unwrap_or(usize::MAX))
    }
}

/// Returns the bytes of a tensor; `None` if no memory has as many.
pub(crate) fn bytes_of(dtype: Dtype, shape: &[i64]) -> Option<usize> {
    shape.iter().try_fold(element_bytes(dtype), |bytes, &extent| bytes.checked_mul(usize::try_from(extent).ok()?))
}

/// A call's argument for a tensor. It decides where the result goes:
///
/// | argument | result |
/// |---|---|
/// | [`View`] | a new `Vec` |
/// | [`ViewTo`], [`SharedTo`] | the memory that it names |
/// | [`ViewMut`], `&mut` [`SharedTensor`] | replaces the tensor |
/// | `&ndarray::ArrayBase`, with the feature `ndarray` | a new array |
/// | `()` | none, because there is no tensor |
///
/// Only this crate implements it.
pub trait Heads: Send {
    type Output: Send;
    /// Makes the memory for a result that the call returns.
    #[doc(hidden)]
    fn output(&self) -> Self::Output;
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
        let (from, to) = (bytemuck::cast_slice(self.elements), bytemuck::cast_slice_mut(output));
        Some(Slot::new(self.dtype, &self.shape, Some(from), Some(to)))
    }
}

impl<T: Element> Heads for ViewTo<'_, T> {
    type Output = ();
    fn output(&self) {}
    fn slot<'s>(&'s mut self, (): &'s mut ()) -> Option<Slot<'s>> {
        let (from, to) = (bytemuck::cast_slice(self.view.elements), bytemuck::cast_slice_mut(self.out));
        Some(Slot::new(self.view.dtype, &self.view.shape, Some(from), Some(to)))
    }
}

impl<T: Element> Heads for ViewMut<'_, T> {
    type Output = ();
    fn output(&self) {}
    fn slot<'s>(&'s mut self, (): &'s mut ()) -> Option<Slot<'s>> {
        Some(Slot::new(self.dtype, &self.shape, None, Some(bytemuck::cast_slice_mut(self.elements))))
    }
}

impl<T: Element> Heads for &mut SharedTensor<T> {
    type Output = ();
    fn output(&self) {}
    fn slot<'s>(&'s mut self, (): &'s mut ()) -> Option<Slot<'s>> {
        let (dtype, shape, place) = (self.dtype, self.shape.clone(), self.place());
        let slot = Slot::new(dtype, &shape, None, Some(bytemuck::cast_slice_mut(self)));
        Some(Slot { place: place.clone(), output_place: place, ..slot })
    }
}

impl<T: Element> Heads for SharedTo<'_, T> {
    type Output = ();
    fn output(&self) {}
    fn slot<'s>(&'s mut self, (): &'s mut ()) -> Option<Slot<'s>> {
        let (place, output_place) = self.from.place().zip(self.out.place()).unzip();
        let output_shape = Some(self.out.shape.clone());
        let (from, to) = (bytemuck::cast_slice(self.from), bytemuck::cast_slice_mut(self.out));
        let slot = Slot::new(self.from.dtype, &self.from.shape, Some(from), Some(to));
        Some(Slot { place, output_place, output_shape, ..slot })
    }
}

/// An array that is not row-major without gaps is copied to the result's memory, and rotated there.
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
        let shape: Vec<i64> = self.shape().iter().map(|&extent| extent as i64).collect();
        let to = output.as_slice_mut().map(bytemuck::cast_slice_mut);
        Some(Slot::new(T::DTYPE.unwrap_or_default(), &shape, self.as_slice().map(bytemuck::cast_slice), to))
    }
}

/// A tensor that a call only reads: a [`View`], or a `&SharedTensor`.
pub struct Input<'a>(pub(crate) Slot<'a>);

impl<'a, T: Element> From<View<'a, T>> for Input<'a> {
    fn from(view: View<'a, T>) -> Self {
        Self(Slot::new(view.dtype, &view.shape, Some(bytemuck::cast_slice(view.elements)), None))
    }
}

impl<'a, T: Element> From<&'a SharedTensor<T>> for Input<'a> {
    fn from(tensor: &'a SharedTensor<T>) -> Self {
        let slot = Slot::new(tensor.dtype, &tensor.shape, Some(bytemuck::cast_slice(tensor)), None);
        Self(Slot { place: tensor.place(), ..slot })
    }
}

/// Memory for a result: a `&mut SharedTensor`, or a mutable slice or `Vec` of its elements, or its bytes.
pub struct Output<'a>(pub(crate) Slot<'a>);

impl<'a, T: Element> From<&'a mut [T]> for Output<'a> {
    fn from(elements: &'a mut [T]) -> Self {
        Self(Slot::received(T::DTYPE.unwrap_or_default(), &[], bytemuck::cast_slice_mut(elements)))
    }
}

impl<'a, T: Element> From<&'a mut Vec<T>> for Output<'a> {
    fn from(elements: &'a mut Vec<T>) -> Self {
        Self::from(&mut elements[..])
    }
}

impl<'a, T: Element> From<&'a mut SharedTensor<T>> for Output<'a> {
    fn from(tensor: &'a mut SharedTensor<T>) -> Self {
        let (dtype, shape, output_place) = (tensor.dtype, tensor.shape.clone(), tensor.place());
        Self(Slot { output_place, ..Slot::received(dtype, &shape, bytemuck::cast_slice_mut(tensor)) })
    }
}
