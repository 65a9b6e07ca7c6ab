//! Inputs that do not fit are errors with the place and the limit, never a panic.

mod common;

use common::{config, random};
use portkit_burn::{Batch, BertModel, Pretrained};
use serde_json::json;

fn refused(batch: portkit_burn::Result<Batch>) -> String {
    batch.expect_err("this is no batch").to_string()
}

fn run(changes: serde_json::Value, batch: Batch) -> String {
    let model: BertModel = random(&config(changes));
    model.forward(&batch).expect_err("the batch does not fit").to_string()
}

fn ids(values: &[i64]) -> Batch {
    Batch::new([1, values.len()], values.to_vec()).unwrap()
}

#[test]
fn an_empty_batch_is_refused() {
    assert_eq!(refused(Batch::new([0, 3], vec![])), "inputs: the batch is empty: its shape is [0, 3]");
    assert!(refused(Batch::new([2, 0], vec![])).contains("the batch is empty"));
    assert!(refused(Batch::padded(&[], 0)).contains("the batch is empty"));
    assert!(refused(Batch::padded(&[vec![], vec![3]], 0)).contains("row 0 is all 0"));
}

#[test]
fn arrays_must_fill_the_shape() {
    let message = "input_ids holds 5 values, which is not what the shape [2, 3] needs";
    assert!(refused(Batch::new([2, 3], vec![1; 5])).contains(message));
    assert!(refused(ids(&[1, 2]).with_attention_mask(vec![1])).contains("attention_mask holds 1 values"));
    assert!(refused(ids(&[1, 2]).with_token_type_ids(vec![0; 3])).contains("token_type_ids holds 3 values"));
}

#[test]
fn a_mask_is_made_of_ones_and_zeros_with_a_one_in_each_row() {
    let batch = || Batch::new([2, 2], vec![1; 4]).unwrap();
    let message = refused(batch().with_attention_mask(vec![1, 0, 0, 0]));
    assert_eq!(message, "inputs: attention_mask row 1 is all 0, it needs a real token");
    let message = refused(batch().with_attention_mask(vec![1, 0, 1, -1]));
    assert_eq!(message, "inputs: attention_mask[1, 1] is -1, it must lie between 0 and 1");
}

#[test]
fn ids_must_lie_in_their_tables() {
    let message = run(json!({}), ids(&[2, 11, 3]));
    assert_eq!(message, "inputs: input_ids[0, 1] is 11, it must lie between 0 and 10");
    assert!(run(json!({}), ids(&[-1])).contains("input_ids[0, 0] is -1"));
    let types = ids(&[2, 3]).with_token_type_ids(vec![0, 2]).unwrap();
    assert!(run(json!({}), types).contains("token_type_ids[0, 1] is 2, it must lie between 0 and 1"));
}

#[test]
fn a_sequence_must_fit_the_position_table() {
    let long = |tokens: usize| ids(&vec![3; tokens]);
    assert!(
        run(json!({}), long(10)).contains("a sequence of 10 tokens is too long, the model takes at most 9")
    );
    assert!(run(json!({"position_offset": 2}), long(8)).contains("at most 7"));
    assert!(run(json!({"position_scheme": "padding"}), long(8)).contains("at most 7"));
    assert!(run(json!({"max_seq_len": 5}), long(6)).contains("at most 5"));
    let full: BertModel = random(&config(json!({"position_scheme": "padding"})));
    assert!(full.forward(&long(7)).is_ok());
}
