//! The one error type of this crate: what went wrong, where, and what to do about it.

use std::path::{Path, PathBuf};

/// Everything that can go wrong between a folder on disk and the outputs of a model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `config.json` is absent, malformed, or describes a model that cannot exist.
    #[error("{}: {message}", .path.display())]
    Config { path: PathBuf, message: String },

    /// The weight file is absent, ambiguous or unreadable.
    #[error("{}: {message}", .path.display())]
    Weights { path: PathBuf, message: String },

    /// The weight file and the model disagree; every tensor concerned is listed.
    #[error("{}: {} tensor problem(s):\n  {}", .path.display(), .problems.len(), .problems.join("\n  "))]
    Tensors { path: PathBuf, problems: Vec<String> },

    /// The inputs do not fit the model.
    #[error("inputs: {0}")]
    Input(String),

    /// A file could not be read or written.
    #[error("{}: {message}", .path.display())]
    File { path: PathBuf, message: String },

    /// The asked device is not part of this build.
    #[error("{0}")]
    Device(String),
}

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn config(path: &Path, message: impl ToString) -> Self {
        let (path, message) = (path.to_owned(), message.to_string());
        Self::Config { path, message }
    }

    pub(crate) fn weights(path: &Path, message: impl ToString) -> Self {
        let (path, message) = (path.to_owned(), message.to_string());
        Self::Weights { path, message }
    }

    pub(crate) fn file(path: &Path, message: impl ToString) -> Self {
        let (path, message) = (path.to_owned(), message.to_string());
        Self::File { path, message }
    }
}
