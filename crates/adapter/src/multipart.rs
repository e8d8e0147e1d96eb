//! A body of several files, read as it comes and never held whole.

use axum::body::Bytes;

use api::{
    error::{Code, Problem},
    transfer::Chunks,
};

/// Bytes of the lines before a part.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// The parts of a body, one after the other.
pub struct Multipart {
    chunks: Chunks,
    held: Vec<u8>,
    /// The line break and the line between two parts.
    delimiter: Vec<u8>,
    over: bool,
}

/// What is known of a part before its content.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Head {
    /// The name of the field.
    pub name: String,
    /// The name of the file.
    pub file: Option<String>,
}

fn bad(detail: &str) -> Problem {
    Problem::new(Code::InvalidRequest, detail)
}

/// The line between the parts, as the content type names it.
pub fn boundary(kind: &str) -> Option<String> {
    let mut fields = kind.split(';');
    if !fields.next()?.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let found = fields.find_map(|field| {
        let (name, value) = field.trim().split_once('=')?;
        name.eq_ignore_ascii_case("boundary").then(|| value.trim_matches('"').to_owned())
    })?;
    (1..=200).contains(&found.len()).then_some(found)
}

impl Multipart {
    /// The parts of this body.
    pub fn new(chunks: Chunks, boundary: &str) -> Multipart {
        // The first line has no break before it.
        let held = b"\r\n".to_vec();
        Multipart { chunks, held, delimiter: format!("\r\n--{boundary}").into_bytes(), over: false }
    }

    /// The next part; what was not read of the one before is passed over.
    pub async fn next(&mut self) -> Result<Option<Head>, Problem> {
        while self.piece().await?.is_some() {}
        if self.over {
            return Ok(None);
        }
        self.hold(self.delimiter.len() + 2).await?;
        self.held.drain(..self.delimiter.len());
        if self.held.starts_with(b"--") {
            self.over = true;
            return Ok(None);
        }
        let end = loop {
            match find(&self.held, b"\r\n\r\n") {
                Some(end) => break end,
                None if self.held.len() > MAX_HEAD_BYTES => {
                    return Err(bad("a part has a long head"));
                }
                None => self.hold(self.held.len() + 1).await?,
            }
        };
        let head = head(&self.held[..end])?;
        self.held.drain(..end + 4);
        Ok(Some(head))
    }

    /// The next bytes of the part; `None` at its end.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            if self.over {
                return Ok(None);
            }
            match find(&self.held, &self.delimiter) {
                Some(0) => return Ok(None),
                Some(end) => return Ok(Some(self.held.drain(..end).collect::<Vec<_>>().into())),
                None => {}
            }
            // What could be the beginning of the line stays.
            let sure = self.held.len().saturating_sub(self.delimiter.len());
            if sure > 0 {
                return Ok(Some(self.held.drain(..sure).collect::<Vec<_>>().into()));
            }
            self.hold(self.held.len() + 1).await?;
        }
    }

    /// Reads until so many bytes are held.
    async fn hold(&mut self, bytes: usize) -> Result<(), Problem> {
        while self.held.len() < bytes {
            match self.chunks.next().await? {
                Some(chunk) => self.held.extend_from_slice(&chunk),
                None => return Err(bad("the body ends within a part")),
            }
        }
        Ok(())
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = text[from..].iter().position(|byte| *byte == wanted[0]) {
        if text[from + at..].starts_with(wanted) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

fn head(lines: &[u8]) -> Result<Head, Problem> {
    let text = std::str::from_utf8(lines).map_err(|_| bad("the head of a part is not UTF-8"))?;
    let mut found = Head::default();
    for line in text.split("\r\n") {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.trim().eq_ignore_ascii_case("content-disposition") {
            found = disposition(value)?;
        }
    }
    Ok(found)
}

/// The parameters of a `Content-Disposition`, quoted or not (RFC 6266); `filename*` goes before
/// `filename`.
fn disposition(value: &str) -> Result<Head, Problem> {
    let mut found = Head::default();
    let mut extended = None;
    let mut rest = value.find(';').map_or("", |at| &value[at + 1..]);
    while !rest.trim().is_empty() {
        let Some((name, behind)) = rest.split_once('=') else {
            return Err(bad("a parameter of Content-Disposition has no value"));
        };
        let (value, after) = match behind.trim_start().strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = behind.find(';').unwrap_or(behind.len());
                (behind[..end].trim().to_owned(), &behind[end..])
            }
        };
        match name.trim().to_ascii_lowercase().as_str() {
            "name" => found.name = value,
            "filename" => found.file = Some(value),
            "filename*" => extended = Some(decode_extended(&value)?),
            _ => {}
        }
        let after = after.trim_start();
        rest = match after.strip_prefix(';') {
            Some(rest) => rest,
            None if after.is_empty() => "",
            None => {
                return Err(bad("a parameter of Content-Disposition goes on behind its quotes"));
            }
        };
    }
    found.file = extended.or(found.file);
    Ok(found)
}

/// A value of the form `UTF-8'language'percent-encoded` (RFC 8187).
fn decode_extended(value: &str) -> Result<String, Problem> {
    let unreadable = || bad("filename* is not of the form UTF-8''NAME");
    let mut fields = value.splitn(3, '\'');
    let (charset, _, encoded) = (fields.next(), fields.next(), fields.next());
    let encoded = encoded.filter(|_| charset.is_some_and(|it| it.eq_ignore_ascii_case("utf-8")));
    // A plus sign means itself here, not a space.
    let encoded = encoded.ok_or_else(unreadable)?.replace('+', "%2B");
    let bytes = format!("x={encoded}");
    let mut pairs = form_urlencoded::parse(bytes.as_bytes());
    pairs.next().map(|(_, name)| name.into_owned()).ok_or_else(unreadable)
}

/// The text up to the closing quote, with what clients escape made plain, and what is behind the quote.
fn unquote(text: &str) -> Result<(String, &str), Problem> {
    let mut plain = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => {
                let plain = plain.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n");
                return Ok((plain, &text[at + 1..]));
            }
            '\\' => match letters.next() {
                Some((_, escaped @ ('"' | '\\'))) => plain.push(escaped),
                Some((_, other)) => plain.extend(['\\', other]),
                None => {}
            },
            letter => plain.push(letter),
        }
    }
    Err(bad("a quote of Content-Disposition is not closed"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn parts(body: &[u8], size: usize) -> Result<Vec<(Head, Vec<u8>)>, Problem> {
        let pieces: Vec<_> = body.chunks(size).map(|it| Ok(Bytes::copy_from_slice(it))).collect();
        let chunks =
            Chunks::of(futures_util::stream::iter(pieces), 1 << 20, Duration::from_secs(30));
        let mut multipart = Multipart::new(chunks, "XX");
        let mut found = Vec::new();
        while let Some(head) = multipart.next().await? {
            let mut content = Vec::new();
            while let Some(piece) = multipart.piece().await? {
                content.extend_from_slice(&piece);
            }
            found.push((head, content));
        }
        Ok(found)
    }

    #[tokio::test]
    async fn parts_are_found_however_they_are_cut() {
        let body =
            b"--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/tmp/a%22b\"\r\n\
            Content-Type: text/plain\r\n\r\nhe\r\n--X\r\nllo\r\n--XX\r\n\
            content-disposition: form-data; name=\"file\"; filename=\"b\"\r\n\r\n\r\n--XX--\r\n";
        for size in 1..body.len() {
            let found = parts(body, size).await.unwrap();
            let head = |file: &str| Head { name: "file".into(), file: Some(file.into()) };
            let expected =
                [(head("/tmp/a\"b"), b"he\r\n--X\r\nllo".to_vec()), (head("b"), Vec::new())];
            assert_eq!(found, expected, "in pieces of {size}");
        }
    }

    #[tokio::test]
    async fn what_is_cut_off_is_refused() {
        for body in [&b"--XX\r\n"[..], b"--XX\r\nA: b\r\n\r\ncontent", b"nothing", b""] {
            assert!(parts(body, 3).await.is_err(), "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn a_part_is_named_with_and_without_quotes() {
        let check = |value: &str, name: &str, file: Option<&str>| {
            let expected = Head { name: name.to_owned(), file: file.map(str::to_owned) };
            assert_eq!(disposition(value).unwrap(), expected, "{value}");
        };
        check("form-data; name=\"file\"", "file", None);
        check("form-data; name=file", "file", None);
        check("form-data; name=file; filename=/tmp/a.txt", "file", Some("/tmp/a.txt"));
        check("form-data;NAME=\"file\" ; FileName=\"a;b=\\\"c\"", "file", Some("a;b=\"c"));
        // A name within the name of the file is no name of the field.
        check("form-data; filename=\"; name=x\"; name=\"file\"", "file", Some("; name=x"));
        check("form-data; name=f; filename=a; filename*=UTF-8''%C3%A9+%20", "f", Some("\u{e9}+ "));
        check("form-data", "", None);
        for value in ["form-data; name", "form-data; name=\"a", "form-data; name=\"a\"b"] {
            assert!(disposition(value).is_err(), "{value}");
        }
    }

    #[test]
    fn the_content_type_names_the_line() {
        let kind = "multipart/form-data; boundary=\"a b\"";
        assert_eq!(boundary(kind).as_deref(), Some("a b"));
        assert_eq!(boundary("Multipart/Form-Data;charset=x;boundary=q").as_deref(), Some("q"));
        assert_eq!(boundary("text/plain; boundary=q"), None);
        assert_eq!(boundary("multipart/form-data"), None);
    }
}
