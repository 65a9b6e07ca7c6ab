use serde_json::{Value, json};

use super::*;

fn fields(changes: Value) -> Value {
    let mut all = json!({
        "model_type": "bert", "vocab_size": 11, "hidden_size": 6, "num_hidden_layers": 2,
        "num_attention_heads": 3, "intermediate_size": 7, "max_position_embeddings": 9,
        "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1, "pad_token_id": 0,
    });
    let extra = changes.as_object().expect("an object").clone();
    all.as_object_mut().expect("an object").extend(extra);
    all
}

fn read(changes: Value) -> std::result::Result<ModelConfig, String> {
    let parsed = serde_json::from_value::<ModelConfig>(fields(changes)).map_err(|e| e.to_string())?;
    parsed.checked().map_err(|problems| problems.join("\n"))
}

fn refused(changes: Value) -> String {
    read(changes).expect_err("these fields describe no model")
}

#[test]
fn absent_fields_mean_a_plain_bert() {
    let config = read(json!({})).unwrap();
    assert_eq!(config.hidden_act, HiddenAct::Gelu);
    assert_eq!(config.position_scheme, PositionScheme::Absolute);
    assert_eq!((config.position_offset, config.task), (0, Task::Model));
    assert!(!config.has_pooler());
    assert_eq!(config.longest_sequence(), 9);
}

#[test]
fn unknown_fields_and_nulls_are_ignored() {
    let config = read(json!({"initializer_range": 0.02, "head_style": null, "num_labels": null})).unwrap();
    assert_eq!(config, read(json!({})).unwrap());
}

#[test]
fn the_longest_sequence_follows_the_scheme() {
    let longest = |changes| read(changes).unwrap().longest_sequence();
    assert_eq!(longest(json!({"position_offset": 2})), 7);
    assert_eq!(longest(json!({"position_scheme": "padding", "pad_token_id": 3})), 5);
    assert_eq!(longest(json!({"max_seq_len": 4})), 4);
    assert_eq!(longest(json!({"max_seq_len": 40})), 9);
}

#[test]
fn unknown_words_are_answered_with_the_known_ones() {
    let message = refused(json!({"hidden_act": "silu"}));
    assert!(
        message.contains("unknown variant `silu`, expected one of `gelu`, `gelu_tanh`, `relu`"),
        "{message}"
    );
    assert!(refused(json!({"task": "ner"})).contains("expected one of `model`, `masked_lm`"));
    assert!(refused(json!({"position_scheme": "alibi"})).contains("expected `absolute` or `padding`"));
}

#[test]
fn a_missing_field_is_named() {
    let mut all = fields(json!({}));
    all.as_object_mut().unwrap().remove("intermediate_size");
    let message = serde_json::from_value::<ModelConfig>(all).unwrap_err().to_string();
    assert!(message.contains("missing field `intermediate_size`"), "{message}");
}

#[test]
fn all_wrong_numbers_are_listed_together() {
    let changes = json!({"vocab_size": 0, "num_attention_heads": 4, "layer_norm_eps": -1.0, "lm_head_eps": 1.0, "hidden_dropout_prob": 1.0});
    let message = refused(changes);
    assert!(message.contains("vocab_size is 0, it must be at least 1"), "{message}");
    assert!(message.contains("hidden_size 6 is not a multiple of num_attention_heads 4"), "{message}");
    assert!(message.contains("layer_norm_eps is -1"), "{message}");
    assert!(message.contains("lm_head_eps is 1"), "{message}");
    assert!(message.contains("hidden_dropout_prob is 1"), "{message}");
}

#[test]
fn a_position_table_without_room_is_refused() {
    let full = refused(json!({"position_offset": 9}));
    assert!(full.contains("the first one reads row 9 of 9 positions"), "{full}");
    assert!(refused(json!({"max_seq_len": 0})).contains("max_seq_len is 0"));
    let negative = refused(json!({"position_scheme": "padding", "pad_token_id": -1}));
    assert!(negative.contains("pad_token_id is -1"), "{negative}");
}

#[test]
fn heads_ask_for_what_they_read() {
    let style = refused(json!({"task": "sequence_classification", "num_labels": 3}));
    assert!(style.contains("head_style is missing, sequence_classification needs"), "{style}");
    let labels = refused(json!({"task": "token_classification"}));
    assert!(labels.contains("num_labels is missing, token_classification needs at least 1"), "{labels}");
    for task in ["pre_training", "next_sentence", "multiple_choice"] {
        let message = refused(json!({"task": task}));
        assert!(message.contains(&format!("the head of {task} reads the pooler")), "{message}");
    }
    let roberta = json!({
        "task": "sequence_classification", "num_labels": 3, "head_style": "roberta", "with_pooling_layer": true
    });
    assert!(refused(roberta).contains("takes the pooler's place"));
}

#[test]
fn labels_stand_in_the_order_of_the_scores() {
    let names: serde_json::Map<_, _> =
        (0..11).map(|id| (id.to_string(), json!(format!("class {id}")))).collect();
    let config = read(json!({"num_labels": 11, "id2label": names})).unwrap();
    assert_eq!(config.labels().unwrap()[2..], [2, 3, 4, 5, 6, 7, 8, 9, 10].map(|id| format!("class {id}")));
    assert_eq!(read(json!({"num_labels": 12, "id2label": names})).unwrap().labels(), None);
    assert_eq!(read(json!({"num_labels": 2})).unwrap().labels(), None);
}
