//! The heads, all of them optional parts of one module: a record names only those that it holds.

use burn::module::{Module, ModuleDisplay};
use burn::nn::{LayerNorm, Linear};
use burn::tensor::Tensor;
use burn::tensor::activation::{gelu, gelu_approximate, relu};
use burn::tensor::backend::Backend;

use crate::batch::Batch;
use crate::config::{HeadStyle, HiddenAct, ModelConfig, Task};
use crate::error::{Error, Result};
use crate::model::{Bert, BertOutput, first_token, layer_norm, linear};
use crate::outputs::NamedArray;

/// Dense, activation, layer norm, decoder.
#[derive(Module, Debug)]
pub struct LmHead<B: Backend> {
    pub dense: Linear<B>,
    pub layer_norm: LayerNorm<B>,
    pub decoder: Linear<B>,
    #[module(skip)]
    activation: HiddenAct,
}

impl<B: Backend> LmHead<B> {
    fn new(config: &ModelConfig, device: &B::Device) -> Self {
        Self {
            dense: linear(config, config.hidden_size, device),
            layer_norm: layer_norm(config, config.lm_head_eps.unwrap_or(config.layer_norm_eps), device),
            decoder: linear(config, config.vocab_size, device),
            activation: config.lm_head_act,
        }
    }

    fn forward(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3> {
        let inner = self.dense.forward(hidden);
        let inner = match self.activation {
            HiddenAct::Gelu => gelu(inner),
            HiddenAct::GeluTanh => gelu_approximate(inner),
            HiddenAct::Relu => relu(inner),
        };
        self.decoder.forward(self.layer_norm.forward(inner))
    }
}

/// RoBERTa's classifier, or the plain linear layer of all others: as names, `classifier.out_proj` or `classifier`.
pub trait Classifier<B: Backend>: Module<B> + ModuleDisplay {
    fn init(config: &ModelConfig, device: &B::Device) -> Self;
    fn logits(&self, output: &BertOutput<B>, task: Task) -> Result<NamedArray>;
}

/// Dense, tanh and projection of the first token.
#[derive(Module, Debug)]
pub struct RobertaHead<B: Backend> {
    pub dense: Linear<B>,
    pub out_proj: Linear<B>,
}

impl<B: Backend> Classifier<B> for RobertaHead<B> {
    fn init(config: &ModelConfig, device: &B::Device) -> Self {
        Self {
            dense: linear(config, config.hidden_size, device),
            out_proj: linear(config, labels(config), device),
        }
    }

    fn logits(&self, output: &BertOutput<B>, _task: Task) -> Result<NamedArray> {
        let inner = self.dense.forward(first_token(output.last())).tanh();
        array("logits", self.out_proj.forward(inner))
    }
}

impl<B: Backend> Classifier<B> for Linear<B> {
    fn init(config: &ModelConfig, device: &B::Device) -> Self {
        linear(config, labels(config), device)
    }

    fn logits(&self, output: &BertOutput<B>, task: Task) -> Result<NamedArray> {
        match task {
            Task::TokenClassification => array("logits", self.forward(output.last())),
            _ => array("logits", self.forward(output.pooled()?)),
        }
    }
}

/// The backbone under the name `bert`, and the heads of its task.
#[derive(Module, Debug)]
pub struct WithHeads<B: Backend, C: Module<B>> {
    pub bert: Bert<B>,
    pub lm_head: Option<LmHead<B>>,
    pub seq_relationship: Option<Linear<B>>,
    pub classifier: Option<C>,
    pub qa_outputs: Option<Linear<B>>,
    #[module(skip)]
    task: Task,
}

impl<B: Backend, C: Classifier<B>> WithHeads<B, C> {
    pub fn new(config: &ModelConfig, device: &B::Device) -> Self {
        use Task::*;
        let task = config.task;
        let classifies = matches!(task, SequenceClassification | TokenClassification | MultipleChoice);
        let two = || linear(config, 2, device);
        Self {
            bert: Bert::new(config, device),
            lm_head: matches!(task, MaskedLm | PreTraining).then(|| LmHead::new(config, device)),
            seq_relationship: matches!(task, NextSentence | PreTraining).then(two),
            classifier: classifies.then(|| C::init(config, device)),
            qa_outputs: (task == QuestionAnswering).then(two),
            task,
        }
    }

    pub fn run(&self, batch: &Batch, device: &B::Device) -> Result<Vec<NamedArray>> {
        let output = self.bert.encode(batch, device)?;
        let mut arrays = output.named()?;
        if let Some(head) = &self.lm_head {
            arrays.push(array("logits", head.forward(output.last()))?);
        }
        if let Some(head) = &self.seq_relationship {
            let name = if self.lm_head.is_some() { "seq_relationship_logits" } else { "logits" };
            arrays.push(array(name, head.forward(output.pooled()?))?);
        }
        if let Some(head) = &self.classifier {
            arrays.push(head.logits(&output, self.task)?);
        }
        if let Some(head) = &self.qa_outputs {
            arrays.push(array("logits", head.forward(output.last()))?);
        }
        Ok(arrays)
    }
}

impl<B: Backend> BertOutput<B> {
    /// All of it as arrays.
    pub fn named(&self) -> Result<Vec<NamedArray>> {
        let states = self.hidden_states.iter().enumerate();
        let states = states.map(|(i, state)| array(&format!("hidden_states.{i}"), state.clone()));
        let pooled = self.pooled_output.iter().map(|pooled| array("pooled_output", pooled.clone()));
        states.chain(pooled).collect()
    }

    fn last(&self) -> Tensor<B, 3> {
        self.hidden_states.last().expect("the embeddings are always there").clone()
    }

    fn pooled(&self) -> Result<Tensor<B, 2>> {
        self.pooled_output.clone().ok_or(Error::NoPooler)
    }
}

/// Whether the task's classifier is RoBERTa's.
pub fn roberta_style(config: &ModelConfig) -> bool {
    config.task == Task::SequenceClassification && config.head_style == Some(HeadStyle::Roberta)
}

fn labels(config: &ModelConfig) -> usize {
    match config.task {
        Task::MultipleChoice => 1,
        _ => config.num_labels.unwrap_or(1),
    }
}

fn array<B: Backend, const D: usize>(name: &str, tensor: Tensor<B, D>) -> Result<NamedArray> {
    let shape = tensor.dims().to_vec();
    let data = tensor.try_into_data().map_err(|e| Error::Compute(format!("{e:?}")))?;
    let values = data.convert::<f32>().into_vec().map_err(|e| Error::Compute(format!("{e:?}")))?;
    Ok(NamedArray { name: name.to_string(), shape, values })
}
