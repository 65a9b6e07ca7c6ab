//! The code that the README shows is the example, word for word.

#[test]
fn the_readme_quotes_the_example() {
    let quoted = format!("```rust,no_run\n{}```", include_str!("../examples/embed.rs"));
    assert!(include_str!("../README.md").contains(&quoted));
}
