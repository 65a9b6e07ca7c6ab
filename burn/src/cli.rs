//! The command line of the program.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::error::Result;
use crate::io::{read_batch, write_arrays};
use crate::outputs::Loaded;

/// What the program does: everything of it that touches Burn.
pub struct Program {
    /// Loads the model of a folder onto the device of that name.
    pub open: fn(folder: &Path, device: &str) -> Result<Loaded>,
    /// Names each device, and says which one it is or why it is not there.
    pub devices: fn() -> Vec<(&'static str, Result<String>)>,
}

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
    /// List the devices, or why they are not there
    Devices,
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
    /// Where to compute: auto, cpu, cuda or wgpu
    #[arg(long, default_value = "cpu")]
    device: String,
}

impl Forward {
    fn run(&self, program: &Program) -> Result<()> {
        let batch = read_batch(&self.inputs)?;
        let loaded = (program.open)(&self.model, &self.device)?;
        write_arrays(&self.outputs, &loaded.model.run(&batch)?, &loaded.device)
    }
}

/// Runs the program; an error goes to stderr and makes the exit code 1.
pub fn main(program: &Program) -> ExitCode {
    let done = match Cli::parse().command {
        Command::Forward(forward) => forward.run(program),
        Command::Devices => {
            list(&(program.devices)());
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn list(devices: &[(&'static str, Result<String>)]) {
    for (name, found) in devices {
        match found {
            Ok(label) => println!("{label}"),
            Err(error) => println!("no {name}: {error}"),
        }
    }
}
