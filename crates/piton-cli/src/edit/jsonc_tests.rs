//! Tests of the JSON editor: examples, and random texts.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::jsonc::{Document, Step};

fn key(name: &str) -> Step {
    Step::Key(name.to_owned())
}

fn pushed(text: &str) -> String {
    let mut document = Document::parse(text).expect("a document");
    document.push(&["a", "b"], &json!({"x": 1})).expect("an edit");
    document.text().to_owned()
}

#[test]
fn an_item_is_added_in_the_style_of_the_text() {
    for (text, expected) in [
        ("", "{\n  \"a\": {\n    \"b\": [\n      {\n        \"x\": 1\n      }\n    ]\n  }\n}\n"),
        ("{}", "{\n  \"a\": {\n    \"b\": [\n      {\n        \"x\": 1\n      }\n    ]\n  }\n}"),
        (r#"{"a":{"b":[1]}}"#, r#"{"a":{"b":[1,{"x":1}]}}"#),
        (r#"{"a": {"b": [1, 2]}}"#, r#"{"a": {"b": [1, 2, {"x": 1}]}}"#),
        (r#"{"c": 1}"#, r#"{"c": 1, "a": {"b": [{"x": 1}]}}"#),
        (
            "{\"a\": {\"b\": [\n\t1, // one\n\t// two\n]}}",
            "{\"a\": {\"b\": [\n\t1, // one\n\t{\n\t\t\"x\": 1\n\t},\n\t// two\n]}}",
        ),
        ("{\"a\": {\"b\": [ // none\n]}}", "{\"a\": {\"b\": [ // none\n  {\n    \"x\": 1\n  }\n]}}"),
        ("{\r\n \"a\": {\r\n }\r\n}", "{\r\n \"a\": {\r\n  \"b\": [\r\n   {\r\n    \"x\": 1\r\n   }\r\n  ]\r\n }\r\n}"),
    ] {
        assert_eq!(pushed(text), expected, "{text:?}");
    }
}

#[test]
fn what_no_agent_would_read_is_an_error_with_its_place() {
    for (text, words) in [
        ("{", "line 1, column 2: expected a key in quotes, but found the end"),
        ("{\"a\" 1}", "line 1, column 6: expected a colon"),
        ("{\"a\": 1 \"b\": 2}", "expected a comma or }"),
        ("[1 2]", "expected a comma or ]"),
        ("{\"a\": nope}", "expected a value"),
        ("{\"a\": \"x\n\"}", "line 1, column 7"),
        ("{} {}", "line 1, column 4: expected nothing more"),
        ("/* {}", "expected a comment that ends"),
        ("{'a': 1}", "expected a key in quotes"),
        ("{\"a\": \"", "expected a text that ends"),
        ("{\"ü\": 01}", "expected a value"),
        ("[,]", "expected a value"),
    ] {
        let error = Document::parse(text).expect_err(text);
        assert!(error.contains(words), "{text:?}: {error}");
    }
    assert!(Document::parse(&"[".repeat(5000)).expect_err("deep").contains("less nesting"));
}

#[test]
fn a_line_behind_a_comment_does_not_vanish_into_it() {
    let mut document = Document::parse("[ // c\n1, 2]").expect("a document");
    document.remove(&[Step::Item(0)]).expect("an edit");
    assert_eq!((document.value(), document.text()), (json!([2]), "[ // c\n 2]"));
}

#[test]
fn the_last_of_two_keys_is_the_one_that_counts() {
    let mut document = Document::parse(r#"{"a": {"b": [1]}, "a": {"b": [2]}}"#).expect("a document");
    document.push(&["a", "b"], &json!(3)).expect("an edit");
    assert_eq!(document.value(), json!({"a": {"b": [2, 3]}}));
    document.remove(&[key("a"), key("b"), Step::Item(1)]).expect("an edit");
    assert_eq!(document.text(), r#"{"a": {"b": [1]}, "a": {"b": [2]}}"#);
}

/// Space and comments in all variants.
fn trivia() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        5 => Just(String::new()),
        3 => Just(" ".to_owned()),
        3 => Just("\n  ".to_owned()),
        1 => Just("\r\n\t".to_owned()),
        1 => Just(" // c, \"d\": [\n".to_owned()),
        1 => Just("/* } */".to_owned()),
    ];
    proptest::collection::vec(part, 0..3).prop_map(|parts| parts.concat())
}

/// A JSON text, whose lists and objects may end in a comma.
fn text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![Just("1".to_owned()), Just("\"x \\\" //\"".to_owned()), Just("null".to_owned())];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let part = (trivia(), inner.clone(), trivia()).prop_map(|(before, value, after)| before + &value + &after);
        let list = (proptest::collection::vec(part, 0..4), any::<bool>(), trivia()).prop_map(join('[', ']'));
        let member = (trivia(), "[a-e]", trivia(), inner);
        let member = member.prop_map(|(before, key, gap, value)| format!("{before}\"{key}\"{gap}:{gap}{value}"));
        let object = (proptest::collection::vec(member, 0..4), any::<bool>(), trivia()).prop_map(join('{', '}'));
        prop_oneof![list, object]
    })
}

fn join(open: char, close: char) -> impl Fn((Vec<String>, bool, String)) -> String {
    move |(parts, has_comma, end)| {
        let comma = if has_comma && !parts.is_empty() { "," } else { "" };
        format!("{open}{}{comma}{end}{close}", parts.join(","))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// I9. The push itself changes nothing in the value but the list.
    #[test]
    fn what_is_pushed_and_removed_leaves_the_very_text(list in text(), rest in text(), gap in trivia()) {
        let whole = format!("{gap}{{{gap}\"z\":{rest},{gap}\"list\":{list}{gap}}}{gap}");
        let mut document = Document::parse(&whole).expect("a document");
        let before = document.value();
        let Value::Array(items) = &before["list"] else { return Ok(()) };
        let item = json!({"command": "x", "n": [1, {}]});
        prop_assert_eq!(document.push(&["list"], &item), Ok(1));
        let mut expected = before.clone();
        expected["list"].as_array_mut().expect("a list").push(item);
        prop_assert_eq!(document.value(), expected);
        document.remove(&[key("list"), Step::Item(items.len())]).expect("an edit");
        if items.is_empty() {
            prop_assert_eq!(document.value(), before);
        } else {
            prop_assert_eq!(document.text(), whole);
        }
    }

    #[test]
    fn any_item_can_be_removed_and_no_other_goes_with_it(list in text(), at in 0..4usize) {
        let mut document = Document::parse(&list).expect("a document");
        let Value::Array(mut items) = document.value() else { return Ok(()) };
        if at >= items.len() {
            return Ok(());
        }
        document.remove(&[Step::Item(at)]).expect("an edit");
        items.remove(at);
        prop_assert_eq!(document.value(), Value::Array(items));
    }

    #[test]
    fn no_text_makes_it_panic(text in "[\\[\\]{}\",:/*\\\\a1 \n\u{feff}ü]{0,40}") {
        if let Ok(mut document) = Document::parse(&text) {
            let _ = document.push(&["a", "b"], &json!(1));
        }
    }
}
