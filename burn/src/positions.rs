//! Which row of the position table each token reads.

use crate::config::{ModelConfig, PositionScheme};

/// The rule by which positions are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Positions {
    /// The index in the sequence plus an offset.
    Absolute {
        /// The position of the first token.
        offset: i64,
    },
    /// The padding id plus the count of tokens so far that are not padding; padding reads its own row.
    Padding {
        /// The id of the padding token.
        pad: i64,
    },
}

impl Positions {
    /// The rule that a configuration asks for.
    pub fn of(config: &ModelConfig) -> Self {
        let offset = config.position_offset as i64;
        let pad = config.pad_token_id;
        match config.position_scheme {
            PositionScheme::Absolute => Self::Absolute { offset },
            PositionScheme::Padding => Self::Padding { pad },
        }
    }

    /// The positions of one sequence of token ids.
    pub fn ids(self, tokens: &[i64]) -> Vec<i64> {
        match self {
            Self::Absolute { offset } => (offset..).take(tokens.len()).collect(),
            Self::Padding { pad } => count_tokens(tokens, pad),
        }
    }
}

fn count_tokens(tokens: &[i64], pad: i64) -> Vec<i64> {
    let mut last = pad;
    let position = |&token: &i64| {
        if token == pad {
            return pad;
        }
        last += 1;
        last
    };
    tokens.iter().map(position).collect()
}

#[cfg(test)]
mod tests {
    use super::Positions;

    #[test]
    fn absolute_positions_count_every_token() {
        let plain = Positions::Absolute { offset: 0 };
        assert_eq!(plain.ids(&[7, 0, 9, 0]), [0, 1, 2, 3]);
    }

    #[test]
    fn absolute_positions_start_at_the_offset() {
        let moved = Positions::Absolute { offset: 2 };
        assert_eq!(moved.ids(&[7, 0, 9]), [2, 3, 4]);
    }

    #[test]
    fn padding_positions_skip_padding_wherever_it_stands() {
        let roberta = Positions::Padding { pad: 1 };
        assert_eq!(roberta.ids(&[0, 5, 2, 1, 1]), [2, 3, 4, 1, 1]);
        assert_eq!(roberta.ids(&[1, 1, 0, 5, 2]), [1, 1, 2, 3, 4]);
        assert_eq!(roberta.ids(&[0, 1, 5]), [2, 1, 3]);
    }

    #[test]
    fn padding_positions_follow_the_padding_id() {
        assert_eq!(Positions::Padding { pad: 0 }.ids(&[4, 4, 0]), [1, 2, 0]);
    }
}
