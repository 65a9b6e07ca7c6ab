//! A batch of token sequences, and the rules that a model has for it.

use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::positions::Positions;

/// Token ids `[rows, columns]` with their attention mask and token types, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    shape: [usize; 2],
    input_ids: Vec<i64>,
    attention_mask: Vec<i64>,
    token_type_ids: Vec<i64>,
}

impl Batch {
    /// A batch of `shape` where every token is real and of type 0.
    ///
    /// # Errors
    /// [`Error::Inputs`] if the batch is empty or the ids do not fill the shape.
    pub fn new(shape: [usize; 2], input_ids: Vec<i64>) -> Result<Self> {
        if shape.contains(&0) {
            return Err(Error::Inputs(format!("the batch is empty: its shape is {shape:?}")));
        }
        check_count("input_ids", shape, &input_ids)?;
        let size = input_ids.len();
        let (attention_mask, token_type_ids) = (vec![1; size], vec![0; size]);
        Ok(Self { shape, input_ids, attention_mask, token_type_ids })
    }

    /// Sequences of any lengths, padded on the right with `pad` up to the longest one.
    ///
    /// # Errors
    /// [`Error::Inputs`] if there is no sequence, or one of them is empty.
    pub fn padded(sequences: &[Vec<i64>], pad: i64) -> Result<Self> {
        let columns = sequences.iter().map(Vec::len).max().unwrap_or(0);
        let (mut ids, mut mask) = (Vec::new(), Vec::new());
        for sequence in sequences {
            let padding = columns - sequence.len();
            ids.extend_from_slice(sequence);
            ids.extend(std::iter::repeat_n(pad, padding));
            mask.extend(std::iter::repeat_n(1, sequence.len()));
            mask.extend(std::iter::repeat_n(0, padding));
        }
        Self::new([sequences.len(), columns], ids)?.with_attention_mask(mask)
    }

    /// The same batch with a mask: 1 for a real token, 0 for padding.
    ///
    /// # Errors
    /// [`Error::Inputs`] if the mask has another size, other values, or a row without a real token.
    pub fn with_attention_mask(mut self, mask: Vec<i64>) -> Result<Self> {
        check_count("attention_mask", self.shape, &mask)?;
        check_range("attention_mask", self.shape, &mask, 2)?;
        let mut rows = mask.chunks(self.shape[1]);
        if let Some(row) = rows.position(|row| row.iter().all(|&bit| bit == 0)) {
            return Err(Error::Inputs(format!("attention_mask row {row} is all 0, it needs a real token")));
        }
        self.attention_mask = mask;
        Ok(self)
    }

    /// The same batch with token types.
    ///
    /// # Errors
    /// [`Error::Inputs`] if they have another size.
    pub fn with_token_type_ids(mut self, types: Vec<i64>) -> Result<Self> {
        check_count("token_type_ids", self.shape, &types)?;
        self.token_type_ids = types;
        Ok(self)
    }

    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// The token ids, row by row.
    pub fn input_ids(&self) -> &[i64] {
        &self.input_ids
    }

    /// The token types, row by row.
    pub fn token_type_ids(&self) -> &[i64] {
        &self.token_type_ids
    }

    /// True where a token is padding, row by row: Burn's masks are the inverse of an attention mask.
    pub fn padding(&self) -> Vec<bool> {
        self.attention_mask.iter().map(|&bit| bit == 0).collect()
    }
}

/// What a model asks of a batch before it reads its tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputRules {
    vocab_size: usize,
    type_vocab_size: usize,
    longest: usize,
    positions: Positions,
}

impl InputRules {
    /// The rules of a configuration.
    pub fn of(config: &ModelConfig) -> Self {
        Self {
            vocab_size: config.vocab_size,
            type_vocab_size: config.type_vocab_size,
            longest: config.longest_sequence(),
            positions: Positions::of(config),
        }
    }

    /// The position of every token, row by row, of a batch that fits the model.
    ///
    /// # Errors
    /// [`Error::Inputs`] if the sequence is too long, or an id lies outside of its table.
    pub fn positions(&self, batch: &Batch) -> Result<Vec<i64>> {
        let (columns, longest) = (batch.shape[1], self.longest);
        if columns > longest {
            let words =
                format!("a sequence of {columns} tokens is too long, the model takes at most {longest}");
            return Err(Error::Inputs(words));
        }
        check_range("input_ids", batch.shape, &batch.input_ids, self.vocab_size)?;
        check_range("token_type_ids", batch.shape, &batch.token_type_ids, self.type_vocab_size)?;
        let rows = batch.input_ids.chunks(columns);
        Ok(rows.flat_map(|row| self.positions.ids(row)).collect())
    }
}

fn check_count(name: &str, shape: [usize; 2], values: &[i64]) -> Result<()> {
    let found = values.len();
    if shape[0].checked_mul(shape[1]) == Some(found) {
        return Ok(());
    }
    Err(Error::Inputs(format!("{name} holds {found} values, which is not what the shape {shape:?} needs")))
}

fn check_range(name: &str, shape: [usize; 2], values: &[i64], end: usize) -> Result<()> {
    let inside = |&value: &i64| usize::try_from(value).is_ok_and(|value| value < end);
    let Some(at) = values.iter().position(|value| !inside(value)) else {
        return Ok(());
    };
    let (row, column, value) = (at / shape[1], at % shape[1], values[at]);
    let last = end - 1;
    Err(Error::Inputs(format!("{name}[{row}, {column}] is {value}, it must lie between 0 and {last}")))
}
