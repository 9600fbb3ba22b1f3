//! Tests that every backend runs.
