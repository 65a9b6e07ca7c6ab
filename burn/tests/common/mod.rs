//! Small models of distinct sizes, with random weights in every parameter.
#![allow(dead_code)] // Each test file uses a part of it.

use std::fs;
use std::path::Path;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Device, Distribution, Tensor, TensorData, Tolerance};
use burn_store::{ModuleSnapshot, SafetensorsStore};
use portkit_burn::{Batch, ModelConfig, Pretrained, device};
use serde_json::{Value, json};
use tempfile::TempDir;

pub fn cpu() -> Device {
    device("cpu").expect("the cpu is always there")
}

pub fn config(changes: Value) -> ModelConfig {
    let mut fields = json!({
        "model_type": "bert", "vocab_size": 11, "hidden_size": 6, "num_hidden_layers": 2,
        "num_attention_heads": 3, "intermediate_size": 7, "max_position_embeddings": 9,
        "type_vocab_size": 2, "layer_norm_eps": 0.1, "hidden_dropout_prob": 0.1, "pad_token_id": 1,
        "num_labels": 4,
    });
    let extra = changes.as_object().expect("an object").clone();
    fields.as_object_mut().expect("an object").extend(extra);
    let config: ModelConfig = serde_json::from_value(fields).expect("fields of a configuration");
    config.checked().expect("a configuration of a model")
}

/// A model with every parameter drawn from N(0, 0.3), biases and norms too.
pub fn random<M: Pretrained>(config: &ModelConfig) -> M {
    M::init(config, &cpu()).map(&mut Randomize)
}

struct Randomize;

impl ModuleMapper for Randomize {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|weight| weight.random_like(Distribution::Normal(0.0, 0.3)))
    }
}

/// The same model with its parameters in another float type.
pub fn cast<M: Module>(model: M, dtype: DType) -> M {
    model.map(&mut Cast(dtype))
}

struct Cast(DType);

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|weight| weight.cast(self.0))
    }
}

pub fn folder(config: &ModelConfig) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = serde_json::to_string(config).expect("a configuration is JSON");
    fs::write(folder.path().join("config.json"), text).expect("the folder takes files");
    folder
}

pub fn save_bpk<M: Module>(module: &M, folder: &Path) {
    let record = module.clone().into_record();
    record.save(folder.join("model.bpk")).expect("the folder takes files");
}

pub fn save_safetensors<M: Module>(module: &M, folder: &Path) {
    let mut store = SafetensorsStore::from_file(folder.join("model.safetensors"));
    module.save_into(&mut store).expect("the folder takes files");
}

/// Two rows, the second one padded, with both token types.
pub fn batch() -> Batch {
    let batch = Batch::padded(&[vec![2, 5, 7, 10, 3], vec![2, 9, 3]], 1).expect("sequences");
    let types = vec![0, 0, 1, 1, 1, 0, 1, 1, 0, 0];
    batch.with_token_type_ids(types).expect("as many types as ids")
}

pub fn assert_close(found: TensorData, expected: TensorData) {
    found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(2e-6));
}
