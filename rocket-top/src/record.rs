//! Samples in a file, a line of JSON each, and back.

use crate::sample::Sample;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

/// Version of a line's shape.
const SCHEMA: u32 = 1;
/// Longest line that is read: a sample of many hosts with full tables has a few MiB.
const LONGEST: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct Line {
    schema: u32,
    sample: Sample,
}

/// Writes them.
#[derive(Debug)]
pub struct Recorder(File);

impl Recorder {
    /// Into a new file: a recording is never written over.
    ///
    /// # Errors
    /// The file system's, with the path.
    pub fn create(path: &Path) -> Result<Recorder> {
        let file = File::create_new(path)
            .with_context(|| format!("{}: a new recording", path.display()))?;
        Ok(Recorder(file))
    }

    /// One more.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(&mut self, sample: &Sample) -> Result<()> {
        let mut line = serde_json::to_vec(&Line { schema: SCHEMA, sample: sample.clone() })?;
        line.push(b'\n');
        self.0.write_all(&line).context("the recording")
    }
}

/// Reads them, one a call.
#[derive(Debug)]
pub struct Replay {
    lines: BufReader<File>,
    number: usize,
}

impl Replay {
    /// Of a recording.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path) -> Result<Replay> {
        let file = File::open(path).with_context(|| format!("{}", path.display()))?;
        Ok(Replay { lines: BufReader::new(file), number: 0 })
    }

    /// The next sample; none at the end. A last line without an end was being written and is left out.
    ///
    /// # Errors
    /// A line that is no sample, by its number.
    pub fn sample(&mut self) -> Result<Option<Sample>> {
        let mut line = Vec::new();
        self.lines.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
        self.number += 1;
        if line.last() != Some(&b'\n') {
            if line.len() as u64 >= LONGEST {
                bail!("line {} of the recording is longer than {} MiB", self.number, LONGEST >> 20);
            }
            return Ok(None);
        }
        let read: Line = serde_json::from_slice(&line)
            .with_context(|| format!("line {} of the recording is no sample", self.number))?;
        if read.schema != SCHEMA {
            bail!(
                "line {} has schema {}, this rocket-top reads {SCHEMA}",
                self.number,
                read.schema
            );
        }
        Ok(Some(read.sample))
    }
}
