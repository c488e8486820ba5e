//! Memory that client and server both map. Calls send only the places of tensors in this memory. A region gives each
//! byte to only one tensor, so tensors do not overlap. The memory stays mapped until the region and all its tensors are
//! dropped.

use std::fs::Permissions;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::{MmapMut, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::retry_on_intr;
use tempfile::TempPath;
use tonic::Code;

use crate::error::{Error, Result};
use crate::retry;
use crate::slot::Slot;
use crate::tensor::{Element, bytes_of, extents};
use crate::v1::{Dtype, SharedMemory, SharedMemoryInfo};

/// Tensors of a region begin at multiples of a cache line.
const ALIGNMENT: usize = 64;

/// Name and directory of a region's file.
#[derive(Clone, Debug, Default)]
pub struct RegionOptions {
    /// `None`: the server's prefix and random digits.
    pub name: Option<String>,
    /// The path of the server's directory in this process. `None`: the server's own path.
    pub directory: Option<PathBuf>,
}

/// Memory that a server on this host maps, too; [`Client::shared_region`](crate::Client::shared_region) makes it.
/// The file is removed when the region and its last tensor are dropped.
#[derive(Debug)]
pub struct SharedRegion {
    mapping: Arc<Mapping>,
    taken: AtomicUsize,
}

/// Only tensors access the memory, and no two tensors overlap.
#[derive(Debug)]
struct Mapping {
    memory: MmapRaw,
    /// The file's name. Empty if no memory is shared.
    name: String,
    /// Removes the file when it is dropped.
    _file: Option<TempPath>,
}

impl SharedRegion {
    pub(crate) fn new(bytes: usize, info: Option<SharedMemoryInfo>, options: RegionOptions) -> Result<Self> {
        if bytes == 0 || isize::try_from(bytes).is_err() {
            return Err(Error::invalid_field("bytes", format!("is {bytes}; must be above 0, and fit memory")));
        }
        let mapping = match info {
            Some(info) => Mapping::of_file(bytes, info, options)?,
            None => {
                let memory = MmapMut::map_anon(bytes).map_err(|error| no_room(bytes, Path::new("memory"), error))?;
                Mapping { memory: memory.into(), name: String::new(), _file: None }
            }
        };
        Ok(Self { mapping: Arc::new(mapping), taken: AtomicUsize::new(0) })
    }

    /// Returns the file's name. The name is empty if the server shares no memory with the client. Calls then send the
    /// bytes.
    pub fn name(&self) -> &str {
        &self.mapping.name
    }

    /// Makes a tensor in the free memory of the region, at a multiple of 64 bytes. All elements are 0.
    pub fn tensor<T: Element>(&self, shape: impl AsRef<[usize]>) -> Result<SharedTensor<T>> {
        self.take(T::DTYPE.unwrap_or_default(), shape.as_ref())
    }

    /// Makes a tensor with elements of any type, as bytes.
    pub fn tensor_of_bytes(&self, dtype: Dtype, shape: impl AsRef<[usize]>) -> Result<SharedTensor<u8>> {
        self.take(dtype, shape.as_ref())
    }

    fn take<T: Element>(&self, dtype: Dtype, shape: &[usize]) -> Result<SharedTensor<T>> {
        if dtype == Dtype::Unspecified {
            return Err(Error::invalid_field("dtype", "is missing; tensor_of_bytes() takes it beside the shape"));
        }
        let shape = extents(shape);
        // An extent of 0 makes the tensor empty.
        let bytes = if shape.contains(&0) { Some(0) } else { bytes_of(dtype, &shape) };
        let room = |taken: usize| {
            let end = bytes?.checked_add(taken)?;
            (end <= self.mapping.memory.len()).then(|| end.next_multiple_of(ALIGNMENT).min(self.mapping.memory.len()))
        };
        let offset = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).map_err(|taken| {
            let (dtype, all) = (dtype.as_str_name(), self.mapping.memory.len());
            let fact = format!("{shape:?} of {dtype} does not fit: {taken} of the region's {all} bytes are taken");
            Error::invalid_field("shape", format!("{fact}, each tensor's up to a multiple of {ALIGNMENT}"))
        })?;
        let elements = bytes.unwrap_or(0) / size_of::<T>();
        Ok(SharedTensor { mapping: self.mapping.clone(), offset, elements, dtype, shape, kind: PhantomData })
    }
}

/// A tensor in a [`SharedRegion`]. It dereferences to a slice of its elements.
/// A call replaces an argument `&mut tensor` by its result. With [`write_to`](Self::write_to), the call writes the
/// result to another tensor. During the call, the server writes to the memory that the call has borrowed.
#[derive(Debug)]
pub struct SharedTensor<T> {
    mapping: Arc<Mapping>,
    offset: usize,
    elements: usize,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<i64>,
    kind: PhantomData<T>,
}

impl<T: Element> SharedTensor<T> {
    /// Makes a slot whose result is written to `out`, which must have the length of this tensor.
    pub fn write_to<'a>(&'a self, out: &'a mut SharedTensor<T>) -> Slot<'a> {
        let places = self.place().zip(out.place()).unzip();
        let (from, to) = (bytemuck::cast_slice(self), bytemuck::cast_slice_mut(out));
        let mut slot = Slot::new(self.dtype, self.shape.clone(), Some(from), Some(to));
        (slot.place, slot.output_place) = places;
        slot
    }

    /// Returns `None` if the server does not map the region, or the tensor has no elements.
    pub(crate) fn place(&self) -> Option<SharedMemory> {
        let named = !self.mapping.name.is_empty() && self.elements > 0;
        named.then(|| SharedMemory { name: self.mapping.name.clone(), offset: self.offset as i64 })
    }

    fn first(&self) -> *mut T {
        // An empty tensor may begin at the end of a region, which need not be aligned.
        if self.elements == 0 {
            return NonNull::dangling().as_ptr();
        }
        // The pointer is aligned, because tensors begin at cache lines and mappings at pages.
        unsafe { self.mapping.memory.as_mut_ptr().add(self.offset).cast() }
    }
}

impl<T: Element> Deref for SharedTensor<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        unsafe { std::slice::from_raw_parts(self.first(), self.elements) }
    }
}

impl<T: Element> DerefMut for SharedTensor<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.elements) }
    }
}

impl Mapping {
    /// Makes a file, allocates its full size, and maps it.
    fn of_file(bytes: usize, info: SharedMemoryInfo, options: RegionOptions) -> Result<Self> {
        if info.max_bytes > 0 && i64::try_from(bytes).is_ok_and(|bytes| bytes > info.max_bytes) {
            let fact = format!("is {bytes}; the server maps at most {}", info.max_bytes);
            return Err(Error::invalid_field("bytes", fact));
        }
        // Other callers must not be able to guess the name, as they could with tempfile's numbers.
        let random = || format!("{}{:016x}", info.prefix, retry::random());
        let name = options.name.unwrap_or_else(random);
        if !name.starts_with(&info.prefix) || name.contains('/') {
            let fact = format!("is {name:?}; must begin with {:?}, and have no '/'", info.prefix);
            return Err(Error::invalid_field("name", fact));
        }
        let directory = options.directory.unwrap_or_else(|| info.directory.into());
        let file = tempfile::Builder::new().prefix(&name).rand_bytes(0).tempfile_in(&directory);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::invalid_field("name", format!("{error}; choose another one")),
            _ => Error::invalid_field("directory", format!("{error}; must be the server's, as this process sees it")),
        })?;
        let map = || {
            // Without fallocate, the first use of the bytes would cause a signal on a full file system.
            retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, bytes as u64))?;
            // In a directory with the set-group-ID bit, files belong to the group of the directory. An example is a
            // Kubernetes volume with an fsGroup.
            if directory.metadata()?.mode() & 0o2000 != 0 {
                file.as_file().set_permissions(Permissions::from_mode(0o660))?;
            }
            MmapOptions::new().map_raw(&file)
        };
        let memory = map().map_err(|error| no_room(bytes, &directory, error))?;
        Ok(Self { memory, name, _file: Some(file.into_temp_path()) })
    }
}

fn no_room(bytes: usize, place: &Path, error: io::Error) -> Error {
    let fact = format!("no room for {bytes} in {}: {error}", place.display());
    let mut error = Error::invalid_field("bytes", fact);
    error.0.code = Code::ResourceExhausted;
    error
}
