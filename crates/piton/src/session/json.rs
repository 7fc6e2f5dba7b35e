//! Session records as JSON, for programs: each scalar has the type that PyYAML gives it. Times, and numbers that JSON
//! cannot represent, are strings.

use std::collections::HashSet;

use serde_json::{Map as Object, Number, Value};

use super::Record;
use super::scalar::Meaning;
use super::yaml::{Map, Node, NodeKind};

impl Record {
    /// Returns the record as JSON.
    pub fn to_json(&self) -> Value {
        Value::Object(object(&self.map))
    }
}

fn object(map: &Map) -> Object<String, Value> {
    let mut object = Object::new();
    let own: HashSet<&str> = map.0.iter().map(|(key, _)| key.key()).collect();
    for (key, value) in &map.0 {
        match (key.meaning(), &value.kind) {
            (Some(Meaning::Merge), NodeKind::Map(_)) => merge(&mut object, &own, value),
            (Some(Meaning::Merge), NodeKind::List(all)) => all.iter().for_each(|one| merge(&mut object, &own, one)),
            _ => drop(object.insert(key.key().to_owned(), json(value))),
        }
    }
    object
}

/// Adds the entries of another mapping. Keys of this mapping, and keys that were merged earlier, have precedence.
fn merge(so_far: &mut Object<String, Value>, own: &HashSet<&str>, other: &Node) {
    let Some(other) = other.as_map() else {
        return;
    };
    for (key, value) in object(other) {
        if !own.contains(key.as_str()) && !so_far.contains_key(&key) {
            so_far.insert(key, value);
        }
    }
}

fn json(node: &Node) -> Value {
    let text = match &node.kind {
        NodeKind::List(items) => return items.iter().map(json).collect(),
        NodeKind::Map(map) => return Value::Object(object(map)),
        NodeKind::Scalar { text, .. } => text,
    };
    let as_text = || Value::String(text.clone());
    match node.meaning() {
        Some(Meaning::Null) => Value::Null,
        Some(Meaning::Bool(value)) => Value::Bool(value),
        Some(Meaning::Int(value)) => value.and_then(Number::from_i128).map_or_else(as_text, Value::Number),
        Some(Meaning::Float(value)) => Number::from_f64(value).map_or_else(as_text, Value::Number),
        _ => as_text(),
    }
}
