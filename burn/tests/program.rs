//! The program, run as a program.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{batch, config, folder, random, save_bpk};
use portkit_burn::{BertForQuestionAnswering, Named, Pretrained};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::json;
use tempfile::TempDir;

struct Trial {
    folder: TempDir,
    model: BertForQuestionAnswering,
}

impl Trial {
    fn new() -> Self {
        let config = config(json!({"task": "question_answering"}));
        let (folder, model) = (folder(&config), random(&config));
        save_bpk(&model, folder.path());
        Self { folder, model }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn forward(&self, device: &str) -> Output {
        let (inputs, outputs) = (self.path("in.safetensors"), self.path("out.safetensors"));
        let mut program = Command::new(env!("CARGO_BIN_EXE_portkit-burn"));
        program.arg("forward").arg("--model").arg(self.folder.path()).args(["--device", device]);
        program.arg("--inputs").arg(inputs).arg("--outputs").arg(outputs).output().unwrap()
    }

    fn refused(&self, device: &str) -> String {
        let output = self.forward(device);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

fn write(path: &Path, arrays: &[(&str, Dtype, Vec<usize>, Vec<u8>)]) {
    let views = arrays.iter().map(|(name, dtype, shape, bytes)| {
        (*name, TensorView::new(*dtype, shape.clone(), bytes).expect("bytes fill the shape"))
    });
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

fn int64(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn int32(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|&value| (value as i32).to_le_bytes()).collect()
}

#[test]
fn forward_writes_what_the_library_computes() {
    let trial = Trial::new();
    let batch = batch();
    let mask = batch.padding().iter().map(|&pad| i64::from(!pad)).collect::<Vec<_>>();
    let arrays = [
        ("input_ids", Dtype::I64, vec![2, 5], int64(batch.input_ids())),
        ("attention_mask", Dtype::I32, vec![2, 5], int32(&mask)),
        ("token_type_ids", Dtype::I64, vec![2, 5], int64(batch.token_type_ids())),
    ];
    write(&trial.path("in.safetensors"), &arrays);
    let output = trial.forward("cpu");
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    let bytes = fs::read(trial.path("out.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let expected = trial.model.forward(&batch).unwrap().named().unwrap();
    assert_eq!(file.len(), expected.len());
    for array in expected {
        let found = file.tensor(&array.name).unwrap();
        let values: Vec<f32> = found.data().as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        assert_eq!((found.dtype(), found.shape()), (Dtype::F32, array.shape.as_slice()));
        assert_eq!(values, array.values);
    }
    let names = fs::read_dir(trial.folder.path()).unwrap().count();
    assert_eq!(names, 4, "configuration, weights, inputs, outputs and nothing temporary");
}

#[test]
fn mask_and_types_may_be_left_out() {
    let trial = Trial::new();
    write(&trial.path("in.safetensors"), &[("input_ids", Dtype::I64, vec![1, 3], int64(&[2, 9, 3]))]);
    assert!(trial.forward("cpu").status.success());
    assert!(trial.path("out.safetensors").is_file());
}

#[test]
fn bad_inputs_end_with_one_line_and_leave_no_file() {
    let trial = Trial::new();
    let ids = || ("input_ids", Dtype::I64, vec![1, 2], int64(&[2, 3]));
    let cases = [
        (vec![("token_type_ids", Dtype::I64, vec![1, 2], int64(&[0, 0]))], "input_ids is missing"),
        (
            vec![("input_ids", Dtype::I64, vec![2], int64(&[2, 3]))],
            "input_ids has the shape [2], expected [rows, tokens]",
        ),
        (
            vec![("input_ids", Dtype::F64, vec![1, 2], int64(&[2, 3]))],
            "input_ids is F64, expected I64 or I32",
        ),
        (
            vec![ids(), ("attention_mask", Dtype::I64, vec![2, 1], int64(&[1, 1]))],
            "attention_mask has the shape [2, 1]",
        ),
        (vec![ids(), ("position_ids", Dtype::I64, vec![1, 2], int64(&[0, 1]))], "unknown array position_ids"),
        (vec![("input_ids", Dtype::I64, vec![1, 2], int64(&[2, 99]))], "input_ids[0, 1] is 99"),
    ];
    for (arrays, words) in cases {
        write(&trial.path("in.safetensors"), &arrays);
        let message = trial.refused("cpu");
        assert!(message.starts_with("error: ") && message.contains(words), "{message}");
        assert!(!trial.path("out.safetensors").exists());
    }
}

#[test]
fn an_unknown_device_is_answered_with_the_known_ones() {
    let trial = Trial::new();
    write(&trial.path("in.safetensors"), &[("input_ids", Dtype::I64, vec![1, 1], int64(&[2]))]);
    let message = trial.refused("tpu");
    assert!(
        message.contains("device \"tpu\" is unknown here, expected auto, cpu, cuda or wgpu"),
        "{message}"
    );
}

#[cfg(not(feature = "wgpu"))]
#[test]
fn a_device_of_another_build_is_answered_with_the_way_to_get_it() {
    let trial = Trial::new();
    write(&trial.path("in.safetensors"), &[("input_ids", Dtype::I64, vec![1, 1], int64(&[2]))]);
    let message = trial.refused("wgpu");
    assert!(message.contains("`cargo install --path burn --features wgpu`"), "{message}");
    assert!(!trial.path("out.safetensors").exists());
}

#[test]
fn every_device_is_listed_once() {
    let output = Command::new(env!("CARGO_BIN_EXE_portkit-burn")).arg("devices").output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let name = |line| str::trim_start_matches(line, "no ").split(':').next();
    let names: Vec<&str> = lines.lines().filter_map(name).collect();
    assert_eq!((output.status.code(), names), (Some(0), vec!["cpu", "cuda", "wgpu"]));
}

#[test]
fn the_outputs_say_where_they_were_computed() {
    let trial = Trial::new();
    write(&trial.path("in.safetensors"), &[("input_ids", Dtype::I64, vec![1, 3], int64(&[2, 9, 3]))]);
    assert!(trial.forward("cpu").status.success());
    let bytes = fs::read(trial.path("out.safetensors")).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["device"], "cpu");
}

#[test]
fn a_missing_file_is_named() {
    let message = Trial::new().refused("cpu");
    assert!(message.contains("in.safetensors: No such file"), "{message}");
}

#[test]
fn the_version_is_the_packages() {
    let output = Command::new(env!("CARGO_BIN_EXE_portkit-burn")).arg("--version").output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    assert_eq!(line.trim(), format!("portkit-burn {}", env!("CARGO_PKG_VERSION")));
}
