//! Parses replies of the server. An unexpected form is an error and never a panic.

use bytes::Bytes;
use redis::Value;

use crate::error::RedisStoreError;

/// The parts of a reply that is a list. The methods take parts from the front.
#[derive(Debug)]
pub(crate) struct ReplyParts(std::vec::IntoIter<Value>);

impl ReplyParts {
    pub(crate) fn of(value: Value) -> Result<Self, RedisStoreError> {
        match value {
            Value::Array(parts) | Value::Set(parts) => Ok(Self(parts.into_iter())),
            other => Err(strange(&other)),
        }
    }

    pub(crate) fn value(&mut self) -> Result<Value, RedisStoreError> {
        self.0.next().ok_or_else(|| RedisStoreError::strange("the server's reply is too short"))
    }

    pub(crate) fn parts(&mut self) -> Result<Self, RedisStoreError> {
        Self::of(self.value()?)
    }

    pub(crate) fn text(&mut self) -> Result<String, RedisStoreError> {
        text(self.value()?)
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes, RedisStoreError> {
        bytes(self.value()?)
    }

    pub(crate) fn number(&mut self) -> Result<u64, RedisStoreError> {
        match self.value()? {
            Value::Int(number) => {
                u64::try_from(number).map_err(|_| RedisStoreError::strange("a negative number"))
            }
            value => {
                let text = text(value)?;
                text.parse().map_err(|_| RedisStoreError::strange("a text instead of a number"))
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Iterator for ReplyParts {
    type Item = Value;
    fn next(&mut self) -> Option<Value> {
        self.0.next()
    }
}

pub(crate) fn bytes(value: Value) -> Result<Bytes, RedisStoreError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes.into()),
        Value::SimpleString(text) => Ok(text.into()),
        Value::Okay => Ok(Bytes::from_static(b"OK")),
        Value::Int(number) => Ok(number.to_string().into()),
        other => Err(strange(&other)),
    }
}

pub(crate) fn text(value: Value) -> Result<String, RedisStoreError> {
    let bytes = bytes(value)?;
    String::from_utf8(bytes.into()).map_err(|_| RedisStoreError::strange("the server's reply is not text"))
}

fn strange(value: &Value) -> RedisStoreError {
    let shape = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::Array(_) => "a list",
        Value::BulkString(_) | Value::SimpleString(_) | Value::Okay => "a text",
        _ => "a value of another kind",
    };
    RedisStoreError::strange(format!("the server's reply has {shape} in the wrong place"))
}
