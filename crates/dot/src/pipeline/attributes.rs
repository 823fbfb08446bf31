//! The attributes of a node, an edge or the graph: its own attributes, and the defaults of its scope.

use std::sync::Arc;

use crate::attribute::is_named;
use crate::source::{Span, SpannedValue};
use crate::syntax::Attribute;
use crate::value::Value;

/// The attributes of one element. A clone is cheap.
///
/// Each key occurs once: if a key is set twice, the later value counts. The element's own values override the values that a transform sets below
/// them, and both override the defaults of the scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes {
    // Shared, because all edges of a chain have the same list, and all elements of a scope have the same defaults.
    own: Arc<Vec<Attribute>>,
    set: Vec<Attribute>,
    defaults: Arc<Vec<Attribute>>,
}

impl Attributes {
    /// Creates the attributes of an element from its `own` values and the defaults of its scope.
    pub(super) fn new(own: Vec<Attribute>, defaults: Arc<Vec<Attribute>>) -> Self {
        let again = |(at, attribute): (usize, &Attribute)| {
            own[..at].iter().any(|before| before.key.value == attribute.key.value)
        };
        let own = if own.iter().enumerate().any(again) {
            let mut unique = Vec::with_capacity(own.len());
            own.into_iter().for_each(|attribute| put(&mut unique, attribute));
            unique
        } else {
            own
        };
        Self { own: Arc::new(own), set: Vec::new(), defaults }
    }

    /// Adds the attributes of another declaration of the same element.
    pub(super) fn declare(&mut self, attributes: Vec<Attribute>) {
        if !attributes.is_empty() {
            let own = Arc::make_mut(&mut self.own);
            attributes.into_iter().for_each(|attribute| put(own, attribute));
        }
    }

    /// Returns the number of the element's own attributes.
    pub(super) fn own_len(&self) -> usize {
        self.own.len()
    }

    /// Returns the value of an attribute: the element's own value, the value of a transform, or the default of the scope.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.find(key).map(|attribute| &attribute.value.value)
    }

    /// Returns an attribute with its location in the source. `key` is its name, or its name in [another dialect](crate::attribute::ALIASES).
    pub fn find(&self, key: &str) -> Option<&Attribute> {
        [&*self.own, &self.set, &*self.defaults].into_iter().find_map(|layer| find_in(layer, key))
    }

    /// Returns whether the element itself sets the key, and not only its scope or a transform.
    pub fn is_own(&self, key: &str) -> bool {
        find_in(&self.own, key).is_some()
    }

    /// Returns the element's own attributes.
    pub(crate) fn own(&self) -> &[Attribute] {
        &self.own
    }

    /// Sets a value as the element's own value. The new value replaces the value in the source.
    pub fn set(&mut self, key: &str, value: Value) {
        let own = Arc::make_mut(&mut self.own);
        own.retain(|attribute| !is_named(&attribute.key.value, key) || &*attribute.key.value == key);
        put(own, unplaced(key, value));
    }

    /// Replaces a value where it was set. So a default of the scope does not become the element's own value.
    pub(crate) fn replace(&mut self, key: &str, value: Value) {
        if self.is_own(key) { self.set(key, value) } else { self.set_below(key, value) }
    }

    /// Sets a value that the element's own values override. The stylesheet does this.
    pub fn set_below(&mut self, key: &str, value: Value) {
        put(&mut self.set, unplaced(key, value));
    }

    /// Returns all attributes that apply to the element, in the order of the source.
    pub fn iter(&self) -> impl Iterator<Item = &Attribute> {
        let set = self.set.iter().filter(|attribute| !self.is_own(&attribute.key.value));
        let above = |key: &str| self.is_own(key) || self.set.iter().any(|set| &*set.key.value == key);
        let defaults = self.defaults.iter().filter(move |attribute| !above(&attribute.key.value));
        self.own.iter().chain(set).chain(defaults)
    }

    /// Returns the text of a value; an empty text if the attribute is not set.
    pub fn text(&self, key: &str) -> std::borrow::Cow<'_, str> {
        self.get(key).map(Value::text).unwrap_or_default()
    }

    /// Returns the location of a value in the source.
    pub fn span_of(&self, key: &str) -> Option<Span> {
        self.find(key).map(|attribute| attribute.value.span)
    }
}

fn find_in<'a>(layer: &'a [Attribute], key: &str) -> Option<&'a Attribute> {
    layer.iter().find(|attribute| is_named(&attribute.key.value, key))
}

/// Adds an attribute, or replaces the attribute with the same key.
pub(super) fn put(attributes: &mut Vec<Attribute>, attribute: Attribute) {
    match attributes.iter_mut().find(|old| old.key.value == attribute.key.value) {
        Some(old) => *old = attribute,
        None => attributes.push(attribute),
    }
}

fn unplaced(key: &str, value: Value) -> Attribute {
    let nowhere = Span::default();
    Attribute { key: SpannedValue::new(Arc::from(key), nowhere), value: SpannedValue::new(value, nowhere) }
}
