//! The program `portkit-burn`.

use std::process::ExitCode;

use portkit_burn::{cli, device, load};

fn main() -> ExitCode {
    cli::main(|folder, name| load(folder, &device(name)?))
}
