//! Folders: what loads, and what is refused with which words.

mod common;

use std::fs;
use std::path::Path;

use burn::module::Module;
use burn::nn::Linear;
use burn::nn::transformer::TransformerEncoder;
use burn::tensor::DType;
use common::{batch, cast, config, cpu, folder, random, save_bpk, save_safetensors};
use portkit_burn::{
    BertEmbeddings, BertForMaskedLm, BertForMultipleChoice, BertForNextSentence, BertForPreTraining,
    BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification, BertModel, Error,
    ModelConfig, Named, NamedArray, Pretrained, RobertaForSequenceClassification, load,
};
use serde_json::json;

type Save<M> = fn(&M, &Path);

/// Saves a random model with Burn's own writers and loads it again, by type and by task.
fn round_trip<M: Pretrained>(config: &ModelConfig) -> Vec<NamedArray> {
    let model: M = random(config);
    let expected = model.forward(&batch()).unwrap().named().unwrap();
    for save in [save_bpk as Save<M>, save_safetensors as Save<M>] {
        let folder = folder(config);
        save(&model, folder.path());
        let by_type = M::from_pretrained(folder.path(), &cpu()).unwrap();
        assert_eq!(by_type.forward(&batch()).unwrap().named().unwrap(), expected);
        let by_task = load(folder.path(), &cpu()).unwrap();
        assert_eq!(by_task.run(&batch()).unwrap(), expected);
    }
    expected
}

fn shapes(arrays: &[NamedArray]) -> Vec<(&str, &[usize])> {
    let after_states = arrays.iter().filter(|array| !array.name.starts_with("hidden_states."));
    after_states.map(|array| (array.name.as_str(), array.shape.as_slice())).collect()
}

#[test]
fn the_backbone_returns_every_hidden_state() {
    let outputs = round_trip::<BertModel>(&config(json!({})));
    let names: Vec<&str> = outputs.iter().map(|array| array.name.as_str()).collect();
    assert_eq!(names, ["hidden_states.0", "hidden_states.1", "hidden_states.2"]);
    assert!(outputs.iter().all(|array| array.shape == [2, 5, 6]));
}

#[test]
fn a_pooler_adds_the_pooled_output() {
    let outputs = round_trip::<BertModel>(&config(json!({"with_pooling_layer": true})));
    assert_eq!(shapes(&outputs), [("pooled_output", &[2, 6][..])]);
}

#[test]
fn masked_lm_runs_with_and_without_a_pooler() {
    let plain = round_trip::<BertForMaskedLm>(&config(json!({"task": "masked_lm"})));
    assert_eq!(shapes(&plain), [("logits", &[2, 5, 11][..])]);
    let pooled = json!({"task": "masked_lm", "with_pooling_layer": true, "lm_head_act": "relu"});
    let pooled = round_trip::<BertForMaskedLm>(&config(pooled));
    assert_eq!(shapes(&pooled), [("pooled_output", &[2, 6][..]), ("logits", &[2, 5, 11])]);
}

#[test]
fn pre_training_returns_both_scores() {
    let outputs = round_trip::<BertForPreTraining>(&config(
        json!({"task": "pre_training", "with_pooling_layer": true}),
    ));
    let scores: [(&str, &[usize]); 3] =
        [("pooled_output", &[2, 6]), ("logits", &[2, 5, 11]), ("seq_relationship_logits", &[2, 2])];
    assert_eq!(shapes(&outputs), scores);
}

#[test]
fn heads_on_the_pooler_return_a_row_of_scores() {
    let of = |task: &str| config(json!({"task": task, "with_pooling_layer": true, "head_style": "bert"}));
    let pooled = ("pooled_output", &[2, 6][..]);
    let next = round_trip::<BertForNextSentence>(&of("next_sentence"));
    assert_eq!(shapes(&next), [pooled, ("logits", &[2, 2])]);
    let labels = round_trip::<BertForSequenceClassification>(&of("sequence_classification"));
    assert_eq!(shapes(&labels), [pooled, ("logits", &[2, 4])]);
    let choice = round_trip::<BertForMultipleChoice>(&of("multiple_choice"));
    assert_eq!(shapes(&choice), [pooled, ("logits", &[2, 1])]);
}

#[test]
fn heads_on_tokens_return_scores_per_token() {
    let of = |task: &str| config(json!({"task": task}));
    let labels = round_trip::<BertForTokenClassification>(&of("token_classification"));
    assert_eq!(shapes(&labels), [("logits", &[2, 5, 4][..])]);
    let answers = round_trip::<BertForQuestionAnswering>(&of("question_answering"));
    assert_eq!(shapes(&answers), [("logits", &[2, 5, 2][..])]);
}

#[test]
fn a_roberta_classifier_has_no_pooled_output() {
    let roberta = json!({
        "task": "sequence_classification", "head_style": "roberta", "position_scheme": "padding",
        "model_type": "roberta",
    });
    let outputs = round_trip::<RobertaForSequenceClassification>(&config(roberta));
    assert_eq!(shapes(&outputs), [("logits", &[2, 4][..])]);
}

#[test]
fn half_precision_files_run_in_float32() {
    let config = config(json!({"with_pooling_layer": true}));
    for dtype in [DType::F16, DType::BF16, DType::F64] {
        let model: BertModel = random(&config);
        let stored = cast(model, dtype);
        let rounded = cast(stored.clone(), DType::F32);
        for save in [save_bpk as Save<BertModel>, save_safetensors as Save<BertModel>] {
            let folder = folder(&config);
            save(&stored, folder.path());
            let loaded = BertModel::from_pretrained(folder.path(), &cpu()).unwrap();
            let expected = rounded.forward(&batch()).unwrap().named().unwrap();
            assert_eq!(loaded.forward(&batch()).unwrap().named().unwrap(), expected);
        }
    }
}

/// The message of loading a folder that holds `saved` under a configuration for something else.
fn refusal<M: Pretrained, S: Pretrained>(saved: &ModelConfig, asked: &ModelConfig) -> String {
    let model: S = random(saved);
    let messages = [save_bpk as Save<S>, save_safetensors as Save<S>].map(|save| {
        let folder = folder(asked);
        save(&model, folder.path());
        let error = M::from_pretrained(folder.path(), &cpu()).expect_err("the tensors differ");
        assert!(matches!(error, Error::Weights { .. }), "{error}");
        error.to_string().lines().skip(1).collect::<Vec<_>>().join("\n")
    });
    assert_eq!(messages[0], messages[1]);
    messages[0].clone()
}

#[test]
fn every_missing_tensor_is_named() {
    let asked = config(json!({"with_pooling_layer": true}));
    let message = refusal::<BertModel, BertModel>(&config(json!({})), &asked);
    assert_eq!(message, "  missing: pooler.output.bias [6]\n  missing: pooler.output.weight [6, 6]");
}

/// A file whose pooler is a layer of its own, as the dialect `linear-pooler` has it.
#[derive(Module, Debug)]
struct LinearPooler {
    embeddings: BertEmbeddings,
    encoder: TransformerEncoder,
    pooler: Linear,
}

#[test]
fn a_pooler_that_is_a_layer_is_the_same_pooler() {
    let config = config(json!({"with_pooling_layer": true}));
    let model: BertModel = random(&config);
    let BertModel { embeddings, encoder, pooler } = model.clone();
    let other = LinearPooler { embeddings, encoder, pooler: pooler.unwrap().output };
    let expected = model.forward(&batch()).unwrap().named().unwrap();
    for save in [save_bpk as Save<LinearPooler>, save_safetensors as Save<LinearPooler>] {
        let folder = folder(&config);
        save(&other, folder.path());
        assert_eq!(load(folder.path(), &cpu()).unwrap().run(&batch()).unwrap(), expected);
    }
}

#[test]
fn every_unused_tensor_is_named() {
    let saved = config(json!({"with_pooling_layer": true}));
    let message = refusal::<BertModel, BertModel>(&saved, &config(json!({})));
    assert_eq!(message, "  unused: pooler.output.bias [6]\n  unused: pooler.output.weight [6, 6]");
}

#[test]
fn every_other_shape_is_named() {
    let message =
        refusal::<BertModel, BertModel>(&config(json!({})), &config(json!({"intermediate_size": 8})));
    let first = "shape: encoder.layers.0.pwff.linear_inner.bias is [7], the configuration asks for [8]";
    assert!(message.contains(first), "{message}");
    assert!(
        message.contains("linear_outer.weight is [7, 6], the configuration asks for [8, 6]"),
        "{message}"
    );
    assert_eq!(message.lines().count(), 6, "{message}");
}

#[test]
fn all_kinds_of_difference_are_listed_in_one_message() {
    let saved = config(json!({"num_hidden_layers": 3, "vocab_size": 12}));
    let asked = config(json!({"with_pooling_layer": true}));
    let message = refusal::<BertModel, BertModel>(&saved, &asked);
    for part in [
        "missing: pooler.output.weight",
        "unused: encoder.layers.2.norm_1.gamma [6]",
        "shape: embeddings.word",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_folder_needs_exactly_one_weight_file() {
    let config = config(json!({}));
    let (model, folder) = (random::<BertModel>(&config), folder(&config));
    let message = || BertModel::from_pretrained(folder.path(), &cpu()).unwrap_err().to_string();
    assert!(message().contains("no weight file, expected model.bpk or model.safetensors"), "{}", message());
    save_bpk(&model, folder.path());
    save_safetensors(&model, folder.path());
    assert!(message().contains("found model.bpk and model.safetensors: remove all but one"), "{}", message());
}

#[test]
fn a_folder_for_another_task_is_refused() {
    let folder_of = |changes| folder(&config(changes));
    let other = folder_of(json!({"task": "masked_lm"}));
    let error = BertModel::from_pretrained(other.path(), &cpu()).unwrap_err().to_string();
    assert!(error.contains("task is masked_lm, this model is for model"), "{error}");
    let style = folder_of(json!({
        "task": "sequence_classification", "head_style": "bert", "with_pooling_layer": true,
    }));
    let error =
        RobertaForSequenceClassification::from_pretrained(style.path(), &cpu()).unwrap_err().to_string();
    assert!(error.contains("head_style is \"bert\", this model has a \"roberta\" head"), "{error}");
}

#[test]
fn broken_files_are_errors_that_name_the_file() {
    let config = config(json!({}));
    for name in ["model.bpk", "model.safetensors"] {
        let folder = folder(&config);
        fs::write(folder.path().join(name), b"not weights at all").unwrap();
        let error = load(folder.path(), &cpu()).err().expect("the file is broken").to_string();
        assert!(error.contains(name), "{error}");
        fs::write(folder.path().join("config.json"), "{").unwrap();
        let error = load(folder.path(), &cpu()).err().expect("the configuration is broken").to_string();
        assert!(error.contains("config.json: 1 problem in the configuration"), "{error}");
    }
}

#[test]
fn truncated_weights_are_refused() {
    let config = config(json!({}));
    let model: BertModel = random(&config);
    for (name, save) in [("model.bpk", save_bpk as Save<BertModel>), ("model.safetensors", save_safetensors)]
    {
        let folder = folder(&config);
        save(&model, folder.path());
        let path = folder.path().join(name);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 8]).unwrap();
        let error = load(folder.path(), &cpu()).err().expect("the file is cut").to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn a_folder_without_configuration_says_so() {
    let empty = tempfile::tempdir().unwrap();
    let error = load(empty.path(), &cpu()).err().expect("nothing is there").to_string();
    assert!(error.contains("config.json: No such file"), "{error}");
}

#[test]
fn weights_of_another_program_name_it_and_the_way_out() {
    let folder = folder(&config(json!({})));
    fs::write(folder.path().join("model.mpk"), b"any").unwrap();
    let error = load(folder.path(), &cpu()).err().expect("no file that is read here").to_string();
    assert!(error.contains("found model.mpk: `portkit-burn-legacy` reads it"), "{error}");
    assert!(error.contains("`portkit convert FOLDER NEW --to burn --format bpk`"), "{error}");
}

#[test]
fn a_folder_of_hugging_face_is_answered_with_the_conversion() {
    let folder = folder(&config(json!({})));
    let name = "encoder.layer.0.attention.self.query.weight";
    let header = json!({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).to_string();
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 4]].concat();
    fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    let error = load(folder.path(), &cpu()).err().expect("the names are others").to_string();
    assert!(error.contains(&format!("{name} is a name of Hugging Face's, not of Burn's")), "{error}");
    assert!(
        error.contains("1 problem") && error.contains("`portkit convert FOLDER NEW --to burn`"),
        "{error}"
    );

    fs::write(folder.path().join("config.json"), r#"{"model_type": "bert"}"#).unwrap();
    let error = load(folder.path(), &cpu()).err().expect("fields are missing").to_string();
    assert!(error.contains("missing field") && error.contains("`portkit convert FOLDER NEW"), "{error}");
}

#[test]
fn a_main_that_returns_an_error_prints_its_words() {
    let empty = tempfile::tempdir().unwrap();
    let error = load(empty.path(), &cpu()).err().expect("nothing is there");
    assert_eq!(format!("{error:?}"), error.to_string());
}
