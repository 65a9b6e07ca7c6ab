//! What can go wrong, in words that name the file, the tensor and the next step.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Every failure of this crate. Lists hold all problems found, not only the first.
#[derive(Error)]
pub enum Error {
    /// A file or folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The folder does not hold exactly one weight file.
    #[error("{}: {reason}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What was found and what is expected.
        reason: String,
    },
    /// config.json is not JSON, lacks a field, or asks for a model that cannot be built.
    #[error("{}", listing("configuration", path, problems))]
    Config {
        /// The configuration file.
        path: PathBuf,
        /// One line for each problem.
        problems: Vec<String>,
    },
    /// The weight file does not hold exactly the tensors of the model.
    #[error("{}", listing("weights", path, problems))]
    Weights {
        /// The weight file.
        path: PathBuf,
        /// One line for each missing, unused or misshapen tensor.
        problems: Vec<String>,
    },
    /// The file of inputs or outputs does not hold what it should.
    #[error("{}: {reason}", path.display())]
    Arrays {
        /// The file.
        path: PathBuf,
        /// What was found and what is expected.
        reason: String,
    },
    /// The inputs do not fit the model.
    #[error("inputs: {0}")]
    Inputs(String),
    /// The head reads the pooled output of a model that has no pooler.
    #[error("the head reads the pooled output, but the model has no pooler: set with_pooling_layer")]
    NoPooler,
    /// No device has this name.
    #[error("device {name:?} is unknown here, expected {expected}")]
    UnknownDevice {
        /// The device asked for.
        name: String,
        /// The names that the program takes.
        expected: &'static str,
    },
    /// This build does not hold the backend of that name.
    #[error(
        "device {0:?} is not in this build: get it with `cargo install --path burn --features {0}`, \
         or `pip install ./burn --config-settings build-args=\"--features {0}\"`"
    )]
    NotBuilt(&'static str),
    /// The build holds the backend, and the machine has no device for it.
    #[error("device {name:?} is not on this machine: {reason}")]
    NoDevice {
        /// The device asked for.
        name: &'static str,
        /// What the backend says.
        reason: String,
    },
    /// The device failed while it computed.
    #[error("the device failed to return a tensor: {0}")]
    Compute(String),
}

/// The same words as `Display`: a `main` that returns an error prints it by `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Attaches a path to a system error: `fs::read(path).map_err(Error::io(path))`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { path, source }
    }
}

fn listing(kind: &str, path: &Path, problems: &[String]) -> String {
    let count = match problems.len() {
        1 => "1 problem".to_string(),
        n => format!("{n} problems"),
    };
    let lines: String = problems.iter().map(|p| format!("\n  {p}")).collect();
    format!("{}: {count} in the {kind}:{lines}", path.display())
}
