//! Devices by name.

use burn::tensor::Device;

use crate::error::{Error, Result};

/// A device, and the words that say which one it is.
#[derive(Debug, Clone)]
pub struct NamedDevice {
    /// What Burn computes on.
    pub device: Device,
    /// As `cpu` or `wgpu: NVIDIA L4, Vulkan`: what the driver calls itself.
    pub label: String,
}

/// The device of that name: `cpu`, `cuda` or `wgpu`, or with `auto` the first hardware of `cuda`, `wgpu`, `cpu`.
///
/// # Errors
/// Those of [`named_device`].
pub fn device(name: &str) -> Result<Device> {
    named_device(name).map(|found| found.device)
}

/// Like [`device`], with the words for it.
///
/// # Errors
/// [`Error::UnknownDevice`] for another name, [`Error::NotBuilt`] if this build lacks the backend,
/// [`Error::NoDevice`] if the machine has nothing for it.
pub fn named_device(name: &str) -> Result<NamedDevice> {
    match name {
        "auto" => Ok(hardware(cuda::find).or_else(|| hardware(wgpu::find)).unwrap_or_else(cpu)),
        "cpu" => Ok(cpu()),
        "cuda" => cuda::find().map(|found| found.named),
        "wgpu" => wgpu::find().map(|found| found.named),
        _ => Err(Error::UnknownDevice { name: name.to_string(), expected: "auto, cpu, cuda or wgpu" }),
    }
}

/// Every device name with its words, or why it is not there.
pub fn devices() -> Vec<(&'static str, Result<String>)> {
    let names = ["cpu", "cuda", "wgpu"];
    names.map(|name| (name, named_device(name).map(|found| found.label))).into()
}

struct Found {
    named: NamedDevice,
    /// False for a driver that draws on the CPU: slower there than Flex, so it is taken by name only.
    hardware: bool,
}

fn hardware(find: fn() -> Result<Found>) -> Option<NamedDevice> {
    find().ok().filter(|found| found.hardware).map(|found| found.named)
}

fn cpu() -> NamedDevice {
    NamedDevice { device: Device::flex(), label: "cpu".to_string() }
}

#[cfg(feature = "cuda")]
mod cuda {
    use burn::tensor::{Device, DeviceType};

    use super::{Error, Found, NamedDevice, Result};

    pub fn find() -> Result<Found> {
        let device = Device::enumerate(DeviceType::Cuda).into_vec().into_iter().next();
        let device = device.ok_or_else(|| Error::NoDevice {
            name: "cuda",
            reason: "the NVIDIA driver is missing or names no device".to_string(),
        })?;
        let name = device.identity().map_or_else(|| "unnamed".to_string(), |identity| identity.name);
        // cubek multiplies float32 on tensor cores wherever they take TF32, and has no switch for it.
        let label = format!("cuda: {name}, products in TF32 where it has them");
        Ok(Found { named: NamedDevice { device, label }, hardware: true })
    }
}

#[cfg(feature = "wgpu")]
mod wgpu {
    use std::sync::OnceLock;

    use burn::tensor::Device;
    use burn::tensor::wgpu::wgpu::DeviceType;

    use super::{Error, Found, NamedDevice, Result};

    type Opened = std::result::Result<(NamedDevice, bool), String>;

    pub fn find() -> Result<Found> {
        // A process can set wgpu up once.
        static OPENED: OnceLock<Opened> = OnceLock::new();
        match OPENED.get_or_init(open).clone() {
            Ok((named, hardware)) => Ok(Found { named, hardware }),
            Err(reason) => Err(Error::NoDevice { name: "wgpu", reason }),
        }
    }

    fn open() -> Opened {
        let (device, setup) = Device::wgpu_options().init_with_setup().map_err(|e| e.to_string())?;
        let adapter = setup.adapter.get_info();
        let label = format!("wgpu: {}, {:?}", adapter.name, adapter.backend);
        Ok((NamedDevice { device, label }, adapter.device_type != DeviceType::Cpu))
    }
}

#[cfg(not(feature = "cuda"))]
mod cuda {
    pub fn find() -> super::Result<super::Found> {
        Err(super::Error::NotBuilt("cuda"))
    }
}

#[cfg(not(feature = "wgpu"))]
mod wgpu {
    pub fn find() -> super::Result<super::Found> {
        Err(super::Error::NotBuilt("wgpu"))
    }
}
