//! What every model can do: be made from a configuration, be loaded from a folder, run on a batch.

use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, Tensor};

use crate::batch::Batch;
use crate::config::{HeadStyle, ModelConfig, Task};
use crate::error::{Error, Result};
use crate::heads::{PreTrainingOutput, TaskOutput};
use crate::load::load_weights;
use crate::model::{BertModel, BertOutput};
use crate::outputs::{NamedArray, Runner};

/// A model of one task.
pub trait Pretrained: Module {
    /// What the forward pass returns.
    type Output: Named;
    /// The task that a folder must name.
    const TASK: Task;
    /// The head style that a folder must name, for tasks that have more than one.
    const HEAD_STYLE: Option<HeadStyle> = None;

    /// A model with weights as Burn initialises them.
    fn init(config: &ModelConfig, device: &Device) -> Self;

    /// The encoder below the head.
    fn backbone(&self) -> &BertModel;

    /// The head on top of the backbone's output.
    ///
    /// # Errors
    /// [`Error::NoPooler`] if it reads a pooled output that is not there.
    fn head(&self, backbone: BertOutput) -> Result<Self::Output>;

    /// Runs backbone and head.
    ///
    /// # Errors
    /// [`Error::Inputs`] if the batch does not fit the model.
    fn forward(&self, batch: &Batch) -> Result<Self::Output> {
        self.head(self.backbone().encode(batch)?)
    }

    /// Loads `config.json` and the weight file, `model.bpk` or `model.safetensors`, of a folder.
    ///
    /// Weights are cast to float32. Every tensor of the model must be in the file, and no other.
    ///
    /// # Errors
    /// [`Error::Config`] if the folder is for another model, [`Error::Weights`] with every tensor that differs.
    fn from_pretrained(folder: impl AsRef<Path>, device: &Device) -> Result<Self> {
        let folder = folder.as_ref();
        let config = ModelConfig::from_folder(folder)?;
        check_task::<Self>(&config)
            .map_err(|problem| Error::Config { path: folder.join("config.json"), problems: vec![problem] })?;
        load_weights(Self::init(&config, device), folder)
    }
}

fn check_task<M: Pretrained>(config: &ModelConfig) -> std::result::Result<(), String> {
    if config.task != M::TASK {
        return Err(format!("task is {}, this model is for {}: `load` takes any task", config.task, M::TASK));
    }
    match (M::HEAD_STYLE, config.head_style) {
        (Some(own), Some(asked)) if own != asked => {
            Err(format!("head_style is \"{asked}\", this model has a \"{own}\" head"))
        }
        _ => Ok(()),
    }
}

impl<M: Pretrained> Runner for M {
    fn run(&self, batch: &Batch) -> Result<Vec<NamedArray>> {
        self.forward(batch)?.named()
    }
}

/// Outputs that can leave Burn as arrays.
pub trait Named {
    /// All outputs, `hidden_states.0` first.
    ///
    /// # Errors
    /// [`Error::Compute`] if the device fails.
    fn named(self) -> Result<Vec<NamedArray>>;
}

impl Named for BertOutput {
    fn named(self) -> Result<Vec<NamedArray>> {
        let states = self.hidden_states.into_iter().enumerate();
        let states = states.map(|(i, state)| array(format!("hidden_states.{i}"), state));
        let pooled = self.pooled_output.map(|pooled| array("pooled_output", pooled));
        states.chain(pooled).collect()
    }
}

impl<const D: usize> Named for TaskOutput<D> {
    fn named(self) -> Result<Vec<NamedArray>> {
        let mut arrays = self.backbone.named()?;
        arrays.push(array("logits", self.logits)?);
        Ok(arrays)
    }
}

impl Named for PreTrainingOutput {
    fn named(self) -> Result<Vec<NamedArray>> {
        let mut arrays = self.backbone.named()?;
        arrays.push(array("logits", self.logits)?);
        arrays.push(array("seq_relationship_logits", self.seq_relationship_logits)?);
        Ok(arrays)
    }
}

fn array<const D: usize>(name: impl Into<String>, tensor: Tensor<D>) -> Result<NamedArray> {
    let shape = tensor.dims().to_vec();
    let values = tensor.try_into_vec_as::<f32>().map_err(|e| Error::Compute(e.to_string()))?;
    let name = name.into();
    Ok(NamedArray { name, shape, values })
}
