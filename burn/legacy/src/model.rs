//! The backbone: embeddings, encoder, optional pooler.

use burn::module::Module;
use burn::nn::activation::ActivationConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig};
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor, TensorData};

use crate::batch::{Batch, InputRules};
use crate::config::{HiddenAct, ModelConfig};
use crate::error::Result;

/// Word, position and token type tables, summed and normalised.
#[derive(Module, Debug)]
pub struct Embeddings<B: Backend> {
    pub word_embeddings: Embedding<B>,
    pub position_embeddings: Embedding<B>,
    pub token_type_embeddings: Embedding<B>,
    pub layer_norm: LayerNorm<B>,
    #[module(skip)]
    rules: InputRules,
}

impl<B: Backend> Embeddings<B> {
    fn new(config: &ModelConfig, device: &B::Device) -> Self {
        let table = |rows| EmbeddingConfig::new(rows, config.hidden_size).init(device);
        Self {
            word_embeddings: table(config.vocab_size),
            position_embeddings: table(config.max_position_embeddings),
            token_type_embeddings: table(config.type_vocab_size),
            layer_norm: layer_norm(config, config.layer_norm_eps, device),
            rules: InputRules::of(config),
        }
    }

    fn forward(&self, batch: &Batch, device: &B::Device) -> Result<Tensor<B, 3>> {
        let positions = self.rules.positions(batch)?;
        let ids = |values: &[i64]| -> Tensor<B, 2, Int> {
            Tensor::from_data(TensorData::new(values.to_vec(), batch.shape()), device)
        };
        let sum = self.word_embeddings.forward(ids(batch.input_ids()))
            + self.token_type_embeddings.forward(ids(batch.token_type_ids()))
            + self.position_embeddings.forward(ids(&positions));
        Ok(self.layer_norm.forward(sum))
    }
}

/// A dense layer with tanh on the first token.
#[derive(Module, Debug)]
pub struct Pooler<B: Backend> {
    pub output: Linear<B>,
}

/// An encoder of the BERT kind.
#[derive(Module, Debug)]
pub struct Bert<B: Backend> {
    pub embeddings: Embeddings<B>,
    pub encoder: TransformerEncoder<B>,
    pub pooler: Option<Pooler<B>>,
}

/// Every hidden state, the embeddings first, and the pooled output of a model with a pooler.
pub struct BertOutput<B: Backend> {
    pub hidden_states: Vec<Tensor<B, 3>>,
    pub pooled_output: Option<Tensor<B, 2>>,
}

impl<B: Backend> Bert<B> {
    pub fn new(config: &ModelConfig, device: &B::Device) -> Self {
        let pooler = || Pooler { output: linear(config, config.hidden_size, device) };
        Self {
            embeddings: Embeddings::new(config, device),
            encoder: encoder(config, device),
            pooler: config.has_pooler().then(pooler),
        }
    }

    pub fn encode(&self, batch: &Batch, device: &B::Device) -> Result<BertOutput<B>> {
        let padding = TensorData::new(batch.padding(), batch.shape());
        let padding = Tensor::<B, 2, Bool>::from_data(padding, device);
        let mut hidden = self.embeddings.forward(batch, device)?;
        let mut hidden_states = vec![hidden.clone()];
        for layer in &self.encoder.layers {
            hidden = layer.forward(hidden, Some(padding.clone()), None);
            hidden_states.push(hidden.clone());
        }
        let pool = |pooler: &Pooler<B>| pooler.output.forward(first_token(hidden)).tanh();
        let pooled_output = self.pooler.as_ref().map(pool);
        Ok(BertOutput { hidden_states, pooled_output })
    }
}

fn encoder<B: Backend>(config: &ModelConfig, device: &B::Device) -> TransformerEncoder<B> {
    let activation = match config.hidden_act {
        HiddenAct::Gelu => ActivationConfig::Gelu,
        HiddenAct::GeluTanh => ActivationConfig::GeluApproximate,
        HiddenAct::Relu => ActivationConfig::Relu,
    };
    let (heads, layers) = (config.num_attention_heads, config.num_hidden_layers);
    let mut encoder =
        TransformerEncoderConfig::new(config.hidden_size, config.intermediate_size, heads, layers)
            .with_activation(activation)
            .with_layer_norm_eps(config.layer_norm_eps)
            .init(device);
    for layer in &mut encoder.layers {
        layer.mha.min_float = f32::MIN.into(); // Burn's own -1e4 is above what real tokens may score
    }
    encoder
}

pub fn linear<B: Backend>(config: &ModelConfig, scores: usize, device: &B::Device) -> Linear<B> {
    LinearConfig::new(config.hidden_size, scores).init(device)
}

pub fn layer_norm<B: Backend>(config: &ModelConfig, eps: f64, device: &B::Device) -> LayerNorm<B> {
    LayerNormConfig::new(config.hidden_size).with_epsilon(eps).init(device)
}

pub fn first_token<B: Backend>(hidden: Tensor<B, 3>) -> Tensor<B, 2> {
    let [rows, _, width] = hidden.dims();
    hidden.slice([0..rows, 0..1]).reshape([rows, width])
}
