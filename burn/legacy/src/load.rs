//! Weights from a `model.mpk`, checked against the configuration.

use std::path::Path;

use burn::backend::Flex;
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::Linear;
use burn::record::{FullPrecisionSettings, NamedMpkFileRecorder, Recorder};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::batch::Batch;
use crate::config::{ModelConfig, Task};
use crate::error::{Error, Result};
use crate::folder::{Shapes, differences, weight_file};
use crate::heads::{Classifier, RobertaHead, WithHeads, roberta_style};
use crate::model::{Bert, BertRecord};
use crate::outputs::{Loaded, NamedArray, Runner};

type Cpu = Flex;
type Device = <Cpu as burn::tensor::backend::BackendTypes>::Device;

/// Loads the model of the task that the folder's `config.json` names; `device` must be "cpu" or "auto".
///
/// # Errors
/// [`Error::Weights`] if a tensor is missing or of another shape. A record is read by field names,
/// so a tensor that the model has no field for goes unnoticed.
pub fn open(folder: &Path, device: &str) -> Result<Loaded> {
    match device {
        "auto" | "cpu" => Ok(Loaded { model: load(folder)?, device: "cpu".to_string() }),
        _ => Err(Error::UnknownDevice { name: device.to_string(), expected: "auto or cpu" }),
    }
}

/// The one device of this program.
pub fn devices() -> Vec<(&'static str, Result<String>)> {
    vec![("cpu", Ok("cpu".to_string()))]
}

fn load(folder: &Path) -> Result<Box<dyn Runner>> {
    let config = ModelConfig::from_folder(folder)?;
    let device = Device::default();
    if config.task == Task::Model {
        let model = filled(Bert::<Cpu>::new(&config, &device), folder, &config, |record| record)?;
        return Ok(Box::new(model));
    }
    if roberta_style(&config) {
        with_heads::<RobertaHead<Cpu>>(folder, &config)
    } else {
        with_heads::<Linear<Cpu>>(folder, &config)
    }
}

fn with_heads<C: Classifier<Cpu> + 'static>(folder: &Path, config: &ModelConfig) -> Result<Box<dyn Runner>> {
    let model = WithHeads::<Cpu, C>::new(config, &Device::default());
    Ok(Box::new(filled(model, folder, config, |record| &record.bert)?))
}

impl Runner for Bert<Cpu> {
    fn run(&self, batch: &Batch) -> Result<Vec<NamedArray>> {
        self.encode(batch, &Device::default())?.named()
    }
}

impl<C: Classifier<Cpu>> Runner for WithHeads<Cpu, C> {
    fn run(&self, batch: &Batch) -> Result<Vec<NamedArray>> {
        self.run(batch, &Device::default())
    }
}

fn filled<M: Module<Cpu>>(
    module: M,
    folder: &Path,
    config: &ModelConfig,
    backbone: impl Fn(&M::Record) -> &BertRecord<Cpu>,
) -> Result<M> {
    let path = weight_file(folder, &["model.mpk"])?;
    let failed = |problems| Error::Weights { path: path.clone(), problems };
    let recorder = NamedMpkFileRecorder::<FullPrecisionSettings>::new();
    let record: M::Record =
        recorder.load(path.clone(), &Device::default()).map_err(|e| failed(vec![e.to_string()]))?;
    // Burn panics on another number of layers, and takes other shapes and absent options as they come.
    let (layers, expected) = (backbone(&record).encoder.layers.len(), config.num_hidden_layers);
    if layers != expected {
        return Err(failed(vec![format!("{layers} layers, the configuration asks for {expected}")]));
    }
    let wanted = shapes(&module);
    let module = module.load_record(record);
    let problems = differences(&wanted, &shapes(&module));
    if problems.is_empty() { Ok(module) } else { Err(failed(problems)) }
}

fn shapes<B: Backend, M: Module<B>>(module: &M) -> Shapes {
    let mut visitor = ShapeVisitor::default();
    module.visit(&mut visitor);
    visitor.shapes
}

#[derive(Default)]
struct ShapeVisitor {
    path: Vec<String>,
    shapes: Shapes,
}

impl<B: Backend> ModuleVisitor<B> for ShapeVisitor {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.shapes.insert(self.path.join("."), param.lazy_shape().to_vec());
    }
}
