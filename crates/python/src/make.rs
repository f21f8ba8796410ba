//! Making, opening and checking images.

use ext4::FsType;
use image::Image;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::call;
use crate::path::Given;

/// Makes an image file of `size` bytes with a file system in it.
#[pyfunction]
#[pyo3(signature = (path, size, kind, label, uuid, block_size, features, overwrite))]
#[expect(clippy::too_many_arguments, reason = "the keywords of extxfs.mkfs")]
pub fn mkfs(
    py: Python<'_>,
    path: Given,
    size: u64,
    kind: &str,
    label: &str,
    uuid: Option<&str>,
    block_size: Option<u32>,
    features: &str,
    overwrite: bool,
) -> PyResult<()> {
    let make = Image::create(&path.0, size).label(label).overwrite(overwrite);
    let make = match kind {
        "xfs" => {
            let mut options = xfs::MkfsOptions::default();
            if !features.is_empty() {
                return Err(PyValueError::new_err("features are those of ext2, ext3 and ext4"));
            }
            options.block_size = block_size.unwrap_or(options.block_size);
            make.xfs(options)
        }
        other => {
            let fstype = match other {
                "ext2" => FsType::Ext2,
                "ext3" => FsType::Ext3,
                "ext4" => FsType::Ext4,
                _ => {
                    let words = format!("no file system: {other:?}; ext2, ext3, ext4 or xfs");
                    return Err(PyValueError::new_err(words));
                }
            };
            let features = features.to_owned();
            let options = ext4::MkfsOptions { fstype, block_size, features, ..Default::default() };
            make.ext(options)
        }
    };
    let make = match uuid {
        Some(text) => {
            let wrong = |error| PyValueError::new_err(format!("no UUID: {text:?}: {error}"));
            make.uuid(text.parse::<uuid::Uuid>().map_err(wrong)?.into_bytes())
        }
        None => make,
    };
    call::run(py, path.0.as_os_str(), || make.make().map(drop))
}

/// Checks an image without changing it: whether it is clean, the findings, and how many more.
#[pyfunction]
#[pyo3(signature = (path, partition))]
pub fn check(
    py: Python<'_>,
    path: Given,
    partition: Option<u32>,
) -> PyResult<(bool, Vec<String>, u64)> {
    let report = call::run(py, path.0.as_os_str(), || open(&path, false, partition)?.check())?;
    let findings = report.findings.iter().map(ToString::to_string).collect();
    Ok((report.clean, findings, report.more))
}

/// Opens an image, or a partition of it; it is not mounted.
pub fn open(path: &Given, write: bool, partition: Option<u32>) -> Result<Image, image::Error> {
    let options = Image::options().write(write);
    let options = match partition {
        Some(number) => options.partition(number),
        None => options,
    };
    options.open(&path.0)
}
