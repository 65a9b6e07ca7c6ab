//! Weights from a folder, and the model of whatever task the folder names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Tensor};
use burn_store::burn_pack::Tensor as Stored;
use burn_store::{BurnpackStore, FloatCastAdapter, ModuleSnapshot, ModuleStore, SafetensorsStore};

use crate::config::{HeadStyle, ModelConfig, Task};
use crate::error::{Error, Result};
use crate::folder::{Shapes, differences, hugging_face, weight_file};
use crate::model::BertModel;
use crate::outputs::Runner;
use crate::pretrained::Pretrained;
use crate::tasks::{
    BertForMaskedLm, BertForMultipleChoice, BertForNextSentence, BertForPreTraining,
    BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification,
    RobertaForSequenceClassification,
};

const WEIGHT_FILES: [&str; 2] = ["model.bpk", "model.safetensors"];

/// Loads the model of the task that the folder's `config.json` names.
///
/// # Errors
/// Those of [`Pretrained::from_pretrained`].
pub fn load(folder: impl AsRef<Path>, device: &Device) -> Result<Box<dyn Runner>> {
    let folder = folder.as_ref();
    let config = ModelConfig::from_folder(folder)?;
    match (config.task, config.head_style) {
        (Task::Model, _) => boxed::<BertModel>(folder, device),
        (Task::MaskedLm, _) => boxed::<BertForMaskedLm>(folder, device),
        (Task::PreTraining, _) => boxed::<BertForPreTraining>(folder, device),
        (Task::NextSentence, _) => boxed::<BertForNextSentence>(folder, device),
        (Task::SequenceClassification, Some(HeadStyle::Roberta)) => {
            boxed::<RobertaForSequenceClassification>(folder, device)
        }
        (Task::SequenceClassification, _) => boxed::<BertForSequenceClassification>(folder, device),
        (Task::TokenClassification, _) => boxed::<BertForTokenClassification>(folder, device),
        (Task::QuestionAnswering, _) => boxed::<BertForQuestionAnswering>(folder, device),
        (Task::MultipleChoice, _) => boxed::<BertForMultipleChoice>(folder, device),
    }
}

fn boxed<M: Pretrained + 'static>(folder: &Path, device: &Device) -> Result<Box<dyn Runner>> {
    Ok(Box::new(M::from_pretrained(folder, device)?))
}

/// Fills a module with the weights of a folder, all of them and no other.
pub(crate) fn load_weights<M: Module>(module: M, folder: &Path) -> Result<M> {
    let path = weight_file(folder, &WEIGHT_FILES)?;
    if path.extension().is_some_and(|extension| extension == "bpk") {
        fill(module, BurnpackStore::from_file(&path), path)
    } else {
        fill(module, SafetensorsStore::from_file(&path), path)
    }
}

fn fill<M: Module, S: ModuleStore>(mut module: M, mut store: S, path: PathBuf) -> Result<M> {
    let failed = |problems| Error::Weights { path: path.clone(), problems };
    let stored = renamed(store.get_all_tensors().map_err(|e| failed(vec![e.to_string()]))?);
    let found = stored.iter().map(|t| (t.name.clone(), t.shape.to_vec())).collect();
    if let Some(problem) = hugging_face(&found) {
        return Err(failed(vec![problem]));
    }
    let mut problems = differences(&shapes(&module), &found);
    let wrong = stored.iter().filter(|tensor| !tensor.dtype.is_float());
    problems.extend(wrong.map(|t| format!("dtype: {} is {:?}, expected floats", t.name, t.dtype)));
    if !problems.is_empty() {
        return Err(failed(problems));
    }
    // Burn keeps a file's dtype otherwise, and the model computes in float32.
    let to_f32 = Box::new(FloatCastAdapter::to(DType::F32));
    let result = module.apply(stored, None, Some(to_f32), false);
    if result.errors.is_empty() && result.missing.is_empty() {
        Ok(module)
    } else {
        Err(failed(vec![result.to_string()]))
    }
}

/// The tensors under the names of this crate's modules.
///
/// In the dialect `linear-pooler` the pooler is its layer. A file with both names keeps both, and is refused.
fn renamed(stored: &BTreeMap<String, Stored>) -> Vec<Stored> {
    let mut tensors: Vec<Stored> = stored.values().cloned().collect();
    for tensor in &mut tensors {
        if let Some(name) = under_output(&tensor.name).filter(|name| !stored.contains_key(name)) {
            tensor.name = name;
        }
    }
    tensors
}

fn under_output(name: &str) -> Option<String> {
    let (front, leaf) = name.rsplit_once('.')?;
    let pooler = front == "pooler" || front.ends_with(".pooler");
    pooler.then(|| format!("{front}.output.{leaf}"))
}

/// The tensors that a module holds, without making them.
fn shapes<M: Module>(module: &M) -> Shapes {
    let mut visitor = ShapeVisitor::default();
    module.visit(&mut visitor);
    visitor.shapes
}

#[derive(Default)]
struct ShapeVisitor {
    path: Vec<String>,
    shapes: Shapes,
}

impl ModuleVisitor for ShapeVisitor {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.shapes.insert(self.path.join("."), param.lazy_shape().to_vec());
    }
}
