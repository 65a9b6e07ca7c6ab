//! The program `portkit-burn-legacy`.

use std::process::ExitCode;

use portkit_burn_legacy::cli::{self, Program};
use portkit_burn_legacy::load::{devices, open};

fn main() -> ExitCode {
    cli::main(&Program { open, devices })
}
