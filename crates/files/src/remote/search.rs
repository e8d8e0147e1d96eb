//! Search in the files of an instance: its text files are fetched as one archive within limits, so that patterns
//! mean the same everywhere.

use std::io::Read;

use bytes::Bytes;

use super::RemoteDirectory;
use crate::{FileError, Relative};

/// How much text is fetched for a search.
const MAX_SEARCH_BYTES: usize = 64 << 20;

/// The text files at or below a path.
pub(crate) struct RemoteTexts {
    /// Path and content, sorted by path.
    pub(crate) files: Vec<(String, Bytes)>,
    /// There are more files than fit the limit.
    pub(crate) is_cut: bool,
}

impl RemoteDirectory {
    /// Fetches the text files at or below a path. Files below it on other file systems are left out.
    pub(crate) async fn texts(&self, path: &Relative) -> Result<RemoteTexts, FileError> {
        let file = self.quoted(path);
        let script = format!("searchable {file}\narchive {file} {MAX_SEARCH_BYTES}");
        let fetched = self.fetch(&script, path, MAX_SEARCH_BYTES).await?;
        let top = match fetched.first_line.as_str() {
            "directory" => path.clone(),
            _ => path.split_last().map_or_else(Relative::root, |(above, _)| above),
        };
        let (bytes, is_cut) = (Bytes::from(fetched.bytes), fetched.is_cut);
        let unpacked = base::task::blocking(move || unpack(&bytes, &top));
        let mut texts =
            unpacked.await.map_err(|error| FileError::Unavailable { reason: error.to_string() })?;
        texts.is_cut |= is_cut;
        Ok(texts)
    }
}

/// Unpacks as much of an archive as there is.
fn unpack(archive: &Bytes, top: &Relative) -> RemoteTexts {
    let mut texts = RemoteTexts { files: Vec::new(), is_cut: false };
    let mut reader = tar::Archive::new(&**archive);
    reader.set_ignore_zeros(true);
    let Ok(entries) = reader.entries() else { return texts };
    for entry in entries {
        let Ok(mut entry) = entry else {
            texts.is_cut = true;
            break;
        };
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let Ok(name) = Relative::parse(&name) else { continue };
        let mut content = Vec::new();
        if entry.read_to_end(&mut content).is_err() {
            texts.is_cut = true;
            break;
        }
        texts.files.push((top.join(&name).to_string(), content.into()));
    }
    texts.files.sort_by(|(one, _), (other, _)| one.split('/').cmp(other.split('/')));
    texts
}
