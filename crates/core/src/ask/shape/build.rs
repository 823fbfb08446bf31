//! Shapes made by hand, and by the derive.

use super::{Field, Form, Shape};

impl Shape {
    /// Anything that is JSON.
    #[must_use]
    pub fn any() -> Self {
        Self(Form::Any)
    }

    /// One of these texts.
    ///
    /// ```
    /// use ferrata_core::ask::Shape;
    ///
    /// let shape = Shape::choices(["approve", "reject"]);
    /// assert!(shape.check(r#""approve""#).is_ok());
    /// assert!(shape.check(r#""perhaps""#).is_err());
    /// assert_eq!(shape.to_string(), "one of: approve, reject");
    /// ```
    #[must_use]
    pub fn choices(texts: impl IntoIterator<Item: Into<String>>) -> Self {
        Self(Form::OneOf(texts.into_iter().map(Into::into).collect()))
    }

    /// Null, or this.
    #[must_use]
    pub fn nullable(self) -> Self {
        match self.0 {
            Form::Any => Self::any(),
            form => Self(Form::Nullable(Box::new(form))),
        }
    }

    /// A list whose items are this.
    #[must_use]
    pub fn list(item: Self) -> Self {
        Self(Form::List(Box::new(item.0)))
    }

    /// A list with these elements, of which all after the first `least` may be left out.
    ///
    /// ```
    /// use ferrata_core::ask::Shape;
    ///
    /// let shape = Shape::tuple([Shape::of::<bool>(), Shape::of::<String>()], 1);
    /// assert!(shape.check("[true]").is_ok());
    /// assert!(shape.check("[]").is_err());
    /// ```
    #[must_use]
    pub fn tuple(elements: impl IntoIterator<Item = Self>, least: usize) -> Self {
        let forms: Vec<_> = elements.into_iter().map(|shape| shape.0).collect();
        Self(Form::Tuple { least: least.min(forms.len()), forms })
    }

    /// An object whose values are this, whatever their keys.
    #[must_use]
    pub fn map(value: Self) -> Self {
        Self(Form::Map(Box::new(value.0)))
    }

    /// An object with these fields, and any other. The name of one that may be left out ends in `?`; to one that may not and ends in `?` or
    /// `!` by itself, append a `!`.
    ///
    /// ```
    /// use ferrata_core::ask::Shape;
    ///
    /// let shape = Shape::object([("sure?!", Shape::of::<bool>()), ("note?", Shape::of::<String>())]);
    /// assert!(shape.check(r#"{"sure?": true}"#).is_ok());
    /// ```
    #[must_use]
    pub fn object<N: Into<String>>(fields: impl IntoIterator<Item = (N, Self)>) -> Self {
        let fields = fields.into_iter().map(|(key, shape)| Field::from_key(&key.into(), shape.0)).collect();
        Self(Form::Object { fields, closed: false })
    }

    /// Refuses every field of an object that was not named; changes no other shape.
    #[must_use]
    pub fn closed(self) -> Self {
        match self.0 {
            Form::Object { fields, .. } => Self(Form::Object { fields, closed: true }),
            form => Self(form),
        }
    }

    /// An enum as serde writes it: the name of a variant, or an object with the name as its only key. One without content has none here.
    ///
    /// ```
    /// use ferrata_core::ask::Shape;
    ///
    /// let shape = Shape::variants([("cash", None), ("card", Some(Shape::of::<String>()))]);
    /// assert!(shape.check(r#""cash""#).is_ok());
    /// assert!(shape.check(r#"{"card": "4242"}"#).is_ok());
    /// assert!(shape.check(r#""card""#).is_err());
    /// ```
    #[must_use]
    pub fn variants<N: Into<String>>(variants: impl IntoIterator<Item = (N, Option<Self>)>) -> Self {
        let variants: Vec<_> = named(variants).collect();
        if variants.iter().all(|(_, form)| *form == Form::Null) {
            return Self(Form::Units(variants.into_iter().map(|(name, _)| name).collect()));
        }
        Self(Form::Variants(variants.into_iter().collect()))
    }

    /// An object whose field `tag` names a variant, and whose other fields are of the shape there: none where they do not matter.
    ///
    /// ```
    /// use ferrata_core::ask::Shape;
    ///
    /// let card = Shape::object([("number", Shape::of::<String>())]);
    /// let shape = Shape::tagged("by", [("cash", None), ("card", Some(card))]);
    /// assert!(shape.check(r#"{"by": "cash"}"#).is_ok());
    /// assert_eq!(shape.check(r#"{"by": "card"}"#), Err("at /number: missing, expected text".to_owned()));
    /// ```
    #[must_use]
    pub fn tagged<N: Into<String>>(
        tag: impl Into<String>,
        variants: impl IntoIterator<Item = (N, Option<Self>)>,
    ) -> Self {
        Self(Form::Tagged { tag: tag.into(), variants: named(variants).collect() })
    }

    /// What one of these takes.
    #[must_use]
    pub fn any_of(shapes: impl IntoIterator<Item = Self>) -> Self {
        Self(Form::AnyOf(shapes.into_iter().map(|shape| shape.0).collect()))
    }

    /// Returns the texts to choose from, if the answer is one of some texts; otherwise none.
    pub fn options(&self) -> &[String] {
        match &self.0 {
            Form::OneOf(texts) | Form::Units(texts) => texts,
            _ => &[],
        }
    }
}

fn named<N: Into<String>>(
    variants: impl IntoIterator<Item = (N, Option<Shape>)>,
) -> impl Iterator<Item = (String, Form)> {
    variants.into_iter().map(|(name, shape)| (name.into(), shape.map_or(Form::Null, |shape| shape.0)))
}
