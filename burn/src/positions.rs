//! Position ids, computed from the token ids on the host.

use crate::config::{BertConfig, PositionScheme};

/// Table rows for `ids`, row-major `[batch, length]`, in the config's scheme.
pub fn position_ids(config: &BertConfig, ids: &[i64], length: usize) -> Vec<i64> {
    let rows = ids.chunks(length.max(1));
    match config.position_scheme {
        PositionScheme::Absolute => rows
            .flat_map(|row| absolute(config.position_offset, row.len()))
            .collect(),
        PositionScheme::Padding => rows.flat_map(|row| counted(config.pad_token_id, row)).collect(),
    }
}

fn absolute(offset: usize, length: usize) -> Vec<i64> {
    (0..length).map(|index| (offset + index) as i64).collect()
}

/// transformers' `create_position_ids_from_input_ids`: pad + (number of real tokens so far), pads at pad.
fn counted(pad: i64, row: &[i64]) -> Vec<i64> {
    let mut last = pad;
    let mut next = |id: &i64| {
        if *id == pad {
            return pad;
        }
        last += 1;
        last
    };
    row.iter().map(&mut next).collect()
}
