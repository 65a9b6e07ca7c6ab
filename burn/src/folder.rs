//! The weight file of a model folder, and the comparison of its tensors with a model's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The weight files that portkit writes, and the program that reads each.
const WRITTEN: [(&str, &str); 3] = [
    ("model.bpk", "portkit-burn"),
    ("model.safetensors", "portkit-burn"),
    ("model.mpk", "portkit-burn-legacy"),
];

/// Words in the names of a Hugging Face BERT, of which Burn's have none.
const HUGGING_FACE: [&str; 2] = [".attention.self.", "LayerNorm."];

/// Tensor names with their shapes.
pub type Shapes = BTreeMap<String, Vec<usize>>;

/// The only weight file of a folder among the names that can be read.
///
/// # Errors
/// [`Error::Folder`] if there is none, or more than one.
pub fn weight_file(folder: &Path, names: &[&str]) -> Result<PathBuf> {
    let present: Vec<&str> = names.iter().copied().filter(|name| folder.join(name).is_file()).collect();
    match present[..] {
        [only] => Ok(folder.join(only)),
        [] => folder_error(folder, no_weight_file(folder, names)),
        _ => folder_error(
            folder,
            format!("expected one weight file, found {}: remove all but one", present.join(" and ")),
        ),
    }
}

fn no_weight_file(folder: &Path, names: &[&str]) -> String {
    let expected = names.join(" or ");
    let other = WRITTEN.iter().find(|(name, _)| folder.join(name).is_file());
    other.map_or(format!("no weight file, expected {expected}"), |(name, program)| {
        let format = names[0].trim_start_matches("model.");
        format!(
            "no weight file that is read here, expected {expected}, found {name}: `{program}` reads it, \
             or `portkit convert FOLDER NEW --to burn --format {format}` makes another folder"
        )
    })
}

fn folder_error<T>(folder: &Path, reason: String) -> Result<T> {
    let path = folder.to_path_buf();
    Err(Error::Folder { path, reason })
}

/// What to do with a file whose tensors have Hugging Face's names, where they have.
pub fn hugging_face(found: &Shapes) -> Option<String> {
    let name = found.keys().find(|name| HUGGING_FACE.iter().any(|word| name.contains(word)))?;
    Some(format!("{name} is a name of Hugging Face's, not of Burn's: `portkit convert FOLDER NEW --to burn`"))
}

/// Every difference between the tensors that a model needs and those that a file holds, sorted by kind and name.
pub fn differences(expected: &Shapes, found: &Shapes) -> Vec<String> {
    let missing = expected
        .iter()
        .filter(|(name, _)| !found.contains_key(*name))
        .map(|(name, shape)| format!("missing: {name} {shape:?}"));
    let unused = found
        .iter()
        .filter(|(name, _)| !expected.contains_key(*name))
        .map(|(name, shape)| format!("unused: {name} {shape:?}"));
    let misshapen = expected
        .iter()
        .filter_map(|(name, shape)| Some((name, shape, found.get(name)?)))
        .filter(|(_, shape, stored)| shape != stored)
        .map(|(name, shape, stored)| {
            format!("shape: {name} is {stored:?}, the configuration asks for {shape:?}")
        });
    missing.chain(unused).chain(misshapen).collect()
}
