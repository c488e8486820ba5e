#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod channels;
mod client;
mod error;
mod incoming;
mod local;
mod methods;
mod options;
mod outgoing;
mod retry;
mod rope;
mod shared;
mod slot;
mod table;
mod target;
mod tensor;
mod token;
pub mod v1;

pub use client::{Answers, Client, connect, connect_with};
pub use error::{Code, Error, Reason, Result};
pub use local::local;
pub use options::{CallOptions, Options, TlsOptions};
pub use rope::{Between, Config, Rope, ShiftBy, StartAt};
pub use shared::{RegionOptions, SharedRegion, SharedTensor};
pub use slot::{Heads, Slot};
pub use table::Tiles;
pub use tensor::{Element, View};
pub use v1::Dtype;
pub use v1::Layout::{self, Bhsd, Bshd, Sbhd, Thd};
