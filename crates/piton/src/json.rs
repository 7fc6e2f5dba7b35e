//! JSON of paths and keywords, for every report.
//!
//! A path is a string, in which bytes that are not UTF-8 are replaced by U+FFFD. If there are such bytes, a second key
//! beside it, with the same name and `_bytes` after it, has the exact path: printable ASCII, in which every other byte
//! and `%` itself are `%` and two hexadecimal digits. A list of paths has a list of the same length beside it, with
//! `null` for each path that is UTF-8.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use serde::ser::{Serialize, SerializeMap as _, Serializer};

use crate::relpath::{escape, unescape};
use crate::sys;

/// Name of a key that holds a path.
pub trait PathKey {
    /// Name of the key.
    const KEY: &'static str;
    /// Name of the key for the exact bytes.
    const KEY_BYTES: &'static str;
    /// Meaning of the key.
    const MEANING: &'static str;
}

/// Declares path keys: `Type = "key", "key_bytes", "meaning";`.
#[macro_export]
#[doc(hidden)]
macro_rules! path_keys {
    ($($vis:vis $name:ident = $key:literal, $bytes:literal, $meaning:literal;)+) => {$(
        #[doc = concat!("Key `", $key, "`: ", $meaning, ".")]
        #[derive(Debug, Clone, Copy)]
        $vis struct $name;

        impl $crate::json::PathKey for $name {
            const KEY: &'static str = $key;
            const KEY_BYTES: &'static str = $bytes;
            const MEANING: &'static str = $meaning;
        }
    )+};
}

path_keys! {
    pub AtPath = "path", "path_bytes", "path, relative to the project";
    pub AtOldPath = "old_path", "old_path_bytes", "path before a rename, or null";
    pub AtName = "name", "name_bytes", "new path";
    pub AtPaths = "paths", "paths_bytes", "paths, relative to the project";
    pub AtFile = "file", "file_bytes", "path of the file";
    pub AtDir = "dir", "dir_bytes", "path of the directory";
    pub AtWorkdir = "workdir", "workdir_bytes", "directory of the project, or null if it is not known";
}

/// One path as a key of a report. Serialised with `#[serde(flatten)]`.
#[derive(Debug, Clone)]
pub struct JsonPath<'a, K>(Cow<'a, [u8]>, PhantomData<K>);

/// A path that may be missing: the key is then `null`.
#[derive(Debug, Clone)]
pub struct JsonPathOption<'a, K>(Option<Cow<'a, [u8]>>, PhantomData<K>);

/// A list of paths as a key of a report.
#[derive(Debug, Clone)]
pub struct JsonPaths<'a, K>(Vec<&'a [u8]>, PhantomData<K>);

impl<'a, K> JsonPath<'a, K> {
    /// Returns the key for a path in a project.
    pub fn new(path: impl Into<Cow<'a, [u8]>>) -> Self {
        Self(path.into(), PhantomData)
    }

    /// Returns the key for a path of the file system.
    pub fn of(path: &'a Path) -> Self {
        Self::new(sys::path_bytes(path))
    }
}

impl<'a, K> JsonPathOption<'a, K> {
    /// Returns the key for a path in a project.
    pub fn new(path: Option<&'a [u8]>) -> Self {
        Self(path.map(Cow::Borrowed), PhantomData)
    }

    /// Returns the key for a path of the file system.
    pub fn of(path: Option<&'a Path>) -> Self {
        Self::new(path.map(sys::path_bytes))
    }

    /// Returns the key for a path of the file system that the caller does not keep.
    pub fn owned(path: Option<std::path::PathBuf>) -> Self {
        Self(path.map(|path| Cow::Owned(path.into_os_string().into_encoded_bytes())), PhantomData)
    }
}

impl<'a, K> JsonPaths<'a, K> {
    /// Returns the key for a list of paths.
    pub fn new<P: AsRef<[u8]> + ?Sized + 'a>(paths: impl IntoIterator<Item = &'a P>) -> Self {
        Self(paths.into_iter().map(AsRef::as_ref).collect(), PhantomData)
    }

    /// Returns the key for a list of paths of the file system.
    pub fn of(paths: &'a [std::path::PathBuf]) -> Self {
        Self(paths.iter().map(|path| sys::path_bytes(path)).collect(), PhantomData)
    }
}

/// Returns the keyword of a value of a fieldless enum.
///
/// ```
/// assert_eq!(piton::json::keyword(&piton::WhySkipped::TooManyFiles), "too_many_files");
/// ```
pub fn keyword(value: &impl Serialize) -> String {
    struct Keyword<'a, T>(&'a T);

    impl<T: Serialize> fmt::Display for Keyword<'_, T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.serialize(f)
        }
    }

    Keyword(value).to_string()
}

/// Returns the bytes of a path that was escaped as in a `_bytes` key. Returns `None` if it is not escaped like that.
///
/// ```
/// assert_eq!(piton::json::unescape_path("d%ff/a%20b"), Some(b"d\xff/a b".to_vec()));
/// assert_eq!(piton::json::unescape_path("50%"), None);
/// ```
pub fn unescape_path(text: &str) -> Option<Vec<u8>> {
    unescape(text.as_bytes())
}

/// Returns the escaped bytes of a path that is not UTF-8.
fn exact(path: &[u8]) -> Option<String> {
    std::str::from_utf8(path).is_err().then(|| escape(path))
}

impl<K: PathKey> Serialize for JsonPath<'_, K> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry(K::KEY, &String::from_utf8_lossy(&self.0))?;
        if let Some(exact) = exact(&self.0) {
            map.serialize_entry(K::KEY_BYTES, &exact)?;
        }
        map.end()
    }
}

impl<K: PathKey> Serialize for JsonPathOption<'_, K> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(path) => JsonPath::<K>(Cow::Borrowed(path), PhantomData).serialize(to),
            None => {
                let mut map = to.serialize_map(Some(1))?;
                map.serialize_entry(K::KEY, &())?;
                map.end()
            }
        }
    }
}

impl<K: PathKey> Serialize for JsonPaths<'_, K> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        let texts: Vec<_> = self.0.iter().map(|path| String::from_utf8_lossy(path)).collect();
        map.serialize_entry(K::KEY, &texts)?;
        let bytes: Vec<_> = self.0.iter().map(|path| exact(path)).collect();
        if bytes.iter().any(Option::is_some) {
            map.serialize_entry(K::KEY_BYTES, &bytes)?;
        }
        map.end()
    }
}

#[cfg(feature = "schema")]
mod schema {
    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{Cow, JsonPath, JsonPathOption, JsonPaths, PathKey};

    fn keys<K: PathKey>(text: Schema, bytes: Schema) -> Schema {
        let mut schema = json_schema!({"type": "object", "required": [K::KEY], "properties": {}});
        let described = |mut schema: Schema, meaning: String| {
            schema.insert("description".to_owned(), meaning.into());
            schema.to_value()
        };
        let properties = schema.get_mut("properties").and_then(|properties| properties.as_object_mut());
        if let Some(properties) = properties {
            properties.insert(K::KEY.to_owned(), described(text, K::MEANING.to_owned()));
            let meaning = format!("the exact bytes of `{}`, escaped; only if they are not UTF-8", K::KEY);
            properties.insert(K::KEY_BYTES.to_owned(), described(bytes, meaning));
        }
        schema
    }

    macro_rules! schema_of_keys {
        ($type:ident, $text:tt, $bytes:tt) => {
            impl<K: PathKey> JsonSchema for $type<'_, K> {
                fn inline_schema() -> bool {
                    true
                }

                fn schema_name() -> Cow<'static, str> {
                    format!("{}At_{}", stringify!($type), K::KEY).into()
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    keys::<K>(json_schema!($text), json_schema!($bytes))
                }
            }
        };
    }

    schema_of_keys!(JsonPath, {"type": "string"}, {"type": "string"});
    schema_of_keys!(JsonPathOption, {"type": ["string", "null"]}, {"type": "string"});
    schema_of_keys!(
        JsonPaths,
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {"type": ["string", "null"]}}
    );
}

/// Paths in records: escaped, so that their bytes survive.
pub(crate) mod escaped {
    use std::path::PathBuf;

    use serde::de::{Deserialize as _, Deserializer, Error as _};
    use serde::ser::Serializer;

    use crate::relpath::{escape, unescape};
    use crate::sys;

    fn bytes_of<E: serde::de::Error>(text: &str) -> Result<Vec<u8>, E> {
        unescape(text.as_bytes()).ok_or_else(|| E::custom("not an escaped path"))
    }

    /// A path of the file system.
    pub(crate) mod path {
        use super::*;

        pub(crate) fn serialize<S: Serializer>(path: &std::path::Path, to: S) -> Result<S::Ok, S::Error> {
            to.serialize_str(&escape(sys::path_bytes(path)))
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
            Ok(sys::path_from_bytes(bytes_of(&String::deserialize(from)?)?))
        }
    }

    /// A path of the file system that may be missing.
    pub(crate) mod path_option {
        use super::*;

        #[expect(clippy::ref_option, reason = "the signature that serde asks for")]
        pub(crate) fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
            match path {
                Some(path) => path::serialize(path, to),
                None => to.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
            let text = Option::<String>::deserialize(from)?;
            text.map(|text| Ok(sys::path_from_bytes(bytes_of(&text)?))).transpose()
        }
    }

    /// A list of paths in a project.
    pub(crate) mod paths {
        use super::*;

        pub(crate) fn serialize<S: Serializer>(paths: &[Vec<u8>], to: S) -> Result<S::Ok, S::Error> {
            to.collect_seq(paths.iter().map(|path| escape(path)))
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Vec<u8>>, D::Error> {
            let texts = Vec::<String>::deserialize(from)?;
            texts.iter().map(|text| unescape(text.as_bytes()).ok_or_else(|| D::Error::custom("not escaped"))).collect()
        }
    }
}

/// Reads a type back from its text, by a function that returns `None` for every other text.
macro_rules! deserialized_by {
    ($($type:ty, $parse:expr, $meaning:literal;)+) => {$(
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(from)?;
                $parse(&text).ok_or_else(|| serde::de::Error::custom(concat!("expected ", $meaning)))
            }
        }
    )+};
}

/// Serialises a type as another one, which has the keys of its JSON. The other one is made from a reference.
macro_rules! serialized_as {
    ($($type:ident $(<$life:lifetime>)? => $keys:ty;)+) => {$(
        impl serde::Serialize for $type $(<$life>)? {
            fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
                <$keys>::from(self).serialize(to)
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $type $(<$life>)? {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$keys as schemars::JsonSchema>::json_schema(generator)
            }
        }
    )+};
}

/// Serialises an enum as the keyword that its `word` returns. `ALL` lists its values.
macro_rules! serialized_as_word {
    ($($type:ty),+) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
                to.serialize_str(self.word())
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let words = <$type>::ALL.map(|one| one.word());
                schemars::json_schema!({"type": "string", "enum": words})
            }
        }
    )+};
}

/// Serialises a type as the text of its `Display`, which has this description.
macro_rules! serialized_as_text {
    ($($type:ty = $meaning:literal;)+) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "description": $meaning})
            }
        }
    )+};
}

pub(crate) use {deserialized_by, serialized_as, serialized_as_text, serialized_as_word};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(serde::Serialize)]
    struct Report<'a> {
        #[serde(flatten)]
        path: JsonPath<'a, AtPath>,
        #[serde(flatten)]
        old_path: JsonPathOption<'a, AtOldPath>,
        #[serde(flatten)]
        paths: JsonPaths<'a, AtPaths>,
    }

    fn report(path: &[u8], old_path: Option<&[u8]>, paths: &[&[u8]]) -> serde_json::Value {
        let (path, old_path) = (JsonPath::new(path), JsonPathOption::new(old_path));
        serde_json::to_value(Report { path, old_path, paths: JsonPaths::new(paths.iter().copied()) }).expect("JSON")
    }

    #[test]
    fn a_path_has_exact_bytes_beside_it_only_if_it_is_not_utf_8() {
        assert_eq!(report(b"a%", None, &[b"b"]), json!({"path": "a%", "old_path": null, "paths": ["b"]}));
        assert_eq!(
            report(b"a%\xff", Some(b"\xfe b"), &[b"b", b"c\xff"]),
            json!({
                "path": "a%\u{fffd}", "path_bytes": "a%25%ff",
                "old_path": "\u{fffd} b", "old_path_bytes": "%fe%20b",
                "paths": ["b", "c\u{fffd}"], "paths_bytes": [null, "c%ff"],
            })
        );
    }
}
