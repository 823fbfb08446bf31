//! Constructors of shapes, for code written by hand and for the derive macro.

use super::{Shape, ShapeField, ShapeForm};

impl Shape {
    /// Returns the shape that accepts any JSON.
    #[must_use]
    pub fn any() -> Self {
        Self(ShapeForm::Any)
    }

    /// Returns the shape that accepts one of these texts.
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
        Self(ShapeForm::OneOf(texts.into_iter().map(Into::into).collect()))
    }

    /// Returns the shape that accepts the values of this shape, and also `null`.
    #[must_use]
    pub fn nullable(self) -> Self {
        match self.0 {
            ShapeForm::Any => Self::any(),
            form => Self(ShapeForm::Nullable(Box::new(form))),
        }
    }

    /// Returns the shape that accepts a list of any length whose items have the shape `item`.
    #[must_use]
    pub fn list(item: Self) -> Self {
        Self(ShapeForm::List(Box::new(item.0)))
    }

    /// Returns the shape that accepts a list with exactly these elements. Elements after the first `least` may be missing.
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
        Self(ShapeForm::Tuple { least: least.min(forms.len()), forms })
    }

    /// Returns the shape that accepts an object with any keys whose values have the shape `value`.
    #[must_use]
    pub fn map(value: Self) -> Self {
        Self(ShapeForm::Map(Box::new(value.0)))
    }

    /// Returns the shape that accepts an object with these fields and any other fields. To make a field optional, append `?` to its name. If the name
    /// of a required field itself ends in `?` or `!`, append `!` to it.
    ///
    /// ```
    /// use ferrata_core::ask::Shape;
    ///
    /// let shape = Shape::object([("sure?!", Shape::of::<bool>()), ("note?", Shape::of::<String>())]);
    /// assert!(shape.check(r#"{"sure?": true}"#).is_ok());
    /// ```
    #[must_use]
    pub fn object<N: Into<String>>(fields: impl IntoIterator<Item = (N, Self)>) -> Self {
        let fields =
            fields.into_iter().map(|(key, shape)| ShapeField::from_key(&key.into(), shape.0)).collect();
        Self(ShapeForm::Object { fields, closed: false })
    }

    /// Makes the shape of an object reject fields that it does not name. Other shapes stay unchanged.
    #[must_use]
    pub fn closed(self) -> Self {
        match self.0 {
            ShapeForm::Object { fields, .. } => Self(ShapeForm::Object { fields, closed: true }),
            form => Self(form),
        }
    }

    /// Returns the shape that accepts an enum as serde writes it: the name of a variant, or an object with the name as its only key. Pass `None` for
    /// a variant without content.
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
        if variants.iter().all(|(_, form)| *form == ShapeForm::Null) {
            return Self(ShapeForm::Units(variants.into_iter().map(|(name, _)| name).collect()));
        }
        Self(ShapeForm::Variants(variants.into_iter().collect()))
    }

    /// Returns the shape that accepts an object whose field `tag` names a variant and whose other fields have the shape of this variant. For a
    /// variant with `None`, the other fields are not checked.
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
        Self(ShapeForm::Tagged { tag: tag.into(), variants: named(variants).collect() })
    }

    /// Returns the shape that accepts any value of one of these shapes.
    #[must_use]
    pub fn any_of(shapes: impl IntoIterator<Item = Self>) -> Self {
        Self(ShapeForm::AnyOf(shapes.into_iter().map(|shape| shape.0).collect()))
    }

    /// Returns the texts between which the answer must choose. Returns an empty slice if the shape is of another kind.
    pub fn options(&self) -> &[String] {
        match &self.0 {
            ShapeForm::OneOf(texts) | ShapeForm::Units(texts) => texts,
            _ => &[],
        }
    }
}

fn named<N: Into<String>>(
    variants: impl IntoIterator<Item = (N, Option<Shape>)>,
) -> impl Iterator<Item = (String, ShapeForm)> {
    variants.into_iter().map(|(name, shape)| (name.into(), shape.map_or(ShapeForm::Null, |shape| shape.0)))
}
