//! A batch of token ids with its mask, checked before any tensor is made.

use crate::config::BertConfig;
use crate::error::{Error, Result};
use crate::positions::position_ids;

/// Token ids, mask (1 = real token) and token types, each row-major `[size, length]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    pub(crate) size: usize,
    pub(crate) length: usize,
    pub(crate) input_ids: Vec<i64>,
    pub(crate) attention_mask: Vec<i64>,
    pub(crate) token_type_ids: Vec<i64>,
}

impl Batch {
    /// A batch without padding, all token types 0. Errors: empty, or `input_ids` isn't `size` x `length`.
    pub fn new(size: usize, length: usize, input_ids: Vec<i64>) -> Result<Self> {
        if size == 0 || length == 0 {
            return Err(Error::Input(format!(
                "the batch is empty: shape [{size}, {length}]"
            )));
        }
        check_count("input_ids", &input_ids, size, length)?;
        let count = input_ids.len();
        Ok(Self {
            size,
            length,
            input_ids,
            attention_mask: vec![1; count],
            token_type_ids: vec![0; count],
        })
    }

    /// With a mask of 1 (real token) and 0 (padding). Errors: wrong count, other values, a row without a token.
    pub fn with_attention_mask(mut self, mask: Vec<i64>) -> Result<Self> {
        check_count("attention_mask", &mask, self.size, self.length)?;
        check_range("attention_mask", &mask, 2, "a mask value is 0 or 1")?;
        if let Some(row) = mask
            .chunks(self.length)
            .position(|row| row.iter().all(|&m| m == 0))
        {
            return Err(Error::Input(format!(
                "attention_mask row {row} is all zeros: a row needs a real token"
            )));
        }
        self.attention_mask = mask;
        Ok(self)
    }

    /// With token types. Errors: wrong count (their range is checked against a model in its forward).
    pub fn with_token_type_ids(mut self, types: Vec<i64>) -> Result<Self> {
        check_count("token_type_ids", &types, self.size, self.length)?;
        self.token_type_ids = types;
        Ok(self)
    }

    /// Checks every id against the model's tables and returns the position ids.
    pub(crate) fn positions(&self, config: &BertConfig) -> Result<Vec<i64>> {
        check_range("input_ids", &self.input_ids, config.vocab_size, "vocab_size")?;
        check_range(
            "token_type_ids",
            &self.token_type_ids,
            config.type_vocab_size,
            "type_vocab_size",
        )?;
        let positions = position_ids(config, &self.input_ids, self.length);
        let rows = config.max_position_embeddings as i64;
        if positions.iter().any(|&position| position >= rows) {
            let (length, usable) = (self.length, config.usable_length());
            return Err(Error::Input(format!(
                "length {length} is too long: the model takes at most {usable} tokens"
            )));
        }
        Ok(positions)
    }
}

fn check_count(name: &str, values: &[i64], size: usize, length: usize) -> Result<()> {
    if Some(values.len()) == size.checked_mul(length) {
        return Ok(());
    }
    let found = values.len();
    Err(Error::Input(format!(
        "{name} has {found} values, but the shape is [{size}, {length}]"
    )))
}

fn check_range(name: &str, values: &[i64], limit: usize, why: &str) -> Result<()> {
    let outside = |value: &i64| !usize::try_from(*value).is_ok_and(|id| id < limit);
    match values.iter().find(|value| outside(value)) {
        None => Ok(()),
        Some(value) => Err(Error::Input(format!(
            "{name} holds {value}, outside 0..{limit} ({why})"
        ))),
    }
}
