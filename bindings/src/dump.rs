// SPDX-License-Identifier: MIT
//! A Python function as somewhere to write text to.

use std::io::{self, Write};

use pyo3::prelude::*;

/// Hands text on in pieces of this many bytes, at line ends.
const PIECE: usize = 1 << 16;

/// Calls `callback(text)`; keeps what it raised.
pub struct TextSink<'a> {
    callback: &'a Py<PyAny>,
    buffer: Vec<u8>,
    pub raised: Option<PyErr>,
}

impl<'a> TextSink<'a> {
    pub fn new(callback: &'a Py<PyAny>) -> Self {
        TextSink {
            callback,
            buffer: Vec::new(),
            raised: None,
        }
    }

    fn hand_on(&mut self, bytes: usize) -> io::Result<()> {
        let text = String::from_utf8_lossy(&self.buffer[..bytes]).into_owned();
        self.buffer.drain(..bytes);
        let called = Python::attach(|py| {
            py.check_signals()?;
            self.callback.call1(py, (text,))
        });
        called.map(drop).map_err(|error| {
            self.raised = Some(error);
            io::Error::other("the reader gave up")
        })
    }
}

impl Write for TextSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE {
            if let Some(end) = self.buffer.iter().rposition(|&byte| byte == b'\n') {
                self.hand_on(end + 1)?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.hand_on(self.buffer.len())
    }
}
