//! The program `portkit-burn-legacy`.

use std::process::ExitCode;

use portkit_burn_legacy::{cli, load};

fn main() -> ExitCode {
    cli::main(load::open)
}
