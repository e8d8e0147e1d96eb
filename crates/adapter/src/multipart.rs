//! Reads a `multipart/form-data` body as a stream, without buffering whole files.

use axum::body::Bytes;

use api::{
    error::{Code, Problem},
    transfer::Chunks,
};

/// The limit of the headers of a part.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// The parts of a body, one after the other.
pub struct Multipart {
    chunks: Chunks,
    buffer: Vec<u8>,
    /// The line break and the boundary between two parts.
    delimiter: Vec<u8>,
    is_over: bool,
}

/// The headers of a part.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartHead {
    pub name: String,
    pub file: Option<String>,
}

fn invalid(detail: &str) -> Problem {
    Problem::new(Code::InvalidRequest, detail)
}

/// The boundary of the parts in a `Content-Type` header.
pub fn boundary(content_type: &str) -> Option<String> {
    let mut fields = content_type.split(';');
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
    pub fn new(chunks: Chunks, boundary: &str) -> Multipart {
        // The first boundary has no line break before it.
        let buffer = b"\r\n".to_vec();
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        Multipart { chunks, buffer, delimiter, is_over: false }
    }

    /// Returns the headers of the next part. The unread rest of the current part is skipped.
    pub async fn next(&mut self) -> Result<Option<PartHead>, Problem> {
        while self.piece().await?.is_some() {}
        if self.is_over {
            return Ok(None);
        }
        self.fill(self.delimiter.len() + 2).await?;
        self.buffer.drain(..self.delimiter.len());
        if self.buffer.starts_with(b"--") {
            self.is_over = true;
            return Ok(None);
        }
        let end = loop {
            match find(&self.buffer, b"\r\n\r\n") {
                Some(end) => break end,
                None if self.buffer.len() > MAX_HEAD_BYTES => {
                    return Err(invalid("the headers of a part are too long"));
                }
                None => self.fill(self.buffer.len() + 1).await?,
            }
        };
        let head = head(&self.buffer[..end])?;
        self.buffer.drain(..end + 4);
        Ok(Some(head))
    }

    /// Returns the next bytes of the part; `None` at its end.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            if self.is_over {
                return Ok(None);
            }
            match find(&self.buffer, &self.delimiter) {
                Some(0) => return Ok(None),
                Some(end) => return Ok(Some(self.buffer.drain(..end).collect::<Vec<_>>().into())),
                None => {}
            }
            // Bytes that may be the beginning of the delimiter stay in the buffer.
            let certain = self.buffer.len().saturating_sub(self.delimiter.len());
            if certain > 0 {
                return Ok(Some(self.buffer.drain(..certain).collect::<Vec<_>>().into()));
            }
            self.fill(self.buffer.len() + 1).await?;
        }
    }

    /// Reads until the buffer has this many bytes.
    async fn fill(&mut self, bytes: usize) -> Result<(), Problem> {
        while self.buffer.len() < bytes {
            match self.chunks.next().await? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return Err(invalid("the body ends within a part")),
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

fn head(lines: &[u8]) -> Result<PartHead, Problem> {
    let text =
        std::str::from_utf8(lines).map_err(|_| invalid("the headers of a part are not UTF-8"))?;
    let mut found = PartHead::default();
    for line in text.split("\r\n") {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.trim().eq_ignore_ascii_case("content-disposition") {
            found = disposition(value)?;
        }
    }
    Ok(found)
}

/// Parses the parameters of a `Content-Disposition`, quoted or not (RFC 6266); `filename*` takes precedence over
/// `filename`.
fn disposition(value: &str) -> Result<PartHead, Problem> {
    let mut found = PartHead::default();
    let mut extended = None;
    let mut rest = value.find(';').map_or("", |at| &value[at + 1..]);
    while !rest.trim().is_empty() {
        let Some((name, behind)) = rest.split_once('=') else {
            return Err(invalid("a parameter of Content-Disposition has no value"));
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
                return Err(invalid(
                    "a parameter of Content-Disposition continues after its quotes",
                ));
            }
        };
    }
    found.file = extended.or(found.file);
    Ok(found)
}

/// Decodes a value of the form `UTF-8'language'percent-encoded` (RFC 8187).
fn decode_extended(value: &str) -> Result<String, Problem> {
    let unreadable = || invalid("filename* is not of the form UTF-8''NAME");
    let mut fields = value.splitn(3, '\'');
    let (charset, _, encoded) = (fields.next(), fields.next(), fields.next());
    let encoded = encoded.filter(|_| charset.is_some_and(|it| it.eq_ignore_ascii_case("utf-8")));
    // A plus sign is literal here, not a space.
    let encoded = encoded.ok_or_else(unreadable)?.replace('+', "%2B");
    let bytes = format!("x={encoded}");
    let mut pairs = form_urlencoded::parse(bytes.as_bytes());
    pairs.next().map(|(_, name)| name.into_owned()).ok_or_else(unreadable)
}

/// The unescaped text up to the closing quote, and the text after the quote.
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
    Err(invalid("a quote of Content-Disposition is not closed"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn parts(body: &[u8], size: usize) -> Result<Vec<(PartHead, Vec<u8>)>, Problem> {
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
    async fn parts_are_found_in_chunks_of_any_size() {
        let body =
            b"--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/tmp/a%22b\"\r\n\
            Content-Type: text/plain\r\n\r\nhe\r\n--X\r\nllo\r\n--XX\r\n\
            content-disposition: form-data; name=\"file\"; filename=\"b\"\r\n\r\n\r\n--XX--\r\n";
        for size in 1..body.len() {
            let found = parts(body, size).await.unwrap();
            let head = |file: &str| PartHead { name: "file".into(), file: Some(file.into()) };
            let expected =
                [(head("/tmp/a\"b"), b"he\r\n--X\r\nllo".to_vec()), (head("b"), Vec::new())];
            assert_eq!(found, expected, "in chunks of {size} bytes");
        }
    }

    #[tokio::test]
    async fn a_truncated_body_is_refused() {
        for body in [&b"--XX\r\n"[..], b"--XX\r\nA: b\r\n\r\ncontent", b"nothing", b""] {
            assert!(parts(body, 3).await.is_err(), "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn a_part_is_named_with_and_without_quotes() {
        let check = |value: &str, name: &str, file: Option<&str>| {
            let expected = PartHead { name: name.to_owned(), file: file.map(str::to_owned) };
            assert_eq!(disposition(value).unwrap(), expected, "{value}");
        };
        check("form-data; name=\"file\"", "file", None);
        check("form-data; name=file", "file", None);
        check("form-data; name=file; filename=/tmp/a.txt", "file", Some("/tmp/a.txt"));
        check("form-data;NAME=\"file\" ; FileName=\"a;b=\\\"c\"", "file", Some("a;b=\"c"));
        // A parameter inside the quoted file name is not the name of the field.
        check("form-data; filename=\"; name=x\"; name=\"file\"", "file", Some("; name=x"));
        check("form-data; name=f; filename=a; filename*=UTF-8''%C3%A9+%20", "f", Some("\u{e9}+ "));
        check("form-data", "", None);
        for value in ["form-data; name", "form-data; name=\"a", "form-data; name=\"a\"b"] {
            assert!(disposition(value).is_err(), "{value}");
        }
    }

    #[test]
    fn the_boundary_is_parsed_from_the_content_type() {
        let content_type = "multipart/form-data; boundary=\"a b\"";
        assert_eq!(boundary(content_type).as_deref(), Some("a b"));
        assert_eq!(boundary("Multipart/Form-Data;charset=x;boundary=q").as_deref(), Some("q"));
        assert_eq!(boundary("text/plain; boundary=q"), None);
        assert_eq!(boundary("multipart/form-data"), None);
    }
}
