//! The function that a model computes, against the same mathematics written out.

mod common;

use burn::module::Param;
use burn::nn::Linear;
use burn::nn::transformer::TransformerEncoderLayer;
use burn::tensor::activation::softmax;
use burn::tensor::{Tensor, TensorData};
use common::{assert_close, batch, config, cpu, random};
use portkit_burn::{
    Batch, BertForMaskedLm, BertForSequenceClassification, BertModel, HiddenAct, ModelConfig, Pretrained,
    RobertaForSequenceClassification,
};
use serde_json::json;

const ACTIVATIONS: [HiddenAct; 3] = [HiddenAct::Gelu, HiddenAct::GeluTanh, HiddenAct::Relu];

fn norm(x: Tensor<2>, layer: &burn::nn::LayerNorm, eps: f64) -> Tensor<2> {
    let centered = x.clone() - x.mean_dim(1);
    let variance = (centered.clone() * centered.clone()).mean_dim(1);
    let beta = layer.beta.as_ref().expect("norms have a bias").val();
    centered / (variance + eps).sqrt() * layer.gamma.val().unsqueeze() + beta.unsqueeze()
}

fn dense(x: Tensor<2>, layer: &Linear) -> Tensor<2> {
    x.matmul(layer.weight.val()) + layer.bias.as_ref().expect("linears have a bias").val().unsqueeze()
}

/// One layer on one row of real tokens, one attention head after the other.
fn layer(x: Tensor<2>, weights: &TransformerEncoderLayer, config: &ModelConfig) -> Tensor<2> {
    let width = config.hidden_size / config.num_attention_heads;
    let head = |i: usize| {
        let part = |linear: &Linear| dense(x.clone(), linear).narrow(1, i * width, width);
        let scores = part(&weights.mha.query).matmul(part(&weights.mha.key).transpose());
        softmax(scores / (width as f64).sqrt(), 1).matmul(part(&weights.mha.value))
    };
    let heads = Tensor::cat((0..config.num_attention_heads).map(head).collect(), 1);
    let attended =
        norm(x.clone() + dense(heads, &weights.mha.output), &weights.norm_1, config.layer_norm_eps);
    let inner = config.hidden_act.apply(dense(attended.clone(), &weights.pwff.linear_inner));
    norm(attended + dense(inner, &weights.pwff.linear_outer), &weights.norm_2, config.layer_norm_eps)
}

fn rows(table: &burn::nn::Embedding, ids: &[i64]) -> Tensor<2> {
    let ids = Tensor::<1, burn::tensor::Int>::from_data(TensorData::from(ids), &cpu());
    table.weight.val().select(0, ids)
}

fn embedded(model: &BertModel, ids: &[i64], positions: &[i64], types: &[i64], eps: f64) -> Tensor<2> {
    let tables = &model.embeddings;
    let sum = rows(&tables.word_embeddings, ids)
        + rows(&tables.position_embeddings, positions)
        + rows(&tables.token_type_embeddings, types);
    norm(sum, &tables.layer_norm, eps)
}

fn first_row(state: &Tensor<3>, tokens: usize) -> TensorData {
    let [_, _, width] = state.dims();
    state.clone().slice([0..1, 0..tokens]).reshape([tokens, width]).into_data()
}

#[test]
fn every_hidden_state_follows_the_formula() {
    for act in ACTIVATIONS {
        let config = ModelConfig { hidden_act: act, ..config(json!({})) };
        let model: BertModel = random(&config);
        let states = model.forward(&batch()).unwrap().hidden_states;
        let mut x =
            embedded(&model, &[2, 5, 7, 10, 3], &[0, 1, 2, 3, 4], &[0, 0, 1, 1, 1], config.layer_norm_eps);
        assert_close(first_row(&states[0], 5), x.clone().into_data());
        for (weights, state) in model.encoder.layers.iter().zip(&states[1..]) {
            x = layer(x, weights, &config);
            assert_close(first_row(state, 5), x.clone().into_data());
        }
    }
}

#[test]
fn embeddings_read_the_positions_of_the_scheme() {
    let cases = [
        (json!({"position_offset": 3}), [3, 4, 5, 6]),
        (json!({"position_scheme": "padding", "pad_token_id": 4}), [5, 6, 4, 7]),
    ];
    for (changes, positions) in cases {
        let config = config(changes);
        let model: BertModel = random(&config);
        let batch = Batch::new([1, 4], vec![2, 5, 4, 3]).unwrap();
        let state = model.forward(&batch).unwrap().hidden_states[0].clone();
        let expected = embedded(&model, &[2, 5, 4, 3], &positions, &[0; 4], config.layer_norm_eps);
        assert_close(first_row(&state, 4), expected.into_data());
    }
}

#[test]
fn padding_changes_no_real_token() {
    for scheme in ["absolute", "padding"] {
        let model: BertModel =
            random(&config(json!({"position_scheme": scheme, "with_pooling_layer": true})));
        let alone = model.forward(&Batch::new([1, 3], vec![2, 9, 3]).unwrap()).unwrap();
        let sequences = [vec![2, 9, 3], vec![2, 5, 7, 10, 3, 4, 3]];
        let padded = model.forward(&Batch::padded(&sequences, 1).unwrap()).unwrap();
        for (one, other) in alone.hidden_states.iter().zip(&padded.hidden_states) {
            assert_close(first_row(other, 3), first_row(one, 3));
        }
        let pooled = padded.pooled().unwrap().narrow(0, 0, 1).into_data();
        assert_close(pooled, alone.pooled().unwrap().into_data());
    }
}

#[test]
fn a_masked_token_has_no_weight_at_all() {
    let model: BertModel = random(&config(json!({})));
    let run = |last: i64| {
        let batch = Batch::new([1, 4], vec![2, 9, 3, last]).unwrap();
        let output = model.forward(&batch.with_attention_mask(vec![1, 1, 1, 0]).unwrap()).unwrap();
        first_row(&output.last_hidden_state(), 3)
    };
    assert_eq!(run(1), run(8));
}

#[test]
fn padding_stays_masked_where_every_score_is_below_minus_ten_thousand() {
    let mut model: BertModel = random(&config(json!({})));
    for layer in &mut model.encoder.layers {
        let bias = |value: f32| Some(Param::from_tensor(Tensor::full([6], value, &cpu())));
        layer.mha.query.bias = bias(300.0);
        layer.mha.key.bias = bias(-300.0); // every score is about 2 * 300 * -300 / sqrt(2)
    }
    let alone = model.forward(&Batch::new([1, 3], vec![2, 9, 3]).unwrap()).unwrap();
    let padded = model.forward(&Batch::padded(&[vec![2, 9, 3], vec![2, 5, 7, 10, 3]], 1).unwrap()).unwrap();
    assert_close(first_row(&padded.hidden_states[2], 3), first_row(&alone.hidden_states[2], 3));
}

#[test]
fn activations_have_their_known_values() {
    let x = || Tensor::<1>::from_floats([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0], &cpu());
    let exact = [-0.004_049_694, -0.158_655_25, -0.154_268_77, 0.0, 0.345_731_23, 0.841_344_75, 2.995_950_3];
    let tanh = [-0.003_637_392, -0.158_808_01, -0.154_285_99, 0.0, 0.345_714_01, 0.841_191_99, 2.996_362_6];
    let relu = [0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 3.0];
    for (act, expected) in ACTIVATIONS.into_iter().zip([exact, tanh, relu]) {
        assert_close(act.apply(x()).into_data(), TensorData::from(expected));
    }
}

#[test]
fn the_pooler_is_tanh_of_a_dense_layer_on_the_first_token() {
    let model: BertModel = random(&config(json!({"with_pooling_layer": true})));
    let output = model.forward(&batch()).unwrap();
    let first = Tensor::from_data(first_row(&output.last_hidden_state(), 1), &cpu());
    let expected = dense(first, &model.pooler.as_ref().unwrap().output).tanh();
    assert_close(output.pooled().unwrap().narrow(0, 0, 1).into_data(), expected.into_data());
}

#[test]
fn the_masked_lm_head_has_an_activation_of_its_own() {
    for act in ACTIVATIONS {
        let config =
            ModelConfig { lm_head_act: act, ..config(json!({"task": "masked_lm", "hidden_act": "relu"})) };
        let model: BertForMaskedLm = random(&config);
        let output = model.forward(&batch()).unwrap();
        let hidden = Tensor::from_data(first_row(&output.backbone.last_hidden_state(), 5), &cpu());
        let inner = act.apply(dense(hidden, &model.lm_head.dense));
        let normed = norm(inner, &model.lm_head.layer_norm, config.layer_norm_eps);
        assert_close(first_row(&output.logits, 5), dense(normed, &model.lm_head.decoder).into_data());
    }
}

#[test]
fn both_head_styles_are_the_same_function() {
    let style = |style: &str, pooler: bool| {
        config(json!({"task": "sequence_classification", "head_style": style, "with_pooling_layer": pooler}))
    };
    let bert: BertForSequenceClassification = random(&style("bert", true));
    let mut roberta: RobertaForSequenceClassification = random(&style("roberta", false));
    roberta.bert = BertModel { pooler: None, ..bert.bert.clone() };
    roberta.classifier.dense = bert.bert.pooler.clone().unwrap().output;
    roberta.classifier.out_proj = bert.classifier.clone();
    let logits = bert.forward(&batch()).unwrap().logits.into_data();
    assert_eq!(roberta.forward(&batch()).unwrap().logits.into_data(), logits);
}

#[test]
fn a_head_without_its_pooler_is_an_error() {
    let config =
        config(json!({"task": "sequence_classification", "head_style": "bert", "with_pooling_layer": true}));
    let mut model: BertForSequenceClassification = random(&config);
    model.bert.pooler = None;
    let error = model.forward(&batch()).unwrap_err().to_string();
    assert!(error.contains("the model has no pooler: set with_pooling_layer"), "{error}");
}
