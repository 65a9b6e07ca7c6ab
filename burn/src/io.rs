//! Inputs and outputs as safetensors files.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::batch::Batch;
use crate::error::{Error, Result};

/// One output of a model: a name, a shape and row-major float32 values.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedArray {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

/// Reads `input_ids` and, where present, `attention_mask` and `token_type_ids`: int64 or int32 `[batch, length]`.
pub fn read_inputs(path: &Path) -> Result<Batch> {
    let bytes = fs::read(path).map_err(|e| Error::file(path, e))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|e| Error::file(path, e))?;
    let ids = matrix(&file, "input_ids")?
        .ok_or_else(|| Error::file(path, "input_ids is missing; an inputs file needs it"))?;
    let shape = ids.shape;
    let mut batch = Batch::new(shape[0], shape[1], ids.values)?;
    if let Some(mask) = matrix(&file, "attention_mask")? {
        batch = batch.with_attention_mask(mask.same_shape("attention_mask", shape)?)?;
    }
    if let Some(types) = matrix(&file, "token_type_ids")? {
        batch = batch.with_token_type_ids(types.same_shape("token_type_ids", shape)?)?;
    }
    Ok(batch)
}

/// Writes `outputs` as float32 beside `path` under a temporary name, then renames.
pub fn write_outputs(path: &Path, outputs: &[NamedArray]) -> Result<()> {
    let encoded: Vec<Vec<u8>> = outputs.iter().map(|o| little_endian(&o.values)).collect();
    let views = outputs
        .iter()
        .zip(&encoded)
        .map(|(o, bytes)| {
            Ok((
                o.name.as_str(),
                TensorView::new(Dtype::F32, o.shape.clone(), bytes)?,
            ))
        })
        .collect::<std::result::Result<Vec<_>, safetensors::SafeTensorError>>()
        .map_err(|e| Error::file(path, e))?;
    let bytes = safetensors::serialize(views, None).map_err(|e| Error::file(path, e))?;
    replace_file(path, &bytes)
}

fn replace_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = temporary_name(path);
    let written = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|e| {
        // The temporary may not exist; the write's own error is the one to report.
        let _ = fs::remove_file(&temporary);
        Error::file(path, e)
    })
}

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

struct Matrix {
    shape: [usize; 2],
    values: Vec<i64>,
}

impl Matrix {
    fn same_shape(self, name: &str, expected: [usize; 2]) -> Result<Vec<i64>> {
        if self.shape == expected {
            return Ok(self.values);
        }
        let found = self.shape;
        Err(Error::Input(format!(
            "{name} has shape {found:?}, but input_ids has {expected:?}"
        )))
    }
}

fn matrix(file: &SafeTensors, name: &str) -> Result<Option<Matrix>> {
    let Ok(view) = file.tensor(name) else {
        return Ok(None);
    };
    let shape: [usize; 2] = view.shape().try_into().map_err(|_| {
        Error::Input(format!(
            "{name} must be [batch, length], found shape {:?}",
            view.shape()
        ))
    })?;
    let values = integers(&view)
        .ok_or_else(|| Error::Input(format!("{name} must be int64 or int32, found {:?}", view.dtype())))?;
    Ok(Some(Matrix { shape, values }))
}

fn integers(view: &TensorView) -> Option<Vec<i64>> {
    match view.dtype() {
        Dtype::I64 => Some(
            view.data()
                .as_chunks()
                .0
                .iter()
                .map(|b| i64::from_le_bytes(*b))
                .collect(),
        ),
        Dtype::I32 => Some(
            view.data()
                .as_chunks()
                .0
                .iter()
                .map(|b| i32::from_le_bytes(*b).into())
                .collect(),
        ),
        _ => None,
    }
}
