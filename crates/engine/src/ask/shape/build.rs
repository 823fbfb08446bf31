//! Constructors of shapes, for hand-written code and the derive.

use super::{Shape, ShapeField, ShapeForm};

impl Shape {
    /// Returns the shape of any JSON.
    #[must_use]
    pub fn any() -> Self {
        Self(ShapeForm::Any)
    }

    /// Returns the shape of one of these texts.
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

    /// Returns the shape that also accepts null.
    #[must_use]
    pub fn nullable(self) -> Self {
        match self.0 {
            ShapeForm::Any => Self::any(),
            form => Self(ShapeForm::Nullable(Box::new(form))),
        }
    }

    /// Returns the shape of a list with items of this shape.
    #[must_use]
    pub fn list(item: Self) -> Self {
        Self(ShapeForm::List(Box::new(item.0)))
    }

    /// Returns the shape of a list with these elements. All elements after the first `least` are optional.
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

    /// Returns the shape of an object with values of this shape and any keys.
    #[must_use]
    pub fn map(value: Self) -> Self {
        Self(ShapeForm::Map(Box::new(value.0)))
    }

    /// Returns the shape of an object with these fields and any others. An optional field's name ends in `?`. Append a `!` to a required field's name
    /// that ends in `?` or `!`.
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

    /// Rejects all unnamed fields of an object. Other shapes are unchanged.
    #[must_use]
    pub fn closed(self) -> Self {
        match self.0 {
            ShapeForm::Object { fields, .. } => Self(ShapeForm::Object { fields, closed: true }),
            form => Self(form),
        }
    }

    /// Returns the shape of an enum as serde writes it: the name of a variant, or an object with the name as its only key. A variant without content
    /// has `None`.
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

    /// Returns the shape of an object with a field `tag` that names a variant, and the other fields of that variant. `None` ignores the other fields.
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

    /// Returns the choices if the answer is one of several texts, otherwise an empty slice.
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
