//! The memory of a call's tensor and of its result.

use crate::error::{Error, Result};
use crate::message::Shaped;
use crate::shared::{SharedTensor, SharedTo};
use crate::tensor::{Element, View, ViewMut, ViewTo, element_bytes};
use crate::v1::{Dtype, SharedMemory, Tensor};

enum Memory<'a> {
    Apart {
        from: &'a [u8],
        to: &'a mut [u8],
    },
    InPlace(&'a mut [u8]),
    /// A tensor only of the request.
    Sent(&'a [u8]),
    /// A tensor only of the response.
    Received(&'a mut [u8]),
}

/// Places of a tensor and its result in shared memory.
#[derive(Clone)]
pub(crate) struct Places {
    pub tensor: Option<SharedMemory>,
    pub result: Option<SharedMemory>,
}

/// A tensor of a call, with its field number, which is the same in a rotation's response.
pub(crate) struct Slot<'a> {
    pub field: u32,
    pub name: &'static str,
    pub dtype: Dtype,
    pub shape: Vec<i64>,
    /// Whether a response has delivered the result.
    pub filled: bool,
    /// The shape of the result's memory, if it has one.
    result_shape: Option<Vec<i64>>,
    /// Set if its tensor and result (or the only one of them) are in shared memory: at the same place if the result
    /// replaces the tensor.
    pub shared: Option<Places>,
    memory: Memory<'a>,
}

impl<'a> Slot<'a> {
    fn new(dtype: Dtype, shape: Vec<i64>, memory: Memory<'a>) -> Self {
        Self { field: 0, name: "", dtype, shape, filled: false, result_shape: None, shared: None, memory }
    }

    /// Borrows the slot for one attempt of a call.
    pub fn again(&mut self) -> Slot<'_> {
        let memory = match &mut self.memory {
            Memory::Apart { from, to } => Memory::Apart { from, to },
            Memory::InPlace(memory) => Memory::InPlace(memory),
            Memory::Sent(from) => Memory::Sent(from),
            Memory::Received(to) => Memory::Received(to),
        };
        let shape = self.shape.clone();
        Slot { field: self.field, name: self.name, ..Slot::new(self.dtype, shape, memory) }
    }

    /// Splits the first `bytes` off into a new slot.
    pub fn split_off(&mut self, bytes: usize) -> Slot<'a> {
        let shape = if bytes == self.bytes() { std::mem::take(&mut self.shape) } else { Vec::new() };
        self.shape.clear(); // the rest is only a part
        let memory = match &mut self.memory {
            Memory::Apart { from, to } => {
                let (first, rest) = from.split_at(bytes);
                *from = rest;
                Memory::Apart { from: first, to: to.split_off_mut(..bytes).expect("no more than there are") }
            }
            Memory::InPlace(memory) => Memory::InPlace(memory.split_off_mut(..bytes).expect("no more than there are")),
            Memory::Sent(from) => Memory::Sent(from.split_off(..bytes).expect("no more than there are")),
            Memory::Received(to) => Memory::Received(to.split_off_mut(..bytes).expect("no more than there are")),
        };
        Slot { field: self.field, name: self.name, ..Slot::new(self.dtype, shape, memory) }
    }

    pub fn shaped(&self) -> Shaped {
        Shaped { field: self.field, dtype: self.dtype, shape: self.shape.clone(), bytes: self.from().len() }
    }

    pub fn named(mut self, field: u32, name: &'static str) -> Self {
        self.field = field;
        self.name = name;
        self
    }

    pub fn from(&self) -> &[u8] {
        match &self.memory {
            Memory::Apart { from, .. } | Memory::Sent(from) => from,
            Memory::InPlace(memory) => memory,
            Memory::Received(_) => &[],
        }
    }

    /// Returns whether the request has the tensor.
    pub fn is_sent(&self) -> bool {
        !matches!(self.memory, Memory::Received(_))
    }

    /// Returns the tensor's bytes in a message, there or back.
    pub fn bytes(&self) -> usize {
        if let Memory::Received(to) = &self.memory { to.len() } else { self.from().len() }
    }

    /// Returns whether the response has its result.
    pub fn has_result(&self) -> bool {
        !matches!(self.memory, Memory::Sent(_))
    }

    /// Returns the error of a result with another size.
    pub fn misfit(&self, bytes: usize) -> Error {
        match &self.memory {
            // Only the answer shows the size.
            Memory::Received(to) => self.wrong_output(format!("has {} bytes; the result has {bytes}", to.len())),
            _ => Error::internal(format!("the answer's {} has {bytes} bytes; must have {}", self.name, self.bytes())),
        }
    }

    pub fn to(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Apart { to, .. } | Memory::Received(to) => to,
            Memory::InPlace(memory) => memory,
            Memory::Sent(_) => &mut [],
        }
    }

    /// Returns whether results overwrite the input, so that the call cannot be repeated.
    pub fn in_place(&self) -> bool {
        matches!(self.memory, Memory::InPlace(_))
    }

    pub fn element_bytes(&self) -> usize {
        element_bytes(self.dtype)
    }

    /// Returns whether the result replaces the tensor in shared memory: such a call must not be sent twice.
    pub fn in_shared_place(&self) -> bool {
        self.shared.as_ref().is_some_and(|places| places.tensor == places.result)
    }

    pub fn check_output(&self) -> Result<()> {
        let Memory::Apart { from, to } = &self.memory else { return Ok(()) };
        if let Some(shape) = self.result_shape.as_ref().filter(|&shape| *shape != self.shape) {
            return Err(self.wrong_output(other_shape(shape, &self.shape)));
        }
        if from.len() == to.len() {
            return Ok(());
        }
        Err(self.wrong_output(format!("has {} bytes; must have {}, as the tensor", to.len(), from.len())))
    }

    /// Checks type and shape of a response's tensor, which has no elements here. A part of a tensor has no known shape.
    pub fn check_answer(&self, answer: &Tensor) -> Result<()> {
        let dtype = self.dtype == Dtype::Unspecified || answer.dtype() == self.dtype;
        if dtype && (self.shape.is_empty() || answer.shape == self.shape) {
            return Ok(());
        }
        let (dtype, wanted) = (answer.dtype().as_str_name(), self.dtype.as_str_name());
        let text =
            format!("the answer's {} is {dtype} {:?}; must be {wanted} {:?}", self.name, answer.shape, self.shape);
        Err(Error::internal(text))
    }

    /// Returns an error that names the contract's field for the result's place.
    fn wrong_output(&self, fact: String) -> Error {
        Error::invalid_field(&format!("{}_output", self.name), fact)
    }
}

fn other_shape(found: &[i64], wanted: &[i64]) -> String {
    format!("has shape {found:?}; must have {wanted:?}")
}

/// A call's argument for a tensor of heads: a [`View`], whose result is a new `Vec`; a [`ViewTo`] or a [`ViewMut`],
/// which have memory for the result; `()` for no tensor; with the feature `ndarray` an array, whose result is a new
/// array.
pub trait Heads: Send {
    type Output: Send;
    #[doc(hidden)]
    type Memory: Send;
    /// Memory for the result, if the call must allocate it.
    #[doc(hidden)]
    fn memory(&self) -> Self::Memory;
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn slot<'s>(&'s mut self, memory: &'s mut Self::Memory) -> Option<Slot<'s>>;
    #[doc(hidden)]
    fn output(self, memory: Self::Memory) -> Self::Output;
}

impl Heads for () {
    type Output = ();
    type Memory = ();
    fn memory(&self) {}
    #[allow(private_interfaces)]
    fn slot<'s>(&'s mut self, _: &'s mut ()) -> Option<Slot<'s>> {
        None
    }
    fn output(self, _: ()) {}
}

impl<T: Element> Heads for View<'_, T> {
    type Output = Vec<T>;
    type Memory = Vec<T>;
    fn memory(&self) -> Vec<T> {
        bytemuck::zeroed_vec(self.elements.len())
    }
    #[allow(private_interfaces)]
    fn slot<'s>(&'s mut self, memory: &'s mut Vec<T>) -> Option<Slot<'s>> {
        let memory = Memory::Apart { from: bytemuck::cast_slice(self.elements), to: bytemuck::cast_slice_mut(memory) };
        Some(Slot::new(self.dtype, self.shape.clone(), memory))
    }
    fn output(self, memory: Vec<T>) -> Vec<T> {
        memory
    }
}

impl<T: Element> Heads for ViewTo<'_, T> {
    type Output = ();
    type Memory = ();
    fn memory(&self) {}
    #[allow(private_interfaces)]
    fn slot<'s>(&'s mut self, _: &'s mut ()) -> Option<Slot<'s>> {
        let memory =
            Memory::Apart { from: bytemuck::cast_slice(self.view.elements), to: bytemuck::cast_slice_mut(self.out) };
        Some(Slot::new(self.view.dtype, self.view.shape.clone(), memory))
    }
    fn output(self, _: ()) {}
}

impl<T: Element> Heads for ViewMut<'_, T> {
    type Output = ();
    type Memory = ();
    fn memory(&self) {}
    #[allow(private_interfaces)]
    fn slot<'s>(&'s mut self, _: &'s mut ()) -> Option<Slot<'s>> {
        let memory = Memory::InPlace(bytemuck::cast_slice_mut(self.elements));
        Some(Slot::new(self.dtype, self.shape.clone(), memory))
    }
    fn output(self, _: ()) {}
}

impl<T: Element> Heads for &mut SharedTensor<T> {
    type Output = ();
    type Memory = ();
    fn memory(&self) {}
    #[allow(private_interfaces)]
    fn slot<'s>(&'s mut self, _: &'s mut ()) -> Option<Slot<'s>> {
        let (dtype, shape, place) = (self.dtype, self.shape.clone(), self.place());
        let mut slot = Slot::new(dtype, shape, Memory::InPlace(bytemuck::cast_slice_mut(self)));
        slot.shared = place.map(|place| Places { tensor: Some(place.clone()), result: Some(place) });
        Some(slot)
    }
    fn output(self, _: ()) {}
}

impl<T: Element> Heads for SharedTo<'_, T> {
    type Output = ();
    type Memory = ();
    fn memory(&self) {}
    #[allow(private_interfaces)]
    fn slot<'s>(&'s mut self, _: &'s mut ()) -> Option<Slot<'s>> {
        // The server writes the whole result, so tensors of different sizes get no places; check_output() reports them.
        let places = self.from.place().zip(self.out.place()).filter(|_| self.from.len() == self.out.len());
        let result_shape = self.out.shape.clone();
        let memory = Memory::Apart { from: bytemuck::cast_slice(self.from), to: bytemuck::cast_slice_mut(self.out) };
        let mut slot = Slot::new(self.from.dtype, self.from.shape.clone(), memory);
        slot.result_shape = Some(result_shape);
        slot.shared = places.map(|(tensor, result)| Places { tensor: Some(tensor), result: Some(result) });
        Some(slot)
    }
    fn output(self, _: ()) {}
}

/// A tensor that a call only reads: a [`View`], or a `&SharedTensor`.
pub struct Input<'a>(pub(crate) Slot<'a>);

impl<'a, T: Element> From<View<'a, T>> for Input<'a> {
    fn from(view: View<'a, T>) -> Self {
        Self(Slot::new(view.dtype, view.shape, Memory::Sent(bytemuck::cast_slice(view.elements))))
    }
}

impl<'a, T: Element> From<&'a SharedTensor<T>> for Input<'a> {
    fn from(tensor: &'a SharedTensor<T>) -> Self {
        let mut slot = Slot::new(tensor.dtype, tensor.shape.clone(), Memory::Sent(bytemuck::cast_slice(tensor)));
        slot.shared = tensor.place().map(|place| Places { tensor: Some(place), result: None });
        Self(slot)
    }
}

/// Memory for a result: a `&mut SharedTensor`, or a mutable slice or `Vec` of its elements, or its bytes.
pub struct Output<'a>(pub(crate) Slot<'a>);

impl<'a, T: Element> From<&'a mut [T]> for Output<'a> {
    fn from(elements: &'a mut [T]) -> Self {
        let dtype = T::DTYPE.unwrap_or(Dtype::Unspecified);
        Self(Slot::new(dtype, Vec::new(), Memory::Received(bytemuck::cast_slice_mut(elements))))
    }
}

impl<'a, T: Element> From<&'a mut Vec<T>> for Output<'a> {
    fn from(elements: &'a mut Vec<T>) -> Self {
        Self::from(&mut elements[..])
    }
}

impl<'a, T: Element> From<&'a mut SharedTensor<T>> for Output<'a> {
    fn from(tensor: &'a mut SharedTensor<T>) -> Self {
        let (dtype, shape, place) = (tensor.dtype, tensor.shape.clone(), tensor.place());
        let mut slot = Slot::new(dtype, shape, Memory::Received(bytemuck::cast_slice_mut(tensor)));
        slot.shared = place.map(|place| Places { tensor: None, result: Some(place) });
        Self(slot)
    }
}

impl Output<'_> {
    /// Fails if the result is known to have another type, shape or size. A result of unknown size comes as bytes,
    /// because the server would write the whole result to a place.
    pub(crate) fn check(&mut self, dtype: Dtype, shape: Option<impl AsRef<[i64]>>) -> Result<()> {
        let slot = &mut self.0;
        if slot.dtype != Dtype::Unspecified && slot.dtype != dtype {
            let fact = format!("is {}; must be {}", slot.dtype.as_str_name(), dtype.as_str_name());
            return Err(slot.wrong_output(fact));
        }
        let shape = shape.as_ref().map(AsRef::as_ref);
        // Memory without a shape fits any shape.
        if let Some(shape) = shape.filter(|&shape| !slot.shape.is_empty() && slot.shape != shape) {
            return Err(slot.wrong_output(other_shape(&slot.shape, shape)));
        }
        let extents = shape.into_iter().flatten();
        let bytes = extents.fold(shape.map(|_| element_bytes(dtype)), |bytes, &extent| {
            bytes?.checked_mul(usize::try_from(extent).ok()?)
        });
        match bytes {
            Some(bytes) if bytes != slot.bytes() => Err(slot.misfit(bytes)),
            Some(_) => Ok(()),
            None => {
                slot.shared = None;
                Ok(())
            }
        }
    }
}

/// Arrays in any memory order: arrays that are not row-major without gaps are copied once.
#[cfg(feature = "ndarray")]
impl<T: Element, S, D> Heads for &ndarray::ArrayBase<S, D>
where
    S: ndarray::Data<Elem = T> + Sync,
    D: ndarray::Dimension,
{
    type Output = ndarray::Array<T, D>;
    type Memory = (Option<Vec<T>>, Vec<T>);
    fn memory(&self) -> Self::Memory {
        let copy = self.as_slice().is_none().then(|| self.iter().copied().collect());
        (copy, bytemuck::zeroed_vec(self.len()))
    }
    #[allow(private_interfaces)]
    fn slot<'s>(&'s mut self, memory: &'s mut Self::Memory) -> Option<Slot<'s>> {
        let (copy, out) = memory;
        let elements = copy.as_deref().or(self.as_slice()).unwrap_or_default();
        let shape = self.shape().iter().map(|&extent| extent as i64).collect();
        let memory = Memory::Apart { from: bytemuck::cast_slice(elements), to: bytemuck::cast_slice_mut(out) };
        Some(Slot::new(T::DTYPE.unwrap_or(Dtype::Unspecified), shape, memory))
    }
    fn output(self, memory: Self::Memory) -> Self::Output {
        ndarray::Array::from_shape_vec(self.raw_dim(), memory.1).expect("as many elements as the input has")
    }
}
