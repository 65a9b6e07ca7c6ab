//! The command line of the program.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::error::Result;
use crate::io::{read_batch, write_arrays};
use crate::outputs::Runner;

/// Loads the model of a folder onto the device of that name.
pub type Open = fn(folder: &Path, device: &str) -> Result<Box<dyn Runner>>;

#[derive(Debug, Parser)]
#[command(name = env!("CARGO_PKG_NAME"), version, about = env!("CARGO_PKG_DESCRIPTION"))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a model on a batch and write every output
    Forward(Forward),
}

#[derive(Debug, Args)]
struct Forward {
    /// Folder with config.json and one weight file
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Safetensors file: input_ids and, where wanted, attention_mask and token_type_ids
    #[arg(long, value_name = "FILE")]
    inputs: PathBuf,
    /// Safetensors file to write
    #[arg(long, value_name = "FILE")]
    outputs: PathBuf,
    /// Where to compute
    #[arg(long, default_value = "cpu")]
    device: String,
}

impl Forward {
    fn run(&self, open: Open) -> Result<()> {
        let batch = read_batch(&self.inputs)?;
        let model = open(&self.model, &self.device)?;
        write_arrays(&self.outputs, &model.run(&batch)?)
    }
}

/// Runs the program; an error goes to stderr and makes the exit code 1.
pub fn main(open: Open) -> ExitCode {
    let Command::Forward(forward) = Cli::parse().command;
    match forward.run(open) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
