//! The heads: small modules that turn the backbone's output into scores.

use burn::module::Module;
use burn::nn::{LayerNorm, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};

use crate::config::{HiddenAct, ModelConfig};
use crate::model::{BertOutput, first_token, layer_norm};

/// Scores every word of the vocabulary: dense, activation, layer norm, decoder.
#[derive(Module, Debug)]
pub struct LmHead {
    /// `[hidden_size, hidden_size]`.
    pub dense: Linear,
    /// Over the hidden axis.
    pub layer_norm: LayerNorm,
    /// `[hidden_size, vocab_size]`.
    pub decoder: Linear,
    #[module(skip)]
    activation: HiddenAct,
}

impl LmHead {
    pub(crate) fn new(config: &ModelConfig, device: &Device) -> Self {
        Self {
            dense: linear(config, config.hidden_size, device),
            layer_norm: layer_norm(config, config.lm_head_eps.unwrap_or(config.layer_norm_eps), device),
            decoder: linear(config, config.vocab_size, device),
            activation: config.lm_head_act,
        }
    }

    /// From `[rows, tokens, hidden_size]` to `[rows, tokens, vocab_size]`.
    pub fn forward(&self, hidden: Tensor<3>) -> Tensor<3> {
        let transformed = self.activation.apply(self.dense.forward(hidden));
        self.decoder.forward(self.layer_norm.forward(transformed))
    }
}

/// RoBERTa's classifier: dense, tanh and projection of the first token.
#[derive(Module, Debug)]
pub struct RobertaClassificationHead {
    /// `[hidden_size, hidden_size]`.
    pub dense: Linear,
    /// `[hidden_size, num_labels]`.
    pub out_proj: Linear,
}

impl RobertaClassificationHead {
    pub(crate) fn new(config: &ModelConfig, device: &Device) -> Self {
        Self {
            dense: linear(config, config.hidden_size, device),
            out_proj: linear(config, labels(config), device),
        }
    }

    /// From `[rows, tokens, hidden_size]` to `[rows, num_labels]`.
    pub fn forward(&self, hidden: Tensor<3>) -> Tensor<2> {
        self.out_proj.forward(self.dense.forward(first_token(hidden)).tanh())
    }
}

/// What a model with one head returns: `D` is 3 for a score per token, 2 for a score per row.
#[derive(Debug, Clone)]
pub struct TaskOutput<const D: usize> {
    /// What the backbone returned.
    pub backbone: BertOutput,
    /// `[rows, tokens, scores]` or `[rows, scores]`.
    pub logits: Tensor<D>,
}

/// What [`BertForPreTraining`](crate::BertForPreTraining) returns.
#[derive(Debug, Clone)]
pub struct PreTrainingOutput {
    /// What the backbone returned.
    pub backbone: BertOutput,
    /// `[rows, tokens, vocab_size]`.
    pub logits: Tensor<3>,
    /// `[rows, 2]`: the second sentence follows, or is random.
    pub seq_relationship_logits: Tensor<2>,
}

pub(crate) fn linear(config: &ModelConfig, scores: usize, device: &Device) -> Linear {
    LinearConfig::new(config.hidden_size, scores).init(device)
}

pub(crate) fn labels(config: &ModelConfig) -> usize {
    config.num_labels.unwrap_or(1)
}
