//! The argument type of builder methods that accept one node name or several.

/// One name of a node, or several. Methods of the graph builder accept it, for example for the ends of an edge.
///
/// The trait is implemented for `&str`, `String`, and for arrays, slices and `Vec`s of these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot name nodes",
    label = "expected a name or a list of names",
    note = "write \"a\", [\"a\", \"b\"], or a `Vec` of names"
)]
pub trait NodeNames: sealed::SealedNames {
    /// Returns the names in order.
    #[doc(hidden)]
    fn into_names(self) -> Vec<String>;
}

mod sealed {
    pub trait SealedNames {}
    impl SealedNames for &str {}
    impl SealedNames for String {}
    impl SealedNames for &String {}
    impl<T, const N: usize> SealedNames for [T; N] {}
    impl<T> SealedNames for Vec<T> {}
    impl<T> SealedNames for &[T] {}
    impl<T, const N: usize> SealedNames for &[T; N] {}
    impl<T> SealedNames for &Vec<T> {}
}

impl NodeNames for &str {
    fn into_names(self) -> Vec<String> {
        vec![self.to_owned()]
    }
}

impl NodeNames for String {
    fn into_names(self) -> Vec<String> {
        vec![self]
    }
}

impl NodeNames for &String {
    fn into_names(self) -> Vec<String> {
        vec![self.clone()]
    }
}

impl<T: Into<String>, const N: usize> NodeNames for [T; N] {
    fn into_names(self) -> Vec<String> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<T: Into<String>> NodeNames for Vec<T> {
    fn into_names(self) -> Vec<String> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<T: AsRef<str>> NodeNames for &[T] {
    fn into_names(self) -> Vec<String> {
        self.iter().map(|name| name.as_ref().to_owned()).collect()
    }
}

impl<T: AsRef<str>, const N: usize> NodeNames for &[T; N] {
    fn into_names(self) -> Vec<String> {
        self.as_slice().into_names()
    }
}

impl<T: AsRef<str>> NodeNames for &Vec<T> {
    fn into_names(self) -> Vec<String> {
        self.as_slice().into_names()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_or_many_in_every_form() {
        let owned = ["a", "b"].map(str::to_owned);
        assert_eq!("a".into_names(), ["a"]);
        assert_eq!(owned[0].clone().into_names(), ["a"]);
        assert_eq!((&owned[0]).into_names(), ["a"]);
        assert_eq!(["a", "b"].into_names(), owned);
        assert_eq!((&["a", "b"]).into_names(), owned);
        assert_eq!(["a", "b"].as_slice().into_names(), owned);
        assert_eq!(vec!["a", "b"].into_names(), owned);
        assert_eq!((&owned.to_vec()).into_names(), owned);
    }
}
