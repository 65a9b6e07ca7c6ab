//! The code that the README shows is the example, word for word, and the example runs.

mod common;

use std::env;
use std::process::Command;

use common::{config, folder, random, save_bpk};
use portkit_burn::BertModel;
use serde_json::json;

#[test]
fn the_readme_quotes_the_example() {
    let quoted = format!("```rust,no_run\n{}```", include_str!("../examples/embed.rs"));
    assert!(include_str!("../README.md").contains(&quoted));
}

#[test]
fn the_example_prints_a_vector_for_every_token() {
    let config = config(json!({"vocab_size": 7593})); // the example's largest id is 7592
    let folder = folder(&config);
    save_bpk(&random::<BertModel>(&config), folder.path());
    // Cargo names no variable for the program of an example: it lies beside the folder of the tests.
    let tests = env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples/embed");
    let output = Command::new(program).arg(folder.path()).output().expect("`cargo test` builds the examples");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("[2, 4, 6]"), "{printed}");
}
