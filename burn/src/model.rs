//! The backbone: embeddings, encoder, optional pooler.

use burn::module::Module;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig};
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig,
};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

use crate::batch::{Batch, InputRules};
use crate::config::ModelConfig;
use crate::error::{Error, Result};

/// Word, position and token type tables, summed and normalised.
#[derive(Module, Debug)]
pub struct BertEmbeddings {
    /// Table `[vocab_size, hidden_size]`.
    pub word_embeddings: Embedding,
    /// Table `[max_position_embeddings, hidden_size]`.
    pub position_embeddings: Embedding,
    /// Table `[type_vocab_size, hidden_size]`.
    pub token_type_embeddings: Embedding,
    /// Over the hidden axis.
    pub layer_norm: LayerNorm,
    /// After the layer norm, when training.
    pub dropout: Dropout,
    #[module(skip)]
    rules: InputRules,
}

impl BertEmbeddings {
    fn new(config: &ModelConfig, device: &Device) -> Self {
        let table = |rows| EmbeddingConfig::new(rows, config.hidden_size).init(device);
        Self {
            word_embeddings: table(config.vocab_size),
            position_embeddings: table(config.max_position_embeddings),
            token_type_embeddings: table(config.type_vocab_size),
            layer_norm: layer_norm(config, config.layer_norm_eps, device),
            dropout: DropoutConfig::new(config.hidden_dropout_prob).init(),
            rules: InputRules::of(config),
        }
    }

    /// Embeds a batch. Returns `[rows, tokens, hidden_size]`.
    ///
    /// # Errors
    /// [`Error::Inputs`] if the batch does not fit the tables.
    pub fn forward(&self, batch: &Batch) -> Result<Tensor<3>> {
        let device = &self.word_embeddings.weight.device();
        let positions = self.rules.positions(batch)?;
        let ids = |values: &[i64]| -> Tensor<2, Int> {
            Tensor::from_data(TensorData::new(values.to_vec(), batch.shape()), device)
        };
        // The sum in the order of transformers, so that float32 rounds alike.
        let sum = self.word_embeddings.forward(ids(batch.input_ids()))
            + self.token_type_embeddings.forward(ids(batch.token_type_ids()))
            + self.position_embeddings.forward(ids(&positions));
        Ok(self.dropout.forward(self.layer_norm.forward(sum)))
    }
}

/// A dense layer with tanh on the first token.
#[derive(Module, Debug)]
pub struct Pooler {
    /// `[hidden_size, hidden_size]`.
    pub output: Linear,
}

impl Pooler {
    fn new(config: &ModelConfig, device: &Device) -> Self {
        Self { output: LinearConfig::new(config.hidden_size, config.hidden_size).init(device) }
    }

    /// Pools `[rows, tokens, hidden_size]` to `[rows, hidden_size]`.
    pub fn forward(&self, hidden: Tensor<3>) -> Tensor<2> {
        self.output.forward(first_token(hidden)).tanh()
    }
}

/// What the backbone returns.
#[derive(Debug, Clone)]
pub struct BertOutput {
    /// The embeddings, then the output of each layer: `[rows, tokens, hidden_size]` each.
    pub hidden_states: Vec<Tensor<3>>,
    /// `[rows, hidden_size]`, if the backbone has a pooler.
    pub pooled_output: Option<Tensor<2>>,
}

impl BertOutput {
    /// The output of the last layer, `[rows, tokens, hidden_size]`.
    pub fn last_hidden_state(&self) -> Tensor<3> {
        let last = self.hidden_states.last();
        last.expect("the embeddings are always there").clone()
    }

    /// The pooled output, `[rows, hidden_size]`.
    ///
    /// # Errors
    /// [`Error::NoPooler`] if the backbone has none.
    pub fn pooled(&self) -> Result<Tensor<2>> {
        self.pooled_output.clone().ok_or(Error::NoPooler)
    }
}

/// An encoder of the BERT kind.
#[derive(Module, Debug)]
pub struct BertModel {
    /// From token ids to vectors.
    pub embeddings: BertEmbeddings,
    /// Burn's encoder, layer norms after the residual sums.
    pub encoder: TransformerEncoder,
    /// Reads the first token, where the model has it.
    pub pooler: Option<Pooler>,
}

/// A RoBERTa backbone is the same module: its configuration numbers the positions by padding.
pub type RobertaModel = BertModel;

impl BertModel {
    /// A model with weights as Burn initialises them.
    ///
    /// # Panics
    /// If the configuration is not one that [`ModelConfig::checked`] passes.
    pub fn new(config: &ModelConfig, device: &Device) -> Self {
        Self {
            embeddings: BertEmbeddings::new(config, device),
            encoder: encoder(config, device),
            pooler: config.has_pooler().then(|| Pooler::new(config, device)),
        }
    }

    /// Runs the backbone and keeps every hidden state.
    ///
    /// # Errors
    /// [`Error::Inputs`] if the batch does not fit the model.
    pub fn encode(&self, batch: &Batch) -> Result<BertOutput> {
        let embedded = self.embeddings.forward(batch)?;
        let padding = TensorData::new(batch.padding(), batch.shape());
        let padding = Tensor::<2, Bool>::from_data(padding, &embedded.device());
        let mut hidden_states = vec![embedded.clone()];
        let mut hidden = embedded;
        for layer in &self.encoder.layers {
            hidden = layer.forward(hidden, Some(padding.clone()), None);
            hidden_states.push(hidden.clone());
        }
        let pooled_output = self.pooler.as_ref().map(|pooler| pooler.forward(hidden));
        Ok(BertOutput { hidden_states, pooled_output })
    }
}

fn encoder(config: &ModelConfig, device: &Device) -> TransformerEncoder {
    let mut encoder = TransformerEncoderConfig::new(
        config.hidden_size,
        config.intermediate_size,
        config.num_attention_heads,
        config.num_hidden_layers,
    )
    .with_dropout(config.hidden_dropout_prob)
    .with_activation(config.hidden_act.for_encoder())
    .with_layer_norm_eps(config.layer_norm_eps)
    .init(device);
    for layer in &mut encoder.layers {
        // Burn's own -1e4 is above what real tokens may score: the padding would win. transformers fills with this, too.
        layer.mha.min_float = f32::MIN.into();
    }
    encoder
}

pub(crate) fn layer_norm(config: &ModelConfig, eps: f64, device: &Device) -> LayerNorm {
    LayerNormConfig::new(config.hidden_size).with_epsilon(eps).init(device)
}

pub(crate) fn first_token(hidden: Tensor<3>) -> Tensor<2> {
    let [rows, _, width] = hidden.dims();
    hidden.slice([0..rows, 0..1]).reshape([rows, width])
}
