//! The chart in `helm/`, rendered by the real Helm: what it renders, whether Kubernetes accepts it, and what it refuses.

#![forbid(unsafe_code)]

mod alerts;
mod goldens;
mod limits;
mod pages;
mod pods;
mod policies;
mod refusals;
mod rendering;
mod schemas;
