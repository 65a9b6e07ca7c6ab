//! Records: what loads, and what is refused with which words.

use std::fs;
use std::path::Path;

use burn::backend::Flex;
use burn::module::Module;
use burn::nn::Linear;
use burn::record::{FullPrecisionSettings, NamedMpkFileRecorder};
use burn::tensor::Tensor;
use portkit_burn_legacy::batch::Batch;
use portkit_burn_legacy::config::ModelConfig;
use portkit_burn_legacy::heads::{Classifier, RobertaHead, WithHeads};
use portkit_burn_legacy::load::open;
use portkit_burn_legacy::model::Bert;
use serde_json::{Value, json};
use tempfile::TempDir;

fn config(changes: Value) -> ModelConfig {
    let mut fields = json!({
        "model_type": "bert", "vocab_size": 11, "hidden_size": 6, "num_hidden_layers": 2,
        "num_attention_heads": 3, "intermediate_size": 7, "max_position_embeddings": 9,
        "type_vocab_size": 2, "layer_norm_eps": 0.1, "hidden_dropout_prob": 0.1, "pad_token_id": 1,
        "num_labels": 4, "head_style": "bert",
    });
    let extra = changes.as_object().expect("an object").clone();
    fields.as_object_mut().expect("an object").extend(extra);
    serde_json::from_value::<ModelConfig>(fields).expect("fields").checked().expect("a model")
}

fn folder<M: Module<Flex>>(module: M, config: &ModelConfig) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = serde_json::to_string(config).unwrap();
    fs::write(folder.path().join("config.json"), text).unwrap();
    let recorder = NamedMpkFileRecorder::<FullPrecisionSettings>::new();
    module.save_file(folder.path().join("model.mpk"), &recorder).unwrap();
    folder
}

fn batch() -> Batch {
    Batch::padded(&[vec![2, 5, 7, 10, 3], vec![2, 9, 3]], 1).unwrap()
}

fn bert(changes: Value) -> (Bert<Flex>, ModelConfig) {
    let config = config(changes);
    (Bert::new(&config, &Default::default()), config)
}

/// Saves, loads and runs a model; returns the names and shapes of what follows the hidden states.
fn round_trip<C: Classifier<Flex>>(changes: Value) -> Vec<(String, Vec<usize>)> {
    let config = config(changes);
    let model = WithHeads::<Flex, C>::new(&config, &Default::default());
    let expected = model.run(&batch(), &Default::default()).unwrap();
    let folder = folder(model, &config);
    let found = open(folder.path(), "auto").unwrap().model.run(&batch()).unwrap();
    assert_eq!(found, expected);
    found.into_iter().skip(3).map(|array| (array.name, array.shape)).collect()
}

fn refused(folder: &Path) -> String {
    open(folder, "cpu").err().expect("the record does not fit").to_string()
}

#[test]
fn the_backbone_loads_with_its_pooler() {
    let (model, config) = bert(json!({"with_pooling_layer": true}));
    let expected = model.encode(&batch(), &Default::default()).unwrap().named().unwrap();
    let folder = folder(model, &config);
    let loaded = open(folder.path(), "cpu").unwrap();
    assert_eq!((loaded.model.run(&batch()).unwrap(), loaded.device.as_str()), (expected.clone(), "cpu"));
    assert_eq!(expected.last().unwrap().name, "pooled_output");
}

#[test]
fn every_task_gives_its_logits() {
    let of = |task: &str, pooler: bool| json!({"task": task, "with_pooling_layer": pooler});
    let logits = |shape: &[usize]| ("logits".to_string(), shape.to_vec());
    let pooled = || ("pooled_output".to_string(), vec![2, 6]);
    assert_eq!(round_trip::<Linear<Flex>>(of("masked_lm", false)), [logits(&[2, 5, 11])]);
    assert_eq!(round_trip::<Linear<Flex>>(of("token_classification", false)), [logits(&[2, 5, 4])]);
    assert_eq!(round_trip::<Linear<Flex>>(of("question_answering", false)), [logits(&[2, 5, 2])]);
    assert_eq!(round_trip::<Linear<Flex>>(of("next_sentence", true)), [pooled(), logits(&[2, 2])]);
    assert_eq!(round_trip::<Linear<Flex>>(of("sequence_classification", true)), [pooled(), logits(&[2, 4])]);
    assert_eq!(round_trip::<Linear<Flex>>(of("multiple_choice", true)), [pooled(), logits(&[2, 1])]);
    let relationship = ("seq_relationship_logits".to_string(), vec![2, 2]);
    let both = round_trip::<Linear<Flex>>(of("pre_training", true));
    assert_eq!(both, [pooled(), logits(&[2, 5, 11]), relationship]);
    let roberta =
        json!({"task": "sequence_classification", "head_style": "roberta", "position_scheme": "padding"});
    assert_eq!(round_trip::<RobertaHead<Flex>>(roberta), [logits(&[2, 4])]);
}

#[test]
fn both_head_styles_are_the_same_function() {
    let style = |style: &str, pooler: bool| {
        config(json!({"task": "sequence_classification", "head_style": style, "with_pooling_layer": pooler}))
    };
    let device = Default::default();
    let bert = WithHeads::<Flex, Linear<Flex>>::new(&style("bert", true), &device);
    // Weights are made when they are first used, and a copy from before would make its own.
    let expected = bert.run(&batch(), &device).unwrap().pop();
    let mut roberta = WithHeads::<Flex, RobertaHead<Flex>>::new(&style("roberta", false), &device);
    let head = RobertaHead {
        dense: bert.bert.pooler.clone().unwrap().output,
        out_proj: bert.classifier.clone().unwrap(),
    };
    roberta.bert = Bert { pooler: None, ..bert.bert.clone() };
    roberta.classifier = Some(head);
    assert_eq!(roberta.run(&batch(), &device).unwrap().pop(), expected);
}

#[test]
fn a_pooler_that_the_record_lacks_is_missed() {
    let (model, _) = bert(json!({}));
    let folder = folder(model, &config(json!({"with_pooling_layer": true})));
    let message = refused(folder.path());
    assert!(message.contains("model.mpk: 2 problems in the weights"), "{message}");
    assert!(message.contains("missing: pooler.output.weight [6, 6]"), "{message}");
}

#[test]
fn another_shape_is_named() {
    let (model, _) = bert(json!({}));
    let folder = folder(model, &config(json!({"vocab_size": 12})));
    let words = "shape: embeddings.word_embeddings.weight is [11, 6], the configuration asks for [12, 6]";
    assert!(refused(folder.path()).contains(words), "{}", refused(folder.path()));
}

#[test]
fn another_number_of_layers_is_an_error_and_no_panic() {
    let (model, _) = bert(json!({}));
    let folder = folder(model, &config(json!({"num_hidden_layers": 3})));
    assert!(refused(folder.path()).contains("2 layers, the configuration asks for 3"));
}

#[test]
fn a_record_of_another_task_is_refused() {
    let (model, _) = bert(json!({}));
    let folder = folder(model, &config(json!({"task": "masked_lm"})));
    assert!(refused(folder.path()).contains("model.mpk: 1 problem in the weights"));
}

#[test]
fn a_broken_record_is_an_error() {
    let (model, config) = bert(json!({}));
    let folder = folder(model, &config);
    fs::write(folder.path().join("model.mpk"), b"no record").unwrap();
    assert!(refused(folder.path()).contains("model.mpk: 1 problem in the weights"));
}

#[test]
fn only_the_cpu_is_there() {
    let (model, config) = bert(json!({}));
    let folder = folder(model, &config);
    let message = open(folder.path(), "cuda").err().expect("there is no such device").to_string();
    assert_eq!(message, "device \"cuda\" is unknown here, expected auto or cpu");
}

#[test]
fn masked_tokens_have_no_weight() {
    let (model, _) = bert(json!({}));
    let run = |last: i64| -> Tensor<Flex, 3> {
        let batch = Batch::new([1, 4], vec![2, 9, 3, last]).unwrap();
        let batch = batch.with_attention_mask(vec![1, 1, 1, 0]).unwrap();
        let states = model.encode(&batch, &Default::default()).unwrap().hidden_states;
        states.last().unwrap().clone().slice([0..1, 0..3])
    };
    assert_eq!(run(1).into_data(), run(8).into_data());
}
