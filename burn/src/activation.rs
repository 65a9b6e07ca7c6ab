//! The activations of a configuration as Burn's functions.

use burn::nn::activation::ActivationConfig;
use burn::tensor::Tensor;
use burn::tensor::activation::{gelu, gelu_approximate, relu};

use crate::config::HiddenAct;

impl HiddenAct {
    /// Applies the function to every element.
    pub fn apply<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Gelu => gelu(x),
            Self::GeluTanh => gelu_approximate(x),
            Self::Relu => relu(x),
        }
    }

    /// The function as Burn's encoder wants it.
    pub(crate) fn for_encoder(self) -> ActivationConfig {
        match self {
            Self::Gelu => ActivationConfig::Gelu,
            Self::GeluTanh => ActivationConfig::GeluApproximate,
            Self::Relu => ActivationConfig::Relu,
        }
    }
}
