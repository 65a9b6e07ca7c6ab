//! Named arrays: what a forward pass returns to the world outside of Burn.

use crate::batch::Batch;
use crate::error::Result;

/// A float32 array with its name, values in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedArray {
    /// `hidden_states.3`, `pooled_output`, `logits`, …
    pub name: String,
    /// The size of each axis.
    pub shape: Vec<usize>,
    /// As many values as the shape asks for.
    pub values: Vec<f32>,
}

/// A model on its device.
pub struct Loaded {
    /// The model of the task that its folder names.
    pub model: Box<dyn Runner>,
    /// The words for the device, as `wgpu: NVIDIA L4, Vulkan`.
    pub device: String,
}

/// A loaded model of any task.
pub trait Runner {
    /// Runs the model and returns all its outputs.
    ///
    /// # Errors
    /// [`Error::Inputs`](crate::Error::Inputs) if the batch does not fit the model.
    fn run(&self, batch: &Batch) -> Result<Vec<NamedArray>>;
}
