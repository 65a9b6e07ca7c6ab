//! Inputs and outputs of the program: safetensors files.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::outputs::NamedArray;

const INPUTS: [&str; 3] = ["input_ids", "attention_mask", "token_type_ids"];

/// Reads a batch: `input_ids` [B, S], and where present `attention_mask` and `token_type_ids`, int64 or int32.
///
/// # Errors
/// [`Error::Io`] and [`Error::Arrays`] if the file is not of this kind; [`Error::Inputs`] if it holds no batch.
pub fn read_batch(path: &Path) -> Result<Batch> {
    let bytes = fs::read(path).map_err(Error::io(path))?;
    parse(&bytes).map_err(|reason| refused(path, reason))?.build()
}

#[derive(Default)]
struct Parsed {
    shape: [usize; 2],
    ids: Vec<i64>,
    mask: Option<Vec<i64>>,
    types: Option<Vec<i64>>,
}

impl Parsed {
    fn build(self) -> Result<Batch> {
        let mut batch = Batch::new(self.shape, self.ids)?;
        if let Some(mask) = self.mask {
            batch = batch.with_attention_mask(mask)?;
        }
        if let Some(types) = self.types {
            batch = batch.with_token_type_ids(types)?;
        }
        Ok(batch)
    }
}

fn parse(bytes: &[u8]) -> std::result::Result<Parsed, String> {
    let file = SafeTensors::deserialize(bytes).map_err(|e| e.to_string())?;
    if let Some(name) = file.names().iter().find(|name| !INPUTS.contains(name)) {
        return Err(format!("unknown array {name}, expected only {}", INPUTS.join(", ")));
    }
    let ids = file.tensor("input_ids").map_err(|_| "input_ids is missing".to_string())?;
    let shape = <[usize; 2]>::try_from(ids.shape())
        .map_err(|_| format!("input_ids has the shape {:?}, expected [rows, tokens]", ids.shape()))?;
    let optional = |name: &str| file.tensor(name).ok().map(|view| integers(name, &view, shape)).transpose();
    Ok(Parsed {
        shape,
        ids: integers("input_ids", &ids, shape)?,
        mask: optional("attention_mask")?,
        types: optional("token_type_ids")?,
    })
}

fn integers(name: &str, view: &TensorView, shape: [usize; 2]) -> std::result::Result<Vec<i64>, String> {
    if view.shape() != shape {
        return Err(format!("{name} has the shape {:?}, input_ids has {shape:?}", view.shape()));
    }
    let data = view.data();
    match view.dtype() {
        Dtype::I64 => Ok(data.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b)).collect()),
        Dtype::I32 => Ok(data.as_chunks().0.iter().map(|&b| i32::from_le_bytes(b).into()).collect()),
        other => Err(format!("{name} is {other:?}, expected I64 or I32")),
    }
}

/// Writes arrays as float32, whole or not at all: an old file stays as it is until the new one is complete.
///
/// The file's metadata says under `device` where they were computed.
///
/// # Errors
/// [`Error::Io`] if the file cannot be written; [`Error::Arrays`] if an array does not fill its shape.
pub fn write_arrays(path: &Path, arrays: &[NamedArray], device: &str) -> Result<()> {
    let content = serialize(arrays, device).map_err(|e| refused(path, e.to_string()))?;
    replace(path, &content).map_err(Error::io(path))
}

fn serialize(arrays: &[NamedArray], device: &str) -> std::result::Result<Vec<u8>, SafeTensorError> {
    let bytes: Vec<Vec<u8>> = arrays.iter().map(little_endian).collect();
    let view = |(array, bytes): (&NamedArray, _)| -> std::result::Result<_, SafeTensorError> {
        Ok((array.name.clone(), TensorView::new(Dtype::F32, array.shape.clone(), bytes)?))
    };
    let views = arrays.iter().zip(bytes.iter().map(Vec::as_slice)).map(view);
    let metadata = HashMap::from([("device".to_string(), device.to_string())]);
    safetensors::serialize(views.collect::<std::result::Result<Vec<_>, _>>()?, Some(metadata))
}

fn little_endian(array: &NamedArray) -> Vec<u8> {
    array.values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn replace(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let temporary = beside(path);
    let written = fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is the one to report; the temporary file may not even exist.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

fn refused(path: &Path, reason: String) -> Error {
    let path = path.to_path_buf();
    Error::Arrays { path, reason }
}
