#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod activation;
mod batch;
pub mod cli;
mod config;
mod device;
mod error;
mod folder;
mod heads;
mod io;
mod load;
mod model;
mod outputs;
mod positions;
mod pretrained;
mod tasks;

pub use batch::{Batch, InputRules};
pub use config::{HeadStyle, HiddenAct, ModelConfig, PositionScheme, Task};
pub use device::{NamedDevice, device, devices, named_device};
pub use error::{Error, Result};
pub use heads::{LmHead, PreTrainingOutput, RobertaClassificationHead, TaskOutput};
pub use io::{read_batch, write_arrays};
pub use load::load;
pub use model::{BertEmbeddings, BertModel, BertOutput, Pooler, RobertaModel};
pub use outputs::{Loaded, NamedArray, Runner};
pub use positions::Positions;
pub use pretrained::{Named, Pretrained};
pub use tasks::{
    BertForMaskedLm, BertForMultipleChoice, BertForNextSentence, BertForPreTraining,
    BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification,
    RobertaForSequenceClassification,
};
