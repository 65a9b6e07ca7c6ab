//! `config.json`: everything besides the weights that decides what a model computes.

use std::path::Path;

use serde::Deserialize;

use crate::error::{Error, Result};

/// What a folder's model is for; decides which heads it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// The backbone alone, with or without a pooler.
    #[default]
    Model,
    MaskedLm,
    PreTraining,
    NextSentence,
    SequenceClassification,
    TokenClassification,
    QuestionAnswering,
    MultipleChoice,
}

/// Where the tanh layer of a sequence classifier lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadStyle {
    /// In the backbone, as its pooler.
    Bert,
    /// In the head, as `classifier.dense`; the backbone has no pooler.
    Roberta,
}

/// The non-linearity of the feed-forward layers or of the masked-LM head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HiddenAct {
    /// x Φ(x) with the error function.
    #[default]
    Gelu,
    /// The tanh approximation of GELU.
    GeluTanh,
    Relu,
}

/// How a token's row in the position table is found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PositionScheme {
    /// `position_offset` + index of the token (BERT: offset 0).
    #[default]
    Absolute,
    /// RoBERTa: real tokens count up from `pad_token_id` + 1, pads stay at `pad_token_id`.
    Padding,
}

/// The fields of `config.json` that this crate reads; other fields are ignored.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct BertConfig {
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub intermediate_size: usize,
    pub max_position_embeddings: usize,
    pub type_vocab_size: usize,
    pub layer_norm_eps: f64,
    #[serde(default)]
    pub pad_token_id: i64,
    #[serde(default)]
    pub with_pooling_layer: bool,
    #[serde(default)]
    pub hidden_act: HiddenAct,
    /// Of the masked-LM head; BERT uses `hidden_act` there, RoBERTa always GELU.
    #[serde(default)]
    pub lm_head_act: Option<HiddenAct>,
    #[serde(default)]
    pub position_scheme: PositionScheme,
    #[serde(default)]
    pub position_offset: usize,
    #[serde(default)]
    pub task: Task,
    #[serde(default)]
    pub head_style: Option<HeadStyle>,
    #[serde(default)]
    pub num_labels: Option<usize>,
}

impl BertConfig {
    /// Reads and checks `folder/config.json`. Errors name the file and the field.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("config.json");
        let text = std::fs::read_to_string(&path).map_err(|e| Error::config(&path, e))?;
        let config: Self = serde_json::from_str(&text).map_err(|e| Error::config(&path, e))?;
        config.check().map_err(|message| Error::config(&path, message))?;
        Ok(config)
    }

    /// All that is wrong with the fields, in one message.
    pub fn check(&self) -> std::result::Result<(), String> {
        let mut problems = self.size_problems();
        problems.extend(self.position_problem());
        problems.extend(self.head_problem());
        if !(self.layer_norm_eps > 0.0 && self.layer_norm_eps.is_finite()) {
            problems.push(format!(
                "layer_norm_eps must be above 0, found {}",
                self.layer_norm_eps
            ));
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("; "))
        }
    }

    /// The longest sequence that the position table can serve.
    pub fn usable_length(&self) -> usize {
        self.max_position_embeddings.saturating_sub(self.first_position())
    }

    /// Table row of the first real token.
    pub fn first_position(&self) -> usize {
        match self.position_scheme {
            PositionScheme::Absolute => self.position_offset,
            PositionScheme::Padding => {
                usize::try_from(self.pad_token_id.saturating_add(1)).unwrap_or(usize::MAX)
            }
        }
    }

    /// Number of classes; 1 for multiple choice, where a row is a choice. Checked to be there by [`Self::check`].
    pub fn classes(&self) -> usize {
        match self.task {
            Task::MultipleChoice => 1,
            _ => self.num_labels.unwrap_or(0),
        }
    }

    fn size_problems(&self) -> Vec<String> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("intermediate_size", self.intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
            ("type_vocab_size", self.type_vocab_size),
        ];
        let zero = sizes.iter().filter(|(_, size)| *size == 0);
        let mut problems: Vec<_> = zero
            .map(|(name, _)| format!("{name} must be above 0, found 0"))
            .collect();
        let (hidden, heads) = (self.hidden_size, self.num_attention_heads);
        if heads > 0 && hidden % heads != 0 {
            problems.push(format!(
                "hidden_size {hidden} is not a multiple of num_attention_heads {heads}"
            ));
        }
        problems
    }

    fn position_problem(&self) -> Option<String> {
        let rows = self.max_position_embeddings;
        if self.position_scheme == PositionScheme::Padding && self.pad_token_id < 0 {
            return Some(format!(
                "position_scheme padding needs pad_token_id >= 0, found {}",
                self.pad_token_id
            ));
        }
        let first = self.first_position();
        (rows > 0 && self.usable_length() == 0).then(|| {
            format!("max_position_embeddings {rows} leaves no room: the first token sits at row {first}")
        })
    }

    fn head_problem(&self) -> Option<String> {
        let pooler = self.with_pooling_layer;
        match (self.task, self.head_style) {
            (Task::SequenceClassification, None) => {
                Some("sequence_classification needs head_style: bert or roberta".into())
            }
            (Task::SequenceClassification, Some(HeadStyle::Roberta)) if pooler => Some(
                "head_style roberta has its dense layer in the head, so with_pooling_layer must be false"
                    .into(),
            ),
            (task, _) if task.reads_pooler(self.head_style) && !pooler => Some(format!(
                "task {task:?} reads the pooler, so with_pooling_layer must be true"
            )),
            (Task::SequenceClassification | Task::TokenClassification, _) if self.classes() == 0 => {
                Some(format!("task {:?} needs num_labels above 0", self.task))
            }
            _ => None,
        }
    }
}

impl Task {
    fn reads_pooler(self, style: Option<HeadStyle>) -> bool {
        match self {
            Self::PreTraining | Self::NextSentence | Self::MultipleChoice => true,
            Self::SequenceClassification => style == Some(HeadStyle::Bert),
            _ => false,
        }
    }
}
