//! The configuration of a model: the fields of its `config.json`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The function between two linear layers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HiddenAct {
    /// The exact GELU, through the error function.
    #[default]
    Gelu,
    /// The approximation of GELU through tanh.
    GeluTanh,
    /// max(x, 0).
    Relu,
}

/// How the row of the position table is chosen for a token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PositionScheme {
    /// BERT: the index in the sequence plus `position_offset`.
    #[default]
    Absolute,
    /// RoBERTa: `pad_token_id` plus the number of tokens up to here that are not padding.
    Padding,
}

/// Where a sequence classifier keeps the dense layer that reads the first token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadStyle {
    /// In the pooler of the backbone.
    Bert,
    /// In the head itself; the backbone has no pooler.
    Roberta,
}

/// What the model is for; it decides which head the weights hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// The backbone alone.
    #[default]
    Model,
    /// A score for each word of the vocabulary at each token.
    MaskedLm,
    /// Masked language model and next sentence together.
    PreTraining,
    /// Does the second sentence follow the first?
    NextSentence,
    /// One label for the whole sequence.
    SequenceClassification,
    /// One label for each token.
    TokenClassification,
    /// Start and end of an answer.
    QuestionAnswering,
    /// A score for each choice; each row of a batch is one choice.
    MultipleChoice,
}

impl Task {
    fn reads_pooler(self, style: Option<HeadStyle>) -> bool {
        match self {
            Self::PreTraining | Self::NextSentence | Self::MultipleChoice => true,
            Self::SequenceClassification => style == Some(HeadStyle::Bert),
            _ => false,
        }
    }

    fn needs_labels(self) -> bool {
        matches!(self, Self::SequenceClassification | Self::TokenClassification)
    }
}

impl fmt::Display for HeadStyle {
    /// The name that stands in config.json.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for Task {
    /// The name that stands in config.json.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The fields of `config.json`. Fields that are not listed here are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// The family, "bert" or "roberta". It informs the reader: nothing is decided by it.
    pub model_type: String,
    /// Rows of the word table.
    pub vocab_size: usize,
    /// Width of every hidden state.
    pub hidden_size: usize,
    /// Number of encoder layers.
    pub num_hidden_layers: usize,
    /// Number of attention heads; it divides `hidden_size`.
    pub num_attention_heads: usize,
    /// Width inside the feed-forward network.
    pub intermediate_size: usize,
    /// Rows of the position table.
    pub max_position_embeddings: usize,
    /// Rows of the token type table.
    pub type_vocab_size: usize,
    /// The epsilon of every layer norm.
    pub layer_norm_eps: f64,
    /// Dropout; it acts only on an autodiff device.
    pub hidden_dropout_prob: f64,
    /// The id of the padding token.
    pub pad_token_id: i64,
    /// Whether the backbone has a pooler; absent means that it has none.
    pub with_pooling_layer: Option<bool>,
    /// The longest sequence, where it is shorter than the position table allows.
    pub max_seq_len: Option<usize>,
    /// Activation of the feed-forward networks.
    #[serde(default)]
    pub hidden_act: HiddenAct,
    /// Activation of the masked language model's head.
    #[serde(default)]
    pub lm_head_act: HiddenAct,
    /// The epsilon of that head's layer norm, where it is not `layer_norm_eps`: KerasHub has one of its own.
    pub lm_head_eps: Option<f64>,
    /// What the model is for.
    #[serde(default)]
    pub task: Task,
    /// The style of a sequence classifier.
    pub head_style: Option<HeadStyle>,
    /// Number of labels of a sequence or token classifier.
    pub num_labels: Option<usize>,
    /// How positions are numbered.
    #[serde(default)]
    pub position_scheme: PositionScheme,
    /// The first position of the absolute scheme.
    #[serde(default)]
    pub position_offset: usize,
    /// Names of the labels by their ids as text, where they are known; [`ModelConfig::labels`] has them in order.
    pub id2label: Option<BTreeMap<String, String>>,
}

impl ModelConfig {
    /// Reads and checks `config.json` of a model folder.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read; [`Error::Config`] if it describes no model.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        let path = folder.as_ref().join("config.json");
        let text = fs::read_to_string(&path).map_err(Error::io(&path))?;
        let parsed = serde_json::from_str::<Self>(&text).map_err(|e| vec![unread(&e)]);
        let checked = parsed.and_then(Self::checked);
        checked.map_err(|problems| Error::Config { path, problems })
    }

    /// The configuration itself when it describes a model, else every reason why it does not.
    pub fn checked(self) -> std::result::Result<Self, Vec<String>> {
        let problems = [self.sizes(), self.numbers(), self.positions(), self.head()].concat();
        if problems.is_empty() { Ok(self) } else { Err(problems) }
    }

    /// The names of the labels in the order of the scores, where all of them are known.
    pub fn labels(&self) -> Option<Vec<String>> {
        let (names, count) = (self.id2label.as_ref()?, self.num_labels?);
        (0..count).map(|id| names.get(&id.to_string()).cloned()).collect()
    }

    /// Whether the backbone has a pooler.
    pub fn has_pooler(&self) -> bool {
        self.with_pooling_layer.unwrap_or(false)
    }

    /// The longest sequence that the model takes.
    pub fn longest_sequence(&self) -> usize {
        let rows = self.max_position_embeddings.saturating_sub(self.first_position());
        rows.min(self.max_seq_len.unwrap_or(rows))
    }

    /// The row of the position table that the first token reads.
    fn first_position(&self) -> usize {
        match self.position_scheme {
            PositionScheme::Absolute => self.position_offset,
            PositionScheme::Padding => {
                usize::try_from(self.pad_token_id).map_or(0, |pad| pad.saturating_add(1))
            }
        }
    }

    fn sizes(&self) -> Vec<String> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_attention_heads", self.num_attention_heads),
            ("intermediate_size", self.intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
            ("type_vocab_size", self.type_vocab_size),
        ];
        let zero = sizes.iter().filter(|(_, size)| *size == 0);
        zero.map(|(name, _)| format!("{name} is 0, it must be at least 1")).collect()
    }

    fn numbers(&self) -> Vec<String> {
        let (hidden, heads) = (self.hidden_size, self.num_attention_heads);
        let (eps, dropout) = (self.layer_norm_eps, self.hidden_dropout_prob);
        let mut problems = Vec::new();
        if heads > 0 && !hidden.is_multiple_of(heads) {
            problems.push(format!("hidden_size {hidden} is not a multiple of num_attention_heads {heads}"));
        }
        for (name, eps) in [("layer_norm_eps", Some(eps)), ("lm_head_eps", self.lm_head_eps)] {
            if let Some(eps) = eps.filter(|eps| !(0.0..1.0).contains(eps)) {
                problems.push(format!("{name} is {eps}, it must be at least 0 and below 1"));
            }
        }
        if !(0.0..1.0).contains(&dropout) {
            problems.push(format!("hidden_dropout_prob is {dropout}, it must be at least 0 and below 1"));
        }
        problems
    }

    fn positions(&self) -> Vec<String> {
        let (first, rows, pad) = (self.first_position(), self.max_position_embeddings, self.pad_token_id);
        if self.position_scheme == PositionScheme::Padding && pad < 0 {
            return vec![format!("pad_token_id is {pad}, position_scheme \"padding\" needs a token's id")];
        }
        if self.longest_sequence() > 0 {
            return Vec::new();
        }
        let limit = self.max_seq_len.map_or(String::new(), |limit| format!(", and max_seq_len is {limit}"));
        vec![format!("no token fits: the first one reads row {first} of {rows} positions{limit}")]
    }

    fn head(&self) -> Vec<String> {
        let task = self.task;
        let classifies = task == Task::SequenceClassification;
        let mut problems = Vec::new();
        if classifies && self.head_style.is_none() {
            problems.push(format!("head_style is missing, {task} needs \"bert\" or \"roberta\""));
        }
        if task.needs_labels() && self.num_labels.unwrap_or(0) == 0 {
            problems.push(format!("num_labels is missing, {task} needs at least 1"));
        }
        if task.reads_pooler(self.head_style) && !self.has_pooler() {
            problems.push(format!("the head of {task} reads the pooler, but with_pooling_layer is not true"));
        }
        if classifies && self.head_style == Some(HeadStyle::Roberta) && self.has_pooler() {
            problems
                .push("with_pooling_layer is true, but a \"roberta\" head takes the pooler's place".into());
        }
        problems
    }
}

fn unread(error: &serde_json::Error) -> String {
    let hint = "`portkit convert FOLDER NEW --to burn` writes one from another framework's folder";
    if error.is_data() { format!("{error}; {hint}") } else { error.to_string() }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
