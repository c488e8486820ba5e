//! Memory that client and server both map. Calls do not carry the tensors in this memory.
//! A region gives each byte to only one tensor, so tensors do not overlap. The memory stays mapped until the region and
//! all its tensors are dropped.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fchmod, open, stat};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
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

#[derive(Debug)]
struct Mapping {
    memory: NonNull<c_void>,
    bytes: usize,
    /// The file's name. Empty if no memory is shared.
    name: String,
    path: PathBuf,
}

// Only tensors access the memory, and no two tensors overlap.
unsafe impl Send for Mapping {}
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Drop cannot report a failure.
        let _ = unsafe { munmap(self.memory.as_ptr(), self.bytes) };
        if !self.name.is_empty() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl SharedRegion {
    pub(crate) fn new(bytes: usize, info: Option<SharedMemoryInfo>, options: RegionOptions) -> Result<Self> {
        if bytes == 0 || isize::try_from(bytes).is_err() {
            return Err(Error::invalid_field("bytes", format!("is {bytes}; must be above 0, and fit memory")));
        }
        let Some(info) = info else {
            let memory =
                unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
            let memory = memory.map_err(|error| no_room(bytes, Path::new("memory"), error))?;
            return Ok(Self::of(memory, bytes, String::new(), PathBuf::new()));
        };
        if info.max_bytes > 0 && i64::try_from(bytes).is_ok_and(|bytes| bytes > info.max_bytes) {
            let fact = format!("is {bytes}; the server maps at most {}", info.max_bytes);
            return Err(Error::invalid_field("bytes", fact));
        }
        let random = || format!("{}{}-{:016x}", info.prefix, std::process::id(), retry::random());
        let name = options.name.unwrap_or_else(random);
        if !name.starts_with(&info.prefix) || name.contains('/') {
            let fact = format!("is {name:?}; must begin with {:?}, and have no '/'", info.prefix);
            return Err(Error::invalid_field("name", fact));
        }
        let path = options.directory.unwrap_or_else(|| info.directory.into()).join(&name);
        let memory = new_file(&path, bytes)?;
        Ok(Self::of(memory, bytes, name, path))
    }

    fn of(memory: *mut c_void, bytes: usize, name: String, path: PathBuf) -> Self {
        let memory = NonNull::new(memory).expect("a mapping is never at 0");
        Self { mapping: Arc::new(Mapping { memory, bytes, name, path }), taken: AtomicUsize::new(0) }
    }

    /// Returns the file's name; empty if the server shares no memory with the client. Calls then send the bytes.
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
            (end <= self.mapping.bytes).then(|| end.next_multiple_of(ALIGNMENT).min(self.mapping.bytes))
        };
        let offset = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).map_err(|taken| {
            let (dtype, all) = (dtype.as_str_name(), self.mapping.bytes);
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
        let (place, output_place) = self.place().zip(out.place()).unzip();
        let (from, to) = (bytemuck::cast_slice(self), bytemuck::cast_slice_mut(out));
        Slot::new(self.dtype, self.shape.clone(), Some(from), Some(to)).at(place, output_place)
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
        unsafe { self.mapping.memory.as_ptr().cast::<u8>().add(self.offset).cast() }
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

/// Makes a file, allocates its full size, and maps it.
fn new_file(path: &Path, bytes: usize) -> Result<*mut c_void> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|error| match error {
        Errno::EXIST => {
            Error::invalid_field("name", format!("{} is there already; choose another one", path.display()))
        }
        error => {
            let fact = format!("{}: {error}; must be the server's, as this process sees it", path.display());
            Error::invalid_field("directory", fact)
        }
    })?;
    // Without fallocate, the first use of the bytes would cause a signal on a full file system.
    let made = retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, bytes as u64));
    // In a directory with the set-group-ID bit, files belong to the group of the directory. A Kubernetes volume with an
    // fsGroup is an example.
    let directory = path.parent().unwrap_or(path);
    let share_with_group = || match stat(directory)?.st_mode & 0o2000 {
        0 => Ok(()),
        _ => fchmod(&file, Mode::from_raw_mode(0o660)),
    };
    let map = || unsafe { mmap(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0) };
    made.and_then(|()| share_with_group()).and_then(|()| map()).map_err(|error| {
        let _ = std::fs::remove_file(path);
        no_room(bytes, directory, error)
    })
}

fn no_room(bytes: usize, place: &Path, error: Errno) -> Error {
    let fact = format!("no room for {bytes} in {}: {error}", place.display());
    let mut error = Error::invalid_field("bytes", fact);
    error.0.code = Code::ResourceExhausted;
    error
}
