//! The operations of the server.

use std::io::{self, Write};
use std::net::TcpStream;

use super::{Request, Shared, Stored};

/// An answer, and how many bytes of it are those of an object.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) object_bytes: u64,
}

impl Reply {
    fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), object_bytes: 0 }
    }

    fn missing() -> Self {
        Self::new(404, "<Error><Code>NoSuchKey</Code></Error>")
    }
}

/// Writes an answer. That to a HEAD request has no body, whatever its length.
pub(super) fn send(
    out: &mut TcpStream,
    is_head: bool,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
) -> io::Result<()> {
    let mut text = format!("HTTP/1.1 {status} OK\r\n");
    if !headers.iter().any(|(name, _)| name == "content-length") {
        text.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    out.write_all(text.as_bytes())?;
    if is_head { Ok(()) } else { out.write_all(body) }
}

/// Does what is asked.
pub(super) fn answer(shared: &Shared, request: &Request) -> Reply {
    let has = |key: &str| request.query.contains_key(key);
    let is_bucket = !request.path.trim_end_matches('/').contains('/');
    match &*request.method {
        "GET" if is_bucket => list(shared, request),
        "GET" | "HEAD" => read(shared, request),
        "PUT" if has("partNumber") => put_part(shared, request),
        "PUT" => {
            shared.change(&request.path, Some(request.body.clone()));
            written(&request.body)
        }
        "POST" if has("uploads") => {
            let id = format!("u{}", shared.dice.lock().expect("no panic").next());
            shared.contents.lock().expect("no panic").uploads.insert(id.clone(), Default::default());
            let text =
                format!("<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>");
            Reply::new(200, text)
        }
        "POST" if has("uploadId") => complete(shared, request),
        "DELETE" if has("uploadId") => {
            let upload = request.query.get("uploadId").cloned().unwrap_or_default();
            shared.contents.lock().expect("no panic").uploads.remove(&upload);
            Reply::new(204, "")
        }
        "DELETE" => {
            shared.change(&request.path, None);
            Reply::new(204, "")
        }
        // Some servers have no deletion of many objects at once.
        _ => Reply::new(400, "<Error><Code>NotImplemented</Code></Error>"),
    }
}

fn written(bytes: &[u8]) -> Reply {
    let mut reply = Reply::new(200, "");
    reply.headers.push(("etag".to_owned(), etag(bytes)));
    reply
}

fn etag(bytes: &[u8]) -> String {
    let sum = bytes
        .iter()
        .fold(14_695_981_039_346_656_037_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211));
    format!("\"{sum:016x}\"")
}

fn read(shared: &Shared, request: &Request) -> Reply {
    let found = shared.contents.lock().expect("no panic").objects.get(&request.path).cloned();
    let Some(Stored { bytes, modified_secs }) = found else { return Reply::missing() };
    let mut headers = vec![
        ("last-modified".to_owned(), http_date(modified_secs)),
        ("etag".to_owned(), etag(&bytes)),
        ("accept-ranges".to_owned(), "bytes".to_owned()),
    ];
    if request.method == "HEAD" {
        headers.push(("content-length".to_owned(), bytes.len().to_string()));
        return Reply { headers, ..Reply::new(200, "") };
    }
    let range = request.headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let Some((first, last)) = range else {
        let object_bytes = bytes.len() as u64;
        return Reply { headers, object_bytes, ..Reply::new(200, bytes.to_vec()) };
    };
    let first: usize = first.parse().unwrap_or(0);
    let last = last.parse().unwrap_or(usize::MAX).min(bytes.len().saturating_sub(1));
    if first > last || first >= bytes.len() {
        return Reply::new(416, "<Error><Code>InvalidRange</Code></Error>");
    }
    headers.push(("content-range".to_owned(), format!("bytes {first}-{last}/{}", bytes.len())));
    let part = bytes[first..=last].to_vec();
    Reply { headers, object_bytes: part.len() as u64, ..Reply::new(206, part) }
}

fn put_part(shared: &Shared, request: &Request) -> Reply {
    let number = request.query.get("partNumber").and_then(|number| number.parse().ok()).unwrap_or(0);
    let upload = request.query.get("uploadId").cloned().unwrap_or_default();
    let mut contents = shared.contents.lock().expect("no panic");
    match contents.uploads.get_mut(&upload) {
        Some(parts) => drop(parts.insert(number, request.body.clone())),
        None => return Reply::new(404, "<Error><Code>NoSuchUpload</Code></Error>"),
    }
    drop(contents);
    written(&request.body)
}

fn complete(shared: &Shared, request: &Request) -> Reply {
    let upload = request.query.get("uploadId").cloned().unwrap_or_default();
    let parts = shared.contents.lock().expect("no panic").uploads.remove(&upload);
    let Some(parts) = parts else { return Reply::new(404, "<Error><Code>NoSuchUpload</Code></Error>") };
    let bytes: Vec<u8> = parts.into_values().flatten().collect();
    let etag = etag(&bytes);
    shared.change(&request.path, Some(bytes));
    let text = format!(
        "<CompleteMultipartUploadResult><ETag>{etag}</ETag><Location>x</Location><Bucket>x</Bucket><Key>x</Key></CompleteMultipartUploadResult>"
    );
    Reply::new(200, text)
}

/// Lists in pages of 1,000.
fn list(shared: &Shared, request: &Request) -> Reply {
    let bucket = request.path.trim_end_matches('/');
    let prefix = request.query.get("prefix").map(String::as_str).unwrap_or_default();
    let after = request.query.get("continuation-token").or(request.query.get("start-after"));
    let after = after.map(String::as_str).unwrap_or_default();
    let all = shared.listed(&format!("{bucket}/{prefix}"));
    let key = |full: &str| full[bucket.len() + 1..].to_owned();
    let rest: Vec<_> = all.into_iter().filter(|(full, _)| after.is_empty() || *key(full) > *after).collect();
    let mut text = String::from("<ListBucketResult>");
    for (full, stored) in rest.iter().take(1000) {
        text.push_str(&format!(
            "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>{}</ETag><Size>{}</Size></Contents>",
            key(full),
            iso_date(stored.modified_secs),
            etag(&stored.bytes).replace('"', "&quot;"),
            stored.bytes.len()
        ));
    }
    let is_cut = rest.len() > 1000;
    text.push_str(&format!("<IsTruncated>{is_cut}</IsTruncated>"));
    if is_cut {
        text.push_str(&format!("<NextContinuationToken>{}</NextContinuationToken>", key(&rest[999].0)));
    }
    text.push_str("</ListBucketResult>");
    Reply::new(200, text)
}

/// Returns year, month, day, hour, minute, second and the day of the week of a time.
fn civil(secs: i64) -> (i64, i64, i64, i64, i64, i64, i64) {
    let (days, rest) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    // Days since 0000-03-01, in eras of 400 years.
    let since = days + 719_468;
    let (era, of_era) = (since.div_euclid(146_097), since.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day, rest / 3600, rest / 60 % 60, rest % 60, (days + 4).rem_euclid(7))
}

fn iso_date(secs: i64) -> String {
    let (year, month, day, hour, minute, second, _) = civil(secs);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000Z")
}

fn http_date(secs: i64) -> String {
    let (year, month, day, hour, minute, second, weekday) = civil(secs);
    let name = |names: &[&'static str], at: i64| names[usize::try_from(at).unwrap_or(0) % names.len()];
    let weekday = name(&["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"], weekday);
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    format!("{weekday}, {day:02} {} {year} {hour:02}:{minute:02}:{second:02} GMT", name(&months, month - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_s3_writes_them() {
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(iso_date(1_709_164_800), "2024-02-29T00:00:00.000Z");
        assert_eq!(iso_date(0), "1970-01-01T00:00:00.000Z");
    }
}
