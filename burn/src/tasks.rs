//! One model per task: the backbone under the name `bert`, and a head.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Device;

use crate::config::{HeadStyle, ModelConfig, Task};
use crate::error::Result;
use crate::heads::{LmHead, PreTrainingOutput, RobertaClassificationHead, TaskOutput, labels, linear};
use crate::model::{BertModel, BertOutput};
use crate::pretrained::Pretrained;

impl Pretrained for BertModel {
    type Output = BertOutput;
    const TASK: Task = Task::Model;

    fn init(config: &ModelConfig, device: &Device) -> Self {
        Self::new(config, device)
    }

    fn backbone(&self) -> &BertModel {
        self
    }

    fn head(&self, backbone: BertOutput) -> Result<BertOutput> {
        Ok(backbone)
    }
}

/// A model with one head. The field's name is the head's name in the weight file; `init` makes the
/// head from a configuration, `logits` computes the scores from the backbone's output.
macro_rules! model_with_head {
    (
        $(#[$doc:meta])* $name:ident, task: $task:ident, style: $style:expr, rank: $rank:literal,
        head: $field:ident: $head:ty,
        init: |$config:ident, $device:ident| $init:expr,
        logits: |$this:ident, $output:ident| $logits:expr $(,)?
    ) => {
        $(#[$doc])*
        #[derive(Module, Debug)]
        pub struct $name {
            /// The backbone.
            pub bert: BertModel,
            /// The head.
            pub $field: $head,
        }

        impl Pretrained for $name {
            type Output = TaskOutput<$rank>;
            const TASK: Task = Task::$task;
            const HEAD_STYLE: Option<HeadStyle> = $style;

            fn init($config: &ModelConfig, $device: &Device) -> Self {
                let bert = BertModel::new($config, $device);
                Self { bert, $field: $init }
            }

            fn backbone(&self) -> &BertModel {
                &self.bert
            }

            fn head(&self, $output: BertOutput) -> Result<TaskOutput<$rank>> {
                let $this = &self.$field;
                let logits = $logits;
                Ok(TaskOutput { backbone: $output, logits })
            }
        }
    };
}

model_with_head! {
    /// Scores every word of the vocabulary at every token.
    BertForMaskedLm, task: MaskedLm, style: None, rank: 3,
    head: lm_head: LmHead,
    init: |config, device| LmHead::new(config, device),
    logits: |head, output| head.forward(output.last_hidden_state()),
}

model_with_head! {
    /// Does the second sentence follow the first? Two scores per row.
    BertForNextSentence, task: NextSentence, style: None, rank: 2,
    head: seq_relationship: Linear,
    init: |config, device| linear(config, 2, device),
    logits: |head, output| head.forward(output.pooled()?),
}

model_with_head! {
    /// One label per row, with the dense layer in the backbone's pooler.
    BertForSequenceClassification, task: SequenceClassification, style: Some(HeadStyle::Bert), rank: 2,
    head: classifier: Linear,
    init: |config, device| linear(config, labels(config), device),
    logits: |head, output| head.forward(output.pooled()?),
}

model_with_head! {
    /// One label per row, with the dense layer in the head; the backbone has no pooler.
    RobertaForSequenceClassification, task: SequenceClassification, style: Some(HeadStyle::Roberta), rank: 2,
    head: classifier: RobertaClassificationHead,
    init: |config, device| RobertaClassificationHead::new(config, device),
    logits: |head, output| head.forward(output.last_hidden_state()),
}

model_with_head! {
    /// One label per token.
    BertForTokenClassification, task: TokenClassification, style: None, rank: 3,
    head: classifier: Linear,
    init: |config, device| linear(config, labels(config), device),
    logits: |head, output| head.forward(output.last_hidden_state()),
}

model_with_head! {
    /// Start (column 0) and end (column 1) of an answer, scored at every token.
    BertForQuestionAnswering, task: QuestionAnswering, style: None, rank: 3,
    head: qa_outputs: Linear,
    init: |config, device| linear(config, 2, device),
    logits: |head, output| head.forward(output.last_hidden_state()),
}

model_with_head! {
    /// One score per row; each row is one choice.
    BertForMultipleChoice, task: MultipleChoice, style: None, rank: 2,
    head: classifier: Linear,
    init: |config, device| linear(config, 1, device),
    logits: |head, output| head.forward(output.pooled()?),
}

/// Masked language model and next sentence in one.
#[derive(Module, Debug)]
pub struct BertForPreTraining {
    /// The backbone.
    pub bert: BertModel,
    /// Reads every token.
    pub lm_head: LmHead,
    /// Reads the pooled output, `[hidden_size, 2]`.
    pub seq_relationship: Linear,
}

impl Pretrained for BertForPreTraining {
    type Output = PreTrainingOutput;
    const TASK: Task = Task::PreTraining;

    fn init(config: &ModelConfig, device: &Device) -> Self {
        Self {
            bert: BertModel::new(config, device),
            lm_head: LmHead::new(config, device),
            seq_relationship: linear(config, 2, device),
        }
    }

    fn backbone(&self) -> &BertModel {
        &self.bert
    }

    fn head(&self, backbone: BertOutput) -> Result<PreTrainingOutput> {
        Ok(PreTrainingOutput {
            logits: self.lm_head.forward(backbone.last_hidden_state()),
            seq_relationship_logits: self.seq_relationship.forward(backbone.pooled()?),
            backbone,
        })
    }
}
