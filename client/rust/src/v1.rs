//! The messages of the contract, `posenc.v1`, as prost generates them. Their comments specify the formulas and errors.

#![allow(clippy::doc_lazy_continuation, clippy::large_enum_variant, missing_docs, rustdoc::all)]

include!("generated/posenc.v1.rs");
