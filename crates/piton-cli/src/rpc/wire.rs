//! Messages as lines: reading within a limit, and writing whole.

use std::io::{self, BufRead, BufReader, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value, json};

use crate::output::Failure;
use crate::platform;

/// Version of the protocol of `piton serve`. It changes only if an old client could not go on.
pub(crate) const PROTOCOL: u64 = 1;

/// Maximum length of a line. The largest parameter is a session record, which is far smaller.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 20;

/// Codes of errors, as JSON-RPC 2.0 defines them, and two of our own.
pub(crate) mod code {
    /// The line is not JSON.
    pub(crate) const PARSE: i32 = -32700;
    /// The JSON is not a request.
    pub(crate) const REQUEST: i32 = -32600;
    /// There is no such method.
    pub(crate) const METHOD: i32 = -32601;
    /// The parameters do not fit the method.
    pub(crate) const PARAMS: i32 = -32602;
    /// The command panicked.
    pub(crate) const INTERNAL: i32 = -32603;
    /// The command failed; `data.kind` tells how.
    pub(crate) const FAILED: i32 = -32000;
    /// The request was cancelled.
    pub(crate) const CANCELLED: i32 = -32800;
}

/// Reads stdin to its end and calls `each` with every line that is not blank, or with `None` for one that is too long.
pub(crate) fn read_messages(mut each: impl FnMut(Option<&[u8]>)) {
    let mut from = BufReader::with_capacity(1 << 16, io::stdin().lock());
    loop {
        match read_line(&mut from) {
            Ok(InputLine::Message(line)) if line.iter().all(u8::is_ascii_whitespace) => {}
            Ok(InputLine::Message(line)) => each(Some(&line)),
            Ok(InputLine::TooLong) => each(None),
            Ok(InputLine::End) | Err(_) => return,
        }
    }
}

/// One line of the input.
#[derive(Debug, PartialEq, Eq)]
enum InputLine {
    Message(Vec<u8>),
    /// Longer than the limit. All of it was read.
    TooLong,
    End,
}

/// Reads up to the next line end.
fn read_line(from: &mut impl BufRead) -> io::Result<InputLine> {
    let (mut line, mut is_too_long, mut is_begun) = (Vec::new(), false, false);
    loop {
        let piece = match from.fill_buf() {
            Ok(piece) => piece,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if piece.is_empty() {
            // A last line without a line end counts: it may be all that a script wrote.
            return Ok(match (is_begun, is_too_long) {
                (false, _) => InputLine::End,
                (true, false) => InputLine::Message(line),
                (true, true) => InputLine::TooLong,
            });
        }
        is_begun = true;
        let end = piece.iter().position(|byte| *byte == b'\n');
        let part = &piece[..end.unwrap_or(piece.len())];
        is_too_long |= line.len() + part.len() > LINE_BYTES_MAX;
        if is_too_long {
            line = Vec::new();
        } else {
            line.extend_from_slice(part);
        }
        let used = end.map_or(piece.len(), |end| end + 1);
        from.consume(used);
        if end.is_some() {
            return Ok(if is_too_long { InputLine::TooLong } else { InputLine::Message(line) });
        }
    }
}

/// A message of the client.
#[derive(Debug)]
pub(crate) enum Message {
    Request {
        id: Value,
        method: String,
        params: Map<String, Value>,
    },
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// A notification whose parameters are not an object. Like every notification, it gets no answer.
    InvalidNotification,
    /// The answer to a request of the server. The id is null if the client could not read the request.
    Response {
        id: Value,
        result: Result<Value, Value>,
    },
}

/// Returns true if a value contains a whole number beyond 64 bits, which is read with fewer digits than it was written
/// with.
pub(crate) fn has_lost_digits(value: &Value) -> bool {
    const EXACT_MAX: f64 = 18_446_744_073_709_551_616.0;
    match value {
        Value::Number(number) if !number.is_f64() => false,
        Value::Number(number) => number.as_f64().is_none_or(|number| number.abs() >= EXACT_MAX),
        Value::Array(values) => values.iter().any(has_lost_digits),
        Value::Object(fields) => fields.values().any(has_lost_digits),
        _ => false,
    }
}

/// Parses a message. Fails with the id to answer (null if there is none), the code and the reason.
pub(crate) fn parse(line: &[u8]) -> Result<Message, (Value, i32, String)> {
    let value: Value =
        serde_json::from_slice(line).map_err(|error| (Value::Null, code::PARSE, format!("not JSON: {error}")))?;
    let Value::Object(mut fields) = value else {
        let why = if value.is_array() { "batches are not supported: send one message a line" } else { "not an object" };
        return Err((Value::Null, code::REQUEST, why.to_owned()));
    };
    let id = fields.remove("id");
    // A number beyond 64 bits would come back changed.
    let is_valid = |id: &Value| id.is_string() || (id.is_number() && !has_lost_digits(id));
    let answered = id.clone().filter(is_valid).unwrap_or(Value::Null);
    let wrong = |why: &str| (answered.clone(), code::REQUEST, why.to_owned());
    if fields.get("jsonrpc") != Some(&json!("2.0")) {
        return Err(wrong("`jsonrpc` must be \"2.0\""));
    }
    // The client could not read a message. An error in answer to an error would have no end.
    let is_error_without_id = id == Some(Value::Null) && fields.contains_key("error") && !fields.contains_key("method");
    if !is_error_without_id && id.as_ref().is_some_and(|id| !is_valid(id)) {
        return Err(wrong("`id` must be a string, or a number within 64 bits"));
    }
    // An answer with both is malformed, and counts as an error.
    let (result, error) = (fields.remove("result"), fields.remove("error").filter(|error| !error.is_null()));
    let method = match (fields.remove("method"), id.clone(), error.map(Err).or(result.map(Ok))) {
        (Some(Value::String(method)), _, _) => method,
        (None, Some(id), Some(result)) => return Ok(Message::Response { id, result }),
        _ => return Err(wrong("`method` must be a string")),
    };
    let params = match fields.remove("params") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) if id.is_none() => return Ok(Message::InvalidNotification),
        Some(_) => return Err((answered, code::PARAMS, "`params` must be an object".to_owned())),
    };
    Ok(match id {
        Some(id) => Message::Request { id, method, params },
        None => Message::Notification { method, params },
    })
}

/// Escapes the line and paragraph separators of Unicode, which are valid in JSON but end a line for some clients, such as
/// `readline` of Node. They occur in strings only.
fn without_unicode_line_ends(json: String) -> String {
    if json.contains(['\u{2028}', '\u{2029}']) {
        return json.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    }
    json
}

/// The way to the client. Messages of several threads do not mix.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    writing: Mutex<()>,
    is_gone: AtomicBool,
}

impl Wire {
    /// Writes one message, which is a line of JSON. Errors are remembered: the client is gone.
    fn send(&self, message: String) {
        let mut message = without_unicode_line_ends(message);
        message.push('\n');
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = io::stdout().lock();
        if out.write_all(message.as_bytes()).and_then(|()| out.flush()).is_err() {
            self.is_gone.store(true, Ordering::SeqCst);
        }
    }

    /// Answers a request. `result` is JSON in one line.
    pub(crate) fn answer(&self, id: &Value, result: &str) {
        self.send(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
    }

    /// Answers a request with an error.
    pub(crate) fn fail(&self, id: &Value, code: i32, failure: &Failure) {
        let Failure { kind, message, hint } = failure;
        let data = json!({"kind": kind, "message": message, "hint": hint});
        self.send(
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, "data": data}}).to_string(),
        );
    }

    /// Sends a notification.
    pub(crate) fn notify(&self, method: &str, params: &Value) {
        self.send(json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    /// Sends a request to the client.
    pub(crate) fn ask(&self, id: &Value, method: &str, params: &Value) {
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
    }

    /// Returns true if the client does not read any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::SeqCst) || platform::is_stdout_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Vec<InputLine> {
        let mut from = BufReader::with_capacity(7, text);
        let mut all = Vec::new();
        loop {
            match read_line(&mut from).expect("memory can be read") {
                InputLine::End => return all,
                line => all.push(line),
            }
        }
    }

    #[test]
    fn lines_of_every_length_are_read_whole_or_refused_whole() {
        let message = |text: &str| InputLine::Message(text.into());
        assert_eq!(lines(b""), []);
        assert_eq!(lines(b"\n{}\n\nabcdefghijkl"), [message(""), message("{}"), message(""), message("abcdefghijkl")]);
        for (length, is_too_long) in [(LINE_BYTES_MAX, false), (LINE_BYTES_MAX + 1, true)] {
            let mut text = vec![b'x'; length];
            text.extend_from_slice(b"\nnext\n");
            let all = lines(&text);
            assert_eq!((all.len(), &all[1]), (2, &message("next")));
            assert_eq!(all[0] == InputLine::TooLong, is_too_long, "{length}");
        }
    }

    #[test]
    fn what_is_not_a_message_is_refused_with_the_id_that_can_be_answered() {
        let refused = |line: &str| parse(line.as_bytes()).map(|_| ()).expect_err(line);
        for (line, id, code) in [
            ("{", json!(null), code::PARSE),
            ("[]", json!(null), code::REQUEST),
            ("7", json!(null), code::REQUEST),
            (r#"{"id":1,"method":"a"}"#, json!(1), code::REQUEST),
            (r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#, json!(null), code::REQUEST),
            (r#"{"jsonrpc":"2.0","id":{},"method":"a"}"#, json!(null), code::REQUEST),
            (r#"{"jsonrpc":"2.0","id":null,"method":"a","error":{}}"#, json!(null), code::REQUEST),
            (r#"{"jsonrpc":"2.0","id":"x","method":1}"#, json!("x"), code::REQUEST),
            (r#"{"jsonrpc":"2.0","id":"x","method":"a","params":[1]}"#, json!("x"), code::PARAMS),
        ] {
            let (found_id, found_code, _) = refused(line);
            assert_eq!((found_id, found_code), (id, code), "{line}");
        }
        let response = |line: &str| matches!(parse(line.as_bytes()), Ok(Message::Response { result: Err(_), .. }));
        assert!(response(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"not JSON"}}"#));
        let without = |line: &str| parse(line.as_bytes()).map(|message| format!("{message:?}")).expect("valid");
        assert_eq!(
            without(r#"{"jsonrpc":"2.0","id":1,"method":"a","params":null}"#),
            without(r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#)
        );
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(refused(&deep).1, code::PARSE);
    }
}
