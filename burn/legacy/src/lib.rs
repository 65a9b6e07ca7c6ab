//! Runs `model.mpk` folders on Burn 0.21, the last release that reads them.
//!
//! Configuration, inputs, outputs and command line are the files of `portkit-burn`; only what touches
//! Burn is written again, for the backend-generic modules of this release.

#[path = "../../src/batch.rs"]
pub mod batch;
#[path = "../../src/cli.rs"]
pub mod cli;
#[path = "../../src/config.rs"]
pub mod config;
#[path = "../../src/error.rs"]
pub mod error;
#[path = "../../src/folder.rs"]
pub mod folder;
pub mod heads;
#[path = "../../src/io.rs"]
pub mod io;
pub mod load;
pub mod model;
#[path = "../../src/outputs.rs"]
pub mod outputs;
#[path = "../../src/positions.rs"]
pub mod positions;

pub use error::{Error, Result};
