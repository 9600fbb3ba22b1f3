//! Albums, photos, selfies, keys, their ids and the names of their objects: plain values that know no database.

pub mod account;
pub mod album;
pub mod bib_format;
pub mod bounding_box;
pub mod cost;
pub mod credit;
pub mod download;
pub(crate) mod encoding;
pub mod erasure;
pub mod event;
pub mod gallery;
pub mod hit;
pub mod ids;
pub mod key;
pub mod object_key;
pub mod photo;
pub mod probe;
pub mod process;
pub mod rate;
pub mod start_list;
pub mod watermark;
pub mod webhook;
