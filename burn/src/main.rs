//! The program `portkit-burn`.

use std::path::Path;
use std::process::ExitCode;

use portkit_burn::cli::{self, Program};
use portkit_burn::{Loaded, Result, devices, load, named_device};

fn main() -> ExitCode {
    cli::main(&Program { open, devices })
}

fn open(folder: &Path, device: &str) -> Result<Loaded> {
    let on = named_device(device)?;
    Ok(Loaded { model: load(folder, &on.device)?, device: on.label })
}
