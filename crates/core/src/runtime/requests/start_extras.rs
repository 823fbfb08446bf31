//! The optional inputs of a start: configuration and first messages.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::Fingerprint;
use crate::record::body::{FanOutItem, FirstMessage};
use crate::runtime::input_fingerprint::{in_order, input_print};
use crate::runtime::payload::{check_payload_size, encode_payload};

/// The optional inputs, as the caller set them.
#[derive(Clone, Default)]
pub(crate) struct StartExtras {
    config: Option<Result<FanOutItem>>,
    messages: Vec<Result<FanOutItem>>,
}

/// The optional inputs, as encoded in the first record.
#[derive(Clone, Default)]
pub(crate) struct EncodedExtras {
    pub(crate) config: Option<FanOutItem>,
    pub(crate) messages: Vec<FirstMessage>,
}

impl StartExtras {
    pub(crate) fn configure(&mut self, config: &impl Serialize) {
        self.config = Some(encode_payload(config));
    }

    pub(crate) fn send(&mut self, message: &impl Serialize) {
        self.messages.push(encode_payload(message));
    }

    /// Encodes the optional inputs. Returns an error if one of them is larger than `most` bytes.
    pub(crate) fn encode(self, most: usize, at: Timestamp) -> Result<EncodedExtras> {
        let config =
            self.config.map(|config| check_payload_size("configuration", config, most)).transpose()?;
        let messages = self.messages.into_iter().map(|message| {
            check_payload_size("first message", message, most).map(|body| FirstMessage { body, at })
        });
        Ok(EncodedExtras { config, messages: messages.collect::<Result<_>>()? })
    }

    /// Returns the configuration, if there is one.
    pub(crate) fn config(self, most: usize) -> Result<Option<FanOutItem>> {
        self.config.map(|config| check_payload_size("configuration", config, most)).transpose()
    }
}

impl EncodedExtras {
    /// Returns the fingerprint by which a repeated start is recognized. If there are no optional inputs, it is the hash of only the input.
    pub(crate) fn print(&self, input: &RawValue) -> Result<Fingerprint> {
        if self.config.is_none() && self.messages.is_empty() {
            return input_print(input);
        }
        // Canonical JSON contains no line breaks, so they separate the parts unambiguously.
        let mut all = in_order(input.get())?;
        if let Some(config) = &self.config {
            all.push_str(&format!("\nconfig {}", in_order(config.0.get())?));
        }
        for FirstMessage { body, .. } in &self.messages {
            all.push_str(&format!("\nmessage {}", in_order(body.0.get())?));
        }
        Ok(Fingerprint::of(all.as_bytes()))
    }
}
