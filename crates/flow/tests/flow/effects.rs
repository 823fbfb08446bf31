//! The recorded effects of a test's steps.

use std::sync::{Arc, Mutex};

use ferrata_flow::FlowError;

/// A list of effects, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct EffectLog(Arc<Mutex<Vec<String>>>);

impl EffectLog {
    /// Adds an effect and returns its result.
    pub(crate) fn add<T, E: Into<String>>(
        &self,
        effect: E,
        result: T,
    ) -> impl Future<Output = Result<T, FlowError>> + use<T, E> {
        let (log, effect) = (self.clone(), effect.into());
        async move {
            log.0.lock().unwrap().push(effect);
            Ok(result)
        }
    }

    /// Adds an effect that fails.
    pub(crate) fn fail<T>(&self, effect: &str) -> impl Future<Output = Result<T, FlowError>> + use<T> {
        let (log, effect) = (self.clone(), effect.to_owned());
        async move {
            log.0.lock().unwrap().push(effect.clone());
            Err(FlowError::new(format!("{effect} failed")))
        }
    }

    /// Returns the effects, and forgets them.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    pub(crate) fn count(&self, effect: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|known| *known == effect).count()
    }
}
