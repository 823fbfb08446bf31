//! Parses the URL that names a store: the part before the options, and the options. These functions return no text of the URL in an error, because
//! a URL may contain a secret. Each store has its own error messages.

use std::str::FromStr;
use std::time::Duration;

/// Splits a URL into the part before the options, and the options in their order.
///
/// ```
/// use ferrata_store::url;
///
/// let (place, mut options) = url::split("pigeon://loft?coo=true&within_ms=250&of=a%2Fb");
/// assert_eq!(place, "pigeon://loft");
/// let option = options.next().unwrap();
/// assert_eq!((option.name, option.truth()), ("coo", Some(true)));
/// assert_eq!(options.next().unwrap().millis(), Some(std::time::Duration::from_millis(250)));
/// assert_eq!(options.next().unwrap().text().as_deref(), Some("a/b"));
/// assert!(options.next().is_none());
/// ```
pub fn split(url: &str) -> (&str, impl Iterator<Item = UrlOption<'_>>) {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let options = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        UrlOption { pair, name, value }
    });
    (place, options)
}

/// Parses the path of a file URL, `scheme:///absolute/path` or `scheme:relative/path`. Escapes such as `%41` stand for characters that a URL may not contain.
///
/// ```
/// use ferrata_store::url;
///
/// assert_eq!(url::path("loft:///a%20b", "loft"), Ok(b"/a b".to_vec()));
/// assert_eq!(url::path("loft:a/b", "loft"), Ok(b"a/b".to_vec()));
/// assert_eq!(url::path("loft://host/a", "loft"), Err("has a host; the file must be on this machine"));
/// ```
///
/// # Errors
///
/// A text that describes the fault of the URL. It continues a message that begins with "the URL".
pub fn path(url: &str, scheme: &str) -> Result<Vec<u8>, &'static str> {
    let rest = url.strip_prefix(scheme).and_then(|rest| rest.strip_prefix(':'));
    let rest = rest.ok_or("does not begin with its scheme")?;
    let path = match rest.strip_prefix("//") {
        Some(rest) => match rest.find('/') {
            Some(slash) if matches!(&rest[..slash], "" | "localhost") => &rest[slash..],
            _ => return Err("has a host; the file must be on this machine"),
        },
        None => rest,
    };
    if path.contains(['?', '#']) {
        return Err("has a query or a fragment, which this store does not support");
    }
    match decode(path) {
        Some(bytes) if !bytes.is_empty() && !bytes.contains(&0) => Ok(bytes),
        Some(_) => Err("names no file"),
        None => Err("has a percent sign without two hex digits"),
    }
}

/// One option of a URL. The methods that parse its value return `None` if the value is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlOption<'a> {
    /// The whole option, as written in the URL.
    pub pair: &'a str,
    /// The name of the option, as written in the URL.
    pub name: &'a str,
    /// The value of the option, as written in the URL; empty if it has no value.
    pub value: &'a str,
}

impl UrlOption<'_> {
    /// Parses text. Escapes such as `%41` stand for characters that a URL may not contain.
    pub fn text(self) -> Option<String> {
        String::from_utf8(decode(self.value)?).ok()
    }

    /// Parses a number.
    pub fn number<T: FromStr>(self) -> Option<T> {
        self.value.parse().ok()
    }

    /// Parses a number of milliseconds.
    pub fn millis(self) -> Option<Duration> {
        self.number().map(Duration::from_millis)
    }

    /// Parses `true` or `1`, `false` or `0`.
    pub fn truth(self) -> Option<bool> {
        match self.value {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        }
    }
}

/// Replaces each escape such as `%41` by its byte. Returns `None` if two hex digits do not follow a percent sign.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            u8::try_from(digit()? * 16 + digit()?).ok()?
        } else {
            byte
        });
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_url_path_is_parsed_or_refused() {
        for (url, found) in [
            ("f:/a", Ok("/a")),
            ("f:///a", Ok("/a")),
            ("f://localhost/a", Ok("/a")),
            ("f:./a%2fb%3F", Ok("./a/b?")),
            ("g:a", Err("does not begin with its scheme")),
            ("f", Err("does not begin with its scheme")),
            ("f://a", Err("has a host; the file must be on this machine")),
            ("f:a?b", Err("has a query or a fragment, which this store does not support")),
            ("f:", Err("names no file")),
            ("f:%00", Err("names no file")),
            ("f:%", Err("has a percent sign without two hex digits")),
        ] {
            assert_eq!(path(url, "f"), found.map(|path| path.as_bytes().to_vec()), "{url}");
        }
    }

    #[test]
    fn url_options_keep_order_and_refuse_invalid_values() {
        let (place, options) = split("s:a?&x&y=&z=%41%zz&n=7&n=-1");
        assert_eq!(place, "s:a");
        let options: Vec<_> = options.collect();
        assert_eq!(options.iter().map(|option| option.name).collect::<String>(), "xyznn");
        assert_eq!(
            (options[0].text(), options[1].truth(), options[2].text()),
            (Some(String::new()), None, None)
        );
        assert_eq!((options[3].number::<u8>(), options[4].number::<u8>()), (Some(7), None));
        assert_eq!(split("s:a").1.count(), 0);
        for (text, decoded) in [
            ("a%2fB%20", Some(&b"a/B "[..])),
            ("%", None),
            ("%2", None),
            ("%é", None),
            ("%ff", Some(b"\xff")),
        ] {
            assert_eq!(decode(text).as_deref(), decoded, "{text}");
        }
    }
}
