//! What processes of one database do for each other, a file a task.

pub mod reports;
