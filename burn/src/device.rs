//! Devices by name.

use burn::tensor::Device;

use crate::error::{Error, Result};

const AVAILABLE: &[&str] = &[
    "cpu",
    #[cfg(feature = "cuda")]
    "cuda",
    #[cfg(feature = "wgpu")]
    "wgpu",
];

/// The device of that name: `cpu`, and `cuda` or `wgpu` where the crate is built with that feature.
///
/// # Errors
/// [`Error::Device`] if the name is unknown or the feature is off.
pub fn device(name: &str) -> Result<Device> {
    match name {
        "cpu" => Ok(Device::flex()),
        #[cfg(feature = "cuda")]
        "cuda" => Ok(Device::cuda(0)),
        #[cfg(feature = "wgpu")]
        "wgpu" => Ok(Device::wgpu(burn::tensor::DeviceKind::DefaultDevice)),
        _ => Err(Error::Device { name: name.to_string(), available: AVAILABLE.join(", ") }),
    }
}
