//! `multipart/form-data` bodies, as the file APIs of vendors take them.

use bytes::Bytes;

/// Returns the content type and the body of a form of (name, file name, content).
pub(super) fn multipart(fields: &[(&str, Option<&str>, &[u8])]) -> (String, Bytes) {
    let whole: Vec<&[u8]> = fields.iter().map(|(_, _, bytes)| *bytes).collect();
    let mark = blake3::hash(&whole.concat()).to_hex();
    let mark = format!("stead-{}", &mark[..32]);
    let mut body = Vec::new();
    for (name, file, bytes) in fields {
        body.extend_from_slice(format!("--{mark}\r\n").as_bytes());
        let head = match file {
            Some(file) => format!(
                "Content-Disposition: form-data; name=\"{name}\"; filename=\"{}\"\r\n\
                 Content-Type: application/octet-stream\r\n\r\n",
                file.replace(['"', '\r', '\n'], "_")
            ),
            None => format!("Content-Disposition: form-data; name=\"{name}\"\r\n\r\n"),
        };
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{mark}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={mark}"), body.into())
}
